//! Repair: a new log with the records below the damage.

use std::path::Path;

use crate::{Lsn, Repair, RepairReport, Result};

/// Copies the records below `from` of the damaged log in the folder `log` into a new log
/// in the folder `into`, which is missing or empty. The damaged log is never changed.
///
/// `from` is the first LSN that is given up: the first place without a whole record, or the LSN of
/// a record below it. The field [`end`](crate::inspect::Verdict::end) of
/// [`Inspector::verify_deep`](crate::inspect::Inspector::verify_deep) is that place, and so is
/// [`Error::lsn`](crate::Error::lsn) of an `OutOfRange` error. The entries of `bad_places` are not:
/// if only the header of a segment is damaged, its records are whole, and a repair keeps them.
///
/// Repair checks every frame that it keeps. The new log has the identity of the old one, its
/// records with their LSNs, and a clean end. Appends continue above every LSN that the old log can
/// have returned. The repair gives up records that only the log buffer of a killed process holds:
/// they are above the damage.
///
/// [`Repair`] does the same in two steps, of which the first is a dry run, and reports progress.
///
/// # Durability
/// The new log survives power loss when this returns. A repair that ends before leaves a folder
/// that no open takes for the log: it is empty, or an open returns `Foreign`.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("palisade-repair-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&folder);
/// # std::fs::create_dir(&folder).unwrap();
/// # let (log, into) = (folder.join("log"), folder.join("repaired"));
/// use palisade::{Wal, repair};
///
/// let wal = Wal::open(&log)?;
/// let kept = wal.commit(b"kept")?;
/// let given_up = wal.commit(b"given up")?;
/// wal.close()?;
///
/// let report = repair(&log, &into, given_up)?;
/// assert_eq!((report.records, report.given_up_records), (1, 1));
/// let wal = Wal::open(&into)?;
/// assert_eq!(wal.get(kept)?.data(), b"kept");
/// assert!(wal.commit(b"later")? > given_up);
/// # wal.close()?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`Repair::plan`] and [`Repair::write`].
pub fn repair(log: impl AsRef<Path>, into: impl AsRef<Path>, from: Lsn) -> Result<RepairReport> {
    Repair::plan(log, from, &mut |_| {})?.write(into, &mut |_| {})
}

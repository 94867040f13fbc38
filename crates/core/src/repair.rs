//! The repair of a log in a folder: what lies below the damage, copied into a folder of its own, as
//! [`copy`](crate::copy) says; and a count of what is given up.
//!
//! The damaged log's lock is held, shared with other readers, from the plan on. Nothing is written
//! to its folder, nor to its log buffer, of which only the marks are read.

use std::path::Path;
use std::sync::Arc;

use palisade_store::disk::{Disk, DiskFile, OsDisk, guarded};
use palisade_store::{FileReader, ReadStore, State};

use crate::copy::progress::{CopyProgress, CopyStep, OnProgress, PROGRESS_BYTES};
use crate::copy::{self, CopyPlan, CopyReport, GivenOut, check_apart, highest_end};
use crate::inspect::{SALVAGE_READ_BYTES, Salvage, Salvaged};
use crate::{Error, ErrorKind, Lsn, Result};

/// What a repair keeps and gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Where the copy begins: at the head of the damaged log; at the next epoch's base if the head
    /// lies between two epochs; at `base` if nothing is kept.
    pub head: Lsn,
    /// Records that are kept.
    pub records: u64,
    /// Bytes of log that are kept, including headers and padding.
    pub bytes: u64,
    /// Exclusive end of the last record that is kept.
    pub end: Lsn,
    /// The start of the part that is given up, as the caller named it.
    pub from: Lsn,
    /// Exclusive end of the part that is given up, as far as it is known.
    pub given_up_to: Lsn,
    /// Records at or above `from` that validate: `Inspector::salvage` reads them from the damaged
    /// log.
    pub given_up_records: u64,
    /// The LSN of the next append: above every LSN that the damaged log can have returned.
    pub base: Lsn,
    /// The copy's last epoch, in which appends continue.
    pub epoch: u64,
}

/// The repair of a damaged log: reads it, and copies the records below some LSN into a new log. The
/// damaged log is never changed.
///
/// The records that only the log buffer of a killed process holds are given up: they lie above the
/// damage.
///
/// # To use the copy
/// 1. Close all handles of the damaged log.
/// 2. Move the damaged folder away, and keep it for `Inspector::salvage`.
/// 3. Rename the copy to the path that the engine opens.
/// 4. Open the path with [`OpenMode::MustExist`](crate::OpenMode::MustExist).
///
/// # A log without its file `meta`
/// If `meta` is missing, or both copies of the state in it are damaged, an open and a repair refuse
/// the log, and change nothing. There are three ways to get the records back:
/// - Put back a `meta` of this log that was saved after the last truncation. The open recovers the
///   records that follow its clean end. After an older one the log shows truncated records again,
///   or is refused.
/// - [Restore](crate::Restore) from the log's archive and the folder. The records keep their LSNs.
/// - Read the records with `palisade dump` or `palisade salvage`, and append them to a new log,
///   where they get other LSNs.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let temp = tempfile::tempdir().unwrap();
/// # let (log, into) = (temp.path().join("log"), temp.path().join("repaired"));
/// use palisade::{Repair, Wal};
///
/// let wal = Wal::open(&log)?;
/// let kept = wal.commit(b"kept")?;
/// let given_up = wal.commit(b"given up")?;
/// wal.close()?;
///
/// let repair = Repair::plan(&log, given_up, &mut |_| {})?; // nothing is copied yet
/// assert_eq!((repair.report().records, repair.report().given_up_records), (1, 1));
/// repair.write(&into, &mut |_| {})?;
/// let wal = Wal::open(&into)?;
/// assert_eq!(wal.get(kept)?.data(), b"kept");
/// assert!(wal.commit(b"later")? > given_up);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Repair {
    source: Arc<FileReader>,
    /// The damaged log's lock. A folder without a lock file has none.
    lock: Option<Box<dyn DiskFile>>,
    copy: CopyPlan,
    report: RepairReport,
}

impl Repair {
    /// Reads the log in the folder `log`, checks every frame below `from`, and counts what of the
    /// rest validates. `from` is the first LSN that is given up: the first place without a whole
    /// record, or the LSN of a record below it. `on_progress` is called after each few MiB.
    ///
    /// Changes nothing. While the plan exists, an open of the log gives `Locked`.
    ///
    /// # Errors
    /// - `OutOfRange`: `from` lies above the first place without a whole record; the error's
    ///   [`lsn`](Error::lsn) is that place, as is the `end` of a verification of the damaged log.
    ///   Or no LSN is left for the copy.
    /// - `NotARecord`: no record begins at `from`. `Truncated`: it lies below the head.
    /// - `Locked`: a process has the log open for writing.
    /// - `Corrupt`: the state is damaged, or headers contradict each other: nothing tells what the
    ///   log was.
    /// - `InvalidArgument`, `NotFound`, `Foreign`, `Unsupported`, `PermissionDenied`, `NoFiles`,
    ///   `Io`: there is no log that can be read.
    pub fn plan(
        log: impl AsRef<Path>,
        from: Lsn,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<Repair> {
        Repair::plan_on(Arc::new(OsDisk), log.as_ref(), from, on_progress)
    }

    /// Plans a repair of a log on a disk, as [`plan`](Repair::plan) does.
    ///
    /// # Errors
    /// As [`plan`](Repair::plan).
    pub fn plan_on(
        disk: Arc<dyn Disk>,
        log: &Path,
        from: Lsn,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<Repair> {
        let disk = guarded(disk);
        let random =
            disk.host().random().map_err(|error| Error::io("draw the epoch's salt", error));
        let source = Arc::new(FileReader::open_on(disk, log)?);
        let lock = source.lock_out_writers()?;
        source.meta()?;
        let noted = source.noted_in_the_buffer()?;
        let store: Arc<dyn ReadStore> = Arc::clone(&source) as Arc<dyn ReadStore>;
        let given_out = GivenOut { lsn: noted, epoch: 0 };
        let copy = CopyPlan::new(Arc::clone(&store), from, given_out, random?, on_progress)?;
        let (given_up_records, given_up_to) = count_given_up(&store, from, on_progress)?;
        let CopyReport { head, records, bytes, end, base, epoch, .. } = *copy.report();
        let State { checkpoint, clean_end, .. } = *copy.source();
        let report = RepairReport {
            head,
            records,
            bytes,
            end,
            from,
            given_up_to: given_up_to.max(checkpoint).max(clean_end).max(noted),
            given_up_records,
            base,
            epoch,
        };
        Ok(Repair { source, lock, copy, report })
    }

    /// Returns what is kept and what is given up.
    #[must_use]
    pub fn report(&self) -> &RepairReport {
        &self.report
    }

    /// Copies what is kept into the folder `into`, which is missing or empty. The copy has the
    /// damaged log's identity, and its records with their LSNs. Appends go on above every LSN that
    /// the damaged log can have given out. Files are made for this user only
    /// ([`DEFAULT_FILE_MODE`](crate::DEFAULT_FILE_MODE)), whatever permissions the damaged log has.
    ///
    /// # Durability
    /// The copy survives power loss when this returns. Whatever ends it before leaves a folder that
    /// no open takes for the log: it is empty, or an open gives `Foreign`.
    ///
    /// # Errors
    /// - `InvalidArgument`: `into` is not empty, or lies in the damaged log's folder.
    /// - `Foreign`: `into` is no folder. `NotFound`: there is no folder to make it in, or its path
    ///   led to another folder before the copy was complete.
    /// - `Locked`: the damaged log, which has no lock file, was written to meanwhile.
    /// - `NoSpace`, `NoFiles`, `PermissionDenied`, `Io`: the copy cannot be written.
    ///
    /// After an error what was copied is removed again.
    pub fn write(
        self,
        into: impl AsRef<Path>,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<RepairReport> {
        let into = into.as_ref();
        check_apart(self.source.folder().path(), into)?;
        copy::write_copy(&self.copy, into, &|| self.look_again(), on_progress)?;
        Ok(self.report)
    }

    /// Writes the copy as [`write`](Repair::write) does, into a folder of a disk.
    ///
    /// # Errors
    /// As [`write`](Repair::write).
    pub fn write_on(
        self,
        disk: Arc<dyn Disk>,
        into: &Path,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<RepairReport> {
        copy::write_copy_on(disk, &self.copy, into, &|| self.look_again(), on_progress)?;
        Ok(self.report)
    }

    fn look_again(&self) -> Result<()> {
        self.source.check_unchanged(self.lock.is_some(), self.copy.source())
    }
}

/// Returns the number of records at or above `from` that validate, and where the log ends that is
/// given up. Skips what cannot be read.
fn count_given_up(
    store: &Arc<dyn ReadStore>,
    from: Lsn,
    on_progress: OnProgress<'_>,
) -> Result<(u64, Lsn)> {
    let highest_end = highest_end(&store.segments()?, store.state()?.segment_bytes);
    let total = highest_end.bytes_since(from.min(highest_end));
    let mut records = 0;
    let mut salvage = Salvage::new(store, Some(from), SALVAGE_READ_BYTES)?;
    let (mut end, mut reported_to) = (from, from);
    loop {
        match salvage.next() {
            Ok(Some(Salvaged::Record(record))) => {
                records += 1;
                end = end.max(record.next_lsn());
            }
            Ok(Some(Salvaged::Gap(gap))) => end = end.max(gap.to),
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Io => {}
            Err(error) => return Err(error),
        }
        if end.bytes_since(reported_to) >= PROGRESS_BYTES {
            reported_to = end;
            let done = end.bytes_since(from).min(total);
            on_progress(CopyProgress { step: CopyStep::Count, done, total });
        }
    }
    Ok((records, end))
}

//! Looking at a log in a folder without opening it, also beside a running writer.
//!
//! Nothing in here writes, or reads the log buffer: records that only lie there are not seen.

use std::path::Path;

pub use palisade_core::inspect::{Outcome, Verdict};
use palisade_core::store::{Segment, State};
use palisade_store::FileReader;

use crate::{Lsn, Records, Result};

/// A read-only view of the log in a folder.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("palisade-inspect-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&folder);
/// use palisade::{Wal, inspect::{Inspector, Outcome}};
///
/// let wal = Wal::open(&folder)?;
/// wal.commit(b"record")?;
/// wal.close()?;
/// let verdict = Inspector::open(&folder)?.verify()?;
/// assert_eq!((verdict.outcome, verdict.records), (Outcome::Clean, 1));
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Inspector {
    files: FileReader,
    view: palisade_core::inspect::Inspector,
}

impl Inspector {
    /// A view of the log in the folder `path`.
    ///
    /// # Errors
    /// `NotFound`, `Foreign`: there is no log. `Io`, `PermissionDenied`: it cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Inspector> {
        let files = FileReader::open(path.as_ref())?;
        let view = palisade_core::inspect::Inspector::new(FileReader::open(path)?);
        Ok(Inspector { files, view })
    }

    /// The log's state as it was last saved.
    ///
    /// # Errors
    /// `Corrupt` if no copy of it validates, `Io` if it cannot be read.
    pub fn state(&self) -> Result<State> {
        self.view.state()
    }

    /// All segments that are present, with their headers.
    ///
    /// # Errors
    /// `Io` if they cannot be listed or read.
    pub fn segments(&self) -> Result<Vec<Segment>> {
        self.view.segments()
    }

    /// Whether a process holds the log at this moment.
    ///
    /// # Errors
    /// `Io` if the lock file cannot be looked at.
    pub fn has_writer(&self) -> Result<bool> {
        self.files.has_writer()
    }

    /// The records from `from`, or from the head on; ends silently where nothing valid follows.
    ///
    /// # Errors
    /// `Corrupt` if headers contradict each other, `Io` if a file cannot be read.
    pub fn records(&self, from: Option<Lsn>) -> Result<Records> {
        self.view.records(from)
    }

    /// Reads and checks every record, then the end as recovery would. Damage is an outcome, not
    /// an error.
    ///
    /// # Errors
    /// `Io` if a file cannot be read; `Unsupported` if the format is newer.
    pub fn verify(&self) -> Result<Verdict> {
        let had_writer = self.has_writer()?;
        let mut verdict = self.view.verify()?;
        if verdict.outcome == Outcome::TornTail && (had_writer || self.has_writer()?) {
            verdict.outcome = Outcome::Unfinished;
        }
        Ok(verdict)
    }
}

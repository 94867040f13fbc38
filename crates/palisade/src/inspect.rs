//! Looking at a log in a folder without opening it, also beside a running writer.
//!
//! Nothing in here writes, or reads the log buffer: records that only lie there are not seen.

use std::path::Path;

pub use palisade_core::inspect::{BadPlace, Gap, Outcome, Salvage, Salvaged, Verdict};
use palisade_core::store::{Segment, State};
use palisade_store::{ArchiveReader, FileReader, SyncMethod};

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

    /// How the log's commits reached the medium when its state was last saved; never
    /// [`Auto`](SyncMethod::Auto).
    ///
    /// # Errors
    /// As [`state`](Inspector::state).
    pub fn sync_method(&self) -> Result<SyncMethod> {
        self.files.sync_method()
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
        self.judge(|view| view.verify())
    }

    /// As [`verify`](Inspector::verify), by `threads` threads (0: one for each core), and going on
    /// behind damage: the verdict names a bad place of each damaged segment.
    ///
    /// # Errors
    /// As [`verify`](Inspector::verify).
    pub fn verify_deep(&self, threads: usize) -> Result<Verdict> {
        self.judge(|view| view.verify_deep(threads))
    }

    /// Everything that still validates from `from`, or from the head on: skips damage and says
    /// what it skipped. For logs that cannot be opened; changes nothing and takes no lock. Beside a
    /// running writer a gap can be what the writer was at work on.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let id = std::process::id();
    /// # let folder = std::env::temp_dir().join(format!("palisade-salvage-{id}"));
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// use palisade::{Wal, inspect::{Inspector, Salvaged}};
    ///
    /// let wal = Wal::open(&folder)?;
    /// wal.commit(b"record")?;
    /// wal.close()?;
    /// let mut salvage = Inspector::open(&folder)?.salvage(None)?;
    /// while let Some(next) = salvage.next()? {
    ///     match next {
    ///         Salvaged::Record(record) => assert_eq!(record.data(), b"record"),
    ///         Salvaged::Gap(gap) => println!("lost: LSN {} to {}", gap.from, gap.to),
    ///         _ => {}
    ///     }
    /// }
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corrupt` if no copy of the log's state validates; `Io`.
    pub fn salvage(&self, from: Option<Lsn>) -> Result<Salvage> {
        self.view.salvage(from)
    }

    fn judge(
        &self,
        verify: impl Fn(&palisade_core::inspect::Inspector) -> Result<Verdict>,
    ) -> Result<Verdict> {
        let had_writer = self.has_writer()?;
        let mut verdict = verify(&self.view)?;
        if verdict.outcome == Outcome::TornTail && (had_writer || self.has_writer()?) {
            verdict.outcome = Outcome::Unfinished;
        }
        Ok(verdict)
    }
}

/// The records of the segments that a log has [archived](crate::Options::archive).
///
/// To restore them, append what [`records`](Archive::records) gives to a log, in its order. Their
/// LSNs are those that they had. An archive ends with a segment, at or below the head of the log
/// that writes it: the records between are archived when their segment is released.
///
/// An archive breaks where a segment is missing or damaged, and where the log began anew after a
/// loss of all that it held, the header of the head's segment included
/// ([`PointInTime`](crate::RecoveryPolicy::PointInTime)): what that segment held below the head is in
/// no archive then. The error at such a place names it; [`segments`](Archive::segments) tells where
/// the line goes on, and `records` reads on from there.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("palisade-archive-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&folder);
/// # std::fs::create_dir(&folder).unwrap();
/// use palisade::{Options, inspect::Archive};
///
/// let kept = folder.join("archive");
/// let wal = Options::new().segment_bytes(64 << 10).archive(&kept).open(folder.join("log"))?;
/// let first = wal.append(&[1; 30_000])?.lsn();
/// wal.append(&[2; 30_000])?;
/// let third = wal.append(&[3; 30_000])?.lsn(); // in the second segment
/// wal.truncate_before(third)?; // archives the first
/// let mut records = Archive::open(&kept)?.records(None)?;
/// assert_eq!(records.next()?.unwrap().lsn(), first);
/// # wal.close()?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Archive {
    files: ArchiveReader,
    view: palisade_core::inspect::Inspector,
}

impl Archive {
    /// A view of the archived segments in the folder `path`.
    ///
    /// # Errors
    /// `NotFound`: there are none. `Corrupt`: the first one's header does not validate.
    /// `Unsupported`: a newer format. `PermissionDenied`, `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
        let files = ArchiveReader::open(path.as_ref())?;
        let view = palisade_core::inspect::Inspector::new(ArchiveReader::open(path)?);
        Ok(Archive { files, view })
    }

    /// All archived segments, with their headers.
    ///
    /// # Errors
    /// `Io` if they cannot be listed or read.
    pub fn segments(&self) -> Result<Vec<Segment>> {
        self.view.segments()
    }

    /// The records from the one at `from`, or from the first archived one on.
    ///
    /// # Errors
    /// `Corrupt` if headers contradict each other, `Io` if a file cannot be read. The iterator
    /// gives `Corrupt` at a record that is damaged, or that was in a segment that is missing, and
    /// where nothing says that the next epoch follows on the one before.
    pub fn records(&self, from: Option<Lsn>) -> Result<Records> {
        self.view.records_until(from, self.files.end()?)
    }
}

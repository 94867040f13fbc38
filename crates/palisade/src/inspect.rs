//! Reads a log in a folder without opening it, also while a process writes to it.
//!
//! Nothing in this module writes to the log, or reads records from the log buffer. So it does not
//! see records that only the log buffer holds. A verification reads how far the log buffer notes
//! the log durable.

use std::path::Path;
use std::sync::Arc;

pub use palisade_core::inspect::{BadPlace, Gap, Outcome, Salvage, Salvaged, Verdict};
pub use palisade_core::store::{
    BadHeader, Predecessor, SavedCursor, Segment, SegmentHeader, State,
};
pub use palisade_store::BufferPlace;
use palisade_store::FileReader;

use crate::disk::{Disk, OsDisk};
use crate::{CursorStatus, ErrorKind, Lsn, Records, Result};

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
    /// Creates a view of the log in the folder `path`. The log may have lost its meta file: see
    /// [`has_rebuilt_state`](Inspector::has_rebuilt_state).
    ///
    /// # Errors
    /// `InvalidArgument`: the path is empty. `NotFound`, `Foreign`: there is no log. `Corrupt`: no
    /// copy of its state and no header of a segment validates. `Unsupported`: the format is newer.
    /// `Io`, `PermissionDenied`, `NoFiles`: the log cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Inspector> {
        Inspector::open_on(Arc::new(OsDisk), path)
    }

    /// Creates a view of the log in the folder `path` of `disk`.
    ///
    /// # Errors
    /// As [`open`](Inspector::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Inspector> {
        let files = FileReader::open_on(Arc::clone(&disk), path.as_ref())?;
        let view = FileReader::open_on(disk, path.as_ref())?;
        let view = palisade_core::inspect::Inspector::new(view);
        Ok(Inspector { files, view })
    }

    /// Returns whether the log's meta file was missing, or had no copy that validates. Then the
    /// view rebuilds the state from the headers of the segments: the head is the start of the
    /// lowest segment, and there is no checkpoint and no clean end. The view may show truncated
    /// records, and only the records show where the log ended.
    /// [`Options::open`](crate::Options::open) refuses such a log.
    #[must_use]
    pub fn has_rebuilt_state(&self) -> bool {
        self.files.has_rebuilt_state()
    }

    /// Returns whether one of the two copies of the state in the meta file does not validate or
    /// cannot be read. The other copy serves, and the next open writes both. A crash while the
    /// state was saved can leave this; else the medium has changed the copy.
    ///
    /// # Errors
    /// `Io`, `PermissionDenied`, `NoFiles`: the file cannot be opened.
    pub fn has_damaged_copy(&self) -> Result<bool> {
        self.files.has_damaged_copy()
    }

    /// Returns an error if the folder is a copy of a log that an open could not sync. What reads
    /// right may be in the page cache only, so [`Options::open`](crate::Options::open) refuses the
    /// folder, and the outcome of [`verify`](Inspector::verify) is [`Corrupt`](Outcome::Corrupt).
    ///
    /// # Errors
    /// `Foreign`: it is such a copy; remove it, then copy the log again. `Io`, `PermissionDenied`,
    /// `NoFiles`: the folder cannot be read.
    pub fn check_synced(&self) -> Result<()> {
        self.files.check_synced()
    }

    /// Returns the log's state as it was last saved, or as it was
    /// [rebuilt](Inspector::has_rebuilt_state).
    ///
    /// # Errors
    /// `NotFound`, `Foreign`, `Corrupt`: the state is gone, or no copy of it validates any more.
    /// `Unsupported`: the format is newer. `Io`, `PermissionDenied`, `NoFiles`: it cannot be read.
    pub fn state(&self) -> Result<State> {
        self.view.state()
    }

    /// Returns all segments that are present, with their headers, or why there is none
    /// ([`BadHeader`]).
    ///
    /// # Errors
    /// `Foreign`: a segment is a link, a FIFO or a folder. `Unsupported`: a newer version wrote
    /// one. `Io`, `PermissionDenied`, `NoFiles`: they cannot be listed or opened.
    pub fn segments(&self) -> Result<Vec<Segment>> {
        self.view.segments()
    }

    /// Returns where the log ends: at its clean end if nothing follows that, or else at the end of
    /// the last record that validates. Records follow a clean end if a meta file that was saved
    /// earlier was put back. If the newest epoch has no record, the log ends at the base of that
    /// epoch.
    ///
    /// Reads segments from the highest down to the last record, and waits for no writer. Does not
    /// see records that only the log buffer holds. Does not check the records below the end:
    /// [`verify`](Inspector::verify) does.
    ///
    /// # Errors
    /// As [`state`](Inspector::state) and [`segments`](Inspector::segments). `Truncated`: the
    /// writer truncates the log too often; call again.
    pub fn end(&self) -> Result<Lsn> {
        self.view.end()
    }

    /// Returns all saved cursors, by name, with their lags and whether they keep the log, as
    /// [`Wal::cursors`](crate::Wal::cursors) does in the process that writes.
    ///
    /// The lag reaches to the [`end`](Inspector::end), so it can be less than in the writer, whose
    /// log buffer may hold more. [`is_open`](CursorStatus::is_open) is always false. A
    /// [rebuilt](Inspector::has_rebuilt_state) state has no cursors. Reads what `end` reads.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let id = std::process::id();
    /// # let folder = std::env::temp_dir().join(format!("palisade-cursors-{id}"));
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// use palisade::{Wal, inspect::Inspector};
    ///
    /// let wal = Wal::open(&folder)?;
    /// drop(wal.create_cursor("index", None, 1 << 30)?);
    /// wal.commit(b"record")?;
    /// for cursor in Inspector::open(&folder)?.cursors()? {
    ///     println!("{} lags {} bytes", cursor.name, cursor.lag);
    ///     assert!(cursor.keeps_the_log && cursor.lag > 0);
    /// }
    /// # drop(wal);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`end`](Inspector::end).
    pub fn cursors(&self) -> Result<Vec<CursorStatus>> {
        self.view.cursors()
    }

    /// Returns whether a process holds the log at this moment. Tries the log's lock, and frees it
    /// at once.
    ///
    /// # Errors
    /// `Foreign`: the file `lock` is a link, a FIFO or a folder. `Io`, `PermissionDenied`,
    /// `NoFiles`: the file cannot be opened or locked.
    pub fn has_writer(&self) -> Result<bool> {
        self.files.has_writer()
    }

    /// Returns where the log buffer is.
    ///
    /// # Errors
    /// As [`state`](Inspector::state). A rebuilt state does not help: only the meta file names the
    /// log buffer.
    pub fn buffer(&self) -> Result<BufferPlace> {
        self.files.buffer()
    }

    /// Returns the records from `from` on, or from the head on. A `from` below the head counts as
    /// the head. The iterator ends without an error at the first frame that does not validate. So a
    /// `from` within a record returns no record.
    ///
    /// If a segment is missing, or its header is damaged, the iterator returns the records up to
    /// the first place without a whole record, and then the error. [`Repair`](crate::Repair) keeps
    /// the same records. Use [`salvage`](Inspector::salvage) for the records above.
    ///
    /// Beside a writer that truncates, it returns the records before or after a truncation, or an
    /// error.
    ///
    /// # Errors
    /// As [`state`](Inspector::state) and [`segments`](Inspector::segments). `Corrupt`, from the
    /// iterator: a segment is missing, or headers are damaged or contradict each other.
    /// `Truncated`, also from the iterator: the writer truncated the log meanwhile; call again.
    pub fn records(&self, from: Option<Lsn>) -> Result<Records> {
        self.view.records(from)
    }

    /// Decides where the log ends, as recovery would, and checks every record up to there. Damage
    /// is an outcome, not an error. A log without its meta file is always
    /// [`Corrupt`](Outcome::Corrupt). So is a copy that an open could not sync: see
    /// [`check_synced`](Inspector::check_synced).
    ///
    /// # Errors
    /// As [`state`](Inspector::state), [`segments`](Inspector::segments) and
    /// [`has_writer`](Inspector::has_writer). `Unsupported`: a newer version wrote a record.
    /// `Truncated`: the writer truncates the log too often; call again.
    pub fn verify(&self) -> Result<Verdict> {
        self.judge(|view| view.verify())
    }

    /// Verifies with `threads` threads (0: one for each core), and continues above damage. The
    /// verdict names the first bad place of each damaged segment. If segments are missing, it names
    /// the first of each gap. If the log is corrupt, [`Verdict::end`] is the LSN to pass to
    /// [`Repair::plan`](crate::Repair::plan).
    ///
    /// The engine in this example replays the records from the last checkpoint on, then starts the
    /// log. If acknowledged data is damaged, the engine makes a repaired copy:
    ///
    /// ```rust,no_run
    /// use palisade::inspect::Inspector;
    /// use palisade::{ErrorKind, OpenMode, Options, Repair, ReplayFrom, Result, Verify, Wal};
    ///
    /// # fn apply(_: &[u8]) -> Result<()> { Ok(()) }
    /// fn open() -> Result<Wal> {
    ///     let options = Options::new().open_mode(OpenMode::MustExist).verify(Verify::Full);
    ///     let recovery = options.recover("wal")?;
    ///     let mut records = recovery.records(ReplayFrom::Checkpoint)?;
    ///     while let Some(record) = records.next()? {
    ///         apply(record.data())?;
    ///     }
    ///     Ok(recovery.start())
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// if open().is_err_and(|error| error.kind() == ErrorKind::Corrupt) {
    ///     // Loses no record that can be kept.
    ///     let from = Inspector::open("wal")?.verify_deep(0)?.end;
    ///     let repair = Repair::plan("wal", from, &mut |_| {})?;
    ///     println!("{:?}", repair.report()); // for a person to decide
    ///     repair.write("wal.repaired", &mut |_| {})?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`verify`](Inspector::verify).
    pub fn verify_deep(&self, threads: usize) -> Result<Verdict> {
        self.judge(|view| view.verify_deep(threads))
    }

    /// Returns everything that still validates from `from` on, or from the head on. Use it for logs
    /// that cannot be opened. The walk skips damage and reports each skipped range. It changes
    /// nothing and takes no lock. If a process writes to the log, a gap can be a range that the
    /// process was writing.
    ///
    /// A `from` below the head counts as the head. A `from` that is not a multiple of 8 is rounded
    /// up. If `from` is within a record, the walk reports a gap up to the next record.
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
    /// As [`state`](Inspector::state) and [`segments`](Inspector::segments). `Truncated`, once, at
    /// the end of the walk: the writer truncated the suffix meanwhile, and records may be missing.
    pub fn salvage(&self, from: Option<Lsn>) -> Result<Salvage> {
        self.view.salvage(from)
    }

    fn judge(
        &self,
        verify: impl Fn(&palisade_core::inspect::Inspector) -> Result<Verdict>,
    ) -> Result<Verdict> {
        let had_writer = self.has_writer()?;
        let mut verdict = verify(&self.view)?;
        let is_open = matches!(verdict.outcome, Outcome::Unclean | Outcome::TornTail);
        if is_open && (had_writer || self.has_writer()?) {
            verdict.outcome = Outcome::Unfinished;
        }
        if let Err(error) = self.check_synced() {
            if error.kind() != ErrorKind::Foreign {
                return Err(error);
            }
            verdict.why = Some(error.finding());
            verdict.outcome = Outcome::Corrupt;
        } else if self.has_rebuilt_state() {
            let what = match verdict.outcome {
                Outcome::Corrupt => "and there is more damage",
                _ => "and no other damage was found",
            };
            let why = verdict.why.take().map_or(String::new(), |why| format!("; {why}"));
            let text = "the log's state is lost: the file `meta` is missing or damaged";
            verdict.why = Some(format!("{text}, {what}{why}"));
            verdict.outcome = Outcome::Corrupt;
        }
        Ok(verdict)
    }
}

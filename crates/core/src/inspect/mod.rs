//! Reads a log without changing it, also beside a running writer.
//!
//! Nothing in this module takes a lock, reads records from the log buffer, or writes. A writer may
//! recycle a segment while this module reads it. So if bytes do not validate, the inspector reads
//! them again. If they are below the head by then, they were truncated and are not corrupt.
//!
//! A writer saves the state before it frees a segment: with a higher head, or with a later epoch.
//! So what was read before a look at the state that shows neither is what the log had.

mod beside;
mod cursors;
mod salvage;
mod verify;

use std::path::Path;
use std::sync::Arc;

use palisade_store::disk::{Disk, OsDisk};
use palisade_store::{BufferPlace, FileReader, ReadStore, Segment, State};

use self::beside::ForeignLog;
pub use self::salvage::{Gap, Salvage, Salvaged};
pub use self::verify::{Outcome, Verdict};
use crate::copy;
use crate::reader::{FrameReader, Records};
use crate::recovery::layout::Layout;
use crate::recovery::listing::Listing;
pub use crate::recovery::verify::BadPlace;
use crate::{Error, ErrorKind, Lsn, Result};

const READ_AHEAD_BYTES: usize = 1 << 20;
/// The read size of a salvage. A failed read costs the records that it would have returned.
pub(crate) const SALVAGE_READ_BYTES: usize = 64 << 10;
/// A verification reports damage when it has found it this many times. A finding during which the
/// log's state changed does not count.
const ATTEMPTS: usize = 5;
/// After so many findings during which the state changed, each further finding counts.
const RESTARTS: usize = 1000;

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
#[derive(Clone, Debug)]
pub struct Inspector {
    store: Arc<dyn ReadStore>,
    /// The same, if it is the folder of a log.
    files: Option<Arc<FileReader>>,
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
        let files = Arc::new(FileReader::open_on(disk, path.as_ref())?);
        Ok(Inspector { store: Arc::clone(&files) as Arc<dyn ReadStore>, files: Some(files) })
    }

    /// Creates a view of what is no folder of a log, such as an archive. It has no writer.
    #[doc(hidden)]
    #[must_use]
    pub fn new(store: impl ReadStore) -> Inspector {
        Inspector { store: Arc::new(store), files: None }
    }

    /// Returns whether the log's meta file was missing, or had no copy that validates. Then the
    /// view rebuilds the state from the headers of the segments: the head is the start of the
    /// lowest segment, and there is no checkpoint and no clean end. The view may show truncated
    /// records, and only the records show where the log ended.
    /// [`Options::open`](crate::Options::open) refuses such a log.
    #[must_use]
    pub fn has_rebuilt_state(&self) -> bool {
        self.files.as_ref().is_some_and(|files| files.has_rebuilt_state())
    }

    /// Returns whether one of the two copies of the state in the meta file does not validate or
    /// cannot be read. The other copy serves, and the next open writes both. A crash while the
    /// state was saved can leave this; else the medium has changed the copy.
    ///
    /// # Errors
    /// `Io`, `PermissionDenied`, `NoFiles`: the file cannot be opened.
    pub fn has_damaged_copy(&self) -> Result<bool> {
        self.files.as_ref().map_or(Ok(false), |files| files.has_damaged_copy())
    }

    /// Returns an error if the folder is a copy of a log that an open could not sync. What reads
    /// right may be in the page cache only, so [`Options::open`](crate::Options::open) refuses the
    /// folder, and the outcome of [`verify`](Inspector::verify) is [`Corrupt`](Outcome::Corrupt).
    ///
    /// # Errors
    /// `Foreign`: it is such a copy; remove it, then copy the log again. `Io`, `PermissionDenied`,
    /// `NoFiles`: the folder cannot be read.
    pub fn check_synced(&self) -> Result<()> {
        self.files.as_ref().map_or(Ok(()), |files| files.check_synced())
    }

    /// Returns whether a process holds the log at this moment. Tries the log's lock, and frees it
    /// at once.
    ///
    /// # Errors
    /// `Foreign`: the file `lock` is a link, a FIFO or a folder. `Io`, `PermissionDenied`,
    /// `NoFiles`: the file cannot be opened or locked.
    pub fn has_writer(&self) -> Result<bool> {
        self.files.as_ref().map_or(Ok(false), |files| files.has_writer())
    }

    /// Returns where the log buffer is.
    ///
    /// # Errors
    /// As [`state`](Inspector::state). A rebuilt state does not help: only the meta file names the
    /// log buffer.
    pub fn buffer(&self) -> Result<BufferPlace> {
        self.files.as_ref().map_or(Ok(BufferPlace::None), |files| files.buffer())
    }

    /// Returns the log's state as it was last saved, or as it was
    /// [rebuilt](Inspector::has_rebuilt_state).
    ///
    /// # Errors
    /// `NotFound`, `Foreign`, `Corrupt`: the state is gone, or no copy of it validates any more.
    /// `Unsupported`: the format is newer. `Io`, `PermissionDenied`, `NoFiles`: it cannot be read.
    pub fn state(&self) -> Result<State> {
        self.store.state()
    }

    /// Returns all segments that are present, with their headers, or why there is none
    /// ([`BadHeader`](palisade_store::BadHeader)).
    ///
    /// # Errors
    /// `Foreign`: a segment is a link, a FIFO or a folder. `Unsupported`: a newer version wrote
    /// one. `Io`, `PermissionDenied`, `NoFiles`: they cannot be listed or opened.
    pub fn segments(&self) -> Result<Vec<Segment>> {
        self.store.segments()
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
        let layout = match self.layout() {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                return self.records_of_damaged(from, error);
            }
            layout => layout?,
        };
        let head = layout.state.head;
        let reader = self.reader(layout.state.segment_bytes);
        let from = from.unwrap_or(head).max(head);
        let log = ForeignLog::new(self.clone(), layout.largest_epoch);
        Ok(Records::new(reader, layout.spans, from).of_foreign(Box::new(log)))
    }

    /// Returns the records of a log of which `error` says that headers are missing or damaged.
    fn records_of_damaged(&self, from: Option<Lsn>, error: Error) -> Result<Records> {
        let listing = Listing::read(self.store.as_ref())?;
        let spans = copy::epochs_back_to_the_head(&listing);
        let State { head, segment_bytes, epoch, .. } = listing.state;
        let epoch = spans.last().map_or(epoch, |last| last.epoch.max(epoch));
        let log = ForeignLog::new(self.clone(), epoch);
        let from = from.unwrap_or(head).max(head);
        let records = Records::new(self.reader(segment_bytes), spans, from);
        Ok(records.of_foreign(Box::new(log)).ending_with(error))
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
        Salvage::new(&self.store, from, SALVAGE_READ_BYTES)
    }

    /// Returns the records from `from` on, or from the head on, up to `end`. One of the records
    /// must end at `end`.
    ///
    /// Segments may be missing. To read the records above a missing segment, call this again with
    /// a `from` above it.
    ///
    /// # Errors
    /// `Corrupt`: headers contradict each other. `Io`: the store cannot be read. The iterator
    /// returns `Corrupt` at the first place below `end` where no record validates. It also returns
    /// `Corrupt` at the end of an epoch if no header names the next epoch.
    pub(crate) fn records_until(&self, from: Option<Lsn>, end: Lsn) -> Result<Records> {
        let listing = Listing::read(self.store.as_ref())?;
        let mut spans = listing.epochs(&self.store.place())?;
        if let Some(newest) = spans.last_mut() {
            newest.end = end.max(newest.base);
        }
        let State { head, segment_bytes, .. } = listing.state;
        Ok(Records::new(self.reader(segment_bytes), spans, from.unwrap_or(head).max(head)))
    }

    /// Reads the layout of one moment.
    fn layout(&self) -> Result<Layout> {
        self.undisturbed(|| Layout::read(self.store.as_ref()))
    }

    fn reader(&self, segment_bytes: u64) -> FrameReader {
        FrameReader::new(Arc::clone(&self.store), segment_bytes, READ_AHEAD_BYTES)
    }
}

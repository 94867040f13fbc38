//! Reads a log without changing it, also beside a running writer.
//!
//! A writer saves the state, with a higher head or a later epoch, before it frees a segment. So a
//! read counts if a later look at the state finds neither; otherwise it is repeated.

mod cursors;
mod salvage;
mod verify;

use std::path::Path;
use std::sync::Arc;

use palisade_store::disk::{Disk, OsDisk};
use palisade_store::{BufferPlace, FileReader, ReadStore, Segment, State};

#[doc(hidden)]
pub use self::cursors::LogParts;
pub use self::salvage::{Gap, Salvage, Salvaged};
pub use self::verify::{Outcome, Verdict};
use crate::reader::{EpochSpan, FrameReader, Records, Relist, truncated_meanwhile};
use crate::recovery::epoch_chain::{EpochChain, spans_across_breaks};
use crate::recovery::layout::Layout;
use crate::recovery::listing::Listing;
pub use crate::recovery::verify::BadPlace;
use crate::{Error, ErrorKind, Lsn, Result};

const READ_AHEAD_BYTES: usize = 1 << 20;
/// A failed read costs its records.
pub(crate) const SALVAGE_READ_BYTES: usize = 64 << 10;
/// Damage that is found this many times with an unchanged state is reported.
const ATTEMPTS: usize = 5;
/// The most repeats because the state changed.
const RESTARTS: usize = 1000;

/// A read-only view of the log in a folder, without the records that only the log buffer has. Calls
/// that read can also return `Io`, `PermissionDenied` and `NoFiles`.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// use palisade::{Wal, inspect::{Inspector, Outcome}};
///
/// let wal = Wal::open(&folder)?;
/// wal.commit(b"record")?;
/// wal.close()?;
/// let verdict = Inspector::open(&folder)?.verify()?;
/// assert_eq!((verdict.outcome, verdict.records), (Outcome::Clean, 1));
/// # Ok::<(), palisade::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inspector {
    store: Arc<dyn ReadStore>,
    files: Option<Arc<FileReader>>,
}

impl Inspector {
    /// Creates a view, also of a log [without a meta file](Inspector::has_rebuilt_state).
    ///
    /// # Errors
    /// `InvalidArgument`, `NotFound`, `Foreign`, `Unsupported`. `Corrupt`: no copy of the state and
    /// no header of a segment validates.
    pub fn open(path: impl AsRef<Path>) -> Result<Inspector> {
        Inspector::open_on(Arc::new(OsDisk), path)
    }

    /// As [`open`](Inspector::open), on `disk`.
    ///
    /// # Errors
    /// As [`open`](Inspector::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Inspector> {
        let files = Arc::new(FileReader::open_on(disk, path.as_ref())?);
        Ok(Inspector { store: Arc::clone(&files) as Arc<dyn ReadStore>, files: Some(files) })
    }

    /// Creates a view of an archive.
    #[doc(hidden)]
    #[must_use]
    pub fn new(store: impl ReadStore) -> Inspector {
        Inspector { store: Arc::new(store), files: None }
    }

    /// Returns whether the meta file was missing, or had no copy that validates. The state then
    /// comes from the headers of the segments: the head is the start of the lowest one, and there
    /// is no checkpoint and no clean end. The view may show truncated records.
    /// [`Options::open`](crate::Options::open) refuses such a log.
    #[must_use]
    pub fn has_rebuilt_state(&self) -> bool {
        self.files.as_ref().is_some_and(|files| files.has_rebuilt_state())
    }

    /// Returns whether a crash during a save, or the medium, has damaged one of the two copies of
    /// the state in the meta file. The next open writes both.
    ///
    /// # Errors
    /// As at [`Inspector`].
    pub fn has_damaged_copy(&self) -> Result<bool> {
        self.files.as_ref().map_or(Ok(false), |files| files.has_damaged_copy())
    }

    /// Fails if the folder is a copy that an open could not sync: its bytes may be in the page
    /// cache only. [`Options::open`](crate::Options::open) refuses it.
    ///
    /// # Errors
    /// `Foreign`: remove the copy, then copy the log again.
    pub fn check_synced(&self) -> Result<()> {
        self.files.as_ref().map_or(Ok(()), |files| files.check_synced())
    }

    /// Returns whether a process holds the log's lock.
    ///
    /// # Errors
    /// `Foreign`.
    pub fn has_writer(&self) -> Result<bool> {
        self.files.as_ref().map_or(Ok(false), |files| files.has_writer())
    }

    /// Returns where the log buffer is.
    ///
    /// # Errors
    /// As [`state`](Inspector::state), also for a rebuilt state.
    pub fn buffer(&self) -> Result<BufferPlace> {
        self.files.as_ref().map_or(Ok(BufferPlace::None), |files| files.buffer())
    }

    /// Returns the log's state as last saved, or [rebuilt](Inspector::has_rebuilt_state).
    ///
    /// # Errors
    /// `NotFound`, `Foreign`, `Unsupported`, `Corrupt`.
    pub fn state(&self) -> Result<State> {
        self.store.state()
    }

    /// Returns the segments that are present, with their headers, or what is wrong with those
    /// ([`BadHeader`](palisade_store::BadHeader)).
    ///
    /// # Errors
    /// `Foreign`, `Unsupported`.
    pub fn segments(&self) -> Result<Vec<Segment>> {
        self.store.segments()
    }

    /// Returns the records from `from` or the head on, whichever is higher, up to the first frame
    /// that does not validate: a `from` within a record returns none. A concurrent truncation shows
    /// in full or not at all.
    ///
    /// If a segment is missing, or its header is damaged, the iterator returns the records that a
    /// [`Repair`](crate::Repair) keeps, and then `Corrupt`. [`salvage`](Inspector::salvage) returns
    /// others, too.
    ///
    /// # Errors
    /// As [`state`](Inspector::state) and [`segments`](Inspector::segments). `Truncated`, also from
    /// the iterator: call again.
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

    fn records_of_damaged(&self, from: Option<Lsn>, error: Error) -> Result<Records> {
        let listing = Listing::read(self.store.as_ref())?;
        let spans = EpochChain::of(&listing).spans;
        let State { head, segment_bytes, epoch, .. } = listing.state;
        let epoch = spans.last().map_or(epoch, |last| last.epoch.max(epoch));
        let log = ForeignLog::new(self.clone(), epoch);
        let from = from.unwrap_or(head).max(head);
        let records = Records::new(self.reader(segment_bytes), spans, from);
        Ok(records.of_foreign(Box::new(log)).ending_with(error))
    }

    /// Returns everything that still validates from `from` or the head on, whichever is higher, for
    /// logs that cannot be opened, and reports what it skips: beside a writer perhaps a range that
    /// it was writing.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// use palisade::{Wal, inspect::{Inspector, Salvaged}};
    ///
    /// Wal::open(&folder)?.commit(b"record")?;
    /// let mut salvage = Inspector::open(&folder)?.salvage(None)?;
    /// while let Some(next) = salvage.next()? {
    ///     match next {
    ///         Salvaged::Record(record) => assert_eq!(record.data(), b"record"),
    ///         Salvaged::Gap(gap) => println!("lost: LSN {} to {}", gap.from, gap.to),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok::<(), palisade::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`state`](Inspector::state) and [`segments`](Inspector::segments).
    pub fn salvage(&self, from: Option<Lsn>) -> Result<Salvage> {
        Salvage::new(&self.store, from, SALVAGE_READ_BYTES)
    }

    /// Returns the records up to `end`, where one must end. Call this again for those above a
    /// missing segment.
    pub(crate) fn records_until(&self, from: Option<Lsn>, end: Lsn) -> Result<Records> {
        let listing = Listing::read(self.store.as_ref())?;
        let mut spans = spans_across_breaks(&listing, &self.store.place())?;
        if let Some(newest) = spans.last_mut() {
            newest.end = end.max(newest.base);
        }
        let State { head, segment_bytes, .. } = listing.state;
        Ok(Records::new(self.reader(segment_bytes), spans, from.unwrap_or(head).max(head)))
    }

    fn layout(&self) -> Result<Layout> {
        self.undisturbed(|| Layout::read(self.store.as_ref()))
    }

    fn reader(&self, segment_bytes: u64) -> FrameReader {
        FrameReader::new(Arc::clone(&self.store), segment_bytes, READ_AHEAD_BYTES)
    }
}

impl Inspector {
    /// Calls `read` until no truncation comes meanwhile, at most [`ATTEMPTS`] times after an error.
    pub(super) fn undisturbed<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        let mut attempts = 0;
        for _ in 0..RESTARTS {
            let before = self.state()?;
            let found = read();
            let after = self.state()?;
            if (before.epoch, before.head) == (after.epoch, after.head) {
                attempts += 1;
                if found.is_ok() || attempts == ATTEMPTS {
                    return found;
                }
            }
        }
        Err(truncated_meanwhile())
    }
}

pub(super) struct ForeignLog {
    log: Inspector,
    epoch: u64,
}

impl ForeignLog {
    pub(super) fn new(log: Inspector, epoch: u64) -> ForeignLog {
        ForeignLog { log, epoch }
    }
}

impl Relist for ForeignLog {
    fn list_again(&mut self, at: Lsn) -> Result<Option<(Lsn, Vec<EpochSpan>)>> {
        let now = self.log.state()?;
        if now.epoch <= self.epoch && now.head <= at {
            return Ok(None);
        }
        let layout = self.log.layout()?;
        self.epoch = layout.largest_epoch;
        Ok(Some((layout.state.head, layout.spans)))
    }
}

//! Settings of a log of streams.

use std::path::Path;
use std::sync::Arc;

use palisade::disk::Disk;
use palisade::{Error, ErrorKind, IntoStore, OpenMode, Result, SyncPolicy, Wal};

use crate::entries::MAX_SEGMENT_BYTES;
use crate::keeper::Keeper;
use crate::open;
use crate::shared::Shared;
use crate::streams::Streams;

/// The least length of the longest record that the log must have room for, in bytes.
const MIN_RECORD_BYTES: usize = 8000;

/// The least length of the log's buffer, in bytes.
const MIN_BUFFER_BYTES: usize = 16 << 10;

/// Settings of a log of streams, and its open.
///
/// ```no_run
/// use palisade_streams::Options;
///
/// # fn main() -> palisade::Result<()> {
/// let log = palisade::Options::new().segment_bytes(16 << 20).max_bytes(1 << 30);
/// let streams = Options::new().log(log).move_percent(20).open("/var/lib/queue/log")?;
/// println!("{} streams", streams.stats().streams);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing before `open`"]
pub struct Options {
    log: palisade::Options,
    move_percent: u32,
    has_thread: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// Returns the default settings.
    pub fn new() -> Options {
        Options { log: palisade::Options::new(), move_percent: 10, has_thread: true }
    }

    /// Sets the settings of the log below. Its policy must be `OnCommit` or `Interval`, its buffer
    /// at least 16 KiB and its segments below 32 GiB. A later open needs a buffer that still holds
    /// the longest entry: else the keeper cannot move this entry.
    ///
    /// With [`max_bytes`](palisade::Options::max_bytes), three segments are kept for truncations
    /// and moves: if only these are left, appends and other changes return `NoSpace`. In the first
    /// two [values](crate::Stream::put) can still be set, and entries acknowledged. A part of the
    /// last is for moves: truncations that get ahead of the keeper return `NoSpace`.
    pub fn log(mut self, log: palisade::Options) -> Options {
        self.log = log;
        self
    }

    /// Sets how many bytes may be moved for 100 bytes that are released, from 0 (nothing is moved)
    /// to 50. The default is 10. What a release would have allowed and nobody needed is not kept
    /// for later. See [`Streams::pinned`].
    ///
    /// The keeper estimates how much of a segment is live, so one move can take more than this.
    /// Then the next ones wait until releases have made up for it.
    pub fn move_percent(mut self, percent: u32) -> Options {
        self.move_percent = percent;
        self
    }

    /// Sets whether a thread releases, moves and writes footers. The default is true. Without it
    /// the user calls [`Streams::maintain`].
    pub fn background(mut self, has_thread: bool) -> Options {
        self.has_thread = has_thread;
        self
    }

    pub(crate) fn open_mode(&self) -> OpenMode {
        self.log.files().open_mode
    }

    pub(crate) fn with_open_mode(mut self, mode: OpenMode) -> Options {
        self.log = self.log.open_mode(mode);
        self
    }

    /// Opens the log of streams in the folder `path`, or makes it.
    ///
    /// Recovers the log, then reads the footers of its segments, and the records above the last
    /// footer.
    ///
    /// # Errors
    /// As [`palisade::Options::open`]. `InvalidArgument`: a setting is out of its range. `Foreign`:
    /// the folder has another log than one of streams. `Corrupt`: a record of the streams does not
    /// make sense. Nothing is lost.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Streams> {
        self.check()?;
        self.start(self.log.open(path)?)
    }

    /// Opens the log of streams in the folder `path` of `disk`.
    ///
    /// # Errors
    /// As [`open`](Options::open).
    pub fn open_on(&self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Streams> {
        self.check()?;
        self.start(self.log.open_on(disk, path)?)
    }

    /// Opens the log of streams in a store, for example in a [`MemStore`](palisade::MemStore).
    ///
    /// # Errors
    /// As [`open`](Options::open), and as [`Wal::with_store`].
    pub fn with_store(&self, store: impl IntoStore) -> Result<Streams> {
        self.check()?;
        self.start(Wal::with_store(store, self.log.clone())?)
    }

    fn check(&self) -> Result<()> {
        let refuse = |text: &str| Err(Error::new(ErrorKind::InvalidArgument, text));
        // With 100 the keeper could move full segments for ever.
        if self.move_percent > 50 {
            return refuse("move_percent is from 0 to 50");
        }
        let (buffer_bytes, policy) = self.log.buffer_and_policy();
        if !matches!(policy, SyncPolicy::OnCommit | SyncPolicy::Interval(_)) {
            // An append that fails after its record is in the log would leave an index unknown.
            return refuse("streams need the policy OnCommit or Interval; use commit for more");
        }
        // Before there is a log: a new one keeps its segments' length.
        let segment_bytes = self.log.files().segment_bytes.unwrap_or(0);
        if buffer_bytes < MIN_BUFFER_BYTES || segment_bytes > MAX_SEGMENT_BYTES {
            return refuse(&format!(
                "streams need a log with buffer_bytes of {MIN_BUFFER_BYTES} at least and \
                 segment_bytes of {MAX_SEGMENT_BYTES} at most"
            ));
        }
        Ok(())
    }

    fn start(&self, wal: Wal) -> Result<Streams> {
        if wal.max_record_bytes() < MIN_RECORD_BYTES || wal.segment_bytes() > MAX_SEGMENT_BYTES {
            let text = format!(
                "the log has records of {} bytes at most and segments of {}; streams need records \
                 of {MIN_RECORD_BYTES} and segments of {MAX_SEGMENT_BYTES} at most",
                wal.max_record_bytes(),
                wal.segment_bytes()
            );
            let advice = "set buffer_bytes to 16 KiB or more, and segment_bytes in a new log";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_advice(advice));
        }
        let opened = open::load(&wal)?;
        let keeper = Keeper::new(self.move_percent, opened.last_footer);
        let shared = Shared::new(wal, opened.directory, opened.segments, keeper)?;
        Streams::start(shared, opened.report, self.has_thread)
    }
}

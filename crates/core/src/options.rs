//! The settings of a log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use palisade_store::{
    BufferKind, FileOptions, MAX_BUFFER_BYTES, MIN_BUFFER_BYTES, OnRelease, OpenMode,
};

use crate::events::Events;
use crate::{Codec, CodecId, Error, ErrorKind, Lsn, Result};

/// Longest interval of [`SyncPolicy::Interval`].
pub const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// How safe `append` alone is. Calls that wait for durability sync at once.
///
/// A store on files keeps at most 64 unsynced segments open. A write into one more syncs and closes
/// the oldest, which moves no watermark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncPolicy {
    /// Syncs only when a caller waits.
    #[default]
    OnCommit,
    /// Each `append` waits until its record is durable.
    Always,
    /// A sync begins at most this long after the oldest unsynced append (or the end of a sync that
    /// was running then), or 20 milliseconds after a lack of space. Above 0, at most a day; less
    /// than 100 microseconds counts as 100.
    Interval(Duration),
    /// Each `append` hands its bytes to the operating system.
    Os,
}

/// The largest value of [`Options::verify_threads`].
pub const MAX_VERIFY_THREADS: usize = 256;

/// How much of the log an open checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verify {
    /// After an unclean end, the segments that can be torn. A reader finds damage elsewhere.
    #[default]
    Tail,
    /// Each frame from the head on, with one thread for each core. Takes as long as reading the
    /// log.
    Full,
}

/// Settings of a log and its folder. [`open`](Options::open) checks the values.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// use palisade::{OpenMode, Options, SyncPolicy};
/// use std::time::Duration;
///
/// let wal = Options::new()
///     .segment_bytes(16 << 20)
///     .sync_policy(SyncPolicy::Interval(Duration::from_millis(5)))
///     .open_mode(OpenMode::CreateNew)
///     .open(&folder)?;
/// # Ok::<(), palisade::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they open a log"]
pub struct Options {
    pub(crate) files: FileOptions,
    pub(crate) buffer_bytes: usize,
    pub(crate) sync_policy: SyncPolicy,
    pub(crate) write_bytes: usize,
    pub(crate) max_waiters: usize,
    pub(crate) gather_percent: u32,
    pub(crate) read_ahead_bytes: usize,
    pub(crate) verify: Verify,
    /// 0: one for each core. 1 starts no thread.
    pub(crate) verify_threads: usize,
    pub(crate) pad_to_block: bool,
    pub(crate) soft_limit: Option<SoftLimit>,
    pub(crate) events: Option<Arc<dyn Events>>,
    pub(crate) codec: Option<Arc<dyn Codec>>,
}

/// See [`Options::soft_limit`].
#[derive(Clone)]
pub(crate) struct SoftLimit {
    pub(crate) bytes: u64,
    /// Gets the bytes of the segments.
    pub(crate) callback: Arc<dyn Fn(u64) + Send + Sync>,
}

impl fmt::Debug for SoftLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftLimit").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            files: FileOptions::default(),
            // At 5 GB/s it hides 3 ms of a slow device.
            buffer_bytes: 16 << 20,
            sync_policy: SyncPolicy::OnCommit,
            // Large enough to hide the system call, small enough to stay in the cache.
            write_bytes: 1 << 20,
            max_waiters: 65_536,
            gather_percent: 50,
            read_ahead_bytes: 256 << 10,
            verify: Verify::Tail,
            verify_threads: 0,
            pad_to_block: false,
            soft_limit: None,
            events: None,
            codec: None,
        }
    }
}

impl Options {
    /// Returns the defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the bytes of log in a segment: a multiple of 4096 from 64 KiB to 1 TiB, fixed when the
    /// log is created. Default 64 MiB, or the size that an existing log has.
    pub fn segment_bytes(mut self, bytes: u64) -> Options {
        self.files.segment_bytes = Some(bytes);
        self
    }

    /// Sets the least LSN of a new log, which rounds it up to the start of a segment. Default 0, at
    /// most 2^59. A log that is created anew must begin above all LSNs that the engine's pages
    /// have.
    pub fn first_lsn(mut self, lsn: Lsn) -> Options {
        self.files.first_lsn = lsn;
        self
    }

    /// Sets the bytes of the log buffer: a power of two from 4 KiB to 1 GiB. Default 16 MiB. Slots
    /// take half as much again.
    pub fn buffer_bytes(mut self, bytes: usize) -> Options {
        self.buffer_bytes = bytes;
        self
    }

    /// Sets the memory of the log buffer. Default [`BufferKind::Auto`].
    pub fn buffer(mut self, kind: BufferKind) -> Options {
        self.files.buffer = kind;
        self
    }

    /// Sets when the log syncs without a request. Default [`SyncPolicy::OnCommit`].
    pub fn sync_policy(mut self, policy: SyncPolicy) -> Options {
        self.sync_policy = policy;
        self
    }

    /// Sets whether the log may or must exist. Default [`OpenMode::CreateIfMissing`]. With
    /// [`OpenMode::MustExist`] a disk that is not mounted does not yield an empty log.
    pub fn open_mode(mut self, mode: OpenMode) -> Options {
        self.files.open_mode = mode;
        self
    }

    /// Sets the least number of released segments that are kept for reuse. Default 4. The log keeps
    /// about as many as it takes between two truncations, up to four times the option, but only on
    /// ext4, XFS and tmpfs, which overwrite in place. Only one spare and the file `reserve` take
    /// new space.
    pub fn spare_segments(mut self, count: usize) -> Options {
        self.files.spare_segments = count;
        self
    }

    /// Sets whether segments are written with zeros ahead of the tail, so that a commit changes no
    /// metadata. Default true. No effect on a file system that may not overwrite in place.
    pub fn zero_fill(mut self, zero_fill: bool) -> Options {
        self.files.zero_fill = zero_fill;
        self
    }

    /// Sets the permissions of the files that the log creates, on Unix only. Default
    /// [`DEFAULT_FILE_MODE`](crate::DEFAULT_FILE_MODE), `0o600`, whose bits the value must contain.
    /// Who may read the files may also enter a new folder. The umask applies.
    ///
    /// Existing segments and folders keep their permissions, but an open narrows those of the file
    /// `lock`, because who can read it can hold the lock: allow a group of readers, not everybody.
    pub fn file_mode(mut self, mode: u32) -> Options {
        self.files.file_mode = mode;
        self
    }

    /// Gives each segment that [`truncate_before`](crate::Wal::truncate_before) releases to
    /// `callback`, before the log loses it ([`OnRelease`]). An [`Archive`](crate::Archive) keeps
    /// copies. Default: none.
    ///
    /// ```
    /// use palisade::{Error, OnRelease, Options, ReleasedSegment, Result};
    /// use std::{collections::BTreeMap, io::Read, sync::Mutex};
    ///
    /// /// Stands for a bucket of an object store.
    /// #[derive(Debug, Default)]
    /// struct Bucket(Mutex<BTreeMap<String, Vec<u8>>>);
    ///
    /// impl OnRelease for Bucket {
    ///     fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
    ///         let mut bytes = Vec::new();
    ///         segment
    ///             .reader()
    ///             .read_to_end(&mut bytes)
    ///             .map_err(|error| Error::io("read the segment", error))?;
    ///         // Until this has succeeded the segment stays in the log.
    ///         let key = format!("{}/{}", segment.uuid, segment.file_name());
    ///         self.0.lock().unwrap().insert(key, bytes);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let options = Options::new().on_release(Bucket::default());
    /// ```
    pub fn on_release(mut self, callback: impl OnRelease + 'static) -> Options {
        self.files.on_release = Some(Arc::new(callback));
        self
    }

    /// Limits the bytes that the files of segments and spares may take; at least four segments,
    /// each with 4096 bytes more. Default: no limit.
    ///
    /// At the limit the log behaves as on a full disk. An open and each truncation of the suffix
    /// may exceed it by one segment, and by those that the records in the log buffer need, usually
    /// one. After an open above the limit whose epoch has no records yet, `append` and `checkpoint`
    /// return `NoSpace` until a truncation has brought the segments to the limit.
    /// [`Wal::space`](crate::Wal::space) shows what the log takes.
    pub fn max_bytes(mut self, bytes: u64) -> Options {
        self.files.max_bytes = Some(bytes);
        self
    }

    /// Calls `callback` with the bytes of the segments that hold log when they exceed `bytes`, and
    /// again only after a truncation has brought them below. The log checks at each new segment.
    /// The callback runs as those of [`on_durable`](crate::Wal::on_durable). Default: no call.
    pub fn soft_limit(
        mut self,
        bytes: u64,
        callback: impl Fn(u64) + Send + Sync + 'static,
    ) -> Options {
        self.soft_limit = Some(SoftLimit { bytes, callback: Arc::new(callback) });
        self
    }

    /// Sets the bytes of a piece, above 0. The log rounds them up to a power of two, at most half
    /// the log buffer. Default 1 MiB.
    pub fn write_bytes(mut self, bytes: usize) -> Options {
        self.write_bytes = bytes;
        self
    }

    /// Sets how long a leader waits at most for committers just woken, in percent of a measured
    /// sync, at most 100. Default 50; 0 turns the wait off.
    pub fn gather_percent(mut self, percent: u32) -> Options {
        self.gather_percent = percent;
        self
    }

    /// Sets how many futures and callbacks may wait at one time, at least 1. Default 65 536.
    pub fn max_waiters(mut self, count: usize) -> Options {
        self.max_waiters = count;
        self
    }

    /// Sets how much of the log an open checks. Default [`Verify::Tail`].
    pub fn verify(mut self, verify: Verify) -> Options {
        self.verify = verify;
        self
    }

    /// Sets whether each sync ends with a block of 4096 bytes, so that no synced block is written
    /// again, for media on which power loss can damage the whole block. Default false. Costs up to
    /// 4 KiB for each sync.
    pub fn pad_to_block(mut self, pads: bool) -> Options {
        self.pad_to_block = pads;
        self
    }

    /// Sets the codec of the records: `Lz4` or `Zstd` (features `lz4` and `zstd`), or a [`Codec`]
    /// of your own. Default: none. A log's codec, or none, and key identifier never change; an open
    /// with others returns `Mismatch`.
    ///
    /// The appending thread encodes before it reserves, and each reader decodes. LSNs count stored
    /// bytes. Verification, recovery and copies need no codec; the readers of
    /// [`inspect`](crate::inspect) return stored bytes
    /// ([`Record::is_encoded`](crate::Record::is_encoded)).
    pub fn codec(mut self, codec: impl Codec) -> Options {
        // A name that is not valid is refused by the log's options.
        self.files.codec = CodecId::of(&codec).ok();
        self.codec = Some(Arc::new(codec));
        self
    }

    /// Sets what an iterator reads ahead, for tests.
    #[doc(hidden)]
    pub fn read_ahead_bytes(mut self, bytes: usize) -> Options {
        self.read_ahead_bytes = bytes;
        self
    }

    /// Sets the threads of [`Verify::Full`], for tests.
    #[doc(hidden)]
    pub fn verify_threads(mut self, threads: usize) -> Options {
        self.verify_threads = threads;
        self
    }

    /// Returns the settings of the files, for the crates above.
    #[doc(hidden)]
    #[must_use]
    pub fn files(&self) -> &FileOptions {
        &self.files
    }

    /// Returns two settings, for the crates above.
    #[doc(hidden)]
    #[must_use]
    pub fn buffer_and_policy(&self) -> (usize, SyncPolicy) {
        (self.buffer_bytes, self.sync_policy)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let buffer = self.buffer_bytes;
        let in_range = (MIN_BUFFER_BYTES..=MAX_BUFFER_BYTES).contains(&buffer);
        check(buffer.is_power_of_two() && in_range, || {
            format!("buffer_bytes is {buffer}; it must be a power of two from 4 KiB to 1 GiB")
        })?;
        check(self.write_bytes > 0, || "write_bytes is 0; it must be at least 1".into())?;
        check(self.max_waiters > 0, || "max_waiters is 0; it must be at least 1".into())?;
        let percent = self.gather_percent;
        check(percent <= 100, || format!("gather_percent is {percent}; it must be at most 100"))?;
        check((4096..=1 << 30).contains(&self.read_ahead_bytes), || {
            format!("read_ahead_bytes is {}; it must be from 4 KiB to 1 GiB", self.read_ahead_bytes)
        })?;
        self.codec.as_deref().map(CodecId::of).transpose()?;
        let threads = self.verify_threads;
        check(threads <= MAX_VERIFY_THREADS, || {
            format!("verify_threads is {threads}; it must be at most {MAX_VERIFY_THREADS}")
        })?;
        let SyncPolicy::Interval(interval) = self.sync_policy else { return Ok(()) };
        check(!interval.is_zero(), || "sync_policy is Interval(0); use SyncPolicy::Always".into())?;
        check(interval <= MAX_INTERVAL, || {
            format!("sync_policy is Interval({interval:?}); it must be at most a day")
        })
    }
}

fn check(holds: bool, message: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::new(ErrorKind::InvalidArgument, message())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        Options::default().validate().unwrap();
    }

    #[test]
    fn each_bad_value_is_named() {
        let cases: [(&str, Options); 7] = [
            (
                "a day",
                Options { sync_policy: SyncPolicy::Interval(Duration::MAX), ..Options::default() },
            ),
            ("buffer_bytes", Options { buffer_bytes: 5000, ..Options::default() }),
            ("max_waiters", Options { max_waiters: 0, ..Options::default() }),
            ("read_ahead_bytes", Options { read_ahead_bytes: 4095, ..Options::default() }),
            ("verify_threads", Options { verify_threads: 257, ..Options::default() }),
            ("gather_percent", Options { gather_percent: 101, ..Options::default() }),
            (
                "sync_policy",
                Options { sync_policy: SyncPolicy::Interval(Duration::ZERO), ..Options::default() },
            ),
        ];
        for (name, options) in cases {
            let error = options.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

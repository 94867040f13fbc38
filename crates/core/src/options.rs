//! All settings of a log, in one builder.

use std::sync::Arc;
use std::time::Duration;

use palisade_store::{
    BufferKind, FileOptions, MAX_BUFFER_BYTES, MIN_BUFFER_BYTES, OnRelease, OpenMode,
};

use crate::commit::SoftLimit;
use crate::events::Events;
use crate::{Codec, CodecId, Error, ErrorKind, Lsn, Result};

/// Longest interval of [`SyncPolicy::Interval`]: a day.
pub const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// When the log syncs to the device without a request.
///
/// `commit`, `sync`, `wait_durable`, `Ticket::wait` and `.await` sync at once under every policy.
/// The policy decides only what `append` alone does. If more than 64 segments are unsynced, a store
/// on files syncs and closes the oldest one under each policy, because a process has few
/// descriptors. That moves no watermark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncPolicy {
    /// Syncs when a caller waits for durability, not otherwise.
    #[default]
    OnCommit,
    /// Every `append` returns only after its record is durable.
    Always,
    /// A sync begins at most this long after the oldest unsynced append. If a sync runs at the time
    /// of that append, the time counts from the end of that sync. At most a day; less than 100
    /// microseconds counts as 100. A sync that fails for lack of space is repeated after 20
    /// milliseconds at the latest.
    Interval(Duration),
    /// Every `append` returns after its bytes were handed to the operating system, which syncs them
    /// at a time of its own.
    Os,
}

/// The largest value of [`Options::verify_threads`].
pub const MAX_VERIFY_THREADS: usize = 256;

/// How much of the log an open checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verify {
    /// After an unclean end, the segments that can be torn. After a clean end, nothing. Damage
    /// below shows when it is read.
    #[default]
    Tail,
    /// Every frame of every segment from the head on, in parallel over the segments, also after a
    /// clean end. Takes as long as reading the log.
    Full,
}

/// Settings of a log on files: those of the log and those of its folder.
///
/// Each setting has a default that suits one log on a local disk. [`open`](Options::open) checks
/// the values; setters check nothing.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("palisade-options-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&folder);
/// use palisade::{OpenMode, Options, SyncPolicy};
/// use std::time::Duration;
///
/// let wal = Options::new()
///     .segment_bytes(16 << 20)
///     .buffer_bytes(4 << 20)
///     .sync_policy(SyncPolicy::Interval(Duration::from_millis(5)))
///     .open_mode(OpenMode::CreateNew)
///     .open(&folder)?;
/// # wal.close()?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
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
    /// Bytes that an iterator reads ahead, and each thread of a verification.
    pub(crate) read_ahead_bytes: usize,
    pub(crate) verify: Verify,
    /// 0: one for each core. 1 starts no thread.
    pub(crate) verify_threads: usize,
    pub(crate) pad_to_block: bool,
    pub(crate) soft_limit: Option<SoftLimit>,
    pub(crate) events: Option<Arc<dyn Events>>,
    pub(crate) codec: Option<Arc<dyn Codec>>,
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
    ///
    /// The log keeps the files of at most 64 unsynced segments open. After a write into one more,
    /// it syncs and closes the oldest. This happens with small segments under [`SyncPolicy::Os`],
    /// or without commits.
    pub fn segment_bytes(mut self, bytes: u64) -> Options {
        self.files.segment_bytes = Some(bytes);
        self
    }

    /// Sets the least LSN of a new log. The log rounds it up to the start of a segment. Default 0,
    /// at most 2^59. Has no effect on a log that exists.
    ///
    /// For an engine whose pages have LSNs: if it creates its log anew, for example after a restore
    /// of its pages, the new LSNs must be above those that the pages have.
    pub fn first_lsn(mut self, lsn: Lsn) -> Options {
        self.files.first_lsn = lsn;
        self
    }

    /// Sets the bytes of the log buffer: a power of two from 4 KiB to 1 GiB. Default 16 MiB.
    /// Publish slots take half as much again.
    pub fn buffer_bytes(mut self, bytes: usize) -> Options {
        self.buffer_bytes = bytes;
        self
    }

    /// Sets the memory of the log buffer. Default [`BufferKind::Auto`]: a shared log buffer if
    /// possible, so that an append survives the death of the process.
    pub fn buffer(mut self, kind: BufferKind) -> Options {
        self.files.buffer = kind;
        self
    }

    /// Sets when the log syncs without a request. Default [`SyncPolicy::OnCommit`]. The time of
    /// [`SyncPolicy::Interval`] is above 0 and at most a day.
    pub fn sync_policy(mut self, policy: SyncPolicy) -> Options {
        self.sync_policy = policy;
        self
    }

    /// Sets whether an open creates the log, and whether the log may exist before. Default
    /// [`OpenMode::CreateIfMissing`]. With [`OpenMode::MustExist`] a disk that is not mounted does
    /// not yield an empty log.
    pub fn open_mode(mut self, mode: OpenMode) -> Options {
        self.files.open_mode = mode;
        self
    }

    /// Sets the least number of released segments that are kept for reuse. Default 4. If the log
    /// takes more segments between two truncations, it keeps about as many, up to four times
    /// the option. It keeps none on a file system that may not overwrite in place (others than
    /// ext4, XFS and tmpfs). A separate file `reserve` keeps the space that an open needs on a full
    /// disk.
    pub fn spare_segments(mut self, count: usize) -> Options {
        self.files.spare_segments = count;
        self
    }

    /// Sets whether segments are written with zeros ahead of the tail, so that a commit changes no
    /// metadata of the file system. Default true. Has no effect on a file system that may not
    /// overwrite in place (others than ext4, XFS and tmpfs).
    pub fn zero_fill(mut self, zero_fill: bool) -> Options {
        self.files.zero_fill = zero_fill;
        self
    }

    /// Sets the permissions of the files that the log creates, on Unix; elsewhere it has no effect.
    /// Default [`DEFAULT_FILE_MODE`](crate::DEFAULT_FILE_MODE), `0o600`: only the user of the
    /// process reads and writes them. The value must contain the owner's bits of the default. A
    /// folder that the log creates gets the same permissions. Each class of users that may read it
    /// may also enter it: `0o700` by default.
    ///
    /// The process's umask clears bits as for any file. Existing files and folders keep their
    /// permissions, except that an open takes wider ones from the file `lock`: a user who may read
    /// it can hold the log's lock.
    pub fn file_mode(mut self, mode: u32) -> Options {
        self.files.file_mode = mode;
        self
    }

    /// Gives each segment that [`truncate_before`](crate::Wal::truncate_before) releases to
    /// `callback`, before the log loses it. [`OnRelease`] documents when and on which thread. An
    /// [`Archive`](crate::Archive) copies the segments into a folder. Default: none.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let name = format!("palisade-release-{}", std::process::id());
    /// # let folder = std::env::temp_dir().join(name);
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// use palisade::{Error, OnRelease, Options, ReleasedSegment, Result};
    /// use std::collections::BTreeMap;
    /// use std::io::Read;
    /// use std::sync::{Arc, Mutex};
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
    /// let bucket = Arc::new(Bucket::default());
    /// let wal = Options::new()
    ///     .segment_bytes(64 << 10)
    ///     .on_release(Arc::clone(&bucket))
    ///     .open(&folder)?;
    /// wal.append(&[1; 30_000])?;
    /// wal.append(&[2; 30_000])?;
    /// let third = wal.append(&[3; 30_000])?.lsn(); // in the second segment
    /// wal.truncate_before(third)?;
    /// let key = format!("{}/segment-{:020}", wal.uuid(), 0);
    /// assert!(bucket.0.lock().unwrap().contains_key(&key));
    /// # wal.close()?;
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok(()) }
    /// ```
    pub fn on_release(mut self, callback: impl OnRelease + 'static) -> Options {
        self.files.on_release = Some(Arc::new(callback));
        self
    }

    /// Limits the bytes that the files of segments may take, spares among them; at least four
    /// segments, each with 4096 bytes more. Default: no limit.
    ///
    /// A log that needs more behaves as on a full disk: `commit` and `sync` return `NoSpace`,
    /// nothing is lost, and the log continues when a truncation has freed a segment. An open and a
    /// truncation of the suffix may exceed the limit by one segment, and by those that the records
    /// in the log buffer need, usually one. If the log is above its limit after an open that begins
    /// an epoch, or resumes one without records, `append` and `checkpoint` return `NoSpace` until a
    /// truncation has brought the segments to the limit. So a process that is started again and
    /// again at the limit takes this space once. Each truncation of the suffix may take it again,
    /// without bound, until a truncation of the prefix frees segments.
    /// [`Wal::space`](crate::Wal::space) shows what the log takes and what keeps it.
    pub fn max_bytes(mut self, bytes: u64) -> Options {
        self.files.max_bytes = Some(bytes);
        self
    }

    /// Calls `callback` with the bytes of the segments that hold log, as soon as they take more
    /// than `bytes`. Segments that are only prepared do not count. Calls it again only after a
    /// truncation has brought them below. Default: no call.
    ///
    /// The log looks each time that it comes to another segment. The callback runs on the callback
    /// thread, as those of [`on_durable`](crate::Wal::on_durable) do: it may call the log, for
    /// example to truncate it, and delays other callbacks while it runs. Until the call returns,
    /// the log takes more.
    pub fn soft_limit(
        mut self,
        bytes: u64,
        callback: impl Fn(u64) + Send + Sync + 'static,
    ) -> Options {
        self.soft_limit = Some(SoftLimit { bytes, callback: Arc::new(callback) });
        self
    }

    /// Sets the bytes of a piece that the log writes to the operating system without a commit. At
    /// least 1. Default 1 MiB. An append that passes a multiple of it completes a piece. For this
    /// the log rounds it up to a power of two, at most half the buffer. Under the policies `Always`
    /// and `Os` each append writes.
    pub fn write_bytes(mut self, bytes: usize) -> Options {
        self.write_bytes = bytes;
        self
    }

    /// Sets how long a leader waits at most for committers that it has just woken, in percent of a
    /// measured sync. At most 100. Default 50; 0 turns gathering off.
    pub fn gather_percent(mut self, percent: u32) -> Options {
        self.gather_percent = percent;
        self
    }

    /// Sets how many futures and callbacks may wait at one time, at least 1. Default 65 536.
    /// Threads are not counted.
    pub fn max_waiters(mut self, count: usize) -> Options {
        self.max_waiters = count;
        self
    }

    /// Sets how much of the log an open checks. Default [`Verify::Tail`]. [`Verify::Full`] reads
    /// with one thread for each core.
    pub fn verify(mut self, verify: Verify) -> Options {
        self.verify = verify;
        self
    }

    /// Sets whether each sync ends with a block of 4096 bytes, so that no block that a sync has
    /// covered is written again. Default false. Use it for media on which power loss during a write
    /// can damage all of the block that is written to. Costs up to 4 KiB of log for each sync.
    pub fn pad_to_block(mut self, pads: bool) -> Options {
        self.pad_to_block = pads;
        self
    }

    /// Sets the codec of the records: `Lz4` or `Zstd` (features `lz4` and `zstd`), or a [`Codec`]
    /// of your own, for example an encryption. Default: none.
    ///
    /// A new log gets the codec and keeps it. The meta file and the header of each segment name it,
    /// with the identifier of its key. An open with another codec or another key, with a codec that
    /// the log does not have, or without the one that it has, returns `Mismatch` and changes
    /// nothing.
    ///
    /// Each record is encoded on the thread that appends it, before its reservation, and decoded
    /// by each reader. Verification, recovery, repair, archive, backup and restore work on stored
    /// bytes and need no codec; the readers of [`inspect`](crate::inspect) return stored bytes
    /// ([`Record::is_encoded`](crate::Record::is_encoded)). The distance of two LSNs is that of
    /// stored bytes.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// use palisade::{ErrorKind, Lz4, MemStore, Options, Wal};
    ///
    /// let store = MemStore::new(1 << 20);
    /// let wal = Wal::with_store(store.clone(), Options::new().codec(Lz4::new()))?;
    /// wal.commit(&[7; 1000])?;
    /// drop(wal);
    /// let refused = Wal::with_store(store, Options::new()).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Mismatch);
    /// assert!(refused.to_string().contains("`lz4`"));
    /// # Ok(()) }
    /// ```
    pub fn codec(mut self, codec: impl Codec) -> Options {
        // A name that is not valid is refused by the log's options.
        self.files.codec = CodecId::of(&codec).ok();
        self.codec = Some(Arc::new(codec));
        self
    }

    /// Sets the bytes that an iterator reads ahead, for tests.
    #[doc(hidden)]
    pub fn read_ahead_bytes(mut self, bytes: usize) -> Options {
        self.read_ahead_bytes = bytes;
        self
    }

    /// Sets the threads of [`Verify::Full`], for tests. 0: one for each core. 1 starts no thread.
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

    /// Returns the bytes of the log buffer and the sync policy, for the crates above.
    #[doc(hidden)]
    #[must_use]
    pub fn buffer_and_policy(&self) -> (usize, SyncPolicy) {
        (self.buffer_bytes, self.sync_policy)
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] names the option, its value and its range.
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

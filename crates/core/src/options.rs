//! The options of an open: values, apart from the parts they configure.

use std::sync::Arc;
use std::time::Duration;

use crate::{Codec, CodecId, Error, ErrorKind, Events, Result};

/// Smallest buffer that a log can be opened with: 4 KiB.
pub const MIN_BUFFER_BYTES: usize = 4 << 10;
/// Largest buffer that a log can be opened with: 1 GiB.
pub const MAX_BUFFER_BYTES: usize = 1 << 30;
/// Smallest segment that any store may have: 4 KiB (files start at 64 KiB).
pub const MIN_SEGMENT_BYTES: u64 = 4 << 10;
/// Largest segment that a log may have: 1 TiB.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 40;

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

/// Settings of the log. The settings of its files belong to the store.
///
/// The defaults suit one log on a local disk. An open checks the values with [`Options::validate`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of the log buffer, a power of two from 4 KiB to 1 GiB. Default 16 MiB: at 5 GB/s it
    /// hides 3 ms of a slow device. Half as much again is used for publish slots.
    pub buffer_bytes: usize,
    /// When the log syncs without a request. Default [`SyncPolicy::OnCommit`].
    pub sync_policy: SyncPolicy,
    /// Bytes of a piece that the log writes without waiting for a commit. An append that passes a
    /// multiple of it completes a piece. For this the log rounds it up to a power of two, at most
    /// half the buffer. Under [`SyncPolicy::Always`] and [`SyncPolicy::Os`] each append writes.
    /// Default 1 MiB: large enough to hide the system call, small enough to stay in the cache.
    pub write_bytes: usize,
    /// The number of futures and callbacks that may wait at one time. A callback counts until it
    /// runs. One more gets [`ErrorKind::TooManyWaiters`]. Default 65 536. Threads are not counted.
    pub max_waiters: usize,
    /// Before a leader syncs, it waits for the committers that the last round woke: at most this
    /// percentage of the time of a sync. Default 50. 0 turns gathering off.
    pub gather_percent: u32,
    /// Bytes that an iterator reads ahead. Default 256 KiB.
    pub read_ahead_bytes: usize,
    /// How much of the log an open checks. Default [`Verify::Tail`].
    pub verify: Verify,
    /// Threads of [`Verify::Full`], each with a read buffer of `read_ahead_bytes`; at most 256
    /// ([`MAX_VERIFY_THREADS`]). Default 0: one for each core. 1 starts no thread.
    pub verify_threads: usize,
    /// Each sync ends at a multiple of 4096 bytes. The log fills the rest of the last block with
    /// padding, and never rewrites a block that a sync has covered. Default false. Use it for media
    /// on which power loss during a write can damage all of the block that is written to, also
    /// below the write. Costs up to 4 KiB of log for each sync. Applies to what is written from
    /// this open on.
    pub pad_to_block: bool,
    /// What to call when the log's files pass a limit. Default: nothing.
    pub soft_limit: Option<crate::SoftLimit>,
    /// Gets events of the log. Default: none.
    pub events: Option<Arc<dyn Events>>,
    /// The codec of the records, fixed when the log is created. Default: none.
    pub codec: Option<Arc<dyn Codec>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            buffer_bytes: 16 << 20,
            sync_policy: SyncPolicy::OnCommit,
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
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] names the option, its value and its range.
    pub fn validate(&self) -> Result<()> {
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

/// Checks a segment size, in bytes, against the bounds that every store shares.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] names the value and the rule that it breaks.
pub fn check_segment_bytes(segment_bytes: u64, at_least: u64) -> Result<()> {
    let fits = (at_least..=MAX_SEGMENT_BYTES).contains(&segment_bytes);
    check(segment_bytes.is_multiple_of(4096) && fits, || {
        format!(
            "segment_bytes is {segment_bytes}; it must be a multiple of 4096 from {at_least} to \
             {MAX_SEGMENT_BYTES}"
        )
    })
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

    #[test]
    fn segment_sizes_are_multiples_of_4096() {
        check_segment_bytes(1 << 16, 1 << 16).unwrap();
        assert!(check_segment_bytes(70_000, 1 << 16).is_err());
        assert!(check_segment_bytes(4096, 1 << 16).is_err());
    }
}

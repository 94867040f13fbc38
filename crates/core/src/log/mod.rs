//! The calls of an open log.

mod append;
mod backup;
mod batch;
mod close;
mod cursor;
mod epochs;
mod first_records;
#[cfg(all(test, loom))]
mod model;
mod pins;
mod positions;
mod read;
mod release;
mod space;
mod state;
mod tail;
mod ticket;
mod truncate_after;
mod truncate_before;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use palisade_store::State;
use palisade_store::sync::{AtomicU64, Mutex, Ordering};

pub use self::batch::BatchTicket;
pub use self::close::Ended;
pub use self::cursor::Cursor;
use self::epochs::{Epochs, truncated_error};
use self::pins::Pins;
pub use self::pins::{Hold, PinKind};
use self::positions::Confirmations;
pub use self::positions::CursorStatus;
pub use self::release::Release;
pub use self::space::{Space, SpacePin};
pub use self::tail::{Tail, TailCanceller};
pub use self::ticket::Ticket;
use crate::Codec;
use crate::buffer::{Buffer, Stop};
use crate::commit::{Commit, Key, SharedCommit, Wait};
use crate::events::Observer;
use crate::recovery::Recovered;
use crate::stats::Gauges;
use crate::watermark::Watermark;
use crate::{
    Error, ErrorKind, Lsn, Options, RecoveryReport, Result, Stats, Store, SyncPolicy, Uuid,
};

/// A write-ahead log. Many threads append without a lock, and many commits share one device sync.
/// Each clone is the same log.
///
/// The drop of the last handle does what [`flush_to_os`](Wal::flush_to_os) does, and saves how far
/// the log is durable (two syncs of `meta`). It waits for the log's threads, which may be in a sync
/// or a callback. It reports no error: records that cannot be written stay in a shared log buffer,
/// but a log buffer on the heap loses them. Only [`close`](Wal::close) makes a clean end.
///
/// # What survives
/// | call returned `Ok` | process kill | OS crash or power loss |
/// |---|---|---|
/// | `append`, shared log buffer (a file in `/dev/shm`) | yes | no |
/// | `append`, log buffer on the heap | no | no |
/// | `append` under [`SyncPolicy::Os`](crate::SyncPolicy::Os), `flush_to_os` | yes | no |
/// | `append` under [`SyncPolicy::Always`](crate::SyncPolicy::Always) | yes | yes |
/// | `commit`, `sync`, `wait_durable`, `Ticket::wait`, `.await` | yes | yes |
///
/// [`Stats::appends_survive_kill`] shows which buffer the log has.
///
/// # Errors of all calls
/// The lists of errors name these kinds only if there is more to say:
/// - `Closed` after [`close`](Wal::close). Reads and waits for records still work.
/// - [`Poisoned`](crate::ErrorKind::Poisoned) after a failure that only another open can repair,
///   for example of a sync (API.md lists all). Reads of written records and waits for durable ones
///   still work. Open the log again with [`MustExist`](crate::OpenMode::MustExist), compare
///   [`uuid`](Wal::uuid), and call [`wait_durable`](Wal::wait_durable) with the LSN where the last
///   acknowledged record begins.
/// - [`Forked`](crate::ErrorKind::Forked) in a forked child, where other calls return what held at
///   the fork. The first call that returns it, or the drop of a waiting future, of a reader or of
///   the last handle, closes the descriptors that keep the log `Locked`.
/// - `NoFiles`, if the call opens a file. Nothing is lost; call again, or, if the error has an
///   [`appended_lsn`](crate::Error::appended_lsn), wait for that record.
#[derive(Clone)]
pub struct Wal {
    handle: Arc<Handle>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastSave {
    Done,
    /// The store holds the new state or the one before.
    Failed,
}

#[derive(Debug)]
struct Handle {
    commit: SharedCommit,
    policy: SyncPolicy,
    // If an append's start and end differ in these bits, it completes a piece of `write_bytes`, or
    // the policy asks for something after each append.
    act_mask: u64,
    // Whether the flusher thread writes complete pieces, rather than the append that completes one.
    writes_behind: bool,
    max_frame_bytes: u64,
    codec: Option<Arc<dyn Codec>>,
    segment_bytes: u64,
    read_ahead_bytes: usize,
    uuid: Uuid,
    // Never held during a call of the store.
    state: Mutex<State>,
    // Copies of two fields of `state`, stored under its lock and read without it: in a forked child
    // the lock may be held for ever.
    head: Watermark,
    checkpoint: AtomicU64,
    // Serializes changes of the saved state. Taken before `state`.
    saving: Mutex<LastSave>,
    // Serializes releases, whose callback may take long. Taken before `saving`.
    releasing: Mutex<()>,
    // The ranges that truncations of the suffix have discarded, and whose segments are still there.
    discarded: Mutex<Vec<(Lsn, Lsn)>>,
    epochs: Arc<Epochs>,
    pins: Arc<Pins>,
    confirmations: Confirmations,
    report: RecoveryReport,
}

impl Wal {
    pub(crate) fn begin(store: Arc<Store>, recovered: Recovered, options: &Options) -> Result<Wal> {
        let Recovered { state, spans, base, memory, mut report } = recovered;
        let is_empty_epoch = base == state.epoch_base;
        let seed = spans.last().expect("a recovered log has a running epoch").seed;
        let buffer = Buffer::new(memory, base, state.segment_bytes, seed)?;
        let buffer = buffer.padded(options.pad_to_block);
        report.appends_survive_kill = buffer.memory_kind() == crate::MemoryKind::Mapped;
        let observer = Observer::new(options.events.clone(), state.uuid, state.segment_bytes, base);
        let write_bytes = options.write_bytes.min(options.buffer_bytes / 2).next_power_of_two();
        let epochs = Arc::new(Epochs::new(state.end_before_head(), spans, state.bases.clone()));
        let handle = Handle {
            policy: options.sync_policy,
            act_mask: match options.sync_policy {
                SyncPolicy::OnCommit | SyncPolicy::Interval(_) => !(write_bytes as u64 - 1),
                SyncPolicy::Always | SyncPolicy::Os => u64::MAX,
            },
            writes_behind: palisade_store::sync::has_two_cores() && store.writes_behind(),
            max_frame_bytes: buffer.max_reservation_bytes(),
            codec: options.codec.clone(),
            segment_bytes: state.segment_bytes,
            read_ahead_bytes: options.read_ahead_bytes,
            pins: Arc::default(),
            confirmations: Confirmations::default(),
            commit: SharedCommit::new(Commit::new(buffer, store, base, observer, options)),
            uuid: state.uuid,
            head: Watermark::new(state.head),
            checkpoint: AtomicU64::new(state.checkpoint.as_u64()),
            state: Mutex::new(state),
            saving: Mutex::new(LastSave::Done),
            releasing: Mutex::new(()),
            discarded: Mutex::default(),
            epochs,
            report,
        };
        let wal = Wal { handle: Arc::new(handle) };
        let log = wal.handle.commit.own()?;
        if is_empty_epoch {
            log.refuse_above_limit();
        }
        if let SyncPolicy::Interval(_) = options.sync_policy {
            wal.ensure_flusher()?;
        }
        if options.soft_limit.is_some() {
            log.start_worker(|log| &log.callbacks)?;
        }
        Ok(wal)
    }

    /// Waits until all records that were reserved before the call survive power loss: about one
    /// device sync, or nothing.
    ///
    /// # Errors
    /// `NoSpace`: free space and call again.
    pub fn sync(&self) -> Result<()> {
        self.handle.commit.own()?.wait(self.reserved_lsn(), None).map(drop)
    }

    /// Returns a ticket for everything that was reserved before the call, for an async
    /// [`sync`](Wal::sync). Its [`lsn`](Ticket::lsn) and [`end_lsn`](Ticket::end_lsn) are the end
    /// of the log, and its errors have no [`appended_lsn`](crate::Error::appended_lsn).
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// let first = wal.append(b"first")?.lsn();
    /// let second = wal.append(b"second")?.lsn();
    /// wal.barrier().wait()?; // or `wal.barrier().await`
    /// assert!(wal.durable_lsn() > second);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn barrier(&self) -> Ticket<'_> {
        let end = self.reserved_lsn();
        Ticket::new(self, end, end)
    }

    /// Waits until the record around `lsn` survives power loss. Below the head it returns at once.
    /// After an open, pass the start of a record, because the end of the last one can give an
    /// error.
    ///
    /// # Errors
    /// `OutOfRange`: also at the end. `Truncated`: also between two epochs. `NoSpace`: as from
    /// [`sync`](Wal::sync).
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        let target = self.end_covering(lsn)?;
        self.handle.commit.own()?.wait(target, None)?;
        self.check_not_truncated(lsn)
    }

    /// Calls `f` once the record at `lsn` survives power loss, or with the error that prevents it.
    /// Requests a sync, and does not block. After `NoSpace` or `NoFiles` the record can still
    /// become durable: call again.
    ///
    /// `f` runs on the log's callback thread, outside of all locks, one callback at a time, in LSN
    /// order, and may call the log. A slow `f` delays other callbacks, `close` and the drop of the
    /// last handle.
    ///
    /// # Errors
    /// `f` is never called. `OutOfRange`, `Truncated`: as from [`wait_durable`](Wal::wait_durable).
    /// `Closed`. `Io`: a thread could not be started. `TooManyWaiters`:
    /// [`max_waiters`](crate::Options::max_waiters) wait already.
    pub fn on_durable(&self, lsn: Lsn, f: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let target = self.end_covering(lsn)?;
        self.check_open()?;
        self.ensure_flusher()?;
        let epochs = Arc::clone(&self.handle.epochs);
        let callback =
            move |result: Result<()>| f(result.and_then(|()| epochs.check_not_truncated(lsn)));
        self.handle.commit.own()?.register_callback(target, Box::new(callback))
    }

    /// Waits until the operating system has the record at `lsn`.
    ///
    /// # Errors
    /// As [`wait_durable`](Wal::wait_durable).
    pub fn flush_to_os(&self, lsn: Lsn) -> Result<()> {
        let target = self.end_covering(lsn)?;
        self.flush_until(target)?;
        self.check_not_truncated(lsn)
    }

    /// Returns the end of the last reservation. An append below it may not have returned yet.
    #[must_use]
    pub fn reserved_lsn(&self) -> Lsn {
        self.handle.commit.lock_free().buffer.reserved()
    }

    pub(crate) fn filled_lsn(&self) -> Lsn {
        self.handle.commit.lock_free().filled.read()
    }

    /// Returns the end of the prefix that the operating system has.
    #[must_use]
    pub fn written_lsn(&self) -> Lsn {
        self.handle.commit.lock_free().buffer.written.read()
    }

    /// Returns the end of the prefix that survives power loss. No record and no batch crosses it,
    /// so [`truncate_before`](Wal::truncate_before) and [`checkpoint`](Wal::checkpoint) accept it.
    ///
    /// A reader can begin there in later runs, too, unless 14 opens in a row found no clean end and
    /// no append ([`resume_lsn`](Wal::resume_lsn)).
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        self.handle.commit.lock_free().durable.read()
    }

    /// Returns the head. Everything below was truncated.
    #[must_use]
    pub fn head_lsn(&self) -> Lsn {
        self.handle.head.read()
    }

    /// Returns the greatest LSN that was given to [`checkpoint`](Wal::checkpoint), or the end of
    /// the records below that, if its record was truncated or an open found none above. Without a
    /// checkpoint returns the first LSN of the log, or 0 in a copy of an archive.
    #[must_use]
    pub fn checkpoint_lsn(&self) -> Lsn {
        // Relaxed: the value alone counts.
        Lsn::new(self.handle.checkpoint.load(Ordering::Relaxed))
    }

    /// Returns the bytes from the head to the end of the last reservation, with headers, without
    /// truncated ranges. The files take more.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let extent = || (self.head_lsn(), self.reserved_lsn());
        if self.handle.commit.own().is_err() {
            // A thread of the parent may hold the lock of the epochs for ever.
            let (head, end) = extent();
            return end.bytes_since(head);
        }
        self.handle.epochs.lag(extent)
    }

    /// Returns the identity of the log.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.handle.uuid
    }

    /// Returns the bytes of log in a segment. Segment `n` begins at `n` times this number.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.handle.segment_bytes
    }

    /// Returns the size of the largest record, also when encoded: half the log buffer or half a
    /// segment, whichever is less, minus the header.
    #[must_use]
    pub fn max_record_bytes(&self) -> usize {
        self.handle.max_frame_bytes as usize - crate::frame::HEADER_BYTES
    }

    /// Returns a consistent snapshot of counters, watermarks and histograms. Stops no thread.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// wal.commit(b"record")?;
    /// let stats = wal.stats();
    /// assert_eq!((stats.syncs, stats.durable), (1, stats.written));
    /// let p99: u64 = stats.sync_duration_ns.quantile(0.99);
    /// println!("99 of 100 syncs took at most {p99} ns");
    /// for (bytes, writes) in stats.write_size_bytes.buckets() {
    ///     println!("{writes} writes of {bytes:?} bytes");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let log = self.handle.commit.lock_free();
        log.counters.snapshot(log.buffer.process.is_own(), || Gauges {
            watermarks: [
                self.head_lsn(),
                self.durable_lsn(),
                self.written_lsn(),
                self.filled_lsn(),
                self.reserved_lsn(),
            ],
            waiters: log.waiters(),
            memory_bytes: log.buffer.memory_bytes(),
            memory_kind: log.buffer.memory_kind(),
        })
    }

    /// Returns what the open of this log found and did.
    #[must_use]
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.handle.report
    }

    #[inline]
    fn codec(&self) -> Option<&dyn Codec> {
        self.handle.codec.as_deref()
    }

    pub(crate) fn ensure_flusher(&self) -> Result<()> {
        let interval = match self.handle.policy {
            SyncPolicy::Interval(interval) => Some(interval),
            _ => None,
        };
        self.handle.commit.own()?.start_flusher(interval)
    }

    /// Polls a wait with the registration `key`, and starts the flusher, which serves it. A wait
    /// that watches fails if nothing more comes to `target`.
    fn poll_wait(
        &self,
        wait: Wait,
        target: Lsn,
        key: &mut Option<Key>,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        let log = self.handle.commit.own()?;
        if wait == Wait::Watch {
            log.check_goes_on(target)?;
        }
        self.ensure_flusher()?;
        log.poll_wait(wait, target, key, context)
    }

    /// Ends the wait with the registration `key`, unless it has none.
    fn cancel_wait(&self, wait: Wait, key: &mut Option<Key>) {
        if let Some(key) = key.take()
            && let Ok(log) = self.handle.commit.own()
        {
            log.cancel_wait(wait, key);
        }
    }

    fn check_open(&self) -> Result<()> {
        let log = self.handle.commit.own()?;
        log.check()?;
        match log.buffer.tail() {
            Ok(_) | Err(Stop::Paused) => Ok(()),
            Err(stop) => Err(log.stopped(stop)),
        }
    }

    fn end_covering(&self, lsn: Lsn) -> Result<Lsn> {
        self.handle.commit.own()?;
        let reserved = self.reserved_lsn();
        if lsn >= reserved {
            let text = format!("the log ends at LSN {reserved}");
            return Err(Error::new(ErrorKind::OutOfRange, text).at_lsn(lsn));
        }
        self.check_not_discarded(lsn)?;
        Ok(lsn.plus(1))
    }

    fn check_not_discarded(&self, lsn: Lsn) -> Result<()> {
        let epochs = &self.handle.epochs;
        let is_below_head = || lsn < self.head_lsn() && !epochs.is_discarded(lsn);
        let is_kept = epochs.find(lsn).is_some() || is_below_head();
        if is_kept { Ok(()) } else { Err(truncated_error(lsn)) }
    }

    #[inline]
    pub(crate) fn check_not_truncated(&self, lsn: Lsn) -> Result<()> {
        self.handle.commit.own()?;
        self.handle.epochs.check_not_truncated(lsn)
    }

    fn flush_until(&self, target: Lsn) -> Result<()> {
        let mut backoff = palisade_store::sync::Backoff::default();
        let written = &self.handle.commit.lock_free().buffer.written;
        while written.read() < target {
            let log = self.handle.commit.own()?;
            log.check()?;
            if log.write_filled()? < target {
                // There is a hole below the target. Its owner sends no wake-up, so poll.
                backoff.wait();
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wal")
            .field("uuid", &self.uuid())
            .field("head", &self.head_lsn())
            .field("durable", &self.durable_lsn())
            .field("written", &self.written_lsn())
            .field("reserved", &self.reserved_lsn())
            .field("failure", &self.handle.commit.own().and_then(|log| log.check()).err())
            .finish_non_exhaustive()
    }
}

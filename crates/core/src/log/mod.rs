//! The log: ties buffer, commit, store, recovery and readers together.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "the crate `palisade` documents each call"
)]

mod append;
mod backup;
mod batch;
mod close;
mod cursor;
mod ended;
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

pub use self::backup::Backup;
pub use self::batch::BatchTicket;
pub use self::cursor::Cursor;
pub use self::ended::Ended;
use self::epochs::{Epochs, truncated_error};
use self::pins::Pins;
pub use self::pins::{Hold, PinKind};
use self::positions::Confirmations;
pub use self::positions::CursorStatus;
pub use self::release::Release;
pub use self::space::{Space, SpacePin};
pub use self::tail::{Tail, TailCanceller};
pub use self::ticket::Ticket;
use crate::buffer::{Buffer, Stop};
use crate::commit::Commit;
use crate::events::Observer;
use crate::recovery::{Recovered, dry_run, recover};
use crate::stats::Gauges;
use crate::store::{State, Store};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::watermark::Watermark;
use crate::{Codec, codec};
use crate::{Error, ErrorKind, Lsn, Options, RecoveryReport, Result, Stats, SyncPolicy, Uuid};
use crate::{MIN_SEGMENT_BYTES, check_segment_bytes};

/// A write-ahead log. The crate `palisade` wraps this handle and documents each call.
#[derive(Clone)]
pub struct Wal {
    handle: Arc<Handle>,
}

/// The result of the last save of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastSave {
    Done,
    /// The store holds either the new state or the one before. The caller saves again before it
    /// begins anything that fits only one of them.
    Failed,
}

/// What all handles share. Dropping the last handle ends the background threads and hands
/// everything to the operating system.
#[derive(Debug)]
struct Handle {
    commit: Arc<Commit>,
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
    /// Opens the log in `store` and recovers what an earlier process run left.
    ///
    /// # Durability
    /// Everything that the [`RecoveryReport`] counts as recovered survives power loss when this
    /// returns.
    ///
    /// # Errors
    /// As `Options::open` of the crate `palisade`.
    pub fn with_store(store: impl Store, options: &Options) -> Result<Wal> {
        check_store(&store, options)?;
        Wal::open_store(Arc::new(store), options)
    }

    /// Returns what an open of the log in `store` would find and decide. Changes nothing.
    ///
    /// In the report `base`, `epoch` and `appends_survive_kill` are not set.
    ///
    /// # Errors
    /// As [`with_store`](Wal::with_store), except those of writing.
    pub fn dry_run(store: impl Store, options: &Options) -> Result<RecoveryReport> {
        check_store(&store, options)?;
        let store: Arc<dyn Store> = Arc::new(store);
        let predicted = dry_run(&store, options);
        store.close();
        predicted
    }

    fn open_store(store: Arc<dyn Store>, options: &Options) -> Result<Wal> {
        let recovered = recover(&store, options)?;
        Wal::begin(store, recovered, options)
    }

    /// Allows reservations, the last step of an open.
    fn begin(store: Arc<dyn Store>, recovered: Recovered, options: &Options) -> Result<Wal> {
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
            writes_behind: crate::sync::has_two_cores() && store.writes_behind(),
            max_frame_bytes: buffer.max_reservation_bytes(),
            codec: options.codec.clone(),
            segment_bytes: state.segment_bytes,
            read_ahead_bytes: options.read_ahead_bytes,
            pins: Arc::default(),
            confirmations: Confirmations::default(),
            commit: Arc::new(Commit::new(buffer, store, base, observer, options)),
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
        if is_empty_epoch {
            wal.handle.commit.refuse_above_limit();
        }
        if let SyncPolicy::Interval(_) = options.sync_policy {
            wal.ensure_flusher()?;
        }
        if options.soft_limit.is_some() {
            wal.handle.commit.start_worker(|log| &log.callbacks)?;
        }
        Ok(wal)
    }

    /// Waits until all records that were reserved before the call survive power loss.
    pub fn sync(&self) -> Result<()> {
        self.handle.commit.wait(self.reserved_lsn(), None).map(drop)
    }

    /// Returns a ticket for everything that was reserved before the call.
    #[must_use]
    pub fn barrier(&self) -> Ticket<'_> {
        let end = self.reserved_lsn();
        Ticket::new(self, end, end)
    }

    /// Waits until the record that begins at `lsn` survives power loss.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        let target = self.end_covering(lsn)?;
        self.handle.commit.wait(target, None)?;
        self.check_not_truncated(lsn)
    }

    /// Calls `f` once the record that begins at `lsn` survives power loss, or with the error that
    /// prevents it.
    pub fn on_durable(&self, lsn: Lsn, f: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let target = self.end_covering(lsn)?;
        self.check_open()?;
        self.ensure_flusher()?;
        let epochs = Arc::clone(&self.handle.epochs);
        let callback =
            move |result: Result<()>| f(result.and_then(|()| epochs.check_not_truncated(lsn)));
        self.handle.commit.register_callback(target, Box::new(callback))
    }

    /// Waits until the record that begins at `lsn` was handed to the operating system: it survives
    /// the death of the process, but not of the operating system.
    pub fn flush_to_os(&self, lsn: Lsn) -> Result<()> {
        let target = self.end_covering(lsn)?;
        self.flush_until(target)?;
        self.check_not_truncated(lsn)
    }

    /// Returns the end of the last reservation.
    #[must_use]
    pub fn reserved_lsn(&self) -> Lsn {
        self.handle.commit.buffer.reserved()
    }

    /// Returns the end of the longest prefix that was seen complete in the log buffer.
    pub(crate) fn filled_lsn(&self) -> Lsn {
        self.handle.commit.filled.read()
    }

    /// Returns the end of the prefix that was handed to the operating system.
    #[must_use]
    pub fn written_lsn(&self) -> Lsn {
        self.handle.commit.buffer.written.read()
    }

    /// Returns the end of the prefix that survives power loss.
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        self.handle.commit.durable.read()
    }

    /// Returns the head, where the log begins.
    #[must_use]
    pub fn head_lsn(&self) -> Lsn {
        self.handle.head.read()
    }

    /// Returns the greatest LSN that was given to [`checkpoint`](Wal::checkpoint).
    #[must_use]
    pub fn checkpoint_lsn(&self) -> Lsn {
        // Relaxed: the value alone counts.
        Lsn::new(self.handle.checkpoint.load(Ordering::Relaxed))
    }

    /// Returns the bytes of the log from the head to the end of the last reservation.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let extent = || (self.head_lsn(), self.reserved_lsn());
        if self.handle.commit.check_process().is_err() {
            // A thread of the parent may hold the lock of the epochs for ever.
            let (head, end) = extent();
            return end.bytes_since(head);
        }
        self.handle.epochs.lag(extent)
    }

    /// Returns the identity of the log, drawn at random when it was created.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.handle.uuid
    }

    /// Returns the bytes of log in a segment.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.handle.segment_bytes
    }

    /// Returns the size of the largest record: half the log buffer or half a segment, whichever is
    /// less, minus the header.
    #[must_use]
    pub fn max_record_bytes(&self) -> usize {
        self.handle.max_frame_bytes as usize - crate::frame::HEADER_BYTES
    }

    /// Returns what the log has done since it was opened, and its watermarks.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let log = &self.handle.commit;
        log.counters.snapshot(log.buffer.is_own(), || Gauges {
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

    pub(crate) fn commit_state(&self) -> &Commit {
        &self.handle.commit
    }

    pub(crate) fn ensure_flusher(&self) -> Result<()> {
        let interval = match self.handle.policy {
            SyncPolicy::Interval(interval) => Some(interval),
            _ => None,
        };
        self.handle.commit.start_flusher(interval)
    }

    fn check_open(&self) -> Result<()> {
        let log = &self.handle.commit;
        log.check()?;
        match log.buffer.tail() {
            Ok(_) | Err(Stop::Paused) => Ok(()),
            Err(stop) => Err(log.stopped(stop)),
        }
    }

    /// Returns the LSN that a watermark must reach to cover the record that begins at `lsn`.
    fn end_covering(&self, lsn: Lsn) -> Result<Lsn> {
        self.handle.commit.check_process()?;
        let reserved = self.reserved_lsn();
        if lsn >= reserved {
            let text = format!("the log ends at LSN {reserved}");
            return Err(Error::new(ErrorKind::OutOfRange, text).at_lsn(lsn));
        }
        self.check_not_discarded(lsn)?;
        Ok(lsn.plus(1))
    }

    /// Refuses an LSN in a discarded range.
    fn check_not_discarded(&self, lsn: Lsn) -> Result<()> {
        let epochs = &self.handle.epochs;
        let is_below_head = || lsn < self.head_lsn() && !epochs.is_discarded(lsn);
        let is_kept = epochs.find(lsn).is_some() || is_below_head();
        if is_kept { Ok(()) } else { Err(truncated_error(lsn)) }
    }

    /// Refuses the LSN of a record that was truncated meanwhile. The caller has waited for the
    /// watermark that covers the record.
    #[inline]
    pub(crate) fn check_not_truncated(&self, lsn: Lsn) -> Result<()> {
        self.handle.commit.check_process()?;
        self.handle.epochs.check_not_truncated(lsn)
    }

    fn flush_until(&self, target: Lsn) -> Result<()> {
        let log = &self.handle.commit;
        let mut backoff = crate::sync::Backoff::default();
        while log.buffer.written.read() < target {
            log.check()?;
            if log.write_filled()? < target {
                // There is a hole below the target. Its owner sends no wake-up, so poll.
                backoff.wait();
            }
        }
        Ok(())
    }
}

/// Refuses options with a bad value, and a store that does not fit them, before anything is read.
fn check_store(store: &impl Store, options: &Options) -> Result<()> {
    options.validate()?;
    let state = store.state()?;
    check_segment_bytes(state.segment_bytes, MIN_SEGMENT_BYTES)?;
    codec::check_state(&state, options.codec.as_deref())
}

/// Shows where the log stands, without a lock.
impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wal")
            .field("uuid", &self.uuid())
            .field("head", &self.head_lsn())
            .field("durable", &self.durable_lsn())
            .field("written", &self.written_lsn())
            .field("reserved", &self.reserved_lsn())
            .field("failure", &self.handle.commit.check().err())
            .finish_non_exhaustive()
    }
}

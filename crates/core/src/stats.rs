//! Stats of a log.

mod counters;
mod histogram;

use palisade_store::sync::Ordering;

pub(crate) use self::counters::{Counters, nanos};
pub use self::histogram::Histogram;
use crate::{Lsn, MemoryKind};

/// What the log has done since it was opened, and where it stands: a consistent snapshot, which
/// stops no thread.
///
/// - `head <= durable <= written <= filled <= reserved`.
/// - `writes`, `appends`, `appended_bytes` and `write_size_bytes` cover all bytes below `written`
///   since the open.
/// - `syncs`, `synced_appends`, `sync_duration_ns` and `group_size` belong to `durable`. If that
///   equals `written`, `synced_appends` equals `appends`; else it is at most that.
/// - `append_stall_ns` has at most as many values as `waits_for_room` counts.
///
/// See `docs/observability.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Records, batches and paddings handed to the operating system.
    pub appends: u64,
    /// Their bytes, headers included.
    pub appended_bytes: u64,
    /// Calls of the store's `write`.
    pub writes: u64,
    /// Completed device syncs.
    pub syncs: u64,
    /// Reservations written before those syncs began. With `pad_to_block` a sync can end below
    /// some.
    pub synced_appends: u64,
    /// Duration of a sync, smoothed over the last few.
    pub sync_ns: u64,
    /// Waits of appends for room in a full log buffer, running ones included.
    pub waits_for_room: u64,
    /// End of the last reservation.
    pub reserved: Lsn,
    /// End of what was seen complete in the log buffer.
    pub filled: Lsn,
    /// End of what was handed to the operating system.
    pub written: Lsn,
    /// End of what survives power loss.
    pub durable: Lsn,
    /// Everything below was truncated.
    pub head: Lsn,
    /// Futures and callbacks that wait, and threads that sleep until a sync.
    pub waiters: u64,
    /// Memory of the log buffer and its slots.
    pub buffer_memory_bytes: u64,
    /// Whether an append that returned survives the death of the process.
    pub appends_survive_kill: bool,
    /// For how long the present sync has been running; 0 if none runs.
    pub running_sync_ns: u64,
    /// The least age of the oldest record that is not durable; 0 if all are. It counts from the
    /// first snapshot that saw the record, or from the begin of the running sync if that is
    /// earlier.
    pub oldest_not_durable_ns: u64,
    /// Times that threads waited for a sync, in about one in 16 of the calls that block and
    /// succeed.
    pub commit_latency_ns: Histogram,
    /// Durations of completed device syncs.
    pub sync_duration_ns: Histogram,
    /// Times that appends waited for room and got it.
    pub append_stall_ns: Histogram,
    /// Reservations for each completed sync; in sum `synced_appends`.
    pub group_size: Histogram,
    /// Bytes of each write; in sum `appended_bytes`.
    pub write_size_bytes: Histogram,
}

pub(crate) struct Gauges {
    /// *head*, *durable*, *written*, *filled* and *reserved*, read in this order: none of them
    /// falls.
    pub(crate) watermarks: [Lsn; 5],
    pub(crate) waiters: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_kind: MemoryKind,
}

impl Counters {
    /// Calls `gauges` until no write or round ends meanwhile, in a forked child (not `is_own`)
    /// once.
    pub(crate) fn snapshot(&self, is_own: bool, gauges: impl Fn() -> Gauges) -> Stats {
        let mut stats = self.read_unchanged(is_own, || self.read(&gauges()));
        if is_own {
            stats.oldest_not_durable_ns = self.not_durable_ns(&stats);
        }
        stats
    }

    fn read(&self, gauges: &Gauges) -> Stats {
        let [head, durable, written, filled, reserved] = gauges.watermarks;
        let (waits_for_room, append_stall_ns) = self.stalls();
        let write_size_bytes = self.writes.bytes.snapshot();
        let sync_duration_ns = self.rounds.duration_ns.snapshot();
        let group_size = self.rounds.appends.snapshot();
        Stats {
            // Acquire: pairs with the Release of a change [P11].
            appends: self.writes.appends.load(Ordering::Acquire),
            appended_bytes: write_size_bytes.sum(),
            writes: write_size_bytes.count(),
            syncs: sync_duration_ns.count(),
            synced_appends: group_size.sum(),
            sync_ns: self.rounds.smoothed_ns(),
            waits_for_room,
            reserved,
            filled,
            written,
            durable,
            head,
            waiters: gauges.waiters,
            buffer_memory_bytes: gauges.memory_bytes,
            appends_survive_kill: gauges.memory_kind == MemoryKind::Mapped,
            running_sync_ns: self.running_sync_ns(),
            oldest_not_durable_ns: 0,
            commit_latency_ns: self.commit_latency_ns.snapshot(),
            sync_duration_ns,
            append_stall_ns,
            group_size,
            write_size_bytes,
        }
    }
}

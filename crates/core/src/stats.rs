//! What the log counts and measures, as users see it.

mod counters;
mod histogram;

use palisade_store::sync::Ordering;

pub(crate) use self::counters::{Counters, nanos};
pub use self::histogram::Histogram;
use crate::{Lsn, MemoryKind};

/// What the log has done since it was opened, and where it stands.
///
/// A snapshot is consistent, and stops no thread:
/// - `durable <= written <= filled <= reserved` and `head <= durable`.
/// - `writes`, `appends` and `appended_bytes` are those of all bytes below `written` since the
///   open, and `write_size_bytes` has a value for each write.
/// - `syncs` and `synced_appends` belong to `durable`: `synced_appends <= appends`, both are equal
///   if `durable` equals `written`, and `sync_duration_ns` and `group_size` have a value for each
///   sync.
/// - `append_stall_ns` has at most as many values as `waits_for_room` counts.
///
/// `docs/observability.md` lists all names and units.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Reservations handed to the operating system: records and batches, paddings included.
    pub appends: u64,
    /// Bytes handed to the operating system, headers and padding included.
    pub appended_bytes: u64,
    /// Calls of the store's `write`.
    pub writes: u64,
    /// Completed device syncs.
    pub syncs: u64,
    /// Reservations that were written before those syncs began. With `pad_to_block` a sync can end
    /// below the last of them.
    pub synced_appends: u64,
    /// Duration of a sync in nanoseconds, smoothed over the last few.
    pub sync_ns: u64,
    /// Waits of appends for room in a full log buffer, those that last included.
    pub waits_for_room: u64,
    /// End of the last reservation.
    pub reserved: Lsn,
    /// End of the longest prefix seen complete in the log buffer.
    pub filled: Lsn,
    /// End of the prefix handed to the operating system.
    pub written: Lsn,
    /// End of the prefix that survives power loss.
    pub durable: Lsn,
    /// The head: everything below was truncated.
    pub head: Lsn,
    /// Threads that sleep until a sync, and futures and callbacks that wait. A thread that syncs is
    /// not counted.
    pub waiters: u64,
    /// Bytes of memory held by the log buffer and its slots.
    pub buffer_memory_bytes: u64,
    /// Whether an append that returned survives the death of the process: the log buffer is a
    /// shared file mapping. False if the log buffer is on the heap.
    pub appends_survive_kill: bool,
    /// For how long, in nanoseconds, the sync has been running that runs now; 0 if none runs.
    pub running_sync_ns: u64,
    /// The least age of the oldest record that is not durable, in nanoseconds; 0 if all are.
    ///
    /// Appends read no clock. So the age counts from the first snapshot that saw the record, or
    /// from the begin of the running sync if that is earlier. If snapshots are taken at regular
    /// times, a record that is older than their distance cannot stay unseen.
    pub oldest_not_durable_ns: u64,
    /// Nanoseconds that threads waited for a sync: `commit`, `sync`, `Ticket::wait` and the others
    /// that block, without the append itself. About one wait in 16 is measured. Failed waits, waits
    /// that timed out and futures are not.
    pub commit_latency_ns: Histogram,
    /// Durations of completed device syncs in nanoseconds.
    pub sync_duration_ns: Histogram,
    /// Nanoseconds that appends waited for room in a full log buffer, of the waits that ended with
    /// room.
    pub append_stall_ns: Histogram,
    /// Reservations for each completed sync. The sum is `synced_appends`.
    pub group_size: Histogram,
    /// Bytes of each call of the store's `write`. The sum is `appended_bytes`.
    pub write_size_bytes: Histogram,
}

/// The gauges that the log itself reads for a snapshot.
pub(crate) struct Gauges {
    /// *head*, *durable*, *written*, *filled* and *reserved*, read in this order: each one is at
    /// or above those before it, because none of them falls.
    pub(crate) watermarks: [Lsn; 5],
    pub(crate) waiters: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_kind: MemoryKind,
}

impl Counters {
    /// Returns a snapshot. `gauges` is called again if a write or a round ended meanwhile. `is_own`
    /// is false in a forked child.
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

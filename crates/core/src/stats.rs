//! Counters, and the snapshot of them that users see.

use crate::sync::{CachePadded, Ordering, StatCell};
use crate::{Lsn, MemoryKind};

/// What the log has done since it was opened, and where it stands.
///
/// Taken without stopping any thread: each counter and watermark is true, but not of the same
/// instant.
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
    /// Reservations covered by those syncs.
    pub synced_appends: u64,
    /// Duration of a sync in nanoseconds, smoothed over the last few.
    pub sync_ns: u64,
    /// Appends that met a full buffer.
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
}

impl Stats {
    /// Returns the average number of reservations that one device sync has covered; 0 before the
    /// first.
    #[must_use]
    pub fn records_per_sync(&self) -> f64 {
        if self.syncs == 0 { 0.0 } else { self.synced_appends as f64 / self.syncs as f64 }
    }
}

/// The counters behind [`Stats`]. An append that finds room touches none of them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) appends: Counter,
    pub(crate) appended_bytes: Counter,
    pub(crate) writes: Counter,
    pub(crate) syncs: Counter,
    pub(crate) synced_appends: Counter,
    pub(crate) sync_ns: Counter,
    pub(crate) waits_for_room: CachePadded<Counter>,
}

/// A counter for statistics. It orders nothing.
#[derive(Debug, Default)]
pub(crate) struct Counter(StatCell);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        // Relaxed: a count, no order with anything.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        // Relaxed: a gauge, no order with anything.
        self.0.store(n, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        // Relaxed: a gauge, no order with anything.
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// Counts one more sync that took `ns` and covered `appends` reservations.
    pub(crate) fn note_sync(&self, ns: u64, appends: u64) {
        self.syncs.add(1);
        self.synced_appends.add(appends);
        let before = self.sync_ns.value();
        // One eighth of the newest: follows a change within ten syncs and ignores one outlier.
        self.sync_ns.set(if before == 0 { ns } else { before - before / 8 + ns / 8 });
    }

    /// Returns the counters with these watermarks.
    pub(crate) fn snapshot(
        &self,
        watermarks: [Lsn; 5],
        waiters: u64,
        memory: (u64, MemoryKind),
    ) -> Stats {
        let [head, durable, written, filled, reserved] = watermarks;
        Stats {
            appends: self.appends.value(),
            appended_bytes: self.appended_bytes.value(),
            writes: self.writes.value(),
            syncs: self.syncs.value(),
            synced_appends: self.synced_appends.value(),
            sync_ns: self.sync_ns.value(),
            waits_for_room: self.waits_for_room.value(),
            reserved,
            filled,
            written,
            durable,
            head,
            waiters,
            buffer_memory_bytes: memory.0,
            appends_survive_kill: memory.1 == MemoryKind::Mapped,
        }
    }
}

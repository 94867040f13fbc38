//! The space of the log: how many segments it has, and when a flush must free some.
//!
//! The bytes in the memtables do not tell. After a crash the log continues in a new segment, so a
//! segment can hold one record. And a log at `max_bytes` cannot sync, so it needs the flush before.

use palisade::{Lsn, Wal};

use crate::Result;

/// The segments from where the log was truncated to its end.
#[derive(Debug)]
pub(crate) struct Segments {
    segment_bytes: u64,
    /// With more, a flush is due.
    due: u64,
    /// With more, writers wait for the flush.
    most: u64,
    /// From here on LSNs have no gaps: a crash makes one, and an open is the end of it.
    from: Lsn,
    /// Where the last flush has truncated the log, or its head at the open. A cursor may keep the
    /// head below.
    pub(crate) flushed: Lsn,
    /// How many there are below the one with `from`.
    below: u64,
    /// Whether the log has more segments than its records need.
    is_sparse: bool,
}

impl Segments {
    /// `end` is the end of the log.
    pub(crate) fn new(wal: &Wal, end: Lsn, memtable_bytes: u64) -> Result<Segments> {
        let (space, segment_bytes) = (wal.space()?, wal.segment_bytes());
        // A log takes at least four.
        let limit = space.limit.map_or(u64::MAX, |bytes| bytes / space.file_bytes);
        let due = (memtable_bytes.saturating_mul(2).div_ceil(segment_bytes) + 2).min(limit / 2);
        Ok(Segments {
            segment_bytes,
            due,
            most: (due * 2).min(limit - 1),
            from: end,
            flushed: wal.head_lsn(),
            below: space.segments.saturating_sub(1),
            // Of records without a gap the first and the last segment may hold little.
            is_sparse: space.segments > space.live_bytes / segment_bytes + 2,
        })
    }

    pub(crate) fn is_flush_due(&self, end: Lsn) -> bool {
        self.is_sparse || self.count(end) > self.due
    }

    pub(crate) fn is_full(&self, end: Lsn) -> bool {
        self.count(end) > self.most
    }

    /// Notes that a flush has truncated the log at `end`, which is an end that it had since the
    /// open.
    pub(crate) fn truncated(&mut self, end: Lsn) {
        (self.flushed, self.from, self.below, self.is_sparse) = (end, end, 0, false);
    }

    fn count(&self, end: Lsn) -> u64 {
        let number = |lsn: Lsn| lsn.as_u64() / self.segment_bytes;
        self.below + number(end) - number(self.from) + 1
    }
}

//! When the log needs a checkpoint to stay short: before its segments take more than `log_bytes`,
//! or leave too little room below `max_bytes`.
//!
//! The files count, not the bytes of the records: each crash ends a segment, whatever it has.

use std::sync::{Mutex, PoisonError};

use palisade::{Result, Wal};

use crate::record;

/// For the record of a checkpoint, and for a file that is not where the next record goes.
const SPARE_SEGMENTS: u64 = 2;

#[derive(Debug)]
pub(crate) struct Room {
    log_bytes: u64,
    /// What the last look has found. A look lists the log's folder, so there is only one for each
    /// segment that the log begins. None follows a checkpoint, which frees segments: the log then
    /// begins in its last segment, so another checkpoint has to wait for the next one anyway.
    seen: Mutex<Option<Seen>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The number of the segment where the log ended.
    last: u64,
    /// How many segments the log had.
    segments: u64,
    /// How many files it may have.
    most: u64,
}

impl Room {
    pub(crate) fn new(log_bytes: u64) -> Room {
        Room { log_bytes, seen: Mutex::default() }
    }

    /// Whether the log is longer than `log_bytes`, in records, or in segments that a checkpoint
    /// frees.
    pub(crate) fn is_long(&self, wal: &Wal) -> Result<bool> {
        if wal.live_bytes() > self.log_bytes {
            return Ok(true);
        }
        let files = self.look(wal)?.segments.saturating_mul(wal.segment_bytes());
        Ok(files > self.log_bytes && frees(wal))
    }

    /// Whether a change of `pages` pages may not fit below `max_bytes`, and a checkpoint frees a
    /// segment.
    pub(crate) fn is_short(&self, wal: &Wal, pages: usize) -> Result<bool> {
        let Seen { segments, most, .. } = self.look(wal)?;
        let needed = record::most_bytes(pages).div_ceil(wal.segment_bytes());
        Ok(segments + needed + SPARE_SEGMENTS > most && frees(wal))
    }

    fn look(&self, wal: &Wal) -> Result<Seen> {
        let last = wal.reserved_lsn().as_u64() / wal.segment_bytes();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = seen.filter(|found| found.last == last) {
            return Ok(found);
        }
        let space = wal.space()?;
        let most = space.limit.map_or(u64::MAX, |limit| limit / space.file_bytes);
        Ok(*seen.insert(Seen { last, segments: space.segments, most }))
    }
}

/// Whether a checkpoint frees a segment: the log begins in an older one than that where it ends.
/// Segments that a reader of the log keeps do not count.
fn frees(wal: &Wal) -> bool {
    let segment = |lsn: palisade::Lsn| lsn.as_u64() / wal.segment_bytes();
    segment(wal.head_lsn()) < segment(wal.reserved_lsn())
}

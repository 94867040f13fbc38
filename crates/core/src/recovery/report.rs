//! The report of an open.

use std::time::Duration;

use super::decision::EndCause;
use crate::Lsn;

/// What an open found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the log had been closed cleanly. Then the open scans nothing, unless it verifies
    /// all.
    pub clean: bool,
    /// Whether every frame from the head on was checked ([`Verify::Full`](crate::Verify::Full)).
    pub verified: bool,
    /// Segments present at or above the head.
    pub segments: u64,
    /// Records that the open read: all of the log's if it verified all, none after a clean close,
    /// else those from the start of the segment that holds the floor on.
    pub records: u64,
    /// Bytes that the open read.
    pub bytes: u64,
    /// Why the log ended at `end`.
    pub end_cause: EndCause,
    /// Bytes that were truncated: from `end` to the end of the last valid frame above it.
    pub torn_bytes: u64,
    /// Why the tail was truncated, in words, if it was.
    pub torn_reason: Option<String>,
    /// Ranges that threads reserved and did not publish before they died. They became padding.
    pub holes_padded: u64,
    /// Records that recovery found only in the old log buffer.
    pub records_from_buffer: u64,
    /// What was wrong with the file of the log buffer: missing, invalid, or of an older epoch. This
    /// alone is no sign of a loss.
    pub buffer_note: Option<String>,
    /// Numbers of stray files. A stray file has a segment's name and no valid header of this log,
    /// and its number is above the end of a log that was closed, or far above every segment that
    /// the log can have made. The log neither reads nor changes a stray file. When the tail reaches
    /// one, the log returns an error.
    pub strays: Vec<u64>,
    /// Everything below this LSN was certainly durable before the open.
    pub floor: Lsn,
    /// Exclusive end of the recovered records.
    pub end: Lsn,
    /// The LSN of the next append: `end` after a clean close, else the new epoch's base.
    pub base: Lsn,
    /// The running epoch.
    pub epoch: u64,
    /// Whether an append survives the death of the process (see
    /// [`Stats::appends_survive_kill`](crate::Stats::appends_survive_kill)).
    pub appends_survive_kill: bool,
    /// Time from the start of the open to the permission to append.
    pub elapsed: Duration,
}

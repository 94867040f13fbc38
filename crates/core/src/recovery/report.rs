//! What an open says about itself.

use std::time::Duration;

use super::decision::EndCause;
use crate::Lsn;

/// What an open found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the log had been closed cleanly: nothing was scanned, unless all was to be
    /// verified.
    pub clean: bool,
    /// Whether every frame from the head on was checked ([`Verify::Full`](crate::Verify::Full)).
    pub verified: bool,
    /// Segments present at or above the head.
    pub segments: u64,
    /// Records read by the scan: all of the log's if it was verified, else those that could
    /// have been torn.
    pub records: u64,
    /// Bytes read by the scan.
    pub bytes: u64,
    /// Why the log ended where it ended.
    pub end_cause: EndCause,
    /// Bytes of recognisable frames behind the end that were cut off.
    pub torn_bytes: u64,
    /// Why the tail was cut, in words, if something was.
    pub torn_reason: Option<String>,
    /// Ranges of threads that died between reserving and publishing, turned into padding.
    pub holes_padded: u64,
    /// Records that were in the log buffer only.
    pub records_from_buffer: u64,
    /// What is to be said of the buffer's file: missing, invalid, of an older epoch.
    pub buffer_note: Option<String>,
    /// Numbers of files with a segment's name that are no part of the log: without a header of it,
    /// and far above all that it can have made. They are left as they are, and never read again;
    /// the log refuses to go on where it comes to one.
    pub strays: Vec<u64>,
    /// Everything below was certainly durable before.
    pub floor: Lsn,
    /// Exclusive end of what was recovered.
    pub end: Lsn,
    /// Where appends begin: `end` after a clean close, else the new epoch's base.
    pub base: Lsn,
    /// The running epoch.
    pub epoch: u64,
    /// Whether an append survives the death of the process (see
    /// [`Stats::appends_survive_kill`](crate::Stats::appends_survive_kill)).
    pub appends_survive_kill: bool,
    /// Time from the start of the survey to the permission to append.
    pub elapsed: Duration,
}

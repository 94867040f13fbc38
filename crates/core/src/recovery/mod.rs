//! Recovery: finds what a crash left in a store and begins an epoch that may be appended to.
//!
//! # Steps of an open that may write
//! 1. Analysis (`analysis`): read the store and decide. Nothing is changed before the decision.
//! 2. Redo (`redo`): make `[floor, end)` durable. An earlier write or sync of it may have failed,
//!    so the bytes move into new files, even if they read correctly.
//! 3. Create the file of the log buffer.
//! 4. Create the new epoch's first segment: header durable, then name durable.
//! 5. Save the state.
//! 6. Release the discarded segments.
//! 7. Allow reservations.
//!
//! After a crash in any step the next open starts again at 1. After a clean close the open skips
//! step 2, and continues the same epoch instead of step 4 (see `may_resume`). The list of epochs in
//! the state then replaces most segment headers (`listing`).
//!
//! # Words
//! *Evidence* proves that the bytes below some LSN were durable once. The *floor* is the greatest
//! evidence. A bad place at or above the floor is a torn tail. A bad place below the floor is
//! corruption. A *discarded range* is the range from the end of one epoch to the base of the next.
//!
//! # Reading order
//! `mod`, `analysis`, `listing`, `layout`, `scan`, `redo`. Helpers: `discarded` finds discarded
//! ranges, `epoch_chain` follows the epochs of a log that is not open, `verify` checks frames.

mod analysis;
pub(crate) mod discarded;
pub(crate) mod epoch_chain;
#[cfg(all(test, not(loom)))]
mod forged_tests;
pub(crate) mod layout;
pub(crate) mod listing;
mod redo;
mod scan;
pub(crate) mod verify;

use self::analysis::{Analysis, analyze, may_resume};
use self::layout::Layout;
use self::redo::make_durable;
pub use self::scan::EndCause;
pub(crate) use self::scan::Scanner;
use crate::frame::no_lsn_left;
use crate::reader::EpochSpan;
use crate::{Lsn, Memory, Options, Result, Store};
use palisade_store::{Epoch, Predecessor, State};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of attempts to analyze a log that changes while recovery reads it.
const MAX_ATTEMPTS: usize = 3;

/// A log that may be appended to.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) state: State,
    /// The epochs at or above the head, ascending. The running epoch is last and ends at `LIMIT`.
    pub(crate) spans: Vec<EpochSpan>,
    pub(crate) base: Lsn,
    pub(crate) memory: Memory,
    pub(crate) report: RecoveryReport,
}

/// Recovers the log in `store` and brings it into a running epoch.
pub(crate) fn recover(store: &Arc<Store>, options: &Options) -> Result<Recovered> {
    let start = Instant::now();
    let mut attempts = 1;
    let analysis = loop {
        let mut analysis = analyze(store, options)?;
        match make_durable(store, &mut analysis) {
            Ok(()) => break analysis,
            // The operating system has dropped pages that it could not write back, so the end of
            // the log has changed.
            Err(_) if analysis.has_changed() && attempts < MAX_ATTEMPTS => attempts += 1,
            Err(error) => return Err(error),
        }
    };
    let mut recovered = if analysis.is_clean && may_resume(&analysis.layout.state, options) {
        resume(store, options, &analysis)?
    } else {
        begin_anew(store, options, analysis)?
    };
    recovered.report.elapsed = start.elapsed();
    Ok(recovered)
}

/// Returns what `recover` would find and decide. Changes nothing.
pub(crate) fn dry_run(store: &Arc<Store>, options: &Options) -> Result<RecoveryReport> {
    let start = Instant::now();
    let analysis = analyze(store, options)?;
    Ok(RecoveryReport { elapsed: start.elapsed(), ..analysis.report() })
}

/// Resumes the epoch of a log that was closed cleanly.
fn resume(store: &Arc<Store>, options: &Options, analysis: &Analysis) -> Result<Recovered> {
    let layout = &analysis.layout;
    let end = layout.state.clean_end;
    let epoch = Epoch {
        number: layout.state.epoch,
        salt: layout.state.epoch_salt,
        base: layout.state.epoch_base,
        predecessor: layout.predecessor,
    };
    store.resume_epoch(&epoch, end)?;
    let memory = store.renew_buffer(epoch.number, options.buffer_bytes, end)?;
    let buffer_bytes = options.buffer_bytes as u64;
    let epochs = Vec::new();
    let state = State { clean: false, epochs, buffer_bytes, ..layout.state.clone() };
    store.save_state(&state)?;
    let report = RecoveryReport { base: end, epoch: epoch.number, ..analysis.report() };
    Ok(Recovered { state, spans: layout.spans.clone(), base: end, memory, report })
}

/// Begins a new epoch after an unclean end, or in a new log: steps 3 to 6.
fn begin_anew(store: &Arc<Store>, options: &Options, analysis: Analysis) -> Result<Recovered> {
    let mut report = analysis.report();
    let layout = Arc::clone(&analysis.layout);
    let mut spans = layout.spans.clone();
    let mut predecessor = layout.predecessor;
    // A log that was never opened may begin at any segment start.
    if layout.state.epoch == 0 {
        predecessor.end = layout.state.head;
    }
    let mut floor = analysis.floor();
    let mut ring_bytes = layout.state.buffer_bytes;
    if let Some((scanner, scan)) = analysis.scanned {
        ring_bytes = ring_bytes.max(scanner.ring_bytes());
        // The LSNs of truncated records are never used again, in whatever file the records are.
        floor = floor.max(scan.end.plus(scan.torn_bytes));
        let newest = spans.last_mut().expect("a scanner has an epoch");
        newest.end = scan.end;
        if !layout.is_empty_epoch(newest.end) {
            predecessor = Predecessor { epoch: newest.epoch, end: newest.end };
        } else {
            // An epoch that stayed empty leaves no trace. The store may recycle its segment.
            spans.pop();
        }
    } else if analysis.is_clean {
        let newest = spans.last_mut().expect("a clean end has an epoch");
        newest.end = layout.state.clean_end;
        predecessor = Predecessor { epoch: newest.epoch, end: newest.end };
    }
    let epoch = Epoch {
        number: layout.largest_epoch + 1,
        salt: store.random()?,
        base: base_after(&layout, floor.max(predecessor.end), ring_bytes)?,
        predecessor,
    };
    let uuid = layout.state.uuid;
    spans.push(EpochSpan::open_ended(uuid, epoch.number, epoch.salt, epoch.base));
    // First the buffer: an open that gets none leaves no segment.
    let memory = store.renew_buffer(epoch.number, options.buffer_bytes, epoch.base)?;
    store.begin_epoch(&epoch, &[])?;
    let mut state = State {
        checkpoint: lowered(layout.state.checkpoint, &spans, &epoch),
        epoch: epoch.number,
        epoch_base: epoch.base,
        epoch_salt: epoch.salt,
        buffer_bytes: options.buffer_bytes as u64,
        clean: false,
        epochs: Vec::new(),
        ..layout.state.clone()
    };
    // An epoch that has records does not need a note, unless the head is where it begins.
    let (head, is_known) = (state.head, |base| spans.iter().any(|span| span.base == base));
    state.bases.retain(|known| known.base == head || !is_known(known.base));
    state.note_base(predecessor.end, epoch.base);
    store.save_state(&state)?;
    // The next truncation of the prefix releases the segments below the head.
    match store.release(predecessor.end, epoch.base) {
        // A full disk that cannot release segments does not fail the open.
        Err(error) if error.is_shortage() => {}
        released => released?,
    }
    // A truncation from the first record on ends the epoch before below the head.
    report.end = predecessor.end.max(layout.state.head);
    (report.base, report.epoch) = (epoch.base, epoch.number);
    Ok(Recovered { state, spans, base: epoch.base, memory, report })
}

/// Returns the checkpoint of a log that continues in `epoch`, the last of `spans`.
///
/// A checkpoint in a truncated range moves down to the start of the range: a crash may have come
/// before the state with the lower checkpoint was saved. A checkpoint at the base of an epoch of
/// which nothing is left moves down, too; the lower LSN covers the same records.
fn lowered(checkpoint: Lsn, spans: &[EpochSpan], epoch: &Epoch) -> Lsn {
    let ranges = spans.windows(2).map(|pair| (pair[0].end, pair[1].base));
    let mut ranges = ranges.chain([(epoch.predecessor.end, epoch.base)]);
    let truncated = ranges.find(|(end, base)| *end < checkpoint && checkpoint < *base);
    truncated.map_or(checkpoint, |(end, _)| end)
}

/// Returns the first segment start that is above every reservation ever made and not below the end
/// of the highest-numbered segment present. Returns the head of a log that was never opened.
///
/// A caller has seen only LSNs below *written* plus the size of the log buffer. *Written* is at
/// most the end of the segments. If the last segments are lost, the floor takes their place.
fn base_after(layout: &Layout, floor: Lsn, ring_bytes: u64) -> Result<Lsn> {
    let State { epoch, epoch_base, head, segment_bytes, .. } = layout.state;
    if layout.highest_end == Lsn::ZERO && epoch == 0 {
        return base_above(head, segment_bytes);
    }
    let written = layout.highest_end.max(floor).max(head).max(epoch_base);
    base_above(written.plus(ring_bytes), segment_bytes)
}

/// Returns the first segment start at or above `lsn`, if a segment can begin there.
pub(crate) fn base_above(lsn: Lsn, segment_bytes: u64) -> Result<Lsn> {
    let base = lsn.segment_start_at_or_above(segment_bytes);
    if base.plus(segment_bytes) <= Lsn::LIMIT { Ok(base) } else { Err(no_lsn_left(base)) }
}

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

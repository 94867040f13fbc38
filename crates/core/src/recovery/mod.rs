//! Recovery: what a crash left, and how a running epoch comes out of it.
//!
//! # Steps of an open that may write
//! 1. Survey and scan: read, decide. Nothing is changed before the decision.
//! 2. Make `[floor, end)` durable: in the same boot all of it, from the sync line or better
//!    evidence on, is written again, even where it reads right (a failed sync may have left it in
//!    memory only), never below the line; then sync, oldest first.
//! 3. The new epoch's first segment: header durable, then name durable.
//! 4. The buffer's file.
//! 5. The state.
//! 6. Dead segments are released.
//! 7. Reservations are allowed.
//!
//! A crash after any step starts again at 1. After a clean end steps 2 and 3 fall away and the
//! same epoch goes on; most segments' headers are looked at when they are first read (`bisect`).
//!
//! # Words
//! *Evidence*: what proves that bytes up to some LSN were durable once. *Floor*: the greatest
//! evidence. A bad place at or above the floor is a torn tail; below, corruption.

mod bisect;
mod decision;
mod examine;
pub(crate) mod full;
mod report;
mod rewrite;
mod ring;
pub(crate) mod salvage;
mod scan;
pub(crate) mod survey;

use std::sync::Arc;
use std::time::Instant;

pub use self::decision::EndCause;
pub(crate) use self::decision::Rule;
use self::examine::{Examined, settle};
pub use self::report::{LostRange, RecoveryReport};
use self::rewrite::rewrite;
use self::scan::Scan;
pub(crate) use self::scan::Scanner;
use self::survey::{Survey, corrupt};
use crate::buffer::BLOCK_BYTES;
use crate::frame::EpochSeed;
use crate::reader::EpochSpan;
use crate::store::{Epoch, Predecessor, SegmentHeader, State, Store};
use crate::{Error, ErrorKind, Lsn, Memory, Options, Result};

/// A log that may be appended to.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) state: State,
    /// The epochs that lie at or above the head; the running one is last and ends at `LIMIT`.
    pub(crate) spans: Vec<EpochSpan>,
    pub(crate) base: Lsn,
    pub(crate) memory: Memory,
    pub(crate) report: RecoveryReport,
    /// What headers must say that nobody has looked at.
    pub(crate) unread: Vec<SegmentHeader>,
}

/// Brings the log in `store` into a running epoch.
pub(crate) fn recover(store: &Arc<dyn Store>, options: &Options) -> Result<Recovered> {
    let start = Instant::now();
    let examined = settle(store, options)?;
    let mut report = examined.report();
    let recovered = if examined.is_clean && may_go_on(&examined.survey.state, options) {
        resume(store, options, examined, &mut report)?
    } else {
        begin_anew(store, options, examined, &mut report)?
    };
    report.elapsed = start.elapsed();
    Ok(Recovered { report, ..recovered })
}

/// Whether the epoch of a clean end may go on there: what was acknowledged up to the middle of a
/// block must not be written behind with `pad_to_block`.
fn may_go_on(state: &State, options: &Options) -> bool {
    !options.pad_to_block || state.clean_end.is_multiple_of(BLOCK_BYTES)
}

/// What `recover` would find and decide; changes nothing.
pub(crate) fn foresee(store: &Arc<dyn Store>, options: &Options) -> Result<RecoveryReport> {
    let start = Instant::now();
    let examined = settle(store, options)?;
    Ok(RecoveryReport { elapsed: start.elapsed(), ..examined.report() })
}

/// After a clean end: the same epoch goes on where it ended.
fn resume(
    store: &Arc<dyn Store>,
    options: &Options,
    examined: Examined,
    report: &mut RecoveryReport,
) -> Result<Recovered> {
    let Examined { survey, unread, .. } = examined;
    let end = survey.state.clean_end;
    let epoch = Epoch {
        number: survey.state.epoch,
        salt: survey.state.epoch_salt,
        base: survey.state.epoch_base,
        predecessor: survey.predecessor,
    };
    store.resume_epoch(&epoch, end)?;
    let memory = store.renew_buffer(epoch.number, options.buffer_bytes, end)?;
    let buffer_bytes = options.buffer_bytes as u64;
    let state = State { clean: false, buffer_bytes, ..survey.state.clone() };
    store.save_state(&state)?;
    (report.base, report.epoch) = (end, epoch.number);
    let (spans, report) = (survey.spans.clone(), report.clone());
    Ok(Recovered { state, spans, base: end, memory, report, unread })
}

/// After an unclean end, or in a new log: steps 1 to 6.
fn begin_anew(
    store: &Arc<dyn Store>,
    options: &Options,
    examined: Examined,
    report: &mut RecoveryReport,
) -> Result<Recovered> {
    let survey = Arc::clone(&examined.survey);
    let mut spans = survey.spans.clone();
    let mut predecessor = survey.predecessor;
    let floor = examined.floor();
    let mut ring_bytes = survey.state.buffer_bytes;
    let mut anew_at = None;
    if let Some((mut scanner, scan)) = examined.walked {
        ring_bytes = ring_bytes.max(scanner.ring_bytes());
        make_durable(store, &mut scanner, &survey, &scan, examined.is_other_boot)?;
        let newest = spans.last_mut().expect("a scanner has an epoch");
        newest.end = scan.end;
        if !survey.is_empty_epoch(newest.end) {
            predecessor = Predecessor { epoch: newest.epoch, end: newest.end };
        } else {
            // An epoch that stayed empty leaves no trace: its segment is free to recycle.
            spans.pop();
        }
    } else if examined.is_clean {
        let newest = spans.last_mut().expect("a clean end has an epoch");
        newest.end = survey.state.clean_end;
        predecessor = Predecessor { epoch: newest.epoch, end: newest.end };
    } else if let Some(limit) = survey.limit {
        predecessor = survey.before_nothing;
        anew_at = Some(limit);
    }
    let epoch = Epoch {
        number: survey.largest_epoch + 1,
        salt: store.random(),
        base: base_after(&survey, floor.max(predecessor.end), ring_bytes)?,
        predecessor,
    };
    spans.push(EpochSpan {
        epoch: epoch.number,
        seed: EpochSeed::new(survey.state.uuid, epoch.number, epoch.salt),
        base: epoch.base,
        end: Lsn::LIMIT,
    });
    store.begin_epoch(&epoch)?;
    let memory = store.renew_buffer(epoch.number, options.buffer_bytes, epoch.base)?;
    let state = State {
        checkpoint: lowered(survey.state.checkpoint, &spans, &epoch),
        epoch: epoch.number,
        epoch_base: epoch.base,
        epoch_salt: epoch.salt,
        buffer_bytes: options.buffer_bytes as u64,
        clean: false,
        head: anew_at.map_or(survey.state.head, |_| epoch.base),
        ..survey.state.clone()
    };
    store.save_state(&state)?;
    for (from, to) in [(predecessor.end, epoch.base), (Lsn::ZERO, state.head)] {
        match store.release_at_open(from, to) {
            // What a full disk cannot free stays, and keeps nobody from opening the log.
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            released => released?,
        }
    }
    report.end = anew_at.unwrap_or(predecessor.end);
    (report.base, report.epoch) = (epoch.base, epoch.number);
    let (base, report) = (epoch.base, report.clone());
    Ok(Recovered { state, spans, base, memory, report, unread: Vec::new() })
}

/// The checkpoint of a log that goes on in `epoch`, the last of `spans`. One that lies in what a
/// loss or a truncation cut off is lowered to the cut; a crash may have come before the state was
/// saved with it. So is one at the base of an epoch of which nothing is left: it says the same there.
fn lowered(checkpoint: Lsn, spans: &[EpochSpan], epoch: &Epoch) -> Lsn {
    let cuts = spans.windows(2).map(|pair| (pair[0].end, pair[1].base));
    let mut cuts = cuts.chain([(epoch.predecessor.end, epoch.base)]);
    let cut = cuts.find(|(end, base)| *end < checkpoint && checkpoint < *base);
    cut.map_or(checkpoint, |(end, _)| end)
}

/// The first segment start that is above every reservation made and not below the end of the
/// highest-numbered segment present; 0 in an empty log.
///
/// An LSN that a caller has seen lies below *written* plus the ring, and *written* below the
/// end of the segments, or, where the last of those are lost, at or above what was durable.
fn base_after(survey: &Survey, floor: Lsn, ring_bytes: u64) -> Result<Lsn> {
    let State { epoch, epoch_base, head, segment_bytes, .. } = survey.state;
    if survey.highest_end == Lsn::ZERO && epoch == 0 {
        return Ok(Lsn::ZERO);
    }
    let written = survey.highest_end.max(floor).max(head).max(epoch_base);
    let base = written.plus(ring_bytes).segment_start_at_or_above(segment_bytes);
    if base.plus(segment_bytes) <= Lsn::LIMIT {
        return Ok(base);
    }
    Err(no_lsn_left(base))
}

/// An epoch whose first segment would begin at `base` lies above the last LSN.
pub(crate) fn no_lsn_left(base: Lsn) -> Error {
    let text = "the log has come to its last LSN: begin another one";
    Error::new(ErrorKind::OutOfRange, text).at_lsn(base)
}

/// Step 2: what was found survives power loss before anybody is told of it.
///
/// A sync that failed leaves bytes that read right and are not on the medium (M3). With the sync
/// line, all above it is written again; all below is certainly durable and must not be written
/// over (M1). In another boot what was read is on the medium. Where neither is known, what the
/// segments have is moved to other blocks: neither M1 nor M3 can hurt it then.
fn make_durable(
    store: &Arc<dyn Store>,
    scanner: &mut Scanner,
    survey: &Survey,
    scan: &Scan,
    is_other_boot: bool,
) -> Result<()> {
    let newest = survey.newest().expect("a scan has an epoch");
    let has_line = scanner.leftover.as_ref().is_some_and(|leftover| leftover.durable.is_some());
    let first_hole = scan.holes.first().map_or(scan.end, |(hole, _)| *hole);
    let from_ring = scan.ring_from.unwrap_or(scan.end).min(first_hole);
    let first_unsure = if has_line { scan.floor } else { from_ring };
    // A recovery in this boot may have written what it found in the ring, and its sync failed.
    let may_have_failed = !is_other_boot || scan.is_in_ring_too;
    if !has_line && may_have_failed && scan.floor < from_ring {
        // Up to the end: the segments may have frames behind those of the ring.
        store.move_to_fresh_blocks(scan.floor, scan.end)?;
        scanner.reader.forget();
    }
    let epoch = Epoch {
        number: newest.epoch,
        salt: survey.salt,
        base: newest.base,
        predecessor: survey.predecessor,
    };
    if first_unsure < scan.end {
        if first_unsure < newest.base.max(survey.state.head) {
            let text = format!("the sync line names LSN {first_unsure}, below the epoch");
            return Err(corrupt(text, &store.place()).at_lsn(first_unsure));
        }
        store.resume_epoch(&epoch, first_unsure)?;
        if has_line {
            store.mark_durable(first_unsure)?;
        }
        store.prepare(scan.end)?;
        rewrite(store, scanner, scan, first_unsure)?;
    }
    let from = scan.floor.min(first_unsure);
    if from < scan.end { store.sync(from, scan.end) } else { Ok(()) }
}

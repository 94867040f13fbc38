//! Recovery: what a crash left, and how a running epoch comes out of it.
//!
//! # Steps of an open that may write
//! 1. Survey and scan: read, decide. Nothing is changed before the decision.
//! 2. Make `[floor, end)` durable: a write or sync of it may have failed, so it moves into new
//!    files, even where it reads right.
//! 3. The new epoch's first segment: header durable, then name durable.
//! 4. The buffer's file.
//! 5. The state.
//! 6. Dead segments are released.
//! 7. Reservations are allowed.
//!
//! A crash after any step starts again at 1. After a clean end steps 2 and 3 fall away and the
//! same epoch goes on; the list of epochs in the state takes the place of most headers (`closed`).
//!
//! # Words
//! *Evidence*: what proves that bytes up to some LSN were durable once. *Floor*: the greatest
//! evidence. A bad place at or above the floor is a torn tail; below, corruption.

pub(crate) mod closed;
mod dead;
mod decision;
mod examine;
#[cfg(all(test, not(loom)))]
mod forged_tests;
pub(crate) mod full;
mod report;
mod ring;
pub(crate) mod salvage;
mod scan;
mod strays;
pub(crate) mod survey;

use std::sync::Arc;
use std::time::Instant;

pub use self::decision::EndCause;
use self::examine::{Examined, examine};
pub use self::report::RecoveryReport;
pub(crate) use self::scan::Scanner;
use self::survey::Survey;
use crate::buffer::BLOCK_BYTES;
use crate::reader::EpochSpan;
use crate::store::{Epoch, Predecessor, State, Store};
use crate::{Error, ErrorKind, Lsn, Memory, Options, Result};

/// How often a log that changes while recovery reads it is looked at.
const LOOKS: usize = 3;

/// A log that may be appended to.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) state: State,
    /// The epochs that lie at or above the head; the running one is last and ends at `LIMIT`.
    pub(crate) spans: Vec<EpochSpan>,
    pub(crate) base: Lsn,
    pub(crate) memory: Memory,
    pub(crate) report: RecoveryReport,
}

/// Brings the log in `store` into a running epoch.
pub(crate) fn recover(store: &Arc<dyn Store>, options: &Options) -> Result<Recovered> {
    let start = Instant::now();
    let mut looks = 1;
    let examined = loop {
        let mut examined = examine(store, options)?;
        match make_durable(store, &mut examined) {
            Ok(()) => break examined,
            // The system has dropped pages that it could not write back: the log ends elsewhere.
            Err(_) if examined.has_changed() && looks < LOOKS => looks += 1,
            Err(error) => return Err(error),
        }
    };
    let mut report = report_of(&examined);
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
    let examined = examine(store, options)?;
    Ok(RecoveryReport { elapsed: start.elapsed(), ..report_of(&examined) })
}

/// The report as far as reading can tell.
fn report_of(examined: &Examined) -> RecoveryReport {
    let strays = examined.survey.strays.keys().copied().collect();
    RecoveryReport { strays, ..examined.report() }
}

/// After a clean end: the same epoch goes on where it ended.
fn resume(
    store: &Arc<dyn Store>,
    options: &Options,
    examined: Examined,
    report: &mut RecoveryReport,
) -> Result<Recovered> {
    let survey = examined.survey;
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
    let epochs = Vec::new();
    let state = State { clean: false, epochs, buffer_bytes, ..survey.state.clone() };
    store.save_state(&state)?;
    (report.base, report.epoch) = (end, epoch.number);
    let (spans, report) = (survey.spans.clone(), report.clone());
    Ok(Recovered { state, spans, base: end, memory, report })
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
    let mut floor = examined.floor();
    let mut ring_bytes = survey.state.buffer_bytes;
    if let Some((scanner, scan)) = examined.walked {
        ring_bytes = ring_bytes.max(scanner.ring_bytes());
        // No LSN of what is cut off is used again, wherever it lies.
        floor = floor.max(scan.end.plus(scan.torn_bytes));
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
    }
    let epoch = Epoch {
        number: survey.largest_epoch + 1,
        salt: store.random(),
        base: base_after(&survey, floor.max(predecessor.end), ring_bytes)?,
        predecessor,
    };
    let uuid = survey.state.uuid;
    spans.push(EpochSpan::open_ended(uuid, epoch.number, epoch.salt, epoch.base));
    store.begin_epoch(&epoch)?;
    let memory = store.renew_buffer(epoch.number, options.buffer_bytes, epoch.base)?;
    let state = State {
        checkpoint: lowered(survey.state.checkpoint, &spans, &epoch),
        epoch: epoch.number,
        epoch_base: epoch.base,
        epoch_salt: epoch.salt,
        buffer_bytes: options.buffer_bytes as u64,
        clean: false,
        epochs: Vec::new(),
        ..survey.state.clone()
    };
    store.save_state(&state)?;
    // What lies below the head stays for the next truncation of the head.
    match store.release(predecessor.end, epoch.base) {
        // What a full disk cannot free stays, and keeps nobody from opening the log.
        Err(error) if error.is_shortage() => {}
        released => released?,
    }
    report.end = predecessor.end;
    (report.base, report.epoch) = (epoch.base, epoch.number);
    let (base, report) = (epoch.base, report.clone());
    Ok(Recovered { state, spans, base, memory, report })
}

/// The checkpoint of a log that goes on in `epoch`, the last of `spans`. One that lies in what a
/// truncation cut off is lowered to the cut; a crash may have come before the state was
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
    base_above(written.plus(ring_bytes), segment_bytes)
}

/// The first segment start at or above `lsn`, if a segment can begin there.
pub(crate) fn base_above(lsn: Lsn, segment_bytes: u64) -> Result<Lsn> {
    let base = lsn.segment_start_at_or_above(segment_bytes);
    if base.plus(segment_bytes) <= Lsn::LIMIT { Ok(base) } else { Err(no_lsn_left(base)) }
}

/// An epoch whose first segment would begin at `base` lies above the last LSN.
pub(crate) fn no_lsn_left(base: Lsn) -> Error {
    let text = "the log has come to its last LSN: begin another one";
    Error::new(ErrorKind::OutOfRange, text).at_lsn(base)
}

/// Step 2: what was found survives power loss before anybody is told of it.
///
/// After a failed write or sync the system may show bytes that never reach the medium, and may take
/// a rewrite of them without effect (docs/durability.md, "Failed writes"). Nobody knows which syncs
/// failed since the system was started, nor for certain when that was (a container may have a boot
/// id of its own). So what was not certainly durable moves into new files at each open.
fn make_durable(store: &Arc<dyn Store>, examined: &mut Examined) -> Result<()> {
    let survey = Arc::clone(&examined.survey);
    let Some((scanner, scan)) = examined.walked.as_mut() else { return Ok(()) };
    if scan.floor >= scan.end {
        return Ok(());
    }
    let newest = survey.newest().expect("a scan has an epoch");
    let epoch = Epoch {
        number: newest.epoch,
        salt: survey.salt,
        base: newest.base,
        predecessor: survey.predecessor,
    };
    let moved = store.move_tail(&epoch, scan.moves_from, scan.end, &mut |at, until, out| {
        scanner.copy(scan, at, until, out)
    });
    scanner.reader.forget();
    moved
}

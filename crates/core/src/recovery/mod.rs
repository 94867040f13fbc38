//! Recovery: what a crash left, and how a running epoch comes out of it.
//!
//! # Steps of an open that may write
//! 1. Survey and scan: read, decide. Nothing is changed before the decision.
//! 2. Make `[floor, end)` durable: in the same boot everything from the sync line on is written
//!    again, even where it reads right (a failed sync may have left it in memory only), never
//!    below the line; then sync, oldest first.
//! 3. The new epoch's first segment: header durable, then name durable.
//! 4. The buffer's file.
//! 5. The state.
//! 6. Dead segments are released.
//! 7. Reservations are allowed.
//!
//! A crash after any step starts again at 1. After a clean end steps 2 and 3 fall away and the
//! same epoch goes on.
//!
//! # Words
//! *Evidence*: what proves that bytes up to some LSN were durable once. *Floor*: the greatest
//! evidence. A bad place at or above the floor is a torn tail; below, corruption.

mod decision;
mod ring;
mod scan;
pub(crate) mod survey;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::ring::OldRing;
pub(crate) use self::scan::Scanner;
use self::scan::{Leftover, Scan};
use self::survey::{Survey, corrupt, reader_of};
use crate::frame::EpochSeed;
use crate::reader::EpochSpan;
use crate::store::{Epoch, OldBuffer, Predecessor, ReadStore, State, Store};
use crate::{Error, ErrorKind, Lsn, Memory, Options, Result};

/// What an open found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the log had been closed cleanly: nothing was scanned.
    pub clean: bool,
    /// Segments present at or above the head.
    pub segments: u64,
    /// Records read by the scan: those that could have been torn, not all of the log.
    pub records: u64,
    /// Bytes read by the scan.
    pub bytes: u64,
    /// Bytes of recognisable frames behind the end that were cut off.
    pub torn_bytes: u64,
    /// Why the tail was cut, if something was.
    pub torn_reason: Option<String>,
    /// Ranges of threads that died between reserving and publishing, turned into padding.
    pub holes_padded: u64,
    /// Records that were in the log buffer only.
    pub records_from_buffer: u64,
    /// What is to be said of the buffer's file: missing, invalid, of an older epoch.
    pub buffer_note: Option<String>,
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
    let as_reader: Arc<dyn ReadStore> = Arc::clone(store) as Arc<dyn ReadStore>;
    let survey = Survey::take(store.as_ref())?;
    let mut report = RecoveryReport {
        segments: (survey.segments.len() + survey.damaged.len()) as u64,
        ..RecoveryReport::default()
    };
    let recovered = if ended_cleanly(&as_reader, &survey, options)? {
        resume(store, options, survey, &mut report)?
    } else {
        let leftover = leftover(store, &survey, &mut report)?;
        begin_anew(store, &as_reader, options, survey, leftover, &mut report)?
    };
    report.elapsed = start.elapsed();
    Ok(Recovered { report, ..recovered })
}

/// Whether the log ends where its last clean close says, and nothing follows.
fn ended_cleanly(store: &Arc<dyn ReadStore>, survey: &Survey, options: &Options) -> Result<bool> {
    let state = &survey.state;
    let Some(newest) = survey.newest() else { return Ok(false) };
    if !state.clean || newest.epoch != state.epoch || survey.largest_epoch != state.epoch {
        return Ok(false);
    }
    let end = state.clean_end;
    survey.check_present(newest.base.max(state.head), end, &store.place())?;
    let mut reader = reader_of(store, survey, options.read_ahead_bytes.min(4096));
    if survey.holds(end) && reader.header(end, newest.seed)?.is_some() {
        return Ok(false);
    }
    // Appends would go on into what was prepared behind the end: all of it must be sound.
    let numbers = survey.newest_segments();
    let is_gapless = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let last_end = numbers.last().map(|last| Lsn::new((last + 1) * state.segment_bytes));
    let is_last = last_end.is_none_or(|last_end| last_end == survey.highest_end);
    if !survey.damaged.is_empty() || !is_gapless || !is_last {
        return Ok(false);
    }
    let end_number = end.segment(state.segment_bytes);
    for number in survey.newest_segments().into_iter().rev().take_while(|n| *n > end_number) {
        let base = Lsn::new(number * state.segment_bytes);
        if reader.header(base, newest.seed)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// After a clean end: the same epoch goes on where it ended.
fn resume(
    store: &Arc<dyn Store>,
    options: &Options,
    survey: Survey,
    report: &mut RecoveryReport,
) -> Result<Recovered> {
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
    let state = State { clean: false, buffer_bytes, ..survey.state };
    store.save_state(&state)?;
    report.clean = true;
    (report.floor, report.end, report.base, report.epoch) = (end, end, end, epoch.number);
    Ok(Recovered { state, spans: survey.spans, base: end, memory, report: report.clone() })
}

/// After an unclean end, or in a new log: steps 1 to 6.
fn begin_anew(
    store: &Arc<dyn Store>,
    as_reader: &Arc<dyn ReadStore>,
    options: &Options,
    survey: Survey,
    leftover: Option<Leftover>,
    report: &mut RecoveryReport,
) -> Result<Recovered> {
    let old_ring_bytes = leftover.as_ref().map_or(0, |left| left.ring.ring_bytes());
    let end_of_next =
        base_after(&survey, Lsn::ZERO, old_ring_bytes).plus(survey.state.segment_bytes);
    if end_of_next > Lsn::LIMIT {
        let text = "the log has used up all of its LSNs";
        return Err(Error::new(ErrorKind::OutOfRange, text).at_path(store.place()));
    }
    let scanner = Scanner::new(as_reader, &survey, leftover, options.read_ahead_bytes);
    let mut spans = survey.spans.clone();
    let mut predecessor = survey.predecessor;
    if let Some(mut scanner) = scanner {
        let scan = scanner.run()?;
        make_durable(store, &mut scanner, &survey, &scan)?;
        let newest = spans.last_mut().expect("a scanner has an epoch");
        newest.end = scan.end;
        if newest.end > newest.base {
            predecessor = Predecessor { epoch: newest.epoch, end: newest.end };
        } else {
            // An epoch that stayed empty leaves no trace: its segment is free to recycle.
            spans.pop();
        }
        fill_in(report, &scan);
    }
    let epoch = Epoch {
        number: survey.largest_epoch + 1,
        salt: store.random(),
        base: base_after(&survey, predecessor.end, old_ring_bytes),
        predecessor,
    };
    store.begin_epoch(&epoch)?;
    let memory = store.renew_buffer(epoch.number, options.buffer_bytes, epoch.base)?;
    let state = State {
        epoch: epoch.number,
        epoch_base: epoch.base,
        epoch_salt: epoch.salt,
        buffer_bytes: options.buffer_bytes as u64,
        clean: false,
        ..survey.state
    };
    store.save_state(&state)?;
    store.release(predecessor.end, epoch.base)?;
    store.release(Lsn::ZERO, state.head)?;
    spans.push(EpochSpan {
        epoch: epoch.number,
        seed: EpochSeed::new(state.uuid, epoch.number, epoch.salt),
        base: epoch.base,
        end: Lsn::LIMIT,
    });
    report.end = predecessor.end;
    (report.base, report.epoch) = (epoch.base, epoch.number);
    Ok(Recovered { state, spans, base: epoch.base, memory, report: report.clone() })
}

/// The first segment start that is above every reservation made and not below the end of the
/// highest-numbered segment present; 0 in an empty log.
///
/// An LSN that a caller has seen lies below *written* plus the ring, and *written* below the
/// end of the segments.
fn base_after(survey: &Survey, end: Lsn, old_ring_bytes: u64) -> Lsn {
    if survey.highest_end == Lsn::ZERO && survey.state.epoch == 0 {
        return Lsn::ZERO;
    }
    let written = survey.highest_end.max(end).max(survey.state.head).max(survey.state.epoch_base);
    let ring_bytes = old_ring_bytes.max(survey.state.buffer_bytes);
    written.plus(ring_bytes).segment_start_at_or_above(survey.state.segment_bytes)
}

/// The old buffer, if it belongs to the newest epoch.
fn leftover(
    store: &Arc<dyn Store>,
    survey: &Survey,
    report: &mut RecoveryReport,
) -> Result<Option<Leftover>> {
    let Some(newest) = survey.newest() else { return Ok(None) };
    match store.old_buffer()? {
        OldBuffer::Missing => report.buffer_note = Some("there is no buffer file".into()),
        OldBuffer::Invalid(text) => report.buffer_note = Some(text),
        OldBuffer::Found { epoch, .. } if epoch != newest.epoch => {
            let text = format!("the buffer is of epoch {epoch}, the log of {}", newest.epoch);
            report.buffer_note = Some(text);
        }
        OldBuffer::Found { same_boot, durable, memory, .. } => {
            let ring = OldRing::new(memory, survey.state.segment_bytes);
            let durable = durable.filter(|_| same_boot);
            return Ok(Some(Leftover { ring, same_boot, durable }));
        }
    }
    Ok(None)
}

/// Step 2: what was found survives power loss before anybody is told of it.
fn make_durable(
    store: &Arc<dyn Store>,
    scanner: &mut Scanner<'_>,
    survey: &Survey,
    scan: &Scan,
) -> Result<()> {
    let newest = survey.newest().expect("a scan has an epoch");
    let first_unsure = match &scanner.leftover {
        // The sync line, unless it is damaged: then whatever else proves most. What lies below was
        // not scanned, and need not be written again.
        Some(leftover) if leftover.same_boot => scan.floor,
        _ => scan.ring_from.unwrap_or(scan.end),
    };
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
        if scanner.leftover.as_ref().is_some_and(|leftover| leftover.same_boot) {
            store.mark_durable(first_unsure)?;
        }
        store.prepare(scan.end)?;
        rewrite(store, scanner, scan, first_unsure)?;
    }
    let from = scan.floor.min(first_unsure);
    if from < scan.end { store.sync(from, scan.end) } else { Ok(()) }
}

fn rewrite(
    store: &Arc<dyn Store>,
    scanner: &mut Scanner<'_>,
    scan: &Scan,
    from: Lsn,
) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut piece = Vec::new();
    let mut at = from;
    while at < scan.end {
        piece.clear();
        let to = scanner.copy(scan, at, PIECE_BYTES, &mut piece)?;
        store.write(at, &[std::io::IoSlice::new(&piece)])?;
        at = to;
    }
    scanner.reader.forget();
    Ok(())
}

fn fill_in(report: &mut RecoveryReport, scan: &Scan) {
    report.records = scan.records;
    report.bytes = scan.bytes;
    report.torn_bytes = scan.torn_bytes;
    report.torn_reason.clone_from(&scan.torn_reason);
    report.holes_padded = scan.holes.len() as u64;
    report.records_from_buffer = scan.records_from_ring;
    report.floor = scan.floor;
}

//! Commits while many segments are freed.
//!
//! The log is filled first. In the middle of the round one more thread truncates what it was filled
//! with. Only commits that overlap the release are in the latency; without a release all commits of
//! the second half are.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use palisade::{Lsn, Wal};

use super::burst::{Round, Worker};
use crate::folder::settle;
use crate::form::Form;
use crate::log::Log;
use crate::measurement::Measurement;
use crate::plan::Plan;
use crate::workload::RELEASE_SEGMENT_BYTES;

/// What the releasing thread does: nothing yet, the release, nothing more.
const BEFORE: u8 = 0;
const DURING: u8 = 1;
const AFTER: u8 = 2;

/// What the log was filled with.
#[derive(Debug)]
struct Filled {
    /// Segments of the log.
    segments: u64,
    /// Segments that no other record is in.
    whole: u64,
    end: Lsn,
}

/// Fills the log and measures commits beside the form's release.
pub(super) fn measure(log: Box<dyn Log>, plan: &Plan) -> Result<Measurement> {
    let phase = AtomicU8::new(BEFORE);
    let filled = OnceLock::new();
    let work = |worker: &mut Worker<'_>| {
        if worker.thread < plan.threads {
            return commit(worker, &phase);
        }
        phase.store(BEFORE, Ordering::SeqCst);
        thread::sleep((worker.end() - worker.begin()) / 2);
        phase.store(DURING, Ordering::SeqCst);
        let released = filled.get().map_or(Ok(()), |filled| release(worker, plan.form, filled));
        // The committers wait for it, whether the release has failed or not.
        phase.store(AFTER, Ordering::SeqCst);
        released?;
        filled.get().map_or(Ok(()), |filled| check(wal(worker.log)?, plan.form, filled))?;
        Ok(0)
    };
    let with_releaser = Plan { threads: plan.threads + 1, ..plan.clone() };
    let round = Round { plan: &with_releaser, records_a_turn: 1, work: &work };
    round.warm_up(&*log)?;
    let begin = wal(&*log)?.reserved_lsn();
    log.fill(&plan.record(), plan.records, 0)?;
    let (segments, end) = (wal(&*log)?.space()?.segments, wal(&*log)?.reserved_lsn());
    let whole = (end.bytes_since(begin) / RELEASE_SEGMENT_BYTES).saturating_sub(1);
    filled.get_or_init(|| Filled { segments, whole, end });
    settle(&plan.dir);
    round.measure(log)
}

fn wal(log: &dyn Log) -> Result<&Wal> {
    log.wal().context("the contender frees no segments")
}

/// Commits until the time is over and the release has ended.
fn commit(worker: &mut Worker<'_>, phase: &AtomicU8) -> Result<u64> {
    let mut records = 0;
    while worker.next_turn().is_some() || phase.load(Ordering::SeqCst) != AFTER {
        let (phase_before, begin) = (phase.load(Ordering::SeqCst), Instant::now());
        worker.log.commit(worker.thread, worker.record)?;
        let time = begin.elapsed();
        if phase_before <= DURING && phase.load(Ordering::SeqCst) >= DURING {
            worker.latencies.record(time);
        }
        records += 1;
    }
    Ok(records)
}

fn release(worker: &Worker<'_>, form: Form, filled: &Filled) -> Result<()> {
    let wal = wal(worker.log)?;
    match form {
        Form::Release => wal.truncate_before(filled.end)?,
        Form::Background => wal.truncate_before_in_background(filled.end)?.wait()?,
        _ => thread::sleep(worker.end().saturating_duration_since(Instant::now())),
    }
    Ok(())
}

/// Succeeds if the segments are freed that the form frees. Commits take new ones meanwhile.
fn check(wal: &Wal, form: Form, filled: &Filled) -> Result<()> {
    let segments = wal.space()?.segments;
    let most = if form == Form::Alone { u64::MAX } else { filled.segments - filled.whole / 2 };
    ensure!(segments <= most, "{segments} of {} segments are left", filled.segments);
    Ok(())
}

//! Commits while many segments are freed.
//!
//! The log is filled first. In the middle of the round one more thread truncates what it was filled
//! with. Only commits that overlap the release are in the latency; without a release all commits of
//! the second half are.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use palisade::Lsn;

use super::burst::{Round, Worker, commit_for_a_while};
use crate::folder::settle;
use crate::workload::RELEASE_SEGMENT_BYTES;
use crate::{Form, Measurement, Plan};

const ALONE: Form = Form::named("alone");
const RELEASE: Form = Form::named("release");
const BACKGROUND: Form = Form::named("background");
/// Commits with nothing beside them, beside `truncate_before` and beside
/// `truncate_before_in_background`.
pub(super) const FORMS: [Form; 3] = [ALONE, RELEASE, BACKGROUND];

/// What the releasing thread does: nothing yet, the release, nothing more.
const BEFORE: u8 = 0;
const DURING: u8 = 1;
const AFTER: u8 = 2;

/// Fills the log and measures commits beside the form's release.
pub(super) fn measure(plan: &Plan) -> Result<Measurement> {
    let mut log = plan.create()?;
    commit_for_a_while(&mut *log, plan)?;
    let begin = log.wal()?.reserved_lsn();
    log.fill(1, &plan.record(), plan.records, 0)?;
    settle(&plan.dir);
    let (filled, end) = (log.wal()?.space()?.segments, log.wal()?.reserved_lsn());
    // Segments that no other record is in. Commits take new ones during the release.
    let whole = (end.bytes_since(begin) / RELEASE_SEGMENT_BYTES).saturating_sub(1);
    let most = if plan.form == ALONE { u64::MAX } else { filled - whole / 2 };
    let phase = AtomicU8::new(BEFORE);
    let work = |worker: &mut Worker<'_>| {
        if worker.thread < plan.threads {
            return commit(worker, &phase);
        }
        phase.store(BEFORE, Ordering::SeqCst);
        thread::sleep((worker.end() - worker.begin()) / 2);
        phase.store(DURING, Ordering::SeqCst);
        let released = release(worker, plan.form, end);
        // The committers wait for it, whether the release has failed or not.
        phase.store(AFTER, Ordering::SeqCst);
        released?;
        let left = worker.log.wal()?.space()?.segments;
        ensure!(left <= most, "{left} of {filled} segments are left");
        Ok(())
    };
    let with_releaser = Plan { threads: plan.threads + 1, ..plan.clone() };
    Round { plan: &with_releaser, records_a_turn: 1, work: &work }.measure(log)
}

/// Commits until the time is over and the release has ended.
fn commit(worker: &mut Worker<'_>, phase: &AtomicU8) -> Result<()> {
    while worker.next_turn().is_some() || phase.load(Ordering::SeqCst) != AFTER {
        let (phase_before, begin) = (phase.load(Ordering::SeqCst), Instant::now());
        worker.log.commit(worker.thread, worker.record)?;
        let time = begin.elapsed();
        if phase_before <= DURING && phase.load(Ordering::SeqCst) >= DURING {
            worker.latencies.record(time);
        }
        worker.records += 1;
    }
    Ok(())
}

/// Releases what is before `end`; without a release, waits until the time is over.
fn release(worker: &Worker<'_>, form: Form, end: Lsn) -> Result<()> {
    let wal = worker.log.wal()?;
    if form == RELEASE {
        wal.truncate_before(end)?;
    } else if form == BACKGROUND {
        wal.truncate_before_in_background(end)?.wait()?;
    } else {
        thread::sleep(worker.end().saturating_duration_since(Instant::now()));
    }
    Ok(())
}

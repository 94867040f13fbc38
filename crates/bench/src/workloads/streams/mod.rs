//! Logs of many streams. Where each thread has a stream of its own, the workloads are those of logs
//! without streams.

pub(super) mod slow;
pub(super) mod truncate;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::burst::{self, APPENDS_A_STEP, Worker};
use super::recover;
use super::scan::check;
use crate::log::{End, Log};
use crate::measurement::Measurement;
use crate::plan::Plan;
use crate::tally::Tally;
use crate::team::together;

/// Appends each record to a stream that the thread chooses at random; times one call in
/// [`APPENDS_A_STEP`].
pub(super) fn append(log: Box<dyn Log>, plan: &Plan) -> Result<Measurement> {
    burst::measure(log, plan, APPENDS_A_STEP, |worker: &mut Worker<'_>| {
        for _ in 1..APPENDS_A_STEP {
            let stream = worker.random.below(plan.streams);
            worker.log.append(stream, worker.record, 1)?;
        }
        let stream = worker.random.below(plan.streams);
        worker.time(|log, _, record| log.append(stream, record, 1))
    })
}

/// Closes a log whose streams have the plan's records, and opens it.
pub(super) fn open(log: Box<dyn Log>, plan: &Plan) -> Result<Measurement> {
    fill(&*log, plan, plan.records)?;
    recover::measure(log, plan, End::Closed)
}

/// Reads streams of a log until the time is over, each from its first record to its last one.
pub(super) fn scan(log: &dyn Log, plan: &Plan) -> Result<Measurement> {
    fill(log, plan, plan.records)?;
    // It also brings all bytes into the page cache.
    let kept = check(log, plan)?;
    let (mut elapsed, mut records) = (Duration::ZERO, 0);
    while records == 0 || elapsed < plan.time {
        log.rewind()?;
        let limit = plan.time.saturating_sub(elapsed);
        let (time, counts) = together(plan.threads, |thread| lap(log, plan, thread, limit));
        elapsed += time;
        records += counts.into_iter().sum::<Result<u64>>()?;
    }
    let records_per_s = records as f64 / elapsed.as_secs_f64();
    Ok(Measurement { records_per_s, kept: Some(kept), ..Measurement::default() })
}

/// Reads the thread's share of the streams once, or until the time is over. A stream is not read
/// again before all have been, so that it is not in the processor's cache.
fn lap(log: &dyn Log, plan: &Plan, thread: usize, limit: Duration) -> Result<u64> {
    let begin = Instant::now();
    let mut tally = Tally::new();
    let mut due = 0;
    for stream in (thread..plan.streams).step_by(plan.threads) {
        log.scan_stream(stream, &mut tally)?;
        due += plan.records / plan.streams as u64;
        if begin.elapsed() >= limit {
            break;
        }
    }
    let found = tally.records();
    ensure!(found >= due, "the streams have {found} of {due} records");
    tally.must_have_bytes_of(plan.record_bytes)?;
    Ok(found)
}

/// Appends records to the plan's streams in turn. Makes all of them durable if the contender is one
/// that can.
fn fill(log: &dyn Log, plan: &Plan, records: u64) -> Result<()> {
    let record = plan.record();
    let mut streams = (0..plan.streams).cycle();
    streams
        .by_ref()
        .take(records.saturating_sub(1) as usize)
        .try_for_each(|stream| log.append(stream, &record, 1))?;
    streams.next().map_or(Ok(()), |stream| log.commit(stream, &record))
}

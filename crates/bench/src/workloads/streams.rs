//! Logs of many streams, and sets of shards. Where each thread has a stream of its own, the
//! workloads are those of logs without streams.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use palisade_streams::Streams;

use super::burst::{self, APPENDS_A_STEP, Worker, read_back};
use super::read::{check, laps};
use crate::folder::settle;
use crate::{BURST_BYTES, End, Form, Kept, Latencies, Log, Measurement, Plan, Tally, together};

const TRUNCATE: Form = Form::named("truncate");
const ALONE: Form = Form::named("alone");
const BESIDE: Form = Form::named("beside");
/// `streams-truncate`: truncations alone, commits alone, and commits beside truncations.
pub(super) const TRUNCATIONS: [Form; 3] = [TRUNCATE, ALONE, BESIDE];

/// `shards-append`: each call takes the key.
pub(crate) const BY_KEY: Form = Form::named("by key");
/// `shards-append`: by handles, if the contender has them, and by keys.
pub(super) const ACCESSES: [Form; 2] = [Form::named("by handle"), BY_KEY];

const CREATE: Form = Form::named("create");
const LOAD: Form = Form::named("load");
/// `shards-checkpoint`: a checkpoint of records that are not durable yet, and the load of one.
pub(super) const CHECKPOINTS: [Form; 2] = [CREATE, LOAD];

/// Records of the stream that nobody truncates, in `streams-slow`.
const SLOW_RECORDS: u64 = 10;
/// In `streams-slow` a thread truncates its stream after so many appends.
const APPENDS_A_TRUNCATION: u64 = 1024;

/// Appends each record to a stream that the thread chooses at random; times one call in
/// [`APPENDS_A_STEP`].
pub(super) fn append(plan: &Plan) -> Result<Measurement> {
    burst::measure(plan, APPENDS_A_STEP, |worker: &mut Worker<'_>| {
        for _ in 1..APPENDS_A_STEP {
            let stream = worker.random.below(plan.streams);
            worker.log.append(stream, worker.record)?;
        }
        let stream = worker.random.below(plan.streams);
        worker.time(|log, _, record| log.append(stream, record))
    })
}

/// Appends a batch by one call to a stream that the thread chooses at random.
pub(super) fn append_batch(plan: &Plan) -> Result<Measurement> {
    burst::measure(plan, plan.batch, |worker| {
        let stream = worker.random.below(plan.streams);
        worker.time(|log, _, record| log.append_batch(stream, record, plan.batch))
    })
}

/// Reads streams of a log until the time is over, each from its first record to its last one. A
/// stream is not read again before all have been, so that it is not in the processor's cache.
pub(super) fn scan(plan: &Plan) -> Result<Measurement> {
    laps(plan, plan.fill()?, |log, thread, left| {
        let (begin, mut tally, mut due) = (Instant::now(), Tally::default(), 0);
        for stream in (thread..plan.streams).step_by(plan.threads) {
            log.scan_stream(stream, &mut tally)?;
            due += plan.records / plan.streams as u64;
            if begin.elapsed() >= left {
                break;
            }
        }
        tally.must_have(due, plan.record_bytes)?;
        Ok(tally.records)
    })
}

/// Measures truncations of the plan's streams, which have one record each, commits to other streams
/// for the plan's time, or these commits beside the truncations. Each thread commits to a stream of
/// its own.
pub(super) fn truncate(plan: &Plan) -> Result<Measurement> {
    let with_commits = Plan { streams: plan.streams + plan.threads, ..plan.clone() };
    let log = with_commits.create()?;
    log.fill(plan.streams, &plan.record(), plan.streams as u64, 0)?;
    settle(&plan.dir);
    let committers = if plan.form == TRUNCATE { 0 } else { plan.threads };
    let truncates = plan.form != ALONE;
    let is_over = AtomicBool::new(false);
    let (elapsed, mut calls) = together(committers + usize::from(truncates), |thread| {
        if thread < committers {
            return commit(&*log, plan, thread, &is_over);
        }
        let truncated = truncate_each(&*log, plan);
        // Relaxed: the flag orders nothing. The committers end also if a truncation has failed.
        is_over.store(true, Ordering::Relaxed);
        truncated
    })?;
    let truncations = calls.drain(committers..).next().unwrap_or_default();
    let mut commits = Latencies::default();
    calls.iter().for_each(|calls| commits.merge(calls));
    // A commit makes the truncations durable.
    let left = plan.streams as u64 - truncations.calls() + commits.calls() + u64::from(truncates);
    let kept = read_back(&with_commits, log, left)?.context("it keeps nothing to open")?;
    let found = kept.read_back;
    ensure!(found <= left, "{found} records are there, and not {left}: truncated ones, too");
    let measured = if committers == 0 { truncations } else { commits };
    let rate = measured.calls() as f64 / elapsed.as_secs_f64();
    Ok(Measurement { kept: Some(kept), ..Measurement::of_round(rate, &measured) })
}

/// Truncates the streams, and makes that durable by a commit. Beside committers it ends when the
/// plan's time is over.
fn truncate_each(log: &dyn Log, plan: &Plan) -> Result<Latencies> {
    let (begin, mut truncations) = (Instant::now(), Latencies::default());
    for stream in 0..plan.streams {
        truncations.time(|| log.truncate(stream))?;
        if plan.form == BESIDE && begin.elapsed() >= plan.time {
            break;
        }
    }
    log.commit(plan.streams, &plan.record())?;
    Ok(truncations)
}

/// Commits to the thread's own stream until the truncations or the time are over.
fn commit(log: &dyn Log, plan: &Plan, thread: usize, is_over: &AtomicBool) -> Result<Latencies> {
    let (record, begin, mut commits) = (plan.record(), Instant::now(), Latencies::default());
    let is_alone = plan.form == ALONE;
    loop {
        commits.time(|| log.commit(plan.streams + thread, &record))?;
        if is_alone && begin.elapsed() >= plan.time || is_over.load(Ordering::Relaxed) {
            return Ok(commits);
        }
    }
}

/// Appends the plan's records, each thread to a stream of its own, which it truncates now and then,
/// beside a stream of a few records that nobody truncates. Measures how many segments that stream
/// keeps in the end, and what was moved to release the others. The log takes most during the
/// appends.
pub(super) fn slow(plan: &Plan) -> Result<Measurement> {
    let with_slow = Plan { streams: plan.threads + 1, ..plan.clone() };
    let log = with_slow.create()?;
    let record = plan.record();
    (0..SLOW_RECORDS).try_for_each(|_| log.commit(plan.threads, &record))?;
    let streams = log.streams()?;
    let records = plan.records / plan.threads as u64;
    let (elapsed, most) = together(plan.threads, |thread| {
        let mut most = 0;
        for begin in (0..records).step_by(APPENDS_A_TRUNCATION as usize) {
            let count = (records - begin).min(APPENDS_A_TRUNCATION);
            log.appends(thread, &record, count as u32)?;
            log.truncate(thread)?;
            most = most.max(segments(streams));
        }
        Ok(most)
    })?;
    // What the keeper has begun counts, too.
    while streams.maintain()? {}
    let (segment_bytes, left) = (streams.log().segment_bytes(), segments(streams));
    let stats = streams.stats();
    let moved = 100.0 * stats.moved_bytes as f64 / stats.released_bytes.max(1) as f64;
    Ok(Measurement {
        records_per_s: (records * plan.threads as u64) as f64 / elapsed.as_secs_f64(),
        log_bytes: most.into_iter().max().map(|segments| segments * segment_bytes),
        segments: Some(left),
        moved_percent: Some(moved),
        // All other streams are empty.
        kept: read_back(&with_slow, log, SLOW_RECORDS)?,
        ..Measurement::default()
    })
}

/// Returns how many segments the log has, from that of the head to that of the tail.
fn segments(streams: &Streams) -> u64 {
    let log = streams.log();
    let segment_of = |lsn: palisade::Lsn| lsn.segment(log.segment_bytes());
    // The head first: it may move meanwhile.
    let head = segment_of(log.head_lsn());
    segment_of(log.reserved_lsn()) - head + 1
}

/// Makes or loads checkpoints until the time is over, or [`BURST_BYTES`] are appended. Only these
/// calls are timed. Meanwhile there is at most one other checkpoint.
pub(super) fn checkpoint(plan: &Plan) -> Result<Measurement> {
    let (log, record) = (plan.create()?, plan.record());
    log.fill(plan.streams, &record, 0, plan.records)?;
    log.sync()?;
    let mut appended = plan.records;
    let mut name = String::from("first");
    log.checkpoint(&name)?;
    let (mut latencies, mut elapsed) = (Latencies::default(), Duration::ZERO);
    let begin = Instant::now();
    let is_full = |appended: u64| appended * plan.record_bytes as u64 >= BURST_BYTES;
    while latencies.calls() == 0 || begin.elapsed() < plan.time && !is_full(appended) {
        if plan.form == CREATE {
            log.fill(plan.streams, &record, 0, plan.records)?;
            appended += plan.records;
            log.prune_checkpoints()?;
            name = latencies.calls().to_string();
        }
        let call = Instant::now();
        let covered = if plan.form == LOAD {
            log.load_checkpoint(&name)?
        } else {
            log.checkpoint(&name).map(|()| appended)?
        };
        let time = call.elapsed();
        ensure!(covered == appended, "the checkpoint has {covered} of {appended} records");
        latencies.record(time);
        elapsed += time;
    }
    let opened = plan.end(log, End::Dropped)?()?;
    let kept = check(&*opened, &Plan { records: appended, ..plan.clone() })?;
    // A record counts if it is there and the checkpoint has it.
    let read_back = kept.read_back.min(opened.load_checkpoint(&name)?);
    let rate = latencies.calls() as f64 / elapsed.as_secs_f64();
    let kept = Some(Kept { read_back, ..kept });
    Ok(Measurement { kept, ..Measurement::of_round(rate, &latencies) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Contender;
    use crate::log::Opening;
    use crate::workload::Workload;

    const APPENDED: u64 = 10;

    /// A set in which a checkpoint has all records. After an open, `records` are there, and the
    /// checkpoint has `covered`.
    #[derive(Clone, Copy)]
    struct ForgetfulShards {
        records: u64,
        covered: u64,
        is_open: bool,
    }

    impl Log for ForgetfulShards {
        fn append(&self, _stream: usize, _record: &[u8]) -> Result<()> {
            Ok(())
        }

        fn sync(&self) -> Result<()> {
            Ok(())
        }

        fn checkpoint(&self, _name: &str) -> Result<()> {
            Ok(())
        }

        fn load_checkpoint(&self, _name: &str) -> Result<u64> {
            Ok(if self.is_open { self.covered } else { APPENDED })
        }

        fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
            tally.count(self.records, 8 * self.records);
            Ok(())
        }

        fn end(self: Box<Self>, _plan: &Plan, _end: End) -> Result<Option<Opening>> {
            Ok(Some(Box::new(move || Ok(Box::new(ForgetfulShards { is_open: true, ..*self })))))
        }
    }

    fn is_short(open: fn(&Plan) -> Result<Box<dyn Log>>) -> bool {
        let contender = Contender { open, ..Contender::BASE };
        let plan = Plan {
            form: LOAD,
            records: APPENDED,
            record_bytes: 8,
            ..Plan::new(contender, Workload::ShardsCheckpoint)
        };
        checkpoint(&plan).unwrap().kept.unwrap().is_short()
    }

    fn set(records: u64, covered: u64) -> Result<Box<dyn Log>> {
        Ok(Box::new(ForgetfulShards { records, covered, is_open: false }))
    }

    #[test]
    fn records_that_are_gone_or_not_in_the_checkpoint_are_noticed() {
        assert!(!is_short(|_| set(10, 10)));
        assert!(is_short(|_| set(9, 10)));
        assert!(is_short(|_| set(10, 9)));
    }
}

//! Sets of shards. Single appends use the workloads of streams.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::burst;
use super::scan::check;
use crate::form::Form;
use crate::latency::Latencies;
use crate::log::{End, Log};
use crate::measurement::{Kept, Measurement};
use crate::plan::{BURST_BYTES, Plan};

/// Appends a batch by one call to a stream that the thread chooses at random.
pub(super) fn batch(log: Box<dyn Log>, plan: &Plan) -> Result<Measurement> {
    burst::measure(log, plan, plan.batch, |worker| {
        let stream = worker.random.below(plan.streams);
        worker.time(|log, _, record| log.append_batch(stream, record, plan.batch))
    })
}

/// Makes or loads checkpoints until the time is over, or [`BURST_BYTES`] are appended. Only these
/// calls are timed. Meanwhile there is at most one other checkpoint.
pub(super) fn checkpoint(log: Box<dyn Log>, plan: &Plan) -> Result<Measurement> {
    let mut appended = append(&*log, plan)?;
    log.sync()?;
    let mut name = String::from("first");
    log.checkpoint(&name)?;
    let (mut latencies, mut calls, mut elapsed) = (Latencies::default(), 0_u32, Duration::ZERO);
    let begin = Instant::now();
    let is_full = |appended: u64| appended * plan.record_bytes as u64 >= BURST_BYTES;
    while calls == 0 || begin.elapsed() < plan.time && !is_full(appended) {
        if plan.form == Form::Create {
            appended += append(&*log, plan)?;
        }
        if plan.form != Form::Load {
            log.prune_checkpoints()?;
            name = calls.to_string();
        }
        let call = Instant::now();
        let covered = match plan.form {
            Form::Load => log.load_checkpoint(&name)?,
            _ => log.checkpoint(&name).map(|()| appended)?,
        };
        let time = call.elapsed();
        ensure!(covered == appended, "the checkpoint has {covered} of {appended} records");
        latencies.record(time);
        elapsed += time;
        calls += 1;
    }
    let kept = Some(read_back(log, plan, &name, appended)?);
    let rate = f64::from(calls) / elapsed.as_secs_f64();
    Ok(Measurement { kept, ..Measurement::of_round(rate, &latencies) })
}

/// Appends the plan's records to the streams in turn, without a sync. Returns how many.
fn append(log: &dyn Log, plan: &Plan) -> Result<u64> {
    let record = plan.record();
    let mut streams = (0..plan.streams).cycle().take(plan.records as usize);
    streams.try_for_each(|stream| log.append(stream, &record, 1))?;
    Ok(plan.records)
}

/// Drops the set and opens it. A record counts if it is there and the checkpoint has it.
fn read_back(log: Box<dyn Log>, plan: &Plan, name: &str, appended: u64) -> Result<Kept> {
    let opening = log.end(End::Dropped)?.context("it keeps nothing to open")?;
    let opened = opening()?;
    let kept = check(&*opened, &Plan { records: appended, ..plan.clone() })?;
    let covered = opened.load_checkpoint(name)?;
    Ok(Kept { read_back: kept.read_back.min(covered), ..kept })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Opening;
    use crate::tally::Tally;

    /// A set in which a checkpoint has all records. After an open, `records` are there, and the
    /// checkpoint has `covered`.
    #[derive(Clone, Copy)]
    struct ForgetfulShards {
        records: u64,
        covered: u64,
        is_open: bool,
    }

    impl Log for ForgetfulShards {
        fn append(&self, _stream: usize, _record: &[u8], _count: u32) -> Result<()> {
            Ok(())
        }

        fn sync(&self) -> Result<()> {
            Ok(())
        }

        fn checkpoint(&self, _name: &str) -> Result<()> {
            Ok(())
        }

        fn load_checkpoint(&self, _name: &str) -> Result<u64> {
            Ok(if self.is_open { self.covered } else { 10 })
        }

        fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
            tally.count(self.records, 8 * self.records);
            Ok(())
        }

        fn end(self: Box<Self>, _end: End) -> Result<Option<Opening>> {
            Ok(Some(Box::new(move || Ok(Box::new(ForgetfulShards { is_open: true, ..*self })))))
        }
    }

    fn is_short(records: u64, covered: u64) -> bool {
        let plan = Plan { form: Form::Load, records: 10, ..Plan::at("unused".as_ref(), 1, 8) };
        let log = ForgetfulShards { records, covered, is_open: false };
        checkpoint(Box::new(log), &plan).unwrap().kept.unwrap().is_short()
    }

    #[test]
    fn records_that_are_gone_or_not_in_the_checkpoint_are_noticed() {
        assert!(!is_short(10, 10));
        assert!(is_short(9, 10));
        assert!(is_short(10, 9));
    }
}

//! Commits that are due at fixed times, whether the log keeps up or not.
//!
//! Latency counts from when a commit was due, not from when a thread was free to make it: a stall
//! is in the latency of all commits that were due meanwhile. Threads serve one stream of due
//! commits, each takes the next one.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::burst::{Round, Worker, in_steps};
use crate::form::Form;
use crate::log::Log;
use crate::measurement::Measurement;
use crate::plan::Plan;

/// A sleep may last this much longer than asked for; the thread yields for the rest.
const SLEEP_SLACK: Duration = Duration::from_micros(150);

/// Measures commits at the form's rate.
pub(super) fn measure(log: Box<dyn Log>, plan: &Plan) -> Result<Measurement> {
    let most = closed_loop(&*log, plan)?;
    let rate = match plan.form {
        Form::Rate(rate) => rate,
        Form::Share(percent) => most * f64::from(percent) / 100.0,
        _ => bail!("open-loop needs a rate"),
    };
    let work = |worker: &mut Worker<'_>| {
        let mut records = 0;
        while let Some(turn) = worker.next_turn() {
            let due = worker.begin() + Duration::from_secs_f64(turn as f64 / rate);
            if due >= worker.end() {
                break;
            }
            wait_until(due);
            worker.log.commit(worker.thread, worker.record)?;
            worker.latencies.record(due.elapsed());
            records += 1;
        }
        Ok(records)
    };
    let outcome = Round { plan, records_a_turn: 1, work: &work }.measure(log)?;
    Ok(Measurement { offered_per_s: Some(rate), ..outcome })
}

/// Returns how many commits a second the contender takes if each thread commits without a pause.
fn closed_loop(log: &dyn Log, plan: &Plan) -> Result<f64> {
    let work = in_steps(1, |worker| worker.log.commit(worker.thread, worker.record));
    let round = Round { plan, records_a_turn: 1, work: &work };
    round.warm_up(log)?;
    round.warm_up(log)
}

fn wait_until(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(SLEEP_SLACK) {
            Some(time) if !time.is_zero() => thread::sleep(time),
            _ => thread::yield_now(),
        }
    }
}

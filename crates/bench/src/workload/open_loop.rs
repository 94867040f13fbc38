//! Commits that are due at fixed times, whether the log keeps up or not.
//!
//! Latency counts from when a commit was due, not from when a thread was free to make it: a stall
//! is in the latency of all commits that were due meanwhile. Threads serve one stream of due
//! commits, each takes the next one.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Outcome;
use super::burst::{Round, Turns, in_steps};
use super::variant::Variant;
use crate::contender::Log;
use crate::latency::Latencies;
use crate::plan::Plan;

/// A sleep may last so much longer than it was asked to; the rest is waited for awake.
const SLEEP_SLACK: Duration = Duration::from_micros(150);

/// Measures commits at the rate that the variant says.
pub(super) fn measure(log: Box<dyn Log>, plan: &Plan) -> Result<Outcome> {
    let most = closed_loop(&*log, plan)?;
    let rate = match plan.variant {
        Variant::Rate(rate) => rate,
        Variant::Share(percent) => most * f64::from(percent) / 100.0,
        _ => bail!("open-loop needs a rate"),
    };
    let work = |turns: &Turns<'_>,
                log: &dyn Log,
                thread: usize,
                record: &[u8],
                latencies: &mut Latencies| {
        let mut records = 0;
        while let Some(turn) = turns.next() {
            let due = turns.begin() + Duration::from_secs_f64(turn as f64 / rate);
            if due >= turns.end() {
                break;
            }
            wait_until(due);
            log.commit(thread, record)?;
            latencies.record(due.elapsed());
            records += 1;
        }
        Ok(records)
    };
    let outcome = Round { plan, records_a_turn: 1, work: &work }.measure(log)?;
    Ok(Outcome { offered_per_s: Some(rate), ..outcome })
}

/// How many commits a second the contender takes when each thread commits without a pause.
fn closed_loop(log: &dyn Log, plan: &Plan) -> Result<f64> {
    let step =
        |log: &dyn Log, thread: usize, record: &[u8], _: &mut Latencies| log.commit(thread, record);
    let work = in_steps(1, &step);
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

//! Commits that are due at fixed times, whether the log keeps up or not.
//!
//! Latency counts from when a commit was due, not from when a thread was free to make it: a stall
//! is in the latency of all commits that were due meanwhile. Threads serve one stream of due
//! commits, each takes the next one.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::burst::{Round, Worker, commit_for_a_while};
use crate::{Form, Measurement, Plan};

/// Percentages of what the contender reached just before, in a closed loop.
pub(super) const FORMS: [Form; 3] = [
    Form { number: 20.0, ..Form::named("20 % load") },
    Form { number: 50.0, ..Form::named("50 % load") },
    Form { number: 80.0, ..Form::named("80 % load") },
];

/// A sleep may last this much longer than asked for; the thread yields for the rest.
const SLEEP_SLACK: Duration = Duration::from_micros(150);

/// Measures commits at the form's rate.
pub(super) fn measure(plan: &Plan) -> Result<Measurement> {
    let mut log = plan.create()?;
    commit_for_a_while(&mut *log, plan)?;
    let most = commit_for_a_while(&mut *log, plan)?;
    // The form of `--rate` names the rate itself.
    let is_share = FORMS.contains(&plan.form);
    let rate = if is_share { most * plan.form.number / 100.0 } else { plan.form.number };
    let work = |worker: &mut Worker<'_>| {
        while let Some(turn) = worker.next_turn() {
            let due = worker.begin() + Duration::from_secs_f64(turn as f64 / rate);
            if due >= worker.end() {
                break;
            }
            wait_until(due);
            worker.log.commit(worker.thread, worker.record)?;
            worker.latencies.record(due.elapsed());
            worker.records += 1;
        }
        Ok(())
    };
    let outcome = Round { plan, records_a_turn: 1, work: &work }.measure(log)?;
    Ok(Measurement { offered_per_s: Some(rate), ..outcome })
}

/// Waits until a commit is due.
fn wait_until(due: Instant) {
    let left = || due.saturating_duration_since(Instant::now());
    thread::sleep(left().saturating_sub(SLEEP_SLACK));
    while !left().is_zero() {
        thread::yield_now();
    }
}

//! Commits that a tail follows on another thread: what the tail costs them, and how late it is.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::burst::{Round, Worker};
use crate::{Form, Measurement, Plan, lock};

const ALONE: Form = Form::named("alone");
/// From the end of a commit to the return of the tail.
const DELIVERY: Form = Form::named("delivery");
/// Commits, alone or with a tail that follows them, and the tail.
pub(super) const FORMS: [Form; 3] = [ALONE, Form::named("followed"), DELIVERY];

/// The follower gives up when a record does not come for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures one thread's commits, or how long after each of them the tail returns its record.
pub(super) fn measure(plan: &Plan) -> Result<Measurement> {
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    let work = |worker: &mut Worker<'_>| match worker.thread {
        0 => commit(worker, plan.form, &sender),
        _ => follow(worker, plan.form, &receiver),
    };
    let threads = if plan.form == ALONE { 1 } else { 2 };
    let plan = Plan { threads, ..plan.clone() };
    Round { plan: &plan, records_a_turn: 1, work: &work }.run()
}

/// Commits, and sends the time at which each commit ended.
fn commit(worker: &mut Worker<'_>, form: Form, ends: &Sender<Instant>) -> Result<()> {
    while worker.next_turn().is_some() {
        let begin = Instant::now();
        worker.log.commit(worker.thread, worker.record)?;
        let end = Instant::now();
        if form != DELIVERY {
            worker.latencies.record(end - begin);
        }
        if form != ALONE {
            ends.send(end)?;
        }
        worker.records += 1;
    }
    // An empty record tells the follower to stop.
    worker.log.commit(worker.thread, &[])
}

/// Follows the log from its first record to an empty one.
fn follow(worker: &mut Worker<'_>, form: Form, ends: &Mutex<Receiver<Instant>>) -> Result<()> {
    let ends = lock(ends);
    let mut tail = worker.log.wal()?.tail()?;
    while !tail.next(PATIENCE)?.context("the tail found no record")?.data().is_empty() {
        let returned = Instant::now();
        // The tail may be first: a record is durable before its commit returns.
        let late = returned.saturating_duration_since(ends.recv_timeout(PATIENCE)?);
        if form == DELIVERY {
            // 0 would read as not measured.
            worker.latencies.record(late.max(Duration::from_nanos(1)));
        }
    }
    Ok(())
}

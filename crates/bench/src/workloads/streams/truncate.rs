//! Truncations of many streams, and commits to others alone and beside these truncations.
//!
//! Each of the plan's streams has one record. The threads commit to other streams, each to its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::fill;
use crate::contender::Contender;
use crate::folder::settle;
use crate::form::Form;
use crate::latency::Latencies;
use crate::log::Log;
use crate::measurement::{Kept, Measurement};
use crate::plan::Plan;
use crate::team::together;
use crate::workload::Workload;
use crate::workloads::burst::read_back;

/// Measures the truncations, the commits alone for the plan's time, or the commits beside the
/// truncations from their begin to their end.
pub(in crate::workloads) fn measure(contender: &Contender, plan: &Plan) -> Result<Measurement> {
    let with_commits = Plan { streams: plan.streams + plan.threads, ..plan.clone() };
    let log = contender.create(Workload::StreamsTruncate, &with_commits)?;
    fill(&*log, plan, plan.streams as u64)?;
    settle(&plan.dir);
    let committers = if plan.form == Form::Truncate { 0 } else { plan.threads };
    let truncates = plan.form != Form::Alone;
    let is_over = AtomicBool::new(false);
    let (elapsed, parts) = together(committers + usize::from(truncates), |thread| {
        if thread < committers {
            return commit(&*log, plan, thread, &is_over);
        }
        let truncated = truncate(&*log, plan);
        // Relaxed: the flag orders nothing. The committers end also if a truncation has failed.
        is_over.store(true, Ordering::Relaxed);
        truncated
    });
    let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
    let mut latencies = Latencies::default();
    parts[..committers.max(1)].iter().for_each(|(_, of_thread)| latencies.merge(of_thread));
    let acknowledged: u64 = parts.iter().map(|(commits, _)| commits).sum();
    let measured = if committers == 0 { plan.streams as u64 } else { acknowledged };
    let read_back = read_back(log)?.context("it keeps nothing to open")?;
    ensure!(!truncates || read_back <= acknowledged, "truncated records are back after an open");
    let kept = Some(Kept { acknowledged, read_back });
    let rate = measured as f64 / elapsed.as_secs_f64();
    Ok(Measurement { kept, ..Measurement::of_round(rate, &latencies) })
}

/// Truncates all streams, and makes that durable by a commit. Returns the commits.
fn truncate(log: &dyn Log, plan: &Plan) -> Result<(u64, Latencies)> {
    let mut latencies = Latencies::default();
    for stream in 0..plan.streams {
        latencies.time(|| log.truncate(stream))?;
    }
    log.commit(plan.streams, &plan.record())?;
    Ok((1, latencies))
}

/// Commits to the thread's own stream until the truncations or the time are over.
fn commit(
    log: &dyn Log,
    plan: &Plan,
    thread: usize,
    is_over: &AtomicBool,
) -> Result<(u64, Latencies)> {
    let (record, begin) = (plan.record(), Instant::now());
    let mut latencies = Latencies::default();
    let mut commits = 0;
    loop {
        latencies.time(|| log.commit(plan.streams + thread, &record))?;
        commits += 1;
        let is_over = match plan.form {
            Form::Alone => begin.elapsed() >= plan.time,
            _ => is_over.load(Ordering::Relaxed),
        };
        if is_over {
            return Ok((commits, latencies));
        }
    }
}

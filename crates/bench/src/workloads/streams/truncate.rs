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

/// What a thread has done.
#[derive(Debug, Default)]
struct Part {
    commits: u64,
    truncations: u64,
    /// Of the commits, or of the truncations.
    latencies: Latencies,
}

/// Measures the truncations, the commits alone for the plan's time, or the commits beside the
/// truncations, which end after the plan's time at the latest.
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
    parts[..committers.max(1)].iter().for_each(|part| latencies.merge(&part.latencies));
    let commits: u64 = parts.iter().map(|part| part.commits).sum();
    let truncations: u64 = parts.iter().map(|part| part.truncations).sum();
    let kept = commits + plan.streams as u64 - truncations;
    let read_back = read_back(log)?.context("it keeps nothing to open")?;
    ensure!(
        read_back <= kept,
        "{read_back} records are there, and not {kept}: truncated ones, too"
    );
    let measured = if committers == 0 { truncations } else { commits };
    let rate = measured as f64 / elapsed.as_secs_f64();
    let kept = Some(Kept { acknowledged: kept, read_back });
    Ok(Measurement { kept, ..Measurement::of_round(rate, &latencies) })
}

/// Truncates the streams, and makes that durable by a commit.
fn truncate(log: &dyn Log, plan: &Plan) -> Result<Part> {
    let (begin, mut part) = (Instant::now(), Part::default());
    for stream in 0..plan.streams {
        part.latencies.time(|| log.truncate(stream))?;
        part.truncations += 1;
        if plan.form == Form::Beside && begin.elapsed() >= plan.time {
            break;
        }
    }
    log.commit(plan.streams, &plan.record())?;
    Ok(Part { commits: 1, ..part })
}

/// Commits to the thread's own stream until the truncations or the time are over.
fn commit(log: &dyn Log, plan: &Plan, thread: usize, is_over: &AtomicBool) -> Result<Part> {
    let (record, begin, mut part) = (plan.record(), Instant::now(), Part::default());
    loop {
        part.latencies.time(|| log.commit(plan.streams + thread, &record))?;
        part.commits += 1;
        let is_over = match plan.form {
            Form::Alone => begin.elapsed() >= plan.time,
            _ => is_over.load(Ordering::Relaxed),
        };
        if is_over {
            return Ok(part);
        }
    }
}

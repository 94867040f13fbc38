//! Opening a log: one that was not closed, and one of many segments that was.

use std::time::Instant;

use anyhow::Result;

use super::scan::check;
use super::{Opened, Outcome, Workload};
use crate::contender::Contender;
use crate::contender::filled::End;
use crate::folder::settle;
use crate::plan::Plan;
use crate::workload::Variant;

/// Makes a log, ends it as a kill does, and opens it.
pub(super) fn measure_unclean(contender: Contender, plan: &Plan) -> Result<Outcome> {
    let torn_bytes = match plan.variant {
        Variant::Torn(bytes) => bytes,
        _ => 0,
    };
    open(Workload::Recover, contender, plan, End::Killed { torn_bytes })
}

/// Makes a log of small segments, closes it, and opens it.
pub(super) fn measure_clean(contender: Contender, plan: &Plan) -> Result<Outcome> {
    open(Workload::Reopen, contender, plan, End::Closed)
}

fn open(workload: Workload, contender: Contender, plan: &Plan, end: End) -> Result<Outcome> {
    let log = contender.fill(workload, plan)?;
    let log_bytes = log.log_bytes()?;
    let opening = log.end(end)?;
    // What the files' making has left for the device is nothing that the open should wait for.
    settle(&plan.dir);
    let begin = Instant::now();
    let opened = opening()?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Outcome {
        records_per_s: plan.records as f64 / seconds,
        opened: Some(Opened { open_ms: seconds * 1e3, log_bytes, segments: opened.segments()? }),
        kept: Some(check(&*opened, plan)?),
        ..Outcome::default()
    })
}

//! Opening a log: one that was not closed, and one of many segments that was.

use std::time::Instant;

use anyhow::{Context, Result};

use super::scan::check;
use crate::folder::settle;
use crate::form::Form;
use crate::log::{End, Log};
use crate::outcome::{Opened, Outcome};
use crate::plan::Plan;

/// Ends the log as a kill does, and opens it.
pub(super) fn measure_unclean(log: Box<dyn Log>, plan: &Plan) -> Result<Outcome> {
    let torn_bytes = if let Form::Torn(bytes) = plan.form { bytes } else { 0 };
    open(log, plan, End::Killed { torn_bytes })
}

/// Closes the log, and opens it.
pub(super) fn measure_clean(log: Box<dyn Log>, plan: &Plan) -> Result<Outcome> {
    open(log, plan, End::Closed)
}

fn open(log: Box<dyn Log>, plan: &Plan, end: End) -> Result<Outcome> {
    let size = log.size();
    let opening = log.end(end)?.context("it keeps nothing to open")?;
    // The open should not wait for bytes that making the files has left for the device.
    settle(&plan.dir);
    let begin = Instant::now();
    let opened = opening()?;
    let seconds = begin.elapsed().as_secs_f64();
    let size = size.zip(opened.size()).map(|((bytes, _), (_, segments))| (bytes, segments));
    Ok(Outcome {
        records_per_s: plan.records as f64 / seconds,
        opened: Some(Opened { open_ms: seconds * 1e3, size }),
        kept: Some(check(&*opened, plan)?),
        ..Outcome::default()
    })
}

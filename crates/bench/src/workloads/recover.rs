//! Opening a log: one that was not closed, and one of many segments that was.

use std::time::Instant;

use anyhow::{Context, Result};

use super::scan::check;
use crate::folder::settle;
use crate::log::{End, Log};
use crate::measurement::Measurement;
use crate::plan::Plan;

/// Ends the log and opens it.
pub(super) fn measure(log: Box<dyn Log>, plan: &Plan, end: End) -> Result<Measurement> {
    let size = log.size();
    let opening = log.end(end)?.context("it keeps nothing to open")?;
    // The open should not wait for bytes that making the files has left for the device.
    settle(&plan.dir);
    let begin = Instant::now();
    let opened = opening()?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Measurement {
        records_per_s: plan.records as f64 / seconds,
        open_ms: Some(seconds * 1e3),
        log_bytes: size.map(|(bytes, _)| bytes),
        segments: opened.size().map(|(_, segments)| segments),
        kept: Some(check(&*opened, plan)?),
        ..Measurement::default()
    })
}

//! Opening a log: one that was not closed, and one of many segments that was.

use std::time::Duration;

use anyhow::Result;
use palisade::Options;

use super::{Kept, Opened, Outcome};
use crate::contender::Contender;
use crate::contender::palisade::PalisadeLog;
use crate::folder::settle;
use crate::plan::Plan;

/// The least that the log takes: the more of them, the more an open has to look at.
const REOPEN_SEGMENT_BYTES: u64 = 64 << 10;

/// Makes a log whose records are all durable, ends it as a kill does, and opens it.
pub(super) fn measure_unclean(contender: Contender, plan: &Plan) -> Result<Outcome> {
    let log = PalisadeLog::filled(contender, &plan.dir, &plan.record(), plan.records)?;
    let log_bytes = log.log_bytes();
    settle(&plan.dir);
    let (opened, elapsed) = log.crash_and_open(&plan.dir.join("image"))?;
    outcome(&opened, elapsed, log_bytes, plan)
}

/// Makes a log of small segments, closes it, and opens it.
pub(super) fn measure_clean(contender: Contender, plan: &Plan) -> Result<Outcome> {
    let options = Options::new().segment_bytes(REOPEN_SEGMENT_BYTES);
    let log = PalisadeLog::with(contender, &plan.dir, options)?;
    log.fill(&plan.record(), plan.records)?;
    let log_bytes = log.log_bytes();
    let (opened, elapsed) = log.close_and_open()?;
    outcome(&opened, elapsed, log_bytes, plan)
}

fn outcome(
    opened: &PalisadeLog,
    elapsed: Duration,
    log_bytes: u64,
    plan: &Plan,
) -> Result<Outcome> {
    let seconds = elapsed.as_secs_f64();
    Ok(Outcome {
        records_per_s: plan.records as f64 / seconds,
        opened: Some(Opened {
            open_ms: seconds * 1e3,
            log_bytes,
            segments: opened.recovery_report().segments,
        }),
        kept: Some(Kept { acknowledged: plan.records, read_back: opened.scan()? }),
        ..Outcome::default()
    })
}

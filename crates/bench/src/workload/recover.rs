//! Opening a log that was not closed.

use anyhow::Result;

use super::{Kept, Opened, Outcome};
use crate::contender::Contender;
use crate::contender::palisade::PalisadeLog;
use crate::folder::settle;
use crate::plan::Plan;

/// Makes a log whose records are all durable, ends it as a kill does, and opens it.
pub(super) fn measure(contender: Contender, plan: &Plan) -> Result<Outcome> {
    let log = PalisadeLog::filled(contender, &plan.dir, &plan.record(), plan.records)?;
    let log_bytes = log.log_bytes();
    settle(&plan.dir);
    let (opened, elapsed) = log.crash_and_open(&plan.dir.join("image"))?;
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

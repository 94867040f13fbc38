//! Syncs after a number of bytes was appended; only the sync is in the latency.

use anyhow::Result;

use super::burst;
use crate::form::Form;
use crate::log::Log;
use crate::outcome::Outcome;
use crate::plan::Plan;

/// Appends the form's bytes and syncs, over and over.
pub(super) fn measure(log: Box<dyn Log>, plan: &Plan) -> Result<Outcome> {
    let bytes = if let Form::Dirty(bytes) = plan.form { bytes } else { 0 };
    let records = bytes.div_ceil(plan.record_bytes as u64) as u32;
    burst::measure(log, plan, records, |worker| {
        worker.log.append(worker.thread, worker.record, records)?;
        worker.time(|log, _, _| log.sync())
    })
}

//! Syncs after so many bytes were appended; only the sync is in the latency.

use anyhow::Result;

use super::Outcome;
use super::burst::measure as measure_steps;
use super::variant::Variant;
use crate::contender::Log;
use crate::latency::Latencies;
use crate::plan::Plan;

const DEFAULT_DIRTY_BYTES: u64 = 64 << 10;

/// Appends the variant's bytes and syncs, over and over.
pub(super) fn measure(log: Box<dyn Log>, plan: &Plan) -> Result<Outcome> {
    let bytes = match plan.variant {
        Variant::Dirty(bytes) => bytes,
        _ => DEFAULT_DIRTY_BYTES,
    };
    let records = bytes.div_ceil(plan.record_bytes as u64) as u32;
    measure_steps(log, plan, records, &|log, thread, record, latencies: &mut Latencies| {
        log.append(thread, record, records)?;
        latencies.time(|| log.sync())
    })
}

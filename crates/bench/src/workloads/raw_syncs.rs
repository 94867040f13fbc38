//! Overwrites and syncs of the same disk, in turns with what is measured in multiples of them.

use anyhow::{Context, Result};

use crate::contenders::RAW;
use crate::latency::Latencies;
use crate::log::Log;
use crate::measurement::Measurement;
use crate::plan::Plan;
use crate::workload::Workload;

/// They take turns with each call.
const AT_A_TIME: u32 = 8;

/// A file that was written before, and how long it took to overwrite and sync some of it.
pub(super) struct RawSyncs {
    file: Box<dyn Log>,
    record: Vec<u8>,
    latencies: Latencies,
}

impl RawSyncs {
    pub(super) fn create(plan: &Plan) -> Result<RawSyncs> {
        let file = RAW.create(Workload::Commit, plan)?;
        Ok(RawSyncs { file, record: plan.record(), latencies: Latencies::default() })
    }

    /// Overwrites and syncs a few times.
    pub(super) fn take_turn(&mut self) -> Result<()> {
        let RawSyncs { file, record, latencies } = self;
        (0..AT_A_TIME).try_for_each(|_| latencies.time(|| file.commit(0, record)))
    }

    /// Returns the rate and the latencies of `calls`, and their median in multiples of the median
    /// raw sync.
    pub(super) fn outcome(&self, calls: &Latencies) -> Result<Measurement> {
        let [median_us, ..] = calls.quantiles_us().context("no call was timed")?;
        let [raw_us, ..] = self.latencies.quantiles_us().context("no sync was timed")?;
        let in_raw_syncs = Some(median_us / raw_us);
        Ok(Measurement { in_raw_syncs, ..Measurement::of_round(1e6 / median_us, calls) })
    }
}

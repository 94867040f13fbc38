//! Appends and scans of records that a codec can make smaller, and of records that none can.

use std::time::Instant;

use anyhow::Result;

use super::scan;
use crate::folder::{disk_bytes, settle};
use crate::log::Log;
use crate::measurement::Measurement;
use crate::plan::Plan;

/// This share of the records is appended before the clock starts: files are made, buffers touched.
const WARM_UP: u64 = 10;

/// Appends the plan's records once, without a sync, and scans them until the time is over.
pub(super) fn measure(log: &dyn Log, plan: &Plan) -> Result<Measurement> {
    let records = plan.records();
    let mut records = records.iter().cycle();
    let mut append = |count: u64| {
        records.by_ref().take(count as usize).try_for_each(|record| log.append(0, record, 1))
    };
    let warm_up = plan.records / WARM_UP;
    append(warm_up)?;
    let begin = Instant::now();
    append(plan.records - warm_up)?;
    let seconds = begin.elapsed().as_secs_f64();
    // Palisade's files are larger than the log; the others have no call for its bytes.
    settle(&plan.dir);
    let stored = match log.size() {
        Some((bytes, _)) => bytes,
        None => disk_bytes(&plan.dir)?,
    };
    let scan = scan::measure(log, plan)?;
    Ok(Measurement {
        records_per_s: (plan.records - warm_up) as f64 / seconds,
        scan_records_per_s: Some(scan.records_per_s),
        stored_ratio: Some(stored as f64 / (plan.records * plan.record_bytes as u64) as f64),
        ..scan
    })
}

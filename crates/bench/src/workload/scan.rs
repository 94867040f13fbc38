//! Reading a whole log that lies in the page cache.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Kept, Outcome};
use crate::contender::Contender;
use crate::contender::palisade::PalisadeLog;
use crate::contender::raw::ReadFloor;
use crate::plan::Plan;
use crate::team::together;

/// Scans the contender's log over and over until the time is over.
pub(super) fn measure(contender: Contender, plan: &Plan) -> Result<Outcome> {
    if contender == Contender::Raw {
        let floor = ReadFloor::create(plan)?;
        return passes(plan, &|| floor.scan());
    }
    let log = PalisadeLog::filled(contender, &plan.dir, &plan.record(), plan.records)?;
    passes(plan, &|| log.scan())
}

fn passes(plan: &Plan, scan: &(dyn Fn() -> Result<u64> + Sync)) -> Result<Outcome> {
    // The first pass brings all bytes into the page cache; it counts for the check only.
    let read_back = scan()?;
    let (elapsed, counts) = together(plan.threads, |_| scan_until(plan.time, scan));
    let records: u64 = counts.into_iter().sum::<Result<u64>>()?;
    Ok(Outcome {
        records_per_s: records as f64 / elapsed.as_secs_f64(),
        kept: Some(Kept { acknowledged: plan.records, read_back }),
        ..Outcome::default()
    })
}

fn scan_until(limit: Duration, scan: &dyn Fn() -> Result<u64>) -> Result<u64> {
    let begin = Instant::now();
    let mut records = 0;
    while records == 0 || begin.elapsed() < limit {
        records += scan()?;
    }
    Ok(records)
}

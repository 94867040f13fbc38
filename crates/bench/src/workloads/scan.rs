//! Reading a whole log that lies in the page cache.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::log::Log;
use crate::measurement::{Kept, Measurement};
use crate::plan::Plan;
use crate::tally::Tally;
use crate::team::together;

/// Scans the log over and over until the time is over.
pub(super) fn measure(log: &dyn Log, plan: &Plan) -> Result<Measurement> {
    // It also brings all bytes into the page cache.
    let kept = check(log, plan)?;
    log.rewind()?;
    let (_, rates) = together(plan.threads, |_| scan_until_over(log, plan));
    let records_per_s = rates.into_iter().sum::<Result<f64>>()?;
    Ok(Measurement { records_per_s, kept: Some(kept), ..Measurement::default() })
}

/// Reads the log once, untimed, and compares each of its records with what was appended.
pub(super) fn check(log: &dyn Log, plan: &Plan) -> Result<Kept> {
    let records = plan.records();
    // On a thread of its own: some contenders keep what a thread has read last.
    let (_, mut whole) = together(1, |_| -> Result<u64> {
        let mut tally = Tally::comparing(&records);
        log.scan(&mut tally)?;
        tally.must_have_bytes_of(plan.record_bytes)?;
        Ok(tally.whole_records())
    });
    let read_back = whole.pop().unwrap_or(Ok(0))?;
    Ok(Kept { acknowledged: plan.records, read_back })
}

/// Scans the log with one thread until the plan's time is over, at least once. Returns records a
/// second.
fn scan_until_over(log: &dyn Log, plan: &Plan) -> Result<f64> {
    let mut elapsed = Duration::ZERO;
    let mut records = 0;
    loop {
        let mut tally = Tally::new();
        let begin = Instant::now();
        log.scan(&mut tally)?;
        elapsed += begin.elapsed();
        tally.must_have_bytes_of(plan.record_bytes)?;
        let found = tally.records();
        ensure!(found >= plan.records, "a pass found {found} of {} records", plan.records);
        records += found;
        if elapsed >= plan.time {
            return Ok(records as f64 / elapsed.as_secs_f64());
        }
        log.rewind()?;
    }
}

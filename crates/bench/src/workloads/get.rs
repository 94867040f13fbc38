//! Reading single records in random order, from the page cache.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::scan::check;
use crate::latency::Latencies;
use crate::log::Log;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::random::Random;
use crate::tally::Tally;
use crate::team::together;

/// Reads records over and over until the time is over.
pub(super) fn measure(mut log: Box<dyn Log>, plan: &Plan) -> Result<Outcome> {
    log.index()?;
    let kept = check(&*log, plan)?;
    let (elapsed, reads) = together(plan.threads, |thread| read(&*log, thread, plan));
    let mut latencies = Latencies::default();
    let mut records = 0;
    for read in reads {
        let (count, of_thread) = read?;
        records += count;
        latencies.merge(&of_thread);
    }
    Ok(Outcome {
        records_per_s: records as f64 / elapsed.as_secs_f64(),
        quantiles_us: latencies.quantiles_us(),
        kept: Some(kept),
        ..Outcome::default()
    })
}

fn read(log: &dyn Log, thread: usize, plan: &Plan) -> Result<(u64, Latencies)> {
    let begin = Instant::now();
    let mut latencies = Latencies::default();
    let mut random = Random::new(thread as u64 + 1);
    let mut tally = Tally::new();
    let mut reads = 0;
    while reads == 0 || begin.elapsed() < plan.time {
        let number = random.next_u64() % plan.records;
        latencies.time(|| log.get(number, &mut tally))?;
        reads += 1;
    }
    ensure!(tally.records() == reads, "{reads} reads found {} records", tally.records());
    tally.must_have_bytes_of(plan.record_bytes)?;
    Ok((reads, latencies))
}

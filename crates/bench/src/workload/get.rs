//! Reading single records in random order, from the page cache.

use std::time::Instant;

use anyhow::{Result, bail};

use super::scan::check;
use super::{Outcome, Workload};
use crate::contender::Contender;
use crate::contender::filled::{Filled, Tally};
use crate::latency::Latencies;
use crate::plan::Plan;
use crate::team::together;

/// Reads records over and over until the time is over.
pub(super) fn measure(contender: Contender, plan: &Plan) -> Result<Outcome> {
    let log = contender.fill(Workload::Get, plan)?;
    let kept = check(&*log, plan)?;
    let (elapsed, reads) = together(plan.threads, |thread| read(&*log, thread, plan));
    let mut latencies = Latencies::new();
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

fn read(log: &dyn Filled, thread: usize, plan: &Plan) -> Result<(u64, Latencies)> {
    let begin = Instant::now();
    let mut latencies = Latencies::new();
    let mut random = Random(thread as u64 + 1);
    let mut tally = Tally::new();
    let mut reads = 0;
    while reads == 0 || begin.elapsed() < plan.time {
        let number = random.below(plan.records);
        latencies.time(|| log.get(number, &mut tally))?;
        reads += 1;
    }
    if tally.records() != reads {
        bail!("{reads} reads found {} records", tally.records());
    }
    tally.must_have_bytes_of(plan.record_bytes)?;
    Ok((reads, latencies))
}

/// Marsaglia's xorshift64: good enough to visit records in no order.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

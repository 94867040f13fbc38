//! Reading single records in random order, from the page cache.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use palisade::Lsn;

use super::Outcome;
use crate::contender::Contender;
use crate::contender::palisade::PalisadeLog;
use crate::latency::Latencies;
use crate::plan::Plan;
use crate::team::together;

/// Reads records over and over until the time is over.
pub(super) fn measure(contender: Contender, plan: &Plan) -> Result<Outcome> {
    let log = PalisadeLog::filled(contender, &plan.dir, &plan.record(), plan.records)?;
    let lsns = log.lsns()?;
    let (elapsed, reads) = together(plan.threads, |thread| read(&log, &lsns, thread, plan));
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
        ..Outcome::default()
    })
}

fn read(log: &PalisadeLog, lsns: &[Lsn], thread: usize, plan: &Plan) -> Result<(u64, Latencies)> {
    let begin = Instant::now();
    let mut latencies = Latencies::new();
    let mut random = Random(thread as u64 + 1);
    let mut records = 0;
    while records == 0 || begin.elapsed() < plan.time {
        let lsn = lsns[random.below(lsns.len())];
        let record = latencies.time(|| log.wal().get(lsn))?;
        black_box(record.data());
        records += 1;
    }
    Ok((records, latencies))
}

/// Marsaglia's xorshift64: good enough to visit records in no order.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

//! Workloads that write: threads work in bursts, between which the log is emptied.
//!
//! The clock stands still between bursts. So a round can last as long as it likes, no contender
//! fills the disk or the page cache, and none pays within the figure for the others' write-back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Kept, Outcome};
use crate::contender::Log;
use crate::latency::Latencies;
use crate::plan::{BURST_BYTES, Plan};
use crate::team::together;

/// Untimed, before the first burst: files are made, buffers touched, branches learnt. Long enough
/// for a whole burst of whoever writes 256 MB/s.
const LONGEST_WARM_UP: Duration = Duration::from_secs(1);
/// Emptying a log may take so much longer than filling it; then the round ends early.
const WALL_PER_TIMED: u32 = 5;

/// What each thread does over and over: (log, thread, record, latencies).
pub(super) type Step<'a> =
    &'a (dyn Fn(&dyn Log, usize, &[u8], &mut Latencies) -> Result<()> + Sync);

/// Measures `log` for one round; each step appends so many records.
pub(super) fn measure(
    log: Box<dyn Log>,
    plan: &Plan,
    records_a_step: u32,
    step: Step<'_>,
) -> Result<Outcome> {
    let round = Round { log: &*log, plan, records_a_step: u64::from(records_a_step), step };
    round.warm_up()?;
    let syncs_before = log.syncs();
    let (sum, last_burst) = round.bursts()?;
    let syncs = log.syncs().zip(syncs_before).map(|(after, before)| after - before - sum.trims);
    let read_back = log.read_back()?;
    let seconds = sum.elapsed.as_secs_f64();
    Ok(Outcome {
        records_per_s: sum.records as f64 / seconds,
        quantiles_us: sum.quantiles_us(),
        syncs_per_s: syncs.map(|syncs| syncs as f64 / seconds),
        records_per_sync: syncs
            .filter(|&syncs| syncs > 0)
            .map(|syncs| sum.records as f64 / syncs as f64),
        kept: read_back.map(|read_back| Kept { acknowledged: last_burst, read_back }),
        opened: None,
    })
}

struct Round<'a> {
    log: &'a dyn Log,
    plan: &'a Plan,
    records_a_step: u64,
    step: Step<'a>,
}

#[derive(Default)]
struct Sum {
    elapsed: Duration,
    records: u64,
    latencies: Latencies,
    trims: u64,
}

impl Sum {
    fn quantiles_us(&self) -> Option<[f64; 3]> {
        let us = |share| Some(self.latencies.quantile(share)?.as_nanos() as f64 / 1e3);
        Some([us(0.5)?, us(0.99)?, us(0.999)?])
    }
}

impl Round<'_> {
    fn warm_up(&self) -> Result<()> {
        let recorders = self.recorders();
        self.burst(LONGEST_WARM_UP.min(self.plan.time), &recorders)?;
        self.log.trim()
    }

    /// Bursts until the time is over; also the records of the last one, which no trim followed.
    fn bursts(&self) -> Result<(Sum, u64)> {
        let recorders = self.recorders();
        let round_end = Instant::now() + self.plan.time * WALL_PER_TIMED;
        let mut sum = Sum::default();
        let last_burst = loop {
            let left = self.plan.time.saturating_sub(sum.elapsed);
            let (elapsed, records) = self.burst(left, &recorders)?;
            sum.elapsed += elapsed;
            sum.records += records;
            if sum.elapsed >= self.plan.time || Instant::now() >= round_end {
                break records;
            }
            let before = self.log.syncs();
            self.log.trim()?;
            sum.trims += self.log.syncs().zip(before).map_or(0, |(after, before)| after - before);
        };
        for recorder in recorders {
            sum.latencies.merge(&recorder.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        Ok((sum, last_burst))
    }

    /// Steps until `limit` has passed or the burst's bytes are appended.
    fn burst(&self, limit: Duration, recorders: &[Mutex<Latencies>]) -> Result<(Duration, u64)> {
        let step_bytes = self.records_a_step * self.plan.record_bytes as u64;
        let steps = (BURST_BYTES / step_bytes).max(self.plan.threads as u64);
        let taken = AtomicU64::new(0);
        let record = self.plan.record();
        let (elapsed, done) = together(self.plan.threads, |thread| -> Result<u64> {
            let mut latencies = recorders[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let begin = Instant::now();
            let mut records = 0;
            // Relaxed: the counter shares out steps, it orders nothing.
            while begin.elapsed() < limit && taken.fetch_add(1, Ordering::Relaxed) < steps {
                (self.step)(self.log, thread, &record, &mut latencies)?;
                records += self.records_a_step;
            }
            Ok(records)
        });
        Ok((elapsed, done.into_iter().sum::<Result<u64>>()?))
    }

    fn recorders(&self) -> Vec<Mutex<Latencies>> {
        (0..self.plan.threads).map(|_| Mutex::default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges everything and keeps so many records.
    struct Forgetful(u64);

    impl Log for Forgetful {
        fn append(&self, _thread: usize, _record: &[u8], _count: u32) -> Result<()> {
            Ok(())
        }

        fn commit(&self, _thread: usize, _record: &[u8]) -> Result<()> {
            Ok(())
        }

        fn sync(&self) -> Result<()> {
            Ok(())
        }

        fn trim(&self) -> Result<()> {
            Ok(())
        }

        fn syncs(&self) -> Option<u64> {
            None
        }

        fn read_back(self: Box<Self>) -> Result<Option<u64>> {
            Ok(Some(self.0))
        }
    }

    fn measure_kept(kept: u64) -> Kept {
        let mut plan = Plan::at("unused".as_ref(), 2, 256);
        plan.time = Duration::from_millis(5);
        let commit: Step<'_> =
            &|log, thread, record, latencies| latencies.time(|| log.commit(thread, record));
        measure(Box::new(Forgetful(kept)), &plan, 1, commit).unwrap().kept.unwrap()
    }

    #[test]
    fn records_that_are_gone_are_noticed() {
        assert!(measure_kept(0).is_short());
        assert!(!measure_kept(u64::MAX).is_short());
    }
}

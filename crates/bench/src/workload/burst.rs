//! Workloads that write: threads work in bursts, between which the log is emptied.
//!
//! The clock stands still between bursts. So a round can last as long as it likes, no contender
//! fills the disk or the page cache, and none pays within the figure for the others' write-back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
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

/// What each thread does in a burst, turn by turn; returns how many records it has appended.
pub(super) type Work<'a> =
    &'a (dyn Fn(&Turns<'_>, &dyn Log, usize, &[u8], &mut Latencies) -> Result<u64> + Sync);

/// The turns of a burst, which all of its threads share.
#[derive(Debug)]
pub(super) struct Turns<'a> {
    begin: &'a OnceLock<Instant>,
    limit: Duration,
    taken: &'a AtomicU64,
    turns: u64,
}

impl Turns<'_> {
    /// The number of the next turn, from 0 on; `None` when time or bytes are used up.
    pub(super) fn next(&self) -> Option<u64> {
        if self.begin().elapsed() >= self.limit {
            return None;
        }
        // Relaxed: the counter shares out turns, it orders nothing.
        let turn = self.taken.fetch_add(1, Ordering::Relaxed);
        (turn < self.turns).then_some(turn)
    }

    /// When the burst ends at the latest.
    pub(super) fn end(&self) -> Instant {
        self.begin() + self.limit
    }

    /// When the burst began.
    pub(super) fn begin(&self) -> Instant {
        *self.begin.get_or_init(Instant::now)
    }
}

/// Measures `log` for one round; each step appends so many records.
pub(super) fn measure(
    log: Box<dyn Log>,
    plan: &Plan,
    records_a_step: u32,
    step: Step<'_>,
) -> Result<Outcome> {
    let work = in_steps(records_a_step, step);
    let round = Round { plan, records_a_turn: records_a_step, work: &work };
    round.warm_up(&*log)?;
    round.measure(log)
}

/// One step a turn.
pub(super) fn in_steps(
    records_a_step: u32,
    step: Step<'_>,
) -> impl Fn(&Turns<'_>, &dyn Log, usize, &[u8], &mut Latencies) -> Result<u64> + Sync {
    move |turns, log, thread, record, latencies| {
        let mut records = 0;
        while turns.next().is_some() {
            step(log, thread, record, latencies)?;
            records += u64::from(records_a_step);
        }
        Ok(records)
    }
}

/// One contender's work in one round.
pub(super) struct Round<'a> {
    pub(super) plan: &'a Plan,
    pub(super) records_a_turn: u32,
    pub(super) work: Work<'a>,
}

#[derive(Default)]
struct Sum {
    elapsed: Duration,
    records: u64,
    latencies: Latencies,
    trims: u64,
}

impl Round<'_> {
    /// Works for a while, empties the log, and returns how many records a second it took.
    pub(super) fn warm_up(&self, log: &dyn Log) -> Result<f64> {
        let recorders = self.recorders();
        let limit = LONGEST_WARM_UP.min(self.plan.time);
        let (elapsed, records) = self.burst(log, limit, &recorders)?;
        log.trim()?;
        Ok(records as f64 / elapsed.as_secs_f64())
    }

    /// Measures a log that has been worked with and is empty.
    pub(super) fn measure(&self, log: Box<dyn Log>) -> Result<Outcome> {
        let syncs_before = log.syncs();
        let (sum, last_burst) = self.bursts(&*log)?;
        let syncs = log.syncs().zip(syncs_before).map(|(after, before)| after - before - sum.trims);
        let read_back = log.read_back()?;
        let seconds = sum.elapsed.as_secs_f64();
        Ok(Outcome {
            records_per_s: sum.records as f64 / seconds,
            quantiles_us: sum.latencies.quantiles_us(),
            syncs_per_s: syncs.map(|syncs| syncs as f64 / seconds),
            records_per_sync: syncs
                .filter(|&syncs| syncs > 0)
                .map(|syncs| sum.records as f64 / syncs as f64),
            kept: read_back.map(|read_back| Kept { acknowledged: last_burst, read_back }),
            ..Outcome::default()
        })
    }

    /// Bursts until the time is over; also the records of the last one, which no trim followed.
    fn bursts(&self, log: &dyn Log) -> Result<(Sum, u64)> {
        let recorders = self.recorders();
        let round_end = Instant::now() + self.plan.time * WALL_PER_TIMED;
        let mut sum = Sum::default();
        let last_burst = loop {
            let left = self.plan.time.saturating_sub(sum.elapsed);
            let (elapsed, records) = self.burst(log, left, &recorders)?;
            sum.elapsed += elapsed;
            sum.records += records;
            if sum.elapsed >= self.plan.time || Instant::now() >= round_end {
                break records;
            }
            let before = log.syncs();
            log.trim()?;
            sum.trims += log.syncs().zip(before).map_or(0, |(after, before)| after - before);
        };
        for recorder in recorders {
            sum.latencies.merge(&recorder.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        Ok((sum, last_burst))
    }

    /// Turns until `limit` has passed or the burst's bytes are appended.
    fn burst(
        &self,
        log: &dyn Log,
        limit: Duration,
        recorders: &[Mutex<Latencies>],
    ) -> Result<(Duration, u64)> {
        let turn_bytes = u64::from(self.records_a_turn) * self.plan.record_bytes as u64;
        let turns = (BURST_BYTES / turn_bytes.max(1)).max(self.plan.threads as u64);
        let (begin, taken) = (OnceLock::new(), AtomicU64::new(0));
        let turns = Turns { begin: &begin, limit, taken: &taken, turns };
        let record = self.plan.record();
        let (elapsed, done) = together(self.plan.threads, |thread| -> Result<u64> {
            let mut latencies = recorders[thread].lock().unwrap_or_else(PoisonError::into_inner);
            (self.work)(&turns, log, thread, &record, &mut latencies)
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

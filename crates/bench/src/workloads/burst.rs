//! Workloads that write: threads work in bursts, between which the log is emptied.
//!
//! The clock stands still between bursts. So a round can last as long as it likes, no contender
//! fills the disk or the page cache, and none pays for another contender's write-back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::latency::Latencies;
use crate::log::{End, Log};
use crate::measurement::{Kept, Measurement};
use crate::plan::{BURST_BYTES, Plan};
use crate::random::Random;
use crate::tally::Tally;
use crate::team::{lock, together};

/// In `append` one call in this many is timed, because the clock costs as much as the call.
pub(super) const APPENDS_A_STEP: u32 = 64;

/// Of the first thread's choices. Odd, so that no thread's seed is 0.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Untimed, before the first burst: files are made, buffers touched, branches learnt. Long enough
/// for a whole burst of a contender that writes 256 MB/s.
const LONGEST_WARM_UP: Duration = Duration::from_secs(1);
/// Emptying a log may take so much longer than filling it; then the round ends early.
const WALL_PER_TIMED: u32 = 5;

/// What each thread does in a burst, turn by turn; returns how many records it has appended.
pub(super) type Work<'a> = &'a (dyn Fn(&mut Worker<'_>) -> Result<u64> + Sync);

/// One of the threads of a burst, which share the burst's turns.
pub(super) struct Worker<'a> {
    pub(super) log: &'a dyn Log,
    pub(super) thread: usize,
    pub(super) record: &'a [u8],
    /// For choices that each thread makes by itself.
    pub(super) random: Random,
    pub(super) latencies: &'a mut Latencies,
    turns: &'a Turns,
}

struct Turns {
    begin: OnceLock<Instant>,
    limit: Duration,
    taken: AtomicU64,
    turns: u64,
}

impl Worker<'_> {
    /// Returns the number of the next turn, from 0 on; `None` if the burst's time or its turns are
    /// used up.
    pub(super) fn next_turn(&self) -> Option<u64> {
        if self.begin().elapsed() >= self.turns.limit {
            return None;
        }
        // Relaxed: the counter shares out turns, it orders nothing.
        let turn = self.turns.taken.fetch_add(1, Ordering::Relaxed);
        (turn < self.turns.turns).then_some(turn)
    }

    /// Returns when the burst ends at the latest.
    pub(super) fn end(&self) -> Instant {
        self.begin() + self.turns.limit
    }

    /// Returns when the burst began, which is the first call of this.
    pub(super) fn begin(&self) -> Instant {
        *self.turns.begin.get_or_init(Instant::now)
    }

    /// Makes one call and records how long it took.
    pub(super) fn time(
        &mut self,
        call: impl FnOnce(&dyn Log, usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.latencies.time(|| call(self.log, self.thread, self.record))
    }
}

/// Measures `log` for one round; each step appends `count` records and times the last one.
pub(super) fn appends(log: Box<dyn Log>, plan: &Plan, count: u32) -> Result<Measurement> {
    measure(log, plan, count, |worker| {
        worker.log.append(worker.thread, worker.record, count - 1)?;
        worker.time(|log, thread, record| log.append(thread, record, 1))
    })
}

/// Measures `log` for one round; each step appends `records_a_step` records.
pub(super) fn measure(
    log: Box<dyn Log>,
    plan: &Plan,
    records_a_step: u32,
    step: impl Fn(&mut Worker<'_>) -> Result<()> + Sync,
) -> Result<Measurement> {
    let work = in_steps(records_a_step, step);
    Round { plan, records_a_turn: records_a_step, work: &work }.run(log)
}

/// Returns work that calls `step` once a turn and counts `records_a_step` records for it.
pub(super) fn in_steps(
    records_a_step: u32,
    step: impl Fn(&mut Worker<'_>) -> Result<()> + Sync,
) -> impl Fn(&mut Worker<'_>) -> Result<u64> + Sync {
    move |worker| {
        let mut records = 0;
        while worker.next_turn().is_some() {
            step(worker)?;
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
    last_burst: u64,
    latencies: Latencies,
    /// Syncs during the bursts, those of trims left out.
    syncs: Option<u64>,
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

    /// Measures a log after a warm-up.
    pub(super) fn run(&self, log: Box<dyn Log>) -> Result<Measurement> {
        self.warm_up(&*log)?;
        self.measure(log)
    }

    /// Measures a log that has been worked with and is empty.
    pub(super) fn measure(&self, log: Box<dyn Log>) -> Result<Measurement> {
        let Sum { elapsed, records, last_burst, latencies, syncs } = self.bursts(&*log)?;
        let read_back = read_back(log)?;
        let seconds = elapsed.as_secs_f64();
        let per_sync = |syncs| records as f64 / syncs as f64;
        Ok(Measurement {
            syncs_per_s: syncs.map(|syncs| syncs as f64 / seconds),
            records_per_sync: syncs.filter(|&syncs| syncs > 0).map(per_sync),
            kept: read_back.map(|read_back| Kept { acknowledged: last_burst, read_back }),
            ..Measurement::of_round(records as f64 / seconds, &latencies)
        })
    }

    /// Runs bursts until the time is over. No trim follows the last one.
    fn bursts(&self, log: &dyn Log) -> Result<Sum> {
        let recorders = self.recorders();
        let round_end = Instant::now() + self.plan.time * WALL_PER_TIMED;
        let mut sum = Sum { syncs: log.syncs().map(|_| 0), ..Sum::default() };
        loop {
            let left = self.plan.time.saturating_sub(sum.elapsed);
            let before = log.syncs();
            let (elapsed, records) = self.burst(log, left, &recorders)?;
            sum.elapsed += elapsed;
            sum.records += records;
            sum.last_burst = records;
            let syncs = log.syncs().zip(before).map(|(after, before)| after - before);
            sum.syncs = sum.syncs.zip(syncs).map(|(sum, syncs)| sum + syncs);
            if sum.elapsed >= self.plan.time || Instant::now() >= round_end {
                break;
            }
            log.trim()?;
        }
        for recorder in recorders {
            sum.latencies.merge(&lock(&recorder));
        }
        Ok(sum)
    }

    /// Runs turns until `limit` has passed or the burst's bytes are appended.
    fn burst(
        &self,
        log: &dyn Log,
        limit: Duration,
        recorders: &[Mutex<Latencies>],
    ) -> Result<(Duration, u64)> {
        let turn_bytes = u64::from(self.records_a_turn) * self.plan.record_bytes as u64;
        let turns = (BURST_BYTES / turn_bytes.max(1)).max(self.plan.threads as u64);
        let (begin, taken) = (OnceLock::new(), AtomicU64::new(0));
        let turns = &Turns { begin, limit, taken, turns };
        let (record, work) = (&*self.plan.record(), self.work);
        let (elapsed, done) = together(self.plan.threads, |thread| -> Result<u64> {
            let mut latencies = lock(&recorders[thread]);
            let random = Random::new(SEED.wrapping_mul(2 * thread as u64 + 1));
            work(&mut Worker { log, thread, record, random, latencies: &mut latencies, turns })
        });
        Ok((elapsed, done.into_iter().sum::<Result<u64>>()?))
    }

    fn recorders(&self) -> Vec<Mutex<Latencies>> {
        (0..self.plan.threads).map(|_| Mutex::default()).collect()
    }
}

/// Ends the log without a clean close, opens what is left, and counts its records; `None` for a
/// floor, which keeps none.
pub(super) fn read_back(log: Box<dyn Log>) -> Result<Option<u64>> {
    let Some(opening) = log.end(End::Dropped)? else { return Ok(None) };
    let log = opening()?;
    // On a thread of its own: some contenders keep the block that a thread has read last.
    let (_, counts) = together(1, |_| {
        let mut tally = Tally::new();
        log.scan(&mut tally).map(|()| tally.records())
    });
    counts.into_iter().next().transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Opening;

    /// Acknowledges everything and keeps this many records.
    struct Forgetful(u64);

    impl Log for Forgetful {
        fn commit(&self, _thread: usize, _record: &[u8]) -> Result<()> {
            Ok(())
        }

        fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
            tally.count(self.0, 0);
            Ok(())
        }

        fn end(self: Box<Self>, _end: End) -> Result<Option<Opening>> {
            Ok(Some(Box::new(move || Ok(self))))
        }
    }

    fn measure_kept(kept: u64) -> Kept {
        let mut plan = Plan::at("unused".as_ref(), 2, 256);
        plan.time = Duration::from_millis(5);
        let log = Box::new(Forgetful(kept));
        let commit =
            |worker: &mut Worker<'_>| worker.time(|log, thread, record| log.commit(thread, record));
        measure(log, &plan, 1, commit).unwrap().kept.unwrap()
    }

    #[test]
    fn records_that_are_gone_are_noticed() {
        assert!(measure_kept(0).is_short());
        assert!(!measure_kept(u64::MAX).is_short());
    }
}

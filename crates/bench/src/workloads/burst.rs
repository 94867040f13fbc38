//! Workloads that write: threads work in bursts, between which the log is emptied.
//!
//! The clock stands still between bursts. So a round can last as long as it likes, no contender
//! fills the disk or the page cache, and none pays for another contender's write-back.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use palisade::SyncPolicy;

use crate::{BURST_BYTES, End, Kept, Latencies, Log, Measurement, Plan, Random, Tally, together};

/// In `append` one call in this many is timed, because the clock costs as much as the call.
pub(super) const APPENDS_A_STEP: u32 = 64;

/// Untimed, before the first burst: files are made, buffers touched, branches learnt. Long enough
/// for a whole burst of a contender that writes 256 MB/s.
const LONGEST_WARM_UP: Duration = Duration::from_secs(1);
/// Emptying a log may take so much longer than filling it; then the round ends early.
const WALL_PER_TIMED: u32 = 5;

/// What each thread does in a burst, turn by turn.
pub(super) type Work<'a> = &'a (dyn Fn(&mut Worker<'_>) -> Result<()> + Sync);

/// One of the threads of a burst, which share the burst's turns.
pub(super) struct Worker<'a> {
    pub(super) log: &'a dyn Log,
    pub(super) thread: usize,
    pub(super) record: &'a [u8],
    /// For choices that each thread makes by itself.
    pub(super) random: Random,
    pub(super) latencies: Latencies,
    /// How many records the thread has appended.
    pub(super) records: u64,
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

/// Measures a new log for one round; each step appends records and times the last one. If an append
/// is a call of the operating system, each one is timed: it takes much longer than the clock.
pub(super) fn appends(plan: &Plan) -> Result<Measurement> {
    let count = match plan.form.policy {
        SyncPolicy::Always | SyncPolicy::Os => 1,
        _ => APPENDS_A_STEP,
    };
    measure(plan, count, |worker| {
        worker.log.appends(worker.thread, worker.record, count - 1)?;
        worker.time(|log, thread, record| log.appends(thread, record, 1))
    })
}

/// Measures a new log for one round; each step appends `records_a_step` records.
pub(super) fn measure(
    plan: &Plan,
    records_a_step: u32,
    step: impl Fn(&mut Worker<'_>) -> Result<()> + Sync,
) -> Result<Measurement> {
    let work = in_steps(records_a_step, step);
    Round { plan, records_a_turn: records_a_step, work: &work }.run()
}

/// Lets each thread commit without a pause for a while, and empties the log. Returns how many
/// commits a second it took.
pub(super) fn commit_for_a_while(log: &mut dyn Log, plan: &Plan) -> Result<f64> {
    let work = in_steps(1, |worker| worker.log.commit(worker.thread, worker.record));
    Round { plan, records_a_turn: 1, work: &work }.warm_up(log)
}

/// Returns work that calls `step` once a turn and counts `records_a_step` records for it.
fn in_steps(
    records_a_step: u32,
    step: impl Fn(&mut Worker<'_>) -> Result<()> + Sync,
) -> impl Fn(&mut Worker<'_>) -> Result<()> + Sync {
    move |worker| {
        while worker.next_turn().is_some() {
            step(worker)?;
            worker.records += u64::from(records_a_step);
        }
        Ok(())
    }
}

/// One contender's work in one round.
pub(super) struct Round<'a> {
    pub(super) plan: &'a Plan,
    pub(super) records_a_turn: u32,
    pub(super) work: Work<'a>,
}

/// What threads did together.
#[derive(Default)]
pub(super) struct Burst {
    elapsed: Duration,
    records: u64,
    latencies: Latencies,
}

impl Burst {
    /// Runs `work(thread)` on each thread; it returns how many records it has appended or read, and
    /// the latencies of its calls.
    pub(super) fn of(
        threads: usize,
        work: impl Fn(usize) -> Result<(u64, Latencies)> + Sync,
    ) -> Result<Burst> {
        let (elapsed, done) = together(threads, work)?;
        let mut burst = Burst { elapsed, ..Burst::default() };
        for (records, latencies) in done {
            burst.records += records;
            burst.latencies.merge(&latencies);
        }
        Ok(burst)
    }

    fn records_per_s(&self) -> f64 {
        self.records as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the rate and the latencies.
    pub(super) fn outcome(&self) -> Measurement {
        Measurement::of_round(self.records_per_s(), &self.latencies)
    }
}

impl Round<'_> {
    /// Works for a while, empties the log, and returns how many records a second it took.
    pub(super) fn warm_up(&self, log: &mut dyn Log) -> Result<f64> {
        let burst = self.burst(log, LONGEST_WARM_UP.min(self.plan.time))?;
        log.trim()?;
        Ok(burst.records_per_s())
    }

    /// Measures a new log after a warm-up.
    pub(super) fn run(&self) -> Result<Measurement> {
        let mut log = self.plan.create()?;
        self.warm_up(&mut *log)?;
        self.measure(log)
    }

    /// Measures a log that has been worked with and is empty: runs bursts until the time is over.
    /// No trim follows the last one.
    pub(super) fn measure(&self, mut log: Box<dyn Log>) -> Result<Measurement> {
        let round_end = Instant::now() + self.plan.time * WALL_PER_TIMED;
        let mut sum = Burst::default();
        // Those of trims are left out.
        let mut syncs = log.syncs().map(|_| 0);
        let acknowledged = loop {
            let before = log.syncs();
            let burst = self.burst(&*log, self.plan.time.saturating_sub(sum.elapsed))?;
            sum.elapsed += burst.elapsed;
            sum.records += burst.records;
            sum.latencies.merge(&burst.latencies);
            syncs = syncs.zip(log.syncs()).zip(before).map(|((sum, now), then)| sum + now - then);
            if sum.elapsed >= self.plan.time || Instant::now() >= round_end {
                break burst.records;
            }
            log.trim()?;
        };
        let (records, seconds) = (sum.records as f64, sum.elapsed.as_secs_f64());
        Ok(Measurement {
            syncs_per_s: syncs.map(|syncs| syncs as f64 / seconds),
            records_per_sync: syncs.filter(|&syncs| syncs > 0).map(|syncs| records / syncs as f64),
            kept: read_back(self.plan, log, acknowledged)?,
            ..sum.outcome()
        })
    }

    /// Runs turns until `limit` has passed or the burst's bytes are appended.
    fn burst(&self, log: &dyn Log, limit: Duration) -> Result<Burst> {
        let turn_bytes = u64::from(self.records_a_turn) * self.plan.record_bytes as u64;
        let turns = (BURST_BYTES / turn_bytes.max(1)).max(self.plan.threads as u64);
        let (begin, taken) = (OnceLock::new(), AtomicU64::new(0));
        let turns = &Turns { begin, limit, taken, turns };
        let record = &*self.plan.record();
        Burst::of(self.plan.threads, |thread| {
            let random = Random::new(Random::SEED.wrapping_mul(2 * thread as u64 + 1));
            let latencies = Latencies::default();
            let mut worker = Worker { log, thread, record, random, latencies, records: 0, turns };
            (self.work)(&mut worker)?;
            Ok((worker.records, worker.latencies))
        })
    }
}

/// Ends the log without a clean close, opens what is left, and counts its records; `None` for a
/// floor, which keeps none.
pub(super) fn read_back(plan: &Plan, log: Box<dyn Log>, acknowledged: u64) -> Result<Option<Kept>> {
    if plan.contender.is_floor {
        return Ok(None);
    }
    let log = plan.end(log, End::Dropped)?()?;
    Ok(Some(Kept { acknowledged, read_back: read(&*log, Tally::default())?.records }))
}

/// Gives all records of the log to the tally, on a thread of its own: some contenders keep the
/// block that a thread has read last.
pub(super) fn read<'a>(log: &dyn Log, tally: Tally<'a>) -> Result<Tally<'a>> {
    thread::scope(|scope| {
        let scan = scope.spawn(|| {
            let mut tally = tally;
            log.scan(&mut tally).map(|()| tally)
        });
        scan.join().expect("the reader panicked")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Contender;
    use crate::workload::Workload;

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
    }

    fn measure_kept(kept: u64) -> Kept {
        let contender =
            Contender { open: |plan| Ok(Box::new(Forgetful(plan.records))), ..Contender::BASE };
        let time = Duration::from_millis(5);
        let plan =
            Plan { threads: 2, records: kept, time, ..Plan::new(contender, Workload::Commit) };
        let commit =
            |worker: &mut Worker<'_>| worker.time(|log, thread, record| log.commit(thread, record));
        measure(&plan, 1, commit).unwrap().kept.unwrap()
    }

    #[test]
    fn records_that_are_gone_are_noticed() {
        assert!(measure_kept(0).is_short());
        assert!(!measure_kept(u64::MAX).is_short());
    }
}

//! Waiting by yields, because a wake-up costs a system call, and an idle core needs time to begin
//! again.
//!
//! A leader that gathers yields, and so do threads that wait for a leader if the committers of the
//! last round, futures and callbacks included, outnumber the cores. Beside a thread that does not
//! commit, a yield can cost a whole time slice, so a slow one begins a pause of some rounds
//! (decision 0003).

use std::time::Duration;

use palisade_store::sync::{Instant, Ordering, StatCell, yield_now};

use super::{Commit, is_over};
use crate::{Lsn, Result};

/// A longer yield, beyond what the thread would wait, gave the core to a thread that does not
/// commit.
const SLOW_YIELD: Duration = Duration::from_micros(500);
/// In rounds.
const FIRST_PAUSE: u64 = 8;
const LONGEST_PAUSE: u64 = 1024;
/// Threads sleep if a sync takes longer: a wake-up then costs little beside it.
const LONGEST_SYNC: Duration = Duration::from_micros(250);

/// Hints: a wrong value only costs time.
#[derive(Debug)]
pub(super) struct Yields {
    cores: u64,
    // The round that ends the last pause, and how many rounds the pause takes.
    until: StatCell,
    length: StatCell,
}

impl Yields {
    pub(super) fn new() -> Yields {
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Yields { cores, until: StatCell::new(0), length: StatCell::new(0) }
    }

    pub(super) fn may_begin(&self, round: u64) -> bool {
        // Relaxed, here and below: hints.
        round >= self.until.load(Ordering::Relaxed)
    }

    /// Begins a pause, unless one is on. It is twice as long as the last one if that ended fewer
    /// rounds ago than it took.
    pub(super) fn pause(&self, round: u64) {
        let (until, last) =
            (self.until.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed));
        if round < until {
            return;
        }
        let length = if round < until + last { (2 * last).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
        self.length.store(length, Ordering::Relaxed);
        self.until.store(round + length, Ordering::Relaxed);
    }
}

/// Yields once, and sets `now`. Returns false if another thread kept the core for longer than
/// `most`: the caller then begins a pause.
pub(super) fn yield_once(now: &mut Instant, most: Duration) -> bool {
    yield_now();
    let before = std::mem::replace(now, Instant::now());
    *now - before <= most.max(SLOW_YIELD)
}

impl Commit {
    /// As `wait`, by yields. Returns `None` if the caller must sleep.
    pub(super) fn wait_by_yields(
        &self,
        target: Lsn,
        deadline: Option<Instant>,
    ) -> Option<Result<bool>> {
        let (yields, round) = (&self.gathering.yields, self.gathering.round());
        let sync = Duration::from_nanos(self.counters.rounds.smoothed_ns());
        if self.gathering.group() <= yields.cores || sync > LONGEST_SYNC || !yields.may_begin(round)
        {
            return None;
        }
        // The running sync may have begun before the caller's append, so two of them.
        self.yield_for(2 * sync, target, deadline)
    }

    /// Waits for at most `most`. Returns `None` if the time is over, or another thread kept the
    /// core.
    pub(crate) fn yield_for(
        &self,
        most: Duration,
        target: Lsn,
        deadline: Option<Instant>,
    ) -> Option<Result<bool>> {
        let start = Instant::now();
        let mut now = start;
        while now - start < most && !is_over(deadline) {
            let kept_core = yield_once(&mut now, most);
            if self.durable.read() >= target {
                return Some(Ok(true));
            }
            if self.leadership.seems_free() && self.leadership.try_take() {
                return Some(self.lead(target, deadline, false));
            }
            if !kept_core {
                // Many rounds may have gone by meanwhile.
                self.gathering.yields.pause(self.gathering.round());
                break;
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_follows_another_soon_is_twice_as_long() {
        let yields = Yields::new();
        let mut round = 100;
        for length in [8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert!(yields.may_begin(round));
            yields.pause(round);
            // Others find the same core busy.
            yields.pause(round + 1);
            assert!(!yields.may_begin(round + length - 1));
            round += length;
        }
        round += 1024;
        yields.pause(round);
        assert!(!yields.may_begin(round + 7) && yields.may_begin(round + 8));
    }
}

//! The leader: rounds of write, sync and publication. [`commit`](super) has the protocol.

use std::time::Duration;

use palisade_store::sync::{AtomicU32, Backoff, CachePadded, Instant, Ordering, StatCell};

use super::yields::{Yields, yield_once};
use super::{Commit, WriteCursor, is_over};
use crate::buffer::Rest;
use crate::stats::nanos;
use crate::{ErrorKind, Lsn, Result};

const FREE: u32 = 0;
const HELD: u32 = 1;

#[derive(Debug)]
pub(super) struct Leadership(CachePadded<AtomicU32>);

impl Leadership {
    pub(super) fn new() -> Leadership {
        Leadership(CachePadded::new(AtomicU32::new(FREE)))
    }

    #[must_use]
    pub(super) fn try_take(&self) -> bool {
        // Acquire: shows this leader the work of the last one; pairs with the Release in `free`
        // [P4]. Relaxed: a failed exchange guards nothing.
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Returns a hint: a later `try_take` may succeed although this returned false.
    pub(super) fn seems_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FREE
    }

    fn free(&self) {
        // Release: for the next leader [P4].
        self.0.store(FREE, Ordering::Release);
    }
}

/// Leadership. Its drop frees it and wakes candidates, also after a panic: else nobody would lead
/// again, and `abandon` would wait for ever.
struct Led<'a>(&'a Commit);

impl Drop for Led<'_> {
    fn drop(&mut self) {
        self.0.leadership.free();
        self.0.wake_waiters(true);
    }
}

/// How many committers come back after a round. All fields are hints: a wrong value only costs
/// time.
#[derive(Debug)]
pub(super) struct Gathering {
    percent: u64,
    // The waits that have begun: threads, futures and callbacks that want a sync. Observers and the
    // flusher do not count.
    arrivals: CachePadded<StatCell>,
    // The value of `arrivals` when the last round stopped gathering.
    arrivals_before: StatCell,
    // How many arrived for the last round.
    group: StatCell,
    // How many arrivals the next round waits for: those of the last round, and after its sync also
    // those that came during it.
    expected: StatCell,
    rounds: StatCell,
    pub(super) yields: Yields,
}

impl Gathering {
    pub(super) fn new(percent: u32) -> Gathering {
        Gathering {
            percent: u64::from(percent),
            arrivals: CachePadded::new(StatCell::new(0)),
            arrivals_before: StatCell::new(0),
            group: StatCell::new(0),
            expected: StatCell::new(0),
            rounds: StatCell::new(0),
            yields: Yields::new(),
        }
    }

    pub(super) fn note_arrival(&self) -> u64 {
        // Relaxed, here and below: hints.
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn round(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Waits for `expected` committers, at most `percent` percent of the time of a sync. Ends
    /// sooner if the next one is too late, or if another thread kept the core: then it also pauses
    /// the waits of later rounds.
    fn wait(&self, sync_ns: u64, is_flusher: bool) {
        let before = self.arrivals_before.load(Ordering::Relaxed);
        let arrived = || self.arrivals.load(Ordering::Relaxed) - before;
        let expected = self.expected.load(Ordering::Relaxed);
        let budget_ns = sync_ns * self.percent / 100;
        let budget = Duration::from_nanos(budget_ns);
        let mut count = arrived();
        let round = self.round();
        let is_worth_it = expected > 1 && count < expected && !budget.is_zero();
        if is_worth_it && self.yields.may_begin(round) {
            let start = Instant::now();
            let (mut now, mut last_arrival) = (start, start);
            while count < expected && now - start < budget {
                if !yield_once(&mut now, budget) {
                    // The leader's round has not ended meanwhile.
                    self.yields.pause(round);
                    break;
                }
                let seen = arrived();
                if seen > count {
                    (count, last_arrival) = (seen, now);
                } else {
                    let missing = if is_flusher { expected - count } else { 1 };
                    if is_too_late(nanos(now - last_arrival), count, missing, budget_ns) {
                        break;
                    }
                }
            }
        }
        self.group.store(arrived(), Ordering::Relaxed);
    }

    pub(super) fn group(&self) -> u64 {
        self.group.load(Ordering::Relaxed)
    }

    /// Starts the next round's count, after the write.
    fn begin_sync(&self) {
        let before = self.arrivals_before.load(Ordering::Relaxed);
        let group = self.group.load(Ordering::Relaxed);
        self.arrivals_before.store(before + group, Ordering::Relaxed);
        self.expected.store(group, Ordering::Relaxed);
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes how many committers the next round can have, before this one wakes its own.
    fn end_sync(&self) {
        let before = self.arrivals_before.load(Ordering::Relaxed);
        let came = self.arrivals.load(Ordering::Relaxed) - before;
        let group = self.group.load(Ordering::Relaxed);
        self.expected.store(group + came, Ordering::Relaxed);
    }
}

/// Returns whether a wait for the next arrival costs the committers that have arrived more than it
/// gains. The limit of 5/4 is measured. The flusher counts all as `missing`: few threads run many
/// tasks, so the next arrival brings others.
fn is_too_late(since_arrival_ns: u64, count: u64, missing: u64, budget_ns: u64) -> bool {
    since_arrival_ns.saturating_mul(count) > (budget_ns / 4 * 5).saturating_mul(missing)
}

impl Commit {
    /// Leads until `target` is durable or the deadline comes. The caller has taken leadership.
    pub(super) fn lead(
        &self,
        target: Lsn,
        deadline: Option<Instant>,
        is_flusher: bool,
    ) -> Result<bool> {
        let _led = Led(self);
        self.poison_on_panic(|| self.rounds_until(target, deadline, is_flusher))
    }

    fn rounds_until(
        &self,
        target: Lsn,
        deadline: Option<Instant>,
        is_flusher: bool,
    ) -> Result<bool> {
        let mut backoff = Backoff::default();
        loop {
            if self.durable.peek() >= target {
                return Ok(true);
            }
            self.gathering.wait(self.counters.rounds.smoothed_ns(), is_flusher);
            let result = self.round();
            if self.durable.peek() >= target {
                return Ok(true);
            }
            result?;
            if is_over(deadline) {
                return Ok(false);
            }
            // A hole is below the target, or with `pad_to_block` the target is above the last block
            // end. The thread that fills a hole sends no wake-up, so poll.
            self.wake_waiters(false);
            backoff.wait();
        }
    }

    /// Calls `run` under leadership and the write lock, unless the log is poisoned. The caller has
    /// paused the tail, and everything reserved is durable.
    pub(crate) fn with_leadership<R>(&self, run: impl FnOnce(&mut WriteCursor) -> R) -> Result<R> {
        let mut backoff = Backoff::default();
        while !self.leadership.try_take() {
            self.check()?;
            backoff.wait();
        }
        let _led = Led(self);
        self.check().map(|()| run(&mut self.cursor.lock()))
    }

    /// Calls `run` when the last round and the last write of a poisoned log have ended.
    pub(crate) fn after_rounds(&self, run: impl FnOnce()) {
        let mut backoff = Backoff::default();
        while !self.leadership.try_take() {
            backoff.wait();
        }
        let _led = Led(self);
        let _writing = self.cursor.lock();
        run();
    }

    fn round(&self) -> Result<()> {
        self.check()?;
        if self.buffer.pads() {
            self.choose_block_end();
        }
        let wrote = self.write_filled().map(drop);
        self.gathering.begin_sync();
        if wrote.as_ref().is_err_and(|error| !error.is_shortage()) {
            return wrote;
        }
        // Even if the disk is full now, the bytes that were written before become durable.
        // Acquire in `read`: everything below `to` is in the store before the sync begins [P5].
        let (written, appends) = self.counters.writes.appends_at(|| self.buffer.written.read());
        let from = self.durable.peek();
        let to = if self.buffer.pads() { self.block_end_within(written, from) } else { written };
        if to == from {
            return wrote;
        }
        self.check()?;
        let start = Instant::now();
        let running = self.counters.begin_sync(start);
        let marked = match self.store.sync(from, to).map(|()| self.store.mark_durable(to)) {
            // No sync has failed: the store could not open a file. Do not poison.
            Err(error) if error.kind() == ErrorKind::NoFiles => return Err(error),
            synced => synced.map_err(|error| self.poison(error))?,
        };
        // Without the mark nothing is acknowledged. A later round repeats the sync and the mark.
        self.poison_unless_no_space(marked)?;
        // If another thread has poisoned the log meanwhile, do not acknowledge what was synced.
        self.check()?;
        let rounds = &self.counters.rounds;
        let change = rounds.version.change();
        rounds.note(&change, nanos(start.elapsed()), appends);
        self.gathering.end_sync();
        self.durable.publish(to);
        drop((running, change));
        wrote
    }

    /// Pads the tail's block and chooses its end, unless the last block end is not durable yet or
    /// there is no room: the next write makes room.
    fn choose_block_end(&self) {
        let mut block_end = self.block_end.lock();
        if *block_end > self.durable.peek() {
            return;
        }
        if let Some(Rest { claim, bytes }) = self.buffer.reserve_rest() {
            let end = claim.end(bytes);
            let Some(rest) = self.occupy(&claim, bytes, self.buffer.limit()) else { return };
            rest.pad();
            *block_end = end;
            return;
        }
        let reserved = self.buffer.reserved();
        if self.buffer.is_block_end(reserved) {
            *block_end = reserved;
        }
    }

    fn block_end_within(&self, written: Lsn, durable: Lsn) -> Lsn {
        let block_end = *self.block_end.lock();
        if block_end <= written { block_end.max(durable) } else { durable }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LONG_SYNC_NS: u64 = u64::MAX / 1000;

    #[test]
    fn a_leader_does_not_wait_after_a_round_with_one_committer() {
        let gathering = Gathering::new(100);
        for _ in 0..3 {
            gathering.note_arrival();
            gathering.wait(LONG_SYNC_NS, false);
            gathering.begin_sync();
        }
    }

    #[test]
    fn more_waiters_shorten_the_wait_and_missing_ones_lengthen_it() {
        // 5/4 of a budget of 1000 ns, for one.
        assert!(!is_too_late(1250, 1, 1, 1000) && is_too_late(1251, 1, 1, 1000));
        assert!(!is_too_late(125, 10, 1, 1000) && is_too_late(126, 10, 1, 1000));
        assert!(!is_too_late(250, 10, 2, 1000) && is_too_late(251, 10, 2, 1000));
        assert!(!is_too_late(u64::MAX, 0, 1, 1000) && is_too_late(u64::MAX, 2, 1, 1000));
    }

    #[test]
    fn a_leader_gathers_nothing_in_a_pause() {
        let gathering = Gathering::new(100);
        gathering.yields.pause(gathering.round());
        for _ in 0..8 {
            gathering.note_arrival();
            gathering.expected.store(2, Ordering::Relaxed);
            // Else it waits for months.
            gathering.wait(LONG_SYNC_NS, false);
            gathering.begin_sync();
        }
    }

    #[test]
    fn a_leader_ends_its_wait_if_the_next_arrival_comes_too_late() {
        for is_flusher in [false, true] {
            let gathering = Gathering::new(100);
            gathering.arrivals.store(1 << 40, Ordering::Relaxed);
            gathering.expected.store((1 << 40) + 1, Ordering::Relaxed);
            // Else it waits for months.
            gathering.wait(LONG_SYNC_NS, is_flusher);
        }
    }

    #[test]
    fn a_leader_waits_for_woken_committers_besides_new_arrivals() {
        let gathering = Gathering::new(100);
        let three_arrive = || {
            for _ in 0..3 {
                gathering.note_arrival();
            }
        };
        three_arrive();
        gathering.wait(LONG_SYNC_NS, false);
        gathering.begin_sync();
        gathering.note_arrival();
        gathering.end_sync();
        // One is here already, and three were woken.
        std::thread::scope(|scope| {
            scope.spawn(three_arrive);
            gathering.wait(LONG_SYNC_NS, false);
        });
        // Relaxed: the thread has been joined.
        assert_eq!(gathering.group.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_leader_waits_for_as_many_committers_as_in_the_last_round() {
        let gathering = Gathering::new(100);
        let three_arrive = || {
            for _ in 0..3 {
                gathering.note_arrival();
            }
        };
        three_arrive();
        gathering.wait(LONG_SYNC_NS, false);
        gathering.begin_sync();
        std::thread::scope(|scope| {
            scope.spawn(three_arrive);
            gathering.wait(LONG_SYNC_NS, false);
        });
        // Relaxed: the threads have been joined.
        assert_eq!(gathering.group.load(Ordering::Relaxed), 3);
    }
}

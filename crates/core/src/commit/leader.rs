//! Leading: rounds of write, sync and publication for all who wait, and the way that leadership
//! goes on.
//!
//! The protocol, its words and its ordering pairs are at the head of [`commit`](super). Where writes
//! overlap, a round is a flight ([`flights`](super::flights)) and several lead at a time: a waiter
//! joins them when about half of those who commit wait for a leader. Then there is no gathering:
//! while one half's records are in the air, the other half comes back.

use std::sync::Arc;
use std::time::Duration;

use super::node::{Node, Outcome};
use super::registry::{Key, Registry, Waiter};
use super::{Commit, PoisonOnPanic, WriteCursor, this_node};
use crate::buffer::Rest;
use crate::sync::{Backoff, Instant, Ordering};
use crate::{Error, ErrorKind, Lsn, Result};

/// In how many parts leaders that overlap share those who commit: while one part's records are in
/// the air, the other comes back.
const CROWD_SHARES: usize = 2;

/// Where a leader stands after a round.
enum Settled {
    /// Its target is durable; it leads no more.
    Served,
    /// Its target is claimed, and a leader below has not landed; it leads no more.
    InTheAir(Arc<Node>, Key),
    /// It leads on.
    Behind,
}

impl Commit {
    /// Leads until the first guest is served or `deadline` comes. The flusher's part; it was
    /// given leadership.
    pub(crate) fn lead_for_guests(&self, deadline: Instant) {
        let first = {
            let mut registry = self.registry.lock();
            if !std::mem::take(&mut registry.is_asked) {
                // A thread came first and has taken it.
                return;
            }
            registry.first_guest_target()
        };
        match first {
            // Errors reach the guests through the registry.
            Some(target) => drop(self.lead(target, Some(deadline))),
            None => drop(self.settle(Lsn::ZERO)),
        }
    }

    /// Calls `run` with leadership and the write lock, as soon as nobody waits for a sync: all
    /// that is reserved is durable, and nothing more is reserved meanwhile.
    pub(crate) fn with_leadership<R>(&self, run: impl FnOnce(&mut WriteCursor) -> R) -> Result<R> {
        let mut backoff = Backoff::default();
        // Nobody joins beside a leader that seems to wait for the owner of a hole.
        while !self.registry.lock().try_lead_alone() {
            self.check()?;
            backoff.wait();
        }
        let result = run(&mut self.cursor.lock());
        self.settle(Lsn::ZERO);
        Ok(result)
    }

    /// Leads until `target` is durable or the deadline comes, then passes leadership on.
    pub(super) fn lead(&self, target: Lsn, deadline: Option<Instant>) -> Result<bool> {
        let mut backoff = Backoff::default();
        loop {
            if deadline.is_some_and(|at| Instant::now() >= at) {
                self.settle(Lsn::ZERO);
                return Ok(self.durable.read() >= target);
            }
            let led = if self.flights.overlap() { self.fly() } else { self.gather_and_round() };
            if let Err(error) = led {
                return self.give_up(target, error);
            }
            match self.settle(target) {
                Settled::Served => return Ok(true),
                Settled::InTheAir(node, key) => return self.follow(&node, key, target, deadline),
                // A hole lies below the target. Its owner announces nothing.
                Settled::Behind => backoff.wait(),
            }
        }
    }

    fn gather_and_round(&self) -> Result<()> {
        self.gather();
        self.round()
    }

    /// Whether the thread that waits for `target` is to lead beside others: half of those who commit
    /// wait for a leader, and the other half's records are in the air.
    pub(super) fn joins(&self, registry: &mut Registry, target: Lsn) -> bool {
        if !self.flights.overlap() || target <= self.flights.claimed() {
            return false;
        }
        // Relaxed: a hint; a wrong one costs time, nothing else.
        let crowd = self.crowd.load(Ordering::Relaxed) as usize;
        registry.try_join(self.flights.most, crowd.div_ceil(CROWD_SHARES))
    }

    /// Lets the threads whose records a leader has claimed wait for it.
    pub(super) fn cover(&self, claimed: Lsn) {
        let mut registry = self.registry.lock();
        registry.is_stuck = false;
        registry.begin_row();
        registry.cover(claimed);
    }

    /// One write of all that is filled, one sync, one publication of *durable*.
    fn round(&self) -> Result<()> {
        self.check()?;
        let guard = PoisonOnPanic(self);
        if self.buffer.pads() {
            let mut block_end = self.block_end.lock();
            *block_end = self.next_block_end(*block_end, self.durable.peek());
        }
        self.registry.lock().begin_row();
        let wrote = self.write_filled();
        if wrote.as_ref().is_err_and(|error| error.kind() != ErrorKind::NoSpace) {
            std::mem::forget(guard);
            return wrote.map(drop);
        }
        let synced = self.sync_written();
        std::mem::forget(guard);
        synced.and(wrote.map(drop))
    }

    fn sync_written(&self) -> Result<()> {
        // Acquire in `read`: all below `to` is in the store before its sync begins [P5].
        let written = self.buffer.written.read();
        let from = self.durable.peek();
        let to = if self.buffer.pads() { self.block_end_within(written, from) } else { written };
        if to == from {
            return Ok(());
        }
        self.check()?;
        let appends_before = self.counters.appends.value();
        let start = Instant::now();
        let synced = self.store.sync(from, to).and_then(|()| self.store.mark_durable(to));
        if let Err(error) = synced {
            return Err(self.poison(error));
        }
        // A write that failed meanwhile has told everyone that nothing more is acknowledged.
        self.check()?;
        let ns = start.elapsed().as_nanos() as u64;
        let covered = appends_before.saturating_sub(self.counters.synced_appends.value());
        self.counters.note_sync(ns, covered);
        self.durable.publish(to);
        Ok(())
    }

    /// Where the next sync ends, the last one having been to end at `last`: there until all below is
    /// `claimed`; then all that is reserved, and padding up to the end of its block. Without room
    /// for that the end stays where it is; the write that follows makes some.
    pub(super) fn next_block_end(&self, last: Lsn, claimed: Lsn) -> Lsn {
        if last > claimed {
            return last;
        }
        if let Some(Rest { claim, bytes }) = self.buffer.reserve_rest() {
            let end = claim.end(bytes);
            let Some(granted) = claim.granted(bytes, self.buffer.limit()) else { return last };
            granted.occupy(&self.buffer, self.durable.peek()).pad();
            return end;
        }
        let reserved = self.buffer.reserved();
        if self.buffer.is_block_end(reserved) { reserved } else { last }
    }

    /// The block end, if all below it is written; else nothing is to be synced.
    fn block_end_within(&self, written: Lsn, durable: Lsn) -> Lsn {
        let block_end = *self.block_end.lock();
        if block_end <= written { block_end.max(durable) } else { durable }
    }

    /// Serves whom the last round covered. If `target` is among it, or is zero because the leader
    /// leaves, or another leader will land below it, leadership goes on to another thread, to the
    /// flusher, or to nobody.
    fn settle(&self, target: Lsn) -> Settled {
        let mut registry = self.registry.lock();
        let durable = self.durable.read();
        let mut served = registry.borrow_batch();
        registry.take_served(durable, &mut served);
        self.flusher.take_callbacks(&mut served, &Ok(()));
        let is_served = durable >= target;
        let is_covered = !is_served && target <= self.flights.claimed() && self.check().is_ok();
        let leaves = is_served || is_covered;
        let settled = match leaves {
            true if is_served => Settled::Served,
            true => {
                // Wakers, which are woken below, may commit on this thread, with its own node.
                let is_alone = served.iter().all(Waiter::is_ours);
                let node = if is_alone { this_node() } else { Arc::new(Node::new()) };
                let key = registry.register_covered(target, Arc::clone(&node));
                Settled::InTheAir(node, key)
            }
            false => Settled::Behind,
        };
        registry.is_stuck = !leaves;
        let beside = if self.flights.overlap() { registry.len() } else { 0 };
        let crowd = served.len() + beside + usize::from(is_served && target > Lsn::ZERO);
        // Relaxed: a hint for the next leader's gathering, and for those who may lead beside it.
        self.crowd.store(crowd as u64, Ordering::Relaxed);
        let next = if leaves { self.pass_on(&mut registry, crowd) } else { None };
        self.mirror(&registry);
        drop(registry);
        if let Some(next) = next {
            self.dormitory.wake_one(&next, Outcome::Lead);
        }
        self.wake(served, Ok(()));
        settled
    }

    /// The thread that a leader who leaves passes leadership to, of about `crowd` who commit.
    fn pass_on(&self, registry: &mut Registry, crowd: usize) -> Option<Arc<Node>> {
        let is_last = registry.leaders == 1;
        if is_last || registry.uncovered() >= crowd.div_ceil(CROWD_SHARES).max(1) {
            let next = registry.take_next_leader();
            if next.is_some() {
                return next;
            }
        }
        registry.leaders -= 1;
        if is_last {
            self.ask_flusher_if_guests_wait(registry);
        }
        None
    }

    /// The round failed: on a full disk everyone who waits gets the error, and leadership is
    /// free; a poisoned log has told everyone already.
    fn give_up(&self, target: Lsn, error: Error) -> Result<bool> {
        let is_final = error.kind() == ErrorKind::Poisoned;
        let mut registry = self.registry.lock();
        let mut served = registry.borrow_batch();
        registry.take_served(self.durable.peek(), &mut served);
        self.flusher.take_callbacks(&mut served, &Ok(()));
        let mut failed = registry.borrow_batch();
        registry.take_failed(&error, is_final, &mut failed);
        self.flusher.take_callbacks(&mut failed, &Err(error.clone()));
        registry.leaders -= 1;
        registry.is_stuck = false;
        self.mirror(&registry);
        drop(registry);
        self.wake(served, Ok(()));
        self.wake(failed, Err(&error));
        if self.durable.read() >= target { Ok(true) } else { Err(error) }
    }

    /// Waits a part of a sync for the committers that the last round woke, so that they share one.
    fn gather(&self) {
        // Relaxed: hints; a wrong one costs time, nothing else.
        let expected = self.crowd.load(Ordering::Relaxed);
        let budget_ns = self.counters.sync_ns.value() * self.gather_percent / 100;
        if expected <= 1 || budget_ns == 0 {
            return;
        }
        let budget = Duration::from_nanos(budget_ns);
        let start = Instant::now();
        // Relaxed: as above. The leader itself is one of those expected.
        while self.waiting.load(Ordering::Relaxed) + 1 < expected && start.elapsed() < budget {
            crate::sync::yield_now();
        }
    }
}

//! Leading: rounds of write, sync and publication for all waiters, and how leadership is passed on.
//!
//! The protocol, its words and its ordering pairs are at the head of [`commit`](super).

use std::time::Duration;

use super::node::Outcome;
use super::{Commit, PoisonOnPanic, WriteCursor};
use crate::buffer::Rest;
use crate::sync::{Backoff, Instant, Ordering};
use crate::{Error, ErrorKind, Lsn, Result};

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
            None => {
                self.settle(Lsn::ZERO);
            }
        }
    }

    /// Calls `run` with leadership and the write lock, as soon as nobody waits for a sync: all
    /// that is reserved is durable, and nothing more is reserved meanwhile.
    pub(crate) fn with_leadership<R>(&self, run: impl FnOnce(&mut WriteCursor) -> R) -> Result<R> {
        let mut backoff = Backoff::default();
        while !self.registry.lock().try_lead() {
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
            self.gather();
            if let Err(error) = self.round() {
                return self.give_up(target, error);
            }
            if self.settle(target) {
                return Ok(true);
            }
            // A hole lies below the target. Its owner sends no wake-up.
            backoff.wait();
        }
    }

    /// One write of all that is filled, one sync, one publication of *durable*.
    fn round(&self) -> Result<()> {
        self.check()?;
        let guard = PoisonOnPanic(self);
        if self.buffer.pads() {
            self.choose_block_end();
        }
        self.registry.lock().begin_row();
        let wrote = self.write_filled();
        if wrote.as_ref().is_err_and(|error| !error.is_shortage()) {
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
        match synced {
            // Without a descriptor no sync was tried.
            Err(error) if error.kind() == ErrorKind::NoFiles => return Err(error),
            other => other.map_err(|error| self.poison(error))?,
        }
        // A write that failed meanwhile has told everyone that nothing more is acknowledged.
        self.check()?;
        let ns = start.elapsed().as_nanos() as u64;
        let covered = appends_before.saturating_sub(self.counters.synced_appends.value());
        self.counters.note_sync(ns, covered);
        self.durable.publish(to);
        Ok(())
    }

    /// Chooses where the next sync ends: all that is reserved, and padding up to the end of its
    /// block. The end stays while it lies above *durable*, or if the padding has no room; the write
    /// that follows makes some.
    fn choose_block_end(&self) {
        let mut block_end = self.block_end.lock();
        if *block_end > self.durable.peek() {
            return;
        }
        if let Some(Rest { claim, bytes }) = self.buffer.reserve_rest() {
            let end = claim.end(bytes);
            let Some(granted) = claim.granted(bytes, self.buffer.limit()) else { return };
            granted.occupy(&self.buffer, self.durable.peek()).pad();
            *block_end = end;
            return;
        }
        let reserved = self.buffer.reserved();
        if self.buffer.is_block_end(reserved) {
            *block_end = reserved;
        }
    }

    /// The block end, if all below it is written; else nothing is to be synced.
    fn block_end_within(&self, written: Lsn, durable: Lsn) -> Lsn {
        let block_end = *self.block_end.lock();
        if block_end <= written { block_end.max(durable) } else { durable }
    }

    /// Serves the waiters that the last round covered. Returns whether `target` is durable, too, or
    /// is zero because the leader leaves: then leadership passes to another thread, to the flusher,
    /// or to nobody.
    fn settle(&self, target: Lsn) -> bool {
        let mut registry = self.registry.lock();
        let durable = self.durable.peek();
        let mut served = registry.borrow_batch();
        registry.take_served(durable, &mut served);
        self.flusher.take_callbacks(&mut served, &Ok(()));
        let leaves = durable >= target;
        let committers = served.len() as u64 + u64::from(leaves && target > Lsn::ZERO);
        // Relaxed: a hint for the next leader's gathering.
        self.committers.store(committers, Ordering::Relaxed);
        let next = if leaves { registry.take_next_leader() } else { None };
        if leaves && next.is_none() {
            registry.is_led = false;
            self.ask_flusher_if_guests_wait(&mut registry);
        }
        self.mirror(&registry);
        drop(registry);
        if let Some(next) = next {
            self.dormitory.wake_one(&next, Outcome::Lead);
        }
        self.wake(served, Ok(()));
        leaves
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
        registry.is_led = false;
        self.mirror(&registry);
        drop(registry);
        self.wake(served, Ok(()));
        self.wake(failed, Err(&error));
        if self.durable.read() >= target { Ok(true) } else { Err(error) }
    }

    /// Waits a part of a sync for the committers that the last round woke, so that they share one.
    fn gather(&self) {
        // Relaxed: hints; a wrong one costs time, nothing else.
        let expected = self.committers.load(Ordering::Relaxed);
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

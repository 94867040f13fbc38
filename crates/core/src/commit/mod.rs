//! Group commit: many waiting commits, one device sync.
//!
//! # Words
//! *Leader*: the waiter that writes and syncs for all; there is at most one. *Follower*: a
//! waiter that it serves. *Guest*: a waker or callback, which cannot lead. *Round*: one write of
//! all that is filled, one sync, one publication of *durable*. *Hole*: a reservation below
//! published ones that its owner has not published.
//!
//! # States
//! | what | guarded by | who may change it |
//! |---|---|---|
//! | the write cursor, *filled*, *written* | the write lock | its holder |
//! | *durable* | leadership | the leader |
//! | who waits, who leads | the registry's lock | its holder, for a few instructions |
//! | the block end | its lock, never contended | the leader |
//! | the failure | set once | whoever meets it first |
//!
//! # Protocol
//! Waiter: (1) *durable* covers the target: done. (2) Under the registry's lock look again, and
//! at the failure; nobody leads: take leadership; else register. (3) Park until an outcome is
//! there: served, failed, or leadership.
//! Leader: (1) gather: committers that were woken a moment ago come back; wait for them a small
//! part of a sync, not at all if there was one. (2) Take the write lock, hand all that is filled
//! to the store, publish *written*, let the lock go. (3) Read *written*, then sync
//! `[durable, written)`, note it in the sync line, publish *durable*. (4) Under the registry's
//! lock take those that are served, and put their callbacks into the flusher's mailbox, so that
//! those of a later round do not overtake them; if its own target is, pass leadership to the
//! lowest thread beyond, else to the flusher if guests wait, else to nobody. (5) Wake the next
//! leader, then those served. (6) Its own target lies above a hole: poll, and begin again at 1.
//! With `pad_to_block`: (2) where all up to the last *block end* is durable, the leader reserves the
//! rest of the tail's block, padding, if there is room for it: a new block end. (3) It syncs up to
//! the block end once *written* has come there, and no further: what lies above shares no block
//! with what it calls durable. A hole below the block end keeps all below it waiting.
//! Room: an appender without room takes the write lock itself, and never needs leadership.
//!
//! # Ordering pairs
//! P1, P2 (`buffer`, `watermark`), P3 (`node`).
//! - P4: the registry's lock. A waiter registers after it looked at *durable* and the failure
//!   under the lock; a leader takes the served, and a failing thread everyone, under the lock
//!   after publishing. Whichever critical section comes first, the other sees its effect: no
//!   wake-up is lost.
//! - P5: *written* is read (Acquire) before `sync` begins, so what is called durable was in the
//!   store when its sync began.
//!
//! # Progress
//! A leader waits for the device and, polling, for the owner of a hole. It may hold leadership
//! while it polls, because everybody who is registered then waits for the same hole: all that is
//! filled below is durable. It never holds the write lock while it waits, so the owner of the
//! hole always gets room. Appenders wait for the write lock's holder, who waits for the device.
//!
//! # Why not
//! One mutex around write and sync: nobody could make room while a sync runs. A dedicated sync
//! thread: two more switches per commit. A condition variable: wakes the herd.
//!
//! # Checked by
//! `no_wake_up_is_lost`, `the_owner_of_a_hole_need_not_come_back`,
//! `a_full_ring_needs_no_other_thread`, `durable_is_never_ahead_of_the_sync`,
//! `poison_reaches_every_waiter`, `a_waker_is_woken_or_sees_completion`.

mod node;
mod registry;
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) use self::node::{Node, Outcome};
use self::registry::Registry;
pub(crate) use self::registry::Waiter;
pub(crate) use self::registry::{Callback, Key};
pub(crate) use self::writer::WriteCursor;
use crate::buffer::{Buffer, Rest, Stop};
use crate::flusher::Flusher;
use crate::stats::Counters;
use crate::store::Store;
use crate::sync::{Backoff, Figure, Instant, Mutex, OnceLock, Ordering};
use crate::sync::{park, park_until, per_thread};
use crate::watermark::Watermark;
use crate::{Error, ErrorKind, Lsn, Options, Result};

per_thread!(this_node: Node = Node::for_current_thread());

/// Everything between a published record and its acknowledgement.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) buffer: Buffer,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) filled: Watermark,
    pub(crate) durable: Watermark,
    pub(crate) counters: Counters,
    pub(crate) flusher: Flusher,
    cursor: Mutex<WriteCursor>,
    // With `pad_to_block`: where the next sync ends, or the last one did.
    block_end: Mutex<Lsn>,
    registry: Mutex<Registry>,
    failure: OnceLock<Error>,
    // Mirrors of the registry, so that a gathering leader need not take its lock.
    waiting: Figure,
    served_last: Figure,
    write_bytes: u64,
    gather_percent: u64,
}

impl Commit {
    pub(crate) fn new(
        buffer: Buffer,
        store: Arc<dyn Store>,
        base: Lsn,
        options: &Options,
    ) -> Commit {
        Commit {
            buffer,
            store,
            filled: Watermark::new(base),
            durable: Watermark::new(base),
            counters: Counters::default(),
            flusher: Flusher::default(),
            cursor: Mutex::new(WriteCursor::new(base)),
            block_end: Mutex::new(base),
            registry: Mutex::new(Registry::new(options.max_waiters)),
            failure: OnceLock::new(),
            waiting: Figure::new(0),
            served_last: Figure::new(0),
            write_bytes: options.write_bytes as u64,
            gather_percent: u64::from(options.gather_percent),
        }
    }

    /// Waits until everything below `target` is durable; false if the deadline came first.
    pub(crate) fn wait(&self, target: Lsn, deadline: Option<Instant>) -> Result<bool> {
        if self.durable.read() >= target {
            return Ok(true);
        }
        let node = this_node();
        let mut registry = self.registry.lock();
        if self.durable.read() >= target {
            return Ok(true);
        }
        self.check()?;
        if registry.try_lead() {
            drop(registry);
            return self.lead(target, deadline);
        }
        node.reset();
        let key = registry.register(target, Waiter::Thread(Arc::clone(&node)))?;
        self.mirror(&registry);
        drop(registry);
        self.follow(&node, key, target, deadline)
    }

    /// Waits like `wait`, but only watches: neither leads nor asks anybody to sync.
    pub(crate) fn observe(&self, target: Lsn, deadline: Instant) -> Result<bool> {
        if self.durable.read() >= target {
            return Ok(true);
        }
        let node = this_node();
        let mut registry = self.registry.lock();
        if self.durable.read() >= target {
            return Ok(true);
        }
        self.check_goes_on(target)?;
        node.reset();
        let key = registry.register(target, Waiter::Observer(Arc::clone(&node)))?;
        drop(registry);
        self.follow(&node, key, target, Some(deadline))
    }

    /// One poll of a future that waits for `target`. `key` is its registration, if it has one.
    ///
    /// Never blocks on the store: leadership goes to the flusher, which the caller has started.
    pub(crate) fn poll_wait(
        &self,
        target: Lsn,
        key: &mut Option<Key>,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        // Wakers are foreign code, and so are their clones and drops, which may come back to the
        // log: what is let go of is declared before the guard, so it goes after the lock.
        let mut waker = context.waker().clone();
        let _let_go;
        let mut registry = self.registry.lock();
        if self.durable.read() >= target {
            _let_go = key.take().and_then(|key| registry.cancel(key));
            self.mirror(&registry);
            return Poll::Ready(Ok(()));
        }
        if let Some(known) = *key {
            match registry.waiter_mut(known) {
                Some(Waiter::Task(registered)) => {
                    std::mem::swap(registered, &mut waker);
                    return Poll::Pending;
                }
                Some(Waiter::Failed(error)) => {
                    let error = error.clone();
                    _let_go = registry.cancel(known);
                    *key = None;
                    return Poll::Ready(Err(error));
                }
                _ => *key = None,
            }
        }
        if let Err(error) = self.check().and_then(|()| registry.check_room()) {
            return Poll::Ready(Err(error));
        }
        match registry.register(target, Waiter::Task(waker)) {
            Ok(registered) => *key = Some(registered),
            Err(error) => return Poll::Ready(Err(error)),
        }
        self.ask_flusher_to_lead(&mut registry);
        Poll::Pending
    }

    /// Gives up the wait of a future.
    pub(crate) fn cancel_wait(&self, key: Key) {
        let mut registry = self.registry.lock();
        let cancelled = registry.cancel(key);
        self.mirror(&registry);
        drop(registry);
        // A waker's drop is foreign code: outside of the lock.
        drop(cancelled);
    }

    /// Registers `callback` for `target`; it runs on the flusher's thread, at once if the
    /// target is durable already.
    pub(crate) fn register_callback(&self, target: Lsn, callback: Callback) -> Result<()> {
        let mut registry = self.registry.lock();
        self.check()?;
        if self.durable.read() >= target {
            // A leader that has published may not have come to those below yet: in LSN order.
            let mut due = registry.borrow_batch();
            registry.take_served(target, &mut due);
            due.push(Waiter::Callback(callback));
            self.flusher.take_callbacks(&mut due, &Ok(()));
            self.mirror(&registry);
            drop(registry);
            self.wake(due, Ok(()));
            return Ok(());
        }
        // A refused callback is dropped by this call, outside of the lock, not by the registry.
        registry.check_room()?;
        registry.register(target, Waiter::Callback(callback))?;
        self.ask_flusher_to_lead(&mut registry);
        Ok(())
    }

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
            None => self.settle(Lsn::ZERO),
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

    /// The failure that poisoned the log, if one did.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Whether the log can still come to `target`: it is neither poisoned nor closed below it.
    pub(crate) fn check_goes_on(&self, target: Lsn) -> Result<()> {
        self.check()?;
        match self.buffer.tail() {
            Err(Stop::Closed) if target > self.buffer.reserved() => {
                Err(Error::bare(ErrorKind::Closed))
            }
            _ => Ok(()),
        }
    }

    /// Poisons the log: every current and later call that needs it gets the same error.
    pub(crate) fn poison(&self, cause: Error) -> Error {
        let sticky = self.failure.get_or_init(|| cause.with_kind(ErrorKind::Poisoned)).clone();
        self.buffer.stop(Stop::Poisoned);
        self.fail_waiters(&sticky, true);
        sticky
    }

    /// Hands `error` to everyone who waits, and to the observers, too, if it `is_final`.
    pub(crate) fn fail_waiters(&self, error: &Error, is_final: bool) {
        let mut registry = self.registry.lock();
        let mut failed = registry.borrow_batch();
        registry.take_failed(error, is_final, &mut failed);
        self.flusher.take_callbacks(&mut failed, &Err(error.clone()));
        self.mirror(&registry);
        drop(registry);
        self.wake(failed, Err(error));
    }

    pub(crate) fn waiters(&self) -> u64 {
        self.registry.lock().len() as u64
    }

    fn follow(
        &self,
        node: &Node,
        key: Key,
        target: Lsn,
        deadline: Option<Instant>,
    ) -> Result<bool> {
        loop {
            match node.outcome() {
                Some(Outcome::Served) => return Ok(true),
                Some(Outcome::Failed(error)) => return Err(error),
                Some(Outcome::Lead) => return self.lead(target, deadline),
                None => {}
            }
            match deadline {
                None => park(),
                Some(at) if Instant::now() < at => park_until(at),
                Some(_) => {
                    let mut registry = self.registry.lock();
                    if registry.cancel(key).is_some() {
                        self.mirror(&registry);
                        return Ok(self.durable.read() >= target);
                    }
                    // Taken a moment ago: the outcome is on its way and may be leadership,
                    // which must be passed on.
                    drop(registry);
                    return self.follow_taken(node, target);
                }
            }
        }
    }

    /// Waits for the outcome of a wait that timed out after a leader had taken it.
    fn follow_taken(&self, node: &Node, target: Lsn) -> Result<bool> {
        loop {
            match node.outcome() {
                Some(Outcome::Served) => return Ok(true),
                Some(Outcome::Failed(error)) => return Err(error),
                Some(Outcome::Lead) => return self.lead(target, Some(Instant::now())),
                None => park(),
            }
        }
    }

    /// Leads until `target` is durable or the deadline comes, then passes leadership on.
    fn lead(&self, target: Lsn, deadline: Option<Instant>) -> Result<bool> {
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
            self.settle(target);
            if self.durable.read() >= target {
                return Ok(true);
            }
            // A hole lies below the target. Its owner announces nothing.
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

    /// Where the next sync ends: all that is reserved, and padding up to the end of its block.
    /// Without room for that the end stays where it is; the write that follows makes some.
    fn choose_block_end(&self) {
        let mut block_end = self.block_end.lock();
        if *block_end > self.durable.peek() {
            return;
        }
        if let Some(Rest { claim, bytes }) = self.buffer.reserve_rest() {
            let end = claim.end(bytes);
            if let Some(granted) = claim.granted(bytes, self.buffer.limit()) {
                granted.occupy(&self.buffer, self.durable.peek()).pad();
                *block_end = end;
            }
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

    /// Serves whom the last round covered. If `target` is among it, or is zero because the
    /// leader leaves, leadership goes on to another thread, to the flusher, or to nobody.
    fn settle(&self, target: Lsn) {
        let mut registry = self.registry.lock();
        let durable = self.durable.peek();
        let mut served = registry.borrow_batch();
        registry.take_served(durable, &mut served);
        self.flusher.take_callbacks(&mut served, &Ok(()));
        let leaves = durable >= target;
        let next = if leaves { registry.take_next_leader() } else { None };
        if leaves && next.is_none() {
            registry.is_led = false;
            self.ask_flusher_if_guests_wait(&mut registry);
        }
        self.mirror(&registry);
        // Relaxed: a hint for the next leader's gathering.
        let count = served.len() as u64 + u64::from(leaves && target > Lsn::ZERO);
        self.served_last.store(count, Ordering::Relaxed);
        drop(registry);
        if let Some(next) = next {
            next.finish(Outcome::Lead);
        }
        self.wake(served, Ok(()));
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

    /// Wakes `waiters`, outside of all locks, and keeps the vector for the next round.
    fn wake(&self, mut waiters: Vec<Waiter>, result: std::result::Result<(), &Error>) {
        for waiter in waiters.drain(..) {
            match waiter {
                Waiter::Thread(node) | Waiter::Observer(node) => node.finish(match result {
                    Ok(()) => Outcome::Served,
                    Err(error) => Outcome::Failed(error.clone()),
                }),
                Waiter::Task(waker) => {
                    // Foreign code: a panic in it must not cost the others their wake-ups.
                    drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
                }
                Waiter::Callback(callback) => {
                    self.flusher.run_soon(callback, result.map_err(Clone::clone));
                }
                Waiter::Failed(_) => {}
            }
        }
        self.registry.lock().return_batch(waiters);
    }

    /// Waits a little for the committers that the last round woke, so that they share a sync.
    fn gather(&self) {
        // Relaxed: hints; a wrong one costs time, nothing else.
        let expected = self.served_last.load(Ordering::Relaxed);
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

    fn ask_flusher_to_lead(&self, registry: &mut Registry) {
        self.mirror(registry);
        if !registry.is_led {
            registry.is_led = true;
            registry.is_asked = true;
            self.flusher.lead_soon();
        }
    }

    fn ask_flusher_if_guests_wait(&self, registry: &mut Registry) {
        if registry.first_guest_target().is_some() {
            self.ask_flusher_to_lead(registry);
        }
    }

    fn mirror(&self, registry: &Registry) {
        // Relaxed: a hint for the gathering leader.
        self.waiting.store(registry.len() as u64, Ordering::Relaxed);
    }
}

/// A store that panics leaves the log in a state that nobody knows: it poisons.
pub(crate) struct PoisonOnPanic<'a>(&'a Commit);

impl<'a> PoisonOnPanic<'a> {
    pub(crate) fn new(log: &'a Commit) -> PoisonOnPanic<'a> {
        PoisonOnPanic(log)
    }

    /// Nothing has panicked.
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        let message = "the store panicked while it wrote or synced";
        self.0.poison(Error::new(ErrorKind::Poisoned, message));
    }
}

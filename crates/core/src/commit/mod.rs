//! Group commit: many waiting commits, one device sync.
//!
//! # Words
//! *Leader*: the waiter that writes and syncs for all; there is at most one. *Follower*: a waiter
//! that it serves. *Guest*: a waker or callback, which cannot lead. *Round*: one write of all that
//! is filled, one sync, one publication of *durable*. *Hole*: a reservation below published ones
//! that its owner has not published.
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
//! there: served, failed, or leadership. Those who wait at the same time sleep side by side
//! (`node`).
//! Leader: (1) gather: committers that were woken a moment ago come back; wait for them a
//! part of a sync (`gather_percent`), not at all if there was one. (2) Take the write lock, hand all that is filled
//! to the store, publish *written*, let the lock go. (3) Read *written*, then sync
//! `[durable, written)`, note it in the log buffer, publish *durable*. (4) Under the registry's
//! lock take those that are served, and put their callbacks into the flusher's mailbox, so that
//! those of a later round do not overtake them; if its own target is, pass leadership to the
//! lowest thread beyond, else to the flusher if guests wait, else to nobody. (5) Wake the next
//! leader, then those served, with one call. (6) Its own target lies above a hole: poll, and begin again at 1.
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

mod leader;
mod node;
mod registry;
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use self::node::{Dormitory, Due};
pub(crate) use self::node::{Node, Outcome};
use self::registry::Registry;
pub(crate) use self::registry::Waiter;
pub(crate) use self::registry::{Callback, Key};
pub(crate) use self::writer::WriteCursor;
use crate::buffer::{Buffer, Stop};
use crate::flusher::Flusher;
use crate::stats::Counters;
use crate::store::Store;
use crate::sync::per_thread;
use crate::sync::{Figure, Instant, Mutex, OnceLock, Ordering};
use crate::watermark::Watermark;
use crate::{Error, ErrorKind, Lsn, Options, Result};

per_thread!(this_node: Node = Node::new());

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
    dormitory: Dormitory,
    failure: OnceLock<Error>,
    // Mirrors of the registry, so that a gathering leader need not take its lock.
    waiting: Figure,
    committers: Figure,
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
            dormitory: Dormitory::default(),
            failure: OnceLock::new(),
            waiting: Figure::new(0),
            committers: Figure::new(0),
            write_bytes: options.write_bytes as u64,
            gather_percent: u64::from(options.gather_percent),
        }
    }

    /// Waits until everything below `target` is durable; false if the deadline came first.
    pub(crate) fn wait(&self, target: Lsn, deadline: Option<Instant>) -> Result<bool> {
        self.check_process()?;
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
        let key = registry.register(target, Waiter::Thread(Arc::clone(&node)))?;
        self.mirror(&registry);
        drop(registry);
        self.follow(&node, key, target, deadline)
    }

    /// Waits like `wait`, but only watches: neither leads nor asks anybody to sync.
    pub(crate) fn observe(&self, target: Lsn, deadline: Instant) -> Result<bool> {
        self.check_process()?;
        if self.durable.read() >= target {
            return Ok(true);
        }
        let node = this_node();
        let mut registry = self.registry.lock();
        if self.durable.read() >= target {
            return Ok(true);
        }
        self.check_goes_on(target)?;
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
        self.check_process()?;
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
        if !self.buffer.is_own() {
            return;
        }
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
        self.check_process()?;
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

    /// Refuses a process that was forked from the one that opened the log. Every call makes this
    /// check before it takes a lock: a thread of the parent may have held the lock at the fork, and
    /// the child would wait for ever.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.buffer.is_own() { Ok(()) } else { Err(Error::bare(ErrorKind::Forked)) }
    }

    /// Refuses a forked child, and gives the failure that poisoned the log, if one did.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_process()?;
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

    /// How many wait; nobody does in a forked child.
    pub(crate) fn waiters(&self) -> u64 {
        if !self.buffer.is_own() {
            return 0;
        }
        self.registry.lock().len() as u64
    }

    fn follow(
        &self,
        node: &Node,
        key: Key,
        target: Lsn,
        deadline: Option<Instant>,
    ) -> Result<bool> {
        if let Some(outcome) = self.dormitory.sleep(node, deadline) {
            return self.go_on(outcome, target, deadline);
        }
        let mut registry = self.registry.lock();
        if registry.cancel(key).is_some() {
            self.mirror(&registry);
            return Ok(self.durable.read() >= target);
        }
        // Taken a moment ago: the outcome is on its way and may be leadership, which must be
        // passed on.
        drop(registry);
        match self.dormitory.sleep(node, None) {
            Some(outcome) => self.go_on(outcome, target, Some(Instant::now())),
            None => Ok(false),
        }
    }

    fn go_on(&self, outcome: Outcome, target: Lsn, deadline: Option<Instant>) -> Result<bool> {
        match outcome {
            Outcome::Served => Ok(true),
            Outcome::Failed(error) => Err(error),
            Outcome::Lead => self.lead(target, deadline),
        }
    }

    /// Wakes `waiters`, outside of all locks, and keeps the vector for the next round.
    fn wake(&self, mut waiters: Vec<Waiter>, result: std::result::Result<(), &Error>) {
        let mut due = Due::default();
        for waiter in &waiters {
            if let Waiter::Thread(node) | Waiter::Observer(node) = waiter {
                due.finish(
                    node,
                    match result {
                        Ok(()) => Outcome::Served,
                        Err(error) => Outcome::Failed(error.clone()),
                    },
                );
            }
        }
        self.dormitory.wake(due);
        for waiter in waiters.drain(..) {
            match waiter {
                Waiter::Task(waker) => {
                    // Foreign code: a panic in it must not cost the others their wake-ups.
                    drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
                }
                Waiter::Callback(callback) => {
                    self.flusher.run_soon(callback, result.map_err(Clone::clone));
                }
                Waiter::Thread(_) | Waiter::Observer(_) | Waiter::Failed(_) => {}
            }
        }
        self.registry.lock().return_batch(waiters);
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

//! Group commit: many waiting commits, one device sync.
//!
//! # Words
//! *Leader*: the thread that writes and syncs for all; there is at most one. *Committer*: a thread
//! or future that waits for a sync; an *async waiter* is a future or a callback. *Round*: one write
//! of all that is filled, one sync, one publication of *durable*. *Hole*: a reserved range that its
//! owner has not filled.
//!
//! # States
//! | what | guarded by | who may change it |
//! |---|---|---|
//! | the write cursor, *filled*, *written* | the write lock | its holder |
//! | *durable* | leadership | the leader |
//! | which threads wait for what | `WaitGroup`, atomics | each waiter; a waking thread resets |
//! | async waiters | their lock | its holder |
//! | the block end | its lock, never contended | the leader |
//! | the failure | set once | the first thread that meets it |
//!
//! # Protocol
//! A waiter:
//! 1. Returns if *durable* covers its target. The first time, takes leadership if it is free, and
//!    leads: a round after its registration would wake a group for its own target. Else, if
//!    committers outnumber the cores, it first tries both for a while between yields (`yields`).
//! 2. Registers in a group (`wait_group`), then looks again at *durable* and at the failure.
//! 3. Takes leadership if it is free, and leads.
//! 4. Else returns if its deadline has passed, or sleeps and begins again at 1.
//!
//! A leader:
//! 1. Gathers: waits a part of a sync (`gather_percent`) for the committers that the last round
//!    woke, because they may commit again.
//! 2. Takes the write lock, hands all that is filled to the store, publishes *written*, frees the
//!    lock.
//! 3. Reads *written*, syncs `[durable, written)`, notes it in the log buffer, publishes *durable*.
//! 4. If its own target is durable, its deadline has passed or its round has failed: frees
//!    leadership, and wakes a candidate of each group that waits for more.
//! 5. Wakes the groups that the round has served.
//! 6. If its own target is above a hole: polls, and begins again at 1.
//!
//! Leadership is never handed to a thread that sleeps: the first thread that runs takes it. The
//! flusher leads in the same way. An appender without room takes the write lock itself, without
//! leadership.
//!
//! With `pad_to_block` the leader also chooses a *block end* before step 2, if everything below the
//! last one is durable: it pads the rest of the tail's block if there is room. In step 3 it syncs
//! only if *written* is at or above the block end, and then exactly up to it, so the bytes above
//! share no block with those that become durable. A hole below the block end delays everything
//! below it.
//!
//! # Ordering pairs
//! P1, P2 (`buffer`, `watermark`), P3 (`wait_group`), P6 (`flusher`).
//! - P4: leadership is taken by a compare-and-swap (Acquire) and freed by a store (Release), which
//!   orders the leaders. A waiter registers before its last try to take leadership, and a leader
//!   frees leadership before it looks for candidates. By P3 either the leader finds the
//!   registration, or the registration comes later. Then the waiter finds leadership free, or a
//!   later leader finds the registration.
//! - P5: *written* is read (Acquire) before `sync` begins, so the bytes that become durable were in
//!   the store when the sync began.
//!
//! # Progress
//! A leader waits for the write lock, the device and, by polls without the write lock, the owner of
//! a hole. Then all waiters wait for the same hole: everything below it, or with `pad_to_block`
//! below the last block end, is durable. `docs/concurrency.md` has the proof.
//!
//! # Why not
//! One mutex around write and sync: nobody could make room while a sync runs. A queue that passes
//! leadership on: a thread that does not run may then hold it.
//!
//! # Checked by
//! `no_wake_up_is_lost`, `the_owner_of_a_hole_need_not_come_back`,
//! `durable_is_never_ahead_of_the_sync`, `poison_reaches_every_waiter`,
//! `a_waker_is_woken_or_sees_completion`, `a_thread_that_yields_is_served_or_leads`.

mod async_waiters;
mod flusher;
mod leader;
mod room;
mod space_watch;
mod threads;
mod wait_group;
mod writer;
mod yields;

use std::sync::Arc;

use palisade_store::ReadStore;
use palisade_store::sync::{AtomicU64, Instant, Mutex, OnceLock, Ordering, StatCell};

use self::async_waiters::AsyncWaiters;
pub(crate) use self::async_waiters::{Key, Wait};
use self::flusher::Flusher;
use self::leader::{Gathering, Leadership};
pub(crate) use self::room::WhenFull;
use self::space_watch::SpaceWatch;
use self::threads::Worker;
use self::wait_group::{Least, WaitGroup};
pub(crate) use self::writer::WriteCursor;
use crate::buffer::{Buffer, Claim, Reserved, Stop};
use crate::events::Observer;
use crate::stats::Counters;
use crate::watermark::Watermark;
use crate::{Error, ErrorKind, Lsn, Options, Result, Store};

/// Groups of this round, of the next, and two for late threads. (Models have fewer schedules.)
const GROUPS: usize = if cfg!(loom) { 2 } else { 4 };

/// The log that all handles share. In a forked child a thread of the parent may hold its locks for
/// ever, so each call names here whether it runs there.
#[derive(Clone, Debug)]
pub(crate) struct SharedCommit(Arc<Commit>);

impl SharedCommit {
    pub(crate) fn new(commit: Commit) -> SharedCommit {
        SharedCommit(Arc::new(commit))
    }

    /// Returns the log in the process that opened it, and refuses a forked child. A call that takes
    /// a lock, also one of a handle, does this first.
    #[inline]
    pub(crate) fn own(&self) -> Result<&Arc<Commit>> {
        self.0.check_process().map(|()| &self.0)
    }

    /// Returns the log also in a forked child, for watermarks, the store's place and handle, and
    /// reservations, which check the process themselves. Takes no lock.
    #[inline]
    pub(crate) fn lock_free(&self) -> &Commit {
        &self.0
    }
}

#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) buffer: Buffer,
    pub(crate) store: Arc<Store>,
    pub(crate) filled: Watermark,
    pub(crate) durable: Watermark,
    pub(crate) counters: Counters,
    pub(crate) observer: Observer,
    cursor: Mutex<WriteCursor>,
    // With `pad_to_block`: where the next sync ends, or the last one did.
    block_end: Mutex<Lsn>,
    leadership: Leadership,
    gathering: Gathering,
    groups: [WaitGroup; GROUPS],
    observers: WaitGroup,
    // Threads that sleep in `groups` and `observers`.
    asleep: StatCell,
    async_waiters: AsyncWaiters,
    flusher: Flusher,
    pub(crate) callbacks: Worker,
    releases: Worker,
    space_watch: SpaceWatch,
    // 1 while a log that was opened above `max_bytes` takes no records: the tail is paused.
    pub(crate) refuses: AtomicU64,
    failure: OnceLock<Error>,
    // Set when observers were woken for the failure.
    announced: OnceLock<()>,
    // The LSN of the last reservation that was written to the store; 0 if there was none.
    last_written: StatCell,
    write_bytes: u64,
}

impl Commit {
    pub(crate) fn new(
        buffer: Buffer,
        store: Arc<Store>,
        base: Lsn,
        observer: Observer,
        options: &Options,
    ) -> Commit {
        Commit {
            buffer,
            store,
            filled: Watermark::new(base),
            durable: Watermark::new(base),
            counters: Counters::new(),
            cursor: Mutex::new(WriteCursor::new(base)),
            block_end: Mutex::new(base),
            leadership: Leadership::new(),
            gathering: Gathering::new(options.gather_percent),
            groups: std::array::from_fn(|_| WaitGroup::new()),
            observers: WaitGroup::new(),
            asleep: StatCell::new(0),
            async_waiters: AsyncWaiters::new(options.max_waiters),
            flusher: Flusher::new(),
            callbacks: Worker::new("palisade-callbacks"),
            releases: Worker::new("palisade-releases"),
            space_watch: SpaceWatch::new(options.soft_limit.clone(), observer.segment_bytes()),
            refuses: AtomicU64::new(0),
            failure: OnceLock::new(),
            announced: OnceLock::new(),
            last_written: StatCell::new(0),
            observer,
            write_bytes: options.write_bytes as u64,
        }
    }

    /// Waits until everything below `target` is durable. Returns false at the deadline, but leads a
    /// round first if leadership is free.
    pub(crate) fn wait(&self, target: Lsn, deadline: Option<Instant>) -> Result<bool> {
        if self.durable.read() >= target {
            return Ok(true);
        }
        self.check()?;
        let start = self.counters.begin_wait(self.gathering.note_arrival());
        // Lead before `register`: else this thread's round wakes a group for its own target, which
        // costs a system call.
        let waited = if self.leadership.try_take() {
            self.lead(target, deadline, false)
        } else {
            let yielded = self.wait_by_yields(target, deadline);
            yielded.unwrap_or_else(|| self.wait_in_group(target, deadline))
        };
        if let Ok(true) = waited {
            self.counters.end_wait(start);
        }
        waited
    }

    fn wait_in_group(&self, target: Lsn, deadline: Option<Instant>) -> Result<bool> {
        loop {
            let group = self.group_for(target);
            let seen = group.look();
            group.register(target);
            if self.durable.read() >= target {
                return Ok(true);
            }
            self.check()?;
            if self.leadership.try_take() {
                return self.lead(target, deadline, false);
            }
            if is_over(deadline) {
                return Ok(false);
            }
            self.sleep(group, seen, deadline);
            // Look before registering again: a registration for a durable target wakes the group
            // for nothing.
            if self.durable.read() >= target {
                return Ok(true);
            }
        }
    }

    /// As `wait`, but does not lead. Returns false, too, if `is_cancelled`; the thread that cancels
    /// calls `wake_observers`.
    pub(crate) fn observe(
        &self,
        target: Lsn,
        deadline: Instant,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<bool> {
        loop {
            let seen = self.observers.look();
            self.observers.register(target);
            if self.durable.read() >= target {
                return Ok(true);
            }
            self.check_goes_on(target)?;
            if is_cancelled() || is_over(Some(deadline)) {
                return Ok(false);
            }
            self.sleep(&self.observers, seen, Some(deadline));
        }
    }

    /// Returns the group of the running round if `target` is written, else that of the next round.
    fn group_for(&self, target: Lsn) -> &WaitGroup {
        // A hint: a wrong group costs a wake-up for nothing.
        let is_written = target <= self.buffer.written.peek();
        let round = self.gathering.round() + u64::from(!is_written);
        &self.groups[round as usize % GROUPS]
    }

    fn sleep(&self, group: &WaitGroup, seen: u32, deadline: Option<Instant>) {
        // Relaxed, both: a gauge.
        self.asleep.fetch_add(1, Ordering::Relaxed);
        group.sleep(seen, deadline);
        self.asleep.fetch_sub(1, Ordering::Relaxed);
    }

    fn groups(&self) -> impl Iterator<Item = &WaitGroup> {
        self.groups.iter().chain([&self.flusher.group])
    }

    /// Wakes each group with a target that *durable* has reached. If leadership is free, first
    /// wakes one thread of each other group, so that one of them leads.
    fn wake_waiters(&self, is_leadership_free: bool) {
        let durable = self.durable.peek();
        let mut reached = [false; GROUPS + 1];
        for (group, reached) in self.groups().zip(&mut reached) {
            match group.least(durable) {
                Least::Reached => *reached = true,
                Least::Beyond if is_leadership_free => group.wake_candidate(),
                Least::Beyond | Least::Nobody => {}
            }
        }
        let reached_groups = self.groups().zip(reached).filter(|(_, reached)| *reached);
        reached_groups.for_each(|(group, _)| group.wake_all());
        if let Least::Reached = self.observers.least(durable) {
            self.observers.wake_all();
        }
    }

    pub(crate) fn wake_observers(&self) {
        self.observers.wake_all();
    }

    pub(crate) fn wake_everyone(&self) {
        self.groups().chain([&self.observers]).for_each(WaitGroup::wake_all);
    }

    #[inline(always)]
    pub(crate) fn occupy(&self, claim: &Claim, bytes: u64, limit: Lsn) -> Option<Reserved<'_>> {
        claim.occupy(&self.buffer, bytes, limit, self.durable.peek())
    }

    #[inline]
    fn check_process(&self) -> Result<()> {
        if self.buffer.process.is_own() { Ok(()) } else { Err(self.forked()) }
    }

    /// Leaves the log to the parent, and returns the error of each call in a forked child. The drop
    /// of the last handle does not suffice: those of other threads of the parent stay in the child
    /// for ever.
    #[cold]
    fn forked(&self) -> Error {
        self.store.close();
        let text = "this process was forked from the one that opened the log";
        let error = Error::new(ErrorKind::Forked, text).at_path(self.store.place());
        error.with_advice("after that process has closed the log, open it in this one")
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.check_process()?;
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Refuses a log that is poisoned, or closed below `target`.
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
        let failure = self.note_failure(cause);
        self.wake_everyone();
        if self.announced.set(()).is_ok() {
            self.observer.poisoned(&failure);
        }
        failure
    }

    /// Notes the failure under the caller's locks, so that the next holder finds a poisoned log.
    /// Runs no foreign code. The caller poisons when it has freed its locks.
    pub(crate) fn note_failure(&self, cause: Error) -> Error {
        let failure = self.failure.get_or_init(|| cause.with_kind(ErrorKind::Poisoned));
        self.buffer.stop(Stop::Poisoned);
        failure.clone()
    }

    /// Notes a panic of `call` before the caller's locks are freed.
    pub(crate) fn note_panic<R>(&self, call: impl FnOnce() -> R) -> R {
        if_it_panics(call, || drop(self.note_failure(panicked())))
    }

    /// Poisons the log if `call`, which calls the store, panics: only a fault of the log can cause
    /// this.
    pub(crate) fn poison_on_panic<R>(&self, call: impl FnOnce() -> R) -> R {
        if_it_panics(call, || drop(self.poison(panicked())))
    }

    /// Returns the threads, async waiters and due callbacks; 0 in a forked child.
    pub(crate) fn waiters(&self) -> u64 {
        if !self.buffer.process.is_own() {
            return 0;
        }
        // Relaxed: a gauge.
        let asleep = self.asleep.load(Ordering::Relaxed);
        asleep + self.async_waiters.len() + self.callbacks.len() as u64
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Poisoned, "the log panicked in a call that changes files")
}

fn if_it_panics<R>(call: impl FnOnce() -> R, then: impl Fn()) -> R {
    struct Guard<F: Fn()>(F);
    impl<F: Fn()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let guard = Guard(then);
    let result = call();
    std::mem::forget(guard);
    result
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| Instant::now() >= at)
}

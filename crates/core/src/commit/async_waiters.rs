//! Futures and callbacks that wait for an LSN: two maps under a lock, ordered by LSN.
//!
//! The flusher leads for those in one map; the other holds the tails that only watch. No system
//! call, wake-up or foreign code runs under the lock: wakers are cloned, woken and dropped outside.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use palisade_store::sync::{Mutex, survive};

use super::Commit;
use crate::watermark::Watermark;
use crate::{Error, ErrorKind, Lsn, Result};

/// Runs when an LSN is durable, or will never be.
pub(crate) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// The target and a unique number, not zero, so that `None` is one word: a separate tag in the
/// `Option<Key>` of a ticket stalled each append.
pub(crate) type Key = (Lsn, NonZeroU64);

const _: () = assert!(size_of::<Option<Key>>() == size_of::<Key>());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    ForSync,
    /// Another thread leads.
    Watch,
}

/// The lowest targets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left {
    /// The flusher leads for it.
    pub(super) waiting: Option<Lsn>,
    /// The flusher looks for it after each round of another leader.
    pub(super) watching: Option<Lsn>,
}

pub(super) enum AsyncWaiter {
    Task(Waker),
    Callback(Callback),
}

#[derive(Default)]
pub(super) struct Due {
    pub(super) wakers: Vec<Waker>,
    pub(super) callbacks: Vec<Callback>,
}

impl Due {
    fn push(&mut self, waiter: AsyncWaiter) {
        match waiter {
            AsyncWaiter::Task(waker) => self.wakers.push(waker),
            AsyncWaiter::Callback(callback) => self.callbacks.push(callback),
        }
    }
}

impl fmt::Debug for AsyncWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AsyncWaiter::Task(_) => "Task",
            AsyncWaiter::Callback(_) => "Callback",
        })
    }
}

#[derive(Debug)]
pub(super) struct AsyncWaiters {
    state: Mutex<Registrations>,
    max: usize,
}

#[derive(Debug, Default)]
struct Registrations {
    waiting: BTreeMap<Key, AsyncWaiter>,
    watching: BTreeMap<Key, AsyncWaiter>,
    registered: u64,
    // For the futures whose registration is gone although their target is not durable.
    last_error: Option<Error>,
    // The flusher has ended, so no thread takes waiters out any more.
    is_closed: bool,
}

impl AsyncWaiters {
    pub(super) fn new(max: usize) -> AsyncWaiters {
        AsyncWaiters { state: Mutex::default(), max }
    }

    pub(super) fn len(&self) -> u64 {
        self.state.lock().len() as u64
    }

    pub(super) fn take_due(&self, durable: Lsn, due: &mut Due) -> Left {
        self.state.lock().take_due(durable, due)
    }

    /// Moves waiters whose target is durable into `due`, and others of `of` into `failed`, whose
    /// futures get `error`.
    pub(super) fn take_all(
        &self,
        of: &[Wait],
        durable: &Watermark,
        error: &Error,
        due: &mut Due,
        failed: &mut Due,
    ) {
        let mut state = self.state.lock();
        // Read under the lock: a callback for a record that was durable at its registration is due.
        state.take_due(durable.read(), due);
        if state.len() > 0 {
            state.last_error = Some(error.clone());
            for &wait in of {
                mem::take(state.of(wait)).into_values().for_each(|left| failed.push(left));
            }
        }
    }

    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    /// Refuses a registration if the flusher has ended, or too many wait.
    fn check_room(&self, state: &Registrations, queued: usize) -> Result<()> {
        if state.is_closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if state.len() + queued >= self.max {
            let max = self.max;
            let message =
                format!("as many futures and callbacks wait as max_waiters allows: {max}");
            return Err(Error::new(ErrorKind::TooManyWaiters, message));
        }
        Ok(())
    }
}

impl Registrations {
    fn len(&self) -> usize {
        self.waiting.len() + self.watching.len()
    }

    fn of(&mut self, wait: Wait) -> &mut BTreeMap<Key, AsyncWaiter> {
        match wait {
            Wait::ForSync => &mut self.waiting,
            Wait::Watch => &mut self.watching,
        }
    }

    fn take_due(&mut self, durable: Lsn, due: &mut Due) -> Left {
        Left {
            waiting: take_up_to(&mut self.waiting, durable, due),
            watching: take_up_to(&mut self.watching, durable, due),
        }
    }

    fn register(&mut self, wait: Wait, target: Lsn, waiter: AsyncWaiter) -> Key {
        let key = (target, NonZeroU64::MIN.saturating_add(self.registered));
        self.registered += 1;
        self.of(wait).insert(key, waiter);
        key
    }
}

/// Moves waiters up to `durable` into `due`. Returns the lowest target that is left.
fn take_up_to(
    waiters: &mut BTreeMap<Key, AsyncWaiter>,
    durable: Lsn,
    due: &mut Due,
) -> Option<Lsn> {
    while let Some(entry) = waiters.first_entry() {
        if entry.key().0 > durable {
            return Some(entry.key().0);
        }
        due.push(entry.remove());
    }
    None
}

impl Commit {
    /// Polls a future with the registration `key`. Never blocks on the store: the flusher, which
    /// the caller has started, leads or watches.
    pub(crate) fn poll_wait(
        &self,
        wait: Wait,
        target: Lsn,
        key: &mut Option<Key>,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        // A waker's clone and drop are foreign code, which may call the log: what this poll drops
        // is declared before the guard, so it is dropped after it.
        let mut waker = context.waker().clone();
        let _dropped;
        let mut state = self.async_waiters.state.lock();
        if self.durable.read() >= target {
            _dropped = key.take().and_then(|key| state.of(wait).remove(&key));
            return Poll::Ready(Ok(()));
        }
        if let Some(known) = *key {
            if let Some(AsyncWaiter::Task(registered)) = state.of(wait).get_mut(&known) {
                std::mem::swap(registered, &mut waker);
                return Poll::Pending;
            }
            *key = None;
            let error = state.last_error.clone();
            return Poll::Ready(Err(error.unwrap_or(Error::bare(ErrorKind::Closed))));
        }
        self.check()?;
        self.async_waiters.check_room(&state, self.callbacks.len())?;
        *key = Some(state.register(wait, target, AsyncWaiter::Task(waker)));
        drop(state);
        if wait == Wait::ForSync {
            self.gathering.note_arrival();
        }
        self.flusher.ask_to_serve();
        Poll::Pending
    }

    pub(crate) fn cancel_wait(&self, wait: Wait, key: Key) {
        let cancelled = self.async_waiters.state.lock().of(wait).remove(&key);
        // A waker's drop is foreign code: outside of the lock. The caller is a drop, too.
        let _ = survive(|| drop(cancelled));
    }

    /// Registers `callback`. It runs on the callback thread, also if the target is durable already.
    /// If this fails, it never runs.
    pub(crate) fn register_callback(
        self: &Arc<Self>,
        target: Lsn,
        callback: Callback,
    ) -> Result<()> {
        self.check()?;
        self.start_worker(|log| &log.callbacks)?;
        {
            // A callback that is refused is dropped with the caller's frame, outside of the lock.
            let mut state = self.async_waiters.state.lock();
            self.async_waiters.check_room(&state, self.callbacks.len())?;
            state.register(Wait::ForSync, target, AsyncWaiter::Callback(callback));
        }
        self.gathering.note_arrival();
        self.flusher.ask_to_serve();
        Ok(())
    }
}

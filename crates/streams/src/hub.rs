//! How the tails of one stream learn of its changes.
//!
//! 1. A change notes in the stream what it did, frees the stripe's lock, counts the change here and
//!    wakes all tails.
//! 2. A tail reads the count, then looks at the stream. If it finds nothing, it waits until the
//!    count is another one. So it does not sleep through a change that came after its look.
//! 3. A task waits for the end of the log, too. After the end it looks at the stream once more: an
//!    append before the end may have noted its entry after the last look, and woken nobody yet.
//!
//! Checked by the models `a_thread_misses_no_entry`, `a_task_misses_no_entry`,
//! `a_task_misses_no_entry_before_the_end` and `no_entry_behind_a_replaced_one_is_found`.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker, ready};

use palisade::{Error, Result};
use palisade_store::sync::{Condvar, Instant, Mutex, survive};

use crate::directory::{Directory, deleted};
use crate::entries::Place;
use crate::record::StreamId;
use crate::write::truncated;

/// Shared by the tails of one stream. The last of them removes it.
///
/// A waker is foreign code. So it is cloned, dropped and woken outside of the lock, and one that
/// panics neither keeps the others from being woken nor fails the change.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    changes: u64,
    tails: HashMap<u64, Follower>,
    next_tail: u64,
}

/// What the hub has of one tail.
#[derive(Debug)]
struct Follower {
    /// The least next index of the truncations of the suffix that the tail has not seen.
    cut: u64,
    /// The task that waits for a change.
    waker: Option<Waker>,
}

/// What a tail has found in the stream.
#[derive(Debug)]
pub(crate) enum Found<P> {
    /// Where the next entry is.
    At(P),
    /// There is no next entry after so many changes.
    Nothing { changes: u64 },
}

impl Hub {
    /// Adds a tail, and returns its number.
    pub(crate) fn add(&self) -> u64 {
        let mut state = self.state.lock();
        state.next_tail += 1;
        let tail = state.next_tail;
        state.tails.insert(tail, Follower { cut: u64::MAX, waker: None });
        tail
    }

    /// Removes a tail. Returns whether it was the last one, and its waker, which the caller drops
    /// without a lock.
    pub(crate) fn remove(&self, tail: u64) -> (bool, Option<Waker>) {
        let mut state = self.state.lock();
        let removed = state.tails.remove(&tail);
        (state.tails.is_empty(), removed.and_then(|tail| tail.waker))
    }

    fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Looks for entry `next` of stream `id`, the next one of `tail`.
    ///
    /// # Errors
    /// `NotFound`, `Truncated`, `Corrupt`: as [`Tail::next`](crate::Tail::next).
    pub(crate) fn look(
        &self,
        directory: &Directory,
        id: StreamId,
        tail: u64,
        next: u64,
    ) -> Result<Found<Place>> {
        // Before the look at the stream: else the wait sleeps through a change between the two.
        let changes = self.changes();
        let stripe = directory.lock_of(id);
        let slot = stripe.slot(id).ok_or_else(deleted)?;
        // Under the stripe's lock: else a truncation and an append can come between.
        if let Some(cut) = self.cut_below(tail, next) {
            return Err(truncated(cut, slot.first()));
        }
        Ok(slot.place_of(next)?.map_or(Found::Nothing { changes }, Found::At))
    }

    /// Polls for what `look` finds, or for the end of the log, which `ended` polls for.
    pub(crate) fn poll<P>(
        &self,
        tail: u64,
        context: &mut Context<'_>,
        look: impl Fn() -> Result<Found<P>>,
        mut ended: impl FnMut(&mut Context<'_>) -> Poll<Error>,
    ) -> Poll<Result<P>> {
        loop {
            match look()? {
                Found::At(place) => return Poll::Ready(Ok(place)),
                Found::Nothing { changes } => {
                    if self.register(tail, changes, context.waker()) {
                        break;
                    }
                }
            }
        }
        let error = ready!(ended(context));
        Poll::Ready(match look()? {
            Found::At(place) => Ok(place),
            Found::Nothing { .. } => Err(error),
        })
    }

    /// Returns the least next index of the truncations of the suffix that the tail has not seen.
    pub(crate) fn cut(&self, tail: u64) -> u64 {
        self.state.lock().tails.get(&tail).map_or(u64::MAX, |tail| tail.cut)
    }

    /// Returns the [`cut`](Hub::cut) if it is below `next`, where the tail is. Else forgets it: the
    /// tail has returned nothing that it removed.
    fn cut_below(&self, tail: u64, next: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let of = state.tails.get_mut(&tail)?;
        if of.cut >= next {
            of.cut = u64::MAX;
            return None;
        }
        Some(of.cut)
    }

    /// Notes a truncation of the suffix. The caller holds the stripe's lock.
    pub(crate) fn note_cut(&self, next: u64) {
        self.state.lock().tails.values_mut().for_each(|tail| tail.cut = next.min(tail.cut));
    }

    /// Wakes all tails. The caller holds no lock.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        state.changes += 1;
        let wakers: Vec<_> =
            state.tails.values_mut().filter_map(|tail| tail.waker.take()).collect();
        drop(state);
        self.changed.notify_all();
        for waker in wakers {
            let _ = survive(|| waker.wake());
        }
    }

    /// Waits for a change after `seen`, or for the deadline. Returns false after the deadline.
    pub(crate) fn wait(&self, seen: u64, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.changes == seen {
            if Instant::now() >= deadline {
                return false;
            }
            state = self.changed.wait(state, Some(deadline));
        }
        true
    }

    /// Registers a task, which the next change wakes. Returns false if there was a change after
    /// `seen`.
    #[must_use]
    fn register(&self, tail: u64, seen: u64, waker: &Waker) -> bool {
        // Declared before the guard, so that the old waker is dropped after it.
        let mut waker = Some(waker.clone());
        let mut state = self.state.lock();
        if state.changes != seen {
            return false;
        }
        if let Some(tail) = state.tails.get_mut(&tail) {
            std::mem::swap(&mut tail.waker, &mut waker);
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_change_between_the_look_and_the_registration_is_not_missed() {
        let hub = Hub::default();
        let tail = hub.add();
        let seen = hub.changes();
        hub.wake();
        assert!(!hub.register(tail, seen, Waker::noop()));
        assert!(hub.register(tail, hub.changes(), Waker::noop()));
        assert!(hub.remove(tail).1.is_some());
    }

    #[test]
    fn a_cut_stays_until_a_tail_below_it_has_looked() {
        let hub = Hub::default();
        let tail = hub.add();
        hub.note_cut(7);
        hub.note_cut(9);
        assert_eq!(
            (hub.cut(tail), hub.cut_below(tail, 8), hub.cut_below(tail, 9)),
            (7, Some(7), Some(7))
        );
        assert_eq!((hub.cut_below(tail, 7), hub.cut_below(tail, 9)), (None, None));
        assert_eq!(hub.cut(tail), u64::MAX);
    }
}

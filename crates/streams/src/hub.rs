//! How the tails of one stream learn of its changes.

use std::collections::HashMap;

use palisade_core::sync::{Condvar, Instant, Mutex};

/// Shared by the tails of one stream. The last of them removes it.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    changes: u64,
    /// For each tail: the least next index of the truncations of the suffix that it has not seen.
    cuts: HashMap<u64, u64>,
    next_tail: u64,
}

impl Hub {
    /// Adds a tail, and returns its number.
    pub(crate) fn add(&self) -> u64 {
        let mut state = self.state.lock();
        state.next_tail += 1;
        let tail = state.next_tail;
        state.cuts.insert(tail, u64::MAX);
        tail
    }

    /// Removes a tail. Returns whether it was the last one.
    pub(crate) fn remove(&self, tail: u64) -> bool {
        let mut state = self.state.lock();
        state.cuts.remove(&tail);
        state.cuts.is_empty()
    }

    /// Returns how many changes there were. A tail calls it before it looks at the stream.
    pub(crate) fn look(&self) -> u64 {
        self.state.lock().changes
    }

    /// Takes the least next index of the truncations of the suffix since the last call.
    pub(crate) fn take_cut(&self, tail: u64) -> u64 {
        let mut state = self.state.lock();
        state.cuts.insert(tail, u64::MAX).unwrap_or(u64::MAX)
    }

    /// Gives back what `take_cut` has returned.
    pub(crate) fn put_back(&self, tail: u64, cut: u64) {
        self.state.lock().cuts.insert(tail, cut);
    }

    /// Notes a truncation of the suffix. The caller holds the stripe's lock.
    pub(crate) fn note_cut(&self, next: u64) {
        self.state.lock().cuts.values_mut().for_each(|cut| *cut = next.min(*cut));
    }

    /// Wakes all tails.
    pub(crate) fn wake(&self) {
        self.state.lock().changes += 1;
        self.changed.notify_all();
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
}

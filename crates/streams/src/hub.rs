//! How the tails of one stream learn of its changes.

use std::task::Waker;

use palisade_core::sync::{Condvar, Instant, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Hub {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    changes: u64,
    /// The next index after each truncation of the suffix since the hub was made.
    cuts: Vec<u64>,
    wakers: Vec<Waker>,
}

impl Hub {
    /// Returns how many changes there were. A tail calls it before it looks at the stream.
    pub(crate) fn look(&self) -> u64 {
        self.state.lock().changes
    }

    /// Returns how many truncations of the suffix there were.
    pub(crate) fn cuts(&self) -> usize {
        self.state.lock().cuts.len()
    }

    /// Returns the least next index of the truncations after the first `seen`.
    pub(crate) fn lowest_cut(&self, seen: usize) -> Option<u64> {
        self.state.lock().cuts[seen..].iter().min().copied()
    }

    /// Notes a truncation of the suffix. The caller holds the stripe's lock.
    pub(crate) fn note_cut(&self, next: u64) {
        self.state.lock().cuts.push(next);
    }

    /// Wakes all tails. The caller holds no lock: a waker is code of the user.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        state.changes += 1;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
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

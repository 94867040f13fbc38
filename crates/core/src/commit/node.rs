//! A waiting thread: where its leader leaves the outcome, and how it is woken.
//!
//! # States
//! | state | set by | meaning |
//! |---|---|---|
//! | WAITING | the waiter, before it registers | parked or about to park |
//! | SERVED | the leader that took it from the registry | its target is durable |
//! | LEAD | the leader that let go | it holds leadership: nobody else does |
//! | FAILED | whoever failed the wait | the error lies in `error` |
//!
//! # Ordering pairs
//! - P3: `finish` (Release store, then unpark) with `outcome` (Acquire load after each return
//!   from park): the error, the served watermark and the leader's work are visible. The unpark
//!   token makes the order of store and park irrelevant: a park that begins after the unpark
//!   returns at once.
//!
//! # Checked by
//! `no_wake_up_is_lost`, `poison_reaches_every_waiter`.

use crate::Error;
use crate::sync::{AtomicU32, Mutex, Ordering, Parker};

const WAITING: u32 = 0;
const SERVED: u32 = 1;
const LEAD: u32 = 2;
const FAILED: u32 = 3;

/// What a waiter was woken for.
#[derive(Clone, Debug)]
#[must_use = "an outcome can hand leadership over"]
pub(crate) enum Outcome {
    Served,
    Lead,
    Failed(Error),
}

/// One thread's place to wait at; kept by the thread from wait to wait.
#[derive(Debug)]
pub(crate) struct Node {
    state: AtomicU32,
    parker: Parker,
    error: Mutex<Option<Error>>,
}

impl Node {
    /// A node for the current thread.
    pub(crate) fn for_current_thread() -> Node {
        Node { state: AtomicU32::new(WAITING), parker: Parker::current(), error: Mutex::new(None) }
    }

    /// Makes the node ready for another wait; it is not registered anywhere.
    pub(crate) fn reset(&self) {
        // Relaxed: the registry's lock orders it before every `finish`.
        self.state.store(WAITING, Ordering::Relaxed);
    }

    /// The outcome, once there is one.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        // Acquire: pairs with the Release in `finish` [P3].
        match self.state.load(Ordering::Acquire) {
            WAITING => None,
            SERVED => Some(Outcome::Served),
            LEAD => Some(Outcome::Lead),
            _ => Some(Outcome::Failed(self.error.lock().take().expect("FAILED has an error"))),
        }
    }

    /// Leaves the outcome and wakes the thread.
    pub(crate) fn finish(&self, outcome: Outcome) {
        let state = match outcome {
            Outcome::Served => SERVED,
            Outcome::Lead => LEAD,
            Outcome::Failed(error) => {
                *self.error.lock() = Some(error);
                FAILED
            }
        };
        // Release: publishes the error and all that the leader did; pairs with the Acquire in
        // `outcome` [P3].
        self.state.store(state, Ordering::Release);
        self.parker.unpark();
    }
}

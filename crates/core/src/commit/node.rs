//! A waiting thread: where its leader leaves the outcome, and how it is woken.
//!
//! Threads that wait at the same time sleep in the same *row* of the [`Dormitory`], so that one
//! system call wakes all whom a leader has served; each in a *lane* of its own, as far as there are
//! any, so that those who are not due sleep on.
//!
//! # States
//! | state | set by | meaning |
//! |---|---|---|
//! | WAITING | the waiter, as it registers | asleep or about to sleep |
//! | SERVED | the leader that took it from the registry | its target is durable |
//! | LEAD | the leader that let go | it leads |
//! | FAILED | whoever failed the wait | the error lies in `error` |
//!
//! # Ordering pairs
//! - P3: `finish` (Release store) with `outcome` (Acquire load): the error, the served watermark and
//!   the leader's work are visible. The row is woken after the store, and looked at before the load:
//!   P10 (`sync::wait_word`) makes a sleep that begins too late return at once.
//!
//! # Checked by
//! `no_wake_up_is_lost`, `poison_reaches_every_waiter`; the futex itself by the tests of `wait_word` only.

use crate::Error;
use crate::sync::{AtomicU32, Instant, LANES, Mutex, Ordering, WaitWord};

/// Rows of a dormitory. Each round takes the next: those of the round before are all awake long
/// before the first row's turn comes again, and where not, a few wake for nothing.
const ROWS: u32 = 8;

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
    // Row and lane.
    bed: AtomicU32,
    error: Mutex<Option<Error>>,
}

impl Node {
    pub(crate) fn new() -> Node {
        Node { state: AtomicU32::new(WAITING), bed: AtomicU32::new(0), error: Mutex::new(None) }
    }

    /// Makes the node ready for another wait in `row`; it is not registered anywhere. Waiters of the
    /// same row had best have different numbers.
    pub(crate) fn reset(&self, row: u32, number: u32) {
        // Relaxed, both: the registry's lock orders them before every `finish`.
        self.bed.store(row % ROWS * LANES + number % LANES, Ordering::Relaxed);
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

    /// Leaves the outcome, and says in which bed the thread is to be woken.
    fn finish(&self, outcome: Outcome) -> u32 {
        // Relaxed: see `reset`. Before the store that lets the thread go.
        let bed = self.bed.load(Ordering::Relaxed);
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
        bed
    }
}

/// Where a log's waiting threads sleep.
#[derive(Debug, Default)]
pub(crate) struct Dormitory {
    rows: [WaitWord; ROWS as usize],
}

impl Dormitory {
    /// Sleeps until `node` has an outcome; `None` if the deadline came first.
    pub(crate) fn sleep(&self, node: &Node, deadline: Option<Instant>) -> Option<Outcome> {
        // Relaxed: this thread's own store.
        let bed = node.bed.load(Ordering::Relaxed);
        let row = &self.rows[(bed / LANES) as usize];
        loop {
            let seen = row.look();
            if let Some(outcome) = node.outcome() {
                return Some(outcome);
            }
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return None;
            }
            row.sleep(seen, bed % LANES, deadline);
        }
    }

    /// Leaves `outcome` and wakes the thread.
    pub(crate) fn wake_one(&self, node: &Node, outcome: Outcome) {
        let mut due = Due::default();
        due.finish(node, outcome);
        self.wake(due);
    }

    /// Wakes all of `due`: one call for each row.
    pub(crate) fn wake(&self, due: Due) {
        for (row, lanes) in self.rows.iter().zip(due.lanes) {
            if lanes != 0 {
                row.wake(lanes);
            }
        }
    }
}

/// Threads that have their outcome and are to be woken.
#[derive(Debug, Default)]
pub(crate) struct Due {
    lanes: [u32; ROWS as usize],
}

impl Due {
    /// Leaves `outcome`.
    pub(crate) fn finish(&mut self, node: &Node, outcome: Outcome) {
        let bed = node.finish(outcome);
        self.lanes[(bed / LANES) as usize] |= 1 << (bed % LANES);
    }
}

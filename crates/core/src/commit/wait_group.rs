//! Threads that wait for an LSN, asleep on one word.
//!
//! One system call wakes a whole group. Committers are spread over a few groups, so that a sync
//! wakes the committers that it serves, and those that came while it ran sleep on.
//!
//! # States
//! `least` is the least LSN that a thread of the group waits for, or a smaller one whose wait has
//! ended. It is `NOBODY` if no thread waits, or if all were woken and have not registered again. A
//! value that is too small costs a wake-up, nothing else.
//!
//! # Protocol
//! Waiter, if leadership was held: (1) `register`: read the word, then lower `least` to the target.
//! (2) Look at *durable* and at the failure. (3) Try to take leadership. (4) Sleep, if the word has
//! not changed since 1. Begin again at 1.
//! Leader: (1) Publish *durable*. (2) If its own target is durable, free leadership. (3) Read
//! `least` of each group. If `least` is above *durable* and leadership is free, change the word and
//! wake one thread, the candidate. (4) For each group whose `least` is at or below *durable*: reset
//! `least`, change the word, wake all.
//! A failing thread sets the failure, then does (4) for all groups.
//!
//! # Ordering pairs
//! - P3: `register` lowers `least`, and the leader reads it, by read-modify-writes (AcqRel), so
//!   one comes first. If the waiter's does, the leader finds the target and wakes the group. If the
//!   leader's does, the waiter's look at *durable* and at the failure, which comes after, sees what
//!   was published before.
//! - P10 (`sync::wait_word`) makes a sleep that begins after the wake-up return at once.
//!
//! # Checked by
//! `no_wake_up_is_lost`, `no_wake_up_of_three_is_lost`, `poison_reaches_every_waiter`,
//! `an_observer_is_woken_by_the_sync_of_another`.

use crate::Lsn;
use crate::sync::{AtomicU64, Instant, Ordering, WaitWord};

const NOBODY: u64 = u64::MAX;

/// The least target of a group, compared with *durable*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Least {
    Nobody,
    Reached,
    Beyond,
}

#[derive(Debug)]
pub(super) struct WaitGroup {
    word: WaitWord,
    least: AtomicU64,
}

impl WaitGroup {
    pub(super) fn new() -> WaitGroup {
        WaitGroup { word: WaitWord::default(), least: AtomicU64::new(NOBODY) }
    }

    /// Reads the word, for `sleep`.
    pub(super) fn look(&self) -> u32 {
        self.word.look()
    }

    /// Registers a wait for `target`. The caller has called `look` before, and looks for what it
    /// waits for afterwards.
    pub(super) fn register(&self, target: Lsn) {
        // AcqRel: Release for the leader that reads the target; Acquire for the looks that
        // follow [P3].
        self.least.fetch_min(target.as_u64(), Ordering::AcqRel);
    }

    /// Sleeps until the next wake-up after `seen`, or the deadline. May return early.
    pub(super) fn sleep(&self, seen: u32, deadline: Option<Instant>) {
        self.word.sleep(seen, deadline);
    }

    /// Whether a thread waits, and whether for an LSN at or below `durable`.
    pub(super) fn least(&self, durable: Lsn) -> Least {
        // AcqRel, by an operation that changes nothing: a load might miss a target that was
        // registered before, and would not show the waiter what was published [P3].
        match self.least.fetch_min(NOBODY, Ordering::AcqRel) {
            NOBODY => Least::Nobody,
            least if least <= durable.as_u64() => Least::Reached,
            _ => Least::Beyond,
        }
    }

    /// Wakes one thread, the candidate: it tries to take leadership.
    pub(super) fn wake_candidate(&self) {
        self.word.wake_one();
    }

    /// Wakes all threads. Each looks again, and registers again if it has to wait.
    pub(super) fn wake_all(&self) {
        // AcqRel: as in `least`. The reset comes before the change of the word, so a thread
        // whose target is lost here has looked at the word before, and does not sleep on.
        self.least.swap(NOBODY, Ordering::AcqRel);
        self.word.wake_all();
    }
}

//! A group of threads that wait for LSNs and sleep on one word.
//!
//! One system call wakes a whole group. Committers are spread over a few groups, so that a sync
//! wakes those that it serves, and not those that arrived while it ran.
//!
//! # States
//! `least` is at most the least LSN that a registered thread waits for. It is too small if a wait
//! has ended without a wake-up of the group, which only costs a wake-up. It is `NOBODY` until a
//! thread registers, at first and after each wake-up of the whole group.
//!
//! # Protocol
//! A waiter that has found leadership held:
//! 1. Reads the word (`look`), then lowers `least` to its target (`register`).
//! 2. Looks at *durable* and at the failure.
//! 3. Tries to take leadership.
//! 4. Sleeps if the word has not changed since 1. Begins again at 1.
//!
//! A leader:
//! 1. Publishes *durable*.
//! 2. If its own target is durable, its deadline has passed or its round has failed: frees
//!    leadership.
//! 3. Reads `least` of each group. If `least` is above *durable* and the leader has freed
//!    leadership, changes the word and wakes one thread, the candidate.
//! 4. For each group whose `least` is at or below *durable*: resets `least`, changes the word, and
//!    wakes all threads.
//!
//! A thread that meets a failure sets it, then does step 4 of the leader for all groups.
//!
//! # Ordering pairs
//! - P3: the waiter lowers `least`, and the leader reads it. Both are read-modify-writes (AcqRel),
//!   so one comes first. If the waiter comes first, the leader finds the target and wakes the
//!   group. If the leader comes first, the waiter then looks at *durable* and at the failure, and
//!   sees what the leader published before.
//! - P10 (`sync::wait_word`) makes a sleep that begins after the wake-up return at once.
//!
//! # Checked by
//! `no_wake_up_is_lost`, `no_wake_up_of_three_is_lost`, `poison_reaches_every_waiter`,
//! `an_observer_is_woken_by_the_sync_of_another`.

use palisade_store::sync::{AtomicU64, Instant, Ordering, WaitWord};

use crate::Lsn;

const NOBODY: u64 = u64::MAX;

/// The least target of a group, compared with *durable*.
#[derive(Clone, Copy, Debug)]
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

    pub(super) fn look(&self) -> u32 {
        self.word.look()
    }

    /// Registers a wait, after a `look`. The caller then looks at *durable* and at the failure.
    pub(super) fn register(&self, target: Lsn) {
        // AcqRel: Release for the leader that reads the target; Acquire for the looks that
        // follow [P3].
        self.least.fetch_min(target.as_u64(), Ordering::AcqRel);
    }

    /// Sleeps until the next wake-up after `seen`, or the deadline, or less.
    pub(super) fn sleep(&self, seen: u32, deadline: Option<Instant>) {
        self.word.sleep(seen, deadline);
    }

    pub(super) fn least(&self, durable: Lsn) -> Least {
        // AcqRel: a read-modify-write that changes nothing. A load might miss a target that was
        // registered before, and would not publish the leader's writes to the waiter [P3].
        match self.least.fetch_min(NOBODY, Ordering::AcqRel) {
            NOBODY => Least::Nobody,
            least if least <= durable.as_u64() => Least::Reached,
            _ => Least::Beyond,
        }
    }

    pub(super) fn wake_candidate(&self) {
        self.word.wake_one();
    }

    /// Wakes all threads. Each looks again, and registers again if it has to wait.
    pub(super) fn wake_all(&self) {
        // AcqRel: as in `least`. The reset comes before the change of the word. So a thread whose
        // target the reset removes has read the word before the change, and the change ends or
        // prevents its sleep.
        self.least.swap(NOBODY, Ordering::AcqRel);
        self.word.wake_all();
    }
}

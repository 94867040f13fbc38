//! The handshake of the leader, which moves the tail, and the preparer, which gets space ready
//! ahead of it: no due work is missed, and the leader asks once for each round.
//!
//! # Protocol
//! Leader: (1) Store the tail. (2) Read `next_work`. If the tail has reached it, replace it by
//! `NO_WORK` and ask. Preparer: (1) Read the word. (2) Take the request; if there is none, sleep
//! unless the word has changed, and begin again at 1. (3) Read the tail and do a round. (4) Replace
//! `next_work` by the tail at which there is work again. (5) Read the tail. If it has come that
//! far, go on at 3.
//!
//! # Ordering pairs
//! - P8: the leader reads `next_work`, and the preparer replaces it, by read-modify-writes
//!   (AcqRel), so one comes first. If the preparer's does, the leader sees the new value and asks.
//!   If the leader's does, the preparer sees the tail that was stored before it.
//! - A request is set and taken by swaps (AcqRel): it shows the preparer the tail at which the
//!   leader asked.
//! - P10 (`WaitWord`) makes a sleep that begins after a request return at once.
//!
//! # Checked by
//! `no_due_work_is_missed`.

use crate::Lsn;
use crate::sync::{AtomicU32, AtomicU64, Ordering, WaitWord};

/// No tail reaches it: a round runs or is asked for.
const NO_WORK: u64 = u64::MAX;
/// Every tail reaches it: a round was put off.
const AT_ONCE: u64 = 0;

#[derive(Debug)]
pub(crate) struct Handshake {
    tail: AtomicU64,
    next_work: AtomicU64,
    is_asked: AtomicU32,
    is_stopped: AtomicU32,
    word: WaitWord,
}

impl Handshake {
    pub(crate) fn new() -> Handshake {
        Handshake {
            tail: AtomicU64::new(0),
            next_work: AtomicU64::new(NO_WORK),
            is_asked: AtomicU32::new(0),
            is_stopped: AtomicU32::new(0),
            word: WaitWord::default(),
        }
    }

    /// Moves the tail. Returns whether the caller is to ask for a round.
    #[must_use]
    pub(crate) fn follow(&self, tail: Lsn) -> bool {
        self.set_tail(tail);
        // AcqRel, by an operation that changes nothing: a load might miss the preparer's value, and
        // would not show it the tail [P8].
        if self.next_work.fetch_add(0, Ordering::AcqRel) > tail.as_u64() {
            return false;
        }
        // Relaxed: keeps the next calls from asking again. A value that the preparer has set
        // meanwhile is lost, and its next round sets another one.
        self.next_work.store(NO_WORK, Ordering::Relaxed);
        true
    }

    pub(crate) fn set_tail(&self, tail: Lsn) {
        // Relaxed: the operations that follow publish it [P8].
        self.tail.store(tail.as_u64(), Ordering::Relaxed);
    }

    pub(crate) fn tail(&self) -> Lsn {
        // Relaxed: an older tail has less work, and [P8] finds what is due.
        Lsn::new(self.tail.load(Ordering::Relaxed))
    }

    pub(crate) fn ask(&self) {
        // AcqRel: publishes the tail to the preparer, which may see the request before the change
        // of the word; pairs with the swap in `wait_until_asked`.
        self.is_asked.swap(1, Ordering::AcqRel);
        self.word.wake_all();
    }

    /// Lets the next tail ask again.
    pub(crate) fn put_off(&self) {
        // AcqRel: as in `finish_round`.
        self.next_work.swap(AT_ONCE, Ordering::AcqRel);
    }

    pub(crate) fn is_put_off(&self) -> bool {
        // Relaxed: for disks whose background work is done by the thread that asks.
        self.next_work.load(Ordering::Relaxed) == AT_ONCE
    }

    /// Ends a round, with work again at the tail `next`. Returns whether the tail has come that
    /// far.
    #[must_use]
    pub(crate) fn finish_round(&self, next: Lsn) -> bool {
        // AcqRel: either the leader sees the value, or this thread sees the leader's tail [P8].
        self.next_work.swap(next.as_u64(), Ordering::AcqRel);
        self.tail() >= next
    }

    /// Waits for a request. Returns false if the preparer is to end.
    pub(crate) fn wait_until_asked(&self) -> bool {
        loop {
            let seen = self.word.look();
            if self.is_stopped() {
                return false;
            }
            // AcqRel: pairs with the swap in `ask`.
            if self.is_asked.swap(0, Ordering::AcqRel) != 0 {
                return true;
            }
            self.word.sleep(seen, None);
        }
    }

    pub(crate) fn stop(&self) {
        // Relaxed: the change of the word publishes it [P10].
        self.is_stopped.store(1, Ordering::Relaxed);
        self.word.wake_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        // Relaxed: a step later is soon enough.
        self.is_stopped.load(Ordering::Relaxed) != 0
    }
}

//! The preparer: one thread per store that gets space ready ahead of the tail. Each round takes
//! these steps:
//! 1. Make segments up to `Shared::wanted`: at least the one that holds the tail.
//! 2. Make a spare if there is none.
//! 3. Extend the file `reserve` if it is too small.
//! 4. Zero ahead of the tail, and, if the tail is past half of its segment, the next segment. Skip
//!    this step if the tail is faster than `FLOOD_BYTES_PER_SECOND`; a new spare still gets its
//!    first zeros.
//!
//! After a lack of space or file descriptors a later round tries again, and a thread that needs a
//! segment sooner makes it in `prepare` and gets the error. Any other error poisons the log at its
//! next sync, or when a writing thread needs another segment.
//!
//! With `Background::Now` or `Background::Later` there is no thread, and no measure of the tail's
//! speed.
//!
//! # Protocol
//! The leader moves the tail. No due work is missed, and the leader asks once for each round.
//!
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

use std::sync::Arc;

use crate::disk::Background;
use crate::segment::Segments;
use crate::sync::{
    AtomicU32, AtomicU64, Instant, JoinHandle, Mutex, Ordering, WaitWord, spawn, survive,
};
use crate::{Error, ErrorKind, Lsn};

/// The most segments ahead of the tail's. `Shared::ahead` begins at one, and grows when a writing
/// thread had to make a segment.
const MAX_AHEAD: u64 = 4;
/// Above this speed zeros would double the load of the device, and large commits gain little from
/// them.
const FLOOD_BYTES_PER_SECOND: f64 = 256e6;
/// A shorter advance does not measure the speed.
const FLOOD_LEAST_BYTES: u64 = 256 << 10;
/// 1 MiB by default.
const STEPS_PER_SYNC: usize = 4;
/// No tail reaches it: a round runs or is asked for.
const NO_WORK: u64 = u64::MAX;
/// Every tail reaches it: a round was put off.
const AT_ONCE: u64 = 0;

#[derive(Debug)]
pub(crate) struct Preparer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle>>,
}

#[derive(Debug)]
struct Shared {
    segments: Arc<Segments>,
    handshake: Handshake,
    ahead: AtomicU64,
}

impl Preparer {
    pub(crate) fn new(segments: Arc<Segments>) -> Preparer {
        let shared = Shared { segments, handshake: Handshake::new(), ahead: AtomicU64::new(1) };
        Preparer { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    pub(crate) fn follow(&self, tail: Lsn) {
        if self.shared.handshake.follow(tail) {
            self.ask();
        }
    }

    pub(crate) fn start(&self, tail: Lsn) {
        self.shared.handshake.set_tail(tail);
        self.ask();
    }

    pub(crate) fn was_late(&self) {
        // Relaxed: a hint that guards nothing.
        let ahead = self.shared.ahead.load(Ordering::Relaxed);
        self.shared.ahead.store((ahead + 1).min(MAX_AHEAD), Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.finish_what_was_put_off();
        let mut thread = self.thread.lock();
        self.shared.handshake.stop();
        if let Some(thread) = thread.take() {
            // A panic of the thread has been reported where it happened.
            let _ = thread.join();
        }
    }

    fn finish_what_was_put_off(&self) {
        let shared = &self.shared;
        if shared.handshake.is_put_off() && self.background() == Background::Now {
            shared.round_for(shared.handshake.tail(), false);
        }
    }

    fn background(&self) -> Background {
        self.shared.segments.folder.disk().host().background()
    }

    fn ask(&self) {
        match self.background() {
            Background::Thread => self.ask_thread(),
            Background::Now => {
                self.shared.round_for(self.shared.handshake.tail(), false);
            }
            Background::Later => self.shared.handshake.put_off(),
        }
    }

    fn ask_thread(&self) {
        self.shared.handshake.ask();
        // If the lock is taken, `stop` is ending the thread, or another call is starting it.
        let Some(mut thread) = self.thread.try_lock() else {
            return;
        };
        if thread.is_none() && !self.shared.handshake.is_stopped() {
            let shared = Arc::clone(&self.shared);
            match spawn("palisade-prepare", move || shared.run()) {
                Ok(handle) => *thread = Some(handle),
                // Writing threads prepare what they need. The next call of `follow` asks again.
                Err(_) => self.shared.handshake.put_off(),
            }
        }
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        if !self.shared.segments.is_own() {
            // The handle names a thread of the parent. A drop would detach the thread of this
            // process that has the same identifier by chance.
            std::mem::forget(self.thread.get_mut().take());
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut pace = Pace { at: Instant::now(), tail: self.handshake.tail() };
        while self.handshake.wait_until_asked() {
            loop {
                let tail = self.handshake.tail();
                if !self.round_for(tail, pace.is_flood(tail)) || self.handshake.is_stopped() {
                    break;
                }
            }
        }
    }

    /// Runs a round, and stores the tail of the next one. Returns whether the tail has reached it.
    /// A panic poisons the log.
    fn round_for(&self, tail: Lsn, is_flood: bool) -> bool {
        let round = || {
            if !self.handshake.is_stopped() {
                self.round(tail, is_flood);
            }
            self.next_work_after(tail, is_flood)
        };
        let next = survive(round).unwrap_or_else(|| {
            self.segments.fail(Error::new(ErrorKind::Io, "the log's preparer panicked"));
            Lsn::LIMIT
        });
        self.handshake.finish_round(next)
    }

    fn round(&self, tail: Lsn, is_flood: bool) {
        let prepared = self.segments.prepare(self.wanted(tail)).map(drop);
        let kept = prepared.and_then(|()| self.segments.keep_a_spare());
        let (_, used) = self.segments.split(tail);
        if let Err(error) = kept.and_then(|()| self.segments.keep_reserve(used)) {
            // The caller that needs the space or descriptor gets the shortage. After any other
            // error the content of the file is unknown, so poison the log.
            if !error.is_shortage() {
                self.segments.fail(error);
            }
            return;
        }
        if is_flood || !self.segments.shape.does_zero() {
            return;
        }
        let (number, used) = self.segments.split(tail);
        self.zero(number, used + self.first_step_bytes().max(2 * used));
        if used > self.segments.shape.segment_bytes / 2 {
            self.zero(number + 1, self.segments.shape.segment_bytes);
        }
    }

    fn wanted(&self, tail: Lsn) -> Lsn {
        let (number, used) = self.segments.split(tail);
        // Relaxed: a hint.
        let ahead = self.ahead.load(Ordering::Relaxed);
        let is_late = used > self.segments.shape.segment_bytes / 2;
        self.segments.start_of(number + 1 + if is_late { ahead } else { 0 })
    }

    /// Zeroes segment `number` up to `goal`, in synced steps. Ends if the tail has left the
    /// segment, the preparer was stopped, or a step or sync failed.
    fn zero(&self, number: u64, goal: u64) {
        let Some(zeroing) = self.segments.begin_zeroing(number) else {
            return;
        };
        let mut unsynced_steps = 0;
        loop {
            let (tail_number, used) = self.segments.split(self.handshake.tail());
            let is_passed = self.handshake.is_stopped() || tail_number > number;
            let from = if tail_number == number { used } else { 0 };
            let stepped = !is_passed && zeroing.step(from, goal);
            unsynced_steps += usize::from(stepped);
            let is_due = unsynced_steps == STEPS_PER_SYNC || !stepped;
            if unsynced_steps > 0 && is_due && !zeroing.sync() {
                return;
            }
            if !stepped {
                return;
            }
            unsynced_steps %= STEPS_PER_SYNC;
        }
    }

    fn next_work_after(&self, tail: Lsn, is_flood: bool) -> Lsn {
        let segments = &self.segments;
        let segment_bytes = segments.shape.segment_bytes;
        let (number, used) = segments.split(tail);
        let at_the_next = segments.start_of(number + 1);
        let past_the_half = segments.start_of(number).plus(segment_bytes / 2 + 1);
        // If a round left work undone, the next attempt waits until the tail has advanced. An
        // attempt for each record would cost too much.
        let soonest = tail.plus(self.first_step_bytes().min(segment_bytes / 16));
        let mut next = if used <= segment_bytes / 2 { past_the_half } else { at_the_next };
        if segments.prepared() < self.wanted(tail) {
            next = soonest;
        }
        let ready = segments.ready(number).unwrap_or(segment_bytes);
        if segments.shape.does_zero() && ready < segment_bytes {
            let at_half_of_the_zeros = segments.start_of(number).plus(ready / 2);
            let is_undone = is_flood || at_half_of_the_zeros <= tail;
            let due = if is_undone { soonest } else { at_half_of_the_zeros };
            next = next.min(due);
        }
        next
    }

    fn first_step_bytes(&self) -> u64 {
        self.segments.shape.zero_steps.first_bytes
    }
}

/// What the leader and the preparer share: see the head of this file.
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

struct Pace {
    at: Instant,
    tail: Lsn,
}

impl Pace {
    fn is_flood(&mut self, tail: Lsn) -> bool {
        let bytes = tail.bytes_since(self.tail);
        let seconds = self.at.elapsed().as_secs_f64();
        *self = Pace { at: Instant::now(), tail };
        bytes >= FLOOD_LEAST_BYTES && bytes as f64 > seconds * FLOOD_BYTES_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::{Disk, MemDisk};
    use crate::sim::{CallKind, Effect, FaultDisk, Target};
    use crate::tests::support::{epoch, segments};

    #[test]
    fn a_round_that_panics_poisons_and_another_one_can_follow() {
        let inner = MemDisk::new().with_work_at_once();
        inner.create_folder(Path::new("/log"), 0o600).unwrap();
        let disk = FaultDisk::new(Arc::new(inner));
        let segments = Arc::new(segments(Arc::new(disk.clone()), Path::new("/log")));
        segments.begin(&epoch(1, 0), &[], false).unwrap();
        let preparer = Preparer::new(Arc::clone(&segments));
        disk.set((CallKind::Create, Target::Spare), Effect::Panic);
        preparer.start(Lsn::ZERO);
        assert!(segments.check().is_err(), "a log goes on whose files nobody knows");
        disk.set((CallKind::Create, Target::Spare), Effect::Pass);
        preparer.start(Lsn::new(1));
        preparer.stop();
    }
}

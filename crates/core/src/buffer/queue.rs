//! The queue for room: no append is overtaken by more than [`LAPS`] laps. Else short ones would
//! take each piece of room before a long one.
//!
//! # Words
//! *Place*: the entry of an append that waits for room. It holds the tail that the append saw when
//! it found none. *First*: the place with the lowest tail. *Admission limit*: the end of the room
//! that appends may take: the limit of the buffer, `written + ring`, or `LAPS` laps above the first
//! place, whichever is less.
//!
//! # Protocol
//! 1. An append reserves at once if its range would end at or below the admission limit.
//! 2. Else it takes a place, then writes what is filled and looks again.
//! 3. The first place may take room up to the limit of the buffer. Once the others have come to the
//!    admission limit, they wait, all reservations below it are filled and written, and the first
//!    place has room.
//! 4. It leaves the queue after its reservation, or with an error.
//!
//! The thread that writes raises the admission limit after each piece, and so does an append that
//! leaves the queue. Both hold the lock of the queue, so no limit that ignores a place is published
//! after that place was taken.
//!
//! # Ordering pairs
//! P2: the thread that raises the admission limit has published *written*, or has read it with
//! Acquire, and publishes the limit with Release. An append reads the limit with Acquire.
//!
//! # Progress
//! The lock is held for a few instructions. An append that does not wait takes no lock.
//!
//! # Checked by
//! `an_append_that_waits_is_overtaken_for_bounded_laps`,
//! `ring_wrap_never_overwrites_unwritten_bytes`.

use std::collections::BTreeSet;

use super::Buffer;
use crate::Lsn;

/// How many laps the tail may move on meanwhile. (Models have few records.)
pub(crate) const LAPS: u64 = if cfg!(loom) { 1 } else { 8 };

#[derive(Debug, Default)]
pub(super) struct Queue {
    next_number: u64,
    // The tail that the append saw, then a number that makes the place unique.
    places: BTreeSet<(Lsn, u64)>,
}

/// A place in the queue, until it is dropped.
#[derive(Debug)]
#[must_use = "a place that is dropped keeps no room"]
pub(crate) struct Place<'a> {
    buffer: &'a Buffer,
    key: (Lsn, u64),
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.buffer.process.is_own() {
            // This is a forked child. Another thread of the parent may have held the lock.
            return;
        }
        let mut queue = self.buffer.queue.lock();
        queue.places.remove(&self.key);
        self.buffer.raise_admission_limit(&queue);
    }
}

impl Buffer {
    pub(crate) fn take_place(&self, tail: Lsn) -> Place<'_> {
        let mut queue = self.queue.lock();
        let key = (tail, queue.next_number);
        queue.next_number += 1;
        queue.places.insert(key);
        Place { buffer: self, key }
    }

    pub(crate) fn admits(&self, end: Lsn, place: Option<&Place<'_>>) -> bool {
        let is_first = |place: &Place<'_>| self.queue.lock().places.first() == Some(&place.key);
        end <= self.admission_limit() || end <= self.limit() && place.is_some_and(is_first)
    }

    #[inline]
    pub(crate) fn admission_limit(&self) -> Lsn {
        self.admitted.read()
    }

    /// Publishes *written*, and lets appends take the room, under the write lock.
    pub(crate) fn publish_written(&self, to: Lsn) {
        self.written.publish(to);
        if self.process.is_own() {
            self.raise_admission_limit(&self.queue.lock());
        }
    }

    fn raise_admission_limit(&self, queue: &Queue) {
        let first = queue.places.first();
        let most = first.map_or(Lsn::LIMIT, |(tail, _)| tail.plus(LAPS * self.ring_bytes));
        // It never falls: a place may be older than the first one before it.
        self.admitted.publish(self.limit().min(most).max(self.admitted.peek()));
    }
}

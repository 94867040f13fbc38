//! All streams: their names, and where their entries are.
//!
//! The streams lie in [`STRIPES`] stripes, by a hash of the name. A stripe is a lock, a table of
//! names and a list of slots. A change holds its stripe's lock from the check to the end of the
//! append, so the records of a stream are in the log in the order of its changes. A batch takes the
//! locks of all its streams, in ascending order.
//!
//! An append touches little of a stream: it counts the entry in the slot, and notes in the stripe
//! where the entry is. The next one who locks the stripe for anything else than an append, and an
//! append that finds the list full or goes on to another segment, place these entries in their
//! streams. With many streams an append would else wait for the memory of its stream; a list of
//! them waits once.
//!
//! A stream without entries and values takes a slot of 32 bytes, its name, and its place in the
//! table of names.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;
use palisade::{Error, ErrorKind, Lsn, Result};
use palisade_store::sync::{Mutex, MutexGuard};

use crate::entries::{OFFSET_UNIT, Place};
use crate::hub::Hub;
use crate::record::{Anchor, StreamId};
use crate::segments::{Counted, Live, Segments};
use crate::slot::Slot;

/// A power of two: the low bits of a slot's number are its stripe's. Part of the log's format,
/// because ids are. (Models have few.)
pub(crate) const STRIPES: u32 = if cfg!(loom) { 2 } else { 1024 };
/// The most entries of a stripe that have no place in their streams yet.
const MOST_RECENT: usize = 64;

/// All stripes.
#[derive(Debug)]
pub(crate) struct Directory {
    stripes: Box<[CachePadded<Mutex<Stripe>>]>,
}

/// What is behind one lock.
#[derive(Debug)]
pub(crate) struct Stripe {
    /// The low bits of the numbers of its slots.
    number: u32,
    slots: Vec<Slot>,
    /// The names of all streams, one after the other, and what is left of deleted ones.
    text: Vec<u8>,
    /// Bytes of `text` that belong to deleted streams.
    stale_text: usize,
    /// Positions in `slots`, by name.
    names: HashTable<u32>,
    hasher: RandomState,
    /// Positions of slots without a stream.
    free: Vec<u32>,
    /// The generation of the first stream in a slot that an open has not found: see [`StreamId`].
    first_generation: u32,
    counted: Option<Counted>,
    /// The segment of what was handed over last, and how many streams of it were.
    flushed: (u32, usize),
    /// Entries in the segment of `counted` that have no place in their streams yet: the position of
    /// the slot, and the offset.
    recent: Vec<(u32, u32)>,
    /// The last record that made a stream, or a consumer of one. Who finds a stream or a consumer
    /// waits until it is durable: the call that made it may have failed, or still wait.
    pub(crate) last_made: Option<Lsn>,
}

/// Hashes a name with FNV-1a of 64 bits and a last step that spreads each bit over all bits. The
/// result is the same in every build and on every machine. Its low bits choose the stripe, the high
/// bits the shard of a set.
pub(crate) fn stable_hash(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ hash >> 32
}

impl Directory {
    pub(crate) fn new() -> Directory {
        let stripe = |number| CachePadded::new(Mutex::new(Stripe::new(number)));
        Directory { stripes: (0..STRIPES).map(stripe).collect() }
    }

    /// Returns the number of the stripe in which a stream of this name lies.
    pub(crate) fn stripe_of(name: &[u8]) -> u32 {
        stable_hash(name) as u32 % STRIPES
    }

    pub(crate) fn lock(&self, stripe: u32) -> MutexGuard<'_, Stripe> {
        let mut stripe = self.stripes[(stripe % STRIPES) as usize].lock();
        stripe.place_recent();
        stripe
    }

    /// Locks the stripe of stream `id` to append entries, and for nothing else: the entries that
    /// were appended last have no place yet.
    pub(crate) fn lock_to_append(&self, id: StreamId) -> MutexGuard<'_, Stripe> {
        self.stripes[(id.slot() % STRIPES) as usize].lock()
    }

    /// Locks the stripe of stream `id`.
    pub(crate) fn lock_of(&self, id: StreamId) -> MutexGuard<'_, Stripe> {
        self.lock(id.slot())
    }

    /// Hands what the stripes have counted to `segments`.
    pub(crate) fn flush(&self, segments: &Segments) {
        for stripe in &self.stripes {
            stripe.lock().flush(segments);
        }
    }

    /// Hands everything that the stripes have counted to `segments`, and returns the end of the
    /// log, `reserved`: every append whose record begins below it is known afterwards. It reads the
    /// end first, and an append holds the lock of its stripe until it has counted.
    pub(crate) fn flush_all(&self, segments: &Segments, reserved: impl FnOnce() -> Lsn) -> Lsn {
        let reserved = reserved();
        self.flush(segments);
        reserved
    }
}

impl Stripe {
    fn new(number: u32) -> Stripe {
        Stripe {
            number,
            slots: Vec::new(),
            text: Vec::new(),
            stale_text: 0,
            names: HashTable::new(),
            hasher: RandomState::new(),
            free: Vec::new(),
            first_generation: 0,
            counted: None,
            flushed: (0, 0),
            recent: Vec::new(),
            last_made: None,
        }
    }

    /// Returns the id of the stream with this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<StreamId> {
        let hash = self.hasher.hash_one(name);
        let at = *self.names.find(hash, |&at| self.name_at(at) == name)?;
        Some(self.id_at(at))
    }

    /// Returns the slot of stream `id`, unless the stream was deleted.
    pub(crate) fn slot(&self, id: StreamId) -> Option<&Slot> {
        let slot = self.slots.get((id.slot() / STRIPES) as usize)?;
        (slot.generation == id.generation() && slot.is_named()).then_some(slot)
    }

    /// Returns the slot of stream `id`, for a change.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub(crate) fn live(&mut self, id: StreamId) -> Result<&mut Slot> {
        let slot = self.slots.get_mut((id.slot() / STRIPES) as usize);
        slot.filter(|slot| slot.generation == id.generation() && slot.is_named())
            .ok_or_else(deleted)
    }

    /// Returns the id that the next stream gets.
    pub(crate) fn next_id(&self) -> Option<StreamId> {
        match self.free.last() {
            Some(&at) => Some(self.id_at(at)),
            None => {
                let slot = u32::try_from(self.slots.len()).ok()?.checked_mul(STRIPES)?;
                // The last generation is not used, here and below, so none is used twice.
                let is_left = self.first_generation < u32::MAX;
                is_left.then_some(StreamId::new(slot + self.number, self.first_generation))
            }
        }
    }

    /// Takes the slot of `next_id` for a stream of this name, whose anchor is in segment `home`.
    pub(crate) fn insert(&mut self, id: StreamId, name: &[u8], home: u32) {
        let at = id.slot() / STRIPES;
        if self.free.last() == Some(&at) {
            self.free.pop();
        }
        self.slot_for(id);
        self.name(id, name);
        self.slots[at as usize].home = home;
    }

    /// Returns the slot of `id`, and makes it if it is not there; `None` if a later stream has it.
    /// For an open, which reads what an id means before it reads its anchor.
    pub(crate) fn slot_for(&mut self, id: StreamId) -> Option<&mut Slot> {
        let at = (id.slot() / STRIPES) as usize;
        if self.slots.len() <= at {
            reserve_little(&mut self.slots, 1);
            self.slots.resize_with(at + 1, Slot::default);
        }
        if self.slots[at].generation < id.generation() {
            self.remove(self.id_at(at as u32));
            self.slots[at].generation = id.generation();
        }
        let slot = &mut self.slots[at];
        (slot.generation == id.generation()).then_some(slot)
    }

    /// Returns the name of the stream in the slot of `id`.
    pub(crate) fn name_of(&self, id: StreamId) -> &[u8] {
        self.name_at(id.slot() / STRIPES)
    }

    fn name_at(&self, at: u32) -> &[u8] {
        &self.text[self.slots[at as usize].name()]
    }

    /// Returns what an anchor says of stream `id`.
    pub(crate) fn anchor_of(&self, id: StreamId) -> Option<Anchor<'_>> {
        let slot = self.slot(id)?;
        let values = slot.borrowed_values();
        Some(Anchor { first: slot.first(), next: slot.next(), name: self.name_of(id), values })
    }

    /// Gives stream `id` a name of at most 65 535 bytes.
    pub(crate) fn name(&mut self, id: StreamId, name: &[u8]) {
        let at = id.slot() / STRIPES;
        if self.name_at(at) == name {
            return;
        }
        reserve_little(&mut self.text, name.len());
        self.slots[at as usize].set_name(self.text.len(), name.len());
        self.text.extend_from_slice(name);
        let Stripe { names, slots, text, hasher, .. } = self;
        let rehash = |&at: &u32| hasher.hash_one(&text[slots[at as usize].name()]);
        names.insert_unique(hasher.hash_one(name), at, rehash);
    }

    /// Takes the stream out of its slot, which the next generation can have.
    pub(crate) fn remove(&mut self, id: StreamId) -> Slot {
        let at = id.slot() / STRIPES;
        let hash = self.hasher.hash_one(self.name_at(at));
        if let Ok(entry) = self.names.find_entry(hash, |&found| found == at) {
            entry.remove();
        }
        let slot = &mut self.slots[at as usize];
        let old = std::mem::take(slot);
        slot.generation = old.generation.saturating_add(1);
        self.stale_text += old.name().len();
        if self.stale_text > self.text.len() / 2 {
            self.compact_text();
        }
        old
    }

    /// Copies the names of the streams that there are.
    fn compact_text(&mut self) {
        let text = std::mem::take(&mut self.text);
        for slot in &mut self.slots {
            let name = &text[slot.name()];
            slot.set_name(self.text.len(), name.len());
            self.text.extend_from_slice(name);
        }
        self.stale_text = 0;
    }

    /// Lets a later stream have the slot of `id`, after `remove`.
    pub(crate) fn set_free(&mut self, id: StreamId) {
        let at = id.slot() / STRIPES;
        if self.slots[at as usize].generation < u32::MAX {
            self.free.push(at);
        }
    }

    /// Calls `each` for every slot that has a generation's stream or could have one.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (StreamId, &Slot)> {
        let all = self.slots.iter().enumerate();
        all.map(|(at, slot)| (self.id_at(at as u32), slot))
    }

    pub(crate) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut()
    }

    /// Lets streams that come later have the slots that have none, with `generation` at least. The
    /// last step of an open.
    pub(crate) fn find_free(&mut self, generation: u32) {
        self.first_generation = generation;
        let (free, slots) = (&mut self.free, self.slots.iter_mut().enumerate());
        for (at, slot) in slots.rev().filter(|(_, slot)| !slot.is_named()) {
            slot.generation = slot.generation.max(generation);
            if slot.generation < u32::MAX {
                free.push(at as u32);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Counts a record that begins at `lsn` and takes `bytes`. Returns whether it is the stripe's
    /// first in its segment.
    pub(crate) fn count(&mut self, segments: &Segments, lsn: Lsn, bytes: u64) -> bool {
        let is_in = |counted: &Counted| lsn.bytes_since(counted.start) < segments.bytes();
        if self.counted.as_ref().is_some_and(|counted| !is_in(counted)) {
            self.flush(segments);
        }
        let is_first = self.counted.is_none();
        let counted = self.counted.get_or_insert_with(|| Counted::new(segments, lsn));
        counted.records += 1;
        counted.bytes += bytes;
        is_first
    }

    /// Notes that the record which was counted last is of stream `id`.
    pub(crate) fn note_stream(&mut self, id: StreamId) {
        if let Some(counted) = &mut self.counted {
            counted.note_stream(id);
        }
    }

    /// Counts more that is live in the segment of the last record.
    pub(crate) fn add_live(&mut self, more: Live) {
        if let Some(counted) = &mut self.counted {
            counted.live.add(more);
        }
    }

    /// Counts what the record at `lsn` has removed as not live: what of which segment.
    pub(crate) fn remove_live(&mut self, segments: &Segments, lsn: Lsn, removed: &[(u32, Live)]) {
        // First: a keeper that finds a segment without anything live makes this record durable.
        segments.note_removal(lsn);
        for &(segment, mut gone) in removed {
            if let Some(counted) = self.counted.as_mut().filter(|of| of.segment == segment) {
                gone = counted.live.take(gone);
            }
            if !gone.is_none() {
                segments.remove_live(segment, gone);
            }
        }
    }

    /// Returns whether entry `index` of stream `id` is there, and at `place`.
    pub(crate) fn is_at(&self, id: StreamId, index: u64, place: Place) -> bool {
        let entries = self.slot(id).and_then(|slot| slot.entries());
        entries.is_some_and(|entries| entries.get(index) == Some(place))
    }

    /// Notes that entry `index` of stream `id`, which was at `old`, is at `new` now. The copy there
    /// was counted before.
    pub(crate) fn put_copy(
        &mut self,
        segments: &Segments,
        id: StreamId,
        index: u64,
        (old, new): (Place, Lsn),
    ) -> Result<()> {
        self.add_live(Live::ENTRY);
        let place = segments.place(new);
        self.live(id)?.change(|entries| entries.put(index, place));
        self.remove_live(segments, new, &[(old.segment, Live::ENTRY)]);
        Ok(())
    }

    /// Notes that the next entry of stream `id` is at `lsn`. It was counted before. Returns the hub
    /// that the caller wakes when it has freed the lock.
    pub(crate) fn push(&mut self, id: StreamId, lsn: Lsn) -> Option<Arc<Hub>> {
        let counted = self.counted.as_mut()?;
        counted.live.add(Live::ENTRY);
        let offset = (lsn.bytes_since(counted.start) / OFFSET_UNIT) as u32;
        let at = id.slot() / STRIPES;
        let hub = self.slots.get_mut(at as usize)?.push();
        if self.recent.len() == MOST_RECENT {
            self.place_recent();
        }
        self.recent.push((at, offset));
        hub
    }

    /// Places the entries in their streams that have no place yet.
    fn place_recent(&mut self) {
        let Some(counted) = self.counted.as_mut().filter(|_| !self.recent.is_empty()) else {
            return;
        };
        // One read of each stream, none of which waits for another: so all are in the cache then.
        let ends = self.recent.iter().map(|(at, _)| self.slots[*at as usize].last_offset());
        std::hint::black_box(ends.fold(0, u32::wrapping_add));
        for (at, offset) in self.recent.drain(..) {
            let slot = &mut self.slots[at as usize];
            slot.place(Place { segment: counted.segment, offset });
            counted.note_stream(StreamId::new(at * STRIPES + self.number, slot.generation));
        }
    }

    pub(crate) fn flush(&mut self, segments: &Segments) {
        self.place_recent();
        if let Some(mut counted) = self.counted.take() {
            let (last, before) = self.flushed;
            counted.before = if last == counted.segment { before } else { 0 };
            self.flushed = (counted.segment, counted.before + counted.streams.len());
            segments.add(counted);
        }
    }

    /// Returns the id of the stream that the slot at `at` has or had.
    fn id_at(&self, at: u32) -> StreamId {
        StreamId::new(at * STRIPES + self.number, self.slots[at as usize].generation)
    }
}

/// Makes room for `count` more. Takes memory for an eighth more: doubling would waste half of it.
fn reserve_little<T>(list: &mut Vec<T>, count: usize) {
    if list.capacity() - list.len() < count {
        list.reserve_exact(count + list.len() / 8);
    }
}

pub(crate) fn deleted() -> Error {
    let error = Error::new(ErrorKind::NotFound, "the stream was deleted");
    error.with_advice("make a stream of this name anew, if the engine still needs one")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_without_a_record_begin_with_the_greatest_generation() {
        let mut stripe = Stripe::new(5);
        let at = |slot: u32, generation| StreamId::new(slot * STRIPES + 5, generation);
        // An open has found records of the third slot only.
        stripe.insert(at(2, 0), b"found", 0);
        stripe.find_free(7);
        for (id, name) in [(at(0, 7), "a"), (at(1, 7), "b"), (at(3, 7), "c"), (at(4, 7), "d")] {
            assert_eq!(stripe.next_id(), Some(id), "{name}");
            stripe.insert(id, name.as_bytes(), 0);
            assert_eq!(stripe.find(name.as_bytes()), Some(id));
        }
        assert_eq!(stripe.find(b"found"), Some(at(2, 0)));
        stripe.remove(at(3, 7));
        stripe.set_free(at(3, 7));
        assert_eq!(stripe.next_id(), Some(at(3, 8)));

        let mut last = Stripe::new(5);
        last.find_free(u32::MAX);
        assert_eq!(last.next_id(), None);
    }
}

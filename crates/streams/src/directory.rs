//! All streams: their names, and where their entries are.
//!
//! The streams lie in [`STRIPES`] stripes, by a hash of the name. A stripe is a lock, a table of
//! names and a list of slots. A change holds its stripe's lock from the check to the end of the
//! append, so the records of a stream are in the log in the order of its changes. A batch takes the
//! locks of all its streams, in ascending order.
//!
//! A stream without entries and values takes a slot of 40 bytes, its name, and its place in the
//! table of names.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;
use palisade::{Error, ErrorKind, Lsn, Result};
use palisade_core::sync::{Mutex, MutexGuard};

use crate::entries::Entries;
use crate::hub::Hub;
use crate::record::{Anchor, StreamId};
use crate::segments::{Counted, Segments};

/// A power of two: the low bits of a slot's number are its stripe's. Part of the log's format,
/// because ids are.
pub(crate) const STRIPES: u32 = 1024;

/// Keys and values, ascending by key.
pub(crate) type Values = Vec<(Box<[u8]>, Box<[u8]>)>;

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
    /// Positions in `slots`, by name.
    names: HashTable<u32>,
    hasher: RandomState,
    /// Positions of slots without a stream.
    free: Vec<u32>,
    counted: Option<Counted>,
}

/// One stream, or a place for one.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Empty if the slot is free, or if an open has not come to the stream's anchor yet.
    pub(crate) name: Box<[u8]>,
    /// The index of the next entry, if there is no `body`: then there is no entry.
    next: u64,
    pub(crate) generation: u32,
    /// The segment of the last anchor.
    pub(crate) home: u32,
    body: Option<Box<Body>>,
}

/// What a stream has if it has entries, values or tails.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) entries: Entries,
    pub(crate) values: Values,
    /// The segment of the last record that changed a value. Also if there is no value: a footer
    /// must say that the last one was removed.
    pub(crate) values_in: Option<u32>,
    pub(crate) hub: Option<Arc<Hub>>,
}

impl Slot {
    pub(crate) fn first(&self) -> u64 {
        self.body.as_ref().map_or(self.next, |body| body.entries.first())
    }

    pub(crate) fn next(&self) -> u64 {
        self.body.as_ref().map_or(self.next, |body| body.entries.next())
    }

    pub(crate) fn entries(&self) -> Option<&Entries> {
        self.body.as_ref().map(|body| &body.entries)
    }

    pub(crate) fn values(&self) -> &Values {
        const NONE: &Values = &Vec::new();
        self.body.as_ref().map_or(NONE, |body| &body.values)
    }

    pub(crate) fn values_in(&self) -> Option<u32> {
        self.body.as_ref()?.values_in
    }

    pub(crate) fn hub(&self) -> Option<&Arc<Hub>> {
        self.body.as_ref()?.hub.as_ref()
    }

    pub(crate) fn body(&mut self) -> &mut Body {
        let next = self.next;
        self.body.get_or_insert_with(|| {
            Box::new(Body { entries: Entries::new(next), ..Body::default() })
        })
    }

    /// Notes that the last anchor, which has all values, is in `segment`.
    pub(crate) fn set_home(&mut self, segment: u32) {
        self.home = segment;
        if let Some(body) = &mut self.body {
            body.values_in = (!body.values.is_empty()).then_some(segment);
        }
    }

    /// Notes that the footer of `segment` is written: it says which values there are up to then.
    pub(crate) fn settle(&mut self, segment: u32) {
        if let Some(body) = &mut self.body {
            let is_said = body.values.is_empty() && body.values_in <= Some(segment);
            body.values_in.take_if(|_| is_said);
            self.shrink();
        }
    }

    /// Gives the body back if nothing needs it.
    pub(crate) fn shrink(&mut self) {
        self.body.take_if(|body| {
            self.next = body.entries.next();
            let has_values = !body.values.is_empty() || body.values_in.is_some();
            body.entries.is_empty() && !has_values && body.hub.is_none()
        });
    }

    /// Sets a value; the record that says so is in `segment`.
    pub(crate) fn set_value(&mut self, key: &[u8], value: Option<&[u8]>, segment: u32) {
        let Body { values, values_in, .. } = self.body();
        *values_in = Some(segment);
        let at = values.binary_search_by(|(known, _)| known[..].cmp(key));
        match (at, value) {
            (Ok(at), Some(value)) => values[at].1 = value.into(),
            (Err(at), Some(value)) => values.insert(at, (key.into(), value.into())),
            (Ok(at), None) => drop(values.remove(at)),
            (Err(_), None) => {}
        }
    }

    pub(crate) fn anchor(&self) -> Anchor<'_> {
        let values = self.values().iter().map(|(key, value)| (&key[..], &value[..])).collect();
        Anchor { first: self.first(), next: self.next(), name: &self.name, values }
    }
}

/// FNV-1a with 64 bits, and a last step that spreads what it knows over all bits. The same in every
/// build and on every machine.
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
        self.stripes[(stripe % STRIPES) as usize].lock()
    }

    /// Locks the stripe of stream `id`.
    pub(crate) fn lock_of(&self, id: StreamId) -> MutexGuard<'_, Stripe> {
        self.lock(id.slot())
    }

    /// Hands what the stripes have counted below segment `below` to `segments`. Every append whose
    /// record begins in a segment below is known afterwards, if the tail of the log had reached
    /// `below` before the call: an append holds the lock of its stripe until it has counted.
    pub(crate) fn flush(&self, segments: &Segments, below: u32) {
        for stripe in &self.stripes {
            stripe.lock().flush(segments, below);
        }
    }
}

impl Stripe {
    fn new(number: u32) -> Stripe {
        Stripe {
            number,
            slots: Vec::new(),
            names: HashTable::new(),
            hasher: RandomState::new(),
            free: Vec::new(),
            counted: None,
        }
    }

    /// Returns the id of the stream with this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<StreamId> {
        let hash = self.hasher.hash_one(name);
        let at = *self.names.find(hash, |&at| *self.slots[at as usize].name == *name)?;
        Some(self.id_at(at))
    }

    /// Returns the slot of stream `id`, unless the stream was deleted.
    pub(crate) fn slot(&self, id: StreamId) -> Option<&Slot> {
        let slot = self.slots.get((id.slot() / STRIPES) as usize)?;
        (slot.generation == id.generation() && !slot.name.is_empty()).then_some(slot)
    }

    /// Returns the slot of stream `id`, for a change.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub(crate) fn live(&mut self, id: StreamId) -> Result<&mut Slot> {
        let slot = self.slots.get_mut((id.slot() / STRIPES) as usize);
        slot.filter(|slot| slot.generation == id.generation() && !slot.name.is_empty())
            .ok_or_else(deleted)
    }

    /// Returns the id that the next stream gets.
    pub(crate) fn next_id(&self) -> Option<StreamId> {
        match self.free.last() {
            Some(&at) => Some(self.id_at(at)),
            None => {
                let slot = u32::try_from(self.slots.len()).ok()?.checked_mul(STRIPES)?;
                Some(StreamId::new(slot + self.number, 0))
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
            if self.slots.len() == self.slots.capacity() {
                self.slots.reserve_exact(2 + self.slots.len() / 8);
            }
            self.slots.resize_with(at + 1, Slot::default);
        }
        if self.slots[at].generation < id.generation() {
            self.remove(self.id_at(at as u32));
            self.slots[at].generation = id.generation();
        }
        let slot = &mut self.slots[at];
        (slot.generation == id.generation()).then_some(slot)
    }

    /// Gives stream `id` a name.
    pub(crate) fn name(&mut self, id: StreamId, name: &[u8]) {
        let at = id.slot() / STRIPES;
        if *self.slots[at as usize].name == *name {
            return;
        }
        self.slots[at as usize].name = name.into();
        let Stripe { names, slots, hasher, .. } = self;
        let hash = hasher.hash_one(name);
        let rehash = |&at: &u32| hasher.hash_one(&*slots[at as usize].name);
        names.insert_unique(hash, at, rehash);
    }

    /// Takes the stream out of its slot, which the next generation can have.
    pub(crate) fn remove(&mut self, id: StreamId) -> Slot {
        let at = id.slot() / STRIPES;
        let slot = &mut self.slots[at as usize];
        let next = Slot { generation: slot.generation.saturating_add(1), ..Slot::default() };
        let old = std::mem::replace(slot, next);
        if !old.name.is_empty() {
            let hash = self.hasher.hash_one(&*old.name);
            if let Ok(entry) = self.names.find_entry(hash, |&found| found == at) {
                entry.remove();
            }
        }
        old
    }

    /// Lets a later stream have the slot of `id`, after `remove`.
    pub(crate) fn set_free(&mut self, id: StreamId) {
        let at = id.slot() / STRIPES;
        // The last generation is not used, so none is used twice.
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

    /// Lets streams that come later have the slots that have none. The last step of an open.
    pub(crate) fn find_free(&mut self) {
        let is_free = |&at: &u32| {
            let slot = &self.slots[at as usize];
            slot.name.is_empty() && slot.generation < u32::MAX
        };
        self.free = (0..self.slots.len() as u32).rev().filter(is_free).collect();
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Counts a record of stream `id` that begins at `lsn` and takes `bytes`. Returns whether it is
    /// the stripe's first in its segment.
    pub(crate) fn count(
        &mut self,
        segments: &Segments,
        id: StreamId,
        lsn: Lsn,
        bytes: u64,
    ) -> bool {
        let segment = segments.of(lsn);
        if self.counted.as_ref().is_some_and(|counted| counted.segment != segment) {
            self.flush(segments, u32::MAX);
        }
        let is_first = self.counted.is_none();
        let counted = self.counted.get_or_insert_with(|| Counted::new(segment, lsn));
        counted.records += 1;
        counted.bytes += bytes;
        if counted.streams.last() != Some(&id) {
            counted.streams.push(id);
        }
        if counted.streams.len() == counted.streams.capacity() {
            counted.streams.sort_unstable();
            counted.streams.dedup();
            counted.streams.reserve(1 + counted.streams.len() / 4);
        }
        is_first
    }

    /// Counts one more that is live in the segment of the last record.
    pub(crate) fn add_live(&mut self) {
        if let Some(counted) = &mut self.counted {
            counted.live += 1;
        }
    }

    /// Counts `count` that are not live in `segment` any more. Returns whether the segment has
    /// nothing live then.
    pub(crate) fn remove_live(&mut self, segments: &Segments, segment: u32, count: u64) -> bool {
        if let Some(counted) = &mut self.counted
            && counted.segment == segment
        {
            let here = count.min(counted.live);
            counted.live -= here;
            return count > here && segments.remove_live(segment, count - here);
        }
        segments.remove_live(segment, count)
    }

    /// Notes that the next entry of stream `id` is at `lsn`. It was counted before. Returns the hub
    /// that the caller wakes when it has freed the lock.
    pub(crate) fn push(&mut self, segments: &Segments, id: StreamId, lsn: Lsn) -> Option<Arc<Hub>> {
        self.add_live();
        let slot = self.slots.get_mut((id.slot() / STRIPES) as usize)?;
        let body = slot.body();
        body.entries.push(segments.place(lsn));
        body.hub.clone()
    }

    pub(crate) fn flush(&mut self, segments: &Segments, below: u32) {
        if let Some(counted) = self.counted.take_if(|counted| counted.segment < below) {
            segments.add(counted);
        }
    }

    fn id_at(&self, at: u32) -> StreamId {
        StreamId::new(at * STRIPES + self.number, self.slots[at as usize].generation)
    }
}

pub(crate) fn deleted() -> Error {
    let error = Error::new(ErrorKind::NotFound, "the stream was deleted");
    error.with_advice("make a stream of this name anew, if the engine still needs one")
}

//! Entries that an open finds out of their order.
//!
//! The records of a stream are in the log by the time of their changes. So an open may find entry
//! 40 before entry 5, which was moved, or an entry far above the others that a later record
//! truncates. A list of places by index cannot have such gaps: they may be longer than the log.
//! What does not attach to the list waits here until the open ends, and the bounds of the stream
//! with it.

use std::collections::{BTreeMap, HashMap};

use crate::entries::{Entries, Place};
use crate::record::StreamId;
use crate::slot::Slot;

/// What waits for the end of the open, by stream.
#[derive(Debug, Default)]
pub(crate) struct Pending(HashMap<StreamId, Waiting>);

/// What waits of one stream.
#[derive(Debug)]
struct Waiting {
    first: u64,
    next: u64,
    entries: BTreeMap<u64, Place>,
}

impl Waiting {
    /// Removes the entries outside of `[first, next)`. The time is proportional to their number,
    /// because each record of the stream calls this.
    fn keep(&mut self, first: u64, next: u64) {
        while self.entries.first_key_value().is_some_and(|(index, _)| *index < first) {
            self.entries.pop_first();
        }
        while self.entries.last_key_value().is_some_and(|(index, _)| *index >= next) {
            self.entries.pop_last();
        }
    }
}

impl Pending {
    /// Notes that entry `index` of the stream in `slot` is at `place`.
    pub(crate) fn put(&mut self, id: StreamId, slot: &mut Slot, index: u64, place: Place) {
        // Before the anchor is read, an empty stream may begin anywhere.
        let is_free = !slot.is_named() && !self.0.contains_key(&id);
        let (first, next, is_put) = slot.change(|entries| {
            if entries.is_empty() && is_free {
                *entries = Entries::new(index);
            }
            let (first, next) = (entries.first(), entries.next());
            let fits = (first..=next).contains(&index);
            if fits {
                entries.put(index, place);
            }
            (first, next, fits)
        });
        if is_put {
            if let Some(waiting) = self.0.get_mut(&id) {
                waiting.entries.remove(&index);
            }
        } else {
            let new = || Waiting { first, next, entries: BTreeMap::new() };
            self.0.entry(id).or_insert_with(new).entries.insert(index, place);
        }
        if let Some(waiting) = self.0.get_mut(&id) {
            (waiting.first, waiting.next) = (waiting.first.min(index), waiting.next.max(index + 1));
        }
    }

    /// Removes the entries below `first`.
    pub(crate) fn truncate_before(&mut self, id: StreamId, slot: &mut Slot, first: u64) {
        slot.change(|entries| entries.truncate_before(first, |_| ()));
        if let Some(waiting) = self.0.get_mut(&id) {
            waiting.keep(first, u64::MAX);
            (waiting.first, waiting.next) = (first, waiting.next.max(first));
        }
    }

    /// Removes the entries from `next` on.
    pub(crate) fn truncate_from(&mut self, id: StreamId, slot: &mut Slot, next: u64) {
        slot.change(|entries| entries.truncate_from(next, |_| ()));
        if let Some(waiting) = self.0.get_mut(&id) {
            waiting.keep(0, next);
            (waiting.first, waiting.next) = (waiting.first.min(next), next);
        }
    }

    /// Sets the bounds. Entries between `next` and what is known are in records that follow.
    pub(crate) fn bound(&mut self, id: StreamId, slot: &mut Slot, first: u64, next: u64) {
        let begins = slot.change(|entries| {
            entries.truncate_before(first, |_| ());
            entries.truncate_from(next, |_| ());
            if entries.is_empty() {
                *entries = Entries::new(first);
            }
            entries.first()
        });
        if begins > first || self.0.contains_key(&id) {
            let new = || Waiting { first, next, entries: BTreeMap::new() };
            let waiting = self.0.entry(id).or_insert_with(new);
            waiting.keep(first, next);
            (waiting.first, waiting.next) = (first, next);
        }
    }

    /// Returns the streams of which something waits.
    pub(crate) fn streams(&self) -> Vec<StreamId> {
        self.0.keys().copied().collect()
    }

    /// Forgets a stream that was deleted.
    pub(crate) fn remove(&mut self, id: StreamId) {
        self.0.remove(&id);
    }

    /// Takes what waits for stream `id`, and puts it into its slot. Returns false if the bounds are
    /// wider than `most` entries: the log cannot have so many.
    pub(crate) fn settle(&mut self, id: StreamId, slot: &mut Slot, most: u64) -> bool {
        let Some(Waiting { first, next, entries: waiting }) = self.0.remove(&id) else {
            return true;
        };
        slot.change(|entries| {
            entries.truncate_before(first, |_| ());
            entries.truncate_from(next, |_| ());
            if next.saturating_sub(first) > most {
                return false;
            }
            let segment = waiting.values().next().map_or(0, |place| place.segment);
            if entries.is_empty() {
                *entries = Entries::new(first);
            }
            entries.extend_down_to(first, segment);
            for (index, place) in waiting {
                entries.pad_to(index, place.segment);
                entries.put(index, place);
            }
            entries.pad_to(next, segment);
            true
        })
    }
}

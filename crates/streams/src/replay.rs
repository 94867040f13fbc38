//! What the records of a log say of its streams, for a log that is not open.
//!
//! A replay depends on no footer. So it also checks what the footers say: see
//! [`verify`](crate::verify()). It applies the same rules as an open (`open`), with other means:
//! maps in place of dense queues, so a damaged index costs no memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};

use palisade::{Error, ErrorKind, Lsn, Record as LogRecord, Result};

use crate::record::{Anchor, Record, StreamId};

/// Where an entry is, how many bytes were appended, and their hash, by which a moved entry differs
/// from one that has replaced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) lsn: Lsn,
    pub(crate) bytes: u64,
    hash: u64,
}

impl At {
    pub(crate) fn new(lsn: Lsn, data: &[u8]) -> At {
        let mut hasher = DefaultHasher::new();
        hasher.write(data);
        At { lsn, bytes: data.len() as u64, hash: hasher.finish() }
    }

    fn has_same_data(&self, other: &At) -> bool {
        (self.bytes, self.hash) == (other.bytes, other.hash)
    }
}

/// What is known of one stream.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Empty before the stream's anchor is read.
    pub(crate) name: Vec<u8>,
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) entries: BTreeMap<u64, At>,
    pub(crate) values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The last anchor.
    pub(crate) anchor: Lsn,
    /// The lowest index at which the suffix was truncated since [`Replay::forget_cuts`].
    pub(crate) cut: Option<u64>,
}

impl Known {
    fn is_named(&self) -> bool {
        !self.name.is_empty()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.values.iter().map(|(key, value)| (&key[..], &value[..]))
    }

    /// Sets the bounds. Entries outside are removed.
    pub(crate) fn bound(&mut self, first: u64, next: u64) {
        self.remove_below(first);
        self.remove_from(next);
        (self.first, self.next) = (first, next);
    }

    /// Removes the entries below `first`. The time is proportional to their number, unlike that of
    /// a split of the map.
    fn remove_below(&mut self, first: u64) {
        while self.entries.first_key_value().is_some_and(|(index, _)| *index < first) {
            self.entries.pop_first();
        }
    }

    fn remove_from(&mut self, next: u64) {
        while self.entries.last_key_value().is_some_and(|(index, _)| *index >= next) {
            self.entries.pop_last();
        }
    }

    fn note_cut(&mut self, next: u64) {
        self.cut = Some(self.cut.map_or(next, |cut| cut.min(next)));
    }

    /// Notes as a cut that entries of `before` were removed or replaced by others. The records that
    /// say so may be gone.
    fn note_cut_since(&mut self, before: &Known) {
        before.cut.into_iter().for_each(|cut| self.note_cut(cut));
        let is_there = |(index, at): &(&u64, &At)| {
            self.entries.get(*index).is_some_and(|now| now.has_same_data(at))
        };
        let mut others = before.entries.range(self.first..).skip_while(is_there);
        if let Some((&index, _)) = others.next() {
            self.note_cut(index);
        }
    }

    fn truncate_from(&mut self, next: u64, notes_cut: bool) {
        if notes_cut && self.is_named() && next < self.next {
            self.note_cut(next);
        }
        // Before the anchor is read, `self.next` can be too low.
        self.remove_from(next);
        self.next = self.next.min(next.max(self.first));
    }

    fn truncate_before(&mut self, first: u64) {
        if first > self.first {
            self.remove_below(first);
            (self.first, self.next) = (first, self.next.max(first));
        }
    }

    /// Returns the indexes that the stream should have and of which no record was found, as the
    /// first and the last one of each range.
    pub(crate) fn missing(&self) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        let mut at = self.first;
        for index in self.entries.keys().copied().chain([self.next]) {
            if index > at {
                missing.push((at, index - 1));
            }
            at = index.saturating_add(1);
        }
        missing
    }
}

/// A slot of the log, of which streams have one after the other.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    known: Known,
}

/// How many records were read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) records: u64,
    pub(crate) moved: u64,
    pub(crate) footers: u64,
}

/// All streams of a log, as far as its records were read.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    slots: HashMap<u32, Slot>,
    names: BTreeMap<Vec<u8>, u32>,
    pub(crate) counts: Counts,
    /// Truncations by records below this LSN are not noted as cuts.
    cuts_from: Lsn,
}

impl Replay {
    /// Returns a replay that has read nothing, and notes truncations of a suffix from `cuts_from`
    /// on.
    pub(crate) fn new(cuts_from: Lsn) -> Replay {
        Replay { cuts_from, ..Replay::default() }
    }

    pub(crate) fn cuts_from(&self) -> Lsn {
        self.cuts_from
    }

    /// Forgets the truncations of a suffix that were noted by records below `lsn`.
    pub(crate) fn forget_cuts(&mut self, lsn: Lsn) {
        self.cuts_from = lsn;
        self.slots.values_mut().for_each(|slot| slot.known.cut = None);
    }

    /// Notes which entries of `before`, an earlier replay of the log, were removed or replaced.
    pub(crate) fn note_cuts_since(&mut self, before: &Replay) {
        for (number, slot) in &mut self.slots {
            let old = before.slots.get(number);
            if let Some(old) = old.filter(|old| old.generation == slot.generation) {
                slot.known.note_cut_since(&old.known);
            }
        }
    }

    /// Returns the stream of this name, and its id.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(StreamId, &Known)> {
        let number = *self.names.get(name)?;
        let slot = self.slots.get(&number)?;
        Some((StreamId::new(number, slot.generation), &slot.known))
    }

    /// Returns all streams whose anchor was read, by name.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (StreamId, &Known)> {
        self.names.keys().filter_map(|name| self.find(name))
    }

    /// Returns the ids of streams that have entries or values, and no anchor.
    pub(crate) fn without_anchor(&self) -> Vec<u64> {
        let is_one = |known: &Known| {
            !known.is_named() && (!known.entries.is_empty() || !known.values.is_empty())
        };
        let found = self.slots.iter().filter(|(_, slot)| is_one(&slot.known));
        let mut ids: Vec<_> =
            found.map(|(number, slot)| StreamId::new(*number, slot.generation).0).collect();
        ids.sort_unstable();
        ids
    }

    /// Returns what is known of stream `id`; `None` if a later stream has its slot.
    pub(crate) fn known(&mut self, id: StreamId) -> Option<&mut Known> {
        let slot = self.slots.entry(id.slot()).or_default();
        if slot.generation < id.generation() {
            forget_name(&mut self.names, &slot.known, id.slot());
            *slot = Slot { generation: id.generation(), known: Known::default() };
        }
        (slot.generation == id.generation()).then_some(&mut slot.known)
    }

    pub(crate) fn delete(&mut self, id: StreamId) {
        if self.known(id).is_none() {
            return;
        }
        if let Some(slot) = self.slots.get_mut(&id.slot()) {
            forget_name(&mut self.names, &slot.known, id.slot());
            let generation = slot.generation.saturating_add(1);
            *slot = Slot { generation, known: Known::default() };
        }
    }

    /// Gives stream `id` a name.
    pub(crate) fn name(&mut self, id: StreamId, name: &[u8]) {
        if let Some(known) = self.known(id)
            && known.name != name
        {
            known.name = name.to_vec();
            self.names.insert(name.to_vec(), id.slot());
        }
    }

    /// Applies a record of the log.
    pub(crate) fn apply(&mut self, record: &LogRecord<'_>) -> Result<()> {
        let lsn = record.lsn();
        if record.is_encoded() {
            let text = "the log has a codec, which this reader has not";
            let advice = "read the streams with the program that has the codec";
            return Err(Error::new(ErrorKind::Unsupported, text).at_lsn(lsn).with_advice(advice));
        }
        let decoded = Record::of(record).map_err(|error| match error.kind() {
            ErrorKind::Foreign => error.with_advice("read the log with `palisade dump`"),
            _ => error,
        })?;
        self.counts.records += 1;
        self.apply_decoded(lsn, &decoded);
        Ok(())
    }

    /// Applies a copy of a record that was applied elsewhere.
    pub(crate) fn apply_bytes(&mut self, lsn: Lsn, tag: u16, data: &[u8]) {
        if let Some(record) = Record::decode(tag, data) {
            self.apply_decoded(lsn, &record);
        }
    }

    fn apply_decoded(&mut self, lsn: Lsn, record: &Record<'_>) {
        let notes_cut = lsn >= self.cuts_from;
        match record {
            Record::Entry { id, index, data } => {
                let Some(known) = self.known(*id) else { return };
                known.truncate_from(*index, notes_cut);
                known.entries.insert(*index, At::new(lsn, data));
                known.first = known.first.min(*index);
                known.next = index.saturating_add(1);
            }
            Record::Moved { id, index, data } => {
                self.counts.moved += 1;
                let Some(known) = self.known(*id) else { return };
                // Before the anchor is read, the bounds are not known.
                if !known.is_named() || (known.first..known.next).contains(index) {
                    known.entries.insert(*index, At::new(lsn, data));
                }
            }
            Record::Anchor { id, anchor } => self.apply_anchor(lsn, *id, anchor, notes_cut),
            Record::TruncateBefore { id, first } => {
                if let Some(known) = self.known(*id) {
                    known.truncate_before(*first);
                }
            }
            Record::TruncateFrom { id, next } => {
                if let Some(known) = self.known(*id) {
                    // Also before the anchor is read, when `known.next` is not known.
                    if notes_cut {
                        known.note_cut(*next);
                    }
                    known.truncate_from(*next, false);
                }
            }
            Record::Delete { id, .. } => self.delete(*id),
            Record::Value { id, key, value } => {
                let Some(known) = self.known(*id) else { return };
                match value {
                    Some(value) => drop(known.values.insert(key.to_vec(), value.to_vec())),
                    None => drop(known.values.remove(*key)),
                }
            }
            Record::FooterPart(_) | Record::Generations(_) => {}
            Record::FooterEnd(_) => self.counts.footers += 1,
        }
    }

    fn apply_anchor(&mut self, lsn: Lsn, id: StreamId, anchor: &Anchor<'_>, notes_cut: bool) {
        let Some(known) = self.known(id) else { return };
        known.truncate_from(anchor.next, notes_cut);
        known.bound(anchor.first, anchor.next);
        known.values = owned(&anchor.values);
        known.anchor = lsn;
        self.name(id, anchor.name);
    }
}

/// Copies keys and values.
pub(crate) fn owned(values: &[(&[u8], &[u8])]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    values.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Frees the name of a stream that ends, unless another stream has it by now.
fn forget_name(names: &mut BTreeMap<Vec<u8>, u32>, known: &Known, slot: u32) {
    if names.get(&known.name) == Some(&slot) {
        names.remove(&known.name);
    }
}

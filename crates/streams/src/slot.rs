//! What there is of one stream in memory.

use std::ops::Range;
use std::sync::Arc;

use palisade::{Error, ErrorKind, Result};

use crate::entries::{Entries, Place};
use crate::hub::Hub;
use crate::write::truncated;

/// Keys and values, ascending by key.
pub(crate) type Values = Vec<(Box<[u8]>, Box<[u8]>)>;

/// One stream, or a place for one.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Where the name begins in the stripe's text.
    name_at: u32,
    /// 0 if the slot is free, or if an open has not come to the stream's anchor yet.
    name_len: u16,
    has_hub: bool,
    /// The index of the next entry. It counts entries that have no place yet.
    next: u64,
    pub(crate) generation: u32,
    /// The segment of the last anchor.
    pub(crate) home: u32,
    body: Option<Box<Body>>,
}

/// What a stream has if it has entries, values or tails.
#[derive(Debug, Default)]
struct Body {
    entries: Entries,
    extras: Option<Box<Extras>>,
}

/// What few streams have.
#[derive(Debug, Default)]
struct Extras {
    values: Values,
    /// The segment of the last record that changed a value. Also if there is no value: a footer
    /// must say that the last one was removed.
    values_in: Option<u32>,
    hub: Option<Arc<Hub>>,
}

impl Slot {
    /// Returns whether a stream has the slot and its name is known.
    pub(crate) fn is_named(&self) -> bool {
        self.name_len > 0
    }

    /// Returns where the name is in the stripe's text.
    pub(crate) fn name(&self) -> Range<usize> {
        let at = self.name_at as usize;
        at..at + usize::from(self.name_len)
    }

    pub(crate) fn set_name(&mut self, at: usize, len: usize) {
        (self.name_at, self.name_len) = (at as u32, len as u16);
    }

    pub(crate) fn first(&self) -> u64 {
        self.body.as_ref().map_or(self.next, |body| body.entries.first())
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Notes the next entry, which gets its place later. Returns the hub if there is one.
    pub(crate) fn push(&mut self) -> Option<Arc<Hub>> {
        self.body();
        self.next += 1;
        if self.has_hub { self.hub().cloned() } else { None }
    }

    /// Says where the first entry is that has no place yet.
    pub(crate) fn place(&mut self, place: Place) {
        self.body().entries.push(place);
    }

    /// Returns the offset of the last entry that has a place, or 0: what `place` reads.
    pub(crate) fn last_offset(&self) -> u32 {
        self.entries().map_or(0, Entries::last_offset)
    }

    /// Changes the entries. All of them have a place.
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut Entries) -> R) -> R {
        let entries = &mut self.body().entries;
        let result = change(entries);
        self.next = entries.next();
        result
    }

    pub(crate) fn entries(&self) -> Option<&Entries> {
        self.body.as_ref().map(|body| &body.entries)
    }

    /// Returns where entry `index` is, or `None` if there is no such entry yet.
    ///
    /// # Errors
    /// `Truncated`: it was truncated. `Corrupt`: an open has not found it in the log.
    pub(crate) fn place_of(&self, index: u64) -> Result<Option<Place>> {
        if index < self.first() {
            return Err(truncated(index, self.first()));
        }
        let place = self.entries().and_then(|entries| entries.get(index));
        if place.is_none() && index < self.next {
            let text = format!("entry {index} is missing in the log");
            let advice = "restore the log from a backup, or truncate the stream";
            return Err(Error::new(ErrorKind::Corrupt, text).with_advice(advice));
        }
        Ok(place)
    }

    pub(crate) fn values(&self) -> &Values {
        const NONE: &Values = &Vec::new();
        self.extras().map_or(NONE, |extras| &extras.values)
    }

    /// Returns the value of `key`.
    pub(crate) fn value(&self, key: &[u8]) -> Option<&[u8]> {
        let values = self.values();
        let at = values.binary_search_by(|(known, _)| known[..].cmp(key)).ok()?;
        Some(&values[at].1)
    }

    pub(crate) fn values_in(&self) -> Option<u32> {
        self.extras()?.values_in
    }

    pub(crate) fn hub(&self) -> Option<&Arc<Hub>> {
        self.extras()?.hub.as_ref()
    }

    fn extras(&self) -> Option<&Extras> {
        self.body.as_ref()?.extras.as_deref()
    }

    fn body(&mut self) -> &mut Body {
        let next = self.next;
        self.body.get_or_insert_with(|| {
            Box::new(Body { entries: Entries::new(next), ..Body::default() })
        })
    }

    fn extras_mut(&mut self) -> &mut Extras {
        self.body().extras.get_or_insert_default()
    }

    /// Returns the hub of the stream's tails, and makes it if there is none.
    pub(crate) fn make_hub(&mut self) -> &Arc<Hub> {
        self.has_hub = true;
        self.extras_mut().hub.get_or_insert_default()
    }

    pub(crate) fn drop_hub(&mut self) {
        self.has_hub = false;
        if self.extras().is_some() {
            self.extras_mut().hub = None;
            self.shrink();
        }
    }

    /// Notes that the last anchor, which has all values, is in `segment`.
    pub(crate) fn set_home(&mut self, segment: u32) {
        self.home = segment;
        if self.extras().is_some() {
            self.extras_mut().values_in = Some(segment);
        }
    }

    /// Notes that the footer of `segment` is written: it says which values there are up to then.
    pub(crate) fn settle(&mut self, segment: u32) {
        if self.extras().is_some() {
            let Extras { values, values_in, .. } = self.extras_mut();
            values_in.take_if(|last| values.is_empty() && *last <= segment);
            self.shrink();
        }
    }

    /// Gives the body back if nothing needs it.
    pub(crate) fn shrink(&mut self) {
        self.body.take_if(|body| {
            body.extras.take_if(|extras| {
                let has_values = !extras.values.is_empty() || extras.values_in.is_some();
                !has_values && extras.hub.is_none()
            });
            body.entries.is_empty() && body.extras.is_none()
        });
    }

    /// Sets a value; the record that says so is in `segment`.
    pub(crate) fn set_value(&mut self, key: &[u8], value: Option<&[u8]>, segment: u32) {
        let Extras { values, values_in, .. } = self.extras_mut();
        *values_in = Some(segment);
        let at = values.binary_search_by(|(known, _)| known[..].cmp(key));
        match (at, value) {
            (Ok(at), Some(value)) => values[at].1 = value.into(),
            (Err(at), Some(value)) => values.insert(at, (key.into(), value.into())),
            (Ok(at), None) => drop(values.remove(at)),
            (Err(_), None) => {}
        }
    }

    /// Sets all values; the record that says so is in `segment`.
    pub(crate) fn set_values(&mut self, values: &[(&[u8], &[u8])], segment: u32) {
        if values.is_empty() && self.extras().is_none() {
            return;
        }
        let copy = |(key, value): &(&[u8], &[u8])| (Box::from(*key), Box::from(*value));
        let extras = self.extras_mut();
        extras.values = values.iter().map(copy).collect();
        extras.values_in = Some(segment);
    }

    /// Borrows the values as a record has them.
    pub(crate) fn borrowed_values(&self) -> Vec<(&[u8], &[u8])> {
        self.values().iter().map(|(key, value)| (&key[..], &value[..])).collect()
    }
}

//! Changes of streams: appends, batches, truncations, values, and the streams themselves.
//!
//! Each change locks the stripe of its stream, checks, appends its record and notes what it did
//! before it frees the lock. So the log has the changes of a stream in their order, and an index
//! that a caller has got is never another entry's.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use palisade::{Error, ErrorKind, Lsn, Result, framed_bytes};
use smallvec::SmallVec;

use crate::directory::{Directory, Stripe};
use crate::entries::{Entries, Removed};
use crate::hub::Hub;
use crate::positions::Position;
use crate::record::{self, Anchor, EntryHeader, StreamId};
use crate::segments::Live;
use crate::shared::Shared;
use crate::slot::Values;
use crate::ticket::Ticket;

/// The longest name of a stream, in bytes.
pub const MAX_NAME_BYTES: usize = 1024;
/// The bytes that the keys and values of one stream may take together, with 16 bytes more for each.
/// The limit is a quarter of the longest record of the log if that is less.
pub const MAX_VALUE_BYTES: usize = 64 << 10;

/// Up to so many bytes, an entry is copied behind its header: the log appends one piece faster.
const JOINED_BYTES: usize = 512;

/// What a value takes besides its key, with the byte for its kind, and its bytes.
pub(crate) const VALUE_OVERHEAD: usize = 15;

impl Shared {
    pub(crate) fn append(&self, id: StreamId, data: &[u8]) -> Result<Ticket<'_>> {
        let mut stripe = self.directory.lock_to_append(id);
        let index = stripe.live(id)?.next();
        let header = EntryHeader::new(id, index);
        let header = header.as_bytes();
        let len = header.len() + data.len();
        let taken = self.check_room(framed_bytes(len))?;
        let log = if len <= JOINED_BYTES {
            let mut joined = SmallVec::<[u8; JOINED_BYTES]>::from_slice(header);
            joined.extend_from_slice(data);
            self.wal.append_tagged(record::ENTRY, &joined)?
        } else {
            let parts = [IoSlice::new(header), IoSlice::new(data)];
            self.wal.append_vectored_tagged(record::ENTRY, &parts)?
        };
        let hub = self.push(&mut stripe, id, log.lsn(), len);
        drop((stripe, taken));
        wake(hub);
        Ok(Ticket::new(log, index))
    }

    pub(crate) fn create(&self, name: &[u8]) -> Result<(StreamId, Ticket<'_>)> {
        check_name("a stream's name", name)?;
        let mut stripe = self.directory.lock(Directory::stripe_of(name));
        if stripe.find(name).is_some() {
            let text = format!("there is a stream {} already", quoted(name));
            let advice = "open it with Streams::stream or stream_or_create, or use another name";
            return Err(Error::new(ErrorKind::AlreadyExists, text).with_advice(advice));
        }
        let id = stripe.next_id().ok_or_else(|| {
            let text = "the log has no id left for another stream";
            let advice = "copy the streams into a new log";
            Error::new(ErrorKind::OutOfRange, text).with_advice(advice)
        })?;
        let mut bytes = record::numbers(id, []);
        let anchor = Anchor { first: 0, next: 0, name, values: Vec::new() };
        record::put_anchor(&mut bytes, &anchor);
        let _taken = self.check_room(framed_bytes(bytes.len()))?;
        let log = self.append_anchor(&mut stripe, id, &bytes)?;
        stripe.insert(id, name, self.segments.of(log.lsn()));
        stripe.last_made = Some(log.lsn());
        Ok((id, Ticket::new(log, 0)))
    }

    /// Waits until the record at `made` is durable, the last that made a stream or a consumer in a
    /// stripe, unless the one that the caller has found lies in a lower segment, `found_in`.
    pub(crate) fn wait_for_made(&self, made: Option<Lsn>, found_in: Option<u32>) -> Result<()> {
        let durable = self.segments.of(self.wal.durable_lsn());
        if let Some(lsn) = made
            && found_in.is_none_or(|segment| segment >= durable)
        {
            self.wal.wait_durable(lsn)?;
        }
        Ok(())
    }

    /// Appends an encoded anchor, and counts it as live.
    pub(crate) fn append_anchor(
        &self,
        stripe: &mut Stripe,
        id: StreamId,
        bytes: &[u8],
    ) -> Result<palisade::Ticket<'_>> {
        let log = self.wal.append_tagged(record::ANCHOR, bytes)?;
        self.count(stripe, id, log.lsn(), bytes.len());
        stripe.add_live(Live::ANCHOR);
        Ok(log)
    }

    pub(crate) fn delete(&self, name: &[u8]) -> Result<Ticket<'_>> {
        let mut stripe = self.directory.lock(Directory::stripe_of(name));
        let id = stripe.find(name).ok_or_else(|| not_found(name))?;
        let (greatest, _) = self.segments.newest();
        let generation = greatest.max(id.generation().saturating_add(1));
        let numbers = [u64::from(generation)];
        let log = self.append_numbers(&mut stripe, record::DELETE, id, numbers, true)?;
        let mut slot = stripe.remove(id);
        let mut removed = vec![(slot.home, Live::ANCHOR)];
        let next = slot.next();
        slot.change(|entries| {
            entries.truncate_before(next, |(of, count)| removed.push((of, Live::entries(count))));
        });
        self.remove_live(&mut stripe, log.lsn(), &removed);
        self.segments.note_generation(generation, self.segments.of(log.lsn()));
        stripe.set_free(id);
        drop(stripe);
        wake(slot.hub().cloned());
        Ok(Ticket::new(log, 0))
    }

    pub(crate) fn truncate_before(&self, id: StreamId, first: u64) -> Result<Ticket<'_>> {
        let mut stripe = self.directory.lock_of(id);
        let slot = stripe.live(id)?;
        check_index(first, slot.next())?;
        if first <= slot.first() {
            return Ok(Ticket::new(self.wal.barrier(), slot.first()));
        }
        let leaves_none = first == slot.next();
        let numbers = [first];
        let log =
            self.append_numbers(&mut stripe, record::TRUNCATE_BEFORE, id, numbers, leaves_none)?;
        let truncate = |entries: &mut Entries, removed: &mut dyn FnMut(Removed)| {
            entries.truncate_before(first, removed);
        };
        self.remove(&mut stripe, id, log.lsn(), truncate)?;
        Ok(Ticket::new(log, first))
    }

    pub(crate) fn truncate_from(&self, id: StreamId, next: u64) -> Result<Ticket<'_>> {
        let mut stripe = self.directory.lock_of(id);
        let slot = stripe.live(id)?;
        check_index(next, slot.next())?;
        if next < slot.first() {
            return Err(truncated(next, slot.first()));
        }
        if next == slot.next() {
            return Ok(Ticket::new(self.wal.barrier(), next));
        }
        let cut = slot.consumers_above(next);
        let (log, last) = match cut[..] {
            [] => {
                let leaves_none = next == slot.first();
                let numbers = [next];
                let log = self.append_numbers(
                    &mut stripe,
                    record::TRUNCATE_FROM,
                    id,
                    numbers,
                    leaves_none,
                )?;
                let last = log.lsn();
                (log, last)
            }
            _ => self.append_cut(&mut stripe, id, next, &cut)?,
        };
        let truncate = |entries: &mut Entries, removed: &mut dyn FnMut(Removed)| {
            entries.truncate_from(next, removed);
        };
        self.remove(&mut stripe, id, last, truncate)?;
        let hub = stripe.live(id)?.hub().cloned();
        if let Some(hub) = &hub {
            hub.note_cut(next);
        }
        drop(stripe);
        wake(hub);
        Ok(Ticket::new(log, next))
    }

    /// Appends a truncation of the suffix, and sets the positions of those consumers back that have
    /// acknowledged entries from `next` on, in one atomic step. Else a crash between could leave a
    /// consumer that passes over the entries which follow. Returns where the last record is, too.
    fn append_cut(
        &self,
        stripe: &mut Stripe,
        id: StreamId,
        next: u64,
        consumers: &[Box<[u8]>],
    ) -> Result<(palisade::Ticket<'_>, Lsn)> {
        let value = Position { next, is_cut: true }.encode();
        let truncation = (record::TRUNCATE_FROM, record::numbers(id, [next]));
        let set = consumers.iter().map(|key| (record::VALUE, record::value(id, key, Some(&value))));
        let records: Vec<_> = [truncation].into_iter().chain(set).collect();
        let sum =
            framed_bytes(0) + records.iter().map(|(_, of)| framed_bytes(of.len())).sum::<u64>();
        let leaves_none = next == stripe.live(id)?.first();
        let _taken = self.check_room_for_removal(sum, leaves_none)?;
        let log = self.wal.append_batch_tagged(records.iter().map(|(tag, bytes)| (*tag, bytes)))?;
        let mut last = log.lsns()[0];
        for ((_, bytes), &lsn) in records.iter().zip(log.lsns()) {
            self.count(stripe, id, lsn, bytes.len());
            last = lsn;
        }
        for key in consumers {
            stripe.live(id)?.set_value(key, Some(&value), self.segments.of(last));
        }
        Ok((log.into(), last))
    }

    pub(crate) fn put(&self, id: StreamId, key: &[u8], value: Option<&[u8]>) -> Result<Ticket<'_>> {
        let mut stripe = self.directory.lock_of(id);
        self.check_values(stripe.live(id)?.values(), [(key, value)])?;
        let bytes = VALUE_OVERHEAD + key.len() + value.map_or(0, <[u8]>::len);
        let _taken = self.check_room_for_value(framed_bytes(bytes))?;
        let log = self.set_value(&mut stripe, id, key, value)?;
        Ok(Ticket::new(log, 0))
    }

    /// Sets a value, or removes it. The caller has checked its length, and that there is room.
    pub(crate) fn set_value(
        &self,
        stripe: &mut Stripe,
        id: StreamId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<palisade::Ticket<'_>> {
        let bytes = record::value(id, key, value);
        let log = self.wal.append_tagged(record::VALUE, &bytes)?;
        self.count(stripe, id, log.lsn(), bytes.len());
        let slot = stripe.live(id)?;
        slot.set_value(key, value, self.segments.of(log.lsn()));
        slot.shrink();
        Ok(log)
    }

    /// Appends a record that frees space. It may take more of the log than other changes.
    fn append_numbers<const N: usize>(
        &self,
        stripe: &mut Stripe,
        tag: u16,
        id: StreamId,
        numbers: [u64; N],
        leaves_none: bool,
    ) -> Result<palisade::Ticket<'_>> {
        let bytes = record::numbers(id, numbers);
        let _taken = self.check_room_for_removal(framed_bytes(bytes.len()), leaves_none)?;
        let log = self.wal.append_tagged(tag, &bytes)?;
        self.count(stripe, id, log.lsn(), bytes.len());
        Ok(log)
    }

    /// Removes entries by `truncate`, as the record at `lsn` says, and counts them as not live.
    fn remove(
        &self,
        stripe: &mut Stripe,
        id: StreamId,
        lsn: Lsn,
        truncate: impl FnOnce(&mut Entries, &mut dyn FnMut(Removed)),
    ) -> Result<()> {
        let mut removed = Vec::new();
        let slot = stripe.live(id)?;
        slot.change(|entries| {
            truncate(entries, &mut |(of, count)| removed.push((of, Live::entries(count))));
        });
        slot.shrink();
        self.remove_live(stripe, lsn, &removed);
        Ok(())
    }

    /// Counts what the record at `lsn` has removed as not live, and wakes the keeper.
    fn remove_live(&self, stripe: &mut Stripe, lsn: Lsn, removed: &[(u32, Live)]) {
        stripe.remove_live(&self.segments, lsn, removed);
        // What could not be moved may be gone.
        removed.iter().for_each(|(segment, _)| self.segments.forget_damage(*segment));
        self.keeper.wake();
    }

    /// Counts a record of `len` bytes at `lsn`.
    pub(crate) fn count(&self, stripe: &mut Stripe, id: StreamId, lsn: Lsn, len: usize) {
        self.count_record(stripe, lsn, len);
        stripe.note_stream(id);
    }

    fn count_record(&self, stripe: &mut Stripe, lsn: Lsn, len: usize) {
        if stripe.count(&self.segments, lsn, framed_bytes(len)) {
            self.notice_segment(self.segments.of(lsn));
        }
    }

    /// Counts the record of `len` bytes at `lsn`, the next entry of the stream. Returns the hub
    /// that the caller wakes when it has freed the lock.
    pub(crate) fn push(
        &self,
        stripe: &mut Stripe,
        id: StreamId,
        lsn: Lsn,
        len: usize,
    ) -> Option<Arc<Hub>> {
        self.count_record(stripe, lsn, len);
        stripe.push(id, lsn)
    }

    /// Refuses changes after which the values of a stream, now `known`, would take too much. A
    /// removal alone is never refused.
    pub(crate) fn check_values<'v>(
        &self,
        known: &'v Values,
        changes: impl IntoIterator<Item = (&'v [u8], Option<&'v [u8]>)>,
    ) -> Result<()> {
        let mut all: BTreeMap<&[u8], usize> =
            known.iter().map(|(key, value)| (&key[..], value.len())).collect();
        let mut sets_any = false;
        for (key, value) in changes {
            match value {
                Some(value) => drop(all.insert(key, value.len())),
                None => drop(all.remove(key)),
            }
            sets_any |= value.is_some();
        }
        let bytes = all.iter().map(|(key, len)| key.len() + len + VALUE_OVERHEAD).sum::<usize>();
        let most = self.max_value_bytes();
        if bytes <= most || !sets_any {
            return Ok(());
        }
        let text = format!("the stream's values would take {bytes} bytes; the most is {most}");
        let advice = "keep larger values as entries, or in a stream of their own";
        Err(Error::new(ErrorKind::TooLarge, text).with_advice(advice))
    }
}

fn wake(hub: Option<Arc<Hub>>) {
    if let Some(hub) = hub {
        hub.wake();
    }
}

pub(crate) fn check_name(what: &str, name: &[u8]) -> Result<()> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    let text = format!("{what} has 1 to {MAX_NAME_BYTES} bytes, and not {}", name.len());
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

pub(crate) fn not_found(name: &[u8]) -> Error {
    let text = format!("there is no stream {}", quoted(name));
    Error::new(ErrorKind::NotFound, text).with_advice("make it with Streams::create")
}

pub(crate) fn check_index(index: u64, next: u64) -> Result<()> {
    if index <= next {
        return Ok(());
    }
    let text = format!("index {index} is above the end of the stream, {next}");
    let advice = "use an index up to Stream::next_index";
    Err(Error::new(ErrorKind::OutOfRange, text).with_advice(advice))
}

pub(crate) fn truncated(index: u64, first: u64) -> Error {
    let text = format!("entry {index} was truncated; the first entry that is left is {first}");
    Error::new(ErrorKind::Truncated, text).with_advice("continue at Stream::first_index")
}

/// Quotes a name for an error text.
pub(crate) fn quoted(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}

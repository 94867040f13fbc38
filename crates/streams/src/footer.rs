//! Footers: what an open needs to know of a segment, so that it need not read the segment.
//!
//! When the tail of the log has left a segment, the keeper appends the segment's footer: parts,
//! then the end, which names the last part and the end of the footer before. When the end is
//! durable, the keeper moves the log's checkpoint to the next segment with records. An open
//! begins there. It finds the end of the footer, follows the chain to the head, applies the footers
//! from the lowest on, then all records from the checkpoint on. If a footer is missing or wrong, it
//! applies all records of the log instead, and the keeper writes the footers again.
//!
//! A footer is written after its segment, so it may know of later changes. That does no harm: the
//! open applies these once more, in their order, and each says what holds after it.
//!
//! # Format
//! A part has the LSN of the part before, or 0, then an item for each stream with a record in the
//! segment: its id; flags; unless the stream was deleted, first and next; with flag 2 the name,
//! because the stream's anchor is in this segment; with flag 4 the values, because a record in this
//! segment or above changed one; then the number of ranges, and for each the index of its first
//! entry, the count, and the distance of each entry from the one before, in units of 8 bytes. A
//! stream with many entries has several items.
//!
//! An end has the segment's number, the LSN of its first record, that where the next segment with
//! records begins, the LSN of the end before (0 if no segment was below), the number of records in
//! the segment and their bytes, the LSN of the last part, and the greatest generation of all slots.

use std::sync::Arc;

use palisade::{ErrorKind, Lsn, Result, Wal};

use crate::directory::Stripe;
use crate::entries::Place;
use crate::record::{self, Decoder, Encode, StreamId};
use crate::shared::Shared;

/// A part is about so long, if the log has so long records.
const PART_BYTES: usize = 256 << 10;

const DELETED: u64 = 1;
const NAMED: u64 = 2;
const VALUED: u64 = 4;

/// The end of a footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The number of the segment: its start divided by its length.
    pub(crate) segment: u64,
    /// Its first record.
    pub(crate) first: Lsn,
    /// Where the next segment with records begins.
    pub(crate) above: Lsn,
    /// The end of the footer before.
    pub(crate) previous: Option<Lsn>,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// The last part.
    pub(crate) part: Lsn,
    /// The greatest generation of all slots.
    pub(crate) generation: u32,
}

impl End {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let previous = self.previous.map_or(0, Lsn::as_u64);
        let lsns = [self.first.as_u64(), self.above.as_u64(), previous];
        bytes.number(self.segment);
        lsns.into_iter().for_each(|lsn| bytes.number(lsn));
        let generation = u64::from(self.generation);
        let numbers = [self.records, self.bytes, self.part.as_u64(), generation];
        numbers.into_iter().for_each(|number| bytes.number(number));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<End> {
        let mut from = Decoder(bytes);
        let (segment, first) = (from.number()?, Lsn::new(from.number()?));
        let (above, previous) = (Lsn::new(from.number()?), from.number()?);
        let (records, of_bytes) = (from.number()?, from.number()?);
        let part = Lsn::new(from.number()?);
        let generation = u32::try_from(from.number()?).ok()?;
        let previous = (previous > 0).then_some(Lsn::new(previous));
        let bytes = of_bytes;
        let end = End { segment, first, above, previous, records, bytes, part, generation };
        from.0.is_empty().then_some(end)
    }

    /// Reads the end of a footer at `lsn`; `None` if there is none.
    pub(crate) fn read(wal: &Wal, lsn: Lsn) -> Result<Option<End>> {
        match wal.get(lsn) {
            Ok(found) if found.tag() == record::FOOTER_END => Ok(End::decode(found.data())),
            Ok(_) => Ok(None),
            Err(error) if is_missing(error.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether an error of this kind means that what a footer names is not there, or is
/// damaged.
pub(crate) fn is_missing(kind: ErrorKind) -> bool {
    use ErrorKind::{Corrupt, NotARecord, OutOfRange, Truncated};
    matches!(kind, Corrupt | NotARecord | OutOfRange | Truncated)
}

/// What a part says of one stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stream<'a> {
    Deleted,
    Live {
        first: u64,
        next: u64,
        /// The name, if the anchor is in the segment.
        name: Option<&'a [u8]>,
        /// The values, if a record in the segment or above changed one.
        values: Option<Vec<(&'a [u8], &'a [u8])>>,
        /// The entries in the segment: each index, and its offset.
        entries: Vec<(u64, u32)>,
    },
}

/// Appends to `part` what there is of stream `id` in `segment`: up to `most` of its entries at or
/// above index `from`. Returns the index where the next piece begins, if there is one.
pub(crate) fn encode_stream(
    part: &mut Vec<u8>,
    stripe: &Stripe,
    id: StreamId,
    segment: u32,
    from: u64,
    most: usize,
) -> Option<u64> {
    part.number(id.0);
    let Some(slot) = stripe.slot(id) else {
        part.number(DELETED);
        return None;
    };
    let is_first = from == 0;
    let name = (is_first && slot.home == segment).then(|| stripe.name_of(id));
    // Also if the last change is above the segment: it says nothing of the other values.
    let has_values = slot.values_in().is_some_and(|last| last >= segment);
    let values = (is_first && has_values).then(|| slot.borrowed_values());
    let flag = |flag, is_set| if is_set { flag } else { 0 };
    part.number(flag(NAMED, name.is_some()) | flag(VALUED, values.is_some()));
    part.number(slot.first());
    part.number(slot.next());
    if let Some(name) = name {
        part.bytes(name);
    }
    if let Some(values) = values {
        record::put_values(part, &values);
    }
    let entries = slot.entries().map(|entries| entries.in_segments(from, most, |of| of == segment));
    let entries = entries.unwrap_or_default();
    let ranges =
        entries.chunk_by(|(a, before), (b, after)| *b == *a + 1 && before.offset < after.offset);
    part.number(ranges.clone().count() as u64);
    for range in ranges {
        part.number(range[0].0);
        part.number(range.len() as u64);
        let mut before = 0;
        for (_, Place { offset, .. }) in range {
            part.number(u64::from(offset - before));
            before = *offset;
        }
    }
    entries.last().filter(|_| entries.len() == most).map(|(last, _)| last + 1)
}

/// Returns the LSN of the part before, if there is one.
pub(crate) fn part_before(part: &[u8]) -> Option<Lsn> {
    Decoder(part).number().filter(|lsn| *lsn > 0).map(Lsn::new)
}

/// Calls `each` for each stream of a part. Returns `None` if the bytes are no part.
pub(crate) fn decode_part<'a>(
    part: &'a [u8],
    mut each: impl FnMut(StreamId, Stream<'a>),
) -> Option<()> {
    let mut from = Decoder(part);
    from.number()?;
    while !from.0.is_empty() {
        let id = StreamId(from.number()?);
        let flags = from.number()?;
        if flags == DELETED {
            each(id, Stream::Deleted);
            continue;
        }
        let (first, next) = (from.index()?, from.index()?);
        let name = if flags & NAMED == 0 { None } else { Some(from.bytes()?) };
        let values = if flags & VALUED == 0 { None } else { Some(from.values()?) };
        if flags & !(NAMED | VALUED) != 0 || name.is_some_and(<[u8]>::is_empty) || first > next {
            return None;
        }
        let mut entries = Vec::new();
        for _ in 0..from.number()? {
            let (range_first, count) = (from.index()?, from.number()?);
            let mut offset = 0_u64;
            for at in 0..count {
                offset = offset.checked_add(from.number()?)?;
                entries.push((range_first.checked_add(at)?, u32::try_from(offset).ok()?));
            }
        }
        each(id, Stream::Live { first, next, name, values, entries });
    }
    Some(())
}

/// A footer that is being written.
#[derive(Debug)]
pub(crate) struct Writing {
    segment: u32,
    streams: Arc<Vec<StreamId>>,
    /// The position in `streams`, and the index of the stream's next entry.
    at: (usize, u64),
    part: Option<Lsn>,
    /// The end, and where the next segment with records begins.
    end: Option<(Lsn, Lsn)>,
}

impl Shared {
    /// Begins the footer of the lowest segment below `tail` that has none.
    pub(crate) fn begin_footer(&self, tail: u32) -> Option<Writing> {
        let segment = self.segments.with(|all| {
            let mut below = all.range(..tail);
            below.find_map(|(&segment, of)| (!of.has_footer).then_some(segment))
        })?;
        let streams = self.segments.sorted_streams(segment);
        Some(Writing { segment, streams, at: (0, 0), part: None, end: None })
    }

    /// Does the next step of a footer: a part, the end, or the checkpoint. Returns whether it is
    /// done. A step that failed is done again.
    pub(crate) fn write_footer(
        &self,
        writing: &mut Writing,
        last_footer: &mut Option<Lsn>,
    ) -> Result<bool> {
        let segment = writing.segment;
        if !self.segments.with(|all| all.contains_key(&segment)) {
            // It was released meanwhile.
            return Ok(true);
        }
        let Some((end, above)) = writing.end else {
            if writing.at.0 < writing.streams.len() || writing.part.is_none() {
                self.write_part(writing)?;
            } else {
                writing.end = Some(self.write_end(writing, *last_footer)?);
            }
            return Ok(false);
        };
        self.wal.wait_durable(end)?;
        self.wal.checkpoint(above)?;
        *last_footer = Some(end);
        for &id in writing.streams.iter() {
            if let Ok(slot) = self.directory.lock_of(id).live(id) {
                slot.settle(segment);
            }
        }
        self.segments.with(|all| {
            if let Some(of) = all.get_mut(&segment) {
                of.has_footer = true;
            }
        });
        Ok(true)
    }

    fn write_part(&self, writing: &mut Writing) -> Result<()> {
        // An item has an anchor and some entries at most; a part is longer by one item at most.
        let longest = self.wal.max_record_bytes();
        let (most_bytes, most_entries) = (PART_BYTES.min(longest / 8), longest / 64);
        let mut part = Vec::new();
        part.number(writing.part.map_or(0, Lsn::as_u64));
        let mut at = writing.at;
        while let Some(&id) = writing.streams.get(at.0).filter(|_| part.len() < most_bytes) {
            let stripe = self.directory.lock_of(id);
            let rest = encode_stream(&mut part, &stripe, id, writing.segment, at.1, most_entries);
            at = rest.map_or((at.0 + 1, 0), |index| (at.0, index));
        }
        writing.part = Some(self.append_own(record::FOOTER_PART, &part)?);
        writing.at = at;
        Ok(())
    }

    /// Appends the end. Returns where it is, and where the next segment with records begins.
    fn write_end(&self, writing: &Writing, previous: Option<Lsn>) -> Result<(Lsn, Lsn)> {
        let segment = writing.segment;
        let part = writing.part.unwrap_or(Lsn::ZERO);
        // All records below the last part are counted then.
        self.directory.flush(&self.segments);
        let start = self.segments.start(segment);
        let (generation, _) = self.segments.newest();
        let mut end = self.segments.with(|all| {
            let (records, bytes) = all.get(&segment).map_or((0, 0), |of| (of.records, of.bytes));
            let first = all.get(&segment).and_then(|of| of.first).unwrap_or(start);
            // Not its first record, whose header may be damaged.
            let above = all.range(segment + 1..).find(|(_, of)| of.first.is_some());
            let above = above.map_or(part, |(&above, _)| self.segments.start(above));
            End { segment: 0, first, above, previous, records, bytes, part, generation }
        });
        end.segment = start.as_u64() / self.segments.bytes();
        Ok((self.append_own(record::FOOTER_END, &end.encode())?, end.above))
    }
}

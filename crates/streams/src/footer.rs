//! Footers: what an open needs to know of a segment, so that it need not read the segment.
//!
//! When the tail of the log has left a segment, the keeper appends the segment's footer: parts,
//! then the end, which names the parts and the end of the footer before. When the end is durable,
//! the keeper moves the log's checkpoint to the first record above the segment. An open begins
//! there. It finds the end of the footer, follows the chain to the head, applies the footers from
//! the lowest on, then all records from the checkpoint on. If anything is missing or wrong, it
//! applies all records of the log instead, and the keeper writes the footers again.
//!
//! A footer is written after its segment, so it may know of later changes. That does no harm: the
//! open applies these once more, in their order, and each says what holds after it.
//!
//! # Format
//! A part has an item for each stream with a record in the segment: its id; flags; unless it was
//! deleted, first and next; with flag 2 the name, because the stream's anchor is in this segment;
//! with flag 4 the values, because a record in this segment or above changed one; then the number
//! of ranges, and for each the index of its first entry, the count, and the distance of each entry
//! from the one before, in units of 8 bytes. A stream with many entries has several items.
//!
//! An end has the segment's number, the LSNs of its first record, of the first record above it, and
//! of the end before (0 if no segment was below), the number of records in the segment and their
//! bytes, the number of parts, and the LSN of each.

use palisade::{ErrorKind, Lsn, Result, Wal};

use crate::directory::Stripe;
use crate::entries::Place;
use crate::record::{self, Decoder, Encode, StreamId};

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
    /// The first record above the segment.
    pub(crate) above: Lsn,
    /// The end of the footer before.
    pub(crate) previous: Option<Lsn>,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) parts: Vec<Lsn>,
}

impl End {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let previous = self.previous.map_or(0, Lsn::as_u64);
        let lsns = [self.first.as_u64(), self.above.as_u64(), previous];
        bytes.number(self.segment);
        lsns.into_iter().for_each(|lsn| bytes.number(lsn));
        let numbers = [self.records, self.bytes];
        numbers.into_iter().for_each(|number| bytes.number(number));
        bytes.number(self.parts.len() as u64);
        self.parts.iter().for_each(|part| bytes.number(part.as_u64()));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<End> {
        let mut from = Decoder(bytes);
        let (segment, first) = (from.number()?, Lsn::new(from.number()?));
        let (above, previous) = (Lsn::new(from.number()?), from.number()?);
        let (records, of_bytes, count) = (from.number()?, from.number()?, from.number()?);
        let parts = (0..count).map(|_| from.number().map(Lsn::new)).collect::<Option<Vec<_>>>()?;
        let previous = (previous > 0).then_some(Lsn::new(previous));
        let end = End { segment, first, above, previous, records, bytes: of_bytes, parts };
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

/// Whether an error says that what a footer names is not there, or is damaged.
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

/// Calls `each` for each stream of a part. Returns `None` if the bytes are no part.
pub(crate) fn decode_part<'a>(
    part: &'a [u8],
    mut each: impl FnMut(StreamId, Stream<'a>) -> Option<()>,
) -> Option<()> {
    let mut from = Decoder(part);
    while !from.0.is_empty() {
        let id = StreamId(from.number()?);
        let flags = from.number()?;
        if flags == DELETED {
            each(id, Stream::Deleted)?;
            continue;
        }
        let (first, next) = (from.number()?, from.number()?);
        let name = if flags & NAMED == 0 { None } else { Some(from.bytes()?) };
        let values = if flags & VALUED == 0 { None } else { Some(from.values()?) };
        if flags & !(NAMED | VALUED) != 0 || name.is_some_and(<[u8]>::is_empty) {
            return None;
        }
        let mut entries = Vec::new();
        for _ in 0..from.number()? {
            let (range_first, count) = (from.number()?, from.number()?);
            let mut offset = 0_u64;
            for at in 0..count {
                offset = offset.checked_add(from.number()?)?;
                entries.push((range_first.checked_add(at)?, u32::try_from(offset).ok()?));
            }
        }
        each(id, Stream::Live { first, next, name, values, entries })?;
    }
    Some(())
}

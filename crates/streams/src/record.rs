//! The records that this crate appends to the log, as bytes.
//!
//! The tag of a record in the log says what it is. Its payload begins with the stream's id and,
//! where there is one, an index. Numbers are varints: seven bits a byte, the least first, and the
//! top bit set in all bytes but the last.
//!
//! | tag | record | payload |
//! |---|---|---|
//! | 0x5301 | entry | id, index, then the data |
//! | 0x5302 | moved entry: a copy of an older one | id, index, then the data |
//! | 0x5303 | anchor: all of a stream but its entries | id, first, next, name, values |
//! | 0x5304 | truncation of the prefix | id, first |
//! | 0x5305 | truncation of the suffix | id, next |
//! | 0x5306 | deletion | id, the greatest generation of all slots: see [`StreamId`] |
//! | 0x5307 | value | id, key, 0 or 1, then the value if there is one |
//! | 0x5308 | a part of a footer | see `footer` |
//! | 0x5309 | the end of a footer | see `footer` |
//! | 0x530a | generations | the greatest one of all slots |
//!
//! Names, keys and values in the middle of a payload have their length before them. The values of
//! an anchor are their number, then the key and the value of each. The first byte of a key is 0 for
//! a value that the user has set, and 1 for the position of a consumer, whose name follows. A
//! position is the index of the first entry that is not acknowledged, in 8 bytes, the least first,
//! and then 1 if a truncation of the suffix removed acknowledged entries from there on, else 0.

use palisade::{Error, ErrorKind, Lsn, Record as LogRecord, Result};

use crate::directory::STRIPES;
use crate::positions::is_valid;

pub(crate) const ENTRY: u16 = 0x5301;
pub(crate) const MOVED: u16 = 0x5302;
pub(crate) const ANCHOR: u16 = 0x5303;
pub(crate) const TRUNCATE_BEFORE: u16 = 0x5304;
pub(crate) const TRUNCATE_FROM: u16 = 0x5305;
pub(crate) const DELETE: u16 = 0x5306;
pub(crate) const VALUE: u16 = 0x5307;
pub(crate) const FOOTER_PART: u16 = 0x5308;
pub(crate) const FOOTER_END: u16 = 0x5309;
pub(crate) const GENERATIONS: u16 = 0x530a;

/// No stream has so many entries: a log would be full before.
const MAX_INDEX: u64 = 1 << 60;

/// The most bytes of an encoded number.
const MAX_NUMBER_BYTES: usize = 10;

/// The most bytes before the data of an entry.
pub(crate) const MAX_ENTRY_HEADER_BYTES: usize = 2 * MAX_NUMBER_BYTES;

/// Identifies a stream in the log: the number of its slot in the low half, and in the high half a
/// *generation*, which is greater for each later stream of the slot. No two streams of a log ever
/// have the same id: archives, cursors of the log and readers keep records that were released.
///
/// A slot of which an open finds no record begins with the greatest generation that any slot has
/// had or would get next. So the log keeps that number: a deletion says the greatest one known when
/// it began, and so do footers, and a record that is written before these are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StreamId(pub(crate) u64);

impl StreamId {
    pub(crate) fn new(slot: u32, generation: u32) -> StreamId {
        StreamId(u64::from(generation) << 32 | u64::from(slot))
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns a key that sorts the streams of a stripe one after the other: the stripe's bits come
    /// first. It is one number, because the keeper sorts all streams of a segment.
    pub(crate) fn by_stripe(self) -> u64 {
        self.0.rotate_right(STRIPES.ilog2())
    }
}

/// A decoded record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Entry { id: StreamId, index: u64, data: &'a [u8] },
    Moved { id: StreamId, index: u64, data: &'a [u8] },
    Anchor { id: StreamId, anchor: Anchor<'a> },
    TruncateBefore { id: StreamId, first: u64 },
    TruncateFrom { id: StreamId, next: u64 },
    Delete { id: StreamId, generation: u32 },
    Value { id: StreamId, key: &'a [u8], value: Option<&'a [u8]> },
    FooterPart(&'a [u8]),
    FooterEnd(&'a [u8]),
    Generations(u32),
}

/// All that is known of a stream, except where its entries are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Anchor<'a> {
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) name: &'a [u8],
    pub(crate) values: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Record<'a> {
    /// Decodes the payload of a record with `tag`.
    pub(crate) fn decode(tag: u16, payload: &'a [u8]) -> Option<Record<'a>> {
        let mut from = Decoder(payload);
        if matches!(tag, FOOTER_PART | FOOTER_END) {
            let is_end = tag == FOOTER_END;
            return Some(if is_end {
                Record::FooterEnd(payload)
            } else {
                Record::FooterPart(payload)
            });
        }
        let first = from.number()?;
        if tag == GENERATIONS {
            let is_whole = from.0.is_empty();
            return u32::try_from(first).ok().filter(|_| is_whole).map(Record::Generations);
        }
        let id = StreamId(first);
        let record = match tag {
            ENTRY => Record::Entry { id, index: from.index()?, data: from.rest() },
            MOVED => Record::Moved { id, index: from.index()?, data: from.rest() },
            ANCHOR => Record::Anchor { id, anchor: from.anchor()? },
            TRUNCATE_BEFORE => Record::TruncateBefore { id, first: from.index()? },
            TRUNCATE_FROM => Record::TruncateFrom { id, next: from.index()? },
            DELETE => Record::Delete { id, generation: u32::try_from(from.number()?).ok()? },
            VALUE => {
                let key = from.bytes()?;
                let value = match from.number()? {
                    0 => None,
                    1 => Some(from.rest()),
                    _ => return None,
                };
                is_valid(key, value).then_some(Record::Value { id, key, value })?
            }
            _ => return None,
        };
        from.0.is_empty().then_some(record)
    }

    /// Decodes a record of the log.
    pub(crate) fn of(record: &'a LogRecord<'_>) -> Result<Record<'a>> {
        Record::decode(record.tag(), record.data())
            .ok_or_else(|| no_record(record.lsn(), record.tag()))
    }
}

/// Returns the error for a record that this crate did not append.
pub(crate) fn no_record(lsn: Lsn, tag: u16) -> Error {
    let is_ours = (ENTRY..=GENERATIONS).contains(&tag);
    let (kind, advice) = if is_ours {
        (ErrorKind::Corrupt, "restore the log from a backup")
    } else {
        (ErrorKind::Foreign, "open a log that Streams made, or a new folder")
    };
    let text = format!("the record with tag {tag:#06x} is none of a log of streams");
    Error::new(kind, text).at_lsn(lsn).with_advice(advice)
}

/// Reads encoded fields. Each call returns `None` if the bytes end too early or cannot be a field.
#[derive(Debug)]
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for (at, &byte) in self.0.iter().take(MAX_NUMBER_BYTES).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if at == MAX_NUMBER_BYTES - 1 && bits > 1 {
                return None;
            }
            number |= bits << (7 * at);
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Some(number);
            }
        }
        None
    }

    /// Reads an index, or the index of the next entry.
    pub(crate) fn index(&mut self) -> Option<u64> {
        self.number().filter(|index| *index <= MAX_INDEX)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn values(&mut self) -> Option<Vec<(&'a [u8], &'a [u8])>> {
        let count = self.number()?;
        // Each takes two bytes at least, so a count that lies ends early.
        let one = |_| {
            let (key, value) = (self.bytes()?, self.bytes()?);
            is_valid(key, Some(value)).then_some((key, value))
        };
        (0..count).map(one).collect()
    }

    pub(crate) fn anchor(&mut self) -> Option<Anchor<'a>> {
        let (first, next, name) = (self.index()?, self.index()?, self.bytes()?);
        let values = self.values()?;
        (first <= next && !name.is_empty()).then_some(Anchor { first, next, name, values })
    }
}

/// Appends encoded fields to bytes.
pub(crate) trait Encode {
    fn number(&mut self, number: u64);
    fn bytes(&mut self, bytes: &[u8]);
}

impl Encode for Vec<u8> {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.push(number as u8);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// The bytes before an entry's data, without an allocation.
#[derive(Debug)]
pub(crate) struct EntryHeader {
    bytes: [u8; MAX_ENTRY_HEADER_BYTES],
    len: usize,
}

impl EntryHeader {
    pub(crate) fn new(id: StreamId, index: u64) -> EntryHeader {
        let mut header = EntryHeader { bytes: [0; MAX_ENTRY_HEADER_BYTES], len: 0 };
        header.number(id.0);
        header.number(index);
        header
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.bytes[self.len] = number as u8;
        self.len += 1;
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Encodes a record that has no data: an id and numbers.
pub(crate) fn numbers<const N: usize>(id: StreamId, numbers: [u64; N]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAX_ENTRY_HEADER_BYTES);
    bytes.number(id.0);
    numbers.into_iter().for_each(|number| bytes.number(number));
    bytes
}

/// Encodes a value; none removes the key.
pub(crate) fn value(id: StreamId, key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_value(&mut bytes, id, key, value);
    bytes
}

/// Appends an encoded value.
pub(crate) fn put_value(bytes: &mut Vec<u8>, id: StreamId, key: &[u8], value: Option<&[u8]>) {
    bytes.number(id.0);
    bytes.bytes(key);
    bytes.number(u64::from(value.is_some()));
    bytes.extend_from_slice(value.unwrap_or_default());
}

/// Appends the fields of an anchor behind its id.
pub(crate) fn put_anchor(bytes: &mut Vec<u8>, anchor: &Anchor<'_>) {
    bytes.number(anchor.first);
    bytes.number(anchor.next);
    bytes.bytes(anchor.name);
    put_values(bytes, &anchor.values);
}

/// Appends the count of the values, then each key and each value.
pub(crate) fn put_values(bytes: &mut Vec<u8>, values: &[(&[u8], &[u8])]) {
    bytes.number(values.len() as u64);
    for (key, value) in values {
        bytes.bytes(key);
        bytes.bytes(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: StreamId = StreamId(300);

    fn entry(id: StreamId, index: u64, data: &[u8]) -> Vec<u8> {
        [EntryHeader::new(id, index).as_bytes(), data].concat()
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let anchor = || Anchor {
            first: 3,
            next: MAX_INDEX,
            name: b"name",
            values: vec![(b"\0vote", b"7"), (b"\0", b"")],
        };
        let mut anchored = numbers(ID, []);
        put_anchor(&mut anchored, &anchor());
        let all = [
            (ENTRY, entry(ID, 128, b"data"), Record::Entry { id: ID, index: 128, data: b"data" }),
            (MOVED, entry(ID, 0, b""), Record::Moved { id: ID, index: 0, data: b"" }),
            (ANCHOR, anchored, Record::Anchor { id: ID, anchor: anchor() }),
            (TRUNCATE_BEFORE, numbers(ID, [9]), Record::TruncateBefore { id: ID, first: 9 }),
            (TRUNCATE_FROM, numbers(ID, [9]), Record::TruncateFrom { id: ID, next: 9 }),
            (DELETE, numbers(ID, [7]), Record::Delete { id: ID, generation: 7 }),
            (VALUE, value(ID, b"\0k", None), Record::Value { id: ID, key: b"\0k", value: None }),
            (
                VALUE,
                value(ID, b"\0k", Some(b"")),
                Record::Value { id: ID, key: b"\0k", value: Some(b"") },
            ),
        ];
        for (tag, bytes, expected) in all {
            assert_eq!(Record::decode(tag, &bytes), Some(expected));
            let is_open_ended = matches!(tag, ENTRY | MOVED) || bytes.ends_with(&[1]);
            for len in 0..bytes.len() {
                let cut = Record::decode(tag, &bytes[..len]);
                assert!(is_open_ended || cut.is_none(), "{tag:#x} cut to {len}: {cut:?}");
            }
        }
    }

    #[test]
    fn numbers_that_no_encoder_writes_are_refused() {
        for bytes in [&[0x80; 10][..], &[0xff; 11], &[0x80], &[]] {
            assert_eq!(Decoder(bytes).number(), None, "{bytes:?}");
        }
        let mut most = Vec::new();
        most.number(u64::MAX);
        assert_eq!(Decoder(&most).number(), Some(u64::MAX));
        let mut header = numbers(ID, [u64::MAX]);
        assert_eq!(EntryHeader::new(ID, u64::MAX).as_bytes(), header);
        header.push(7);
        assert_eq!(Record::decode(TRUNCATE_BEFORE, &header), None, "a byte too many");
    }
}

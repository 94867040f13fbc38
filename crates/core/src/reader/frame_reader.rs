//! Reads validated frames from a store through a buffer, which holds bytes of one segment.

use std::ops::Range;
use std::sync::Arc;

use palisade_store::ReadStore;
use palisade_store::checksum::crc32c_append;

use super::epoch_span::EpochSpan;
use super::record::{Record, RecordBuf};
use crate::frame::{
    ALIGN_BYTES, EpochSeed, HEADER_BYTES, Header, Kind, MAX_FRAME_BYTES, in_memory,
};
use crate::{Error, ErrorKind, Lsn, Result};

/// The unit in which disks and page caches fail.
pub(crate) const UNREADABLE_BYTES: u64 = 4096;

/// Records that lie nearer to each other are a group.
const FIRST_READ_BYTES: usize = 4096;

type Word = [u8; ALIGN_BYTES as usize];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Verify,
    /// In a batch whose checksum holds.
    IsVerified,
}

#[derive(Debug)]
pub(crate) struct FrameReader {
    store: Arc<dyn ReadStore>,
    segment_bytes: u64,
    read_ahead_bytes: usize,
    // A read of the store fetches `first_read_bytes`, and twice as much as the one before if it
    // continues there, at most `read_ahead_bytes`.
    first_read_bytes: usize,
    next_read_bytes: usize,
    // The last group of records that were read one by one, and the length of the longest group.
    group: Range<Lsn>,
    longest_group: u64,
    // No read ahead goes beyond it.
    limit: Lsn,
    buffer: Vec<u8>,
    // The buffer's first `len` bytes are the log's bytes from `start` on.
    start: Lsn,
    len: usize,
    // The end of their segment: no frame reaches beyond it.
    segment_end: Lsn,
    // The store had no more bytes of that segment. It is not asked for more until `forget`.
    is_all: bool,
    // A read ahead has met a block that the medium cannot read: below this LSN, a read ends with
    // the block that it begins in, unless the caller wants more.
    careful_to: Lsn,
}

impl FrameReader {
    pub(crate) fn new(
        store: Arc<dyn ReadStore>,
        segment_bytes: u64,
        read_ahead_bytes: usize,
    ) -> FrameReader {
        FrameReader {
            store,
            segment_bytes,
            read_ahead_bytes,
            first_read_bytes: read_ahead_bytes,
            next_read_bytes: read_ahead_bytes,
            group: Lsn::ZERO..Lsn::ZERO,
            longest_group: 0,
            limit: Lsn::LIMIT,
            buffer: Vec::new(),
            // No read continues it.
            start: Lsn::LIMIT,
            len: 0,
            segment_end: Lsn::ZERO,
            is_all: false,
            careful_to: Lsn::ZERO,
        }
    }

    pub(crate) fn header(&mut self, at: Lsn, seed: EpochSeed) -> Result<Option<Header>> {
        self.load(at, HEADER_BYTES)?;
        let header = Header::decode(self.bytes_from(at), seed, at, self.room(at));
        Ok(header.filter(|header| self.is_possible(header)))
    }

    /// Refuses lengths that no log can have written: nothing is allocated for them.
    fn is_possible(&self, header: &Header) -> bool {
        let longest = MAX_FRAME_BYTES.min(self.segment_bytes / 2);
        header.kind == Kind::Padding || header.frame_bytes <= longest
    }

    /// Returns the header of a whole frame: its payload's checksum holds, too.
    #[inline]
    pub(crate) fn frame(&mut self, at: Lsn, seed: EpochSeed) -> Result<Option<Header>> {
        match self.buffered_frame(at, seed, Payload::Verify) {
            Some(header) => Ok(Some(header)),
            None => self.load_frame(at, seed),
        }
    }

    /// Returns the record at `at` as it is stored, or `None` if no data frame validates there.
    ///
    /// # Errors
    /// `Corrupt`: only its header validates.
    pub(crate) fn record(&mut self, at: Lsn, span: EpochSpan) -> Result<Option<RecordBuf>> {
        let found = self.frame_with_payload(at, span.seed, Payload::Verify)?;
        let header = found.map_or_else(|| self.header(at, span.seed), |header| Ok(Some(header)))?;
        let Some(header) = header.filter(|header| header.kind == Kind::Data) else {
            return Ok(None);
        };
        if found.is_none() {
            return Err(self.damaged(at, span.without_record(None)));
        }
        let begin = at.plus(HEADER_BYTES as u64);
        let data = self.slice(begin..begin.plus(u64::from(header.payload_bytes)));
        let next = at.plus(header.frame_bytes);
        Ok(Some(Record::new(at, next, header.tag, header.is_encoded(), data).into()))
    }

    /// Returns the frame at `at`, if the buffer has it.
    #[inline]
    fn buffered_frame(&self, at: Lsn, seed: EpochSeed, payload: Payload) -> Option<Header> {
        let (header, bytes) = self.buffered_header(at, seed)?;
        (header.kind == Kind::Padding || self.is_body(&header, bytes, payload)).then_some(header)
    }

    /// As `buffered_frame`, for records of the user only.
    #[inline]
    pub(super) fn buffered_data(
        &self,
        at: Lsn,
        seed: EpochSeed,
        payload: Payload,
    ) -> Option<Header> {
        let (header, bytes) = self.buffered_header(at, seed)?;
        (header.kind == Kind::Data && self.is_body(&header, bytes, payload)).then_some(header)
    }

    #[inline]
    fn buffered_header(&self, at: Lsn, seed: EpochSeed) -> Option<(Header, &[u8])> {
        let bytes = self.bytes_from(at);
        let header = Header::decode(bytes, seed, at, self.segment_end.bytes_since(at))?;
        Some((header, bytes))
    }

    #[inline]
    fn is_body(&self, header: &Header, bytes: &[u8], payload: Payload) -> bool {
        let body = bytes.get(HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize);
        body.is_some_and(|body| payload == Payload::IsVerified || header.matches(body))
            && self.is_possible(header)
    }

    #[cold]
    fn load_frame(&mut self, at: Lsn, seed: EpochSeed) -> Result<Option<Header>> {
        let Some(header) = self.header(at, seed)? else { return Ok(None) };
        if header.kind != Kind::Padding && header.frame_bytes > self.read_ahead_bytes as u64 {
            return Ok(self.is_whole(at, &header)?.then_some(header));
        }
        self.frame_with_payload(at, seed, Payload::Verify)
    }

    /// As `frame`, and loads the payload, however long it is, for `raw`.
    pub(crate) fn frame_with_payload(
        &mut self,
        at: Lsn,
        seed: EpochSeed,
        payload: Payload,
    ) -> Result<Option<Header>> {
        let Some(header) = self.header(at, seed)? else { return Ok(None) };
        if header.kind != Kind::Padding && self.payload(at, &header)?.is_none() {
            return Ok(None);
        }
        Ok(self.buffered_frame(at, seed, payload))
    }

    /// Checks a long payload piece by piece, so that a scan needs no more memory than its read
    /// buffer.
    fn is_whole(&mut self, at: Lsn, header: &Header) -> Result<bool> {
        let mut here = at.plus(HEADER_BYTES as u64);
        let end = here.plus(u64::from(header.payload_bytes));
        let mut checksum = 0;
        while here < end {
            let len = end.bytes_since(here).min(self.read_ahead_bytes as u64) as usize;
            self.load(here, len)?;
            let Some(bytes) = self.bytes_from(here).get(..len) else { return Ok(false) };
            checksum = crc32c_append(checksum, bytes);
            here = here.plus(len as u64);
        }
        Ok(checksum == header.payload_checksum)
    }

    pub(crate) fn payload(&mut self, at: Lsn, header: &Header) -> Result<Option<&[u8]>> {
        let range = HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize;
        self.load(at, range.end)?;
        Ok(self.bytes_from(at).get(range))
    }

    pub(crate) fn records_in(&mut self, at: Lsn, header: &Header, seed: EpochSeed) -> Result<u64> {
        if header.kind != Kind::Batch {
            return Ok(u64::from(header.kind == Kind::Data));
        }
        let (mut member, end) = (at.plus(HEADER_BYTES as u64), at.plus(header.frame_bytes));
        let mut count = 0;
        // Asks for no byte behind the frame, so that a buffer that holds the frame goes on to.
        while member.plus(HEADER_BYTES as u64) <= end
            && let Some(header) = self.header(member, seed)?
        {
            count += 1;
            member = member.plus(header.frame_bytes);
        }
        Ok(count)
    }

    /// Returns the first whole frame in `[from, to)`, within one segment, that is no batch member
    /// and belongs to one of the epochs.
    ///
    /// No other frame begins in the bytes that a valid header claims, so the search continues
    /// behind them and is linear.
    pub(crate) fn find(
        &mut self,
        from: Lsn,
        to: Lsn,
        seeds: &[EpochSeed],
    ) -> Result<Option<(Lsn, Header)>> {
        let mut at = from;
        while at < to {
            self.load(at, HEADER_BYTES)?;
            if self.bytes_from(at).len() < ALIGN_BYTES as usize {
                return Ok(None);
            }
            at = self.next_header(at, seeds);
            if at >= to {
                break;
            }
            let mut claimed = ALIGN_BYTES;
            for seed in seeds {
                let header = self.header(at, *seed)?;
                let Some(header) = header.filter(|header| header.fits_at(at)) else { continue };
                if !header.is_member() && self.frame(at, *seed)?.is_some() {
                    return Ok(Some((at, header)));
                }
                claimed = claimed.max(header.frame_bytes);
            }
            at = at.plus(claimed);
        }
        Ok(None)
    }

    /// Returns the first place from `at` on where a header of one of the epochs validates, or the
    /// last one that could be checked. There are 8 bytes at `at`, and a whole header if the store
    /// has it.
    fn next_header(&self, at: Lsn, seeds: &[EpochSeed]) -> Lsn {
        let bytes = self.bytes_from(at);
        let word_bytes = size_of::<Word>();
        let end = (bytes.len().max(HEADER_BYTES) - HEADER_BYTES) / word_bytes * word_bytes;
        let mut offset = 0;
        while offset < end {
            let room = self.segment_end.bytes_since(at.plus(offset as u64));
            offset += headless_bytes(&bytes[offset..], room).min(end - offset);
            let here = at.plus(offset as u64);
            let room = self.segment_end.bytes_since(here);
            let validates =
                |seed: &EpochSeed| Header::decode(&bytes[offset..], *seed, here, room).is_some();
            if offset < end && seeds.iter().any(validates) {
                return here;
            }
            offset += word_bytes;
        }
        at.plus(end as u64)
    }

    pub(crate) fn located(&self, error: Error, at: Lsn) -> Error {
        located(self.store.as_ref(), self.segment_bytes, error, at)
    }

    #[cold]
    pub(crate) fn damaged(&self, at: Lsn, text: String) -> Error {
        missing_segment(self.store.as_ref(), self.segment_bytes, at)
            .unwrap_or_else(|| corrupt(self.store.as_ref(), self.segment_bytes, text, at))
    }

    pub(super) fn room(&self, at: Lsn) -> u64 {
        self.segment_bytes - at.as_u64() % self.segment_bytes
    }

    /// Returns the bytes, or as many as the store has.
    pub(crate) fn raw(&mut self, at: Lsn, len: usize) -> Result<&[u8]> {
        self.load(at, len)?;
        let bytes = self.bytes_from(at);
        Ok(&bytes[..len.min(bytes.len())])
    }

    pub(crate) fn buffered(&self, at: Lsn, len: usize) -> Option<&[u8]> {
        self.bytes_from(at).get(..len)
    }

    /// As `raw`, but no more than a read buffer holds.
    pub(crate) fn piece(&mut self, at: Lsn, len: usize) -> Result<&[u8]> {
        self.raw(at, len.min(self.read_ahead_bytes))
    }

    pub(crate) fn read_ahead(&mut self, bytes: usize) {
        (self.read_ahead_bytes, self.first_read_bytes, self.next_read_bytes) =
            (bytes, bytes, bytes);
        self.forget();
    }

    /// Reads ahead only up to `limit`. A prepared segment is longer, and a tail would read its
    /// zeros again after each sync.
    pub(crate) fn limit_to(&mut self, limit: Lsn) {
        self.limit = limit;
    }

    /// Drops what was read ahead: the store may have changed.
    pub(crate) fn forget(&mut self) {
        self.len = 0;
        self.is_all = false;
    }

    #[inline]
    pub(super) fn slice(&self, range: Range<Lsn>) -> &[u8] {
        let from = range.start.bytes_since(self.start) as usize;
        &self.buffer[from..from + range.end.bytes_since(range.start) as usize]
    }

    #[inline]
    fn bytes_from(&self, at: Lsn) -> &[u8] {
        // Below the start the difference wraps, and exceeds every length.
        let from = at.as_u64().wrapping_sub(self.start.as_u64());
        self.buffer[..self.len].get(in_memory(from)..).unwrap_or(&[])
    }

    /// Suits a caller that may want only a few records.
    pub(crate) fn starting_small(mut self) -> FrameReader {
        self.first_read_bytes = FIRST_READ_BYTES.min(self.read_ahead_bytes);
        self
    }

    /// Notes a single record, read in order. The first read of the next group fetches as much as
    /// the longest group has, at most `FIRST_READ_BYTES`.
    pub(crate) fn note_single(&mut self, record: Range<Lsn>) {
        if record.start.bytes_since(self.group.end) > FIRST_READ_BYTES as u64 {
            self.group.start = record.start;
        }
        self.group.end = record.end;
        self.longest_group = self.longest_group.max(record.end.bytes_since(self.group.start));
        let bytes = in_memory(self.longest_group).min(FIRST_READ_BYTES);
        self.first_read_bytes = bytes.min(self.read_ahead_bytes);
    }

    fn choose_read_bytes(&mut self, at: Lsn) -> usize {
        let end = self.start.plus(self.len as u64);
        let continues = self.start <= at && at.bytes_since(end) <= self.next_read_bytes as u64;
        let bytes = if continues { 2 * self.next_read_bytes } else { self.first_read_bytes };
        self.next_read_bytes = bytes.min(self.read_ahead_bytes);
        self.next_read_bytes
    }

    /// Loads `bytes` bytes from `at` on, if the store has them. A read that reached the end of a
    /// segment's file is not repeated: recovery comes there with every record of the log buffer. A
    /// bad block that was only to be read ahead is no error.
    fn load(&mut self, at: Lsn, bytes: usize) -> Result<()> {
        let is_known = self.is_all && self.start <= at && at < self.segment_end;
        if is_known || self.bytes_from(at).len() >= bytes {
            return Ok(());
        }
        let room = self.room(at);
        let ahead = self.choose_read_bytes(at).min(in_memory(self.limit.bytes_since(at)));
        let mut wanted = bytes.max(ahead).min(in_memory(room));
        if at < self.careful_to {
            let block = UNREADABLE_BYTES - at.as_u64() % UNREADABLE_BYTES;
            wanted = wanted.min(bytes.max(block as usize));
        }
        self.forget();
        self.start = at;
        self.segment_end = at.plus(room);
        while self.len < wanted {
            // Grows with the bytes that the store returns, not with what a length claims.
            let end = wanted.min(self.next_read_bytes.max(FIRST_READ_BYTES).max(2 * self.len));
            if self.buffer.len() < end {
                self.buffer.resize(end, 0);
            }
            let read = self.store.read(at.plus(self.len as u64), &mut self.buffer[self.len..end]);
            if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::Io) && end > bytes {
                self.careful_to = self.segment_end;
                wanted = bytes;
                continue;
            }
            let n = read?;
            if n == 0 {
                self.is_all = true;
                break;
            }
            self.len += n;
        }
        Ok(())
    }
}

fn located(store: &dyn ReadStore, segment_bytes: u64, error: Error, at: Lsn) -> Error {
    let number = at.segment(segment_bytes);
    error.at_path(store.segment_place(number)).at_segment(number).at_lsn(at)
}

fn corrupt(store: &dyn ReadStore, segment_bytes: u64, text: String, at: Lsn) -> Error {
    let error = located(store, segment_bytes, Error::new(ErrorKind::Corrupt, text), at);
    match store.advice_on_damage() {
        Some(advice) => error.with_advice(advice),
        None => error,
    }
}

#[cold]
pub(crate) fn missing_segment(store: &dyn ReadStore, segment_bytes: u64, at: Lsn) -> Option<Error> {
    let (numbers, _) = store.segments_from(u64::MAX).ok()?;
    let is_missing = !numbers.contains(&at.segment(segment_bytes));
    let text = "the file of the segment is missing";
    is_missing.then(|| corrupt(store, segment_bytes, text.into(), at))
}

/// Returns how many bytes cannot hold the begin of a header, whatever its seed is.
fn headless_bytes(bytes: &[u8], room: u64) -> usize {
    let (words, _) = bytes.as_chunks::<{ size_of::<Word>() }>();
    let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
    let mut index = 0;
    while index < words.len() && !Header::can_begin_with(word(index), word(index + 1), room) {
        // A prepared file is full of zeros.
        index += match word(index) {
            0 => zero_bytes(words[index..].as_flattened()) / size_of::<Word>(),
            _ => 1,
        };
    }
    index * size_of::<Word>()
}

fn zero_bytes(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<{ size_of::<Word>() }>();
    let (lines, _) = words.as_chunks::<8>();
    // Checks a line of words at a time, without a branch for each.
    let is_zero = |line: &&[Word; 8]| line.iter().flatten().fold(0, |any, byte| any | byte) == 0;
    let skipped = lines.iter().take_while(is_zero).count() * 8;
    let rest = words[skipped..].iter().take_while(|word| **word == Word::default());
    (skipped + rest.count()) * size_of::<Word>()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn zeros_are_counted_word_by_word(words in 0_usize..40, first in 0_usize..400) {
            let mut bytes = vec![0; words * size_of::<Word>()];
            if let Some(byte) = bytes.get_mut(first) {
                *byte = 1;
            }
            let expected = first.min(bytes.len()) / size_of::<Word>() * size_of::<Word>();
            prop_assert_eq!(zero_bytes(&bytes), expected);
        }

        #[test]
        fn what_is_passed_over_holds_no_header(
            words in prop::collection::vec(prop_oneof![Just(0), 0..1u64 << 34, any::<u64>()], ..60),
            frame in 0_usize..60,
            payload_bytes in 0_u32..300,
            short in any::<bool>(),
            room in 8_u64..400,
        ) {
            let seed = EpochSeed::from_bits(77);
            let at = Lsn::new(4096);
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let place = frame.min(words.len()) * size_of::<Word>();
            let lies_at = at.plus(place as u64);
            let (head, used) = match short {
                true => crate::frame::padding(seed, lies_at, 8, 0),
                false => {
                    let header = Header::new(Kind::Data, 3, payload_bytes, 5);
                    (header.encode(seed, lies_at), HEADER_BYTES)
                }
            };
            let len = bytes.len().max(place + used);
            bytes.resize(len, 0);
            bytes[place..place + used].copy_from_slice(&head[..used]);
            let passed = headless_bytes(&bytes, room);
            prop_assert!(passed <= bytes.len());
            for offset in (0..passed).step_by(size_of::<Word>()) {
                let here = at.plus(offset as u64);
                prop_assert_eq!(Header::decode(&bytes[offset..], seed, here, room), None);
            }
            let frame_bytes = if short { 8 } else { crate::framed_bytes(payload_bytes as usize) };
            prop_assert!(frame_bytes > room || passed <= place);
        }
    }
}

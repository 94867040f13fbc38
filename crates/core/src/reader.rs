//! Reading: frames and records out of the store, never out of the ring.
//!
//! [`FrameReader`] reads one validated frame at a place; [`Records`] walks them, steps over
//! padding and dead ranges, into batches, and hands out records that borrow its read buffer.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::checksum::crc32c_append;
use crate::frame::{ALIGN_BYTES, EpochSeed, HEADER_BYTES, Header, Kind, MAX_FRAME_BYTES};
use crate::store::ReadStore;
use crate::{Error, ErrorKind, Lsn, Result};

/// One epoch as readers need it: where its records lie and what their checksums begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochSpan {
    pub(crate) epoch: u64,
    pub(crate) seed: EpochSeed,
    pub(crate) base: Lsn,
    pub(crate) end: Lsn,
}

/// A record, borrowed from the iterator that read it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    lsn: Lsn,
    next_lsn: Lsn,
    tag: u16,
    data: &'a [u8],
}

impl<'a> Record<'a> {
    pub(crate) fn new(lsn: Lsn, next_lsn: Lsn, tag: u16, data: &'a [u8]) -> Record<'a> {
        Record { lsn, next_lsn, tag, data }
    }

    /// The LSN that `append` returned for it.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Where the record ends: reading can go on from here.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// What was appended.
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The tag given to `append_tagged`, 0 otherwise.
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.tag
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("lsn", &self.lsn)
            .field("tag", &self.tag)
            .field("bytes", &self.data.len())
            .finish()
    }
}

/// A record that owns its bytes, returned by [`get`](crate::Wal::get).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordBuf {
    lsn: Lsn,
    next_lsn: Lsn,
    tag: u16,
    data: Vec<u8>,
}

impl RecordBuf {
    /// The LSN that `append` returned for it.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Where the record ends: reading can go on from here.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// What was appended.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The tag given to `append_tagged`, 0 otherwise.
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.tag
    }

    /// The bytes, without a copy.
    #[must_use]
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }
}

impl From<Record<'_>> for RecordBuf {
    fn from(record: Record<'_>) -> RecordBuf {
        RecordBuf {
            lsn: record.lsn,
            next_lsn: record.next_lsn,
            tag: record.tag,
            data: record.data.to_vec(),
        }
    }
}

/// Reads validated frames from a store through a buffer.
#[derive(Debug)]
pub(crate) struct FrameReader {
    store: Arc<dyn ReadStore>,
    segment_bytes: u64,
    read_ahead_bytes: usize,
    buffer: Vec<u8>,
    start: Lsn,
    len: usize,
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
            buffer: Vec::new(),
            start: Lsn::ZERO,
            len: 0,
        }
    }

    /// The header at `at`, if one validates there and its frame fits into the segment.
    pub(crate) fn header(&mut self, at: Lsn, seed: EpochSeed) -> Result<Option<Header>> {
        self.load(at, HEADER_BYTES)?;
        let header = Header::decode(self.bytes_from(at), seed, at, self.room(at));
        Ok(header.filter(|header| self.is_possible(header)))
    }

    /// Whether any log can have written a frame of this length: nothing is allocated for others.
    fn is_possible(&self, header: &Header) -> bool {
        let longest = MAX_FRAME_BYTES.min(self.segment_bytes / 2);
        header.kind == Kind::Padding || header.frame_bytes <= longest
    }

    /// The header of a frame at `at` that is whole: its payload's checksum holds, too.
    pub(crate) fn frame(&mut self, at: Lsn, seed: EpochSeed) -> Result<Option<Header>> {
        let Some(header) = self.header(at, seed)? else { return Ok(None) };
        if header.kind == Kind::Padding {
            return Ok(Some(header));
        }
        if header.frame_bytes > self.read_ahead_bytes as u64 {
            return Ok(self.is_whole(at, &header)?.then_some(header));
        }
        let payload = self.payload(at, &header)?;
        Ok(payload.filter(|payload| header.matches(payload)).map(|_| header))
    }

    /// Whether a long payload's checksum holds, read piece by piece: a scan needs no more memory
    /// than its read buffer, however long the frames are.
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

    /// The payload bytes of the frame with `header` at `at`, if the store has them all.
    pub(crate) fn payload(&mut self, at: Lsn, header: &Header) -> Result<Option<&[u8]>> {
        let range = HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize;
        self.load(at, range.end)?;
        Ok(self.bytes_from(at).get(range))
    }

    /// How many records the whole frame with `header` at `at` holds.
    pub(crate) fn records_in(&mut self, at: Lsn, header: &Header, seed: EpochSeed) -> Result<u64> {
        if header.kind != Kind::Batch {
            return Ok(u64::from(header.kind == Kind::Data));
        }
        let (mut member, end) = (at.plus(HEADER_BYTES as u64), at.plus(header.frame_bytes));
        let mut count = 0;
        while member < end
            && let Some(header) = self.header(member, seed)?
        {
            count += 1;
            member = member.plus(header.frame_bytes);
        }
        Ok(count)
    }

    /// The first place in `[from, to)`, one segment's, with a whole frame that is no member.
    pub(crate) fn find(&mut self, from: Lsn, to: Lsn, seed: EpochSeed) -> Result<Option<Lsn>> {
        let mut at = from;
        while at < to {
            self.load(at, HEADER_BYTES)?;
            if self.bytes_from(at).len() < ALIGN_BYTES as usize {
                return Ok(None);
            }
            at = self.next_header(at, seed);
            if at < to && self.frame(at, seed)?.is_some_and(|header| !header.is_member) {
                return Ok(Some(at));
            }
            at = at.plus(ALIGN_BYTES);
        }
        Ok(None)
    }

    /// The first place at or above `at` where a header validates, or the last one that could be
    /// looked at before more has to be read. There are 8 bytes at `at`, and a header's if the
    /// store has them.
    fn next_header(&self, at: Lsn, seed: EpochSeed) -> Lsn {
        let bytes = self.bytes_from(at);
        let last = (bytes.len().max(HEADER_BYTES) - HEADER_BYTES) / ALIGN_BYTES as usize;
        for index in 0..last {
            let offset = index * ALIGN_BYTES as usize;
            let here = at.plus(offset as u64);
            if Header::decode(&bytes[offset..], seed, here, self.room(here)).is_some() {
                return here;
            }
        }
        at.plus(last as u64 * ALIGN_BYTES)
    }

    /// Bytes from `at` to the end of its segment.
    fn room(&self, at: Lsn) -> u64 {
        self.segment_bytes - at.as_u64() % self.segment_bytes
    }

    /// The `len` bytes at `at`, or as many of them as the store has.
    pub(crate) fn raw(&mut self, at: Lsn, len: usize) -> Result<&[u8]> {
        self.load(at, len)?;
        let bytes = self.bytes_from(at);
        Ok(&bytes[..len.min(bytes.len())])
    }

    /// Reads this many bytes at a time from here on.
    pub(crate) fn read_ahead(&mut self, bytes: usize) {
        self.read_ahead_bytes = bytes;
        self.forget();
    }

    /// Forgets what was read ahead: the store may have changed.
    pub(crate) fn forget(&mut self) {
        self.len = 0;
    }

    fn slice(&self, range: Range<Lsn>) -> &[u8] {
        let from = range.start.bytes_since(self.start) as usize;
        &self.buffer[from..from + range.end.bytes_since(range.start) as usize]
    }

    fn bytes_from(&self, at: Lsn) -> &[u8] {
        let from = at.bytes_since(self.start) as usize;
        if at < self.start { &[] } else { self.buffer[..self.len].get(from..).unwrap_or(&[]) }
    }

    /// Has `bytes` bytes from `at` on in the buffer, if the store has them.
    fn load(&mut self, at: Lsn, bytes: usize) -> Result<()> {
        if self.bytes_from(at).len() >= bytes {
            return Ok(());
        }
        let wanted = bytes.max(self.read_ahead_bytes).min(self.room(at) as usize);
        self.len = 0;
        self.start = at;
        while self.len < wanted {
            // Grows with what the store really has, not with what a length says.
            let end = wanted.min(self.read_ahead_bytes.max(2 * self.len));
            if self.buffer.len() < end {
                self.buffer.resize(end, 0);
            }
            let n = self.store.read(at.plus(self.len as u64), &mut self.buffer[self.len..end])?;
            if n == 0 {
                break;
            }
            self.len += n;
        }
        Ok(())
    }
}

/// An iterator over records in LSN order; a borrowing one, so it has its own `next`.
///
/// It ends where the log ended when it was made. Every record's checksums are verified. After
/// an error it is at its end. While it lives, the segments from its place on are kept, and so is
/// the log it came from.
///
/// ```no_run
/// # fn show(wal: &palisade_core::Wal) -> palisade_core::Result<()> {
/// let mut records = wal.iter()?;
/// while let Some(record) = records.next()? {
///     println!("{} {:?}", record.lsn(), record.data());
/// }
/// # Ok(()) }
/// ```
pub struct Records {
    reader: FrameReader,
    spans: Vec<EpochSpan>,
    span: usize,
    at: Lsn,
    // Members below it lie in a batch whose checksum was verified as a whole.
    verified_to: Lsn,
    is_tolerant: bool,
    is_finished: bool,
    // What to report at the end: why the log could not be read up to it.
    at_end: Option<Error>,
    // Keeps the log, and its pins, for as long as it is read.
    keep: Option<Box<dyn Pinned>>,
}

/// What keeps segments from being released while they are read.
pub(crate) trait Pinned: Any + Send + Sync {
    /// Everything below `lsn` is no longer needed.
    fn advance(&mut self, lsn: Lsn);

    /// Refuses the LSN of a record that was cut off since the reader began.
    fn check_not_cut(&self, lsn: Lsn) -> Result<()>;
}

impl Records {
    /// Walks `spans`, ascending, from the first record at or above `from`.
    pub(crate) fn new(reader: FrameReader, spans: Vec<EpochSpan>, from: Lsn) -> Records {
        Records {
            reader,
            spans,
            span: 0,
            at: from,
            verified_to: Lsn::ZERO,
            is_tolerant: false,
            is_finished: false,
            at_end: None,
            keep: None,
        }
    }

    pub(crate) fn keeping(mut self, keep: Box<dyn Pinned>) -> Records {
        self.keep = Some(keep);
        self
    }

    /// The iterator reports `error` when it has come to its end.
    pub(crate) fn failing_at_end(mut self, error: Option<Error>) -> Records {
        self.at_end = error;
        self
    }

    /// The iterator ends without an error where nothing valid follows.
    pub(crate) fn tolerant(mut self) -> Records {
        self.is_tolerant = true;
        self
    }

    /// Whether an error ended the iterator for good.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Goes on into `spans`, which hold more than those before.
    pub(crate) fn extend_to(&mut self, spans: Vec<EpochSpan>) {
        self.spans = spans;
        self.span = 0;
        self.is_finished = false;
        self.reader.forget();
    }

    /// Goes back to `lsn`, which a cut or the end of a record has made a place to go on from.
    pub(crate) fn go_on_from(&mut self, lsn: Lsn) {
        self.at = lsn;
    }

    /// Ends the iterator with `error`.
    pub(crate) fn end_with(&mut self, error: Error) -> Error {
        self.finish();
        error
    }

    /// Where the next record is looked for.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` names the LSN of a record that does not validate; run `palisade verify`.
    /// `Truncated`: the records from here on were cut off by
    /// [`truncate_after`](crate::Wal::truncate_after) since the iterator was made.
    /// `Unsupported`: a newer version wrote a kind of record that this one does not know. `Io`:
    /// the store could not be read. `Poisoned` or `NoSpace`, once, at the end of what could be
    /// written, if the log could not be read further.
    #[expect(clippy::should_implement_trait, reason = "the record borrows the read buffer")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        match self.advance()? {
            Some(found) => Ok(Some(self.record(found))),
            None => self.at_end.take().map_or(Ok(None), Err),
        }
    }

    /// Goes on to the next record; an error ends the iterator.
    pub(crate) fn advance(&mut self) -> Result<Option<(Lsn, Header)>> {
        self.step().inspect_err(|_| self.is_finished = true)
    }

    /// The record that `advance` has just found.
    pub(crate) fn record(&self, (lsn, header): (Lsn, Header)) -> Record<'_> {
        let data_at = lsn.plus(HEADER_BYTES as u64);
        let data_end = data_at.plus(u64::from(header.payload_bytes));
        let data = self.reader.slice(data_at..data_end);
        Record { lsn, next_lsn: self.at, tag: header.tag, data }
    }

    /// Goes on to the next data frame, whose whole frame is then in the reader's buffer.
    fn step(&mut self) -> Result<Option<(Lsn, Header)>> {
        while !self.is_finished {
            let Some(span) = self.current_span() else { break };
            let at = self.at;
            let found = self.valid_frame(at, span);
            // Behind the look into the store: what was read from a segment that was freed is cut.
            self.check_not_cut(at)?;
            let Some(header) = found? else {
                if self.is_tolerant {
                    self.finish();
                    return Ok(None);
                }
                return Err(damaged(at, span, self.spans.get(self.span + 1)));
            };
            let end = at.plus(header.frame_bytes);
            match header.kind {
                Kind::Batch => {
                    self.verified_to = end;
                    self.at = at.plus(HEADER_BYTES as u64);
                    continue;
                }
                Kind::Unknown { number, may_ignore: false } => return Err(unknown(at, number)),
                _ => self.at = end,
            }
            if header.kind == Kind::Data {
                return Ok(Some((at, header)));
            }
        }
        Ok(None)
    }

    /// The span that holds the place, after stepping over what lies between spans.
    fn current_span(&mut self) -> Option<EpochSpan> {
        loop {
            let span = *self.spans.get(self.span)?;
            self.at = self.at.max(span.base);
            if self.at < span.end {
                return Some(span);
            }
            self.span += 1;
        }
    }

    fn valid_frame(&mut self, at: Lsn, span: EpochSpan) -> Result<Option<Header>> {
        let Some(header) = self.reader.header(at, span.seed)? else { return Ok(None) };
        if let Some(keep) = &mut self.keep {
            keep.advance(at);
        }
        if header.kind == Kind::Padding {
            return Ok(Some(header));
        }
        let is_verified = at < self.verified_to;
        let payload = self.reader.payload(at, &header)?;
        Ok(payload.filter(|payload| is_verified || header.matches(payload)).map(|_| header))
    }

    fn check_not_cut(&self, at: Lsn) -> Result<()> {
        self.keep.as_ref().map_or(Ok(()), |keep| keep.check_not_cut(at))
    }

    fn finish(&mut self) {
        self.is_finished = true;
        self.at_end = None;
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("at", &self.at).finish_non_exhaustive()
    }
}

fn damaged(at: Lsn, span: EpochSpan, next: Option<&EpochSpan>) -> Error {
    let mut message = format!("no valid record of epoch {} where one must begin", span.epoch);
    if let Some(next) = next {
        message += &format!("; epoch {} begins at LSN {}", next.epoch, next.base);
    }
    Error::new(ErrorKind::Corrupt, message).at_lsn(at)
}

fn unknown(at: Lsn, number: u8) -> Error {
    let message = format!("a record of kind {number}, which this version does not know");
    Error::new(ErrorKind::Unsupported, message).at_lsn(at)
}

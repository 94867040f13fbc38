//! Reading: frames and records out of the store, never out of the ring.
//!
//! [`FrameReader`] reads one validated frame at a place; [`Records`] walks them, steps over
//! padding and dead ranges, into batches, and hands out records that borrow its read buffer.

mod frames;

use std::any::Any;
use std::fmt;

use self::frames::Payload;
pub(crate) use self::frames::{EpochSpan, Found, FrameReader, headless_bytes};
use crate::frame::{EpochSeed, HEADER_BYTES, Header, Kind};
use crate::{Error, ErrorKind, Lsn, Result};

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
    near: Near,
    // Keeps the log, and its pins, for as long as it is read.
    keep: Option<Box<dyn Pinned>>,
}

/// Up to where frames are as the last one was: of the same epoch, in a segment that is pinned.
#[derive(Clone, Copy, Debug)]
struct Near {
    seed: EpochSeed,
    to: Lsn,
}

impl Near {
    const NOWHERE: Near = Near { seed: EpochSeed::from_bits(0), to: Lsn::ZERO };
}

/// What keeps segments from being released while they are read.
pub(crate) trait Pinned: Any + Send + Sync {
    /// Refuses a process that was forked from the one that opened the log.
    fn check_process(&self) -> Result<()>;

    /// Everything below `lsn` is no longer needed. Returns from where on it is to be called again.
    fn advance(&mut self, lsn: Lsn) -> Lsn;

    /// Whether the record at `lsn` may have been cut off since the reader began: false at next to no
    /// cost where nothing was cut so far down.
    fn may_be_cut(&self, lsn: Lsn) -> bool;

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
            near: Near::NOWHERE,
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
        self.near = Near::NOWHERE;
        self.reader.forget();
    }

    /// Goes back to `lsn`, which a cut or the end of a record has made a place to go on from.
    pub(crate) fn go_on_from(&mut self, lsn: Lsn) {
        self.at = lsn;
        self.near = Near::NOWHERE;
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
    /// the store could not be read. `NoSpace`, `NoFiles` or `Poisoned`, once, at the end of what
    /// was written: the iterator could not write what was still buffered when it was made.
    #[expect(clippy::should_implement_trait, reason = "the record borrows the read buffer")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        match self.advance()? {
            Some(found) => Ok(Some(self.record(found))),
            None => self.at_end.take().map_or(Ok(None), Err),
        }
    }

    /// Goes on to the next record; an error ends the iterator.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Option<(Lsn, Header)>> {
        if let Some(found) = self.step_at_hand() {
            return Ok(Some(found));
        }
        self.step().inspect_err(|_| self.finish_with_error())
    }

    /// The step from record to record in the common case: a data frame that is in the reader's
    /// buffer, in the same segment and epoch as the one before. `None` says nothing.
    #[inline]
    fn step_at_hand(&mut self) -> Option<(Lsn, Header)> {
        let at = self.at;
        if at >= self.near.to {
            return None;
        }
        if self.keep.as_ref().is_some_and(|keep| keep.may_be_cut(at)) {
            return None;
        }
        let header = self.reader.data_at_hand(at, self.near.seed, self.payload_at(at))?;
        self.at = at.plus(header.frame_bytes);
        Some((at, header))
    }

    #[inline]
    fn payload_at(&self, at: Lsn) -> Payload {
        if at < self.verified_to { Payload::IsVerified } else { Payload::Verify }
    }

    /// The record that `advance` has just found.
    #[inline]
    pub(crate) fn record(&self, (lsn, header): (Lsn, Header)) -> Record<'_> {
        let data_at = lsn.plus(HEADER_BYTES as u64);
        let data_end = data_at.plus(u64::from(header.payload_bytes));
        let data = self.reader.slice(data_at..data_end);
        Record { lsn, next_lsn: self.at, tag: header.tag, data }
    }

    /// Goes on to the next data frame, whose whole frame is then in the reader's buffer.
    fn step(&mut self) -> Result<Option<(Lsn, Header)>> {
        self.keep.as_ref().map_or(Ok(()), |keep| keep.check_process())?;
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
        let found = self.reader.frame_with_payload(at, span.seed, self.payload_at(at))?;
        if found.is_some() {
            let pinned_to = self.keep.as_mut().map_or(span.end, |keep| keep.advance(at));
            self.near = Near { seed: span.seed, to: pinned_to.min(span.end) };
        }
        Ok(found)
    }

    fn check_not_cut(&self, at: Lsn) -> Result<()> {
        self.keep.as_ref().map_or(Ok(()), |keep| keep.check_not_cut(at))
    }

    fn finish(&mut self) {
        self.finish_with_error();
        self.at_end = None;
    }

    fn finish_with_error(&mut self) {
        self.is_finished = true;
        self.near = Near::NOWHERE;
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("at", &self.at).finish_non_exhaustive()
    }
}

/// The error for a place at which a record must begin and none validates.
pub(crate) fn damaged(at: Lsn, span: EpochSpan, next: Option<&EpochSpan>) -> Error {
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

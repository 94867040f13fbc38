//! The iterator over records: walks frames, skips padding and discarded ranges, enters batches.

use std::any::Any;
use std::fmt;

use super::epoch_span::EpochSpan;
use super::frame_reader::{FrameReader, Payload};
use super::record::{Record, RecordBuf};
use crate::codec::Decoder;
use crate::frame::{EpochSeed, HEADER_BYTES, Header, Kind};
use crate::{Error, ErrorKind, Lsn, Result};

/// An iterator over records in LSN order. Records borrow its buffer, so it has its own `next`.
///
/// The iterator of an open log ends at the end of its range, or where the log ended at the call. It
/// keeps the log, and the segments from its position on, until it is dropped. The iterator of an
/// `Inspector` keeps nothing, and ends at the first frame that does not validate.
///
/// Each iterator verifies every record's checksums. After an error it is at its end.
///
/// ```no_run
/// # fn show(wal: &palisade_core::Wal) -> palisade_core::Result<()> {
/// let mut records = wal.records()?;
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
    // The log that a writer may change, for a reader that pins nothing.
    foreign: Option<Foreign>,
    is_finished: bool,
    // The error to report at the end, if the log could not be read up to it.
    at_end: Option<Error>,
    near: Near,
    // The store has all records below this LSN. Records above it may be only in the log buffer.
    written: Lsn,
    // `None`: the records are returned as they are stored.
    decoder: Option<Decoder>,
    // Whether a record that is not encoded needs no look at the decoder.
    takes_plain: bool,
    // Keeps the log and its pins until the iterator is dropped.
    keep: Option<Box<dyn Pinned>>,
}

/// Where frames need the fewest checks: below `to` they have the seed `seed`. If the iterator pins
/// segments, their segment is pinned.
#[derive(Clone, Copy, Debug)]
struct Near {
    seed: EpochSeed,
    to: Lsn,
}

/// A log whose writer knows nothing of the reader.
struct Foreign {
    log: Box<dyn Relist>,
    // Where the last frame ended that was read. `None`: no frame was read.
    read_to: Option<Lsn>,
    // How often the log was listed again since the last frame.
    lists: usize,
}

/// After so many listings without a frame between them the reader gives up.
const MOST_LISTS: usize = 1000;

/// Lists a log again whose writer may have removed what is being read.
pub(crate) trait Relist: Send + Sync {
    /// Returns the head and the epochs if the writer has begun an epoch since the last listing, or
    /// has moved the head above `at`. Else a frame that does not validate at `at` is no sign of it.
    fn list_again(&mut self, at: Lsn) -> Result<Option<(Lsn, Vec<EpochSpan>)>>;
}

/// Returns the error of a reader that the writer of a foreign log disturbs.
pub(crate) fn truncated_meanwhile() -> Error {
    let text = "the log's writer truncated the log while it was read";
    Error::new(ErrorKind::Truncated, text).with_advice("read the log again")
}

impl Near {
    const NOWHERE: Near = Near { seed: EpochSeed::from_bits(0), to: Lsn::ZERO };
}

/// Keeps segments from being released while they are read.
pub(crate) trait Pinned: Any + Send + Sync {
    /// Refuses a process that was forked from the one that opened the log.
    fn check_process(&self) -> Result<()>;

    /// Moves the pin up if `lsn` is in a later segment. Returns the end of the pinned segment. A
    /// call with an `lsn` below that end changes nothing.
    fn advance(&mut self, lsn: Lsn) -> Lsn;

    /// Returns whether the record at `lsn` may have been truncated since the reader began. Costs
    /// next to nothing if no truncation reached so far down.
    fn may_be_truncated(&self, lsn: Lsn) -> bool;

    /// Refuses the LSN of a record that was truncated since the reader began.
    fn check_not_truncated(&self, lsn: Lsn) -> Result<()>;

    /// Hands everything below `lsn` to the operating system. Returns the new *written*, and the
    /// error of a failed write.
    fn write_until(&self, lsn: Lsn) -> (Lsn, Option<Error>);
}

impl Records {
    /// Creates an iterator over ascending `spans` from `from` on. A frame begins at `from`, or
    /// `from` is in no span. Else the iterator finds no frame there.
    pub(crate) fn new(reader: FrameReader, spans: Vec<EpochSpan>, from: Lsn) -> Records {
        Records {
            reader,
            spans,
            span: 0,
            at: from,
            verified_to: Lsn::ZERO,
            foreign: None,
            is_finished: false,
            at_end: None,
            near: Near::NOWHERE,
            written: Lsn::LIMIT,
            decoder: None,
            takes_plain: true,
            keep: None,
        }
    }

    pub(crate) fn keeping(mut self, keep: Box<dyn Pinned>) -> Records {
        self.keep = Some(keep);
        self
    }

    /// Makes the iterator return the bytes that were appended rather than those that are stored.
    pub(crate) fn decoding(mut self, decoder: Decoder) -> Records {
        self.takes_plain = decoder.takes_plain();
        self.decoder = Some(decoder);
        self
    }

    /// Makes the iterator end before the first record at or above `end`.
    pub(crate) fn ending_at(mut self, end: Lsn) -> Records {
        self.spans.retain(|span| span.base < end);
        self.spans.iter_mut().for_each(|span| span.end = span.end.min(end));
        self.reader.limit_to(end);
        self
    }

    /// Makes the iterator hand to the operating system what lies above `written`, once it gets
    /// there.
    pub(crate) fn writing_from(mut self, written: Lsn) -> Records {
        self.written = written;
        self
    }

    /// Makes the iterator end without an error where nothing valid follows, unless the writer of
    /// `log` has removed what followed.
    pub(crate) fn of_foreign(mut self, log: Box<dyn Relist>) -> Records {
        self.foreign = Some(Foreign { log, read_to: None, lists: 0 });
        self
    }

    /// Makes the iterator of a foreign log end with `error`.
    pub(crate) fn ending_with(mut self, error: Error) -> Records {
        self.at_end = Some(error);
        self
    }

    /// Returns whether the iterator has ended by an error or, in a foreign log, at a frame that
    /// does not validate.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Replaces the spans, so that the iterator continues at its position up to the new end.
    pub(crate) fn extend_to(&mut self, spans: Vec<EpochSpan>) {
        self.reader.limit_to(spans.last().map_or(Lsn::LIMIT, |last| last.end));
        self.spans = spans;
        self.span = 0;
        self.is_finished = false;
        self.near = Near::NOWHERE;
        self.reader.forget();
    }

    /// Moves back to `lsn`, the end of the last record that the tail returned, or where the tail
    /// began.
    pub(crate) fn resume_from(&mut self, lsn: Lsn) {
        self.at = lsn;
        self.near = Near::NOWHERE;
    }

    /// Ends the iterator with `error`.
    pub(crate) fn end_with(&mut self, error: Error) -> Error {
        self.finish();
        error
    }

    /// Returns the LSN where the iterator looks for the next record.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// Returns the next record, or `None` at the end.
    ///
    /// # Errors
    /// `Corrupt`: a record does not validate; the error names its LSN; run `palisade verify`. Or
    /// the log's codec cannot decode the record; [`position`](Records::position) is the LSN after
    /// it.
    /// `Truncated`: a truncation of the suffix removed the records from here on since the iterator
    /// was created. `Unsupported`: a newer version wrote a kind of record that this one does not
    /// know. `Io`, `NoFiles`: the store could not be read. `NoSpace`, `NoFiles` or `Poisoned` after
    /// the last written record: the log could not write the records that only the log buffer has.
    /// `Forked`. After an error there are no more records. After `NoSpace` or `NoFiles` continue
    /// with another iterator from [`position`](Records::position).
    #[expect(clippy::should_implement_trait, reason = "the record borrows the read buffer")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        match self.advance()? {
            Some(found) if self.is_plain(&found) => Ok(Some(self.plain_record(found))),
            Some(found) => self.record(found).map(Some),
            None => self.at_end.take().map_or(Ok(None), Err),
        }
    }

    /// Advances to the next record. An error ends the iterator.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Option<(Lsn, Header)>> {
        if let Some(found) = self.buffered_step() {
            return Ok(Some(found));
        }
        self.step().inspect_err(|_| self.finish_with_error())
    }

    /// Advances in the common case: to a data frame that is in the reader's buffer, in the same
    /// segment and epoch as the one before. `None` does not mean that there is no record.
    #[inline]
    fn buffered_step(&mut self) -> Option<(Lsn, Header)> {
        let at = self.at;
        if at >= self.near.to {
            return None;
        }
        if self.keep.as_ref().is_some_and(|keep| keep.may_be_truncated(at)) {
            return None;
        }
        let header = self.reader.buffered_data(at, self.near.seed, self.payload_at(at))?;
        self.at = at.plus(header.frame_bytes);
        Some((at, header))
    }

    #[inline]
    fn payload_at(&self, at: Lsn) -> Payload {
        if at < self.verified_to { Payload::IsVerified } else { Payload::Verify }
    }

    /// Returns the record that `advance` has just found. An error ends the iterator.
    #[inline]
    pub(crate) fn record(&mut self, found: (Lsn, Header)) -> Result<Record<'_>> {
        if self.is_plain(&found) {
            return Ok(self.plain_record(found));
        }
        let (lsn, header) = found;
        self.decoded_record(lsn, header.tag, header.is_encoded(), header.payload_bytes)
    }

    /// Returns whether the payload of the frame is a record that needs no look at the codec.
    #[inline]
    fn is_plain(&self, (_, header): &(Lsn, Header)) -> bool {
        self.takes_plain && !header.is_encoded()
    }

    #[inline]
    fn plain_record(&self, (lsn, header): (Lsn, Header)) -> Record<'_> {
        let data = payload(&self.reader, lsn, header.payload_bytes);
        Record::new(lsn, self.at, header.tag, false, data)
    }

    #[inline(never)]
    fn decoded_record(
        &mut self,
        lsn: Lsn,
        tag: u16,
        is_encoded: bool,
        payload_bytes: u32,
    ) -> Result<Record<'_>> {
        let data = payload(&self.reader, lsn, payload_bytes);
        let record = Record::new(lsn, self.at, tag, is_encoded, data);
        let Some(decoder) = &mut self.decoder else { return Ok(record) };
        decoder.decode(record).map_err(|error| {
            (self.is_finished, self.near) = (true, Near::NOWHERE);
            self.reader.located(error, lsn)
        })
    }

    /// Advances to the next data frame and loads the whole frame into the reader's buffer.
    fn step(&mut self) -> Result<Option<(Lsn, Header)>> {
        self.keep.as_ref().map_or(Ok(()), |keep| keep.check_process())?;
        while !self.is_finished {
            let Some(span) = self.current_span() else { break };
            if self.at >= self.written && !self.write_rest() {
                break;
            }
            let at = self.at;
            let found = self.valid_frame(at, span);
            // Check after the read: a truncation may have freed the segment during the read.
            self.check_not_truncated(at)?;
            let Some(header) = found? else {
                if self.foreign.is_some() {
                    if self.list_again(span)? {
                        continue;
                    }
                    // Not `finish`: the error at the end stays.
                    self.finish_with_error();
                    return Ok(None);
                }
                let text = span.without_record(self.spans.get(self.span + 1));
                return Err(self.reader.damaged(at, text));
            };
            header.check_known(at)?;
            let end = at.plus(header.frame_bytes);
            self.at = end;
            match header.kind {
                Kind::Batch => {
                    self.verified_to = end;
                    self.at = at.plus(HEADER_BYTES as u64);
                }
                Kind::Data => return Ok(Some((at, header))),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Lists a foreign log again if its writer may have removed the frame at the position. Returns
    /// false if it has not: the log ends there.
    ///
    /// The iterator goes on if all that it has read is still in the log, so that what it returns is
    /// a state of the log. LSNs are used once, so the end of the last frame shows this.
    fn list_again(&mut self, span: EpochSpan) -> Result<bool> {
        self.note_read_to(span);
        let Some(foreign) = &mut self.foreign else { return Ok(false) };
        let Some((head, spans)) = foreign.log.list_again(self.at)? else { return Ok(false) };
        foreign.lists += 1;
        let is_kept = |end: Lsn| {
            let holds = |span: &EpochSpan| span.base < end && end <= span.end;
            head <= end && spans.iter().any(holds)
        };
        if foreign.lists > MOST_LISTS || foreign.read_to.is_some_and(|end| !is_kept(end)) {
            return Err(truncated_meanwhile().at_lsn(self.at));
        }
        self.at = foreign.read_to.unwrap_or(self.at.max(head));
        self.extend_to(spans);
        Ok(true)
    }

    /// Hands the rest of what the iterator returns to the operating system. Returns false if the
    /// iterator has come to its end because that failed.
    fn write_rest(&mut self) -> bool {
        let Some(keep) = &self.keep else { return true };
        let end = self.spans.last().map_or(self.at, |last| last.end);
        let (written, error) = keep.write_until(end);
        // The bytes that were read ahead above the old *written* may be stale now.
        self.reader.forget();
        self.written = if error.is_some() { written } else { Lsn::LIMIT };
        let has_more = self.at < self.written;
        match error {
            Some(error) if !has_more => {
                self.at_end = Some(error);
                self.spans.clear();
                false
            }
            _ => true,
        }
    }

    /// Returns the span that holds the position, after skipping what lies between spans.
    fn current_span(&mut self) -> Option<EpochSpan> {
        loop {
            let span = *self.spans.get(self.span)?;
            if self.at.max(span.base) < span.end {
                self.at = self.at.max(span.base);
                return Some(span);
            }
            self.note_read_to(span);
            self.span += 1;
        }
    }

    /// Notes how far the iterator has read in `span`, of which it has come to the end:
    /// `buffered_step` notes nothing.
    fn note_read_to(&mut self, span: EpochSpan) {
        if self.at > span.base
            && let Some(read_to) =
                self.foreign.as_mut().and_then(|foreign| foreign.read_to.as_mut())
        {
            *read_to = self.at;
        }
    }

    fn valid_frame(&mut self, at: Lsn, span: EpochSpan) -> Result<Option<Header>> {
        let found = self.reader.frame_with_payload(at, span.seed, self.payload_at(at))?;
        if let Some(header) = &found {
            if let Some(foreign) = &mut self.foreign {
                (foreign.read_to, foreign.lists) = (Some(at.plus(header.frame_bytes)), 0);
            }
            let pinned_to = self.keep.as_mut().map_or(span.end, |keep| keep.advance(at));
            self.near = Near { seed: span.seed, to: pinned_to.min(span.end).min(self.written) };
        }
        Ok(found)
    }

    fn check_not_truncated(&self, at: Lsn) -> Result<()> {
        self.keep.as_ref().map_or(Ok(()), |keep| keep.check_not_truncated(at))
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

/// Returns the payload of the frame at `lsn`, which is in the reader's buffer.
#[inline]
fn payload(reader: &FrameReader, lsn: Lsn, payload_bytes: u32) -> &[u8] {
    let data_at = lsn.plus(HEADER_BYTES as u64);
    reader.slice(data_at..data_at.plus(u64::from(payload_bytes)))
}

/// The records of a [`Records`], each with bytes of its own: an ordinary [`Iterator`].
#[derive(Debug)]
pub struct OwnedRecords {
    records: Records,
    has_failed: bool,
}

impl Iterator for OwnedRecords {
    type Item = Result<RecordBuf>;

    /// Returns the next record. After an error there is none.
    fn next(&mut self) -> Option<Result<RecordBuf>> {
        if self.has_failed {
            return None;
        }
        let found = self.records.next().map(|found| found.map(RecordBuf::from)).transpose();
        self.has_failed = matches!(found, Some(Err(_)));
        found
    }
}

impl std::iter::FusedIterator for OwnedRecords {}

/// Copies each record out of the read buffer. [`Records::next`] does not.
impl IntoIterator for Records {
    type Item = Result<RecordBuf>;
    type IntoIter = OwnedRecords;

    fn into_iter(self) -> OwnedRecords {
        OwnedRecords { records: self, has_failed: false }
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("at", &self.at).finish_non_exhaustive()
    }
}

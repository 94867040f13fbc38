//! The iterator over records.

use std::any::Any;
use std::fmt;

use super::epoch_span::EpochSpan;
use super::frame_reader::{FrameReader, Payload};
use super::record::{Record, RecordBuf};
use crate::codec::Decoder;
use crate::frame::{EpochSeed, HEADER_BYTES, Header, Kind};
use crate::{Error, ErrorKind, Lsn, Result};

/// An iterator over records in LSN order. Records borrow its buffer, so it has its own `next`. It
/// verifies every record's checksums, and ends after an error.
///
/// The iterator of an open log ends at the end of its range, or where the log ended at the call. It
/// keeps the log, and the segments from its position on. That of an `Inspector` keeps nothing, and
/// ends at the first frame that does not validate.
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

/// Where frames need the fewest checks: below `to`, with this seed and in the pinned segment.
#[derive(Clone, Copy, Debug)]
struct Near {
    seed: EpochSeed,
    to: Lsn,
}

struct Foreign {
    log: Box<dyn Relist>,
    // Where the last frame ended that was read. `None`: no frame was read.
    read_to: Option<Lsn>,
    // How often the log was listed again since the last frame.
    lists: usize,
}

/// After so many listings without a frame the reader gives up.
const MOST_LISTS: usize = 1000;

pub(crate) trait Relist: Send + Sync {
    /// Returns the head and the epochs if the writer has begun an epoch since the last listing, or
    /// has moved the head above `at`.
    fn list_again(&mut self, at: Lsn) -> Result<Option<(Lsn, Vec<EpochSpan>)>>;
}

pub(crate) fn truncated_meanwhile() -> Error {
    let text = "the log's writer truncated the log while it was read";
    Error::new(ErrorKind::Truncated, text).with_advice("read the log again")
}

impl Near {
    const NOWHERE: Near = Near { seed: EpochSeed::from_bits(0), to: Lsn::ZERO };
}

/// Keeps segments from being released while they are read.
pub(crate) trait Pinned: Any + Send + Sync {
    /// Refuses a forked child.
    fn check_process(&self) -> Result<()>;

    /// Moves the pin up to the segment of `lsn`, never down, and returns that segment's end.
    fn advance(&mut self, lsn: Lsn) -> Lsn;

    /// Returns whether the record at `lsn` may have been truncated since the reader began. Fast.
    fn may_be_truncated(&self, lsn: Lsn) -> bool;

    /// Refuses a record that was truncated since the reader began.
    fn check_not_truncated(&self, lsn: Lsn) -> Result<()>;

    /// Writes everything below `lsn`. Returns the new *written*, and the error of a failed write.
    fn write_until(&self, lsn: Lsn) -> (Lsn, Option<Error>);
}

impl Records {
    /// Creates an iterator over ascending `spans` from `from` on, where a frame begins or no span
    /// is.
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

    pub(crate) fn decoding(mut self, decoder: Decoder) -> Records {
        self.takes_plain = decoder.takes_plain();
        self.decoder = Some(decoder);
        self
    }

    /// Ends before the first record at or above `end`.
    pub(crate) fn ending_at(mut self, end: Lsn) -> Records {
        self.spans.retain(|span| span.base < end);
        self.spans.iter_mut().for_each(|span| span.end = span.end.min(end));
        self.reader.limit_to(end);
        self
    }

    pub(crate) fn writing_from(mut self, written: Lsn) -> Records {
        self.written = written;
        self
    }

    /// Ends without an error where nothing valid follows, unless the writer of `log` has removed
    /// it.
    pub(crate) fn of_foreign(mut self, log: Box<dyn Relist>) -> Records {
        self.foreign = Some(Foreign { log, read_to: None, lists: 0 });
        self
    }

    pub(crate) fn ending_with(mut self, error: Error) -> Records {
        self.at_end = Some(error);
        self
    }

    /// Returns whether the iterator has ended by an error or, in a foreign log, at an invalid
    /// frame.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(crate) fn extend_to(&mut self, spans: Vec<EpochSpan>) {
        self.reader.limit_to(spans.last().map_or(Lsn::LIMIT, |last| last.end));
        self.spans = spans;
        self.span = 0;
        self.is_finished = false;
        self.near = Near::NOWHERE;
        self.reader.forget();
    }

    /// Moves back to the end of the last record that the tail returned, or to its begin.
    pub(crate) fn resume_from(&mut self, lsn: Lsn) {
        self.at = lsn;
        self.near = Near::NOWHERE;
    }

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
    /// the codec cannot decode the record before [`position`](Records::position). `Truncated`: a
    /// truncation of the suffix removed the records from here on. `Unsupported`: a newer version
    /// wrote the record. `Io`, `NoFiles`, `Forked`. `NoSpace`, `NoFiles`, `Poisoned`, after the
    /// last written record: the log could not write the others. After `NoSpace` or `NoFiles`
    /// continue with another iterator from the position.
    #[expect(clippy::should_implement_trait, reason = "the record borrows the read buffer")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        match self.advance()? {
            Some(found) if self.is_plain(&found) => Ok(Some(self.plain_record(found))),
            Some(found) => self.record(found).map(Some),
            None => self.at_end.take().map_or(Ok(None), Err),
        }
    }

    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Option<(Lsn, Header)>> {
        if let Some(found) = self.buffered_step() {
            return Ok(Some(found));
        }
        self.step().inspect_err(|_| self.finish_with_error())
    }

    /// Advances to a data frame in the reader's buffer, in the segment and epoch of the one before,
    /// if there is one.
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

    #[inline]
    pub(crate) fn record(&mut self, found: (Lsn, Header)) -> Result<Record<'_>> {
        if self.is_plain(&found) {
            return Ok(self.plain_record(found));
        }
        let (lsn, header) = found;
        self.decoded_record(lsn, header.tag, header.is_encoded(), header.payload_bytes)
    }

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

    /// Lists a foreign log again. Returns false if it ends here: its writer has not removed the
    /// frame at the position. Goes on only if all that was read is still in the log, which the end
    /// of the last frame shows, because LSNs are used once.
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

    /// Writes the rest. Returns false if that failed and the iterator is at its end.
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

#[inline]
fn payload(reader: &FrameReader, lsn: Lsn, payload_bytes: u32) -> &[u8] {
    let data_at = lsn.plus(HEADER_BYTES as u64);
    reader.slice(data_at..data_at.plus(u64::from(payload_bytes)))
}

/// An ordinary [`Iterator`] over the records of a [`Records`], each with bytes of its own.
#[derive(Debug)]
pub struct OwnedRecords {
    records: Records,
    has_failed: bool,
}

impl Iterator for OwnedRecords {
    type Item = Result<RecordBuf>;

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

/// Copies each record out of the read buffer.
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

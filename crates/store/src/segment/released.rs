//! The callback for released segments.
//!
//! An epoch that ended inside a segment leaves bytes behind its end that may look like records. The
//! store notes these ranges at the open, because the headers that name them may rot later.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use super::Segments;
use crate::folder::segment_name;
use crate::segment::segment_file::{LOG_AT, SegmentFile};
use crate::sync::survive;
use crate::{BadHeader, Segment, SegmentHeader};
use crate::{Error, ErrorKind, Lsn, Result, Uuid};

/// Gets each segment before the log gives it up, as `Archive` does: see `Options::on_release`.
pub trait OnRelease: fmt::Debug + Send + Sync {
    /// Takes a segment that `Wal::truncate_before` releases. After `Ok` the log recycles or removes
    /// its file.
    ///
    /// The thread that truncates, or that drops the segment's last reader, makes the calls, one at
    /// a time and in ascending order, under no lock of the store: other threads append, commit,
    /// read and truncate the suffix meanwhile. The callback must not call `truncate_before` or
    /// `close` of the same log; in other threads these calls wait for it.
    ///
    /// An open and a truncation of the suffix do not call it. After a crash it may get a segment
    /// again.
    ///
    /// # Errors
    /// After an error or a panic that segment and all above it stay until the next truncation.
    /// `truncate_before` returns the error, although the head has moved; the drop of a reader
    /// reports none.
    fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()>;
}

impl<T: OnRelease + ?Sized> OnRelease for Arc<T> {
    fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        (**self).released(segment)
    }
}

/// A segment that the log is about to give up.
#[derive(Debug)]
pub struct ReleasedSegment<'a> {
    /// The identity of the log.
    pub uuid: Uuid,
    /// Bytes of log in a segment.
    pub segment_bytes: u64,
    /// The segment's header.
    pub header: SegmentHeader,
    /// Exclusive end of its records: its own, or that of an epoch that ended in it.
    pub end: Lsn,
    block: Vec<u8>,
    file: &'a SegmentFile,
}

impl ReleasedSegment<'_> {
    /// Returns the file's name, which with the log's UUID identifies these bytes for ever.
    #[must_use]
    pub fn file_name(&self) -> String {
        segment_name(self.header.number)
    }

    /// Returns how many bytes [`reader`](ReleasedSegment::reader) gives.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        LOG_AT + self.end.bytes_since(self.header.base)
    }

    /// Reads the segment's file: the header's block of 4096 bytes, then the log's bytes up to
    /// `end`, with zeros for what the file lacks. Checks no checksums of records.
    #[must_use]
    pub fn reader(&self) -> impl Read {
        let log = LogBytes { file: self.file, at: 0 };
        self.block.as_slice().chain(log).chain(io::repeat(0)).take(self.file_bytes())
    }
}

const CALLBACK_FAILED: &str = "the head has moved, but this segment and all above it stay \
     in the log until the callback takes them: correct the cause, then truncate again, also at the \
     same LSN";

struct LogBytes<'a> {
    file: &'a SegmentFile,
    at: u64,
}

impl Read for LogBytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(self.at, into)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Segments {
    pub(super) fn note_discarded(&self, from: Lsn, to: Lsn) {
        if self.on_release.is_some() {
            self.discarded.lock().insert((from, to));
        }
    }

    pub(super) fn note_all_dead(&self) -> Result<()> {
        if self.on_release.is_none() {
            return Ok(());
        }
        for Segment { number, header } in self.list()? {
            match header {
                Ok(SegmentHeader { predecessor: Some(before), base, .. }) => {
                    self.note_discarded(before.end, base);
                }
                // Nothing tells which of the records below it were truncated.
                Err(bad @ BadHeader::Unreadable(_)) => {
                    return Err(self.located(Error::new(bad.kind(), bad.to_string()), number));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives the segments `numbers`, ascending, to the callback. After a failure removes that one
    /// and all above it from `numbers`. Keeps the discarded ranges above `lowest`, the log's lowest
    /// segment.
    pub(super) fn hand_out(&self, numbers: &mut Vec<u64>, lowest: u64) -> Result<()> {
        let Some(callback) = &self.on_release else { return Ok(()) };
        self.discarded.lock().retain(|(_, base)| self.start_of(lowest) < *base);
        for (index, &number) in numbers.iter().enumerate() {
            if let Err(error) = self.hand_out_one(callback.as_ref(), number) {
                numbers.truncate(index);
                return Err(error.at_segment(number));
            }
        }
        Ok(())
    }

    fn hand_out_one(&self, callback: &dyn OnRelease, number: u64) -> Result<()> {
        let end = self.end_of_records(number);
        if end <= self.start_of(number) {
            return Ok(());
        }
        let Some(file) = self.file_to_read(number)? else { return Ok(()) };
        let block = file
            .read_header()
            .map_err(|error| self.named("read the segment's header", number, error))?;
        let found = self.check_header(&block, number)?;
        let header = found.header.map_err(|text| {
            let text =
                format!("the header of a segment that is released does not validate: {text}");
            self.located(Error::new(ErrorKind::Corrupt, text), number)
        })?;
        let segment = ReleasedSegment {
            uuid: self.shape.uuid,
            segment_bytes: self.shape.segment_bytes,
            header,
            end,
            block,
            file: &file,
        };
        let panicked = || Err(Error::new(ErrorKind::Io, "the callback panicked"));
        let released = survive(|| callback.released(&segment)).unwrap_or_else(panicked);
        released.map_err(|error| {
            let what = "the callback for released segments failed";
            let failed = Error::new(error.kind(), what).with_advice(CALLBACK_FAILED);
            let failed = match error.path() {
                Some(path) => failed.at_path(path),
                None => failed,
            };
            failed.with_source(error)
        })
    }

    /// Returns where the segment's records end: at or below its base if it has none.
    fn end_of_records(&self, number: u64) -> Lsn {
        let (base, end) = (self.start_of(number), self.start_of(number + 1));
        let dead = self.discarded.lock();
        let inside = dead.iter().filter(|(from, to)| *from < end && base < *to);
        inside.map(|(from, _)| *from).min().unwrap_or(end)
    }
}

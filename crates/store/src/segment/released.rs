//! The callback for released segments: it gets each before the log loses it.
//!
//! An epoch that ended inside a segment leaves bytes behind its end that may look like records.
//! The store remembers these discarded ranges from the open on, as the headers name them, because
//! such a header may rot before its segment is released.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use super::Segments;
use crate::folder::segment_name;
use crate::segment::segment_file::{LOG_AT, SegmentFile};
use crate::sync::survive;
use crate::{BadHeader, Segment, SegmentHeader};
use crate::{Error, ErrorKind, Lsn, Result, Uuid};

/// A callback that gets each segment before the log gives it up, for example to copy it.
///
/// `Options::on_release` sets it; `Archive` implements it.
pub trait OnRelease: fmt::Debug + Send + Sync {
    /// Takes a segment that `Wal::truncate_before` releases. When this returns `Ok`, the log
    /// recycles or removes the segment's file.
    ///
    /// The thread that releases calls it: one that truncates, or one that drops the last reader of
    /// the segment. The calls come one at a time, with the segments in ascending order, under no
    /// lock of the store: other threads append, commit, read and truncate the suffix meanwhile. The
    /// callback must not call `truncate_before` or `close` of the same log; in other threads these
    /// calls wait for it.
    ///
    /// Neither an open nor a truncation of the suffix calls it: what they free holds no records of
    /// the log.
    /// After a crash the next truncation releases what is left below the head, so the callback may
    /// get a segment twice.
    ///
    /// # Errors
    /// If it fails or panics, that segment and all above it stay. `truncate_before` returns the
    /// error, though the head has moved. The drop of a reader reports no error. The next truncation
    /// tries again.
    fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()>;
}

impl<T: OnRelease + ?Sized> OnRelease for Arc<T> {
    fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        (**self).released(segment)
    }
}

/// A segment that the log is about to give up: what it is, and its bytes.
#[derive(Debug)]
pub struct ReleasedSegment<'a> {
    /// The identity of the log.
    pub uuid: Uuid,
    /// Bytes of log in a segment of this log.
    pub segment_bytes: u64,
    /// The segment's number, its base LSN, and its epoch.
    pub header: SegmentHeader,
    /// Exclusive end of the segment's records: the segment's end, or, if its epoch ended in it,
    /// that epoch's end.
    pub end: Lsn,
    block: Vec<u8>,
    file: &'a SegmentFile,
}

impl ReleasedSegment<'_> {
    /// Returns the name of the segment's file. With the log's UUID it identifies these bytes for
    /// ever.
    #[must_use]
    pub fn file_name(&self) -> String {
        segment_name(self.header.number)
    }

    /// Returns how many bytes [`reader`](ReleasedSegment::reader) gives.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        LOG_AT + self.end.bytes_since(self.header.base)
    }

    /// Reads the segment's file from its beginning: the header's block of 4096 bytes, then the
    /// log's bytes up to `end`. What the file does not have of them, which can be the rest of a
    /// padding, reads as zeros. The checksums of records are not looked at.
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
    /// Remembers that no record lies in `[from, to)`, where an epoch ended and the next one began.
    pub(super) fn note_discarded(&self, from: Lsn, to: Lsn) {
        if self.on_release.is_some() {
            self.discarded.lock().insert((from, to));
        }
    }

    /// Remembers the discarded ranges that the headers of all segments name.
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

    /// Gives the segments `numbers`, ascending, to the callback. If it fails for one, removes that
    /// one and all above it from `numbers`. `lowest` is the lowest segment of the log: it and those
    /// above may be released later, so their discarded ranges are kept.
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

    /// Returns where the records of segment `number` end. Returns its base or an LSN below, if it
    /// has none.
    fn end_of_records(&self, number: u64) -> Lsn {
        let (base, end) = (self.start_of(number), self.start_of(number + 1));
        let dead = self.discarded.lock();
        let inside = dead.iter().filter(|(from, to)| *from < end && base < *to);
        inside.map(|(from, _)| *from).min().unwrap_or(end)
    }
}

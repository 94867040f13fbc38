//! Reads a log that is being written: iterators and single records.

use std::sync::Arc;

use super::Wal;
use super::epochs::truncated_error;
use super::truncate_before::below_head;
use crate::frame::Header;
use crate::reader::{EpochSpan, FrameReader, Lookup, RecordBuf, Records, damaged};
use crate::store::ReadStore;
use crate::{Error, ErrorKind, Lsn, Result};

/// The number of bytes that a read of a single record starts with.
const SINGLE_READ_BYTES: usize = 4096;

impl Wal {
    /// Returns all records from the head to the end of the log at the time of the call.
    pub fn records(&self) -> Result<Records> {
        self.records_to_end(None, self.handle.read_ahead_bytes)
    }

    /// Returns the records from the one at `lsn` on.
    pub fn records_from(&self, lsn: Lsn) -> Result<Records> {
        self.check_readable(lsn)?;
        if lsn < self.reserved_lsn() && self.span_of(lsn).is_some() {
            self.frame_at(lsn)?;
        }
        self.records_to_end(Some(lsn), self.handle.read_ahead_bytes)
    }

    /// Returns the record at `lsn`, copied out of the store.
    pub fn get(&self, lsn: Lsn) -> Result<RecordBuf> {
        self.check_readable(lsn)?;
        let span = self.span_of(lsn).filter(|_| lsn < self.reserved_lsn());
        let Some(span) = span else { return Err(self.not_a_record(lsn)) };
        self.flush_until(lsn.plus(1))?;
        let pin = self.pin(Some(lsn))?;
        let mut reader = self.frame_reader(SINGLE_READ_BYTES);
        let found = reader.record(lsn, span.seed);
        drop(pin);
        // After the read: a record that was read from a freed segment was truncated.
        self.check_not_truncated(lsn)?;
        match found? {
            Lookup::Record(record) => Ok(record),
            Lookup::Damaged => Err(damaged(lsn, span, None)),
            Lookup::NotARecord => Err(self.not_a_record(lsn)),
        }
    }

    /// Reads the header of the frame at `lsn` from the store.
    pub(super) fn frame_at(&self, lsn: Lsn) -> Result<Header> {
        let Some(span) = self.span_of(lsn) else { return Err(self.not_a_record(lsn)) };
        self.flush_until(lsn.plus(1))?;
        let pin = self.pin(Some(lsn))?;
        let header = self.frame_reader(SINGLE_READ_BYTES).header(lsn, span.seed);
        drop(pin);
        // After the read: a record that was read from a freed segment was truncated.
        self.check_not_truncated(lsn)?;
        header?.ok_or_else(|| self.not_a_record(lsn))
    }

    /// Returns the records from `from`, or from the head on, to the end at the time of the call.
    fn records_to_end(&self, from: Option<Lsn>, read_ahead_bytes: usize) -> Result<Records> {
        let reserved = self.reserved_lsn();
        let failure = match self.flush_until(reserved) {
            Ok(()) => None,
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(error) => Some(error),
        };
        let end = if failure.is_some() { self.written_lsn() } else { reserved };
        Ok(self.records_until(from, end, read_ahead_bytes)?.failing_at_end(failure))
    }

    pub(super) fn records_until(
        &self,
        from: Option<Lsn>,
        end: Lsn,
        read_ahead_bytes: usize,
    ) -> Result<Records> {
        self.handle.log.check_process()?;
        // Before the pin: the pin finds a truncation between the two.
        let spans = self.spans_until(end);
        let from = from.map(|from| self.handle.epochs.skip_discarded(from));
        let pin = self.pin(from)?;
        let from = pin.at();
        let reader = self.frame_reader(read_ahead_bytes);
        Ok(Records::new(reader, spans, from).keeping(Box::new(pin)))
    }

    /// Returns the epochs up to `end`.
    pub(super) fn spans_until(&self, end: Lsn) -> Vec<EpochSpan> {
        let mut spans = self.handle.epochs.all();
        if let Some(running) = spans.last_mut() {
            running.end = end.max(running.base);
        }
        spans
    }

    pub(super) fn frame_reader(&self, read_ahead_bytes: usize) -> FrameReader {
        let store = Arc::clone(&self.handle.log.store) as Arc<dyn ReadStore>;
        let segment_bytes = self.handle.state.lock().segment_bytes;
        FrameReader::new(store, segment_bytes, read_ahead_bytes)
    }

    pub(super) fn check_readable(&self, lsn: Lsn) -> Result<()> {
        self.handle.log.check_process()?;
        let (head, reserved) = (self.head_lsn(), self.reserved_lsn());
        if lsn < head {
            return Err(below_head(lsn, head));
        }
        if lsn > reserved {
            let text = format!("the log ends at LSN {reserved}");
            return Err(Error::new(ErrorKind::OutOfRange, text).at_lsn(lsn));
        }
        Ok(())
    }

    /// Returns the error for an `lsn` at which no record begins, or none any more.
    fn not_a_record(&self, lsn: Lsn) -> Error {
        let none = || Error::new(ErrorKind::NotARecord, "no record begins here").at_lsn(lsn);
        let discarded = || self.span_of(lsn).is_none().then(|| truncated_error(lsn));
        self.check_readable(lsn).err().or_else(discarded).unwrap_or_else(none)
    }

    pub(super) fn span_of(&self, lsn: Lsn) -> Option<EpochSpan> {
        self.handle.epochs.find(lsn)
    }
}

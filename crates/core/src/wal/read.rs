//! Reading a log that is being written: iterators, single records, following the tail.

use std::sync::Arc;
use std::time::Duration;

use super::ends::below_head;
use super::epochs::cut_off;
use super::{WRITTEN_POLL, Wal};
use crate::frame::Header;
use crate::reader::{EpochSpan, Found, FrameReader, Record, RecordBuf, Records, damaged};
use crate::store::ReadStore;
use crate::sync::Instant;
use crate::{Error, ErrorKind, Lsn, Result};

/// Bytes that a read of a single record begins with.
const SINGLE_READ_BYTES: usize = 4096;

impl Wal {
    /// All records from the head to the end of the log at the time of the call.
    ///
    /// Brings everything to the operating system first, as [`flush_to_os`](Wal::flush_to_os); so
    /// it may wait for appends in progress, not for the device.
    ///
    /// # Errors
    /// `Io`. On a poisoned log, or when the disk is full, the iterator gives what was written
    /// and then the error.
    pub fn iter(&self) -> Result<Records> {
        self.records(None, self.handle.read_ahead_bytes)
    }

    /// The records from the one at `lsn` on. Finds it without a search.
    ///
    /// An `lsn` that a crash or [`truncate_after`](Wal::truncate_after) cut off begins at the next
    /// record; the end of the log gives an empty iterator.
    ///
    /// # Errors
    /// `NotARecord`: no record begins at `lsn`. `Truncated`: it lies below the head.
    /// `OutOfRange`: it lies above the end. Else as [`iter`](Wal::iter).
    pub fn iter_from(&self, lsn: Lsn) -> Result<Records> {
        self.check_readable(lsn)?;
        if lsn < self.reserved_lsn() && self.span_of(lsn).is_some() {
            self.frame_at(lsn)?;
        }
        self.records(Some(lsn), self.handle.read_ahead_bytes)
    }

    /// The record at `lsn`, copied out.
    ///
    /// # Errors
    /// As [`iter_from`](Wal::iter_from), and `Truncated` for an `lsn` that a crash or
    /// [`truncate_after`](Wal::truncate_after) cut off.
    pub fn get(&self, lsn: Lsn) -> Result<RecordBuf> {
        self.check_readable(lsn)?;
        let span = self.span_of(lsn).filter(|_| lsn < self.reserved_lsn());
        let Some(span) = span else { return Err(self.not_a_record(lsn)) };
        self.flush_until(lsn.plus(1))?;
        let pin = self.pin(Some(lsn))?;
        let mut reader = self.frame_reader(SINGLE_READ_BYTES);
        let found = reader.record(lsn, span.seed);
        drop(pin);
        // Behind the look into the store: what was read from a segment that was freed is cut.
        self.check_not_cut(lsn)?;
        match found? {
            Found::Record(record) => Ok(record),
            Found::Damaged => Err(damaged(lsn, span, None)),
            Found::NoRecord => Err(self.not_a_record(lsn)),
        }
    }

    /// Follows the log from the head on: records as they become durable.
    ///
    /// # Errors
    /// As [`iter`](Wal::iter).
    pub fn tail(&self) -> Result<Tail> {
        self.tail_at(None)
    }

    /// Follows the log from the record at `lsn` on.
    ///
    /// # Errors
    /// As [`iter_from`](Wal::iter_from).
    pub fn tail_from(&self, lsn: Lsn) -> Result<Tail> {
        self.check_readable(lsn)?;
        if lsn < self.reserved_lsn() && self.span_of(lsn).is_some() {
            self.frame_at(lsn)?;
        }
        self.tail_at(Some(lsn))
    }

    fn tail_at(&self, from: Option<Lsn>) -> Result<Tail> {
        let records = self.records_until(from, Lsn::ZERO, self.handle.read_ahead_bytes)?;
        let given_to = records.position();
        Ok(Tail { wal: self.clone(), records, given_to, is_durable_only: true })
    }

    /// The header of the frame at `lsn`, from the store.
    pub(super) fn frame_at(&self, lsn: Lsn) -> Result<Header> {
        let Some(span) = self.span_of(lsn) else { return Err(self.not_a_record(lsn)) };
        self.flush_until(lsn.plus(1))?;
        let pin = self.pin(Some(lsn))?;
        let header = self.frame_reader(SINGLE_READ_BYTES).header(lsn, span.seed);
        drop(pin);
        // Behind the look into the store: what was read from a segment that was freed is cut.
        self.check_not_cut(lsn)?;
        header?.ok_or_else(|| self.not_a_record(lsn))
    }

    /// The records from `from`, or from the head on, to the end at the time of the call.
    fn records(&self, from: Option<Lsn>, read_ahead_bytes: usize) -> Result<Records> {
        let reserved = self.reserved_lsn();
        let failure = match self.flush_until(reserved) {
            Ok(()) => None,
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(error) => Some(error),
        };
        let end = if failure.is_some() { self.written_lsn() } else { reserved };
        Ok(self.records_until(from, end, read_ahead_bytes)?.failing_at_end(failure))
    }

    fn records_until(
        &self,
        from: Option<Lsn>,
        end: Lsn,
        read_ahead_bytes: usize,
    ) -> Result<Records> {
        self.handle.log.check_process()?;
        // Before the pin: a truncation between the two is found by the pin.
        let spans = self.spans_until(end);
        let from = from.map(|from| self.handle.epochs.alive_at_or_above(from));
        let pin = self.pin(from)?;
        let from = pin.at();
        let reader = self.frame_reader(read_ahead_bytes);
        Ok(Records::new(reader, spans, from).keeping(Box::new(pin)))
    }

    /// The epochs up to `end`.
    fn spans_until(&self, end: Lsn) -> Vec<EpochSpan> {
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

    fn check_readable(&self, lsn: Lsn) -> Result<()> {
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

    /// No record begins at `lsn`, or none does any more.
    fn not_a_record(&self, lsn: Lsn) -> Error {
        let none = || Error::new(ErrorKind::NotARecord, "no record begins here").at_lsn(lsn);
        let dead = || self.span_of(lsn).is_none().then(|| cut_off(lsn));
        self.check_readable(lsn).err().or_else(dead).unwrap_or_else(none)
    }

    fn span_of(&self, lsn: Lsn) -> Option<EpochSpan> {
        self.handle.epochs.find(lsn)
    }
}

/// Follows a log: gives each record once, in LSN order, as soon as it is durable.
///
/// It asks nobody to sync: it sees what commits make durable.
#[derive(Debug)]
pub struct Tail {
    wal: Wal,
    records: Records,
    // End of the last record that it gave. Behind it the position may have passed padding and
    // marks, which nobody misses when they are cut off.
    given_to: Lsn,
    is_durable_only: bool,
}

impl Tail {
    /// Gives records as soon as they were handed to the operating system, durable or not. A
    /// crash can take back what was given.
    #[must_use]
    pub fn written(mut self) -> Tail {
        self.is_durable_only = false;
        self
    }

    /// The next record, or `None` if there was none within `patience`.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Io`: as [`Records::next`]. `Truncated`: what it has given, or the
    /// record that it was to begin with, was cut off by [`truncate_after`](Wal::truncate_after). `Closed`, `Poisoned`: after the last record
    /// that there will be.
    pub fn next(&mut self, patience: Duration) -> Result<Option<Record<'_>>> {
        self.wal.handle.log.check_process()?;
        let deadline = Instant::now().checked_add(patience);
        loop {
            if self.records.is_finished() {
                return Ok(None);
            }
            match self.records.advance() {
                Ok(Some(found)) => {
                    self.given_to = self.records.position();
                    return Ok(Some(self.records.record(found)));
                }
                Ok(None) => {}
                // It has come to a cut: the next step says whether it has given more.
                Err(error) if error.kind() == ErrorKind::Truncated => {}
                Err(error) => return Err(error),
            }
            let end = self.end();
            let at = self.leave_what_was_cut()?;
            if end > at {
                self.records.extend_to(self.wal.spans_until(end));
            } else if !self.wait_beyond(at, deadline)? {
                return Ok(None);
            }
        }
    }

    /// Where it goes on; an error if the log was cut below the end of what it gave.
    fn leave_what_was_cut(&mut self) -> Result<Lsn> {
        let epochs = &self.wal.handle.epochs;
        if epochs.is_beyond_a_cut(self.given_to) {
            return Err(self.records.end_with(cut_off(self.given_to)));
        }
        let at = self.records.position();
        if epochs.is_beyond_a_cut(at) {
            self.records.go_on_from(self.given_to);
        }
        Ok(self.records.position())
    }

    fn end(&self) -> Lsn {
        if self.is_durable_only { self.wal.durable_lsn() } else { self.wal.written_lsn() }
    }

    /// Waits for the end to move beyond `at`; false if the deadline came first.
    fn wait_beyond(&self, at: Lsn, deadline: Option<Instant>) -> Result<bool> {
        let now = Instant::now();
        let deadline = deadline.unwrap_or(now + Duration::from_secs(1 << 30));
        if now >= deadline {
            return Ok(false);
        }
        if self.is_durable_only {
            return self.wal.commit_state().observe(at.plus(1), deadline);
        }
        self.wal.commit_state().check_goes_on(at.plus(1))?;
        crate::sync::sleep(WRITTEN_POLL.min(deadline - now));
        Ok(true)
    }
}

//! Reads a log that is being written: iterators and single records.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use palisade_store::ReadStore;

use super::Wal;
use super::epochs::{View, truncated_error};
use super::pins::{Lease, Pin, PinKind};
use super::truncate_before::below_head;
use crate::codec::Decoder;
use crate::frame::Header;
use crate::reader::{EpochSpan, FrameReader, RecordBuf, Records, missing_segment};
use crate::{Error, ErrorKind, Lsn, Result};

/// The number of bytes that a read of a single record starts with. Each page that it reaches into
/// costs time, and so does the second read of a longer record.
const SINGLE_READ_BYTES: usize = 3072;

impl Wal {
    /// Returns all records from the head to the end of the log at the time of the call, also those
    /// that are not durable yet.
    ///
    /// The call reads and writes nothing. When the iterator comes to records that only the log
    /// buffer has, it hands them to the operating system, as [`flush_to_os`](Wal::flush_to_os)
    /// does. So it may wait for appends in progress. In rare cases it waits for the device, because
    /// the log makes a segment, or syncs and closes the oldest of its open segments. On a poisoned
    /// log or a full disk, the iterator returns all written records and then the error.
    ///
    /// [`Records::next`] borrows each record from a read buffer. A `for` loop gets copies:
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// wal.append_many(["one", "two"])?;
    /// let copies: Vec<_> = wal.records()?.into_iter().collect::<palisade::Result<_>>()?;
    /// assert_eq!(copies[1].data(), b"two");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Forked`: another process opened the log.
    pub fn records(&self) -> Result<Records> {
        self.records_below(None, Lsn::LIMIT)
    }

    /// Returns the records from the one at `lsn` on. The first record needs no search.
    ///
    /// The call reads the header of the record at `lsn`. If only the log buffer has that record,
    /// the call first hands it to the operating system. The iterator does the rest, as that of
    /// [`records`](Wal::records).
    ///
    /// `lsn` can also be the end of the log, or the end of the records that stayed when a crash or
    /// a truncation of the suffix removed others. Then the iterator begins with the next record, if
    /// there is one.
    ///
    /// # Errors
    /// `NotARecord`: no record begins at `lsn`. `Truncated`: `lsn` is below the head, or within a
    /// range that a crash or a truncation of the suffix removed, above its start;
    /// [`resume_lsn`](Wal::resume_lsn) returns where to continue. `OutOfRange`: `lsn` is above the
    /// end. `Io`: the header could not be read. `Corrupt`: the segment that must hold the record is
    /// missing. `NoSpace`, `NoFiles`, `Poisoned`: the record could not be handed to the operating
    /// system. `Forked`.
    pub fn records_from(&self, lsn: Lsn) -> Result<Records> {
        self.check_begin(lsn)?;
        self.records_below(Some(lsn), Lsn::LIMIT)
    }

    /// Returns the records that begin in `range`, in LSN order. The call reads the header of the
    /// first record, if `range` names it, as [`records_from`](Wal::records_from) does. If all
    /// records in `range` are written, the iterator writes nothing, whatever is above `range`.
    ///
    /// `range` begins at a record, or is unbounded below and begins at the head. Its end can be any
    /// LSN. If it is above the end of the log, the range ends at the end of the log.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// let ticket = wal.append_many(["one", "two", "three"])?;
    /// let [first, _, third] = *ticket.lsns() else { unreachable!() };
    /// assert_eq!(wal.range(first..third)?.into_iter().count(), 2);
    /// assert_eq!(wal.range(first..=third)?.into_iter().count(), 3);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`records_from`](Wal::records_from). `InvalidArgument`: the start of `range` is excluded.
    pub fn range(&self, range: impl RangeBounds<Lsn>) -> Result<Records> {
        let from = match range.start_bound() {
            Bound::Included(&from) => Some(from),
            Bound::Excluded(&from) => {
                let text = "a range of records includes its first LSN";
                return Err(Error::new(ErrorKind::InvalidArgument, text).at_lsn(from));
            }
            Bound::Unbounded => None,
        };
        let to = match range.end_bound() {
            Bound::Included(to) => to.plus(1),
            Bound::Excluded(&to) => to,
            Bound::Unbounded => Lsn::LIMIT,
        };
        if let Some(from) = from {
            self.check_begin(from)?;
        }
        self.records_below(from, to)
    }

    /// Returns the records at `lsns`, in the order of `lsns`. Reads them in LSN order, so that one
    /// read of the file can serve several records that are close to each other.
    ///
    /// # Errors
    /// As [`get`](Wal::get), for one of the LSNs. Then the call returns no record.
    pub fn get_batch(&self, lsns: &[Lsn]) -> Result<Vec<RecordBuf>> {
        self.handle.commit.check_process()?;
        let Some(&highest) = lsns.iter().max() else { return Ok(Vec::new()) };
        lsns.iter().try_for_each(|&lsn| self.check_record(lsn).map(drop))?;
        self.flush_until(highest.plus(1))?;
        let _pin = self.pin(PinKind::Reader, lsns.iter().min().copied())?;
        let mut reader = self.frame_reader(self.handle.read_ahead_bytes);
        let mut decoder = self.decoder();
        let mut order: Vec<usize> = (0..lsns.len()).collect();
        order.sort_unstable_by_key(|&index| lsns[index]);
        let mut found: Vec<Option<RecordBuf>> = vec![None; lsns.len()];
        for index in order {
            let span = self.check_record(lsns[index])?;
            let stored = self.stored_at(&mut reader, lsns[index], span)?;
            reader.note_single(lsns[index]..stored.next_lsn());
            let decoded = decoder.decode_buf(stored);
            found[index] = Some(decoded.map_err(|error| reader.located(error, lsns[index]))?);
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns whether the log has no record. Reads the first one, if there is one.
    ///
    /// # Errors
    /// As [`Records::next`].
    pub fn is_empty(&self) -> Result<bool> {
        self.unless_truncated(|| Ok(self.records()?.next()?.is_none()))
    }

    /// Calls `read` again if a truncation of the suffix came between.
    fn unless_truncated<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            let base = self.handle.epochs.running_base();
            match read() {
                Err(error)
                    if error.kind() == ErrorKind::Truncated
                        && base < self.handle.epochs.running_base() => {}
                result => return result,
            }
        }
    }

    /// Returns the last record of the log at the time of the call, or `None` if there is none.
    ///
    /// In most cases reads one record. If no record was appended since the last checkpoint or since
    /// the open, reads the segment that holds the record.
    ///
    /// # Errors
    /// `NoSpace`, `NoFiles`, `Poisoned`: not all records could be handed to the operating system.
    /// Else as [`Records::next`].
    pub fn last_record(&self) -> Result<Option<RecordBuf>> {
        self.handle.commit.check_process()?;
        self.unless_truncated(|| self.last_in(&self.view(None)))
    }

    fn last_in(&self, view: &View) -> Result<Option<RecordBuf>> {
        let end = view.end;
        self.flush_until(end)?;
        let segment_bytes = self.handle.segment_bytes;
        let segment_below = |at: Lsn| at.before().segment_start(segment_bytes);
        // Unless the last reservation that was written is padding or a mark, it has the record.
        let last_written = self.handle.commit.last_written();
        let was_written = last_written > Lsn::ZERO;
        let mut from = if was_written { last_written.min(end) } else { segment_below(end) };
        let mut to = end;
        loop {
            let head = self.head_lsn();
            match self.last_between(from.max(head), to, view.spans.clone()) {
                // A truncation of the prefix came between: look again from the new head.
                Err(error) if error.kind() == ErrorKind::Truncated && head < self.head_lsn() => {}
                Ok(None) if from > head => {
                    to = from;
                    from = segment_below(to);
                }
                found => return found,
            }
        }
    }

    /// Returns the last record of `spans` that begins in `[from, to)`, if there is one. A frame
    /// begins at `from`, or nothing is there.
    fn last_between(&self, from: Lsn, to: Lsn, spans: Vec<EpochSpan>) -> Result<Option<RecordBuf>> {
        let pin = self.pin(PinKind::Reader, Some(from))?;
        let mut records = self.records_in(spans, pin).ending_at(to);
        let mut last = None;
        while let Some(record) = records.next()? {
            last = Some(RecordBuf::from(record));
        }
        Ok(last)
    }

    /// Returns the record at `lsn`, copied out of the store.
    ///
    /// # Errors
    /// `NotARecord`: no record begins at `lsn`, or `lsn` is the end of the log. `Truncated`: the
    /// record is below the head, or a crash or a truncation of the suffix removed it.
    /// `Corrupt`: the record does not validate. Else as [`records_from`](Wal::records_from).
    pub fn get(&self, lsn: Lsn) -> Result<RecordBuf> {
        let stored = self.get_stored(lsn)?;
        let decoded = self.decoder().decode_buf(stored);
        decoded.map_err(|error| self.frame_reader(SINGLE_READ_BYTES).located(error, lsn))
    }

    /// Returns the record at `lsn` as it is stored.
    #[inline]
    pub(super) fn get_stored(&self, lsn: Lsn) -> Result<RecordBuf> {
        let span = self.check_record(lsn)?;
        self.flush_until(lsn.plus(1))?;
        let _pin = self.pin(PinKind::Reader, Some(lsn))?;
        self.stored_at(&mut self.frame_reader(SINGLE_READ_BYTES), lsn, span)
    }

    /// Returns the epoch of the record at `lsn`. Refuses an LSN below the head, at or above the
    /// end, or in a discarded range.
    #[inline]
    fn check_record(&self, lsn: Lsn) -> Result<EpochSpan> {
        self.check_readable(lsn)?;
        let span = self.span_of(lsn).filter(|_| lsn < self.reserved_lsn());
        span.ok_or_else(|| self.not_a_record(lsn))
    }

    /// Reads the record of epoch `span` at `lsn`, which is written and pinned, as it is stored.
    #[inline]
    fn stored_at(&self, reader: &mut FrameReader, lsn: Lsn, span: EpochSpan) -> Result<RecordBuf> {
        let found = reader.record(lsn, span);
        // Check after the read: a truncation may have freed the segment during the read.
        self.check_not_truncated(lsn)?;
        found?.ok_or_else(|| self.not_a_record(lsn))
    }

    /// Returns where a consumer that saved `lsn` continues. `lsn` is the end of the last record
    /// that the consumer has applied ([`Record::next_lsn`](crate::Record::next_lsn),
    /// [`Tail::position`](crate::Tail::position)).
    ///
    /// - The result is `lsn`: nothing that the consumer has applied is gone.
    /// - The result is below `lsn`: a crash or a truncation of the suffix may have removed records
    ///   that the consumer has applied. The result is the end of those that stay.
    /// - The result is above `lsn`: it is the head. Records that the consumer has not seen may have
    ///   been truncated.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// let kept = wal.append(b"kept")?.lsn();
    /// let saved = wal.append(b"overruled")?.lsn();
    /// wal.truncate_after(kept)?;
    /// wal.append(b"agreed")?;
    /// assert!(wal.resume_lsn(saved)? <= saved);
    /// let mut records = wal.records_from(wal.resume_lsn(saved)?)?;
    /// assert_eq!(records.next()?.expect("it was appended").data(), b"agreed");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `OutOfRange`: `lsn` is above the end. `Forked`.
    pub fn resume_lsn(&self, lsn: Lsn) -> Result<Lsn> {
        let head = self.head_lsn();
        self.check_readable(lsn.max(head))?;
        if self.is_at_head(lsn) {
            return Ok(lsn);
        }
        if lsn < self.reserved_lsn() && self.span_of(lsn).is_some() {
            return Ok(lsn.max(head));
        }
        // Not the base of an epoch without records: the next open forgets such an epoch.
        Ok(self.handle.epochs.leave_discarded(lsn).max(head))
    }

    /// Refuses an LSN at which no reader can begin. Allowed are records, the head, and the end of
    /// the log or of an epoch.
    pub(super) fn check_begin(&self, lsn: Lsn) -> Result<()> {
        self.handle.commit.check_process()?;
        if self.is_at_head(lsn) {
            return Ok(());
        }
        self.check_readable(lsn)?;
        if lsn == self.reserved_lsn() {
            return Ok(());
        }
        if self.span_of(lsn).is_some() {
            return self.frame_at(lsn).map(drop);
        }
        if self.handle.epochs.skip_end_of_epoch(lsn) > lsn {
            return Ok(());
        }
        Err(removed_begin(lsn))
    }

    /// Returns whether `lsn` is the head, or no record was ever between the two.
    pub(super) fn is_at_head(&self, lsn: Lsn) -> bool {
        let head = self.head_lsn();
        lsn == head || (lsn < head && head <= self.handle.epochs.skip_end_of_epoch(lsn))
    }

    /// Reads the header of the frame at `lsn` from the store, after a write of the frame if only
    /// the log buffer has it.
    pub(super) fn frame_at(&self, lsn: Lsn) -> Result<Header> {
        let Some(span) = self.span_of(lsn) else { return Err(self.not_a_record(lsn)) };
        self.flush_until(lsn.plus(1))?;
        let _pin = self.pin(PinKind::Reader, Some(lsn))?;
        let header = self.frame_reader(SINGLE_READ_BYTES).header(lsn, span.seed);
        // Check after the read: a truncation may have freed the segment during the read.
        self.check_not_truncated(lsn)?;
        header?.ok_or_else(|| self.not_a_record(lsn))
    }

    /// Returns the records that begin in `[from, to)`. Without `from`, begins at the head.
    fn records_below(&self, from: Option<Lsn>, to: Lsn) -> Result<Records> {
        let written = self.written_lsn();
        let (pin, view) = self.pinned_view(from, PinKind::Reader, None)?;
        let end = view.end.min(to);
        Ok(self.records_in(view.spans, pin).ending_at(end).writing_from(written))
    }

    /// Pins the log from `from` on, or from the head on, and returns the epochs and the end of the
    /// log at the same moment.
    pub(super) fn pinned_view(
        &self,
        from: Option<Lsn>,
        kind: PinKind,
        lease: Option<Arc<Lease>>,
    ) -> Result<(Pin, View)> {
        self.handle.commit.check_process()?;
        let state = self.handle.state.lock();
        let view = self.view(from);
        match view.begin {
            // Truncated after `check_begin`: the reader would begin above what it was to read.
            Some(begin) if begin.is_inside_discarded && !self.is_at_head(begin.named) => {
                return Err(removed_begin(begin.named));
            }
            _ => {}
        }
        let pin = self.pin_in(&state, kind, view.begin.map(|begin| begin.next), lease)?;
        Ok((pin, view))
    }

    /// Returns the epochs and the end of the log at one moment, and where a reader begins in them
    /// that names `from`.
    pub(super) fn view(&self, from: Option<Lsn>) -> View {
        self.handle.epochs.view(from, || self.reserved_lsn())
    }

    /// Returns the records in `spans` from the pin on.
    pub(super) fn records_in(&self, spans: Vec<EpochSpan>, pin: Pin) -> Records {
        let reader = self.frame_reader(self.handle.read_ahead_bytes);
        let records = Records::new(reader, spans, pin.at()).decoding(self.decoder());
        records.keeping(Box::new(pin))
    }

    pub(super) fn frame_reader(&self, read_ahead_bytes: usize) -> FrameReader {
        let store = Arc::clone(&self.handle.commit.store) as Arc<dyn ReadStore>;
        FrameReader::new(store, self.handle.segment_bytes, read_ahead_bytes).starting_small()
    }

    /// Returns what makes the records of a reader the ones that were appended.
    pub(super) fn decoder(&self) -> Decoder {
        Decoder::new(self.handle.codec.clone(), self.handle.segment_bytes)
    }

    /// Refuses an LSN below the head or above the end.
    pub(super) fn check_readable(&self, lsn: Lsn) -> Result<()> {
        self.handle.commit.check_process()?;
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

    /// Returns the error for an `lsn` at which no record begins: `Truncated` if the record was
    /// truncated, else `NotARecord`, or `OutOfRange` above the end.
    fn not_a_record(&self, lsn: Lsn) -> Error {
        let none = || Error::new(ErrorKind::NotARecord, "no record begins here").at_lsn(lsn);
        let discarded = || self.span_of(lsn).is_none().then(|| truncated_error(lsn));
        let truncated = || self.check_readable(lsn).err().or_else(discarded);
        if let Some(error) = truncated() {
            return error;
        }
        if lsn >= self.written_lsn() {
            return none();
        }
        let store = self.handle.commit.store.as_ref();
        match missing_segment(store, self.handle.segment_bytes, lsn) {
            // Check after the look: a truncation may have freed the segment before it.
            Some(missing) => truncated().unwrap_or(missing),
            None => none(),
        }
    }

    pub(super) fn span_of(&self, lsn: Lsn) -> Option<EpochSpan> {
        self.handle.epochs.find(lsn)
    }
}

/// Returns the error for an LSN at which a reader was to begin, and which was truncated.
fn removed_begin(lsn: Lsn) -> Error {
    truncated_error(lsn).with_advice("Wal::resume_lsn returns where to continue")
}

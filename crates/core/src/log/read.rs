//! Reads of a log that is being written.

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

/// Small, because each page that is read costs time; large enough to spare most second reads.
const SINGLE_READ_BYTES: usize = 3072;

impl Wal {
    /// Returns the records from the head to the log's end at the time of the call, durable or not.
    ///
    /// The iterator writes what only the log buffer has, as [`flush_to_os`](Wal::flush_to_os) does,
    /// so it may wait for appends in progress, and rarely for the device. On a poisoned log or a
    /// full disk it returns all written records and then the error. [`Records::next`] borrows each
    /// record. A `for` loop gets copies:
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
    /// `Forked`.
    pub fn records(&self) -> Result<Records> {
        self.records_below(None, Lsn::LIMIT)
    }

    /// Returns the records from the one at `lsn` on, whose header it reads. Like the iterator of
    /// [`records`](Wal::records), it first writes what only the log buffer has. `lsn` may be the
    /// end of the log, or of the records that a crash or a truncation of the suffix left.
    ///
    /// # Errors
    /// `NotARecord`, `OutOfRange`, `Io`. `Truncated`: [`resume_lsn`](Wal::resume_lsn) returns where
    /// to continue. `Corrupt`: the segment is missing. `NoSpace`, `Poisoned`: the record could not
    /// be written.
    pub fn records_from(&self, lsn: Lsn) -> Result<Records> {
        self.check_begin(lsn)?;
        self.records_below(Some(lsn), Lsn::LIMIT)
    }

    /// Returns the records that begin in `range`. It starts where
    /// [`records_from`](Wal::records_from) can, or unbounded (the head), and ends at any LSN. If
    /// all are written, the iterator writes nothing.
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

    /// Returns the records at `lsns`, in their order. One read can serve several.
    ///
    /// # Errors
    /// As [`get`](Wal::get), for one of the LSNs.
    pub fn get_batch(&self, lsns: &[Lsn]) -> Result<Vec<RecordBuf>> {
        self.handle.commit.own()?;
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

    /// Returns whether the log has no record, by a read of the first.
    ///
    /// # Errors
    /// As [`Records::next`].
    pub fn is_empty(&self) -> Result<bool> {
        self.unless_truncated(|| Ok(self.records()?.next()?.is_none()))
    }

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

    /// Returns the last record. Unless it was the last thing written, reads its whole segment.
    ///
    /// # Errors
    /// `NoSpace`, `Poisoned`: not all records could be written. Else as [`Records::next`].
    pub fn last_record(&self) -> Result<Option<RecordBuf>> {
        self.handle.commit.own()?;
        self.unless_truncated(|| self.last_in(&self.view(None)))
    }

    fn last_in(&self, view: &View) -> Result<Option<RecordBuf>> {
        let end = view.end;
        self.flush_until(end)?;
        let segment_bytes = self.handle.segment_bytes;
        let segment_below = |at: Lsn| at.before().segment_start(segment_bytes);
        // Unless the last reservation that was written is padding or a mark, it has the record.
        let last_written = self.handle.commit.lock_free().last_written();
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

    /// A frame begins at `from`, or nothing is there.
    fn last_between(&self, from: Lsn, to: Lsn, spans: Vec<EpochSpan>) -> Result<Option<RecordBuf>> {
        let pin = self.pin(PinKind::Reader, Some(from))?;
        let mut records = self.records_in(spans, pin).ending_at(to);
        let mut last = None;
        while let Some(record) = records.next()? {
            last = Some(RecordBuf::from(record));
        }
        Ok(last)
    }

    /// Returns a copy of the record at `lsn`.
    ///
    /// # Errors
    /// As [`records_from`](Wal::records_from); `NotARecord` also at the end of the log, `Corrupt`
    /// also if the record does not validate.
    pub fn get(&self, lsn: Lsn) -> Result<RecordBuf> {
        let stored = self.get_stored(lsn)?;
        let decoded = self.decoder().decode_buf(stored);
        decoded.map_err(|error| self.frame_reader(SINGLE_READ_BYTES).located(error, lsn))
    }

    #[inline]
    pub(super) fn get_stored(&self, lsn: Lsn) -> Result<RecordBuf> {
        let span = self.check_record(lsn)?;
        self.flush_until(lsn.plus(1))?;
        let _pin = self.pin(PinKind::Reader, Some(lsn))?;
        self.stored_at(&mut self.frame_reader(SINGLE_READ_BYTES), lsn, span)
    }

    #[inline]
    fn check_record(&self, lsn: Lsn) -> Result<EpochSpan> {
        self.check_readable(lsn)?;
        let span = self.handle.epochs.find(lsn).filter(|_| lsn < self.reserved_lsn());
        span.ok_or_else(|| self.not_a_record(lsn))
    }

    #[inline]
    fn stored_at(&self, reader: &mut FrameReader, lsn: Lsn, span: EpochSpan) -> Result<RecordBuf> {
        let found = reader.record(lsn, span);
        // Check after the read: a truncation may have freed the segment during the read.
        self.check_not_truncated(lsn)?;
        found?.ok_or_else(|| self.not_a_record(lsn))
    }

    /// Returns where a consumer continues whose last applied record ended at `lsn`
    /// ([`Record::next_lsn`](crate::Record::next_lsn), [`Tail::position`](crate::Tail::position)).
    ///
    /// - `lsn`: nothing that it has applied is gone.
    /// - Below `lsn`: the end of the records that stayed. Applied records may be gone.
    /// - Above `lsn`: the head. Unseen records may be gone.
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
    /// `OutOfRange`.
    pub fn resume_lsn(&self, lsn: Lsn) -> Result<Lsn> {
        let head = self.head_lsn();
        self.check_readable(lsn.max(head))?;
        if self.is_at_head(lsn) {
            return Ok(lsn);
        }
        if lsn < self.reserved_lsn() && self.handle.epochs.find(lsn).is_some() {
            return Ok(lsn.max(head));
        }
        // Not the base of an epoch without records: the next open forgets such an epoch.
        Ok(self.handle.epochs.leave_discarded(lsn).max(head))
    }

    /// Accepts records, the head, and the end of the log or of an epoch.
    pub(super) fn check_begin(&self, lsn: Lsn) -> Result<()> {
        self.handle.commit.own()?;
        if self.is_at_head(lsn) {
            return Ok(());
        }
        self.check_readable(lsn)?;
        if lsn == self.reserved_lsn() {
            return Ok(());
        }
        if self.handle.epochs.find(lsn).is_some() {
            return self.frame_at(lsn).map(drop);
        }
        if self.handle.epochs.skip_end_of_epoch(lsn) > lsn {
            return Ok(());
        }
        Err(removed_begin(lsn))
    }

    /// Returns whether no record was ever between `lsn` and the head.
    pub(super) fn is_at_head(&self, lsn: Lsn) -> bool {
        let head = self.head_lsn();
        lsn == head || (lsn < head && head <= self.handle.epochs.skip_end_of_epoch(lsn))
    }

    /// Writes the frame first if only the log buffer has it.
    pub(super) fn frame_at(&self, lsn: Lsn) -> Result<Header> {
        let Some(span) = self.handle.epochs.find(lsn) else { return Err(self.not_a_record(lsn)) };
        self.flush_until(lsn.plus(1))?;
        let _pin = self.pin(PinKind::Reader, Some(lsn))?;
        let header = self.frame_reader(SINGLE_READ_BYTES).header(lsn, span.seed);
        // Check after the read: a truncation may have freed the segment during the read.
        self.check_not_truncated(lsn)?;
        header?.ok_or_else(|| self.not_a_record(lsn))
    }

    fn records_below(&self, from: Option<Lsn>, to: Lsn) -> Result<Records> {
        let written = self.written_lsn();
        let (pin, view) = self.pinned_view(from, PinKind::Reader, None)?;
        let end = view.end.min(to);
        Ok(self.records_in(view.spans, pin).ending_at(end).writing_from(written))
    }

    pub(super) fn pinned_view(
        &self,
        from: Option<Lsn>,
        kind: PinKind,
        lease: Option<Arc<Lease>>,
    ) -> Result<(Pin, View)> {
        self.handle.commit.own()?;
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

    pub(super) fn view(&self, from: Option<Lsn>) -> View {
        self.handle.epochs.view(from, || self.reserved_lsn())
    }

    pub(super) fn records_in(&self, spans: Vec<EpochSpan>, pin: Pin) -> Records {
        let reader = self.frame_reader(self.handle.read_ahead_bytes);
        let records = Records::new(reader, spans, pin.at()).decoding(self.decoder());
        records.keeping(Box::new(pin))
    }

    pub(super) fn frame_reader(&self, read_ahead_bytes: usize) -> FrameReader {
        let store = Arc::clone(&self.handle.commit.lock_free().store) as Arc<dyn ReadStore>;
        FrameReader::new(store, self.handle.segment_bytes, read_ahead_bytes).starting_small()
    }

    pub(super) fn decoder(&self) -> Decoder {
        Decoder::new(self.handle.codec.clone(), self.handle.segment_bytes)
    }

    pub(super) fn check_readable(&self, lsn: Lsn) -> Result<()> {
        self.handle.commit.own()?;
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

    fn not_a_record(&self, lsn: Lsn) -> Error {
        let none = || Error::new(ErrorKind::NotARecord, "no record begins here").at_lsn(lsn);
        let discarded = || self.handle.epochs.find(lsn).is_none().then(|| truncated_error(lsn));
        let truncated = || self.check_readable(lsn).err().or_else(discarded);
        if let Some(error) = truncated() {
            return error;
        }
        if lsn >= self.written_lsn() {
            return none();
        }
        let log = match self.handle.commit.own() {
            Ok(log) => log,
            Err(forked) => return forked,
        };
        match missing_segment(log.store.as_ref(), self.handle.segment_bytes, lsn) {
            // Check after the look: a truncation may have freed the segment before it.
            Some(missing) => truncated().unwrap_or(missing),
            None => none(),
        }
    }
}

fn removed_begin(lsn: Lsn) -> Error {
    truncated_error(lsn).with_advice("Wal::resume_lsn returns where to continue")
}

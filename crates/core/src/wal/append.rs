//! Appending: one atomic addition, one copy, one publish; no lock, no allocation.

use std::io::IoSlice;

use super::Wal;
use crate::buffer::{Claim, Granted, NotFixed, Reserved, Rest, Stop};
use crate::commit::Commit;
use crate::frame::{HEADER_BYTES, Header, Kind, framed_bytes};
use crate::sync::Backoff;
use crate::{Error, ErrorKind, Lsn, Result, SyncPolicy, Ticket, crc32c_append};

/// What an append does when the buffer is full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    Wait,
    Refuse,
}

impl Wal {
    /// Appends a record and returns its ticket, which knows its LSN and can be waited on.
    ///
    /// An empty record is a record. Waits for room if the buffer is full of records that were not
    /// handed to the operating system yet. Waits for the device only under the policy `Always`, and
    /// where it hands a piece over that needs a segment which was not made ahead.
    ///
    /// # Durability
    /// With a log buffer that outlives the process the record survives the death of the process
    /// when this returns; see the table at [`Wal`].
    ///
    /// # Errors
    /// `TooLarge`: nothing was reserved. `NoSpace`: the disk and the buffer are full; nothing was
    /// reserved; free space and append again. `Closed`, `Poisoned`: open the log again. Under the
    /// policies `Always` and `Os` the record is in the log when its sync or write fails: the error
    /// then has its [`appended_lsn`](Error::appended_lsn); after `NoSpace` wait with
    /// [`wait_durable`](Wal::wait_durable) instead of appending it again.
    #[inline]
    pub fn append(&self, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_slice(0, data, WhenFull::Wait)
    }

    /// As [`append`](Wal::append), with a tag that readers see.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    #[inline]
    pub fn append_tagged(&self, tag: u16, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_slice(tag, data, WhenFull::Wait)
    }

    /// Appends one record that is the concatenation of `parts`.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    pub fn append_vectored(&self, parts: &[IoSlice<'_>]) -> Result<Ticket<'_>> {
        let len = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let frame_bytes = self.check_len(len)?;
        let checksum = parts.iter().fold(0, |crc, part| crc32c_append(crc, part));
        let granted = self.reserve(frame_bytes, WhenFull::Wait)?;
        let mut reserved = self.occupy(granted);
        let lsn = reserved.lsn();
        let header = Header::new(Kind::Data, 0, len as u32, checksum);
        let head = self.encode(&reserved, 0, header);
        write_head(&mut reserved, head);
        let mut at = HEADER_BYTES as u64;
        for part in parts {
            reserved.write(at, part);
            at += part.len() as u64;
        }
        zero_the_rest(&mut reserved, len);
        self.finish(reserved, lsn)?;
        Ok(Ticket::new(self, lsn, lsn.plus(frame_bytes)))
    }

    /// As [`append`](Wal::append), but gives `NoRoom` where that would wait. Without room it tries
    /// once to hand what is filled to the operating system. Never waits for room, but for the moment
    /// in which another thread's range, reserved at the same time, is in the way; writing a piece
    /// and the policies `Always` and `Os` take the time that they take in `append`.
    ///
    /// # Errors
    /// `NoRoom`: nothing was reserved; try again. Else as [`append`](Wal::append).
    #[inline]
    pub fn try_append(&self, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_slice(0, data, WhenFull::Refuse)
    }

    /// Appends a record and waits until it survives power loss.
    ///
    /// Shares one device sync with all who wait at the time.
    ///
    /// # Errors
    /// As [`append`](Wal::append), and as [`Ticket::wait`]. An error with an
    /// [`appended_lsn`](Error::appended_lsn) came after the record was in the log: after
    /// `NoSpace` free space and call [`wait_durable`](Wal::wait_durable) with it. Without one
    /// nothing was appended.
    #[inline]
    pub fn commit(&self, data: &[u8]) -> Result<Lsn> {
        let ticket = self.append(data)?;
        ticket.wait().map_err(|error| error.after_append(ticket.lsn()))
    }

    /// Appends a record of `len` bytes that `fill` writes in place, knowing its LSN.
    ///
    /// The bytes are zero when `fill` gets them. A panic in `fill` turns the range into padding
    /// and goes on. `fill` must not call the log: everybody waits for it.
    ///
    /// # Errors
    /// As [`append`](Wal::append); `fill` is not called then.
    ///
    /// # Panics
    /// If `fill` does.
    pub fn append_with(&self, len: usize, fill: impl FnOnce(Lsn, &mut [u8])) -> Result<Ticket<'_>> {
        let frame_bytes = self.check_len(len)?;
        let granted = self.reserve(frame_bytes, WhenFull::Wait)?;
        let mut reserved = self.occupy(granted);
        let lsn = reserved.lsn();
        let mut fill = Some(fill);
        let mut run = |bytes: &mut [u8]| {
            fill.take().expect("runs once")(lsn, bytes);
            // In a child that the closure forked the range is the parent's.
            self.handle.log.check_process().map(|()| crc32c_append(0, bytes))
        };
        let checksum = match reserved.fill(HEADER_BYTES as u64, len, &mut run) {
            Some(checksum) => checksum?,
            None => {
                // The range wraps around the ring's end: the closure needs it in one piece.
                let mut scratch = vec![0; len];
                let checksum = run(&mut scratch)?;
                reserved.write(HEADER_BYTES as u64, &scratch);
                checksum
            }
        };
        zero_the_rest(&mut reserved, len);
        let header = Header::new(Kind::Data, 0, len as u32, checksum);
        let head = self.encode(&reserved, 0, header);
        write_head(&mut reserved, head);
        self.finish(reserved, lsn)?;
        Ok(Ticket::new(self, lsn, lsn.plus(frame_bytes)))
    }

    /// Appends `records` as one batch: recovered all together or not at all.
    ///
    /// The ticket's LSN is the first record's; the next lies
    /// [`framed_bytes`](crate::framed_bytes)`(len)` further on, and so forth.
    ///
    /// # Errors
    /// `InvalidArgument`: there are no records. `TooLarge`: the batch as a whole is larger than
    /// [`max_record_bytes`](Wal::max_record_bytes). Else as [`append`](Wal::append).
    pub fn append_batch(&self, records: &[&[u8]]) -> Result<Ticket<'_>> {
        if records.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a batch has at least one record"));
        }
        let fits = records.iter().all(|record| u32::try_from(record.len()).is_ok());
        let payload_bytes: u64 = records.iter().map(|record| framed_bytes(record.len())).sum();
        let frame_bytes = self.check_len(if fits { payload_bytes as usize } else { usize::MAX })?;
        let granted = self.reserve(frame_bytes, WhenFull::Wait)?;
        let mut reserved = self.occupy(granted);
        let mut at = HEADER_BYTES as u64;
        let (start, end) = (reserved.lsn(), reserved.end());
        let mut checksum = 0;
        for record in records {
            let member_bytes = framed_bytes(record.len());
            let payload_checksum = crc32c_append(0, record);
            let header = Header {
                is_member: true,
                ..Header::new(Kind::Data, 0, record.len() as u32, payload_checksum)
            };
            let head = self.encode(&reserved, at, header);
            reserved.place(at, head, record, member_bytes);
            let pad = member_bytes as usize - HEADER_BYTES - record.len();
            checksum =
                head.iter().fold(checksum, |crc, word| crc32c_append(crc, &word.to_le_bytes()));
            checksum = crc32c_append(checksum, record);
            checksum = crc32c_append(checksum, &[0; 8][..pad]);
            at += member_bytes;
        }
        let header = Header::new(Kind::Batch, 0, payload_bytes as u32, checksum);
        let head = self.encode(&reserved, 0, header);
        write_head(&mut reserved, head);
        let first = start.plus(HEADER_BYTES as u64);
        self.finish(reserved, first)?;
        Ok(Ticket::new(self, first, end))
    }

    /// Appends a mark: a frame that readers pass over and recovery takes as evidence.
    pub(super) fn append_mark(&self) -> Result<Lsn> {
        let granted = self.reserve(HEADER_BYTES as u64, WhenFull::Wait)?;
        let mut reserved = self.occupy(granted);
        let head = self.encode(&reserved, 0, Header::new(Kind::Mark, 0, 0, 0));
        reserved.place(0, head, &[], HEADER_BYTES as u64);
        let end = reserved.end();
        reserved.publish();
        Ok(end)
    }

    #[inline]
    fn append_slice(&self, tag: u16, data: &[u8], when_full: WhenFull) -> Result<Ticket<'_>> {
        let lsn = self.append_frame(tag, data, when_full)?;
        Ok(Ticket::new(self, lsn, lsn.plus(framed_bytes(data.len()))))
    }

    /// The common append. Its result fits into two registers: a ticket returned through memory
    /// costs as much as the reservation.
    fn append_frame(&self, tag: u16, data: &[u8], when_full: WhenFull) -> Result<Lsn> {
        let frame_bytes = self.check_len(data.len())?;
        self.handle.log.buffer.fetch_ahead(frame_bytes);
        let checksum = crc32c_append(0, data);
        let granted = self.reserve(frame_bytes, when_full)?;
        let mut reserved = self.occupy(granted);
        let lsn = reserved.lsn();
        let header = Header::new(Kind::Data, tag, data.len() as u32, checksum);
        let head = self.encode(&reserved, 0, header);
        reserved.place(0, head, data, frame_bytes);
        self.finish(reserved, lsn)?;
        Ok(lsn)
    }

    /// Bytes of the frame for a payload of `len` bytes, if it is within the limit.
    #[inline]
    fn check_len(&self, len: usize) -> Result<u64> {
        let max = self.max_record_bytes();
        if len > max {
            return Err(too_large(len, max));
        }
        Ok(framed_bytes(len))
    }

    /// Reserves a range whose bytes may be written, and which lies in one segment.
    #[inline(always)]
    fn reserve(&self, bytes: u64, when_full: WhenFull) -> Result<Granted> {
        let log = &*self.handle.log;
        let limit = log.buffer.limit();
        let has_room = log.buffer.tail().is_ok_and(|tail| tail.plus(bytes) <= limit);
        if !has_room {
            log.make_room(bytes, when_full)?;
        }
        let claim = match log.buffer.reserve(bytes) {
            Ok(claim) => claim,
            Err(_) => return log.reserve_again(bytes, when_full),
        };
        match claim.granted(bytes, limit) {
            Some(granted) if !log.buffer.crosses(&claim, bytes) => Ok(granted),
            _ => log.make_fit(claim, bytes, when_full),
        }
    }

    #[inline(always)]
    fn occupy(&self, granted: Granted) -> Reserved<'_> {
        granted.occupy(&self.handle.log.buffer, self.handle.log.durable.peek())
    }

    #[inline]
    fn encode(
        &self,
        reserved: &Reserved<'_>,
        offset: u64,
        header: Header,
    ) -> [u64; HEADER_BYTES / 8] {
        let at = reserved.lsn().plus(offset);
        let header = Header { durable_lag: reserved.durable_lag + offset, ..header };
        header.encode_words(self.handle.log.buffer.seed(), at)
    }

    /// Publishes the range and does what the policy asks for; `lsn` is its first record's.
    #[inline]
    fn finish(&self, reserved: Reserved<'_>, lsn: Lsn) -> Result<()> {
        let (start, end) = (reserved.lsn(), reserved.end());
        reserved.publish();
        if (start.as_u64() ^ end.as_u64()) & self.handle.act_mask != 0 {
            return self.act_on_append(start, end).map_err(|error| error.after_append(lsn));
        }
        Ok(())
    }

    #[cold]
    fn act_on_append(&self, start: Lsn, end: Lsn) -> Result<()> {
        match self.handle.policy {
            SyncPolicy::OnCommit | SyncPolicy::Interval(_) => return self.hand_piece_over(),
            SyncPolicy::Always => self.handle.log.wait(end, None).map(drop),
            SyncPolicy::Os => self.flush_until(end),
        }
        .and_then(|()| self.check_not_cut(start))
    }

    /// A piece of `write_bytes` is complete: has it written behind the appender's back, while
    /// it is in the cache; writes it here where there is no second core, no thread to be had, or
    /// where the thread does not get a core to keep up.
    fn hand_piece_over(&self) -> Result<()> {
        let log = &self.handle.log;
        let has_flusher = self.handle.writes_behind && self.ensure_flusher().is_ok();
        if has_flusher && log.write_soon() {
            return Ok(());
        }
        match log.try_write_filled() {
            // The record stays in the buffer; whoever needs it elsewhere is told.
            Err(error) if error.is_shortage() => Ok(()),
            other => other,
        }
    }
}

impl Commit {
    pub(super) fn stopped(&self, stop: Stop) -> Error {
        match (stop, self.check()) {
            (_, Err(error)) => error,
            (Stop::Closed, Ok(())) => Error::bare(ErrorKind::Closed),
            (Stop::Poisoned, Ok(())) => Error::bare(ErrorKind::Poisoned),
            (Stop::Paused, Ok(())) => Error::bare(ErrorKind::NoRoom),
            (Stop::Forked, Ok(())) => Error::bare(ErrorKind::Forked),
        }
    }

    /// Looks for room before anything is reserved.
    #[cold]
    fn make_room(&self, bytes: u64, when_full: WhenFull) -> Result<()> {
        let mut backoff = Backoff::default();
        let mut has_waited = false;
        loop {
            self.check()?;
            let limit = self.buffer.limit();
            let needed = match self.buffer.tail() {
                Ok(tail) => tail.plus(bytes),
                Err(Stop::Paused) if when_full == WhenFull::Wait => {
                    // Nothing is reserved. Who truncates announces nothing, as the owner of a
                    // hole does not.
                    backoff.wait();
                    continue;
                }
                Err(stop) => return Err(self.stopped(stop)),
            };
            if needed <= limit {
                return Ok(());
            }
            if needed > Lsn::LIMIT {
                return Err(no_lsn_left(needed));
            }
            if when_full == WhenFull::Refuse {
                return self.try_make_room(bytes);
            }
            if !std::mem::replace(&mut has_waited, true) {
                self.counters.waits_for_room.add(1);
            }
            self.write_for_room(&mut backoff)?;
        }
    }

    /// Writes what is filled, or lets the thread that is at it make room: whoever queued up behind
    /// it would sleep until it is done with the whole buffer, though each piece makes room. Where
    /// neither got on, a lower owner is still copying.
    fn write_for_room(&self, backoff: &mut Backoff) -> Result<()> {
        let before = self.buffer.written.read();
        self.try_write_filled()?;
        if self.buffer.written.read() > before {
            *backoff = Backoff::default();
        } else {
            backoff.wait();
        }
        Ok(())
    }

    /// Makes of `claim`, which lacks room or crosses a segment end, a grant in one segment.
    #[cold]
    fn make_fit(&self, claim: Claim, bytes: u64, when_full: WhenFull) -> Result<Granted> {
        let mut claim = claim;
        loop {
            let granted = self.wait_for_room(&claim, bytes)?;
            if !self.buffer.crosses(&claim, bytes) {
                return Ok(granted);
            }
            granted.occupy(&self.buffer, self.durable.peek()).pad();
            claim = self.claim(bytes, when_full)?;
        }
    }

    /// Reserves after an addition that came back with a flag: a pause ends, the others do not.
    #[cold]
    fn reserve_again(&self, bytes: u64, when_full: WhenFull) -> Result<Granted> {
        let claim = self.claim(bytes, when_full)?;
        self.make_fit(claim, bytes, when_full)
    }

    /// Looks for room, then reserves, until no truncation comes between the two.
    fn claim(&self, bytes: u64, when_full: WhenFull) -> Result<Claim> {
        loop {
            self.make_room(bytes, when_full)?;
            match self.buffer.reserve(bytes) {
                Ok(claim) => return Ok(claim),
                Err(Stop::Paused) => {}
                Err(stop) => return Err(self.stopped(stop)),
            }
        }
    }

    /// One try without a wait. A piece that could not be handed over when it was complete, on a
    /// full disk or because another thread was writing, may have nobody else to come back for it.
    fn try_make_room(&self, bytes: u64) -> Result<()> {
        self.try_write_filled()?;
        let tail = self.buffer.tail().map_err(|stop| self.stopped(stop))?;
        let has_room = tail.plus(bytes) <= self.buffer.limit();
        if has_room { Ok(()) } else { Err(Error::bare(ErrorKind::NoRoom)) }
    }

    /// Fixes the end of the log with a flag; where syncs end with blocks, at the end of one. Waits
    /// where a truncation is under way. A full disk without room for the rest of the block shows
    /// before the flag is set: then nothing was changed.
    ///
    /// Appends of others may take the room that was made; each time they do, they got on.
    pub(super) fn fix_end(&self, stop: Stop) -> Result<Lsn> {
        let mut backoff = Backoff::default();
        loop {
            self.check()?;
            match self.buffer.stop_at_block(stop) {
                Ok((end, rest)) => return self.fill_rest(rest).map(|()| end),
                Err(NotFixed::NoRoom(bytes)) => self.make_room(bytes, WhenFull::Wait)?,
                Err(NotFixed::Stopped(Stop::Paused)) => backoff.wait(),
                Err(NotFixed::Stopped(stop)) => return Err(self.stopped(stop)),
            }
        }
    }

    /// Pads what is left of a block, for which there is room.
    fn fill_rest(&self, rest: Option<Rest>) -> Result<()> {
        let Some(Rest { claim, bytes }) = rest else { return Ok(()) };
        let granted = self.wait_for_room(&claim, bytes)?;
        granted.occupy(&self.buffer, self.durable.peek()).pad();
        Ok(())
    }

    /// Waits until the bytes of `claim` are free. A full disk is no way out: the range has to be
    /// filled, or the log would have a hole.
    fn wait_for_room(&self, claim: &Claim, bytes: u64) -> Result<Granted> {
        let mut backoff = Backoff::default();
        loop {
            self.check()?;
            if let Some(granted) = claim.granted(bytes, self.buffer.limit()) {
                return Ok(granted);
            }
            if claim.end(bytes) > Lsn::LIMIT {
                // Others reserved after this thread had looked. Its range can never be filled.
                return Err(self.poison(no_lsn_left(claim.end(bytes))));
            }
            match self.write_for_room(&mut backoff) {
                Err(error) if error.is_shortage() => backoff.wait(),
                other => other?,
            }
        }
    }
}

fn no_lsn_left(at: Lsn) -> Error {
    Error::new(ErrorKind::OutOfRange, "the log has used up all of its LSNs").at_lsn(at)
}

fn write_head(reserved: &mut Reserved<'_>, head: [u64; HEADER_BYTES / 8]) {
    reserved.place(0, head, &[], HEADER_BYTES as u64);
}

/// Zeros between the end of a payload of `len` bytes and the end of its frame.
fn zero_the_rest(reserved: &mut Reserved<'_>, len: usize) {
    let from = (HEADER_BYTES + len) as u64;
    let rest = framed_bytes(len) - from;
    reserved.write(from, &[0; 8][..rest as usize]);
}

#[cold]
fn too_large(len: usize, max: usize) -> Error {
    let text = format!("a record or batch of {len} bytes; at most {max} fit into this log");
    Error::new(ErrorKind::TooLarge, text)
}

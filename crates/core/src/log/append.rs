//! Appends: one atomic addition, one copy, one publish; no lock, no allocation.

use std::io::IoSlice;

use super::Wal;
use crate::Codec;
use crate::buffer::Reserved;
use crate::codec::{self, Scratch};
use crate::commit::WhenFull;
use crate::frame::{HEADER_BYTES, Header, Kind, framed_bytes};
use crate::{Error, ErrorKind, Lsn, Result, SyncPolicy, Ticket, crc32c_append};

impl Wal {
    /// Appends a record and returns its ticket, which has its LSN and can be waited on.
    ///
    /// ```
    /// use palisade::{Lsn, Wal};
    ///
    /// async fn commit(wal: &Wal, record: &[u8]) -> palisade::Result<Lsn> {
    ///     wal.append(record)?.await // on any runtime, or none
    /// }
    /// ```
    ///
    /// A record may be empty. If the log buffer is full, the call waits for room. Meanwhile other
    /// appends reserve at most eight laps of the log buffer, and each other thread one record more.
    /// The call also waits while a truncation of the suffix is in progress. If the append completes
    /// a piece ([`write_bytes`](crate::Options::write_bytes)) and the flusher does not take the
    /// piece, the call writes it to the operating system. The flusher does not take a piece if it
    /// is late or cannot start, or if the process has one core only. Under the policy `Os` each
    /// call writes. The call waits for the device under the policy `Always`, and if its write needs
    /// a segment that is not prepared, or closes the oldest of too many open files.
    ///
    /// # Durability
    /// With a shared log buffer, the record survives the death of the process when this returns;
    /// see the table at [`Wal`].
    ///
    /// # Errors
    /// `TooLarge`: nothing was reserved. `NoSpace`: nothing was reserved, because the disk and the
    /// log buffer are full, or the log is above `max_bytes`; free space and append again.
    /// `OutOfRange`: no LSN is left. `Closed`, `Poisoned`: open the log again.
    ///
    /// If the error has an [`appended_lsn`](crate::Error::appended_lsn), the record was appended,
    /// and a later step failed. Do not append the record again. After such a `NoSpace` free space
    /// and call [`wait_durable`](Wal::wait_durable). After a `Truncated` a truncation of the suffix
    /// has removed the record.
    #[inline]
    pub fn append(&self, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_slice(0, data, WhenFull::Wait)
    }

    /// Appends a record with a tag that readers see.
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
        self.append_vectored_tagged(0, parts)
    }

    /// Appends one record with a tag that is the concatenation of `parts`.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    pub fn append_vectored_tagged(&self, tag: u16, parts: &[IoSlice<'_>]) -> Result<Ticket<'_>> {
        let len = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let frame_bytes = self.check_len(len)?;
        if let Some(codec) = self.codec() {
            let (lsn, end) = Scratch::with(|scratch| {
                let Scratch { joined, encoded, .. } = scratch;
                joined.clear();
                parts.iter().for_each(|part| joined.extend_from_slice(part));
                self.append_encoded(codec, tag, joined, encoded, WhenFull::Wait)
            })?;
            return Ok(Ticket::new(self, lsn, end));
        }
        let checksum = parts.iter().fold(0, |crc, part| crc32c_append(crc, part));
        let mut reserved = self.reserve(frame_bytes, WhenFull::Wait)?;
        let lsn = reserved.lsn();
        let header = Header::new(Kind::Data, tag, len as u32, checksum);
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

    /// Appends a record as [`append`](Wal::append) does, but returns `NoRoom` if that would wait
    /// for room, or for a truncation of the suffix that is in progress. If there is no room, the
    /// call tries once to write the filled records. If another thread reserves the last room after
    /// the check, the call waits for room, on a full disk until there is space. A write of a
    /// complete piece and the policies `Always` and `Os` take as long as in `append`.
    ///
    /// # Errors
    /// `NoRoom`: nothing was reserved; try again. A task awaits a [`barrier`](Wal::barrier) first,
    /// because the barrier makes room. Else as [`append`](Wal::append).
    #[inline]
    pub fn try_append(&self, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_slice(0, data, WhenFull::Refuse)
    }

    /// Appends a record and waits until it survives power loss.
    ///
    /// Shares one device sync with all threads that wait at the time.
    ///
    /// # Errors
    /// As [`append`](Wal::append), and as [`Ticket::wait`]. If the error has an
    /// [`appended_lsn`](crate::Error::appended_lsn), the record was appended: after `NoSpace` free
    /// space and call [`wait_durable`](Wal::wait_durable) with that LSN. Otherwise nothing was
    /// appended.
    #[inline]
    pub fn commit(&self, data: &[u8]) -> Result<Lsn> {
        self.commit_tagged(0, data)
    }

    /// Appends a record with a tag and waits until it survives power loss.
    ///
    /// # Errors
    /// As [`commit`](Wal::commit).
    #[inline]
    pub fn commit_tagged(&self, tag: u16, data: &[u8]) -> Result<Lsn> {
        if let Some(codec) = self.codec() {
            let (lsn, end) = self.append_with_codec(codec, tag, data, WhenFull::Wait)?;
            return Ticket::new(self, lsn, end).wait();
        }
        let lsn = self.append_frame::<false>(tag, data, WhenFull::Wait)?;
        let end = lsn.plus(framed_bytes(data.len()));
        let waited = self.handle.commit.wait(end, None).and_then(|_| self.check_not_truncated(lsn));
        waited.map(|()| lsn).map_err(|error| error.after_append(lsn))
    }

    /// Appends a record of `len` bytes that `fill` writes in place. `fill` gets the record's LSN.
    ///
    /// The bytes are zero when `fill` gets them. If `fill` panics, the range becomes padding and
    /// the panic continues. `fill` must not call the log: all other threads wait for it. A child
    /// process that `fill` forks must not write to the bytes: in a shared log buffer they are the
    /// parent's.
    ///
    /// A [codec](crate::Options::codec) encodes a record before the record has an LSN. So the log
    /// stores a record that is written in place as it is.
    ///
    /// # Errors
    /// `InvalidArgument`: the log's codec encodes every record. Else as [`append`](Wal::append). If
    /// the error has no [`appended_lsn`](crate::Error::appended_lsn), `fill` was not called, except
    /// in this case: `Forked` in a child process that `fill` itself forked.
    ///
    /// # Panics
    /// If `fill` does.
    pub fn append_with(&self, len: usize, fill: impl FnOnce(Lsn, &mut [u8])) -> Result<Ticket<'_>> {
        let frame_bytes = self.check_len(len)?;
        if !codec::may_store_raw(self.codec()) {
            return Err(not_in_place());
        }
        let mut reserved = self.reserve(frame_bytes, WhenFull::Wait)?;
        let lsn = reserved.lsn();
        let mut fill = Some(fill);
        let mut run = |bytes: &mut [u8]| {
            fill.take().expect("runs once")(lsn, bytes);
            // In a child that the closure forked, the range belongs to the parent.
            self.handle.commit.check_process().map(|()| crc32c_append(0, bytes))
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

    /// Appends a mark, a frame that readers skip and that recovery uses as evidence.
    pub(super) fn append_mark(&self) -> Result<Lsn> {
        let mut reserved = self.reserve(HEADER_BYTES as u64, WhenFull::Wait)?;
        let head = self.encode(&reserved, 0, Header::new(Kind::Mark, 0, 0, 0));
        reserved.place(0, head, &[], HEADER_BYTES as u64);
        let end = reserved.end();
        reserved.publish();
        Ok(end)
    }

    #[inline]
    fn append_slice(&self, tag: u16, data: &[u8], when_full: WhenFull) -> Result<Ticket<'_>> {
        // One ticket for both: with two of them the common one goes through memory.
        let (lsn, end) = if let Some(codec) = self.codec() {
            self.append_with_codec(codec, tag, data, when_full)?
        } else {
            let lsn = self.append_frame::<false>(tag, data, when_full)?;
            (lsn, lsn.plus(framed_bytes(data.len())))
        };
        Ok(Ticket::new(self, lsn, end))
    }

    /// Appends a record to a log with a codec, and returns where it begins and ends. Encodes before
    /// the reservation: other threads would wait for it.
    #[cold]
    #[inline(never)]
    fn append_with_codec(
        &self,
        codec: &dyn Codec,
        tag: u16,
        data: &[u8],
        when_full: WhenFull,
    ) -> Result<(Lsn, Lsn)> {
        self.check_len(data.len())?;
        Scratch::with(|scratch| {
            self.append_encoded(codec, tag, data, &mut scratch.encoded, when_full)
        })
    }

    fn append_encoded(
        &self,
        codec: &dyn Codec,
        tag: u16,
        data: &[u8],
        encoded: &mut Vec<u8>,
        when_full: WhenFull,
    ) -> Result<(Lsn, Lsn)> {
        let (lsn, payload) = if codec::encode(codec, tag, data, encoded)? {
            (self.append_frame::<true>(tag, encoded, when_full)?, &encoded[..])
        } else {
            (self.append_frame::<false>(tag, data, when_full)?, data)
        };
        Ok((lsn, lsn.plus(framed_bytes(payload.len()))))
    }

    /// Appends one frame, the common case. The result fits into two registers: a ticket returned
    /// through memory costs as much as the reservation.
    fn append_frame<const IS_ENCODED: bool>(
        &self,
        tag: u16,
        data: &[u8],
        when_full: WhenFull,
    ) -> Result<Lsn> {
        let frame_bytes = self.check_len(data.len())?;
        self.handle.commit.buffer.fetch_ahead(frame_bytes);
        let checksum = crc32c_append(0, data);
        let mut reserved = self.reserve(frame_bytes, when_full)?;
        let lsn = reserved.lsn();
        let header = Header::new(Kind::Data, tag, data.len() as u32, checksum);
        let head = self.encode(&reserved, 0, header.encoded_if(IS_ENCODED));
        reserved.place(0, head, data, frame_bytes);
        self.finish(reserved, lsn)?;
        Ok(lsn)
    }

    /// Returns the bytes of the frame for a payload of `len` bytes, if it is within the limit.
    #[inline]
    pub(super) fn check_len(&self, len: usize) -> Result<u64> {
        codec::check_record_len(len, self.max_record_bytes())?;
        Ok(framed_bytes(len))
    }

    /// Reserves a range in one segment.
    #[inline(always)]
    pub(super) fn reserve(&self, bytes: u64, when_full: WhenFull) -> Result<Reserved<'_>> {
        let log = &*self.handle.commit;
        let limit = log.buffer.admission_limit();
        let has_room = log.buffer.has_room(bytes, limit);
        let claimed = if has_room { log.buffer.reserve(bytes).ok() } else { None };
        let claim = match claimed {
            Some(claim) => claim,
            None => log.claim(bytes, when_full)?,
        };
        if !log.buffer.crosses(&claim, bytes)
            && let Some(reserved) = log.occupy(&claim, bytes, limit)
        {
            return Ok(reserved);
        }
        log.make_fit(claim, bytes, when_full)
    }

    #[inline]
    pub(super) fn encode(
        &self,
        reserved: &Reserved<'_>,
        offset: u64,
        header: Header,
    ) -> [u64; HEADER_BYTES / 8] {
        let at = reserved.lsn().plus(offset);
        let header = Header { durable_lag: reserved.durable_lag + offset, ..header };
        header.encode_words(self.handle.commit.buffer.seed(), at)
    }

    /// Publishes the range and applies the sync policy. `lsn` is the LSN of its first record.
    #[inline]
    pub(super) fn finish(&self, reserved: Reserved<'_>, lsn: Lsn) -> Result<()> {
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
            SyncPolicy::OnCommit | SyncPolicy::Interval(_) => return self.write_complete_piece(),
            SyncPolicy::Always => self.handle.commit.wait(end, None).map(drop),
            SyncPolicy::Os => self.flush_until(end),
        }
        .and_then(|()| self.check_not_truncated(start))
    }

    /// Writes a complete piece of `write_bytes`. The flusher writes the piece while it is in the
    /// cache. This thread writes it if there is no second core, or if the flusher cannot be started
    /// or does not keep up.
    fn write_complete_piece(&self) -> Result<()> {
        let log = &self.handle.commit;
        let has_flusher = self.handle.writes_behind && self.ensure_flusher().is_ok();
        if has_flusher && log.write_soon() {
            return Ok(());
        }
        match log.try_write_filled() {
            // The record stays in the buffer. A caller that waits for it gets the error.
            Err(error) if error.is_shortage() => Ok(()),
            other => other,
        }
    }
}

pub(super) fn write_head(reserved: &mut Reserved<'_>, head: [u64; HEADER_BYTES / 8]) {
    reserved.place(0, head, &[], HEADER_BYTES as u64);
}

/// Writes zeros between the end of a payload of `len` bytes and the end of its frame.
pub(super) fn zero_the_rest(reserved: &mut Reserved<'_>, len: usize) {
    let from = (HEADER_BYTES + len) as u64;
    let rest = framed_bytes(len) - from;
    reserved.write(from, &[0; 8][..rest as usize]);
}

#[cold]
fn not_in_place() -> Error {
    let text = "the log's codec encodes every record, and append_with writes a record in place";
    Error::new(ErrorKind::InvalidArgument, text).with_advice("call append")
}

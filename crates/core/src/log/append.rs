//! Appends. One that finds room takes one atomic addition, one copy and one store into its slot;
//! without a codec it takes no lock and allocates nothing.

use std::io::IoSlice;

use super::Wal;
use crate::Codec;
use crate::buffer::Reserved;
use crate::codec::{self, Scratch};
use crate::commit::WhenFull;
use crate::frame::{HEADER_BYTES, Header, Kind, check_record_len, framed_bytes};
use crate::{Error, ErrorKind, Lsn, Result, SyncPolicy, Ticket, crc32c_append};

impl Wal {
    /// Appends a record, which may be empty, and returns its ticket.
    ///
    /// ```
    /// use palisade::{Lsn, Wal};
    ///
    /// async fn commit(wal: &Wal, record: &[u8]) -> palisade::Result<Lsn> {
    ///     wal.append(record)?.await // on any runtime, or none
    /// }
    /// ```
    ///
    /// # Blocking
    /// - If the log buffer is full. Meanwhile other appends reserve at most eight times its length,
    ///   and each other thread one record more.
    /// - During a truncation of the suffix.
    /// - For a write under the policy `Os`, and if it completes a piece
    ///   ([`write_bytes`](crate::Options::write_bytes)) and the flusher is late or missing, as on
    ///   one core.
    /// - For the device under the policy `Always`, and if its write needs a segment that is not
    ///   prepared, or closes the oldest of too many open files.
    ///
    /// # Durability
    /// See the table at [`Wal`].
    ///
    /// # Errors
    /// `TooLarge`. `NoSpace`: the disk and the log buffer are full, or the log is above
    /// `max_bytes`. `OutOfRange`: no LSN is left. The codec's error, of any kind: nothing was
    /// appended.
    ///
    /// An error with an [`appended_lsn`](crate::Error::appended_lsn) means that the record was
    /// appended, and a later step failed. After `NoSpace` free space and call
    /// [`wait_durable`](Wal::wait_durable). `Truncated`: a truncation of the suffix has removed the
    /// record.
    #[inline]
    pub fn append(&self, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_slice(0, data, WhenFull::Wait)
    }

    /// Appends as [`append`](Wal::append) does, with a tag that readers see.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    #[inline]
    pub fn append_tagged(&self, tag: u16, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_slice(tag, data, WhenFull::Wait)
    }

    /// Appends the concatenation of `parts` as one record.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    pub fn append_vectored(&self, parts: &[IoSlice<'_>]) -> Result<Ticket<'_>> {
        self.append_vectored_tagged(0, parts)
    }

    /// Appends as [`append_vectored`](Wal::append_vectored) does, with a tag.
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

    /// Appends as [`append`](Wal::append) does, but does not wait for a truncation of the suffix,
    /// and waits for room only if another thread takes the last room after the check. If there is
    /// none, it writes the filled records once.
    ///
    /// # Errors
    /// `NoRoom`: a task awaits a [`barrier`](Wal::barrier), which makes room, and tries again. Else
    /// as [`append`](Wal::append).
    #[inline]
    pub fn try_append(&self, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_slice(0, data, WhenFull::Refuse)
    }

    /// Appends a record and waits until it survives power loss. One device sync can serve many
    /// threads.
    ///
    /// # Errors
    /// As [`append`](Wal::append), and as [`Ticket::wait`].
    #[inline]
    pub fn commit(&self, data: &[u8]) -> Result<Lsn> {
        self.commit_tagged(0, data)
    }

    /// Commits as [`commit`](Wal::commit) does, with a tag.
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
        let waited = self.handle.commit.own().and_then(|log| log.wait(end, None));
        let checked = waited.and_then(|_| self.check_not_truncated(lsn));
        checked.map(|()| lsn).map_err(|error| error.after_append(lsn))
    }

    /// Appends a record of `len` bytes that `fill` writes in place. `fill` gets the record's LSN,
    /// and zeros. It must not call the log: no later record can be written before it returns. If
    /// it panics, the range becomes padding. A child that it forks must not write to the bytes. A
    /// [codec](crate::Options::codec) does not encode the record.
    ///
    /// # Errors
    /// `InvalidArgument`: the log's codec encodes every record. Else as [`append`](Wal::append).
    /// Without an [`appended_lsn`](crate::Error::appended_lsn), `fill` was not called, except for a
    /// `Forked` in a child that `fill` forked.
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
            self.handle.commit.own().map(|_| crc32c_append(0, bytes))
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

    /// Encodes before the reservation, because other threads would wait for it.
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

    /// A result in two registers: a ticket returned through memory costs as much as the
    /// reservation.
    fn append_frame<const IS_ENCODED: bool>(
        &self,
        tag: u16,
        data: &[u8],
        when_full: WhenFull,
    ) -> Result<Lsn> {
        let frame_bytes = self.check_len(data.len())?;
        self.handle.commit.lock_free().buffer.fetch_ahead(frame_bytes);
        let checksum = crc32c_append(0, data);
        let mut reserved = self.reserve(frame_bytes, when_full)?;
        let lsn = reserved.lsn();
        let header = Header::new(Kind::Data, tag, data.len() as u32, checksum);
        let head = self.encode(&reserved, 0, header.encoded_if(IS_ENCODED));
        reserved.place(0, head, data, frame_bytes);
        self.finish(reserved, lsn)?;
        Ok(lsn)
    }

    #[inline]
    pub(super) fn check_len(&self, len: usize) -> Result<u64> {
        check_record_len(len, self.max_record_bytes())?;
        Ok(framed_bytes(len))
    }

    #[inline(always)]
    pub(super) fn reserve(&self, bytes: u64, when_full: WhenFull) -> Result<Reserved<'_>> {
        let log = self.handle.commit.lock_free();
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
        header.encode_words(self.handle.commit.lock_free().buffer.seed(), at)
    }

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
            SyncPolicy::Always => {
                self.handle.commit.own().and_then(|log| log.wait(end, None)).map(drop)
            }
            SyncPolicy::Os => self.flush_until(end),
        }
        .and_then(|()| self.check_not_truncated(start))
    }

    /// The flusher writes the piece while it is in the cache. This thread is the fallback.
    fn write_complete_piece(&self) -> Result<()> {
        let log = self.handle.commit.own()?;
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

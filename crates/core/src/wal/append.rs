//! Appending: one atomic addition, one copy, one publish; no lock, no allocation.

use std::io::IoSlice;

use super::Wal;
use crate::buffer::{Claim, Reserved, Stop};
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
    /// An empty record is a record. Never waits for the device; waits for room if the buffer is
    /// full of records that were not handed to the operating system yet.
    ///
    /// # Durability
    /// With the mapped buffer the record survives the death of the process when this returns;
    /// see the table at [`Wal`].
    ///
    /// # Errors
    /// `TooLarge`: nothing was reserved. `NoSpace`: the disk and the buffer are full; nothing was
    /// reserved; free space and append again. `Closed`, `Poisoned`: open the log again.
    pub fn append(&self, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_parts(0, &[IoSlice::new(data)], WhenFull::Wait)
    }

    /// As [`append`](Wal::append), with a tag that readers see.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    pub fn append_tagged(&self, tag: u16, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_parts(tag, &[IoSlice::new(data)], WhenFull::Wait)
    }

    /// Appends one record that is the concatenation of `parts`.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    pub fn append_vectored(&self, parts: &[IoSlice<'_>]) -> Result<Ticket<'_>> {
        self.append_parts(0, parts, WhenFull::Wait)
    }

    /// As [`append`](Wal::append), but gives `NoRoom` where that would wait. Never blocks, but
    /// for the moment in which another thread's range, reserved at the same time, is in the way.
    ///
    /// # Errors
    /// `NoRoom`: nothing was reserved; try again. Else as [`append`](Wal::append).
    pub fn try_append(&self, data: &[u8]) -> Result<Ticket<'_>> {
        self.append_parts(0, &[IoSlice::new(data)], WhenFull::Refuse)
    }

    /// Appends a record and waits until it survives power loss.
    ///
    /// Shares one device sync with all who wait at the time.
    ///
    /// # Errors
    /// As [`append`](Wal::append); `NoSpace` and `Poisoned` also as [`Ticket::wait`].
    pub fn commit(&self, data: &[u8]) -> Result<Lsn> {
        self.append(data)?.wait()
    }

    /// Appends a record of `len` bytes that `fill` writes in place, knowing its LSN.
    ///
    /// The bytes are zero when `fill` gets them. A panic in `fill` turns the range into padding
    /// and goes on. `fill` must not call the log: everybody waits for it.
    ///
    /// # Errors
    /// As [`append`](Wal::append); `fill` is not called then.
    pub fn append_with(
        &self,
        len: usize,
        fill: impl FnOnce(Lsn, &mut [u8]),
    ) -> Result<Ticket<'_>> {
        let frame_bytes = self.check_len(len)?;
        let mut reserved = self.reserve(frame_bytes, WhenFull::Wait)?;
        let lsn = reserved.lsn();
        let mut fill = Some(fill);
        let mut run = |bytes: &mut [u8]| {
            fill.take().expect("runs once")(lsn, bytes);
            crc32c_append(0, bytes)
        };
        let checksum = match reserved.fill(HEADER_BYTES as u64, len, &mut run) {
            Some(checksum) => checksum,
            None => {
                // The range wraps around the ring's end: the closure needs it in one piece.
                let mut scratch = vec![0; len];
                let checksum = run(&mut scratch);
                reserved.write(HEADER_BYTES as u64, &scratch);
                checksum
            }
        };
        write_padding_bytes(&mut reserved, 0, len);
        let header = Header::new(Kind::Data, 0, len as u32, checksum);
        self.write_header(&mut reserved, 0, header);
        self.finish(reserved, lsn)
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
        let frame_bytes =
            self.check_len(if fits { payload_bytes as usize } else { usize::MAX })?;
        let mut reserved = self.reserve(frame_bytes, WhenFull::Wait)?;
        let mut at = HEADER_BYTES as u64;
        let first = reserved.lsn().plus(at);
        let mut checksum = 0;
        for record in records {
            let payload_checksum = crc32c_append(0, record);
            let header = Header {
                is_member: true,
                ..Header::new(Kind::Data, 0, record.len() as u32, payload_checksum)
            };
            let head = self.write_header(&mut reserved, at, header);
            reserved.write(at + HEADER_BYTES as u64, record);
            let pad = write_padding_bytes(&mut reserved, at, record.len());
            checksum = crc32c_append(checksum, &head);
            checksum = crc32c_append(checksum, record);
            checksum = crc32c_append(checksum, &[0; 8][..pad]);
            at += framed_bytes(record.len());
        }
        let header = Header::new(Kind::Batch, 0, payload_bytes as u32, checksum);
        self.write_header(&mut reserved, 0, header);
        self.finish(reserved, first)
    }

    /// Appends a mark: a frame that readers pass over and recovery takes as evidence.
    pub(super) fn append_mark(&self) -> Result<Lsn> {
        let mut reserved = self.reserve(HEADER_BYTES as u64, WhenFull::Wait)?;
        self.write_header(&mut reserved, 0, Header::new(Kind::Mark, 0, 0, 0));
        let end = reserved.end();
        reserved.publish();
        Ok(end)
    }

    #[inline]
    fn append_parts(
        &self,
        tag: u16,
        parts: &[IoSlice<'_>],
        when_full: WhenFull,
    ) -> Result<Ticket<'_>> {
        let len = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let frame_bytes = self.check_len(len)?;
        let checksum = parts.iter().fold(0, |crc, part| crc32c_append(crc, part));
        let mut reserved = self.reserve(frame_bytes, when_full)?;
        let lsn = reserved.lsn();
        self.write_header(&mut reserved, 0, Header::new(Kind::Data, tag, len as u32, checksum));
        let mut at = HEADER_BYTES as u64;
        for part in parts {
            reserved.write(at, part);
            at += part.len() as u64;
        }
        write_padding_bytes(&mut reserved, 0, len);
        self.finish(reserved, lsn)
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
    #[inline]
    fn reserve(&self, bytes: u64, when_full: WhenFull) -> Result<Reserved<'_>> {
        let log = &*self.handle.log;
        loop {
            let mut limit = log.buffer.limit();
            let tail = log.buffer.tail().map_err(|stop| log.stopped(stop))?;
            if tail.plus(bytes) > limit {
                limit = log.make_room(bytes, when_full)?;
            }
            let claim = log.buffer.reserve(bytes).map_err(|stop| log.stopped(stop))?;
            let durable = log.durable.peek();
            let reserved = match claim.with_room(&log.buffer, limit, durable) {
                Some(reserved) => reserved,
                None => log.wait_for_room(&claim)?,
            };
            if !log.buffer.crosses(&claim) {
                return Ok(reserved);
            }
            reserved.pad();
        }
    }

    #[inline]
    fn write_header(
        &self,
        reserved: &mut Reserved<'_>,
        offset: u64,
        header: Header,
    ) -> [u8; HEADER_BYTES] {
        let at = reserved.lsn().plus(offset);
        let header = Header { durable_lag: reserved.durable_lag + offset, ..header };
        let bytes = header.encode(self.handle.log.buffer.seed(), at);
        reserved.write(offset, &bytes);
        bytes
    }

    /// Publishes the range and does what the policy asks for.
    #[inline]
    fn finish(&self, reserved: Reserved<'_>, lsn: Lsn) -> Result<Ticket<'_>> {
        let (start, end) = (reserved.lsn(), reserved.end());
        reserved.publish();
        if (start.as_u64() ^ end.as_u64()) & self.handle.piece_mask != 0 {
            self.hand_piece_over()?;
        }
        match self.handle.policy {
            SyncPolicy::OnCommit | SyncPolicy::Interval(_) => {}
            SyncPolicy::Always => drop(self.handle.log.wait(end, None)?),
            SyncPolicy::Os => self.flush_until(end)?,
        }
        Ok(Ticket::new(self, lsn, end))
    }

    /// A piece of `write_bytes` is complete: hands it to the store while it is in the cache.
    #[cold]
    fn hand_piece_over(&self) -> Result<()> {
        match self.handle.log.try_write_filled() {
            // The record stays in the buffer; whoever needs it elsewhere is told.
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
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
        }
    }

    /// Looks for room before anything is reserved; returns the buffer's limit.
    #[cold]
    fn make_room(&self, bytes: u64, when_full: WhenFull) -> Result<Lsn> {
        let mut backoff = Backoff::default();
        self.counters.waits_for_room.add(1);
        loop {
            self.check()?;
            let limit = self.buffer.limit();
            let needed = self.buffer.tail().map_err(|stop| self.stopped(stop))?.plus(bytes);
            if needed <= limit {
                return Ok(limit);
            }
            if needed > Lsn::LIMIT {
                let text = "the log has used up all of its LSNs";
                return Err(Error::new(ErrorKind::OutOfRange, text).at_lsn(needed));
            }
            if when_full == WhenFull::Refuse {
                return Err(Error::bare(ErrorKind::NoRoom));
            }
            let before = self.buffer.written.read();
            if self.write_filled()? == before {
                // Everything that is filled is written; a lower owner is still copying.
                backoff.wait();
            }
        }
    }

    /// Waits until the bytes of `claim` are free. A full disk is no way out: the range has to be
    /// filled, or the log would have a hole.
    #[cold]
    fn wait_for_room(&self, claim: &Claim) -> Result<Reserved<'_>> {
        let mut backoff = Backoff::default();
        loop {
            self.check()?;
            let (limit, durable) = (self.buffer.limit(), self.durable.peek());
            if let Some(reserved) = claim.with_room(&self.buffer, limit, durable) {
                return Ok(reserved);
            }
            let before = self.buffer.written.read();
            match self.write_filled() {
                Ok(written) if written > before => {}
                Err(error) if error.kind() != ErrorKind::NoSpace => return Err(error),
                _ => backoff.wait(),
            }
        }
    }
}

/// Zeros between the end of a payload and the end of its frame; returns how many.
#[inline]
fn write_padding_bytes(reserved: &mut Reserved<'_>, frame_offset: u64, len: usize) -> usize {
    let pad = framed_bytes(len) as usize - HEADER_BYTES - len;
    if pad > 0 {
        reserved.write(frame_offset + (HEADER_BYTES + len) as u64, &[0; 8][..pad]);
    }
    pad
}

#[cold]
fn too_large(len: usize, max: usize) -> Error {
    let text = format!("a record of {len} bytes; at most {max} fit into this log");
    Error::new(ErrorKind::TooLarge, text)
}

//! Many records in one reservation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Wal;
use super::append::write_head;
use super::ticket::Ticket;
use crate::buffer::Reserved;
use crate::codec::Scratch;
use crate::commit::WhenFull;
use crate::frame::{HEADER_BYTES, Header, Kind, framed_bytes};
use crate::{Error, ErrorKind, Lsn, Result, crc32c_append};

/// The ticket of several records. It derefs to the [`Ticket`] of all of them.
pub struct BatchTicket<'w> {
    ticket: Ticket<'w>,
    lsns: Vec<Lsn>,
}

impl BatchTicket<'_> {
    /// Returns the LSNs of the records, in the order in which they were given.
    #[must_use]
    pub fn lsns(&self) -> &[Lsn] {
        &self.lsns
    }

    /// Detaches as [`Ticket::detach`] does.
    pub fn detach(self) -> BatchTicket<'static> {
        BatchTicket { ticket: self.ticket.detach(), lsns: self.lsns }
    }
}

impl<'w> std::ops::Deref for BatchTicket<'w> {
    type Target = Ticket<'w>;

    fn deref(&self) -> &Ticket<'w> {
        &self.ticket
    }
}

impl<'w> From<BatchTicket<'w>> for Ticket<'w> {
    fn from(batch: BatchTicket<'w>) -> Ticket<'w> {
        batch.ticket
    }
}

impl Future for BatchTicket<'_> {
    type Output = Result<Lsn>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Lsn>> {
        Pin::new(&mut self.ticket).poll(context)
    }
}

impl fmt::Debug for BatchTicket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchTicket")
            .field("ticket", &self.ticket)
            .field("records", &self.lsns.len())
            .finish()
    }
}

impl Wal {
    /// Appends `records` as one batch: recovered all together or not at all. Readers return them as
    /// plain records, and mark no boundary of the batch.
    ///
    /// Without a codec the call reads the records twice, the second time while all other threads
    /// wait. The iterator must not call the log, and should not be slow.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// let batch = wal.append_batch(["debit 7", "credit 7"])?;
    /// batch.wait()?;
    /// assert_eq!(wal.get(batch.lsns()[1])?.data(), b"credit 7");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: there are no records. `TooLarge`: the records with their headers
    /// ([`framed_bytes`](crate::framed_bytes)) are larger than
    /// [`max_record_bytes`](Wal::max_record_bytes) together. Else as [`append`](Wal::append).
    ///
    /// # Panics
    /// If a record has another length when it is read again. Then nothing was appended.
    pub fn append_batch<I>(&self, records: I) -> Result<BatchTicket<'_>>
    where
        I: IntoIterator<Item: AsRef<[u8]>, IntoIter: Clone>,
    {
        self.append_batch_tagged(records.into_iter().map(|record| (0, record)))
    }

    /// Appends as [`append_batch`](Wal::append_batch) does, each record with its tag.
    ///
    /// # Errors
    /// As [`append_batch`](Wal::append_batch).
    ///
    /// # Panics
    /// As [`append_batch`](Wal::append_batch).
    pub fn append_batch_tagged<I, R>(&self, records: I) -> Result<BatchTicket<'_>>
    where
        I: IntoIterator<Item = (u16, R)>,
        I::IntoIter: Clone,
        R: AsRef<[u8]>,
    {
        let Some(codec) = self.codec() else {
            return self.append_batch_of(records.into_iter().map(as_it_is));
        };
        Scratch::with(|scratch| {
            scratch.join(codec, records.into_iter(), self.handle.max_frame_bytes as usize)?;
            self.append_batch_of(scratch.payloads())
        })
    }

    fn append_batch_of<R: AsRef<[u8]>>(
        &self,
        payloads: impl Iterator<Item = (u16, bool, R)> + Clone,
    ) -> Result<BatchTicket<'_>> {
        let (count, payload_bytes) = measure(payloads.clone(), self.max_record_bytes())?;
        let frame_bytes = self.check_len(payload_bytes)?;
        let mut reserved = self.reserve(frame_bytes, WhenFull::Wait)?;
        let mut run = FrameRun::new(HEADER_BYTES as u64, true, count);
        for (tag, is_encoded, payload) in payloads {
            run.write(self, &mut reserved, tag, is_encoded, payload.as_ref())?;
        }
        run.check_is_whole(self, &reserved)?;
        let header = Header::new(Kind::Batch, 0, payload_bytes as u32, run.checksum);
        let head = self.encode(&reserved, 0, header);
        write_head(&mut reserved, head);
        self.finish_run(reserved, run)
    }

    /// Appends `records` with no other record between them, in one reservation. Recovery keeps each
    /// on its own: after a crash the first ones may be there without the last. The iterator is as
    /// that of [`append_batch`](Wal::append_batch).
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// let ticket = wal.append_many(["21.5", "21.7", "21.6"])?;
    /// ticket.wait()?;
    /// assert_eq!(wal.get(ticket.lsns()[2])?.data(), b"21.6");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: there are no records. `TooLarge`: all frames together are larger than the
    /// largest record with its header. Else as [`append`](Wal::append).
    ///
    /// # Panics
    /// As [`append_batch`](Wal::append_batch).
    pub fn append_many<I>(&self, records: I) -> Result<BatchTicket<'_>>
    where
        I: IntoIterator<Item: AsRef<[u8]>, IntoIter: Clone>,
    {
        self.append_many_tagged(records.into_iter().map(|record| (0, record)))
    }

    /// Appends as [`append_many`](Wal::append_many) does, each record with its tag.
    ///
    /// # Errors
    /// As [`append_many`](Wal::append_many).
    ///
    /// # Panics
    /// As [`append_batch`](Wal::append_batch).
    pub fn append_many_tagged<I, R>(&self, records: I) -> Result<BatchTicket<'_>>
    where
        I: IntoIterator<Item = (u16, R)>,
        I::IntoIter: Clone,
        R: AsRef<[u8]>,
    {
        let Some(codec) = self.codec() else {
            return self.append_many_of(records.into_iter().map(as_it_is));
        };
        Scratch::with(|scratch| {
            scratch.join(codec, records.into_iter(), self.handle.max_frame_bytes as usize)?;
            self.append_many_of(scratch.payloads())
        })
    }

    fn append_many_of<R: AsRef<[u8]>>(
        &self,
        payloads: impl Iterator<Item = (u16, bool, R)> + Clone,
    ) -> Result<BatchTicket<'_>> {
        let most = self.max_record_bytes() + HEADER_BYTES;
        let (count, frames_bytes) = measure(payloads.clone(), most)?;
        // The frames take the place of the payload of one record.
        self.check_len(frames_bytes - HEADER_BYTES)?;
        let mut reserved = self.reserve(frames_bytes as u64, WhenFull::Wait)?;
        let mut run = FrameRun::new(0, false, count);
        for (tag, is_encoded, payload) in payloads {
            run.write(self, &mut reserved, tag, is_encoded, payload.as_ref())?;
        }
        run.check_is_whole(self, &reserved)?;
        self.finish_run(reserved, run)
    }

    fn finish_run(&self, reserved: Reserved<'_>, run: FrameRun) -> Result<BatchTicket<'_>> {
        let (first, end) = (run.lsns[0], reserved.end());
        self.finish(reserved, first)?;
        Ok(BatchTicket { ticket: Ticket::new(self, first, end), lsns: run.lsns })
    }
}

fn as_it_is<R>((tag, record): (u16, R)) -> (u16, bool, R) {
    (tag, false, record)
}

/// Stops above `most` bytes, because an iterator may have no end.
fn measure<R: AsRef<[u8]>>(
    records: impl Iterator<Item = (u16, bool, R)>,
    most: usize,
) -> Result<(usize, usize)> {
    let (mut count, mut bytes) = (0, 0_u64);
    for (_, _, record) in records {
        let len = record.as_ref().len();
        let is_short = u32::try_from(len).is_ok();
        bytes = bytes.saturating_add(if is_short { framed_bytes(len) } else { u64::MAX });
        count += 1;
        if bytes > most as u64 {
            break;
        }
    }
    if count == 0 {
        return Err(Error::new(ErrorKind::InvalidArgument, "a batch has at least one record"));
    }
    Ok((count, usize::try_from(bytes).unwrap_or(usize::MAX)))
}

struct FrameRun {
    at: u64,
    are_members: bool,
    /// Of all bytes of the frames.
    checksum: u32,
    lsns: Vec<Lsn>,
}

impl FrameRun {
    fn new(at: u64, are_members: bool, count: usize) -> FrameRun {
        FrameRun { at, are_members, checksum: 0, lsns: Vec::with_capacity(count) }
    }

    /// Panics if records got shorter after they were measured; a longer one panics when it is
    /// written. The range becomes padding.
    fn check_is_whole(&self, wal: &Wal, reserved: &Reserved<'_>) -> Result<()> {
        // In a child that the iterator forked, the range belongs to the parent.
        wal.handle.commit.own()?;
        let is_whole = reserved.lsn().plus(self.at) == reserved.end();
        assert!(is_whole, "the records changed while they were appended");
        Ok(())
    }

    fn write(
        &mut self,
        wal: &Wal,
        reserved: &mut Reserved<'_>,
        tag: u16,
        is_encoded: bool,
        record: &[u8],
    ) -> Result<()> {
        // In a child that the record forked, the range belongs to the parent.
        wal.handle.commit.own()?;
        let header = Header::new(Kind::Data, tag, record.len() as u32, crc32c_append(0, record));
        let header = header.member_if(self.are_members).encoded_if(is_encoded);
        let head = wal.encode(reserved, self.at, header);
        let frame_bytes = framed_bytes(record.len());
        reserved.place(self.at, head, record, frame_bytes);
        if self.are_members {
            let pad = frame_bytes as usize - HEADER_BYTES - record.len();
            let words = head.iter();
            let sum =
                words.fold(self.checksum, |sum, word| crc32c_append(sum, &word.to_le_bytes()));
            self.checksum = crc32c_append(crc32c_append(sum, record), &[0; 8][..pad]);
        }
        self.lsns.push(reserved.lsn().plus(self.at));
        self.at += frame_bytes;
        Ok(())
    }
}

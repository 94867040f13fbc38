//! Appends, and waits for what was appended.

use std::io::IoSlice;

use super::Wal;
use crate::{BatchTicket, Lsn, Result, Ticket};

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
        self.0.append(data)
    }

    /// Appends a record with a tag that readers see.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    #[inline]
    pub fn append_tagged(&self, tag: u16, data: &[u8]) -> Result<Ticket<'_>> {
        self.0.append_tagged(tag, data)
    }

    /// Appends one record that is the concatenation of `parts`.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    pub fn append_vectored(&self, parts: &[IoSlice<'_>]) -> Result<Ticket<'_>> {
        self.0.append_vectored(0, parts)
    }

    /// Appends one record with a tag that is the concatenation of `parts`.
    ///
    /// # Errors
    /// As [`append`](Wal::append).
    pub fn append_vectored_tagged(&self, tag: u16, parts: &[IoSlice<'_>]) -> Result<Ticket<'_>> {
        self.0.append_vectored(tag, parts)
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
        self.0.try_append(data)
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
        self.0.commit(data)
    }

    /// Appends a record with a tag and waits until it survives power loss.
    ///
    /// # Errors
    /// As [`commit`](Wal::commit).
    #[inline]
    pub fn commit_tagged(&self, tag: u16, data: &[u8]) -> Result<Lsn> {
        self.0.commit_tagged(tag, data)
    }

    /// Appends `value` as a record with `tag`, in the format of [postcard]. [`Record::decode`]
    /// reads it back. Feature `serde`.
    ///
    /// Writes the value into a buffer that the thread keeps, and the record from there, so after
    /// the first calls nothing is allocated. The format does not name types or fields: give each
    /// type a tag of its own, add variants at the end of an enum, and make a new type rather than
    /// change the fields of one that is in a log.
    ///
    /// [postcard]: https://postcard.jamesmunns.com/wire-format
    /// [`Record::decode`]: crate::Record::decode
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct Put<'a> {
    ///     key: u64,
    ///     value: &'a str,
    /// }
    ///
    /// # fn show(wal: &palisade::Wal) -> palisade::Result<()> {
    /// const PUT: u16 = 1;
    /// let put = Put { key: 7, value: "seven" };
    /// let lsn = wal.append_typed(PUT, &put)?.wait()?;
    /// assert_eq!(wal.get(lsn)?.decode::<Put>()?, put);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: the value cannot be written, for example a sequence of unknown length.
    /// `TooLarge`: it takes more than [`max_record_bytes`](Wal::max_record_bytes). In both cases
    /// nothing is reserved. Else as [`append`](Wal::append).
    #[cfg(feature = "serde")]
    pub fn append_typed<T: serde::Serialize + ?Sized>(
        &self,
        tag: u16,
        value: &T,
    ) -> Result<Ticket<'_>> {
        self.0.append_typed(tag, value)
    }

    /// Appends `value` as [`append_typed`](Wal::append_typed) does, and waits until it survives
    /// power loss.
    ///
    /// # Errors
    /// As [`append_typed`](Wal::append_typed) and [`commit`](Wal::commit).
    #[cfg(feature = "serde")]
    pub fn commit_typed<T: serde::Serialize + ?Sized>(&self, tag: u16, value: &T) -> Result<Lsn> {
        self.0.commit_typed(tag, value)
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
        self.0.append_with(len, fill)
    }

    /// Appends `records` as one batch: recovered all together or not at all. Readers return them as
    /// plain records, and mark no boundary of the batch.
    ///
    /// The ticket has the LSN of each record. Without a codec the call reads the records twice,
    /// first for their sizes. If an iterator is not `Clone`, collect its records into a `Vec`. The
    /// iterator must not call the log, and should not be slow: without a codec all other threads
    /// wait for it.
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
    /// `InvalidArgument`: there are no records. `TooLarge`: the batch as a whole is larger than
    /// [`max_record_bytes`](Wal::max_record_bytes). Else as [`append`](Wal::append).
    ///
    /// # Panics
    /// If a record's bytes are longer or shorter when they are read again. Then nothing was
    /// appended.
    pub fn append_batch<I>(&self, records: I) -> Result<BatchTicket<'_>>
    where
        I: IntoIterator<Item: AsRef<[u8]>, IntoIter: Clone>,
    {
        self.0.append_batch(records.into_iter().map(|record| (0, record)))
    }

    /// Appends `records` as [`append_batch`](Wal::append_batch) does, each with its tag.
    ///
    /// # Errors
    /// As [`append_batch`](Wal::append_batch).
    ///
    /// # Panics
    /// As [`append_batch`](Wal::append_batch).
    pub fn append_batch_tagged<I, R>(&self, records: I) -> Result<BatchTicket<'_>>
    where
        I: IntoIterator<Item = (u16, R), IntoIter: Clone>,
        R: AsRef<[u8]>,
    {
        self.0.append_batch(records)
    }

    /// Appends `records` one after the other, with no other record between them, for the cost of
    /// one reservation. Recovery keeps each on its own: after a crash the first ones may be there
    /// without the last ones. The iterator must not call the log, and should not be slow.
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
        self.0.append_many(records.into_iter().map(|record| (0, record)))
    }

    /// Appends `records` as [`append_many`](Wal::append_many) does, each with its tag.
    ///
    /// # Errors
    /// As [`append_many`](Wal::append_many).
    ///
    /// # Panics
    /// As [`append_batch`](Wal::append_batch).
    pub fn append_many_tagged<I, R>(&self, records: I) -> Result<BatchTicket<'_>>
    where
        I: IntoIterator<Item = (u16, R), IntoIter: Clone>,
        R: AsRef<[u8]>,
    {
        self.0.append_many(records)
    }

    /// Waits until all records that were reserved before the call survive power loss.
    ///
    /// Blocks for about one device sync. Returns at once if there is nothing to sync.
    ///
    /// # Errors
    /// `NoSpace`: nothing is lost; free space and call again. `Poisoned`: open the log again.
    pub fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    /// Returns a ticket for everything that was reserved before the call: the async form of
    /// [`sync`](Wal::sync). Does not block, and requests no sync before it is waited on.
    ///
    /// The ticket belongs to no record. So its [`lsn`](Ticket::lsn) and
    /// [`end_lsn`](Ticket::end_lsn) are the end of the log at the call, and its errors have no
    /// [`appended_lsn`](crate::Error::appended_lsn).
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// let first = wal.append(b"first")?.lsn();
    /// let second = wal.append(b"second")?.lsn();
    /// wal.barrier().wait()?; // or `wal.barrier().await`
    /// assert!(wal.durable_lsn() > second);
    /// # Ok(()) }
    /// ```
    pub fn barrier(&self) -> Ticket<'_> {
        self.0.barrier()
    }

    /// Waits until the record that begins at `lsn` survives power loss.
    ///
    /// Does not check that a record begins there: with an `lsn` within a record the call waits for
    /// that record. Below the head it returns at once. The end of the last record can be the end of
    /// the log, or in a removed range, and then gives an error. So a check after an open needs the
    /// LSN of a record.
    ///
    /// # Errors
    /// `OutOfRange`: `lsn` is at or above the end of the log. `Truncated`: a crash or a truncation
    /// of the suffix removed the record, or `lsn` lies between two epochs, where no record ever
    /// was. `NoSpace`, `Poisoned`: as from [`sync`](Wal::sync).
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.0.wait_durable(lsn)
    }

    /// Calls `f` once the record that begins at `lsn` survives power loss, or with the error that
    /// prevents it. Requests a sync, as a wait does. Does not block.
    ///
    /// `f` runs on the log's callback thread, outside of all locks, one callback at a time, in LSN
    /// order. It may call the log and wait for it. A slow `f` delays the other callbacks, `close`
    /// and the drop of the last handle. A Raft leader uses this to count itself when its entry is
    /// durable.
    ///
    /// If `f` gets `NoSpace` or `NoFiles`, the record can still become durable: call `on_durable`
    /// again.
    ///
    /// # Errors
    /// `OutOfRange`, `Truncated`: as from [`wait_durable`](Wal::wait_durable). `Closed`,
    /// `Poisoned`. `Io`: a thread could not be started. `TooManyWaiters`:
    /// [`max_waiters`](crate::Options::max_waiters) futures and callbacks wait already; call again
    /// later. With each of these errors `f` is dropped and never called.
    pub fn on_durable(&self, lsn: Lsn, f: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        self.0.on_durable(lsn, f)
    }

    /// Waits until the operating system has the record that begins at `lsn`. The record then
    /// survives the death of the process, but not of the operating system.
    ///
    /// # Errors
    /// As [`wait_durable`](Wal::wait_durable).
    pub fn flush_to_os(&self, lsn: Lsn) -> Result<()> {
        self.0.flush_to_os(lsn)
    }
}

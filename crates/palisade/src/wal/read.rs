//! Reads of a log that is open.

use std::ops::RangeBounds;

use super::Wal;
use crate::{Ended, Lsn, RecordBuf, Records, Result, Tail};

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
        self.0.records()
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
        self.0.records_from(lsn)
    }

    /// Returns where a consumer that saved `lsn` continues. `lsn` is the end of the last record
    /// that the consumer has applied ([`Record::next_lsn`](crate::Record::next_lsn),
    /// [`Tail::position`]).
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
        self.0.resume_lsn(lsn)
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
        self.0.range(range)
    }

    /// Returns the records at `lsns`, in the order of `lsns`. Reads them in LSN order, so that one
    /// read of the file can serve several records that are close to each other.
    ///
    /// # Errors
    /// As [`get`](Wal::get), for one of the LSNs. Then the call returns no record.
    pub fn get_batch(&self, lsns: &[Lsn]) -> Result<Vec<RecordBuf>> {
        self.0.get_batch(lsns)
    }

    /// Returns whether the log has no record. Reads the first one, if there is one.
    ///
    /// # Errors
    /// As [`Records::next`].
    pub fn is_empty(&self) -> Result<bool> {
        self.0.is_empty()
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
        self.0.last_record()
    }

    /// Returns the record at `lsn`, copied out of the store.
    ///
    /// # Errors
    /// `NotARecord`: no record begins at `lsn`, or `lsn` is the end of the log. `Truncated`: the
    /// record is below the head, or a crash or a truncation of the suffix removed it.
    /// `Corrupt`: the record does not validate. Else as [`records_from`](Wal::records_from).
    pub fn get(&self, lsn: Lsn) -> Result<RecordBuf> {
        self.0.get(lsn)
    }

    /// Returns a tail that follows the log from the head on.
    ///
    /// ```
    /// use palisade::{MemStore, Options, Wal};
    /// use std::time::Duration;
    ///
    /// # fn main() -> palisade::Result<()> {
    /// # let wal = Wal::with_store(MemStore::new(1 << 20), Options::new().buffer_bytes(1 << 16))?;
    /// let mut follower = wal.tail()?;
    /// wal.commit(b"first")?;
    /// let record = follower.next(Duration::from_secs(1))?.expect("it is durable");
    /// assert_eq!(record.data(), b"first");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`records`](Wal::records).
    pub fn tail(&self) -> Result<Tail> {
        self.0.tail()
    }

    /// Returns a tail that follows the log from the record at `lsn` on.
    ///
    /// # Errors
    /// As [`records_from`](Wal::records_from).
    pub fn tail_from(&self, lsn: Lsn) -> Result<Tail> {
        self.0.tail_from(lsn)
    }

    /// Returns a future that completes when the log is closed or poisoned, with the error that
    /// later calls return. For a task that waits for something else than a record.
    ///
    /// The future keeps the log open.
    pub fn ended(&self) -> Ended {
        self.0.ended()
    }
}

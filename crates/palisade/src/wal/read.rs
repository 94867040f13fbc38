//! Reads of a log that is open.

use super::Wal;
use crate::{Lsn, RecordBuf, Records, Result, Tail};

impl Wal {
    /// Returns all records from the head to the end of the log at the time of the call.
    ///
    /// First hands everything to the operating system, as [`flush_to_os`](Wal::flush_to_os) does.
    /// So it may wait for appends in progress, but not for the device.
    ///
    /// # Errors
    /// `Io`. On a poisoned log or a full disk, the iterator returns what was written and then the
    /// error.
    pub fn records(&self) -> Result<Records> {
        self.0.records()
    }

    /// Returns the records from the one at `lsn` on. The first record needs no search.
    ///
    /// If a crash or [`truncate_after`](Wal::truncate_after) removed the record at `lsn`, the
    /// iterator begins at the next record. At the end of the log it is empty.
    ///
    /// # Errors
    /// `NotARecord`: no record begins at `lsn`. `Truncated`: `lsn` is below the head.
    /// `OutOfRange`: `lsn` is above the end. Else as [`records`](Wal::records).
    pub fn records_from(&self, lsn: Lsn) -> Result<Records> {
        self.0.records_from(lsn)
    }

    /// Returns the record at `lsn`, copied out of the store.
    ///
    /// # Errors
    /// As [`records_from`](Wal::records_from), and `Truncated` for an `lsn` whose record a crash or
    /// [`truncate_after`](Wal::truncate_after) removed.
    pub fn get(&self, lsn: Lsn) -> Result<RecordBuf> {
        self.0.get(lsn)
    }

    /// Returns a tail that follows the log from the head on.
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
}

//! The iterator over records.

use std::fmt;
use std::marker::PhantomData;

use palisade::inspect::{Inspector, Salvaged};
use palisade::{ErrorKind, Records};

use crate::error::BAD_PARTS;
use crate::log::{FIRST, LENGTH_BYTES, Log, PART};
use crate::{FileStore, Lsn, Record, RecoveryPolicy, Result, Wal, WalError, WalStore};

const READING: &str = "reading from the log";

/// The iterator that [`Wal::iter`] and [`Wal::iter_from`] return.
///
/// Returns the records that were in the log when it was made. While it exists,
/// [`truncate_before`](Wal::truncate_before) frees no segment from its position on.
pub struct WalIter<'a, S: WalStore = FileStore> {
    log: &'a Log,
    policy: RecoveryPolicy,
    /// Where the log ended when the iterator was made.
    end: palisade::Lsn,
    /// `None` at the end.
    records: Option<Records>,
    /// The first item, if the iterator begins at no record.
    refused: Option<WalError>,
    /// Where the caller wants the first record, until the first call.
    from: Option<palisade::Lsn>,
    wal: PhantomData<&'a Wal<S>>,
}

/// A long record, some parts of which were read.
#[derive(Debug)]
struct Long {
    lsn: palisade::Lsn,
    len: u64,
    data: Vec<u8>,
}

impl<'a, S: WalStore> WalIter<'a, S> {
    /// Makes an iterator from `from`, or from the head.
    pub(crate) fn new(log: &'a Log, policy: RecoveryPolicy, from: Option<Lsn>) -> Result<Self> {
        // The iterator must not end within a long record: if its append fails, its parts are
        // truncated, and a read of them is an error.
        log.between_long_appends(|| WalIter::begin(log, policy, from))
    }

    fn begin(log: &'a Log, policy: RecoveryPolicy, from: Option<Lsn>) -> Result<Self> {
        let end = log.wal.reserved_lsn();
        let at = from.map(|from| log.position(from)).transpose();
        let mut wanted = None;
        let (records, refused) = match at {
            Ok(Some(at)) if at >= end => (None, None),
            Ok(Some(at)) if at > log.wal.head_lsn() => match log.wal.records_from(at) {
                Ok(records) => {
                    wanted = Some(at);
                    (Some(records), None)
                }
                Err(error) => match WalError::of_log(READING, log.origin, error) {
                    WalError::Corruption { reason, .. } => {
                        let offset = at.as_u64() - log.origin;
                        (None, Some(WalError::Corruption { offset, reason }))
                    }
                    error => return Err(error),
                },
            },
            Ok(_) => {
                let records = log.wal.records();
                (Some(records.map_err(|error| WalError::io(READING, error))?), None)
            }
            // No log has so high an LSN.
            Err(_) => (None, None),
        };
        Ok(WalIter { log, policy, end, records, refused, from: wanted, wal: PhantomData })
    }

    /// Returns the next record. If it is the first one, it must begin where the caller wants it.
    fn read(&mut self) -> Result<Option<Record>, Failure> {
        let from = self.from.take();
        let found = self.read_any()?;
        let Some(from) = from else { return Ok(found) };
        if found.as_ref().is_some_and(|record| record.lsn() == self.log.lsn(from)) {
            return Ok(found);
        }
        match self.log.wal.get(from) {
            // Records ended there, and a crash ended the append of a long one.
            Ok(part) if part.tag() == FIRST => Ok(found),
            // It is a part of a long record.
            Ok(_) => Err(Failure::NoRecord(from)),
            // Records end there, and the log continued higher: in the next segment, or after a
            // crash or a truncation. An engine that has saved `len` then wants what follows.
            Err(error) if matches!(error.kind(), ErrorKind::NotARecord | ErrorKind::Truncated) => {
                Ok(found)
            }
            Err(error) => Err(Failure::Log(error)),
        }
    }

    /// Returns the next record, wherever it begins. Skips the parts of long records that were never
    /// completed.
    fn read_any(&mut self) -> Result<Option<Record>, Failure> {
        let Some(records) = &mut self.records else { return Ok(None) };
        let mut long: Option<Long> = None;
        while let Some(record) = records.next().map_err(Failure::Log)? {
            match (record.tag(), &mut long) {
                (FIRST, _) => long = Some(Long::begin(record.lsn(), record.data())?),
                (PART, Some(long)) => long.data.extend_from_slice(record.data()),
                (PART, None) => {}
                _ => return Ok(Some(self.log.record(record.lsn(), record.data().to_vec()))),
            }
            match long.take_if(|long| long.data.len() as u64 >= long.len) {
                Some(Long { lsn, len, data }) if data.len() as u64 == len => {
                    return Ok(Some(self.log.record(lsn, data)));
                }
                Some(Long { lsn, .. }) => return Err(Failure::BadParts(lsn)),
                None => {}
            }
        }
        Ok(None)
    }

    /// Returns the records above the damage at `lsn`, or none if no record is there.
    fn above(&self, lsn: palisade::Lsn) -> Option<Records> {
        let folder = self.log.folder.as_ref()?;
        // The search reads the files. If the sync fails, it finds what the files have.
        let _ = self.log.wal.sync();
        let mut found = Inspector::open(folder).ok()?.salvage(Some(lsn)).ok()?;
        while let Some(next) = found.next().ok()? {
            if let Salvaged::Record(record) = next
                && record.lsn() > lsn
            {
                let from = record.lsn();
                return self.log.wal.range(from..self.end.max(from)).ok();
            }
        }
        None
    }
}

impl Long {
    fn begin(lsn: palisade::Lsn, data: &[u8]) -> Result<Long, Failure> {
        let (len, data) = data.split_first_chunk::<LENGTH_BYTES>().ok_or(Failure::BadParts(lsn))?;
        Ok(Long { lsn, len: u64::from_le_bytes(*len), data: data.to_vec() })
    }
}

/// Why the next record cannot be returned.
#[derive(Debug)]
enum Failure {
    Log(palisade::Error),
    NoRecord(palisade::Lsn),
    BadParts(palisade::Lsn),
}

impl<S: WalStore> Iterator for WalIter<'_, S> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if let Some(error) = self.refused.take() {
            return Some(Err(error));
        }
        let failure = match self.read() {
            Ok(Some(record)) => return Some(Ok(record)),
            Ok(None) => {
                self.records = None;
                return None;
            }
            Err(failure) => failure,
        };
        let offset = |lsn: palisade::Lsn| lsn.as_u64() - self.log.origin;
        let (error, damage) = match failure {
            Failure::NoRecord(lsn) => (WalError::no_record(offset(lsn)), None),
            Failure::BadParts(lsn) => {
                (WalError::Corruption { offset: offset(lsn), reason: BAD_PARTS }, Some(lsn))
            }
            Failure::Log(error) => {
                let damage = error.lsn().filter(|_| error.kind() == ErrorKind::Corrupt);
                (WalError::of_log(READING, self.log.origin, error), damage)
            }
        };
        self.records = damage
            .filter(|_| self.policy == RecoveryPolicy::SkipBadRecords)
            .and_then(|lsn| self.above(lsn));
        Some(Err(error))
    }
}

impl<S: WalStore> fmt::Debug for WalIter<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WalIter")
            .field("end", &self.end)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

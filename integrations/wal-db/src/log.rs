//! An open log, which all of its handles share.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use palisade::disk::DiskFolder;
use palisade::{Error, ErrorKind, Records, Result, Ticket, Wal};

use crate::shared::Entry;
use crate::{Lsn, Record, WalError};

/// The tag of the first part of a long record: its length in 8 bytes, then bytes of it. A record
/// that is one record of the log below has tag 0.
pub(crate) const FIRST: u16 = 1;
/// The tag of each further part. No other record is between the parts.
pub(crate) const PART: u16 = 2;
/// Bytes of the length in the first part.
pub(crate) const LENGTH_BYTES: usize = 8;

/// The ticket of an appended record, or of its last part, and where the record begins.
type Appended<'a> = std::result::Result<(Ticket<'a>, palisade::Lsn), Failed>;

/// Why an append failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    pub(crate) left: Left,
}

/// What a failed append has left in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// Parts of a long record, which readers skip.
    Parts,
    /// The record. Its last part begins at the position.
    Record(palisade::Lsn),
}

impl Failed {
    fn without_record(error: Error) -> Failed {
        Failed { error, left: Left::Nothing }
    }

    /// Returns the failure of the call that appends the record, or its last part.
    fn of_record(error: Error) -> Failed {
        Failed { left: error.appended_lsn().map_or(Left::Nothing, Left::Record), error }
    }
}

/// The fields are dropped in their order, so the entry is removed after the log has ended.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) wal: Wal,
    /// The position in the log below that has LSN 0.
    pub(crate) origin: u64,
    /// The folder, if it is in the file system of the operating system.
    pub(crate) folder: Option<PathBuf>,
    /// The folder, wherever it was moved to.
    pub(crate) home: Arc<dyn DiskFolder>,
    /// Whether `truncate_before` changes nothing.
    pub(crate) keeps_prefix: bool,
    /// The bytes that the files may take (`max_bytes`), if the log has no codec: with one it is not
    /// known before how much a record takes.
    pub(crate) limit: Option<u64>,
    /// Whether an append has to write its record, so that the record survives a kill.
    writes_appends: bool,
    /// The number above the position of the last record that an append could not write; 0 if there
    /// is none.
    unwritten: AtomicU64,
    /// Whether the log takes no more records: its file was removed, and an open failed to empty it.
    ended: AtomicBool,
    /// Shared by appends of one record, and where a read begins. Exclusive for the parts of a long
    /// record, so that they lie beside each other, and for truncations, which must not divide them.
    order: RwLock<()>,
    pub(crate) entry: Option<Entry>,
}

impl Log {
    pub(crate) fn new(wal: Wal, home: Arc<dyn DiskFolder>) -> Log {
        let writes_appends = !wal.recovery_report().appends_survive_kill;
        Log {
            wal,
            origin: 0,
            folder: None,
            home,
            keeps_prefix: true,
            limit: None,
            writes_appends,
            unwritten: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            order: RwLock::new(()),
            entry: None,
        }
    }

    /// Appends a record. Returns its ticket, or that of its last part, and where it begins.
    pub(crate) fn append(&self, record: &[u8]) -> Appended<'_> {
        self.write_rest().map_err(Failed::without_record)?;
        let appended = self.append_and_write(record);
        if let Err(Failed { left: Left::Record(lsn), .. }) = &appended {
            // Relaxed: an append that misses the value fails in the same way.
            self.unwritten.fetch_max(lsn.as_u64() + 1, Ordering::Relaxed);
        }
        appended
    }

    fn append_and_write(&self, record: &[u8]) -> Appended<'_> {
        let (ticket, begin) = if record.len() <= self.longest() {
            let _shared = self.order.read().unwrap_or_else(PoisonError::into_inner);
            self.check_end()?;
            let ticket = self.wal.append(record).map_err(Failed::of_record)?;
            let begin = ticket.lsn();
            (ticket, begin)
        } else {
            self.append_parts(record)?
        };
        if self.writes_appends {
            let written = self.wal.flush_to_os(ticket.lsn());
            written.map_err(|error| Failed { left: Left::Record(ticket.lsn()), error })?;
        }
        Ok((ticket, begin))
    }

    /// Returns the length of the longest record of the log below that this crate appends.
    fn longest(&self) -> usize {
        // A codec that encrypts makes a record longer, and the encoded form must fit.
        self.wal.max_record_bytes() / 8 * 7
    }

    /// Writes the records that earlier appends could not write. Unless that succeeds, the log takes
    /// no more of them.
    fn write_rest(&self) -> Result<()> {
        let unwritten = self.unwritten.load(Ordering::Relaxed);
        let Some(lsn) = unwritten.checked_sub(1) else { return Ok(()) };
        match self.wal.flush_to_os(palisade::Lsn::new(lsn)) {
            Err(error) if error.kind() != ErrorKind::Truncated => return Err(error),
            _ => {}
        }
        // Another append may have failed meanwhile: then its record is the last.
        let (from, to) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.unwritten.compare_exchange(unwritten, 0, from, to);
        Ok(())
    }

    /// Appends a record that is too long for one record of the log below. If the process dies
    /// meanwhile, readers skip the parts that are there, unless all are.
    fn append_parts(&self, record: &[u8]) -> Appended<'_> {
        let (first, rest) = record.split_at(self.longest() - LENGTH_BYTES);
        let length = (record.len() as u64).to_le_bytes();
        self.alone(|| {
            self.check_end()?;
            self.check_room(record.len() as u64).map_err(Failed::without_record)?;
            let parts = [IoSlice::new(&length), IoSlice::new(first)];
            let ticket = self.wal.append_vectored_tagged(FIRST, &parts);
            let begin = match ticket {
                Ok(ticket) => ticket.lsn(),
                Err(error) => return Err(self.without_parts(error.appended_lsn(), error)),
            };
            match self.append_rest(rest) {
                Ok(ticket) => Ok((ticket, begin)),
                Err(Failed { error, left: Left::Nothing }) => {
                    Err(self.without_parts(Some(begin), error))
                }
                Err(failed) => Err(failed),
            }
        })
    }

    /// Appends the parts of a long record but the first one. Returns the ticket of the last one.
    fn append_rest(&self, rest: &[u8]) -> std::result::Result<Ticket<'_>, Failed> {
        let most = self.longest();
        let (middle, last) = rest.split_at((rest.len() - 1) / most * most);
        for part in middle.chunks(most) {
            self.wal.append_tagged(PART, part).map_err(Failed::without_record)?;
        }
        self.wal.append_tagged(PART, last).map_err(Failed::of_record)
    }

    /// Refuses a long record that is above the limit of the log (`max_bytes`). It counts a lower
    /// bound of what the record takes, so the log may still refuse a part. But each truncation of
    /// parts takes a segment, also above the limit: a caller that tries again must not get there
    /// each time.
    fn check_room(&self, bytes: u64) -> Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        let space = self.wal.space()?;
        let segment_bytes = self.wal.segment_bytes();
        let free = (limit / space.file_bytes).saturating_sub(space.segments) * segment_bytes;
        let end = self.wal.reserved_lsn().as_u64();
        let room = free + (end.next_multiple_of(segment_bytes) - end);
        if bytes > room {
            let text = format!("the record has {bytes} bytes, and max_bytes leaves {room}");
            let error = Error::new(ErrorKind::NoSpace, text);
            return Err(error.with_advice("truncate the log, or open it with a higher limit"));
        }
        Ok(())
    }

    /// Removes the parts of the record whose append failed, from `begin` on: a log that is full of
    /// them would accept nothing more. The caller is in [`alone`](Log::alone), so there is no other
    /// record above.
    fn without_parts(&self, begin: Option<palisade::Lsn>, error: Error) -> Failed {
        let removed = begin.map_or(Ok(()), |begin| self.wal.truncate_from(begin));
        Failed { left: if removed.is_ok() { Left::Nothing } else { Left::Parts }, error }
    }

    /// Lets the log take no more records. The caller is in [`alone`](Log::alone), and abandons the
    /// log afterwards.
    pub(crate) fn refuse_appends(&self) {
        // Relaxed: appends read it under the lock that `alone` holds.
        self.ended.store(true, Ordering::Relaxed);
    }

    fn check_end(&self) -> std::result::Result<(), Failed> {
        // Relaxed: as in `refuse_appends`.
        if self.ended.load(Ordering::Relaxed) {
            let text = "the log's file was removed, and an open failed to empty the log";
            let error = Error::new(ErrorKind::Closed, text).with_advice("drop all handles of it");
            return Err(Failed::without_record(error));
        }
        Ok(())
    }

    /// Returns the error of a log that was poisoned or closed.
    pub(crate) fn end(&self) -> Option<Error> {
        // Moves no head, so a log that has not ended stays as it is.
        self.wal.truncate_before(self.wal.head_lsn()).err().filter(Error::is_fatal)
    }

    /// Reads all records, as far as they are in the log now. Appends go on, but no truncation does.
    pub(crate) fn verify(&self) -> Result<()> {
        self.between_long_appends(|| {
            let mut records = self.wal.records()?;
            while records.next()?.is_some() {}
            Ok(())
        })
    }

    /// Calls `f` while no long record is appended and nothing is truncated.
    pub(crate) fn between_long_appends<T>(&self, f: impl FnOnce() -> T) -> T {
        let _shared = self.order.read().unwrap_or_else(PoisonError::into_inner);
        f()
    }

    /// Calls `f` while no append runs.
    pub(crate) fn alone<T>(&self, f: impl FnOnce() -> T) -> T {
        let _alone = self.order.write().unwrap_or_else(PoisonError::into_inner);
        f()
    }

    /// Returns where the last part of the record at `lsn` begins, or none if no record begins
    /// there.
    pub(crate) fn last_part(&self, lsn: palisade::Lsn) -> Result<Option<palisade::Lsn>> {
        let found = next_record(&mut self.wal.records_from(lsn)?)?;
        // If a truncation or a crash removed the record at `lsn`, or the end of it, this is another
        // record.
        Ok(found.filter(|(begin, _)| *begin == lsn).map(|(_, last)| last))
    }

    /// Returns whether the log has no record. Reads the first one.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        // Between long appends, so that a truncation does not come into the read.
        self.between_long_appends(|| Ok(next_record(&mut self.wal.records()?)?.is_none()))
    }

    /// Returns the position of `lsn` in the log below.
    pub(crate) fn position(&self, lsn: Lsn) -> crate::Result<palisade::Lsn> {
        let position = lsn.get().checked_add(self.origin);
        let position = position.filter(|&position| position < palisade::Lsn::LIMIT.as_u64());
        position.map(palisade::Lsn::new).ok_or(WalError::no_record(lsn.get()))
    }

    /// Returns the LSN of a position in the log below.
    pub(crate) fn lsn(&self, position: palisade::Lsn) -> Lsn {
        Lsn::new(position.as_u64().saturating_sub(self.origin))
    }

    pub(crate) fn record(&self, position: palisade::Lsn, data: Vec<u8>) -> Record {
        Record::new(self.lsn(position), data)
    }
}

/// Returns where the next record in `parts` begins, and where its last part does. Skips the parts
/// of long records that were never completed.
fn next_record(parts: &mut Records) -> Result<Option<(palisade::Lsn, palisade::Lsn)>> {
    // Where the long record begins, and how many of its bytes are missing.
    let mut long = None;
    while let Some(part) = parts.next()? {
        let (at, data) = (part.lsn(), part.data());
        long = match (part.tag(), long) {
            (FIRST, _) => data.split_first_chunk::<LENGTH_BYTES>().map(|(length, data)| {
                (at, u64::from_le_bytes(*length).saturating_sub(data.len() as u64))
            }),
            (PART, Some((begin, missing))) => {
                Some((begin, missing.saturating_sub(data.len() as u64)))
            }
            (PART, None) => None,
            _ => return Ok(Some((at, at))),
        };
        if let Some((begin, 0)) = long {
            return Ok(Some((begin, at)));
        }
    }
    Ok(None)
}

impl Drop for Log {
    /// Makes a clean end, so that the next open needs no scan. If that fails, the records are in
    /// the log nevertheless: the drop of `wal` writes them.
    fn drop(&mut self) {
        let _ = self.wal.close();
    }
}

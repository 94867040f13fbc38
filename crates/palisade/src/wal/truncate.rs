//! Truncation at both ends, and checkpoints.

use super::Wal;
use crate::trace::span;
use crate::{Lsn, Release, Result};

impl Wal {
    /// Truncates all records below `lsn`; the record at `lsn` stays. Whole segments are freed and
    /// recycled, as far as no iterator reads them.
    ///
    /// Waits until everything below `lsn` is durable. An `lsn` at or below the head moves nothing,
    /// and frees what could not be freed before. If a crash or a truncation ended the log at `lsn`,
    /// the head moves to the LSN where the log continued. So a caller that has replayed all records
    /// may truncate all of them.
    ///
    /// On files, a callback can get each segment before it is freed (`Options::on_release` of
    /// `palisade`). If the callback fails, the call returns its error. The head has moved
    /// nevertheless, and the next call tries the segment again.
    ///
    /// # Durability
    /// The new head survives power loss when this returns.
    ///
    /// # Errors
    /// `NotARecord`: no record begins at `lsn`, and it is not the end of the log. `OutOfRange`:
    /// `lsn` is above the end. `Truncated`: `lsn` is in a range that a crash or a truncation of
    /// the suffix removed. `NoSpace`, `Io`, and the errors of a
    /// callback for released segments: the head may have moved, and nothing else is lost; call
    /// again. `Corrupt`, `Unsupported`: also if the header of a segment that the callback is to get
    /// does not validate; that segment and all above stay. `Closed`, `Poisoned`.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_before", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.truncate_before(lsn)
    }

    /// Truncates all records below `lsn` as [`truncate_before`](Wal::truncate_before) does, but
    /// frees the segments in the background. The head has moved durably when this returns, after
    /// about two device syncs. The [`Release`] says when the files are freed, to a thread or a
    /// task.
    ///
    /// One thread frees segments, in the order of the calls; the first call starts it. Callbacks
    /// for released segments run on it, so an upload delays no commit and no other callback. While
    /// it works it counts as a handle: the log may be open for a moment after the last handle was
    /// dropped. A `close` and a `truncate_before` wait for the release that runs. A truncation of
    /// the suffix does not: the release frees its segments, too. Releases that have not begun when
    /// the close ends return `Closed`, and the next truncation frees their segments.
    ///
    /// ```
    /// # fn show(wal: &palisade::Wal) -> palisade::Result<()> {
    /// let ticket = wal.append(b"the last record that the engine's snapshot has")?;
    /// let applied = ticket.end_lsn();
    /// ticket.wait()?; // then the engine writes the snapshot
    /// let release = wal.truncate_before_in_background(applied)?;
    /// assert_eq!(wal.head_lsn(), applied);
    /// // Later, if anybody wants to know:
    /// release.wait()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`truncate_before`](Wal::truncate_before); those of the release come from
    /// [`Release::wait`]. `Io`: the thread did not start; the head has moved.
    pub fn truncate_before_in_background(&self, lsn: Lsn) -> Result<Release> {
        span!("truncate_before_in_background", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.truncate_before_in_background(lsn)
    }

    /// Records durably that everything below `lsn` has been applied elsewhere, and that it was
    /// durable. Recovery refuses a log that ends below a checkpoint.
    ///
    /// Waits until everything below `lsn` is durable, and writes a mark that proves it. An `lsn` at
    /// or below the last checkpoint changes nothing. A checkpoint does not free space:
    /// [`truncate_before`](Wal::truncate_before) does. A later
    /// truncation of the suffix below the checkpoint lowers it to the new end.
    ///
    /// # Errors
    /// As [`truncate_before`](Wal::truncate_before).
    pub fn checkpoint(&self, lsn: Lsn) -> Result<()> {
        span!("checkpoint", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.checkpoint(lsn)
    }

    /// Truncates all records above the one at `lsn`, which becomes the last. For example, a Raft
    /// follower calls it when the Raft leader overrules entries that the follower has appended.
    /// [`truncate_from`](Wal::truncate_from) also removes the record at `lsn`, and
    /// [`replace_from`](Wal::replace_from) appends others in the same step.
    ///
    /// Concurrent appends wait ([`try_append`](Wal::try_append) returns `NoRoom`) and continue
    /// after the new end. Their LSNs are greater than all before: no LSN is used twice. Every use
    /// of a truncated record returns `Truncated` from then on: tickets, waits, callbacks and `get`.
    /// An iterator that was created before returns it when it reaches the new end; a new iterator
    /// skips the truncated range.
    ///
    /// Blocks for some device syncs, and for appends in progress. The closure of an
    /// [`append_with`](Wal::append_with) must not call it.
    ///
    /// # Durability
    /// All records up to the one at `lsn` survive power loss when this returns, and the truncated
    /// records never come back. A crash in between leaves the log as it was, or truncated.
    ///
    /// ```
    /// # fn show(wal: &palisade::Wal) -> palisade::Result<()> {
    /// let kept = wal.append(b"agreed")?.lsn();
    /// let overruled = wal.append(b"overruled")?.lsn();
    /// wal.truncate_after(kept)?;
    /// assert_eq!(wal.get(overruled).unwrap_err().kind(), palisade::ErrorKind::Truncated);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `NotARecord`: no record begins at `lsn`. `InvalidArgument`: the record is in a batch and
    /// is not its last. `OutOfRange`: `lsn` is above the end, or no segment is left below
    /// [`Lsn::LIMIT`] to continue in. `Truncated`: `lsn` is below the head, or was truncated
    /// before. `NoSpace`: free space and call again. `Closed`. With all of these nothing was
    /// changed. `Poisoned`: the next open shows whether the log was truncated.
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_after", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.truncate_after(lsn)
    }

    /// Truncates the record at `lsn` and all records above it, as
    /// [`truncate_after`](Wal::truncate_after) does above it. `lsn` can be the first record of the
    /// log: then the log is empty. It can also be the end of a record
    /// ([`Record::next_lsn`](crate::Record::next_lsn)). At the end of the log there is nothing to
    /// remove.
    ///
    /// # Durability
    /// All records below `lsn` survive power loss when this returns, and the truncated records
    /// never come back. A crash in between leaves the log as it was, or truncated.
    ///
    /// # Errors
    /// As [`truncate_after`](Wal::truncate_after). `InvalidArgument`: the record is in a batch, and
    /// is not its first. `Corrupt`, `Io`: the header of the segment at
    /// `lsn`, which is read if no record of its epoch stays.
    pub fn truncate_from(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_from", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.truncate_from(lsn)
    }

    /// Truncates the record at `lsn` and all records above it, and appends `records` in their
    /// place, in one step: after a crash the log is as it was, or it has exactly the records below
    /// `lsn` and all of `records`. Returns the LSNs of `records`, which are greater than all
    /// before.
    ///
    /// All records above `lsn` go. So an engine that also keeps other records in the log, such as
    /// the votes of a Raft node, passes the newest of those that must stay.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// let entry = wal.append(b"entry 1 of term 1")?.lsn();
    /// wal.append(b"vote in term 2")?;
    /// let replaced = wal.replace_from(entry, ["vote in term 2", "entry 1 of term 2"])?;
    /// assert_eq!(wal.get(replaced[1])?.data(), b"entry 1 of term 2");
    /// assert_eq!(wal.records()?.into_iter().count(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Durability
    /// The records below `lsn`, and `records`, survive power loss when this returns.
    ///
    /// # Errors
    /// As [`truncate_from`](Wal::truncate_from). `TooLarge`: all frames together are larger than
    /// the largest record with its header ([`max_record_bytes`](Wal::max_record_bytes)); append the
    /// rest afterwards.
    pub fn replace_from<I>(&self, lsn: Lsn, records: I) -> Result<Vec<Lsn>>
    where
        I: IntoIterator<Item: AsRef<[u8]>>,
    {
        span!("replace_from", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.replace_from(lsn, records.into_iter().map(|record| (0, record)))
    }

    /// Replaces records as [`replace_from`](Wal::replace_from) does, each new one with its tag.
    ///
    /// # Errors
    /// As [`replace_from`](Wal::replace_from).
    pub fn replace_from_tagged<I, R>(&self, lsn: Lsn, records: I) -> Result<Vec<Lsn>>
    where
        I: IntoIterator<Item = (u16, R)>,
        R: AsRef<[u8]>,
    {
        span!("replace_from", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.replace_from(lsn, records)
    }
}

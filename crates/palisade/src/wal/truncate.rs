//! Truncation at both ends, and checkpoints.

use super::Wal;
use crate::trace::span;
use crate::{Lsn, Release, Result};

impl Wal {
    /// Truncates all records below `lsn`; the record at `lsn` stays. If a cursor keeps records
    /// below `lsn`, these records stay, too. Recycles or removes each whole segment below the head
    /// that no reader, tail, [`Hold`](crate::Hold) or cursor keeps.
    ///
    /// Waits until everything below `lsn` is durable. If `lsn` is at or below the head, removes no
    /// record, and frees the segments that could not be freed before. If a crash or a truncation
    /// ended the log at `lsn`, the head moves to the LSN where the log continued. So a caller that
    /// has replayed all records may truncate all of them.
    ///
    /// An `lsn` in a batch removes the records of the batch below it, and
    /// [`reserved_lsn`](Wal::reserved_lsn) removes all records. If a segment begins at `lsn`, the
    /// call does not read what is there, so damage there does not keep the log.
    ///
    /// An engine that writes snapshots of its state does so in this order. A crash between two
    /// steps leaves a snapshot and a log that has all records above it. On a full log `sync`
    /// returns `NoSpace`; the guide has the order without it.
    ///
    /// ```rust,no_run
    /// use palisade::{Lsn, ReplayFrom, Result, Wal};
    ///
    /// # fn write_and_sync(_: &str, _: Lsn) -> Result<()> { Ok(()) }
    /// # fn rename_and_sync_folder(_: &str, _: &str) -> Result<()> { Ok(()) }
    /// # fn snapshot_lsn() -> Lsn { Lsn::new(0) }
    /// # fn apply(_: &[u8]) -> Result<()> { Ok(()) }
    /// fn snapshot(wal: &Wal, applied: Lsn) -> Result<()> {
    ///     // `applied` is the end of the last record that the state has (`Ticket::end_lsn`).
    ///     wal.sync()?; // a snapshot must not contain changes whose records the log can still lose
    ///     write_and_sync("snapshot.new", applied)?; // the state, and `applied`
    ///     rename_and_sync_folder("snapshot.new", "snapshot")?;
    ///     wal.truncate_before(applied) // `checkpoint(applied)` instead keeps the records
    /// }
    ///
    /// fn open() -> Result<Wal> {
    ///     let recovery = palisade::Options::new().recover("wal")?;
    ///     // `Truncated`: the snapshot is older than the last truncation.
    ///     let mut records = recovery.records(ReplayFrom::Lsn(snapshot_lsn()))?;
    ///     while let Some(record) = records.next()? {
    ///         apply(record.data())?;
    ///     }
    ///     Ok(recovery.start())
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// On files, a callback can get each segment before it is freed (`Options::on_release` of
    /// `palisade`). If the callback fails, the call returns its error. The head has moved
    /// nevertheless, and the next call tries the segment again.
    ///
    /// # Durability
    /// The new head survives power loss when this returns.
    ///
    /// # Errors
    /// `NotARecord`: neither a record nor a segment begins at `lsn`, and it is not the end of the
    /// log. `OutOfRange`: `lsn` is above the end. `Truncated`: `lsn` is in a range that a crash or
    /// a truncation of the suffix removed. `NoSpace`, `NoFiles`, `Io`, `PermissionDenied`,
    /// `NotFound` (the folder was moved, removed or replaced), and the errors of a callback for
    /// released segments: the head may have moved, and no record at or above `lsn` is lost; call
    /// again. `Corrupt`, `Unsupported`: the header of a segment for the callback does not validate;
    /// that segment and all above stay. Open the log without the callback and truncate: then only
    /// the damaged file stays. `Closed`, `Poisoned`.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_before", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.truncate_before(lsn)
    }

    /// Truncates all records below `lsn` as [`truncate_before`](Wal::truncate_before) does, but
    /// frees the segments in the background. The head has moved durably when this returns, after
    /// about two device syncs. A thread or a task can wait for the [`Release`] until the files are
    /// freed.
    ///
    /// One thread frees segments, in the order of the calls; the first call starts it. Callbacks
    /// for released segments run on it, so an upload delays no commit and no other callback. While
    /// it works it counts as a handle: the log may be open for a moment after the last handle was
    /// dropped. A `close` and a `truncate_before` wait for the release that runs. A truncation of
    /// the suffix does not wait: the thread of the release then also frees the segments of the
    /// truncation. Releases that have not begun when the close ends return `Closed`, and the next
    /// truncation frees their segments.
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

    /// Saves that the engine has applied all records below `lsn`, and that these records were
    /// durable. Recovery refuses a log that ends below a checkpoint.
    ///
    /// Waits until everything below `lsn` is durable, and writes a mark that proves it. An `lsn` at
    /// or below the last checkpoint changes nothing. A checkpoint does not free space:
    /// [`truncate_before`](Wal::truncate_before) does. A later
    /// truncation of the suffix below the checkpoint lowers it to the new end.
    ///
    /// # Errors
    /// As [`truncate_before`](Wal::truncate_before), without those of a callback. If a write or a
    /// sync failed, the next open may find the checkpoint.
    pub fn checkpoint(&self, lsn: Lsn) -> Result<()> {
        span!("checkpoint", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.checkpoint(lsn)
    }

    /// Truncates all records above the one at `lsn`, which becomes the last. For example, a Raft
    /// follower calls it when the Raft leader overrules entries that the follower has appended.
    /// [`truncate_from`](Wal::truncate_from) also removes the record at `lsn`, and
    /// [`replace_from`](Wal::replace_from) appends others in the same step.
    ///
    /// The log continues in another segment, also above
    /// [`max_bytes`](crate::Options::max_bytes). The segment of the last record stays until
    /// [`truncate_before`](Wal::truncate_before) frees it.
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
    /// `Poisoned`: the next open shows whether the log was truncated. After each other error
    /// nothing was changed. `NotARecord`: no record begins at `lsn`. `InvalidArgument`: the record
    /// is in a batch and is not its last. `OutOfRange`: `lsn` is above the end, or no segment is
    /// left below [`Lsn::LIMIT`] to continue in. `Truncated`: `lsn` is below the head, or was
    /// truncated before. `NoSpace`: free space and call again. `Corrupt`, `Io`: the log cannot read
    /// the record at `lsn`. `Closed`.
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_after", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.truncate_after(lsn)
    }

    /// Truncates the record at `lsn` and all records above it, in the same way as
    /// [`truncate_after`](Wal::truncate_after). If `lsn` is the first record of the log, the log is
    /// empty afterwards. `lsn` can also be the end of a record
    /// ([`Record::next_lsn`](crate::Record::next_lsn)). If it is the end of the log, no record is
    /// removed.
    ///
    /// # Durability
    /// All records below `lsn` survive power loss when this returns, and the truncated records
    /// never come back. A crash in between leaves the log as it was, or truncated.
    ///
    /// # Errors
    /// As [`truncate_after`](Wal::truncate_after), except `InvalidArgument`: the record is in a
    /// batch and is not its first. `Corrupt`, `Io`: also if no record of the epoch stays, and the
    /// call cannot read the header of the segment at `lsn`.
    pub fn truncate_from(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_from", log = %self.uuid(), lsn = lsn.as_u64());
        self.0.truncate_from(lsn)
    }

    /// Truncates the record at `lsn` and all records above it, and appends `records` in their
    /// place, in one step: after a crash the log is as it was, or it has exactly the records below
    /// `lsn` and all of `records`. Returns the LSNs of `records`, which are greater than all
    /// before. Without `records` it is [`truncate_from`](Wal::truncate_from), and returns no LSN.
    ///
    /// Removes also other records above `lsn` that the engine still needs, such as the votes of a
    /// Raft node. So the engine passes the newest of these again, in `records`.
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

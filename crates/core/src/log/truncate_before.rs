//! Truncation of the prefix, and checkpoints.

use super::{Handle, Wal};
use crate::events::span;
use crate::{Error, ErrorKind, Lsn, Result};

impl Wal {
    /// Truncates all records below `lsn`, or below the lowest record that a cursor keeps. Recycles
    /// or removes each whole segment below the head that no reader, tail, [`Hold`](crate::Hold) or
    /// cursor keeps.
    ///
    /// Waits until everything below `lsn` is durable. [`reserved_lsn`](Wal::reserved_lsn) removes
    /// all records, and an `lsn` in a batch its members below. If a crash or a truncation ended the
    /// log at `lsn`, the head moves to where the log continued. The start of a segment is valid
    /// even if its record is damaged. An `lsn` below the head moves nothing.
    ///
    /// An engine writes snapshots in this order. On a full log `sync` returns `NoSpace`; the guide
    /// has the order without it.
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
    /// # Durability
    /// The new head survives power loss when this returns.
    ///
    /// # Errors
    /// `NotARecord`: no record begins or ends at `lsn`, and no segment begins there. `OutOfRange`,
    /// `Truncated`. `NoSpace`, `NoFiles`, `Io`, `PermissionDenied`, `NotFound` (the folder was
    /// moved, removed or replaced), and the errors of a callback for released segments: the head
    /// may have moved; call again. `Corrupt`, `Unsupported`: the header of a segment for the
    /// callback does not validate; open the log without the callback and truncate.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_before", log = %self.uuid(), lsn = lsn.as_u64());
        self.move_head(lsn)?;
        // Even if the head did not move: an earlier call or a reader may have kept segments.
        self.handle.release_unpinned()
    }

    pub(super) fn move_head(&self, lsn: Lsn) -> Result<()> {
        self.check_open()?;
        let lsn = self.handle.epochs.skip_end_of_epoch(lsn);
        if lsn <= self.head_lsn() {
            return Ok(());
        }
        match self.check_boundary(lsn) {
            // Another call has truncated more: the log begins above already.
            Err(error) if error.kind() == ErrorKind::Truncated && lsn <= self.head_lsn() => Ok(()),
            checked => {
                checked?;
                self.handle.commit.own()?.wait(lsn, None)?;
                self.handle.change_state(Some(lsn), |state| {
                    state.head = self.handle.head_towards(lsn, state);
                    if let Some(end_before) = self.handle.epochs.end_before(state.head) {
                        state.note_base(end_before, state.head);
                    }
                })
            }
        }
    }

    /// Saves that the engine has applied all records below `lsn`. Waits until they are durable, and
    /// writes a mark that proves it, because recovery refuses a log that ends below a checkpoint.
    /// An `lsn` below the last checkpoint changes nothing. A truncation of the suffix below it
    /// lowers it.
    ///
    /// # Errors
    /// As [`truncate_before`](Wal::truncate_before), without those of a callback. If a write or a
    /// sync failed, the next open may find the checkpoint.
    pub fn checkpoint(&self, lsn: Lsn) -> Result<()> {
        span!("checkpoint", log = %self.uuid(), lsn = lsn.as_u64());
        self.check_open()?;
        let lsn = self.handle.epochs.skip_end_of_epoch(lsn);
        if lsn <= self.checkpoint_lsn() {
            // A truncation may have removed the record at `lsn` before a later checkpoint was made.
            return self.check_not_truncated(lsn);
        }
        self.check_boundary(lsn)?;
        let log = self.handle.commit.own()?;
        log.wait(lsn, None)?;
        let mark_end = self.append_mark()?;
        log.wait(mark_end, None)?;
        self.handle.change_state(Some(lsn), |state| state.checkpoint = state.checkpoint.max(lsn))
    }

    /// Accepts the start of a record or a segment, and the end of the log.
    fn check_boundary(&self, lsn: Lsn) -> Result<()> {
        self.check_readable(lsn)?;
        // Each write ends at the end of a frame. The next frame may be only in the log buffer, and
        // `frame_at` would first write it. On a full disk that fails, and with it the truncation
        // that is to free space.
        if lsn == self.reserved_lsn() || lsn == self.written_lsn() {
            return Ok(());
        }
        self.check_not_discarded(lsn)?;
        // No frame crosses the end of a segment, so one begins here, even if it is damaged.
        let begins_segment = lsn == lsn.segment_start(self.segment_bytes());
        if begins_segment && self.handle.epochs.find(lsn).is_some() {
            return Ok(());
        }
        self.frame_at(lsn).map(drop)
    }
}

impl Handle {
    pub(super) fn release_unpinned(&self) -> Result<()> {
        let released = {
            let _releasing = self.releasing.lock();
            self.release_alone()
        };
        self.discard_left();
        released
    }

    /// The caller holds the lock `releasing`.
    pub(super) fn release_alone(&self) -> Result<()> {
        let log = self.commit.own()?;
        let to = {
            let state = self.state.lock();
            if state.clean {
                return Ok(());
            }
            // Under the state's lock: a pin that is set later lies at or above this head.
            let lag = |at| self.epochs.lag(|| (at, log.buffer.reserved()));
            self.pins.lowest_below(&state, lag).unwrap_or(state.head)
        };
        // Up to `to`, not to the head: a reader needs the epochs from its pin on.
        self.epochs.forget_below(to);
        log.store.release(Lsn::ZERO, to)?;
        log.look_at_space();
        log.observer.released(to);
        Ok(())
    }

    /// Frees the segments of `[new_end, base)`. What a failure or a crash leaves, a later release
    /// frees.
    pub(super) fn discard(&self, new_end: Lsn, base: Lsn) {
        self.discarded.lock().push((new_end, base));
        self.discard_left();
    }

    /// Frees the segments of all discarded ranges, unless a release is in progress. The thread that
    /// releases calls this after it has freed the lock `releasing`, so it frees what was added
    /// before; a thread that adds later finds the lock free.
    pub(super) fn discard_left(&self) {
        let Ok(log) = self.commit.own() else { return };
        while self.has_discarded()
            && let Some(_releasing) = self.releasing.try_lock()
        {
            let ranges = std::mem::take(&mut *self.discarded.lock());
            if self.state.lock().clean {
                return;
            }
            for (new_end, base) in ranges {
                let _ = log.store.discard(new_end, base);
            }
            log.look_at_space();
        }
    }

    fn has_discarded(&self) -> bool {
        !self.discarded.lock().is_empty()
    }
}

pub(super) fn below_head(lsn: Lsn, head: Lsn) -> Error {
    Error::new(ErrorKind::Truncated, format!("the log begins at LSN {head}")).at_lsn(lsn)
}

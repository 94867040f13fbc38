//! Truncation of the prefix, and checkpoints.

use super::{Handle, Wal};
use crate::{Error, ErrorKind, Lsn, Result};

impl Wal {
    /// Truncates all records below `lsn`; the record at `lsn` stays.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        self.move_head(lsn)?;
        // Segments that an earlier call or a reader left are freed all the same.
        self.handle.release_unpinned()
    }

    /// Moves the head up to `lsn`, durably. Does nothing if it is there already, or above.
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
                self.handle.log.wait(lsn, None)?;
                self.handle.change_state(Some(lsn), |state| {
                    state.head = self.handle.head_towards(lsn, state);
                    if let Some(end_before) = self.handle.epochs.end_before(state.head) {
                        state.note_base(end_before, state.head);
                    }
                })
            }
        }
    }

    /// Records durably that everything below `lsn` has been applied elsewhere, and that it was
    /// durable.
    pub fn checkpoint(&self, lsn: Lsn) -> Result<()> {
        self.check_open()?;
        let lsn = self.handle.epochs.skip_end_of_epoch(lsn);
        if lsn <= self.checkpoint_lsn() {
            // A later checkpoint does not vouch for records that were truncated before it.
            return self.check_not_truncated(lsn);
        }
        self.check_boundary(lsn)?;
        self.handle.log.wait(lsn, None)?;
        let mark_end = self.append_mark()?;
        self.handle.log.wait(mark_end, None)?;
        self.handle.change_state(Some(lsn), |state| state.checkpoint = state.checkpoint.max(lsn))
    }

    /// Refuses an LSN at which neither a record begins nor the log ends.
    fn check_boundary(&self, lsn: Lsn) -> Result<()> {
        // First: a concurrent truncation has begun the epoch and lets the tail jump there next.
        if lsn == self.handle.epochs.running_base() {
            return Ok(());
        }
        self.check_readable(lsn)?;
        // A write ends with a frame. The next one may be in the log buffer only, and a truncation
        // that is to free space must not have to write it.
        if lsn == self.reserved_lsn() || lsn == self.written_lsn() {
            return Ok(());
        }
        self.check_not_discarded(lsn)?;
        self.frame_at(lsn).map(drop)
    }
}

impl Handle {
    /// Frees the segments below the head that no reader pins.
    pub(super) fn release_unpinned(&self) -> Result<()> {
        let released = {
            let _releasing = self.releasing.lock();
            self.release_alone()
        };
        self.discard_left();
        released
    }

    /// Frees the segments below the head that no reader pins. The caller holds the lock
    /// `releasing`.
    pub(super) fn release_alone(&self) -> Result<()> {
        let to = {
            let state = self.state.lock();
            if state.clean {
                return Ok(());
            }
            // Under the state's lock: a pin that is set later lies at or above this head.
            let end = self.log.buffer.reserved();
            let lag = |at| self.epochs.lag(at, end);
            self.pins.lowest_below(&state, lag).unwrap_or(state.head)
        };
        // A reader that follows the log still reads what it pins.
        self.epochs.forget_below(to);
        self.log.store.release(Lsn::ZERO, to)?;
        self.log.look_at_space();
        self.log.observer.released(to);
        Ok(())
    }

    /// Frees the segments of the discarded range `[new_end, base)`. They are never read.
    ///
    /// If a release is in progress, whose callback may take long, the thread that releases frees
    /// them afterwards. What is left after a failure or a crash goes with the segments below a
    /// later head.
    pub(super) fn discard(&self, new_end: Lsn, base: Lsn) {
        self.discarded.lock().push((new_end, base));
        self.discard_left();
    }

    /// Frees the segments of all discarded ranges, unless a release is in progress. A thread that
    /// has released looks after that: a range that comes before its look is freed there, and one
    /// that comes later finds the lock `releasing` free.
    pub(super) fn discard_left(&self) {
        while self.has_discarded()
            && let Some(_releasing) = self.releasing.try_lock()
        {
            let ranges = std::mem::take(&mut *self.discarded.lock());
            if self.state.lock().clean {
                return;
            }
            for (new_end, base) in ranges {
                let _ = self.log.store.discard(new_end, base);
            }
            self.log.look_at_space();
        }
    }

    fn has_discarded(&self) -> bool {
        !self.discarded.lock().is_empty()
    }
}

pub(super) fn below_head(lsn: Lsn, head: Lsn) -> Error {
    Error::new(ErrorKind::Truncated, format!("the log begins at LSN {head}")).at_lsn(lsn)
}

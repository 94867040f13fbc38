//! Truncation of the prefix, and checkpoints.

use super::{Handle, Wal};
use crate::{Error, ErrorKind, Lsn, Result};

impl Wal {
    /// Truncates all records below `lsn`; the record at `lsn` stays.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        self.move_head(lsn)?;
        // Even if the head did not move: an earlier call or a reader may have kept segments.
        self.handle.release_unpinned()
    }

    /// Moves the head up to `lsn`, or to the lowest record that a cursor keeps, durably. Does
    /// nothing if the head is at or above `lsn` already.
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
                self.handle.commit.wait(lsn, None)?;
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
            // A truncation may have removed the record at `lsn` before a later checkpoint was made.
            return self.check_not_truncated(lsn);
        }
        self.check_boundary(lsn)?;
        self.handle.commit.wait(lsn, None)?;
        let mark_end = self.append_mark()?;
        self.handle.commit.wait(mark_end, None)?;
        self.handle.change_state(Some(lsn), |state| state.checkpoint = state.checkpoint.max(lsn))
    }

    /// Refuses an LSN at which neither a record nor a segment begins nor the log ends.
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
        if begins_segment && self.span_of(lsn).is_some() {
            return Ok(());
        }
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
            let lag = |at| self.epochs.lag(|| (at, self.commit.buffer.reserved()));
            self.pins.lowest_below(&state, lag).unwrap_or(state.head)
        };
        // Up to `to`, not to the head: a reader needs the epochs from its pin on.
        self.epochs.forget_below(to);
        self.commit.store.release(Lsn::ZERO, to)?;
        self.commit.look_at_space();
        self.commit.observer.released(to);
        Ok(())
    }

    /// Frees the segments of the discarded range `[new_end, base)`. They are never read.
    ///
    /// If a release is in progress, whose callback may take long, the thread that releases frees
    /// them afterwards. If a failure or a crash leaves some of them, a release frees them when the
    /// head is above them.
    pub(super) fn discard(&self, new_end: Lsn, base: Lsn) {
        self.discarded.lock().push((new_end, base));
        self.discard_left();
    }

    /// Frees the segments of all discarded ranges, unless a release is in progress. The thread that
    /// releases calls this after it has freed the lock `releasing`. It frees the ranges that were
    /// added before. A thread that adds a range later finds the lock free.
    pub(super) fn discard_left(&self) {
        while self.has_discarded()
            && let Some(_releasing) = self.releasing.try_lock()
        {
            let ranges = std::mem::take(&mut *self.discarded.lock());
            if self.state.lock().clean {
                return;
            }
            for (new_end, base) in ranges {
                let _ = self.commit.store.discard(new_end, base);
            }
            self.commit.look_at_space();
        }
    }

    fn has_discarded(&self) -> bool {
        !self.discarded.lock().is_empty()
    }
}

pub(super) fn below_head(lsn: Lsn, head: Lsn) -> Error {
    Error::new(ErrorKind::Truncated, format!("the log begins at LSN {head}")).at_lsn(lsn)
}

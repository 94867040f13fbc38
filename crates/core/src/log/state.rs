//! The saved state of an open log, and how a change of it becomes visible.

use palisade_store::State;
use palisade_store::sync::Ordering;

use super::{Handle, LastSave};
use crate::{Error, ErrorKind, Lsn, Result};

impl Handle {
    /// No state is saved afterwards.
    pub(super) fn save_clean_end(&self) -> Result<()> {
        // No release is in progress when the store is closed, and none begins.
        let _releasing = self.releasing.lock();
        self.change_state(None, |state| {
            state.clean = true;
            state.clean_end = self.commit.lock_free().buffer.reserved();
            state.epochs = self.epochs.extents(state.head, state.clean_end);
        })
    }

    /// Saves how far the log is durable, as evidence for an open that finds no log buffer.
    pub(super) fn save_durable(&self) -> Result<()> {
        let durable = self.commit.lock_free().durable.read();
        if durable <= self.state.lock().floor() {
            return Ok(());
        }
        self.change_state(None, |state| state.clean_end = durable)
    }

    /// Saves a changed state, then makes it visible, so that its readers do not wait for the
    /// device. Refuses it if the record at `named` was truncated.
    pub(super) fn change_state(
        &self,
        named: Option<Lsn>,
        change: impl FnOnce(&mut State),
    ) -> Result<()> {
        let mut saving = self.saving.lock();
        // No truncation comes between this check and the save.
        named.map_or(Ok(()), |lsn| self.epochs.check_not_truncated(lsn))?;
        let log = self.commit.own()?;
        log.check()?;
        let before = self.state.lock().clone();
        if before.clean {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let mut next = before.clone();
        self.confirmations.note_in(&mut next);
        change(&mut next);
        // A save that failed may have reached the disk.
        if next != before || *saving == LastSave::Failed {
            *saving = LastSave::Failed;
            log.store.save_state(&next)?;
            *saving = LastSave::Done;
            self.set_state(next.clone());
        }
        self.confirmations.forget_saved(&next);
        Ok(())
    }

    /// The caller holds the lock `saving`.
    pub(super) fn set_state(&self, state: State) {
        self.set_state_and(state, || {});
    }

    /// Runs `change` in the same moment for all that take the lock of the state.
    pub(super) fn set_state_and(&self, state: State, change: impl FnOnce()) {
        let mut seen = self.state.lock();
        self.head.publish(state.head);
        // Relaxed: the value alone counts.
        self.checkpoint.store(state.checkpoint.as_u64(), Ordering::Relaxed);
        change();
        *seen = state;
    }
}

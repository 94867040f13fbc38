//! How a log ends: it is closed, abandoned, or its last handle is dropped.

use super::{Handle, Wal};
use crate::buffer::Stop;
use crate::events::span;
use crate::{Error, ErrorKind, Result};

impl Wal {
    /// Syncs everything and makes a clean end: the next open needs no scan.
    ///
    /// Later calls that change the log return `Closed` on all handles, and so does
    /// [`on_durable`](Wal::on_durable). Records that were appended before are in the log. Blocks
    /// for a few device syncs. The log can be opened again at once, even if handles of this one
    /// exist.
    ///
    /// # Durability
    /// All appended records survive power loss when this returns.
    ///
    /// # Errors
    /// `NoSpace`: nothing is lost, and no handle can append any more; free space and call again.
    /// With `pad_to_block`, if the full buffer has no room for the padding, handles can append
    /// until that call. `NoFiles`: as `NoSpace`. `Io`, `PermissionDenied`, `NotFound` (the folder
    /// was moved): everything is durable, but the log has no clean end. `OutOfRange`: no LSN is
    /// left for a clean end; nothing was changed. `Closed`: the log has a clean end already.
    pub fn close(&self) -> Result<()> {
        span!("close", log = %self.uuid());
        let log = &self.handle.commit;
        log.check()?;
        // The mark is evidence for the records before it. If there is no space for the mark, the
        // log ends without one. If an earlier call of `close` failed, it may have written the mark.
        match self.append_mark() {
            Err(error) if !error.is_shortage() && error.kind() != ErrorKind::Closed => {
                return Err(error);
            }
            _ => {}
        }
        let end = match log.fix_end(Stop::Closed) {
            Err(error) if error.kind() == ErrorKind::Closed => self.reserved_lsn(),
            fixed => fixed?,
        };
        log.wait(end, None)?;
        // Everything is durable. Observers wait for records that will not come, so wake them.
        log.wake_everyone();
        self.handle.save_clean_end()?;
        log.stop_background_threads();
        log.store.close();
        Ok(())
    }

    /// Ends the log on all handles as the death of the process would, so that a test of recovery
    /// can open it again in the same process.
    ///
    /// Flushes nothing. The next open finds what a kill would leave: with a log buffer that
    /// survives the process all appended records, else those that were handed to the operating
    /// system. Later calls return `Poisoned`. Waits for a write, sync or callback for released
    /// segments that is running; do not call it in such a callback. It does not wait for appends
    /// that run on other threads: the next open finds their records or not, also if they then
    /// return `Ok`. In a forked child it does nothing.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("log");
    /// use palisade::Wal;
    ///
    /// let wal = Wal::open(&path)?;
    /// let lsn = wal.commit(b"put 7")?;
    /// wal.abandon(); // clones of it may still exist
    ///
    /// let wal = Wal::open(&path)?;
    /// assert!(!wal.recovery_report().clean);
    /// assert_eq!(wal.get(lsn)?.data(), b"put 7");
    /// # Ok(()) }
    /// ```
    pub fn abandon(self) {
        span!("abandon", log = %self.uuid());
        let log = &self.handle.commit;
        if log.check_process().is_err() {
            // The log belongs to the parent.
            return;
        }
        log.poison(Error::new(ErrorKind::Poisoned, "the log was abandoned"));
        // A round, release or save that is running ends first, because the next open changes the
        // same files. A later one finds a poisoned log with the state of a closed one. A callback
        // for released segments may write meanwhile, so the release ends before the rounds.
        let _releasing = self.handle.releasing.lock();
        log.after_rounds(|| {
            let _saving = self.handle.saving.lock();
            self.handle.state.lock().clean = true;
            log.store.close();
        });
        log.stop_background_threads();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.commit.check_process().is_err() {
            // The log and its threads belong to the parent.
            return;
        }
        // No other thread appends: all reservations are filled. A failure cannot be reported. A log
        // buffer that outlives the process keeps the bytes, and recovery replays them.
        let is_all_written = self
            .commit
            .write_filled()
            .is_ok_and(|written| written >= self.commit.buffer.reserved());
        self.commit.stop_background_threads();
        // After a failed write or sync the operating system may drop the written bytes. The log
        // buffer still has them, so keep it.
        if is_all_written && self.commit.check().is_ok() {
            self.commit.store.empty_buffer();
        }
        // Without it, nothing would show after a restart that the last segments are gone.
        let _ = self.save_durable();
        self.commit.store.close();
    }
}

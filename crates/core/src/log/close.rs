//! How a log ends: it is closed, abandoned, or its last handle is dropped.

use super::{Handle, Wal};
use crate::buffer::Stop;
use crate::{Error, ErrorKind, Result};

impl Wal {
    /// Syncs everything and makes a clean end: the next open needs no scan.
    pub fn close(&self) -> Result<()> {
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

    /// Ends the log on all handles as the death of the process would, and lets it be opened again.
    pub fn abandon(self) {
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

//! How a log ends: it is closed, abandoned, or its last handle is dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Handle, Wal};
use crate::buffer::Stop;
use crate::commit::{Key, Wait};
use crate::events::span;
use crate::{Error, ErrorKind, Lsn, Result};

impl Wal {
    /// Syncs everything and makes a clean end: the next open needs no scan. Blocks for a few device
    /// syncs, and until a running callback has ended. Later calls that change the log, and
    /// [`on_durable`](Wal::on_durable), return `Closed` on all handles. The log can be opened again
    /// at once.
    ///
    /// # Durability
    /// All appended records survive power loss when this returns.
    ///
    /// # Errors
    /// `NoSpace`, `NoFiles`: the log has no clean end yet. Free space or files and call again;
    /// meanwhile appends return `Closed` (with `pad_to_block` and a full log buffer they may still
    /// succeed). `Io`, `PermissionDenied`, `NotFound`
    /// (the folder was moved): everything is durable, but the log has no clean end. `OutOfRange`:
    /// no LSN is left for a clean end; nothing was changed. `Closed`: the log has a clean end.
    pub fn close(&self) -> Result<()> {
        span!("close", log = %self.uuid());
        let log = self.handle.commit.own()?;
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

    /// Ends the log on all handles as the death of the process would, so that a test can open it
    /// again in the same process. Later calls return `Poisoned`. Does nothing in a forked child.
    ///
    /// With a log buffer that survives the process, the next open finds all appended records, else
    /// those that were written. Appends on other threads may be lost, even if they return `Ok`.
    /// Waits for a running write, sync or callback for released segments; do not call it in such a
    /// callback.
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
        // In a forked child the log belongs to the parent.
        let Ok(log) = self.handle.commit.own() else { return };
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
        // In a forked child the log and its threads belong to the parent.
        let Ok(log) = self.commit.own() else { return };
        // No other thread appends: all reservations are filled. A failure cannot be reported. A log
        // buffer that outlives the process keeps the bytes, and recovery replays them.
        let is_all_written =
            log.write_filled().is_ok_and(|written| written >= log.buffer.reserved());
        log.stop_background_threads();
        // After a failed write or sync the operating system may drop the written bytes. The log
        // buffer still has them, so keep it.
        if is_all_written && log.check().is_ok() {
            log.store.empty_buffer();
        }
        // Without it, nothing would show after a restart that the last segments are gone.
        let _ = self.save_durable();
        log.store.close();
    }
}

/// Only the end of the log ends a wait for it.
const NEVER_DURABLE: Lsn = Lsn::new(u64::MAX);

impl Wal {
    /// Returns a future that completes when the log is closed or poisoned. It keeps the log open.
    pub fn ended(&self) -> Ended {
        Ended { wal: self.clone(), key: None }
    }
}

/// Completes with `Closed`, `Poisoned` or `Forked` when no more records become durable; with
/// `TooManyWaiters` or `Io` if it cannot wait, as a poll of a [`Tail`](crate::Tail).
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Ended {
    wal: Wal,
    key: Option<Key>,
}

impl Future for Ended {
    type Output = Error;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Error> {
        let Ended { wal, key } = self.get_mut();
        let watched = wal.poll_wait(Wait::Watch, NEVER_DURABLE, key, context);
        watched.map(|ended| ended.err().unwrap_or(Error::bare(ErrorKind::Closed)))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.wal.cancel_wait(Wait::Watch, &mut self.key);
    }
}

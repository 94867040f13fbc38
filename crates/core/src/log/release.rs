//! Releases in the background: a truncation of the prefix whose files no caller waits for.
//!
//! # Protocol
//! The caller moves the head, then queues a job. The release thread makes itself a handle, frees
//! segments as any truncation does, puts the result into the slot, and wakes the threads and the
//! task that wait for it. Its handle goes last: if it is the last one, its drop waits for
//! callbacks, and one of them may wait for this release.
//!
//! # Ordering pairs
//! The slot's lock orders the result before a look that finds it. A thread reads the word before it
//! looks: P10. A task leaves its waker under the same lock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use palisade_store::sync::{Instant, Mutex, WaitWord, survive};

use super::{Handle, Wal};
use crate::commit::SharedCommit;
use crate::events::span;
use crate::{Error, ErrorKind, Lsn, Result};

/// The files of a truncation, freed in the background: see `Wal::truncate_before_in_background`. It
/// does not keep the log open.
#[must_use = "only this says whether the files were freed"]
pub struct Release {
    commit: SharedCommit,
    slot: Arc<Slot>,
}

#[derive(Default)]
struct Slot {
    state: Mutex<SlotState>,
    word: WaitWord,
}

#[derive(Default)]
struct SlotState {
    result: Option<Result<()>>,
    waker: Option<Waker>,
}

impl Slot {
    fn finish(&self, result: Result<()>) {
        let waker = {
            let mut state = self.state.lock();
            state.result = Some(result);
            state.waker.take()
        };
        self.word.wake_all();
        // A waker is foreign code: outside of the lock. `close` may be the caller.
        let _ = survive(|| waker.into_iter().for_each(Waker::wake));
    }

    fn result(&self) -> Option<Result<()>> {
        self.state.lock().result.clone()
    }
}

/// Its drop returns `Closed` if the log ends before the job has run.
struct ReleaseJob {
    slot: Arc<Slot>,
    result: Option<Result<()>>,
}

impl Drop for ReleaseJob {
    fn drop(&mut self) {
        self.slot.finish(self.result.take().unwrap_or(Err(Error::bare(ErrorKind::Closed))));
    }
}

#[cfg(all(test, loom))]
impl Release {
    pub(crate) fn model(log: &Wal) -> (Release, impl FnOnce(Result<()>) + use<>) {
        let slot = Arc::new(Slot::default());
        let job = ReleaseJob { slot: Arc::clone(&slot), result: None };
        let release = Release { commit: log.handle.commit.clone(), slot };
        let finish = move |result| {
            let mut job = job;
            job.result = Some(result);
        };
        (release, finish)
    }
}

impl Wal {
    /// Moves the head durably as [`truncate_before`](Wal::truncate_before) does, with about two
    /// device syncs, but frees the segments in the background.
    ///
    /// One thread, which the first call starts, frees segments and runs the callbacks for them, in
    /// the order of the calls. While it works it counts as a handle, and a `close` and a
    /// `truncate_before` wait for it. A truncation of the suffix does not, and the thread frees its
    /// segments, too. Releases that have not begun when the close ends return `Closed`.
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
    /// As [`truncate_before`](Wal::truncate_before), without those of the release
    /// ([`Release::wait`]). `Io`: also if the thread did not start; the head has moved.
    pub fn truncate_before_in_background(&self, lsn: Lsn) -> Result<Release> {
        span!("truncate_before_in_background", log = %self.uuid(), lsn = lsn.as_u64());
        self.move_head(lsn)?;
        let slot = Arc::new(Slot::default());
        let job = ReleaseJob { slot: Arc::clone(&slot), result: None };
        let handle = Arc::downgrade(&self.handle);
        self.handle.commit.own()?.release_soon(Box::new(move |_| {
            // While it runs, this is a handle, too: if the others go, the log ends on this thread.
            let handle = handle.upgrade();
            // Dropped before the handle: a callback that waits for it keeps the log from ending.
            let mut job = job;
            job.result = handle.as_deref().map(release);
        }))?;
        Ok(Release { commit: self.handle.commit.clone(), slot })
    }
}

fn release(handle: &Handle) -> Result<()> {
    if handle.state.lock().clean {
        return Err(Error::bare(ErrorKind::Closed));
    }
    handle.release_unpinned()
}

impl Release {
    /// Waits until the files are freed.
    ///
    /// # Errors
    /// Those of a truncation that frees files. `Io`: also if a callback panicked. `Closed`: the
    /// next truncation frees them. `Forked`.
    pub fn wait(&self) -> Result<()> {
        self.wait_until(None).map(drop)
    }

    /// Waits at most `timeout`. Returns false if the files are not freed by then.
    ///
    /// # Errors
    /// As [`wait`](Release::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<bool> {
        self.commit.own()?;
        loop {
            let seen = self.slot.word.look();
            if let Some(result) = self.slot.result() {
                return result.map(|()| true);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            self.slot.word.sleep(seen, deadline);
        }
    }
}

impl Future for Release {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.commit.own()?;
        // Foreign code clones and drops wakers: outside of the lock.
        let waker = context.waker().clone();
        let _dropped;
        let mut state = self.slot.state.lock();
        if let Some(result) = &state.result {
            return Poll::Ready(result.clone());
        }
        _dropped = state.waker.replace(waker);
        Poll::Pending
    }
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A forked child may find the lock of the result held.
        let is_done = self.commit.own().is_ok() && self.slot.result().is_some();
        f.debug_struct("Release").field("is_done", &is_done).finish_non_exhaustive()
    }
}

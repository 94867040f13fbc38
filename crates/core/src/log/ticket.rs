//! Tickets: a handle with which threads and async code wait for a record's durability.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::commit::Key;
use crate::sync::Instant;
use crate::{Lsn, Result, Wal};

/// A handle of an appended record or batch, to wait for its durability.
///
/// Dropping a ticket does not undo the append. A thread waits with [`wait`] or [`wait_timeout`]; a
/// task awaits the ticket; no runtime is needed. A ticket borrows the log, so that appending costs
/// no reference count. [`detach`] makes one that can leave the scope.
///
/// # Cancel safety
/// Dropping a ticket that was polled only cancels the wait. The record stays in the log.
///
/// [`wait`]: Ticket::wait
/// [`wait_timeout`]: Ticket::wait_timeout
/// [`detach`]: Ticket::detach
pub struct Ticket<'w> {
    wal: WalRef<'w>,
    lsn: Lsn,
    end: Lsn,
    // The registration of a future that was polled; never set on a path that only appends.
    key: Option<Key>,
}

enum WalRef<'w> {
    Borrowed(&'w Wal),
    Owned(Wal),
}

impl<'w> Ticket<'w> {
    #[inline]
    pub(crate) fn new(wal: &'w Wal, lsn: Lsn, end: Lsn) -> Ticket<'w> {
        Ticket { wal: WalRef::Borrowed(wal), lsn, end, key: None }
    }

    /// Returns the LSN of the record, or of the first record of the batch.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns the exclusive end of the record or batch. It is durable once
    /// [`durable_lsn`](Wal::durable_lsn) is at or above.
    #[must_use]
    pub fn end_lsn(&self) -> Lsn {
        self.end
    }

    /// Returns whether the record survives power loss already; false if it was truncated. Never
    /// blocks.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.wal().durable_lsn() >= self.end && self.wal().check_not_truncated(self.lsn).is_ok()
    }

    /// Waits until the record survives power loss and returns its LSN.
    ///
    /// Blocks for about one device sync, which it shares with all threads that wait at the time.
    ///
    /// # Errors
    /// `NoSpace`: the record is still in the log; free space and wait again. `Truncated`:
    /// [`truncate_after`](Wal::truncate_after) has removed it. `Poisoned`: drop all handles and
    /// open the log again. Then look whether the record survived.
    pub fn wait(&self) -> Result<Lsn> {
        self.wal().commit_state().wait(self.end, None)?;
        self.wal().check_not_truncated(self.lsn).map(|()| self.lsn)
    }

    /// Waits at most about `timeout`. Returns false if the record is not durable by then.
    ///
    /// If no other thread syncs, this thread does, however short `timeout` is, and returns after
    /// its sync. So a caller that only polls, with a `timeout` of zero, still makes its record
    /// durable.
    ///
    /// # Errors
    /// As [`wait`](Ticket::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now().checked_add(timeout);
        let is_durable = self.wal().commit_state().wait(self.end, deadline)?;
        self.wal().check_not_truncated(self.lsn).map(|()| is_durable)
    }

    /// Returns the same ticket with a handle of its own, which may leave the scope of the borrowed
    /// log.
    ///
    /// It counts as a handle: the log stays open until it is dropped.
    #[must_use]
    pub fn detach(mut self) -> Ticket<'static> {
        let key = self.key.take();
        Ticket { wal: WalRef::Owned(self.wal().clone()), lsn: self.lsn, end: self.end, key }
    }

    fn wal(&self) -> &Wal {
        match &self.wal {
            WalRef::Borrowed(wal) => wal,
            WalRef::Owned(wal) => wal,
        }
    }
}

/// Completes when the record survives power loss, or with the error that prevents it.
///
/// Polling never blocks on the device. The flusher's thread wakes wakers one after the other, so a
/// `wake` should only schedule, as executors' do. A slow one delays other futures.
///
/// A poll returns `InvalidArgument` if [`max_waiters`](crate::Options::max_waiters) is exceeded.
/// The record is already in the log; only the wait fails.
impl Future for Ticket<'_> {
    type Output = Result<Lsn>;

    /// Polls the ticket. Never blocks on the store: the flusher thread leads if no other thread
    /// does.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Lsn>> {
        let this = &mut *self;
        if this.key.is_none() && this.is_durable() {
            return Poll::Ready(Ok(this.lsn));
        }
        if let Err(error) = this.wal().ensure_flusher() {
            return Poll::Ready(Err(error));
        }
        let mut key = this.key.take();
        let polled = this.wal().commit_state().poll_wait(this.end, &mut key, context);
        this.key = key;
        polled.map(|result| {
            result.and_then(|()| this.wal().check_not_truncated(this.lsn)).map(|()| this.lsn)
        })
    }
}

impl Ticket<'_> {
    /// Cancels the wait. Not inlined into the drop, which every append runs and which has to be
    /// short.
    #[cold]
    fn give_up(&mut self) {
        if let Some(key) = self.key.take() {
            self.wal().commit_state().cancel_wait(key);
        }
    }
}

impl Drop for Ticket<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.key.is_some() {
            self.give_up();
        }
    }
}

impl fmt::Debug for Ticket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("lsn", &self.lsn)
            .field("end_lsn", &self.end)
            .field("is_durable", &self.is_durable())
            .finish()
    }
}

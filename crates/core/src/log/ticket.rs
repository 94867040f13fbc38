//! Tickets: handles with which threads and tasks wait until a record is durable.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use palisade_store::sync::Instant;

use crate::commit::{Key, Wait};
use crate::frame::ALIGN_BYTES;
use crate::{Error, ErrorKind, Lsn, Result, Wal};

/// A handle of an appended record or batch. A thread calls [`wait`] or [`wait_timeout`]; a task
/// awaits the ticket, on any runtime or none. A ticket borrows the log, unless you [`detach`] it.
///
/// # Cancel safety
/// The drop of a ticket only cancels the wait. The record stays in the log.
///
/// [`wait`]: Ticket::wait
/// [`wait_timeout`]: Ticket::wait_timeout
/// [`detach`]: Ticket::detach
pub struct Ticket<'w> {
    wal: WalRef<'w>,
    lsn: Lsn,
    end: Lsn,
    // The registration of a future that was polled. An append never sets it.
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

    /// Returns the end of the record or batch. It is durable once `Wal::durable_lsn` is at or above
    /// that.
    #[must_use]
    pub fn end_lsn(&self) -> Lsn {
        self.end
    }

    /// Returns whether the record survives power loss and was not truncated. Never blocks.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.wal().durable_lsn() >= self.end && self.check_not_truncated().is_ok()
    }

    /// Waits until the record survives power loss and returns its LSN. Blocks for about one device
    /// sync, which serves all waiting threads.
    ///
    /// # Errors
    /// Each has the record's [`appended_lsn`](Error::appended_lsn), except that of a
    /// [`barrier`](crate::Wal::barrier). `NoSpace`, `NoFiles`: the record is still in the log; free
    /// space or files and wait again. `Truncated`: a truncation of the suffix has removed the
    /// record, or the last of several. `Poisoned`, `Closed`, `Forked`.
    pub fn wait(&self) -> Result<Lsn> {
        self.wait_until(None).map(|_| self.lsn)
    }

    /// Waits at most about `timeout`. Returns false if the record is not durable by then. If no
    /// other thread syncs, this thread does, however short `timeout` is, and returns after that.
    ///
    /// # Errors
    /// As [`wait`](Ticket::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<bool> {
        let waited = self.wal().handle.commit.own().and_then(|log| log.wait(self.end, deadline));
        waited
            .and_then(|is_durable| self.check_not_truncated().map(|()| is_durable))
            .map_err(|error| self.amend(error))
    }

    /// Returns a ticket that does not borrow the log, but keeps it open as a handle does.
    #[must_use]
    pub fn detach(mut self) -> Ticket<'static> {
        let key = self.key.take();
        Ticket { wal: WalRef::Owned(self.wal().clone()), lsn: self.lsn, end: self.end, key }
    }

    /// A truncation may have removed only the last of several records.
    fn check_not_truncated(&self) -> Result<()> {
        if self.is_barrier() {
            return self.wal().handle.commit.own().map(drop);
        }
        self.wal().check_not_truncated(self.lsn)?;
        let last_bytes = Lsn::new(self.end.as_u64() - ALIGN_BYTES);
        self.wal().check_not_truncated(last_bytes).map_err(|_| {
            let text = "a truncation removed the last of the records that were appended";
            Error::new(ErrorKind::Truncated, text).at_lsn(self.lsn)
        })
    }

    fn is_barrier(&self) -> bool {
        self.lsn == self.end
    }

    fn amend(&self, error: Error) -> Error {
        if self.is_barrier() { error } else { error.after_append(self.lsn) }
    }

    fn wal(&self) -> &Wal {
        match &self.wal {
            WalRef::Borrowed(wal) => wal,
            WalRef::Owned(wal) => wal,
        }
    }
}

/// Completes when the record survives power loss, or with an error as that of
/// [`wait`](Ticket::wait). Also `TooManyWaiters`: `Options::max_waiters` is exceeded; and `Io`: the
/// flusher thread cannot start. Polling never blocks on the device. The flusher thread calls one
/// `wake` after the other, so a slow one delays other futures.
impl Future for Ticket<'_> {
    type Output = Result<Lsn>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Lsn>> {
        let this = &mut *self;
        if this.key.is_none() && this.is_durable() {
            return Poll::Ready(Ok(this.lsn));
        }
        let mut key = this.key.take();
        let polled = this.wal().poll_wait(Wait::ForSync, this.end, &mut key, context);
        this.key = key;
        polled.map(|result| {
            let checked = result.and_then(|()| this.check_not_truncated());
            checked.map(|()| this.lsn).map_err(|error| this.amend(error))
        })
    }
}

impl Ticket<'_> {
    /// Not inlined, so that the `drop` of each append is short.
    #[cold]
    fn give_up(&mut self) {
        let mut key = self.key.take();
        self.wal().cancel_wait(Wait::ForSync, &mut key);
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

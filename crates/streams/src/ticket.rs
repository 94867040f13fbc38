//! Tickets: what an append returns, to wait until it is durable.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use palisade::{Lsn, Result};

/// A handle of one append, or of another change of a stream.
///
/// The change is done when the call returns the ticket, and survives the death of the process if
/// the log has a shared buffer. It survives power loss once a wait for the ticket returns `Ok`. A
/// thread waits with [`wait`](Ticket::wait), a task awaits the ticket. Dropping the ticket undoes
/// nothing.
#[derive(Debug)]
pub struct Ticket<'s> {
    log: palisade::Ticket<'s>,
    index: u64,
}

impl<'s> Ticket<'s> {
    pub(crate) fn new(log: palisade::Ticket<'s>, index: u64) -> Ticket<'s> {
        Ticket { log, index }
    }

    /// Returns the index of the entry. For a truncation: the first index that stays
    /// (`truncate_before`), or the index of the next entry. For another change: 0.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns where the record lies in the log that all streams share. The place of an entry
    /// changes if the entry is moved.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.log.lsn()
    }

    /// Returns whether the change survives power loss. Never blocks.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.log.is_durable()
    }

    /// Waits until the change survives power loss, and returns the index.
    ///
    /// Blocks for about one device sync, which serves all threads that wait at the time, in
    /// whatever streams.
    ///
    /// # Errors
    /// As [`palisade::Ticket::wait`]: the change stays in the log.
    pub fn wait(&self) -> Result<u64> {
        self.log.wait().map(|_| self.index)
    }

    /// Waits at most about `timeout`. Returns false if the change is not durable by then.
    ///
    /// # Errors
    /// As [`wait`](Ticket::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.log.wait_timeout(timeout)
    }

    /// Returns the same ticket, which keeps the log open and does not borrow the stream.
    pub fn detach(self) -> Ticket<'static> {
        Ticket { log: self.log.detach(), index: self.index }
    }
}

/// Completes with the index when the change survives power loss. Polling never blocks on the
/// device. Dropping the future only ends the wait.
impl Future for Ticket<'_> {
    type Output = Result<u64>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<u64>> {
        let index = self.index;
        Pin::new(&mut self.log).poll(context).map(|done| done.map(|_| index))
    }
}

/// A handle of an atomic batch.
#[derive(Debug)]
pub struct BatchTicket<'s> {
    log: palisade::Ticket<'s>,
    indexes: Vec<u64>,
}

impl<'s> BatchTicket<'s> {
    pub(crate) fn new(log: palisade::Ticket<'s>, indexes: Vec<u64>) -> BatchTicket<'s> {
        BatchTicket { log, indexes }
    }

    /// Returns the index of each entry, in the order of the batch.
    #[must_use]
    pub fn indexes(&self) -> &[u64] {
        &self.indexes
    }

    /// Returns whether the batch survives power loss. Never blocks.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.log.is_durable()
    }

    /// Waits until the batch survives power loss, and returns the indexes.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub fn wait(&self) -> Result<&[u64]> {
        self.log.wait().map(|_| &self.indexes[..])
    }

    /// Waits at most about `timeout`. Returns false if the batch is not durable by then.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.log.wait_timeout(timeout)
    }

    /// Returns the same ticket, which keeps the log open and borrows nothing.
    pub fn detach(self) -> BatchTicket<'static> {
        BatchTicket { log: self.log.detach(), indexes: self.indexes }
    }
}

/// As for [`Ticket`].
impl Future for BatchTicket<'_> {
    type Output = Result<Vec<u64>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<u64>>> {
        let done = Pin::new(&mut self.log).poll(context);
        done.map(|done| done.map(|_| std::mem::take(&mut self.indexes)))
    }
}

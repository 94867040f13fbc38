//! Tails: readers that follow the log and return records as they become durable.
//!
//! A thread that waits sleeps in the observers' group. For a task, the flusher watches *durable*
//! and wakes it (`commit::flusher`). Neither of them leads a round.
//!
//! # Ordering pairs
//! A cancellation is set before the observers' word changes, and a tail reads the word before it
//! looks for a cancellation. P10 makes the sleep return.
//!
//! # Checked by
//! `a_polled_tail_is_woken_by_the_sync_of_another`, `poison_reaches_a_polled_tail`,
//! `a_cancelled_tail_does_not_sleep_on`.

use std::fmt;
#[cfg(feature = "stream")]
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use palisade_store::sync::{Instant, OnceLock};

use super::Wal;
use super::epochs::{View, truncated_error};
use super::pins::{Lease, PinKind};
use crate::commit::{Key, SharedCommit, Wait};
use crate::frame::Header;
#[cfg(feature = "stream")]
use crate::reader::RecordBuf;
use crate::reader::{Record, Records};
use crate::{ErrorKind, Lsn, Result};

impl Wal {
    /// Returns a tail that follows the log from the head on.
    ///
    /// ```
    /// use palisade::{MemStore, Options, Wal};
    /// use std::time::Duration;
    ///
    /// # fn main() -> palisade::Result<()> {
    /// # let wal = Wal::with_store(MemStore::new(1 << 20), Options::new().buffer_bytes(1 << 16))?;
    /// let mut follower = wal.tail()?;
    /// wal.commit(b"first")?;
    /// let record = follower.next(Duration::from_secs(1))?.expect("it is durable");
    /// assert_eq!(record.data(), b"first");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`records`](Wal::records).
    pub fn tail(&self) -> Result<Tail> {
        self.tail_at(None)
    }

    /// Returns a tail that follows the log from the record at `lsn` on.
    ///
    /// # Errors
    /// As [`records_from`](Wal::records_from).
    pub fn tail_from(&self, lsn: Lsn) -> Result<Tail> {
        self.check_begin(lsn)?;
        self.tail_at(Some(lsn))
    }

    pub(super) fn leased_tail(&self, lsn: Lsn, lease: Arc<Lease>) -> Result<Tail> {
        self.check_begin(lsn)?;
        self.tail_with(Some(lsn), PinKind::Cursor, Some(lease))
    }

    fn tail_at(&self, from: Option<Lsn>) -> Result<Tail> {
        self.tail_with(from, PinKind::Tail, None)
    }

    fn tail_with(
        &self,
        from: Option<Lsn>,
        kind: PinKind,
        lease: Option<Arc<Lease>>,
    ) -> Result<Tail> {
        let (pin, View { begin, .. }) = self.pinned_view(from, kind, lease)?;
        // Nothing yet: the first step extends it.
        let records = self.records_in(Vec::new(), pin);
        let head = self.head_lsn();
        let began = match begin {
            Some(begin) if begin.named < head => begin.named,
            Some(begin) => begin.left.max(head),
            None => head,
        };
        let given_to = (began > head).then_some(began);
        Ok(Tail {
            wal: self.clone(),
            records,
            began,
            given_to,
            cancelled: Arc::new(OnceLock::new()),
            key: None,
        })
    }
}

/// Follows a log: returns each record once, in LSN order, as soon as it is durable. Requests no
/// sync.
#[derive(Debug)]
pub struct Tail {
    wal: Wal,
    records: Records,
    // Where it was to begin: above the head the end of an epoch, not the base of the next.
    began: Lsn,
    // The end of the last record that the tail returned, or `began`. The position may be above it,
    // after padding and marks, whose truncation does not matter. `None` if the tail was to begin at
    // the head and has returned nothing: no truncation can concern it.
    given_to: Option<Lsn>,
    cancelled: Arc<OnceLock<()>>,
    // The registration of a task that has polled.
    key: Option<Key>,
}

pub(super) type Found = (Lsn, Header);

enum TailStep {
    Found(Found),
    NothingAbove(Lsn),
    Finished,
}

impl Tail {
    /// Returns the end of the last record that the tail returned, or where it began.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.given_to.unwrap_or(self.began)
    }

    pub(super) fn has_read_up_to(&self) -> Lsn {
        self.records.position()
    }

    /// Returns the next record, or `None` after `timeout` or a cancellation. [`Duration::MAX`] sets
    /// no limit.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Io`, `NoFiles`: as [`Records::next`]. `Truncated`: a truncation
    /// of the suffix removed a record that the tail has returned, or one below its start. `Closed`,
    /// `Poisoned`: after the last record. `Forked`.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        match self.find(timeout)? {
            Some(found) => self.take(found, || Ok(true)).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn find(&mut self, timeout: Duration) -> Result<Option<Found>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            match self.step()? {
                TailStep::Found(found) => return Ok(Some(found)),
                TailStep::NothingAbove(at) => {
                    if !self.wait_beyond(at, deadline)? {
                        return Ok(None);
                    }
                }
                TailStep::Finished => return Ok(None),
            }
        }
    }

    pub(super) fn take(
        &mut self,
        found: Found,
        is_taken: impl FnOnce() -> Result<bool>,
    ) -> Result<Record<'_>> {
        let record = self.records.record(found)?;
        if is_taken()? {
            self.given_to = Some(record.next_lsn());
        }
        Ok(record)
    }

    /// Polls for the next record, on any runtime or none. Returns `None` if the tail was cancelled,
    /// and after an error of [`Records::next`]. The flusher thread wakes the task when a record is
    /// durable. A waiting task counts towards `Options::max_waiters`; to stop, drop the tail. With
    /// the feature `stream` a tail is also a `futures_core::Stream` of owned records.
    ///
    /// # Errors
    /// As [`next`](Tail::next). `TooManyWaiters`. `Io`: also if the flusher thread did not start.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Record<'_>>>> {
        let found = ready!(self.poll_find(context))?;
        Poll::Ready(found.map(|found| self.take(found, || Ok(true))).transpose())
    }

    pub(super) fn poll_find(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Found>>> {
        loop {
            match self.step()? {
                TailStep::Found(found) => return Poll::Ready(Ok(Some(found))),
                TailStep::NothingAbove(at) => ready!(self.poll_beyond(at, context))?,
                TailStep::Finished => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Returns a handle with which another thread ends this tail.
    #[must_use]
    pub fn canceller(&self) -> TailCanceller {
        TailCanceller::new(&self.wal, &self.cancelled)
    }

    pub(super) fn cancelled_by(mut self, cancelled: &Arc<OnceLock<()>>) -> Tail {
        self.cancelled = Arc::clone(cancelled);
        self
    }

    fn step(&mut self) -> Result<TailStep> {
        self.wal.handle.commit.own()?;
        loop {
            if self.records.is_finished() || self.cancelled.get().is_some() {
                return Ok(TailStep::Finished);
            }
            match self.records.advance() {
                Ok(Some(found)) => return Ok(TailStep::Found(found)),
                Ok(None) => {}
                // The tail has reached a truncation. `leave_truncated` checks what it has returned.
                Err(error) if error.kind() == ErrorKind::Truncated => {}
                Err(error) => return Err(error),
            }
            let base = self.wal.handle.epochs.running_base();
            let end = self.wal.durable_lsn();
            let at = self.leave_truncated()?;
            let epochs = &self.wal.handle.epochs;
            // There are records, or a truncation has ended the iterator.
            if end > at || self.records.is_finished() {
                self.records.extend_to(epochs.spans_until(end));
            } else if epochs.running_base() == base {
                // If the base had changed, `end` might be of the epoch before, and below records
                // that are durable already.
                return Ok(TailStep::NothingAbove(at));
            }
        }
    }

    fn leave_truncated(&mut self) -> Result<Lsn> {
        let epochs = &self.wal.handle.epochs;
        // A new epoch begins above the end of every record that goes.
        if let Some(given_to) = self.given_to
            && epochs.is_inside_discarded(given_to)
        {
            return Err(self.records.end_with(truncated_error(given_to)));
        }
        let at = self.records.position();
        if epochs.is_inside_discarded(at)
            && let Some(given_to) = self.given_to
        {
            self.records.resume_from(given_to);
        }
        // Between two epochs there is nothing to wait for.
        Ok(epochs.skip_unused(self.records.position()))
    }

    fn wait_beyond(&self, at: Lsn, deadline: Option<Instant>) -> Result<bool> {
        let log = self.wal.handle.commit.own()?;
        let now = Instant::now();
        let deadline = deadline.unwrap_or(now + Duration::from_secs(1 << 30));
        if now >= deadline {
            // A consumer that never waits learns the end of the log here.
            return log.check_goes_on(at.plus(1)).map(|()| false);
        }
        let is_cancelled = || self.cancelled.get().is_some();
        log.observe(at.plus(1), deadline, is_cancelled)
    }

    fn poll_beyond(&mut self, at: Lsn, context: &mut Context<'_>) -> Poll<Result<()>> {
        let target = at.plus(1);
        // A task may be polled before it is woken, and find a record.
        if self.key.is_some_and(|key| key.0 != target) {
            self.wal.cancel_wait(Wait::Watch, &mut self.key);
        }
        self.wal.poll_wait(Wait::Watch, target, &mut self.key, context)
    }
}

/// The stream ends after an error.
#[cfg(feature = "stream")]
impl futures_core::Stream for Tail {
    type Item = Result<RecordBuf>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let tail = self.get_mut();
        let found = ready!(Tail::poll_next(tail, context)).map(|found| found.map(RecordBuf::from));
        if found.is_err() {
            let _ = tail.cancelled.set(());
        }
        Poll::Ready(found.transpose())
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.wal.cancel_wait(Wait::Watch, &mut self.key);
    }
}

/// Ends a [`Tail`] from another thread. It does not keep the log open.
#[derive(Clone)]
pub struct TailCanceller {
    commit: SharedCommit,
    cancelled: Arc<OnceLock<()>>,
}

impl TailCanceller {
    pub(super) fn new(wal: &Wal, cancelled: &Arc<OnceLock<()>>) -> TailCanceller {
        TailCanceller { commit: wal.handle.commit.clone(), cancelled: Arc::clone(cancelled) }
    }

    /// Lets the tail's [`next`](Tail::next) return `None`, also one that waits. A task sees it at
    /// its next poll. Does nothing in a forked child.
    pub fn cancel(&self) {
        if let Ok(log) = self.commit.own() {
            let _ = self.cancelled.set(());
            log.wake_observers();
        }
    }
}

impl fmt::Debug for TailCanceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cancelled = self.cancelled.get().is_some();
        f.debug_struct("TailCanceller").field("is_cancelled", &is_cancelled).finish_non_exhaustive()
    }
}

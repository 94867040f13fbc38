//! Cursors: tails whose positions have names and survive restarts.

use std::fmt;
#[cfg(feature = "stream")]
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use palisade_store::sync::{Instant, OnceLock};

use super::pins::Lease;
use super::tail::Found;
use super::{Tail, TailCanceller, Wal};
use crate::reader::Record;
#[cfg(feature = "stream")]
use crate::reader::RecordBuf;
use crate::{Error, ErrorKind, Lsn, Result};

const SEEK: &str = "call Cursor::seek with the head, or with the LSN that Wal::resume_lsn returns";

impl Wal {
    /// Opens the cursor with this name. It begins where [`confirm`](Cursor::confirm),
    /// [`save`](Cursor::save) or [`seek`](Cursor::seek) left it since the log was opened, else at
    /// its saved position. If the log no longer has the position, [`next`](Cursor::next) returns
    /// the error.
    ///
    /// # Errors
    /// `NotFound`. `Locked`: it is open already. `NoSpace`, `NoFiles`, `Io`, `Corrupt`: as
    /// [`tail_from`](Wal::tail_from).
    pub fn cursor(&self, name: &str) -> Result<Cursor> {
        self.check_open()?;
        let (begin, max_lag) = self.handle.enter_cursor(name)?;
        // From here on the drop of the cursor closes it.
        let mut cursor = Cursor {
            wal: self.clone(),
            name: name.into(),
            max_lag,
            begin,
            lease: Arc::default(),
            tail: Err(Error::bare(ErrorKind::Closed)),
            cancelled: Arc::default(),
            found: None,
            #[cfg(feature = "stream")]
            has_failed: false,
        };
        match cursor.begin_at(begin) {
            // If the position is gone, the open succeeds and `next` returns the error. Then the
            // caller can move the cursor with `seek`.
            Err(error) if !is_gone(&error) => Err(error),
            _ => Ok(cursor),
        }
    }
}

/// A tail whose position survives restarts: see `Wal::cursor`. It keeps the log open. Its drop
/// saves nothing.
pub struct Cursor {
    wal: Wal,
    name: String,
    max_lag: u64,
    // Where `tail` began, or was to begin.
    begin: Lsn,
    lease: Arc<Lease>,
    // The error: why the log cannot be read from `begin` on.
    tail: Result<Tail>,
    cancelled: Arc<OnceLock<()>>,
    // The record that the next call returns.
    found: Option<Found>,
    // The stream has returned an error, and no `seek` came after it.
    #[cfg(feature = "stream")]
    has_failed: bool,
}

impl Cursor {
    /// Returns the cursor's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the end of the last record that the cursor returned, or where it began.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.tail.as_ref().map_or(self.begin, Tail::position)
    }

    /// Returns the next durable record, or `None` after `timeout` or a cancellation. The record
    /// counts as processed only after [`confirm`](Cursor::confirm) or [`save`](Cursor::save).
    ///
    /// # Errors
    /// `Lagged`: the cursor kept nothing or lagged too much, and the head is above the position.
    /// `Truncated`: a truncation of the suffix removed a record that the cursor has returned. After
    /// either call [`seek`](Cursor::seek). Else as [`Tail::next`].
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        match self.find(timeout)? {
            Some(found) => self.take(found, true).map(Some),
            None => Ok(None),
        }
    }

    /// Returns what [`next`](Cursor::next) will return, and does not move on.
    ///
    /// # Errors
    /// As [`next`](Cursor::next).
    pub fn peek(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        match self.find(timeout)? {
            Some(found) => self.take(found, false).map(Some),
            None => Ok(None),
        }
    }

    /// Polls for the [`next`](Cursor::next) record, as [`Tail::poll_next`] does. With the feature
    /// `stream` a cursor is also a `futures_core::Stream` of owned records, which ends after an
    /// error until [`seek`](Cursor::seek).
    ///
    /// # Errors
    /// As [`next`](Cursor::next) and [`Tail::poll_next`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Record<'_>>>> {
        while self.found.is_none() {
            let found = ready!(self.tail()?.poll_find(context));
            match self.check_pin(found) {
                Ok(None) => {}
                Ok(Some(None)) => return Poll::Ready(Ok(None)),
                Ok(Some(found)) => self.found = found,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(self.found.map(|found| self.take(found, true)).transpose())
    }

    /// Notes that all returned records are processed. Does not wait. The next save of the log's
    /// state makes it durable: [`save`](Cursor::save) or [`seek`](Cursor::seek) of any cursor,
    /// `create_cursor`, `remove_cursor`, `truncate_before` above the head, `checkpoint` above the
    /// last one, `close`.
    pub fn confirm(&self) {
        if self.tail.is_ok() && self.wal.handle.commit.own().is_ok() {
            self.wal.handle.confirmations.confirm(&self.name, self.processed());
        }
    }

    /// Confirms, and waits until the position survives power loss: about two device syncs. Recovery
    /// refuses a log that ends below a saved position.
    ///
    /// # Errors
    /// `Lagged`, `Truncated`: as [`next`](Cursor::next), and nothing is saved. `NoSpace`,
    /// `NoFiles`, `Io`, `PermissionDenied`, `NotFound`: the next open may find the position; call
    /// again. `Closed`, `Poisoned`, `Forked`.
    pub fn save(&self) -> Result<()> {
        self.wal.handle.commit.own()?;
        self.tail.as_ref().map_err(Clone::clone)?;
        let (at, head) = (self.processed(), self.wal.head_lsn());
        if self.is_below_head(at) && !self.wal.is_at_head(at) {
            return Err(self.lagged());
        }
        self.confirm();
        // At the head, check nothing: all records that the cursor has returned are below it.
        let named = (at != head).then(|| self.wal.handle.epochs.skip_end_of_epoch(at));
        self.wal.handle.change_state(named, |_| {})
    }

    /// Continues at `lsn`, a position as for `Wal::tail_from`, and [saves](Cursor::save) it.
    ///
    /// # Errors
    /// As `Wal::tail_from` or a wait, and the cursor stays; or as [`save`](Cursor::save), and it
    /// has moved.
    pub fn seek(&mut self, lsn: Lsn) -> Result<()> {
        let (tail, lease) = self.tail_at(lsn)?;
        self.wal.handle.commit.own()?.wait(tail.position(), None)?;
        (self.tail, self.lease, self.begin, self.found) = (Ok(tail), lease, lsn, None);
        #[cfg(feature = "stream")]
        {
            self.has_failed = false;
        }
        self.save()
    }

    /// Returns a handle with which another thread ends this cursor.
    #[must_use]
    pub fn canceller(&self) -> TailCanceller {
        TailCanceller::new(&self.wal, &self.cancelled)
    }

    fn begin_at(&mut self, begin: Lsn) -> Result<()> {
        (self.begin, self.found) = (begin, None);
        let begun = self.tail_at(begin).map_err(|error| match error.kind() {
            ErrorKind::Truncated if self.is_below_head(begin) => self.lagged(),
            ErrorKind::Truncated => error.with_advice(SEEK),
            _ => error,
        });
        let result = begun.as_ref().map(drop).map_err(Clone::clone);
        self.tail = begun.map(|(tail, lease)| {
            self.lease = lease;
            tail
        });
        result
    }

    /// Returns the position, or the head if only marks were between.
    fn processed(&self) -> Lsn {
        let (position, head) = (self.position(), self.wal.head_lsn());
        let has_read = |tail: &Tail| tail.has_read_up_to() >= head && !self.lease.is_lost();
        let is_past = position < head && self.found.is_none();
        if is_past && self.tail.as_ref().is_ok_and(has_read) { head } else { position }
    }

    fn is_below_head(&self, position: Lsn) -> bool {
        let epochs = &self.wal.handle.epochs;
        position < self.wal.head_lsn() && !epochs.is_inside_discarded(position)
    }

    fn tail_at(&self, lsn: Lsn) -> Result<(Tail, Arc<Lease>)> {
        let lease = Arc::new(Lease::new(self.max_lag));
        let tail = self.wal.leased_tail(lsn, Arc::clone(&lease))?;
        Ok((tail.cancelled_by(&self.cancelled), lease))
    }

    fn tail(&mut self) -> Result<&mut Tail> {
        if self.tail.as_ref().is_err_and(|error| !is_gone(error)) {
            // The cause of the error may be gone, so try again.
            self.begin_at(self.begin)?;
        }
        self.tail.as_mut().map_err(|error| error.clone())
    }

    fn find(&mut self, timeout: Duration) -> Result<Option<Found>> {
        let deadline = Instant::now().checked_add(timeout);
        while self.found.is_none() {
            let now = Instant::now();
            let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
            let found = self.tail()?.find(left);
            match self.check_pin(found)? {
                Some(None) => break,
                Some(found) => self.found = found,
                None => {}
            }
        }
        Ok(self.found)
    }

    /// If the pin was lost, ignores `found`, because a read of a freed file looks like damage, and
    /// pins the position again, which the log may still have.
    fn check_pin(&mut self, found: Result<Option<Found>>) -> Result<Option<Option<Found>>> {
        if self.lease.is_lost() {
            return self.begin_at(self.position()).map(|()| None);
        }
        if let Err(error) = &found
            && is_gone(error)
        {
            self.begin = self.position();
            self.tail = Err(error.clone().with_advice(SEEK));
        }
        found.map(Some)
    }

    fn take(&mut self, found: Found, is_taken: bool) -> Result<Record<'_>> {
        self.found = (!is_taken).then_some(found);
        let (name, lease) = (&self.name, &self.lease);
        let tail = self.tail.as_mut().map_err(|error| error.clone())?;
        // `Tail::take` calls this after the read, because a release may have freed the file before.
        // A pin that is lost was at the record's segment, so the head is above the record.
        let check = || if lease.is_lost() { Err(lagged(name)) } else { Ok(is_taken) };
        let record = tail.take(found, check);
        record.map_err(|error| if lease.is_lost() { lagged(name) } else { error })
    }

    fn lagged(&self) -> Error {
        lagged(&self.name).at_lsn(self.position())
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for Cursor {
    type Item = Result<RecordBuf>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let cursor = self.get_mut();
        if cursor.has_failed {
            return Poll::Ready(None);
        }
        let found = ready!(Cursor::poll_next(cursor, context));
        let found = found.map(|found| found.map(RecordBuf::from));
        cursor.has_failed = found.is_err();
        Poll::Ready(found.transpose())
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if self.wal.handle.commit.own().is_ok() {
            self.wal.handle.confirmations.leave(&self.name);
        }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("name", &self.name)
            .field("position", &self.position())
            .field("max_lag", &self.max_lag)
            .finish_non_exhaustive()
    }
}

fn lagged(name: &str) -> Error {
    let text = format!("the log was truncated above the position of the cursor {name:?}");
    Error::new(ErrorKind::Lagged, text).with_advice(SEEK)
}

fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Lagged | ErrorKind::Truncated)
}

//! Tails: readers that follow the log and return records as they become durable.

use std::time::Duration;

use super::Wal;
use super::epochs::truncated_error;
use crate::reader::{Record, Records};
use crate::sync::Instant;
use crate::{ErrorKind, Lsn, Result};

/// How long an idle tail of written records sleeps at most before it looks again.
const WRITTEN_POLL: Duration = Duration::from_micros(500);

impl Wal {
    /// Returns a tail that follows the log from the head on.
    pub fn tail(&self) -> Result<Tail> {
        self.tail_at(None)
    }

    /// Returns a tail that follows the log from the record at `lsn` on.
    pub fn tail_from(&self, lsn: Lsn) -> Result<Tail> {
        self.check_begin(lsn)?;
        self.tail_at(Some(lsn))
    }

    fn tail_at(&self, from: Option<Lsn>) -> Result<Tail> {
        let records = self.records_until(from, Lsn::ZERO, self.handle.read_ahead_bytes)?;
        let head = self.head_lsn();
        let began = from.map_or(head, |from| self.handle.epochs.leave_discarded(from).max(head));
        let given_to = (began > head).then_some(began);
        Ok(Tail { wal: self.clone(), began, given_to, records, is_durable_only: true })
    }
}

/// Follows a log: returns each record once, in LSN order, as soon as it is durable.
///
/// A tail requests no sync: it returns what commits make durable.
#[derive(Debug)]
pub struct Tail {
    wal: Wal,
    records: Records,
    // Where it was to begin; the end of an epoch rather than the base of the next.
    began: Lsn,
    // The end of the last record that the tail returned, or `began`. The position may be above it,
    // after padding and marks, whose truncation does not matter. `None` if the tail was to begin at
    // the head and has returned nothing: nothing that it skipped can go.
    given_to: Option<Lsn>,
    is_durable_only: bool,
}

impl Tail {
    /// Returns records as soon as they were handed to the operating system, durable or not. A crash
    /// can take back what the tail has returned.
    #[must_use]
    pub fn written(mut self) -> Tail {
        self.is_durable_only = false;
        self
    }

    /// Returns where the tail continues: the end of the last record that it returned, or where it
    /// began. A consumer saves this LSN and continues with [`tail_from`](Wal::tail_from).
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.given_to.unwrap_or(self.began)
    }

    /// Returns the next record, or `None` if there was none within `timeout`.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Io`, `NoFiles`: as [`Records::next`]. `Truncated`: a truncation
    /// of the suffix removed a record that the tail has returned, or one below its start. `Closed`,
    /// `Poisoned`: after the last record of the log. `Forked`.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        self.wal.handle.log.check_process()?;
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if self.records.is_finished() {
                return Ok(None);
            }
            match self.records.advance() {
                Ok(Some(found)) => {
                    self.given_to = Some(self.records.position());
                    return Ok(Some(self.records.record(found)));
                }
                Ok(None) => {}
                // The tail has reached a truncation. `leave_truncated` checks what it has returned.
                Err(error) if error.kind() == ErrorKind::Truncated => {}
                Err(error) => return Err(error),
            }
            let end = self.end();
            let at = self.leave_truncated()?;
            // A truncation has ended the iterator.
            if end > at || self.records.is_finished() {
                self.records.extend_to(self.wal.spans_until(end));
            } else if !self.wait_beyond(at, deadline)? {
                return Ok(None);
            }
        }
    }

    /// Returns where the tail continues, or an error if the log was truncated below the end of what
    /// it returned.
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

    fn end(&self) -> Lsn {
        if self.is_durable_only { self.wal.durable_lsn() } else { self.wal.written_lsn() }
    }

    /// Waits for the end to move beyond `at`. Returns false if the deadline came first.
    fn wait_beyond(&self, at: Lsn, deadline: Option<Instant>) -> Result<bool> {
        let now = Instant::now();
        let deadline = deadline.unwrap_or(now + Duration::from_secs(1 << 30));
        if now >= deadline {
            return Ok(false);
        }
        if self.is_durable_only {
            return self.wal.commit_state().observe(at.plus(1), deadline);
        }
        self.wal.commit_state().check_goes_on(at.plus(1))?;
        crate::sync::sleep(WRITTEN_POLL.min(deadline - now));
        Ok(true)
    }
}

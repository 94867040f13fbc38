//! Reads beside a writer that truncates: see the head of the module above.

use super::{ATTEMPTS, Inspector, RESTARTS};
use crate::reader::{EpochSpan, Relist, truncated_meanwhile};
use crate::{Lsn, Result};

impl Inspector {
    /// Calls `read` until no truncation comes between its beginning and its end. Returns an error
    /// of `read` only if it came [`ATTEMPTS`] times without a truncation.
    pub(super) fn undisturbed<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        let mut attempts = 0;
        for _ in 0..RESTARTS {
            let before = self.state()?;
            let found = read();
            let after = self.state()?;
            if (before.epoch, before.head) == (after.epoch, after.head) {
                attempts += 1;
                if found.is_ok() || attempts == ATTEMPTS {
                    return found;
                }
            }
        }
        Err(truncated_meanwhile())
    }
}

/// The log that the records of an [`Inspector`] come from.
pub(super) struct ForeignLog {
    log: Inspector,
    /// The newest epoch that the last listing has seen.
    epoch: u64,
}

impl ForeignLog {
    pub(super) fn new(log: Inspector, epoch: u64) -> ForeignLog {
        ForeignLog { log, epoch }
    }
}

impl Relist for ForeignLog {
    fn list_again(&mut self, at: Lsn) -> Result<Option<(Lsn, Vec<EpochSpan>)>> {
        let now = self.log.state()?;
        if now.epoch <= self.epoch && now.head <= at {
            return Ok(None);
        }
        let layout = self.log.layout()?;
        self.epoch = layout.largest_epoch;
        Ok(Some((layout.state.head, layout.spans)))
    }
}

//! Backups: copies of a log that goes on.
//!
//! 1. Sync: the records that were appended before the call are durable.
//! 2. Under the lock of the state, pin the log from the head on: the backup begins there, and its
//!    segments stay. Take the state, and *durable* with the list of epochs: the backup ends at
//!    *durable*. All of it is of one moment for a truncation of the suffix. No append changes what
//!    the list names below that end. Only a truncation of the suffix does.
//! 3. Copy. Each frame is checked.
//! 4. Take the list again. If an epoch ends lower than before, records of the backup were truncated
//!    meanwhile, and the backup is given up.

use std::sync::Arc;

use super::Wal;
use super::epochs::View;
use super::pins::{Pin, PinKind};
use crate::copy::CopyPlan;
use crate::reader::{EpochSpan, Pinned};
use crate::store::ReadStore;
use crate::{Error, ErrorKind, Lsn, Result};

/// A plan of a backup of an open log, which stays pinned as long as this exists.
#[derive(Debug)]
pub struct Backup {
    wal: Wal,
    pin: Pin,
    end: Lsn,
    // Where its records lie.
    spans: Vec<EpochSpan>,
    plan: CopyPlan,
}

impl Wal {
    /// Plans a backup of the log, after a sync of all records that were appended before.
    pub fn backup(&self) -> Result<Backup> {
        self.check_open()?;
        self.sync()?;
        let (pin, state, View { spans, end, .. }) = {
            let state = self.handle.state.lock();
            let pin = self.pin_in(&state, PinKind::Reader, None, None)?;
            let view = self.handle.epochs.view(None, || self.durable_lsn());
            (pin, state.clone(), view)
        };
        let store = Arc::clone(&self.handle.commit.store);
        let salt = store.random()?;
        let reserved = self.reserved_lsn();
        let store = store as Arc<dyn ReadStore>;
        let kept = kept(&spans, pin.at(), end);
        let plan = CopyPlan::of_open_log(store, state, spans, reserved, salt)?;
        Ok(Backup { wal: self.clone(), pin, end, spans: kept, plan })
    }
}

impl Backup {
    /// Returns what is to be copied.
    #[must_use]
    pub fn plan(&self) -> &CopyPlan {
        &self.plan
    }

    /// Returns where the log lies.
    #[must_use]
    pub fn place(&self) -> String {
        self.wal.handle.commit.store.place()
    }

    /// Refuses a backup of which records were truncated since it was planned.
    pub fn check(&self) -> Result<()> {
        self.pin.check_process()?;
        let now = self.wal.handle.epochs.all();
        if kept(&now, self.pin.at(), self.end) == self.spans {
            return Ok(());
        }
        let text =
            "a truncation of the suffix removed records of the backup while they were copied";
        let error = Error::new(ErrorKind::Truncated, text).at_lsn(self.end);
        Err(error.with_advice("begin the backup anew"))
    }
}

/// Returns the parts of `spans` that hold records of `[head, end)`.
fn kept(spans: &[EpochSpan], head: Lsn, end: Lsn) -> Vec<EpochSpan> {
    spans.iter().map(|span| span.up_to(end)).filter(|span| span.base.max(head) < span.end).collect()
}

//! Backups: copies of a log that goes on.
//!
//! 1. Sync.
//! 2. Under the lock of the state, so that all is of one moment for a truncation of the suffix: pin
//!    the log from the head on, and take the state, *durable*, where the backup ends, and the list
//!    of epochs, which only such a truncation changes below that.
//! 3. Copy, and check each frame.
//! 4. Take the list again. If an epoch ends lower than before, give the backup up.

use std::path::Path;
use std::sync::Arc;

use palisade_store::ReadStore;
use palisade_store::disk::Disk;

use super::Wal;
use super::epochs::View;
use super::pins::{Pin, PinKind};
use crate::copy::{self, CopyPlan, CopyReport};
use crate::reader::{EpochSpan, Pinned};
use crate::{Error, ErrorKind, Lsn, Result};

#[derive(Debug)]
pub(crate) struct Backup {
    wal: Wal,
    pin: Pin,
    end: Lsn,
    // Where its records lie.
    spans: Vec<EpochSpan>,
    pub(crate) plan: CopyPlan,
}

impl Wal {
    /// Copies the log while it is in use into the folder `path`, which is missing or empty, and
    /// outside of the log's folder. Keeps all segments from the head on meanwhile.
    ///
    /// The backup is a closed log with the log's identity, and the records that were appended
    /// before the call, or some more. Its appends get LSNs above all that the log had returned.
    /// Each frame is checked. Files have the permissions 0600. To restore a log, open the folder,
    /// or see [`RestoreFrom`](crate::RestoreFrom).
    ///
    /// # Durability
    /// As [`Restore::write`](crate::Restore::write).
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let temp = tempfile::tempdir().unwrap();
    /// # let (log, backup) = (temp.path().join("log"), temp.path().join("backup"));
    /// use palisade::Wal;
    ///
    /// let wal = Wal::open(&log)?;
    /// let lsn = wal.append(b"record")?.lsn();
    /// let report = wal.backup_to(&backup)?;
    /// wal.append(b"after the backup")?;
    /// assert_eq!((report.head, report.records), (lsn, 1));
    ///
    /// let restored = Wal::open(&backup)?;
    /// assert_eq!(restored.get(lsn)?.data(), b"record");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Restore::write`](crate::Restore::write), except `Locked`. `NoSpace`: also for the log's
    /// own sync. `Truncated`: [`truncate_after`](Wal::truncate_after) or a replacement removed
    /// records of the backup; call again. `Corrupt`: a frame does not validate.
    pub fn backup_to(&self, path: impl AsRef<Path>) -> Result<CopyReport> {
        let path = path.as_ref();
        let backup = self.backup()?;
        let log = self.handle.commit.lock_free().store.place();
        // A log on another disk has a place that this disk does not know.
        if Path::new(&log).exists() {
            copy::check_apart(Path::new(&log), path)?;
        }
        let copied = copy::write_copy(&backup.plan, path, &|| backup.check(), &mut |_| {});
        backup.unless_truncated(copied)
    }

    /// Copies as [`backup_to`](Wal::backup_to) does, to another [`disk`](crate::disk).
    ///
    /// # Errors
    /// As [`backup_to`](Wal::backup_to).
    pub fn backup_on(&self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<CopyReport> {
        let (backup, path) = (self.backup()?, path.as_ref());
        let check = || backup.check();
        let copied = copy::write_copy_on(disk, &backup.plan, path, &check, &mut |_| {});
        backup.unless_truncated(copied)
    }

    pub(crate) fn backup(&self) -> Result<Backup> {
        self.check_open()?;
        self.sync()?;
        let (pin, state, View { spans, end, .. }) = {
            let state = self.handle.state.lock();
            let pin = self.pin_in(&state, PinKind::Reader, None, None)?;
            let view = self.handle.epochs.view(None, || self.durable_lsn());
            (pin, state.clone(), view)
        };
        let store = Arc::clone(&self.handle.commit.own()?.store);
        let salt = store.random()?;
        let reserved = self.reserved_lsn();
        let store = store as Arc<dyn ReadStore>;
        let kept = kept(&spans, pin.at(), end);
        let plan = CopyPlan::of_open_log(store, state, spans, reserved, salt)?;
        Ok(Backup { wal: self.clone(), pin, end, spans: kept, plan })
    }
}

impl Backup {
    /// A truncation frees segments that a backup reads.
    fn unless_truncated(&self, copied: Result<CopyReport>) -> Result<CopyReport> {
        copied.map_err(|error| self.check().err().unwrap_or(error))
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.pin.check_process()?;
        let now = self.wal.handle.epochs.spans_until(self.end);
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

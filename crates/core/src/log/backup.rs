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

/// A plan of a backup of an open log, which stays pinned as long as this exists.
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
    /// Copies the log into a new folder while it is in use. `path` is missing or empty, and outside
    /// of the log's folder.
    ///
    /// The backup is a log that was closed. It has the records that were appended before the call,
    /// from the head on, with their LSNs, and perhaps some that were appended during the first sync
    /// of the call. The call checks each frame that it copies.
    ///
    /// Syncs once at the beginning, then reads, and writes and syncs the copy. Appends, commits,
    /// rotations, [`truncate_before`](Wal::truncate_before) and [`checkpoint`](Wal::checkpoint) run
    /// meanwhile. The log keeps all segments from the head on until the call returns.
    ///
    /// The backup has the log's identity, but an epoch of its own for new appends, whose LSNs lie
    /// above all that the log had returned. Files have the permissions 0600. To restore a log from
    /// it, open the folder, or join it with an archive: see [`RestoreFrom`](crate::RestoreFrom).
    ///
    /// # Durability
    /// The backup survives power loss when this returns. A call that ends before leaves a folder
    /// that no open takes for a log, if any: it is empty, or an open returns `Foreign`.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("palisade-backup-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// # std::fs::create_dir(&folder).unwrap();
    /// # let (log, backup) = (folder.join("log"), folder.join("backup"));
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
    /// # restored.close()?;
    /// # wal.close()?;
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Truncated`: [`truncate_after`](Wal::truncate_after) or a replacement removed records of the
    /// backup meanwhile; call again, and pause these calls if they are frequent.
    /// `InvalidArgument`: `path` is not empty, or in the log's folder. `Foreign`: it is no folder.
    /// `NotFound`: there is no folder to make it in, or its path led to another folder before the
    /// backup was complete. `Corrupt`: a frame does not validate; the error names its LSN.
    /// `NoSpace`, `NoFiles`, `PermissionDenied`, `Io`. `Closed`, `Poisoned`, `Forked`. After an
    /// error the call has removed what it had copied; the log is unchanged.
    pub fn backup_to(&self, path: impl AsRef<Path>) -> Result<CopyReport> {
        let path = path.as_ref();
        let backup = self.backup()?;
        let log = self.handle.commit.store.place();
        // A log on another disk has a place that this disk does not know.
        if Path::new(&log).exists() {
            copy::check_apart(Path::new(&log), path)?;
        }
        let copied = copy::write_copy(&backup.plan, path, &|| backup.check(), &mut |_| {});
        backup.unless_truncated(copied)
    }

    /// Copies the log as [`backup_to`](Wal::backup_to) does, into a folder of another disk: see
    /// [`disk`](crate::disk).
    ///
    /// # Errors
    /// As [`backup_to`](Wal::backup_to).
    pub fn backup_on(&self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<CopyReport> {
        let (backup, path) = (self.backup()?, path.as_ref());
        let check = || backup.check();
        let copied = copy::write_copy_on(disk, &backup.plan, path, &check, &mut |_| {});
        backup.unless_truncated(copied)
    }

    /// Plans a backup of the log, after a sync of all records that were appended before.
    pub(crate) fn backup(&self) -> Result<Backup> {
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
    /// Returns why the copy failed: a truncation frees segments that a backup reads.
    fn unless_truncated(&self, copied: Result<CopyReport>) -> Result<CopyReport> {
        copied.map_err(|error| self.check().err().unwrap_or(error))
    }

    /// Refuses a backup of which records were truncated since it was planned.
    pub(crate) fn check(&self) -> Result<()> {
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

//! Backups of a log that is open, and holds.

use std::path::Path;
use std::sync::Arc;

use palisade_core::Backup;
use palisade_store::disk::Disk;

use super::Wal;
use crate::{CopyReport, Hold, Lsn, Result};

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
        let backup = self.0.backup()?;
        let log = backup.place();
        // A log on another disk has a place that this disk does not know.
        if Path::new(&log).exists() {
            palisade_store::check_apart(Path::new(&log), path)?;
        }
        let check = || backup.check();
        let copied = palisade_store::write_copy(backup.plan(), path, &check, &mut |_| {});
        unless_truncated(&backup, copied)
    }

    /// Copies the log as [`backup_to`](Wal::backup_to) does, into a folder of another disk: see
    /// [`disk`](crate::disk).
    ///
    /// # Errors
    /// As [`backup_to`](Wal::backup_to).
    pub fn backup_on(&self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<CopyReport> {
        let backup = self.0.backup()?;
        let (plan, check) = (backup.plan(), || backup.check());
        let copied = palisade_store::write_copy_on(disk, plan, path.as_ref(), &check, &mut |_| {});
        unless_truncated(&backup, copied)
    }

    /// Keeps the log from `lsn` on until the result is dropped:
    /// [`truncate_before`](Wal::truncate_before) moves the head, but frees no segment that has
    /// bytes at or above `lsn`, and passes none to a callback for released segments. Reads nothing.
    /// [`Hold::records`] returns what is held. For example, a replica that is away holds the log
    /// where it stopped. Iterators and tails need no hold: they keep what they read.
    ///
    /// Any LSN from the head to the end will do. A hold does not keep
    /// [`truncate_after`](Wal::truncate_after) from removing records, and does not outlive the
    /// process. It keeps the log open, as a handle does.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// let kept = wal.append(b"the replica has not seen this yet")?.lsn();
    /// let hold = wal.hold(kept)?;
    /// wal.truncate_before(wal.reserved_lsn())?; // frees nothing
    /// assert_eq!(hold.records()?.next()?.unwrap().lsn(), kept);
    /// drop(hold); // frees what was truncated
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Truncated`: `lsn` is below the head. `OutOfRange`: it is above the end. `Forked`.
    pub fn hold(&self, lsn: Lsn) -> Result<Hold> {
        self.0.hold(lsn)
    }
}

/// Returns why the backup failed: a truncation frees segments that the backup reads.
fn unless_truncated(backup: &Backup, copied: Result<CopyReport>) -> Result<CopyReport> {
    copied.map_err(|error| backup.check().err().unwrap_or(error))
}

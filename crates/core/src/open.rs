//! How a log is opened: on files, on another disk, in two steps, or as a dry run.

use std::path::Path;
use std::sync::Arc;

use palisade_store::disk::{Disk, OsDisk};
use palisade_store::{FileOptions, FileStore, IntoStore, OpenMode, ReadStore};

use crate::events::{self, span};
use crate::recovery::{dry_run, recover};
use crate::{Lsn, Options, Records, RecoveryReport, Result, Wal, codec};

impl Wal {
    /// Opens the log in the folder `path` with the default [`Options`]. If there is no log, creates
    /// it and the folder, but not the folder's parents.
    ///
    /// The log syncs the folder's name in its parent. If you create the parents, sync the folder
    /// that holds each of them, too: else power loss can take the log with its parent.
    ///
    /// # Durability
    /// Everything that [`recovery_report`](Wal::recovery_report) counts as recovered survives power
    /// loss when this returns.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Wal> {
        Options::new().open(path)
    }

    /// Opens the log in `store`, for example a [`MemStore`](crate::MemStore).
    ///
    /// A `MemStore` fixes the segment size and writes no zeros ahead of the tail.
    /// [`kept_buffer`](crate::MemStore::kept_buffer) sets what [`Auto`](crate::BufferKind::Auto)
    /// means on it. All other settings hold as on files. A store that was opened before ignores the
    /// settings of files in `options`.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// use palisade::{MemStore, Options, Wal};
    ///
    /// let store = MemStore::new(1 << 20);
    /// let wal = Wal::with_store(store.clone(), Options::new().buffer_bytes(1 << 16))?;
    /// let lsn = wal.commit(b"record")?;
    /// drop(wal);
    /// let wal = Wal::with_store(store, Options::new().buffer_bytes(1 << 16))?;
    /// assert_eq!(wal.get(lsn)?.data(), b"record");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn with_store(store: impl IntoStore, options: Options) -> Result<Wal> {
        options.validate()?;
        let store = store.into_store(&options.files)?;
        codec::check_state(&store.state()?, options.codec.as_deref())?;
        let store = Arc::new(store);
        let recovered = recover(&store, &options)?;
        let wal = Wal::begin(store, recovered, &events::observed(options))?;
        events::recovered(&wal);
        Ok(wal)
    }
}

impl Options {
    /// Opens the log in the folder `path`, or creates it as the [open mode](Options::open_mode)
    /// allows.
    ///
    /// # Durability
    /// Everything that was recovered survives power loss when this returns.
    ///
    /// # Errors
    /// These errors change nothing, except that an open makes the file `lock` if it is missing:
    /// - `InvalidArgument`: an option or the path.
    /// - `NotFound`: the open mode requires a log, or the parent of the folder is missing.
    /// - `AlreadyExists`: the open mode requires that there is no log.
    /// - `Foreign`: the folder holds something else, or a log whose file `meta` is missing: see
    ///   [`Repair`](crate::Repair).
    /// - `Unsupported`: a newer version wrote the log; or [`BufferKind::Mapped`](crate::BufferKind)
    ///   was asked for, and there is no memory file system at `/dev/shm`.
    /// - `Mismatch`: another segment size, another [codec](Options::codec), or another key.
    /// - `Locked`: another process or another handle holds the log.
    /// - `Corrupt`: acknowledged data is damaged. After a close an open reads no records, so only a
    ///   reader or [`Verify::Full`](crate::Verify::Full) finds damage in them. Restore the log from
    ///   a replica or a backup, or repair it: see [`Repair`](crate::Repair).
    ///
    /// After these errors files may have changed, but nothing is lost:
    /// - `NotFound` whose text says so: the folder was moved, removed or replaced during the open.
    /// - `PermissionDenied`: this process may not use the folder or a file in it, or the log buffer
    ///   belongs to another user.
    /// - `OutOfRange`: no LSN is left.
    /// - `NoSpace`, `NoFiles`, `Io`: open again when the cause is gone.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Wal> {
        self.open_on(Arc::new(OsDisk), path)
    }

    /// Opens the log as [`open`](Options::open) does, on another disk than that of the operating
    /// system: see [`disk`](crate::disk). The path is one of that disk. A relative path begins at
    /// the process's working directory.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// use palisade::{Options, disk::MemDisk};
    /// use std::sync::Arc;
    ///
    /// let disk = MemDisk::new();
    /// let wal = Options::new().open_on(Arc::new(disk.clone()), "/log")?;
    /// let lsn = wal.commit(b"record")?;
    /// drop(wal);
    /// let wal = Options::new().open_on(Arc::new(disk), "/log")?;
    /// assert_eq!(wal.get(lsn)?.data(), b"record");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Options::open).
    pub fn open_on(&self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Wal> {
        span!("open", path = %path.as_ref().display());
        self.validate()?;
        let store = FileStore::open_on(disk, path.as_ref(), &self.files)?;
        Wal::with_store(store, self.clone())
    }

    /// Opens the log as [`open`](Options::open) does, in two steps: the engine can read the
    /// recovered records and decide before the log accepts appends. See [`Recovery`].
    ///
    /// # Errors
    /// As [`open`](Options::open).
    pub fn recover(&self, path: impl AsRef<Path>) -> Result<Recovery> {
        self.open(path).map(Recovery)
    }

    /// Recovers the log as [`recover`](Options::recover) does, on another disk: see
    /// [`open_on`](Options::open_on).
    ///
    /// # Errors
    /// As [`open`](Options::open).
    pub fn recover_on(&self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Recovery> {
        self.open_on(disk, path).map(Recovery)
    }

    /// Returns what [`open`](Options::open) would find and decide about the log in the folder
    /// `path`. Holds the log's lock meanwhile. Changes nothing, except that it makes the file
    /// `lock` if it is missing. If no open of the log was ever completed, waits for the device.
    ///
    /// The log must exist, whatever the [open mode](Options::open_mode) is. In the report `base`,
    /// `epoch` and `appends_survive_kill` are not set.
    ///
    /// # Errors
    /// As [`open`](Options::open), except `OutOfRange` and those of writing.
    pub fn dry_run(&self, path: impl AsRef<Path>) -> Result<RecoveryReport> {
        self.dry_run_on(Arc::new(OsDisk), path)
    }

    /// Returns what [`dry_run`](Options::dry_run) returns, of a log on another disk.
    ///
    /// # Errors
    /// As [`dry_run`](Options::dry_run).
    #[doc(hidden)]
    pub fn dry_run_on(
        &self,
        disk: Arc<dyn Disk>,
        path: impl AsRef<Path>,
    ) -> Result<RecoveryReport> {
        self.validate()?;
        let files = FileOptions { open_mode: OpenMode::MustExist, ..self.files.clone() };
        self.dry_run_in(FileStore::open_on(disk, path.as_ref(), &files)?)
    }

    /// Returns what [`dry_run`](Options::dry_run) returns, of a log in a store.
    ///
    /// # Errors
    /// As [`dry_run`](Options::dry_run).
    #[doc(hidden)]
    pub fn dry_run_in(&self, store: FileStore) -> Result<RecoveryReport> {
        codec::check_state(&store.state()?, self.codec.as_deref())?;
        dry_run(&Arc::new(store), self)
    }
}

/// A recovered log that accepts no appends yet: [`Options::recover`](crate::Options::recover)
/// returns it, and [`start`](Recovery::start) turns it into a [`Wal`].
///
/// Recovery is complete: every record that [`records`](Recovery::records) returns is durable, and
/// no later open loses it. An engine that replays the log stays free to stop: dropping the
/// `Recovery` loses nothing, and the next open recovers the same records.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("palisade-recovery-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&folder);
/// use palisade::{Options, ReplayFrom, Wal};
///
/// Wal::open(&folder)?.commit(b"balance 7")?;
///
/// let recovery = Options::new().recover(&folder)?;
/// println!("{} torn bytes removed", recovery.report().torn_bytes);
/// let mut balances = Vec::new();
/// let mut records = recovery.records(ReplayFrom::Checkpoint)?;
/// let from = records.position();
/// let all = recovery.end().bytes_since(from);
/// while let Some(record) = records.next()? {
///     balances.push(record.data().to_vec());
///     println!("{} of {all} bytes", record.next_lsn().bytes_since(from));
/// }
/// let wal = recovery.start();
/// assert_eq!(balances, [b"balance 7"]);
/// # wal.close()?;
/// # drop(records);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the log accepts appends only after `start`"]
pub struct Recovery(Wal);

/// Where a replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayFrom {
    /// At the head: all records of the log.
    Head,
    /// At the last [`checkpoint`](Wal::checkpoint), or at the head if that is higher: the records
    /// that the engine may not have applied.
    Checkpoint,
    /// At the record with this LSN, for example the one after the last that the engine has applied.
    Lsn(Lsn),
}

impl From<Lsn> for ReplayFrom {
    fn from(lsn: Lsn) -> ReplayFrom {
        ReplayFrom::Lsn(lsn)
    }
}

impl Recovery {
    /// Returns what recovery found and did.
    #[must_use]
    pub fn report(&self) -> &RecoveryReport {
        self.0.recovery_report()
    }

    /// Returns the head, where the log begins.
    #[must_use]
    pub fn head(&self) -> Lsn {
        self.0.head_lsn()
    }

    /// Returns the last checkpoint: see [`Wal::checkpoint_lsn`].
    #[must_use]
    pub fn checkpoint(&self) -> Lsn {
        self.0.checkpoint_lsn()
    }

    /// Returns the end of the recovered records. Appends continue at
    /// [`RecoveryReport::base`], which is higher after a crash.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.report().end
    }

    /// Returns the recovered records from `from` on, in LSN order. May be called more than once.
    ///
    /// # Errors
    /// As [`Wal::records_from`].
    pub fn records(&self, from: impl Into<ReplayFrom>) -> Result<Records> {
        match from.into() {
            ReplayFrom::Head => self.0.records(),
            ReplayFrom::Checkpoint if self.checkpoint() <= self.head() => self.0.records(),
            ReplayFrom::Checkpoint => self.0.records_from(self.checkpoint()),
            ReplayFrom::Lsn(lsn) => self.0.records_from(lsn),
        }
    }

    /// Lets the log accept appends.
    pub fn start(self) -> Wal {
        self.0
    }
}

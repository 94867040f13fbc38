//! How a log is opened: on files, on another disk, in two steps, or as a dry run.

use std::path::Path;
use std::sync::Arc;

use palisade_store::disk::{Disk, OsDisk};
use palisade_store::{FileStore, IntoStore};

use crate::trace::{self, span};
use crate::{OpenMode, Options, Recovery, RecoveryReport, Result, Wal};

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
        let store = store.into_store(options.validated_files()?)?;
        let wal =
            palisade_core::Wal::with_store(store, &trace::observed(options.log())).map(Wal)?;
        trace::recovered(&wal);
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
        let store = FileStore::open_on(disk, path.as_ref(), self.validated_files()?)?;
        Wal::with_store(store, self.clone())
    }

    /// Opens the log as [`open`](Options::open) does, in two steps: the engine can read the
    /// recovered records and decide before the log accepts appends. See [`Recovery`].
    ///
    /// # Errors
    /// As [`open`](Options::open).
    pub fn recover(&self, path: impl AsRef<Path>) -> Result<Recovery> {
        self.open(path).map(Recovery::new)
    }

    /// Recovers the log as [`recover`](Options::recover) does, on another disk: see
    /// [`open_on`](Options::open_on).
    ///
    /// # Errors
    /// As [`open`](Options::open).
    pub fn recover_on(&self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Recovery> {
        self.open_on(disk, path).map(Recovery::new)
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
        let mut files = self.validated_files()?.clone();
        files.open_mode = OpenMode::MustExist;
        let store = FileStore::open(path, &files)?;
        palisade_core::Wal::dry_run(store, self.log())
    }
}

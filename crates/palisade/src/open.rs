//! How a log is opened: on files, on another disk, with a replay, or as a dry run.

use std::path::Path;
use std::sync::Arc;

use palisade_store::disk::{Disk, OsDisk};
use palisade_store::{FileStore, IntoStore};

use crate::{Error, Lsn, OpenMode, Options, RecoveryReport, Replay, Result, Wal};

impl Wal {
    /// Opens the log in the folder `path` with the default [`Options`]. If there is no log, creates
    /// it and the folder, but not the folder's parents.
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

    /// Opens the log in `store`, for example a [`MemStore`](crate::MemStore). Ignores the settings
    /// of `options` that concern files.
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
    /// `InvalidArgument`: an option or the store's segment size is out of its range. `Corrupt`:
    /// acknowledged data is damaged; nothing was changed. (A log that was closed reports damage
    /// when it is read, or with [`Verify::Full`](crate::Verify::Full).) `NoSpace`, `Io`: nothing is
    /// lost; open again when the cause is gone.
    pub fn with_store(store: impl IntoStore, options: Options) -> Result<Wal> {
        let store = store.into_store(options.validated_files()?)?;
        palisade_core::Wal::with_store(store, options.log()).map(Wal)
    }

    /// Opens the log as [`with_store`](Wal::with_store) does, and passes the records to `f` before
    /// any thread can append: see [`Options::open_replaying`].
    ///
    /// # Errors
    /// As [`with_store`](Wal::with_store) and [`records_from`](Wal::records_from). `Corrupt`: a
    /// record that is replayed does not validate. The error that `f` returned.
    pub fn with_store_replaying<E: From<Error>>(
        store: impl IntoStore,
        options: Options,
        from: Option<Lsn>,
        f: impl FnMut(Replay<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Wal, E> {
        let store = store.into_store(options.validated_files()?)?;
        palisade_core::Wal::with_store_replaying(store, options.log(), from, f).map(Wal)
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
    /// The open is refused and nothing is changed: `InvalidArgument`: an option or the path.
    /// `NotFound`, `AlreadyExists`: by the open mode. `Foreign`: the folder holds something else.
    /// `Unsupported`: a newer format. `Mismatch`: another segment size. `Locked`: another process
    /// holds the log. `Corrupt`: acknowledged data is damaged. `Unclean`: the log was not closed,
    /// and the policy requires that. `PermissionDenied`: the folder may not be written. `NoSpace`,
    /// `Io`: nothing is lost; open again when the cause is gone.
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
        let store = FileStore::open_on(disk, path.as_ref(), self.validated_files()?)?;
        Wal::with_store(store, self.clone())
    }

    /// Opens the log as [`open`](Options::open) does. Then passes every record from the one at
    /// `from` on, or from the head on, to `f` before any thread can append. For engines that replay
    /// while they open.
    ///
    /// Records are borrowed and come in LSN order, also after a clean close. Recovery is complete
    /// before the first record: the log keeps what `f` was given. An error from `f` ends the open.
    /// Nothing is lost by it, and the next open replays the same records.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("palisade-replay-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// use palisade::{Error, Options, Replay, Wal};
    ///
    /// Wal::open(&folder)?.commit(b"balance 7")?;
    /// let mut balances = Vec::new();
    /// let wal = Options::new().open_replaying(&folder, None, |event| {
    ///     match event {
    ///         Replay::Segment(start) => println!("{} of {}", start.at, start.end),
    ///         Replay::Record(record) => balances.push(record.data().to_vec()),
    ///         _ => {}
    ///     }
    ///     Ok::<(), Error>(())
    /// })?;
    /// assert_eq!(balances, [b"balance 7"]);
    /// # wal.close()?;
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Options::open) and [`records_from`](Wal::records_from).
    /// `Corrupt`: a record that is replayed does not validate. The error that `f` returned.
    pub fn open_replaying<E: From<Error>>(
        &self,
        path: impl AsRef<Path>,
        from: Option<Lsn>,
        f: impl FnMut(Replay<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Wal, E> {
        let store = FileStore::open(path, self.validated_files()?)?;
        Wal::with_store_replaying(store, self.clone(), from, f)
    }

    /// Returns what [`open`](Options::open) would find and decide about the log in the folder
    /// `path`. Holds the log's lock meanwhile. Changes nothing.
    ///
    /// The log must exist, whatever the [open mode](Options::open_mode) is. In the report `base`,
    /// `epoch` and `appends_survive_kill` are not set.
    ///
    /// # Errors
    /// As [`open`](Options::open), except those of writing.
    pub fn dry_run(&self, path: impl AsRef<Path>) -> Result<RecoveryReport> {
        let mut files = self.validated_files()?.clone();
        files.open_mode = OpenMode::MustExist;
        let store = FileStore::open(path, &files)?;
        palisade_core::Wal::dry_run(store, self.log())
    }
}

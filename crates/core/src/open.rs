//! Opens a log.

use std::path::Path;
use std::sync::Arc;

use palisade_store::disk::{Disk, OsDisk};
use palisade_store::{FileOptions, FileStore, IntoStore, OpenMode, ReadStore};

use crate::events::{self, span};
use crate::recovery::{dry_run, recover};
use crate::{Lsn, Options, Records, RecoveryReport, Result, Wal, codec};

impl Wal {
    /// Opens the log in the folder `path` with the default [`Options`], or creates it and the
    /// folder, but not the folder's parents. If you create these, sync the folders that hold them.
    ///
    /// # Durability
    /// Everything that was recovered survives power loss when this returns.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Wal> {
        Options::new().open(path)
    }

    /// Opens the log in `store`. A [`MemStore`](crate::MemStore) fixes the segment size, writes no
    /// zeros ahead of the tail, and sets with [`kept_buffer`](crate::MemStore::kept_buffer) what
    /// [`Auto`](crate::BufferKind::Auto) means. A store that was opened before ignores the settings
    /// of files.
    ///
    /// ```
    /// use palisade::{MemStore, Options, Wal};
    ///
    /// let store = MemStore::new(1 << 20);
    /// let lsn = Wal::with_store(store.clone(), Options::new())?.commit(b"record")?;
    /// let wal = Wal::with_store(store, Options::new())?;
    /// assert_eq!(wal.get(lsn)?.data(), b"record");
    /// # Ok::<(), palisade::Error>(())
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
    /// As [`Wal::open`].
    ///
    /// # Errors
    /// These errors change nothing, but an open makes the file `lock` if it is missing, and before
    /// a `Corrupt` it may have replaced files by checked copies of them: `InvalidArgument`,
    /// `NotFound`, `AlreadyExists`, `Mismatch`, `Locked`. `Foreign`: also a log without its file
    /// `meta` ([`Repair`](crate::Repair)). `Unsupported`: also
    /// [`BufferKind::Mapped`](crate::BufferKind) without a memory file system at `/dev/shm`.
    /// `Corrupt`: after a close only a reader or [`Verify::Full`](crate::Verify::Full) finds
    /// damaged records.
    ///
    /// After these errors files may have changed, but nothing is lost: `NotFound` whose text says
    /// that the folder was moved, removed or replaced. `PermissionDenied`: also if the log buffer
    /// belongs to another user. `OutOfRange`: no LSN is left. `NoSpace`, `NoFiles`, `Io`: open
    /// again when the cause is gone; but if the text says that a copied folder was not synced, copy
    /// the log again.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Wal> {
        self.open_on(Arc::new(OsDisk), path)
    }

    /// Opens as [`open`](Options::open) does, on another [`disk`](crate::disk). A relative path
    /// begins at the process's working directory.
    ///
    /// ```
    /// use palisade::{Options, disk::MemDisk};
    /// use std::sync::Arc;
    ///
    /// let wal = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    /// wal.commit(b"record")?;
    /// # Ok::<(), palisade::Error>(())
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

    /// Opens as [`open`](Options::open) does, but lets the engine read the recovered records before
    /// appends.
    ///
    /// # Errors
    /// As [`open`](Options::open).
    pub fn recover(&self, path: impl AsRef<Path>) -> Result<Recovery> {
        self.open(path).map(Recovery)
    }

    /// Recovers on another disk: see [`recover`](Options::recover) and
    /// [`open_on`](Options::open_on).
    ///
    /// # Errors
    /// As [`open`](Options::open).
    pub fn recover_on(&self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Recovery> {
        self.open_on(disk, path).map(Recovery)
    }

    /// Returns what [`open`](Options::open) would find and decide about an existing log. Holds its
    /// lock, and changes nothing, but makes the file `lock` if it is missing. Waits for the device
    /// if no open of the log was ever completed. In the report `base`, `epoch` and
    /// `appends_survive_kill` are not set.
    ///
    /// # Errors
    /// As [`open`](Options::open), except `OutOfRange` and those of writing.
    pub fn dry_run(&self, path: impl AsRef<Path>) -> Result<RecoveryReport> {
        self.dry_run_on(Arc::new(OsDisk), path)
    }

    /// Does a [`dry_run`](Options::dry_run) on another disk.
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

    /// Does a [`dry_run`](Options::dry_run) in a store.
    ///
    /// # Errors
    /// As [`dry_run`](Options::dry_run).
    #[doc(hidden)]
    pub fn dry_run_in(&self, store: FileStore) -> Result<RecoveryReport> {
        codec::check_state(&store.state()?, self.codec.as_deref())?;
        dry_run(&Arc::new(store), self)
    }
}

/// A recovered log, which accepts appends after [`start`](Recovery::start). Its
/// [`records`](Recovery::records) are durable, so a replay that fails loses nothing.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// use palisade::{Options, ReplayFrom, Wal};
///
/// Wal::open(&folder)?.commit(b"balance 7")?;
///
/// let recovery = Options::new().recover(&folder)?;
/// println!("{} torn bytes removed", recovery.report().torn_bytes);
/// let mut balances = Vec::new();
/// let mut records = recovery.records(ReplayFrom::Checkpoint)?;
/// while let Some(record) = records.next()? {
///     balances.push(record.data().to_vec());
/// }
/// let wal = recovery.start();
/// assert_eq!(balances, [b"balance 7"]);
/// # Ok::<(), palisade::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the log accepts appends only after `start`"]
pub struct Recovery(Wal);

/// Where a replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayFrom {
    /// At the head.
    Head,
    /// At the last [`checkpoint`](Wal::checkpoint), or at the head if that is higher.
    Checkpoint,
    /// At this record, or the end of one, or at the end of the log.
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

    /// Returns the head.
    #[must_use]
    pub fn head(&self) -> Lsn {
        self.0.head_lsn()
    }

    /// Returns the last checkpoint: see [`Wal::checkpoint_lsn`].
    #[must_use]
    pub fn checkpoint(&self) -> Lsn {
        self.0.checkpoint_lsn()
    }

    /// Returns the end of the recovered log. Marks can lie above the last record. Appends continue
    /// at [`RecoveryReport::base`].
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.report().end
    }

    /// Returns the recovered records from `from` on. May be called again.
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

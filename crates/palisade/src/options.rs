//! Everything that can be chosen about a log, in one builder.

use std::path::Path;
use std::sync::Arc;

use palisade_core::{RecoveryPolicy, Replay, SyncPolicy, Verify};
use palisade_store::disk::{Disk, OsDisk};
use palisade_store::{BufferKind, FileOptions, FileStore, OnRelease, OpenMode};

use crate::{Error, ErrorKind, Lsn, RecoveryReport, Result, Wal};

/// Settings of a log on files: those of the log and those of its folder.
///
/// Each has a default that suits one log on a local disk. Nothing is checked before
/// [`open`](Options::open).
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("palisade-options-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&folder);
/// use palisade::{Options, SyncPolicy};
/// use std::time::Duration;
///
/// let wal = Options::new()
///     .segment_bytes(16 << 20)
///     .buffer_bytes(4 << 20)
///     .sync_policy(SyncPolicy::Interval(Duration::from_millis(5)))
///     .create_new(true)
///     .open(&folder)?;
/// # wal.close()?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they open a log"]
pub struct Options {
    log: palisade_core::Options,
    files: FileOptions,
    create: bool,
    create_new: bool,
    must_exist: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            log: palisade_core::Options::default(),
            files: FileOptions::default(),
            create: true,
            create_new: false,
            must_exist: false,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Bytes of log in a segment: a multiple of 4096 from 64 KiB to 1 TiB, fixed when the log is
    /// made. Default 64 MiB, or whatever an existing log has.
    ///
    /// At most 64 segments that are not synced have open files: a write that would need more syncs
    /// the oldest one. Small segments under [`SyncPolicy::Os`], or without commits, make it so.
    pub fn segment_bytes(mut self, bytes: u64) -> Options {
        self.files.segment_bytes = Some(bytes);
        self
    }

    /// Bytes of the log buffer: a power of two from 4 KiB to 1 GiB. Default 16 MiB; half as
    /// much again is used for publish slots.
    pub fn buffer_bytes(mut self, bytes: usize) -> Options {
        self.log.buffer_bytes = bytes;
        self
    }

    /// What the buffer lies on. Default [`BufferKind::Auto`]: memory of the operating system where
    /// that is possible, so that an append survives the death of the process.
    pub fn buffer(mut self, kind: BufferKind) -> Options {
        self.files.buffer = kind;
        self
    }

    /// When the log syncs by itself. Default [`SyncPolicy::OnCommit`]. The time of
    /// [`SyncPolicy::Interval`] is above 0 and at most a day.
    pub fn sync_policy(mut self, policy: SyncPolicy) -> Options {
        self.log.sync_policy = policy;
        self
    }

    /// Whether a log is made where there is none. Default true; `false` is the same as
    /// [`must_exist`](Options::must_exist).
    pub fn create(mut self, create: bool) -> Options {
        self.create = create;
        self
    }

    /// Whether a log that is there already is an error. Default false.
    pub fn create_new(mut self, create_new: bool) -> Options {
        self.create_new = create_new;
        self
    }

    /// Whether the log has to be there: a disk that is not mounted must not yield an empty log.
    /// Default false. Together with [`create_new`](Options::create_new) it is an error at open.
    pub fn must_exist(mut self, must_exist: bool) -> Options {
        self.must_exist = must_exist;
        self
    }

    /// Released segments that are kept at least, to be used again; as many as the log takes between
    /// two truncations, where that is more, up to four times the option. Default 4. The space that
    /// an open needs on a full disk is kept apart from them, by a file `reserve`.
    pub fn spare_segments(mut self, count: usize) -> Options {
        self.files.spare_segments = count;
        self
    }

    /// Whether segments are written with zeros ahead of the tail. Default true.
    pub fn zero_fill(mut self, zero_fill: bool) -> Options {
        self.files.zero_fill = zero_fill;
        self
    }

    /// Permissions of the files that the log makes, on Unix; elsewhere it means nothing. Default
    /// [`DEFAULT_FILE_MODE`](crate::DEFAULT_FILE_MODE), `0o600`: only the user that the process
    /// runs as reads and writes them. The owner's bits of the default must be among those given. A
    /// folder that the log makes gets the same, and the right to go through it for each that may
    /// read: `0o700` by default.
    ///
    /// The process's umask takes bits away as from any file. Files and folders that are there keep
    /// what they have. Whoever may read the file `lock` can hold the log's lock.
    pub fn file_mode(mut self, mode: u32) -> Options {
        self.files.file_mode = mode;
        self
    }

    /// Gives each segment that [`truncate_before`](palisade_core::Wal::truncate_before) releases to
    /// `callback`, before the log loses it; [`OnRelease`] says when and on which thread. An
    /// [`Archive`](crate::Archive) copies the segments into a folder. Default: none.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("palisade-release-{}",
    /// std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// use palisade::{Error, OnRelease, Options, ReleasedSegment, Result};
    /// use std::collections::BTreeMap;
    /// use std::io::Read;
    /// use std::sync::{Arc, Mutex};
    ///
    /// /// Stands for a bucket of an object store.
    /// #[derive(Debug, Default)]
    /// struct Bucket(Mutex<BTreeMap<String, Vec<u8>>>);
    ///
    /// impl OnRelease for Bucket {
    ///     fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
    ///         let mut bytes = Vec::new();
    ///         segment
    ///             .reader()
    ///             .read_to_end(&mut bytes)
    ///             .map_err(|error| Error::io("read the segment", error))?;
    ///         // Until this has succeeded the segment stays in the log.
    ///         let key = format!("{}/{}", segment.uuid, segment.file_name());
    ///         self.0.lock().unwrap().insert(key, bytes);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let bucket = Arc::new(Bucket::default());
    /// let wal = Options::new()
    ///     .segment_bytes(64 << 10)
    ///     .on_release(Arc::clone(&bucket))
    ///     .open(&folder)?;
    /// wal.append(&[1; 30_000])?;
    /// wal.append(&[2; 30_000])?;
    /// let third = wal.append(&[3; 30_000])?.lsn(); // in the second segment
    /// wal.truncate_before(third)?;
    /// let key = format!("{}/segment-{:020}", wal.uuid(), 0);
    /// assert!(bucket.0.lock().unwrap().contains_key(&key));
    /// # wal.close()?;
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok(()) }
    /// ```
    pub fn on_release(mut self, callback: impl OnRelease + 'static) -> Options {
        self.files.on_release = Some(Arc::new(callback));
        self
    }

    /// A write to the operating system begins when this many bytes are filled, without waiting
    /// for a commit. At least 1. Default 1 MiB.
    pub fn write_bytes(mut self, bytes: usize) -> Options {
        self.log.write_bytes = bytes;
        self
    }

    /// How long a leader waits for committers that it has just woken, in percent of a measured
    /// sync. At most 100. Default 50; 0 turns gathering off.
    pub fn gather_percent(mut self, percent: u32) -> Options {
        self.log.gather_percent = percent;
        self
    }

    /// Futures and callbacks that may wait at one time, at least 1. Default 65 536. Threads are not
    /// counted.
    pub fn max_waiters(mut self, count: usize) -> Options {
        self.log.max_waiters = count;
        self
    }

    /// Bytes that an iterator reads ahead, from 4 KiB to 1 GiB. Default 256 KiB.
    pub fn read_ahead_bytes(mut self, bytes: usize) -> Options {
        self.log.read_ahead_bytes = bytes;
        self
    }

    /// What an open does about an end that is not clean. Default [`RecoveryPolicy::Strict`].
    pub fn recovery(mut self, policy: RecoveryPolicy) -> Options {
        self.log.recovery = policy;
        self
    }

    /// How much of the log an open checks. Default [`Verify::Tail`].
    pub fn verify(mut self, verify: Verify) -> Options {
        self.log.verify = verify;
        self
    }

    /// Threads of [`Verify::Full`], at most 256. Default 0: one for each core.
    pub fn verify_threads(mut self, count: usize) -> Options {
        self.log.verify_threads = count;
        self
    }

    /// Whether each sync ends with a block of 4096 bytes, so that no block that a sync has covered
    /// is written again. Default false. For media on which power loss during a write can damage
    /// all of the block that is written to; it costs up to 4 KiB of log for each sync.
    pub fn pad_to_block(mut self, pads: bool) -> Options {
        self.log.pad_to_block = pads;
        self
    }

    /// Opens the log in the folder `path`, and makes it if there is none and the options allow.
    ///
    /// # Durability
    /// Everything that was recovered survives power loss when this returns.
    ///
    /// # Errors
    /// Refused, and nothing is changed: `InvalidArgument`: an option or the path. `NotFound`,
    /// `AlreadyExists`: as the options ask. `Foreign`: the folder holds something else.
    /// `Unsupported`: a newer format. `Mismatch`: another segment size. `Locked`: another process
    /// holds the log. `Corrupt`: acknowledged data is damaged. `Unclean`: not closed cleanly, and
    /// the policy wants that. `PermissionDenied`: the folder may not be written. `NoSpace`, `Io`:
    /// nothing is lost; open again when the cause is gone.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Wal> {
        self.open_on(Arc::new(OsDisk), path)
    }

    /// As [`open`](Options::open), on another disk than that of the operating system: see
    /// [`disk`](crate::disk). The path is one of that disk; a relative path begins at the process's
    /// working directory.
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
        Wal::with_store(self.open_store(disk, path.as_ref(), self.create)?, self.clone())
    }

    /// As [`open`](Options::open), handing every record from the one at `from` on, or from the
    /// head on, to `f` before anybody can append: for engines that replay while they open.
    ///
    /// Records are borrowed and come in LSN order, after a clean close, too. Recovery is complete
    /// before the first of them: what `f` was given stays in the log. An error from `f` ends the
    /// open; nothing is lost by it, and the next open replays the same records.
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
    /// As [`open`](Options::open) and [`iter_from`](palisade_core::Wal::iter_from). `Corrupt`: a
    /// record that is replayed does not validate. What `f` returned.
    pub fn open_replaying<E: From<Error>>(
        &self,
        path: impl AsRef<Path>,
        from: Option<Lsn>,
        f: impl FnMut(Replay<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Wal, E> {
        let store = self.open_store(Arc::new(OsDisk), path.as_ref(), self.create)?;
        Wal::with_store_replaying(store, self.clone(), from, f)
    }

    /// What [`open`](Options::open) would find and decide about the log in the folder `path`,
    /// which must be there. Takes the log's lock meanwhile; changes nothing.
    ///
    /// In the report `base`, `epoch` and `appends_survive_kill` are not set.
    ///
    /// # Errors
    /// As [`open`](Options::open), as far as reading can tell.
    pub fn foresee(&self, path: impl AsRef<Path>) -> Result<RecoveryReport> {
        let store = self.open_store(Arc::new(OsDisk), path.as_ref(), false)?;
        palisade_core::Wal::foresee(store, &self.log)
    }

    fn open_store(&self, disk: Arc<dyn Disk>, path: &Path, create: bool) -> Result<FileStore> {
        self.log.validate()?;
        let mode = match (self.must_exist || !create, self.create_new) {
            (true, true) => {
                let text = "create_new asks for a log to be made, create(false) or must_exist for \
                            none to be made";
                return Err(Error::new(ErrorKind::InvalidArgument, text));
            }
            (true, false) => OpenMode::MustExist,
            (false, true) => OpenMode::CreateNew,
            (false, false) => OpenMode::Create,
        };
        let mut files = self.files.clone();
        files.mode = mode;
        FileStore::open_on(disk, path, &files)
    }

    pub(crate) fn log(&self) -> &palisade_core::Options {
        &self.log
    }
}

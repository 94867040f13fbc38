use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use palisade::disk::{Access, DEFAULT_FILE_MODE, Disk, DiskFolder};
use palisade::{Error, ErrorKind, Lsn, ReplayFrom, Result, Wal};
use redb::{BackendError, StorageBackend};

use crate::base::{self, Base};
use crate::header::Header;
use crate::locks::{Lock, Locks};
use crate::options::Options;
use crate::record::{self, Replay};
use crate::room::Room;
use crate::state::{PAGE, PAGE_BYTES, State};

type LockResult<T> = std::result::Result<T, BackendError>;

/// A storage for redb: a log, and a base file that has what the log no longer has. Clones are
/// handles of the same storage.
///
/// Pass it to [`redb::Builder::create_with_backend`], which opens a database that is there, and
/// makes one in an empty storage. A close of the database makes a checkpoint and closes the log.
/// A handle that no database ever had closes the log when it is dropped.
///
/// # Locks
/// Only one database at a time can write to a storage, and none while others read it with
/// [`redb::Builder::open_read_only_with_backend`]. On a clone, redb refuses a second database with
/// [`redb::DatabaseError::DatabaseAlreadyOpen`]. After the last database was closed, a clone gets
/// an error of the kind `Closed`: open the storage again. The same after an open of a database that
/// failed, if no other one is open: redb then closes the storage.
///
/// # Durability
/// A sync is durable when [`sync_data`](StorageBackend::sync_data) returns, with two exceptions. A
/// sync after which redb's header names the same commit as before is only ordered before all later
/// ones. A sync of a header that redb has not finished becomes a part of the next one. redb makes
/// such syncs to order its writes; no commit and no close ends with one.
///
/// # Blocking
/// A sync waits for one sync of the log. If the synced pages take more than
/// [`memory_bytes`](Options::memory_bytes), if the log or its segments take more than
/// [`log_bytes`](Options::log_bytes), or if its limit is near, it also makes a checkpoint: it
/// writes all synced pages to the base file, waits for its sync, and truncates the log. Reads of
/// the storage continue meanwhile; redb may write before it reads, and a write waits if the change
/// has more than `memory_bytes`. To choose the time of this stall, call
/// [`checkpoint`](PalisadeBackend::checkpoint) from a thread of your own.
///
/// # Errors
/// Each error is an [`io::Error`] with a [`palisade::Error`] in it, which names the file and what
/// to do. After a failed sync, checkpoint or write to the base file, each later sync and checkpoint
/// fails: open the database again. If a commit fails, the next open shows all of it or nothing, and
/// frees a log that is at its limit.
pub struct PalisadeBackend {
    storage: Arc<Storage>,
    /// The number of this handle in `Storage::locks`.
    handle: u64,
}

struct Storage {
    wal: Wal,
    base: Base,
    state: RwLock<State>,
    /// redb's header as of the last sync. A sync, a checkpoint and a spill hold it. It is locked
    /// before `state`.
    header: Mutex<Header>,
    /// Whether a call has failed that may have left the base file or the log behind the state.
    has_failed: AtomicBool,
    locks: Mutex<Locks>,
    memory_pages: usize,
    room: Room,
}

impl PalisadeBackend {
    /// Opens the storage in the folder `path`, or makes it, with the default [`Options`].
    ///
    /// # Durability
    /// As [`Options::open`].
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<PalisadeBackend> {
        Options::new().open(path)
    }

    pub(crate) fn open_on(
        options: Options,
        disk: Arc<dyn Disk>,
        path: &Path,
    ) -> Result<PalisadeBackend> {
        let folder = open_folder(&*disk, path)?;
        let base_path = path.join(base::NAME);
        let find = || {
            let found = Base::open(&*folder, base_path.clone())?;
            let len = found.as_ref().map_or(Ok(0), Base::len)?;
            Ok((found, len))
        };
        // The base file is made after the log: a new log in its place would be a loss of commits.
        if find()?.0.is_some() && !has_log(&*disk, &path.join("log"))? {
            return Err(lost("the log", path));
        }
        let recovery = options.log.recover_on(disk, path.join("log"))?;
        let (found, base_len) = find()?; // again, under the lock of the log

        let mut replay = Replay::default();
        replay.take_all(recovery.records(ReplayFrom::Head)?)?;
        let is_lost = match &found {
            Some(_) => (base_len > 0 && replay.records == 0).then_some("the records of the log"),
            None => (replay.records > 0).then_some("the base file"),
        };
        if let Some(what) = is_lost {
            return Err(lost(what, path));
        }
        let base = found.map_or_else(|| Base::create(&*folder, base_path.clone()), Ok)?;
        if base_len == 0 {
            // A process that died may have made the file and not synced its name.
            let synced = folder.sync();
            synced.map_err(|error| Error::io("sync the folder", error).at_path(path))?;
        }
        let (first_page, begun) = (replay.first_page.take(), replay.begun);
        let state = replay.into_state();
        if base_len < state.base_len {
            return Err(base.too_short(state.base_len));
        }
        if let Some(page) = first_page {
            base.check_first_page(&page, state.base_len)?;
        }

        let wal = recovery.start();
        if wal.max_record_bytes() < record::LEAST_LONGEST {
            let text = format!("a record of the log has at most {} bytes", wal.max_record_bytes());
            let error = Error::new(ErrorKind::InvalidArgument, text).at_path(path);
            return Err(error.with_advice("set buffer_bytes and segment_bytes to 64 KiB at least"));
        }
        let storage = Storage::new(&options, wal, base, state)?;
        storage.make_room(begun)?;
        Ok(PalisadeBackend::handle_of(Arc::new(storage)))
    }

    fn handle_of(storage: Arc<Storage>) -> PalisadeBackend {
        let handle = storage.locks().add_handle();
        PalisadeBackend { storage, handle }
    }

    /// Returns the log, for its statistics, its space and its records. Append nothing to it, and
    /// truncate nothing: the next open would refuse the log, or lose commits. Create no cursor: the
    /// next checkpoint would fail, and with it the commit that makes it.
    #[must_use]
    pub fn log(&self) -> &Wal {
        &self.storage.wal
    }

    /// Writes all synced pages to the base file, and truncates the log. Blocks for about four syncs
    /// and the writes. Syncs of the database wait for it, and so do writes of a change that has
    /// more than [`memory_bytes`](Options::memory_bytes); reads do not.
    ///
    /// # Durability
    /// All syncs that have returned survive power loss, also those that were only ordered. A commit
    /// with [`redb::Durability::None`] makes no sync, so a checkpoint does not make it durable.
    ///
    /// # Errors
    /// As [`Wal::commit`] and [`Wal::truncate_before`], and those of the base file. Nothing is
    /// lost: open the database again. `NoSpace`: the disk is full; free space first. A log at its
    /// limit is no error. `Closed` after the close of the database.
    pub fn checkpoint(&self) -> Result<()> {
        let _one = self.storage.one_at_a_time();
        self.storage.watch_open(Storage::checkpoint)
    }

    fn try_lock(&self, lock: Lock, start: Bound<u64>, end: Bound<u64>) -> LockResult<bool> {
        check_whole(start, end)?;
        let mut locks = self.storage.locks();
        if locks.is_closed {
            return Err(BackendError::Io(closed().into()));
        }
        Ok(locks.try_take(self.handle, lock))
    }
}

impl Storage {
    fn new(options: &Options, wal: Wal, base: Base, state: State) -> Result<Storage> {
        let mut header = [0; PAGE_BYTES];
        state.read(&base, 0, &mut header)?;
        Ok(Storage {
            wal,
            base,
            state: RwLock::new(state),
            header: Mutex::new(Header::of(&header)),
            has_failed: AtomicBool::new(false),
            locks: Mutex::default(),
            memory_pages: (options.memory_bytes / PAGE) as usize,
            room: Room::new(options.log_bytes),
        })
    }

    /// Lets the log of a crashed process take records, and keeps it short however often that
    /// happens. `begun` is the record of a checkpoint that this process had begun at its end.
    fn make_room(&self, begun: Option<Lsn>) -> Result<()> {
        // It may also have ended between a truncation and the release of the segments.
        self.wal.truncate_before(self.wal.head_lsn())?;
        if self.room.is_long(&self.wal)? || self.room.is_short(&self.wal, 0)? {
            self.checkpoint_from(begun).map_err(advise)?;
        }
        Ok(())
    }

    fn one_at_a_time(&self) -> MutexGuard<'_, Header> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call as `watch`, but not after a close: another storage may have the base file then.
    /// The caller has the lock of `header`, so a close that begins meanwhile waits.
    fn watch_open(&self, call: impl FnOnce(&Storage) -> Result<()>) -> Result<()> {
        if self.locks().is_closed { Err(closed()) } else { self.watch(call) }
    }

    /// Makes a call that must not be repeated after it has failed: a second sync of a file can
    /// succeed although the first one has lost its writes.
    fn watch<T>(&self, call: impl FnOnce(&Storage) -> Result<T>) -> Result<T> {
        if self.has_failed.load(Ordering::Acquire) {
            let text = "an earlier write, sync or checkpoint of the storage failed";
            return Err(Error::new(ErrorKind::Poisoned, text)
                .with_advice("open the database again, which loses nothing"));
        }
        let result = call(self).map_err(advise);
        if result.is_err() {
            self.has_failed.store(true, Ordering::Release);
        }
        result
    }

    fn sync(&self, last: &mut Header) -> Result<()> {
        // Without the lock of the state, so that reads do not wait for the device.
        let (has_spilled, changed) = {
            let state = self.reading();
            (state.has_spilled, state.change.pages.len())
        };
        if has_spilled {
            self.base.sync()?;
        }
        if self.room.is_short(&self.wal, changed)? {
            self.checkpoint()?;
        }
        let mut state = self.writing();
        let header = state.change.pages.get(&0).map_or(*last, |page| Header::of(page));
        if header == Header::Unfinished {
            return Ok(()); // it stays a part of the change
        }
        let is_only_ordered = state.has_change() && header == *last && header != Header::Other;
        state.has_spilled = false;
        if state.has_change() {
            record::append(&self.wal, &state.change)?;
            state.apply_change();
            *last = header;
        }
        let is_full = state.synced.len() > self.memory_pages;
        drop(state);
        if !is_only_ordered {
            self.wal.sync()?;
        }
        if is_full || self.room.is_long(&self.wal)? { self.checkpoint() } else { Ok(()) }
    }

    fn checkpoint(&self) -> Result<()> {
        self.checkpoint_from(None)
    }

    /// 1. Commits a record with the length and the first page of the storage. All pages are durable
    ///    in the log now.
    /// 2. Writes the pages to the base file, and syncs it.
    /// 3. Truncates the log before the record.
    ///
    /// A crash before the end of 3 leaves the whole log, and a replay writes the same pages again.
    /// If the log ends with the record `begun` of such a checkpoint, there is no other one: in a
    /// full log each would take a segment beyond the limit.
    fn checkpoint_from(&self, begun: Option<Lsn>) -> Result<()> {
        let (pages, base_len, len, first) = {
            let state = self.reading();
            if !state.has_log {
                return Ok(());
            }
            let first = state.synced_first_page(&self.base)?;
            (Arc::clone(&state.synced), state.base_len, state.synced_len, first)
        };
        let lsn = match begun {
            Some(lsn) => lsn,
            None => record::commit_checkpoint(&self.wal, len, &first)?,
        };
        self.base.write(&pages, base_len, len)?;
        self.base.sync()?;
        self.wal.truncate_before(lsn)?;
        if self.wal.head_lsn() < lsn {
            return Err(self.kept_by_a_cursor());
        }
        self.writing().drop_synced();
        self.base.discard_from(len);
        Ok(())
    }

    /// Nobody may write to the base file behind such a log: the next open would replay older pages
    /// over it.
    fn kept_by_a_cursor(&self) -> Error {
        let cursors = self.wal.cursors().unwrap_or_default();
        let names: Vec<_> = cursors.into_iter().map(|cursor| cursor.name).collect();
        Error::new(ErrorKind::Unsupported, format!("cursors keep the log: {}", names.join(", ")))
            .with_advice(
                "a database keeps no log for others: remove them (Wal::remove_cursor), and open \
                 the database again, which loses nothing",
            )
    }

    /// Writes pages of a change that is too long to the base file, where redb finds them free until
    /// the change is synced. The checkpoint comes first: the log must not have older pages of the
    /// same place, or the next open would replay them over these.
    fn spill(&self) -> Result<()> {
        if !self.reading().has_spilled {
            self.checkpoint()?;
        }
        let mut state = self.writing();
        let pages = state.take_spill();
        state.has_spilled |= !pages.is_empty();
        let written = self.base.write_pages(&pages);
        if written.is_err() {
            state.change.pages.extend(pages); // reads still find them
        }
        written
    }
}

impl StorageBackend for PalisadeBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.storage.reading().len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.storage.reading();
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > state.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(state.read(&self.storage.base, offset, out)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.storage.writing().set_len(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut header = self.storage.one_at_a_time();
        Ok(self.storage.watch_open(|storage| storage.sync(&mut header))?)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let storage = &self.storage;
        let changed = {
            let mut state = storage.writing();
            state.write(&storage.base, offset, data)?;
            state.change.pages.len()
        };
        if changed > storage.memory_pages {
            let _one = storage.one_at_a_time();
            storage.watch_open(Storage::spill)?;
        }
        Ok(())
    }

    /// Releases the lock of this handle. If no other handle has one, makes a checkpoint and closes
    /// the log.
    fn close(&self) -> io::Result<()> {
        {
            let mut locks = self.storage.locks();
            locks.release(self.handle);
            if locks.is_held() {
                return Ok(());
            }
            locks.is_closed = true;
        }
        let _one = self.storage.one_at_a_time();
        let checkpoint = self.storage.watch(Storage::checkpoint);
        let closed = self.storage.wal.close();
        Ok(checkpoint.and(closed)?)
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> LockResult<bool> {
        self.try_lock(Lock::Exclusive, start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> LockResult<bool> {
        self.try_lock(Lock::Shared, start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> LockResult<()> {
        check_whole(start, end)?;
        self.storage.locks().release(self.handle);
        Ok(())
    }
}

impl Clone for PalisadeBackend {
    fn clone(&self) -> PalisadeBackend {
        PalisadeBackend::handle_of(Arc::clone(&self.storage))
    }
}

impl Drop for PalisadeBackend {
    fn drop(&mut self) {
        self.storage.locks().release(self.handle);
    }
}

impl fmt::Debug for PalisadeBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.storage.reading();
        f.debug_struct("PalisadeBackend")
            .field("len", &state.len())
            .field("changed_pages", &state.change.pages.len())
            .field("synced_pages", &state.synced.len())
            .field("base", &self.storage.base)
            .field("log", &self.storage.wal)
            .finish()
    }
}

/// Refuses a lock of a part: for redb's default mode a lock of the whole storage is enough.
fn check_whole(start: Bound<u64>, end: Bound<u64>) -> LockResult<()> {
    match (start, end) {
        (Bound::Unbounded | Bound::Included(0), Bound::Unbounded) => Ok(()),
        _ => Err(BackendError::Unsupported),
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the storage was closed with its database")
        .with_advice("open the storage again")
}

/// The log advises to truncate it. Here only a checkpoint may do so, as the next open does.
fn advise(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NoSpace => error.with_advice(
            "open the database again, which frees the log and loses nothing; if the error comes \
             again, free space on the disk or set a higher max_bytes",
        ),
        _ => error,
    }
}

fn lost(what: &str, path: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("the storage has lost {what}"))
        .at_path(path)
        .with_advice("restore the base file and the log from a backup")
}

/// Returns whether `folder` has the file that makes it a log.
fn has_log(disk: &dyn Disk, folder: &Path) -> Result<bool> {
    let opened = disk.open_folder(folder, DEFAULT_FILE_MODE);
    match opened.and_then(|opened| opened.open("meta", Access::Read)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("look for the log", error).at_path(folder)),
    }
}

/// Makes the folder if it is missing. Its name is durable on return.
fn open_folder(disk: &dyn Disk, path: &Path) -> Result<Arc<dyn DiskFolder>> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    let open = || {
        disk.create_folder(path, DEFAULT_FILE_MODE)?;
        disk.open_folder(parent, DEFAULT_FILE_MODE)?.sync()?;
        disk.open_folder(path, DEFAULT_FILE_MODE)
    };
    open().map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        let error = Error::io("make the folder of the database", error).at_path(path);
        match is_missing {
            true => error.with_advice("make the folder in which it is to lie first"),
            false => error,
        }
    })
}

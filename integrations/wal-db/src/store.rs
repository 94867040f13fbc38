//! Where a log is kept.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use palisade::disk::{DEFAULT_FILE_MODE, Disk, Kind, MemDisk, OsDisk};
use palisade::{BufferKind, Options, Verify};

use crate::log::Log;
use crate::place::{BUFFER_BYTES, Place};
use crate::{Result, WalError};

const OPENING: &str = "opening the log";
/// Segments of the log below are a multiple of this, at least 16 and at most 2^28 of them.
const SEGMENT_UNIT: u64 = 4096;
const MIN_SEGMENT_BYTES: u64 = 16 * SEGMENT_UNIT;
const MAX_SEGMENT_BYTES: u64 = 1 << 40;
/// The folder of a segmented log, in the one that the engine names.
const SEGMENTED: &str = "palisade";
/// The folder of a log in memory, on a disk of its own.
const IN_MEMORY: &str = "/log";
/// One `Arc` for all logs: opens of one path share the log only on clones of one.
static OS_DISK: LazyLock<Arc<dyn Disk>> = LazyLock::new(|| Arc::new(OsDisk));
/// The published crate names its segments with so many digits, and `.wal`.
const PUBLISHED_DIGITS: usize = 20;

/// A store of a log: [`FileStore`], [`SegmentedStore`] or [`MemStore`].
///
/// No other type can implement this trait: a log needs more of its store than the trait of the
/// published crate has. For another medium implement [`palisade::disk::Disk`], and pass it to
/// [`FileStore::open_on`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no store of this crate",
    note = "implement `palisade::disk::Disk`, and pass it to `wal_db::FileStore::open_on`"
)]
pub trait WalStore: Send + Sync + sealed::Open {}

pub(crate) mod sealed {
    use super::{Arc, Log, Result, Verify};

    pub trait Open {
        #[doc(hidden)]
        #[expect(private_interfaces, reason = "the trait is not reachable from outside")]
        fn open_log(&self, verify: Verify) -> Result<Arc<Log>>;
    }
}

/// A log at a path. The default.
///
/// The path is a small file. The records lie in a folder beside it, whose name is that of the file
/// with `.palisade` added. If the file is removed or emptied, the next open empties the log.
///
/// Move, copy and remove both together. What the next open does if only one of them was changed:
///
/// | change | next open |
/// |---|---|
/// | the file was renamed or moved | returns an error until the folder has moved, too |
/// | the same on Windows, on a disk of your own, or to another file system | empties the log |
/// | the file was removed, and has another hard link | returns an error: remove the folder, too |
/// | the file was removed, on Unix without hard links | the same |
/// | the folder was put in place without its file | empties it if that file was removed before |
/// | the same with a copy of the folder without hard links | returns an error |
/// | the same where files have no inode and no birth time, and on Windows | can empty the copy |
/// | the folder was moved or replaced while a handle is open | returns an error |
///
/// A folder that never had a file, such as a backup, keeps its records, and the open makes the
/// file.
#[derive(Debug)]
pub struct FileStore {
    place: Place,
    name: String,
    path: PathBuf,
}

impl FileStore {
    /// Names the log at `path`. Reads and writes no file:
    /// [`Wal::with_store`](crate::Wal::with_store) opens the log.
    ///
    /// # Errors
    /// [`Io`](WalError::Io): the folder that is to hold the file does not exist, or the name is no
    /// UTF-8.
    pub fn open(path: impl AsRef<Path>) -> Result<FileStore> {
        let path = path.as_ref();
        let found = find(path).map_err(|error| WalError::io(OPENING, error))?;
        FileStore::at(Arc::clone(&OS_DISK), true, &found, path)
    }

    /// Names a log on another disk, for example a simulated one in tests. Opens of one log share it
    /// if they pass clones of one `Arc`, and the same path. Else the second one returns an error.
    /// So does an open that finds a shared log which was closed, abandoned or poisoned: drop its
    /// handles first.
    ///
    /// # Errors
    /// [`Io`](WalError::Io): the path has no file name in UTF-8.
    pub fn open_on(disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<FileStore> {
        FileStore::at(disk, false, path.as_ref(), path.as_ref())
    }

    /// Sets the options of the log below, for example the size of its log buffer. The store sets
    /// `open_mode` and `verify` itself. Default: a log buffer of 256 KiB, and segments of 16 MiB.
    ///
    /// If this process has the log open already, the options of that open hold. An open with
    /// another size of segments returns an error.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> FileStore {
        self.place.options = Some(options);
        self
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn at(disk: Arc<dyn Disk>, is_os: bool, found: &Path, path: &Path) -> Result<FileStore> {
        let (Some(parent), Some(name)) = (found.parent(), found.file_name()) else {
            let text = format!("{} names no file", path.display());
            return Err(WalError::refused(OPENING, io::ErrorKind::InvalidInput, text));
        };
        let Some(name) = name.to_str() else {
            let text = format!("the name of {} is no UTF-8", path.display());
            return Err(WalError::refused(OPENING, io::ErrorKind::InvalidInput, text));
        };
        let place = Place { disk, is_os, parent: parent.to_path_buf(), options: None };
        Ok(FileStore { place, name: name.to_owned(), path: path.to_path_buf() })
    }
}

/// Returns `path` without links, so that two paths of one file are equal.
fn find(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let path = std::path::absolute(path)?;
    let parent = path.parent().unwrap_or(&path).canonicalize()?;
    Ok(path.file_name().map_or_else(|| parent.clone(), |name| parent.join(name)))
}

/// A log in a folder, whose prefix [`Wal::truncate_before`](crate::Wal::truncate_before) frees.
///
/// The log lies in the folder `palisade` in the one that the engine names. Other files there are
/// left alone.
#[derive(Debug)]
pub struct SegmentedStore {
    place: Place,
    segment_size: u64,
}

impl SegmentedStore {
    /// Names the log in the folder `dir`, and makes that folder and its parents, durably.
    ///
    /// The segments of the log have `segment_size` bytes, rounded up to a multiple of 4096, and at
    /// least 64 KiB. The size is fixed when the log is made.
    ///
    /// # Errors
    /// [`Io`](WalError::Io): the size is 0, a folder cannot be made, or `dir` has a log of the
    /// published crate: copy its records with that crate.
    pub fn open(dir: impl AsRef<Path>, segment_size: u64) -> Result<SegmentedStore> {
        let disk = Arc::clone(&OS_DISK);
        let dir = std::path::absolute(dir).map_err(|error| WalError::io(OPENING, error))?;
        make(disk.as_ref(), &dir).map_err(|error| WalError::io("making the folder", error))?;
        let dir = dir.canonicalize().map_err(|error| WalError::io(OPENING, error))?;
        SegmentedStore::at(disk, true, dir, segment_size)
    }

    /// Names a log on another disk, as [`FileStore::open_on`] does.
    ///
    /// # Errors
    /// As [`open`](SegmentedStore::open).
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: impl AsRef<Path>,
        segment_size: u64,
    ) -> Result<SegmentedStore> {
        let dir = dir.as_ref();
        make(disk.as_ref(), dir).map_err(|error| WalError::io("making the folder", error))?;
        SegmentedStore::at(disk, false, dir.to_path_buf(), segment_size)
    }

    /// Returns the folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.place.parent
    }

    /// Returns the size of segments that [`open`](SegmentedStore::open) was called with.
    #[must_use]
    pub fn segment_size(&self) -> u64 {
        self.segment_size
    }

    fn at(disk: Arc<dyn Disk>, is_os: bool, dir: PathBuf, segment_size: u64) -> Result<Self> {
        if segment_size == 0 {
            let text = "the size of segments is 0";
            return Err(WalError::refused(OPENING, io::ErrorKind::InvalidInput, text));
        }
        refuse_published(disk.as_ref(), &dir)?;
        let bytes = segment_size.min(MAX_SEGMENT_BYTES).next_multiple_of(SEGMENT_UNIT);
        let options =
            Options::new().segment_bytes(bytes.max(MIN_SEGMENT_BYTES)).buffer_bytes(BUFFER_BYTES);
        let place = Place { disk, is_os, parent: dir, options: Some(options) };
        Ok(SegmentedStore { place, segment_size })
    }
}

/// Makes the folder `dir` and its parents. Each name that it makes survives power loss, and so does
/// that of the first folder that exists: the process that made it may have died before it synced
/// the name.
fn make(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    let is_missing = disk.kind(dir)? == Kind::Missing;
    if is_missing {
        make(disk, parent)?;
        disk.create_folder(dir, DEFAULT_FILE_MODE)?;
    }
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match disk.open_folder(parent, DEFAULT_FILE_MODE) {
        // As the log does where it may not read the parent.
        Err(error) if !is_missing && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        opened => opened?.sync(),
    }
}

/// Refuses a folder with segments that the published crate has written.
fn refuse_published(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let names = disk.open_folder(dir, DEFAULT_FILE_MODE).and_then(|folder| folder.list());
    let names = names.map_err(|error| WalError::io(OPENING, error))?;
    let is_segment = |name: &&String| {
        let number = name.strip_suffix(".wal").unwrap_or_default();
        number.len() == PUBLISHED_DIGITS && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let Some(segment) = names.iter().find(is_segment) else { return Ok(()) };
    let text = format!(
        "{} has `{segment}`, a segment of the published wal-db. Nothing was changed. Copy its \
         records with that crate (see \"Moving a log\" in the README)",
        dir.display()
    );
    Err(WalError::refused(OPENING, io::ErrorKind::InvalidData, text))
}

/// A log in memory, for tests and examples.
#[derive(Clone, Debug, Default)]
pub struct MemStore {
    /// Bytes that only the published crate can read.
    image: Vec<u8>,
}

impl MemStore {
    /// Makes an empty store.
    #[must_use]
    pub fn new() -> MemStore {
        MemStore::default()
    }

    /// Makes an empty store. The log takes memory as it needs it, so `capacity` has no effect.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> MemStore {
        let _ = capacity;
        MemStore::default()
    }

    /// Makes a store with the bytes of a log of the published crate. This crate cannot read them:
    /// unless `bytes` is empty, [`Wal::with_store`](crate::Wal::with_store) returns
    /// [`Io`](WalError::Io).
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> MemStore {
        MemStore { image: bytes }
    }
}

impl WalStore for FileStore {}
impl WalStore for SegmentedStore {}
impl WalStore for MemStore {}

#[expect(private_interfaces, reason = "the trait is not reachable from outside")]
impl sealed::Open for FileStore {
    fn open_log(&self, verify: Verify) -> Result<Arc<Log>> {
        self.place.open(&self.name, verify)
    }
}

#[expect(private_interfaces, reason = "the trait is not reachable from outside")]
impl sealed::Open for SegmentedStore {
    fn open_log(&self, verify: Verify) -> Result<Arc<Log>> {
        self.place.open_folder(&self.place.parent.join(SEGMENTED), verify)
    }
}

#[expect(private_interfaces, reason = "the trait is not reachable from outside")]
impl sealed::Open for MemStore {
    fn open_log(&self, verify: Verify) -> Result<Arc<Log>> {
        if !self.image.is_empty() {
            let text = "the bytes are no log of this crate: give them to the published wal-db";
            return Err(WalError::refused(OPENING, io::ErrorKind::InvalidData, text));
        }
        let options = Options::new()
            .segment_bytes(1 << 20)
            .buffer_bytes(BUFFER_BYTES)
            .buffer(BufferKind::Heap)
            .verify(verify);
        let disk = MemDisk::new();
        let opened = options.open_on(Arc::new(disk.clone()), IN_MEMORY);
        let wal = opened.map_err(|error| WalError::of_log(OPENING, 0, error))?;
        let home = disk.open_folder(Path::new(IN_MEMORY), DEFAULT_FILE_MODE);
        Ok(Arc::new(Log::new(wal, home.map_err(|error| WalError::io(OPENING, error))?)))
    }
}

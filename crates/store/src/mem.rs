//! The store in memory: the store on files, on a disk in memory.

use std::path::Path;
use std::sync::Arc;

use crate::disk::{Access, Disk, MemDisk, write_bytes};
use crate::folder::segment_name;
use crate::segment::segment_file::LOG_AT;
use crate::{BufferKind, FileOptions, FileReader, FileStore};
use crate::{Error, ErrorKind, Lsn, MIN_SEGMENT_BYTES, Result};

const FOLDER: &str = "/log";

/// A log in memory: the store on files, over a [`MemDisk`].
///
/// Clones share their content. So a test drops a log that ran on one clone and opens it again on
/// another. A second log beside a running one is refused as
/// [`Locked`](crate::ErrorKind::Locked).
///
/// [`kill`](MemStore::kill) is the death of the process: the bytes that the log has written stay,
/// and the log buffer if it is [kept](MemStore::kept_buffer). [`lose_power`](MemStore::lose_power)
/// takes more away.
///
/// ```
/// use palisade::{MemStore, Options, Wal};
///
/// let store = MemStore::new(1 << 20);
/// let lsn = Wal::with_store(store.clone(), Options::new())?.commit(b"record")?;
/// assert_eq!(Wal::with_store(store, Options::new())?.get(lsn)?.data(), b"record");
/// # Ok::<(), palisade::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemStore {
    disk: MemDisk,
    segment_bytes: u64,
    buffer: BufferKind,
}

impl MemStore {
    /// Makes an empty log with segments of `segment_bytes`: a multiple of 4096, at least 4 KiB.
    ///
    /// The size is checked when a log is opened on the store.
    #[must_use]
    pub fn new(segment_bytes: u64) -> MemStore {
        MemStore { disk: MemDisk::new(), segment_bytes, buffer: BufferKind::Auto }
    }

    /// Sets whether the log buffer outlives the log that ran on it ([`BufferKind::Auto`]), or its
    /// marks only ([`BufferKind::Heap`]). Default true. Only on Linux it can outlive the log.
    #[must_use]
    pub fn kept_buffer(mut self, kept: bool) -> MemStore {
        self.buffer = if kept { BufferKind::Auto } else { BufferKind::Heap };
        self
    }

    /// Lets the store start no thread: see [`MemDisk::without_threads`].
    #[doc(hidden)]
    #[must_use]
    pub fn without_threads(mut self) -> MemStore {
        self.disk = self.disk.without_threads();
        self
    }

    /// Opens the log. A segment gets no zeros before the log comes to it.
    ///
    /// # Errors
    /// As [`FileStore::open`]. `InvalidArgument`: also the segment size. `Locked`: a log runs on a
    /// clone.
    #[doc(hidden)]
    pub fn open(&self) -> Result<FileStore> {
        self.open_as(&FileOptions::default())
    }

    /// Opens the log with the settings of `files` that the store does not fix itself.
    fn open_as(&self, files: &FileOptions) -> Result<FileStore> {
        if let Some(bytes) = files.segment_bytes.filter(|&bytes| bytes != self.segment_bytes) {
            let text = format!("segment_bytes is {bytes}; the store has {}", self.segment_bytes);
            return Err(Error::new(ErrorKind::Mismatch, text));
        }
        let options = FileOptions {
            segment_bytes: Some(self.segment_bytes),
            zero_fill: false,
            buffer: if files.buffer == BufferKind::Auto { self.buffer } else { files.buffer },
            ..files.clone()
        };
        options.validate(MIN_SEGMENT_BYTES)?;
        FileStore::open_on_any(Arc::new(self.disk.clone()), Path::new(FOLDER), &options)
    }

    /// Opens the log for reading, beside a log that may run on a clone.
    ///
    /// # Errors
    /// `NotFound`: no log was opened on the store yet.
    #[doc(hidden)]
    pub fn reader(&self) -> Result<FileReader> {
        FileReader::open_on(Arc::new(self.disk.clone()), Path::new(FOLDER))
    }

    /// Returns the disk, on which the log has the folder `/log`.
    #[doc(hidden)]
    #[must_use]
    pub fn disk(&self) -> &MemDisk {
        &self.disk
    }

    /// Overwrites the log's bytes at `at`, durably: for tests of damage. The bytes lie in one
    /// segment.
    ///
    /// # Errors
    /// `Io`: there is no such segment.
    #[doc(hidden)]
    pub fn damage(&self, at: Lsn, bytes: &[u8]) -> Result<()> {
        let name = segment_name(at.as_u64() / self.segment_bytes);
        let write = || {
            let folder = self.disk.open_folder(Path::new(FOLDER), 0)?;
            let file = folder.open(&name, Access::Write)?;
            write_bytes(file.as_ref(), LOG_AT + at.as_u64() % self.segment_bytes, bytes)?;
            file.sync_data()
        };
        write().map_err(|error| Error::io("damage the segment", error).at_lsn(at))
    }

    /// Does what the death of the process does to the log that runs on the store: see
    /// [`MemDisk::kill`].
    pub fn kill(&self) {
        self.disk.kill();
    }

    /// Does what the simplest loss of power does: see [`MemDisk::lose_power`].
    pub fn lose_power(&self) {
        self.disk.lose_power();
    }
}

/// What a log can be opened on beside a folder: a [`MemStore`], or a simulated disk.
pub trait IntoStore {
    /// Opens the store with these settings. A `MemStore` fixes the segment size and the zero fill.
    /// A store that was opened before ignores the settings.
    ///
    /// # Errors
    /// Those of the store.
    #[doc(hidden)]
    fn into_store(self, files: &FileOptions) -> Result<FileStore>;
}

#[doc(hidden)]
impl IntoStore for FileStore {
    fn into_store(self, _: &FileOptions) -> Result<FileStore> {
        Ok(self)
    }
}

impl IntoStore for MemStore {
    fn into_store(self, files: &FileOptions) -> Result<FileStore> {
        self.open_as(files)
    }
}

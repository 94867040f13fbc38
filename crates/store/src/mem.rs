//! The store in memory.

use std::path::Path;
use std::sync::Arc;

use crate::disk::{Access, Disk, MemDisk, write_bytes};
use crate::folder::segment_name;
use crate::segment::segment_file::LOG_AT;
use crate::{BufferKind, FileOptions, FileReader, FileStore};
use crate::{Error, ErrorKind, Lsn, MIN_SEGMENT_BYTES, Result};

const FOLDER: &str = "/log";

/// A log in memory, for `Wal::with_store`: the store on files, over a [`MemDisk`].
///
/// Clones share their content, so a test opens on one clone the log that ran on another. While that
/// one runs, the open returns [`Locked`](crate::ErrorKind::Locked).
#[derive(Clone, Debug)]
pub struct MemStore {
    disk: MemDisk,
    segment_bytes: u64,
    buffer: BufferKind,
}

impl MemStore {
    /// Makes an empty log with segments of `segment_bytes`, as an open checks.
    #[must_use]
    pub fn new(segment_bytes: u64) -> MemStore {
        MemStore { disk: MemDisk::new(), segment_bytes, buffer: BufferKind::Auto }
    }

    /// Sets whether the log buffer outlives its log (on Linux), or just its marks. Default true.
    #[must_use]
    pub fn kept_buffer(mut self, kept: bool) -> MemStore {
        self.buffer = if kept { BufferKind::Auto } else { BufferKind::Heap };
        self
    }

    /// As [`MemDisk::without_threads`].
    #[doc(hidden)]
    #[must_use]
    pub fn without_threads(mut self) -> MemStore {
        self.disk = self.disk.without_threads();
        self
    }

    /// Opens the log.
    ///
    /// # Errors
    /// As [`FileStore::open`]. `InvalidArgument`: also the segment size.
    #[doc(hidden)]
    pub fn open(&self) -> Result<FileStore> {
        self.open_as(&FileOptions::default())
    }

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

    /// Opens the log for reading, also beside a running log.
    ///
    /// # Errors
    /// `NotFound`: no log was opened yet.
    #[doc(hidden)]
    pub fn reader(&self) -> Result<FileReader> {
        FileReader::open_on(Arc::new(self.disk.clone()), Path::new(FOLDER))
    }

    /// Returns the disk; the log is in `/log`.
    #[doc(hidden)]
    #[must_use]
    pub fn disk(&self) -> &MemDisk {
        &self.disk
    }

    /// Overwrites bytes of one segment durably.
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

    /// Does what a kill does ([`MemDisk::kill`]): the written bytes and a
    /// [kept](MemStore::kept_buffer) log buffer stay.
    pub fn kill(&self) {
        self.disk.kill();
    }

    /// As [`MemDisk::lose_power`].
    pub fn lose_power(&self) {
        self.disk.lose_power();
    }
}

/// What a log can be opened on besides a folder.
pub trait IntoStore {
    /// Opens the store with `files`, as far as it does not fix them.
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

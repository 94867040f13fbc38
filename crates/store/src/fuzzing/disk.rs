//! The machine's disk, with log buffers in a folder beside the log's.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::DEFAULT_FILE_MODE;
use crate::disk::OsDisk;
use crate::disk::{Disk, DiskFolder, Kind};

/// Where the buffer of the log in `folder` lies.
pub(super) fn memory_of(folder: &Path) -> PathBuf {
    folder.with_extension("memory")
}

#[derive(Debug)]
pub(super) struct FuzzDisk {
    memory: PathBuf,
}

impl FuzzDisk {
    /// The disk for the log in `folder`.
    pub(super) fn of(folder: &Path) -> FuzzDisk {
        let memory = memory_of(folder);
        // Without it the log's buffer lies on the heap.
        let _ = std::fs::create_dir_all(&memory);
        FuzzDisk { memory }
    }
}

impl Disk for FuzzDisk {
    fn kind(&self, path: &Path) -> io::Result<Kind> {
        OsDisk.kind(path)
    }

    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()> {
        OsDisk.create_folder(path, file_mode)
    }

    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        OsDisk.open_folder(path, file_mode)
    }

    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        let folder = OsDisk.open_folder(&self.memory, DEFAULT_FILE_MODE)?;
        Ok(Some((self.memory.clone(), folder)))
    }
}

//! A disk in memory whose space tests control and whose calls they count.

#![allow(clippy::missing_panics_doc, reason = "a test ends where its disk does not obey")]

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::Result;
use crate::disk::{Access, Disk, DiskFile, DiskFolder, Kind, MemDisk, read_full, write_bytes};
use crate::sim::{Call, CallKind, Calls, FaultDisk, FaultKind, SimDisk, Target};
use crate::sync::Mutex;
use crate::{FileOptions, FileStore};

#[cfg(unix)]
const NO_DESCRIPTOR: i32 = 24;
#[cfg(windows)]
const NO_DESCRIPTOR: i32 = 4;

const FOLDER: &str = "/log";

#[derive(Debug, Default)]
struct Controls {
    is_full: bool,
    frees_by_removal: bool,
    syncs: usize,
    awaited_syncs: usize,
    /// Only the open after so many lacks a descriptor.
    opens_before_a_lack: Option<u64>,
}

impl Controls {
    fn meet(&mut self, call: &Call<'_>, frees: bool) -> io::Result<()> {
        let is_memory = matches!(call.target, Target::Buffer | Target::Marks);
        match call.kind {
            CallKind::Open | CallKind::Create => return self.open(),
            CallKind::Sync | CallKind::SyncFolder if !is_memory => {
                self.syncs += 1;
                self.awaited_syncs += usize::from(!call.is_background);
            }
            CallKind::Write | CallKind::Allocate if self.is_full && call.grows && !is_memory => {
                return Err(FaultKind::NoSpace.error());
            }
            CallKind::Remove if self.frees_by_removal && frees => self.is_full = false,
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self) -> io::Result<()> {
        let before = self.opens_before_a_lack;
        self.opens_before_a_lack = before.and_then(|before| before.checked_sub(1));
        if before == Some(0) {
            return Err(io::Error::from_raw_os_error(NO_DESCRIPTOR));
        }
        Ok(())
    }
}

/// A disk with the log in `/log`. Clones share it.
#[derive(Clone, Debug)]
pub struct TestDisk {
    below: Arc<dyn Disk>,
    pub faults: FaultDisk,
    controls: Arc<Mutex<Controls>>,
}

impl Default for TestDisk {
    fn default() -> TestDisk {
        TestDisk::new()
    }
}

impl TestDisk {
    #[must_use]
    pub fn new() -> TestDisk {
        TestDisk::over(Arc::new(MemDisk::new()))
    }

    #[must_use]
    pub fn without_threads() -> TestDisk {
        TestDisk::over(Arc::new(MemDisk::new().without_threads()))
    }

    pub fn copying_on_write() -> TestDisk {
        TestDisk::over(SimDisk::new(1).copy_on_write().as_disk())
    }

    /// Returns the same disk with new controls.
    pub fn again(&self) -> TestDisk {
        TestDisk::over(Arc::clone(&self.below))
    }

    fn over(below: Arc<dyn Disk>) -> TestDisk {
        let faults = FaultDisk::new(Arc::clone(&below));
        let controls = Arc::<Mutex<Controls>>::default();
        let watching = Arc::clone(&controls);
        let disk = TestDisk { below, faults: faults.clone(), controls };
        let files = Arc::clone(&disk.below);
        faults.watch(move |call| {
            // A name that is not there frees nothing.
            let open =
                || files.open_folder(Path::new(FOLDER), 0o600)?.open(call.name, Access::Read);
            let frees = call.kind == CallKind::Remove && open().is_ok();
            watching.lock().meet(call, frees)
        });
        disk
    }

    pub fn open(&self, options: &FileOptions) -> Result<FileStore> {
        self.open_at(FOLDER, options)
    }

    pub fn open_at(&self, folder: &str, options: &FileOptions) -> Result<FileStore> {
        FileStore::open_on_any(Arc::new(self.faults.clone()), Path::new(folder), options)
    }

    /// Sets whether no file may grow, even after a removal.
    pub fn fill(&self, full: bool) {
        let mut controls = self.controls.lock();
        (controls.is_full, controls.frees_by_removal) = (full, false);
    }

    /// Lets the next removal make space.
    pub fn free_by_removal(&self) {
        self.controls.lock().frees_by_removal = true;
    }

    /// Makes all `calls` lack a descriptor, until the next watch.
    pub fn lack_descriptors_at(&self, calls: Calls) {
        self.faults.watch(move |call| match (call.kind, call.target) {
            met if met == calls => Err(io::Error::from_raw_os_error(NO_DESCRIPTOR)),
            _ => Ok(()),
        });
    }

    /// Makes only the open after the next `opens` lack a descriptor.
    pub fn lack_a_descriptor_after(&self, opens: u64) {
        self.controls.lock().opens_before_a_lack = Some(opens);
    }

    pub fn has_lacked_a_descriptor(&self) -> bool {
        self.controls.lock().opens_before_a_lack.is_none()
    }

    pub fn syncs(&self) -> usize {
        self.controls.lock().syncs
    }

    /// Counts the syncs of other threads than the preparer.
    pub fn awaited_syncs(&self) -> usize {
        self.controls.lock().awaited_syncs
    }

    pub fn make_folder(&self, path: &str) {
        self.below.create_folder(Path::new(path), 0o600).unwrap();
    }

    pub fn has_folder(&self, path: &str) -> bool {
        self.below.kind(Path::new(path)).unwrap() == Kind::Folder
    }

    fn folder(&self, path: &str) -> Arc<dyn DiskFolder> {
        self.below.open_folder(Path::new(path), 0o600).unwrap()
    }

    pub fn names(&self) -> Vec<String> {
        self.folder(FOLDER).list().unwrap()
    }

    pub fn buffers(&self) -> Vec<String> {
        self.below.memory_folder().unwrap().unwrap().1.list().unwrap()
    }

    pub fn file(&self, name: &str) -> Option<Box<dyn DiskFile>> {
        self.folder(FOLDER).open(name, Access::Read).ok()
    }

    pub fn len(&self, name: &str) -> u64 {
        self.file(name).map_or(0, |file| file.len().unwrap())
    }

    pub fn has(&self, name: &str) -> bool {
        self.file(name).is_some()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let mut bytes = vec![0; self.len(name) as usize];
        if let Some(file) = self.file(name) {
            read_full(file.as_ref(), 0, &mut bytes).unwrap();
        }
        bytes
    }

    pub fn write(&self, folder: &str, name: &str, bytes: &[u8]) {
        let file = self.folder(folder).open(name, Access::Fresh).unwrap();
        write_bytes(file.as_ref(), 0, bytes).unwrap();
    }

    pub fn remove(&self, name: &str) {
        self.folder(FOLDER).remove(name).unwrap();
    }

    pub fn spares(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.starts_with("spare-")).collect()
    }
}

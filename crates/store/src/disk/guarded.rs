//! A layer over a disk that somebody else wrote: a call that panics is a call that fails.
//!
//! So a panic of the disk leaves what an error leaves: it unwinds through no lock, no leadership
//! and no step of the preparer, and a failed write or sync poisons the log (G6).

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use palisade_core::Memory;
use palisade_core::sync::survive;

use super::{
    Access, Background, Disk, DiskFile, DiskFolder, FileIdentity, FolderIdentity, Kind, ZeroSteps,
};

/// Lets calls of `disk`, its folders and files fail that panic.
pub(crate) fn guarded(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(GuardedDisk(disk))
}

fn guard<R>(call: &str, run: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    survive(run).unwrap_or_else(|| {
        Err(io::Error::other(format!("the disk panicked in `{call}`: see the panic's own report")))
    })
}

#[derive(Debug)]
struct GuardedDisk(Arc<dyn Disk>);

#[derive(Debug)]
struct GuardedFolder(Arc<dyn DiskFolder>);

/// The file is there until the drop.
#[derive(Debug)]
struct GuardedFile(Option<Box<dyn DiskFile>>);

fn folder(below: Arc<dyn DiskFolder>) -> Arc<dyn DiskFolder> {
    Arc::new(GuardedFolder(below))
}

impl Disk for GuardedDisk {
    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()> {
        guard("create_folder", || self.0.create_folder(path, file_mode))
    }

    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        guard("open_folder", || self.0.open_folder(path, file_mode).map(folder))
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        guard("kind", || self.0.kind(path))
    }

    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        let found = guard("memory_folder", || self.0.memory_folder())?;
        Ok(found.map(|(path, below)| (path, folder(below))))
    }

    fn largest_file(&self) -> u64 {
        survive(|| self.0.largest_file()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> io::Result<u64> {
        guard("random", || self.0.random())
    }

    fn pause(&self, time: Duration) {
        let _ = survive(|| self.0.pause(time));
    }

    fn writes_behind(&self) -> bool {
        survive(|| self.0.writes_behind()).unwrap_or(true)
    }

    fn background(&self) -> Background {
        survive(|| self.0.background()).unwrap_or(Background::Thread)
    }

    fn zero_steps(&self) -> ZeroSteps {
        survive(|| self.0.zero_steps()).unwrap_or_default()
    }
}

impl DiskFolder for GuardedFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        guard("list", || self.0.list())
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let below = guard("open", || self.0.open(name, access))?;
        Ok(Box::new(GuardedFile(Some(below))))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        guard("rename", || self.0.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        guard("remove", || self.0.remove(name))
    }

    fn sync(&self) -> io::Result<()> {
        guard("sync", || self.0.sync())
    }

    fn try_lock(&self, shared: bool) -> bool {
        survive(|| self.0.try_lock(shared)).unwrap_or(false)
    }

    fn unlock(&self) {
        let _ = survive(|| self.0.unlock());
    }

    fn parent(&self) -> io::Result<Option<Arc<dyn DiskFolder>>> {
        guard("parent", || Ok(self.0.parent()?.map(folder)))
    }

    fn check_writable(&self) -> io::Result<()> {
        guard("check_writable", || self.0.check_writable())
    }

    fn overwrites_in_place(&self) -> bool {
        survive(|| self.0.overwrites_in_place()).unwrap_or(false)
    }

    fn identity(&self) -> FolderIdentity {
        survive(|| self.0.identity()).unwrap_or_default()
    }

    fn identity_of(&self, path: &Path) -> io::Result<Option<FolderIdentity>> {
        guard("identity_of", || self.0.identity_of(path))
    }

    fn still_at(&self, path: &Path) -> io::Result<bool> {
        guard("still_at", || self.0.still_at(path))
    }
}

impl GuardedFile {
    fn below(&self) -> &dyn DiskFile {
        self.0.as_deref().expect("the file is there until the drop")
    }
}

impl DiskFile for GuardedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        guard("read_at", || self.below().read_at(offset, into))
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        guard("write_at", || self.below().write_at(offset, pieces))
    }

    fn sync_data(&self) -> io::Result<()> {
        guard("sync_data", || self.below().sync_data())
    }

    fn len(&self) -> io::Result<u64> {
        guard("len", || self.below().len())
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        guard("try_lock", || self.below().try_lock(shared))
    }

    fn unlock(&self) -> io::Result<()> {
        guard("unlock", || self.below().unlock())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        guard("allocate", || self.below().allocate(len))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        guard("discard", || self.below().discard(offset, len))
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        guard("identity", || self.below().identity())
    }

    fn is_own(&self) -> io::Result<bool> {
        guard("is_own", || self.below().is_own())
    }

    fn has_other_names(&self) -> io::Result<bool> {
        guard("has_other_names", || self.below().has_other_names())
    }

    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        guard("map", || self.below().map(offset, len))
    }
}

impl Drop for GuardedFile {
    fn drop(&mut self) {
        let below = self.0.take();
        let _ = survive(|| drop(below));
    }
}

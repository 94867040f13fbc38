//! A layer over a foreign disk: a call that panics fails. So a panic unwinds through no lock, no
//! leadership and no step of the preparer.

use std::io::{self, IoSlice};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{
    Access, Background, Disk, DiskFile, DiskFolder, FileIdentity, FolderIdentity, Host, Kind,
    ZeroSteps,
};
use crate::Memory;
use crate::sync::survive;

/// Wraps `disk`, so that panicking calls return errors.
pub fn guarded(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(Guarded::new(disk))
}

fn guard<R>(call: &str, run: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    survive(run).unwrap_or_else(|| {
        Err(io::Error::other(format!("the disk panicked in `{call}`: see the panic's own report")))
    })
}

/// Its calls and its drop may panic. `Some` until the drop.
#[derive(Debug)]
struct Guarded<T>(Option<T>);

impl<T> Guarded<T> {
    fn new(below: T) -> Guarded<T> {
        Guarded(Some(below))
    }
}

impl<T> Deref for Guarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until the drop")
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        let below = self.0.take();
        let _ = survive(|| drop(below));
    }
}

fn folder(below: Arc<dyn DiskFolder>) -> Arc<dyn DiskFolder> {
    Arc::new(Guarded::new(below))
}

impl Disk for Guarded<Arc<dyn Disk>> {
    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()> {
        guard("create_folder", || (**self).create_folder(path, file_mode))
    }

    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        guard("open_folder", || (**self).open_folder(path, file_mode).map(folder))
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        guard("kind", || (**self).kind(path))
    }

    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        let found = guard("memory_folder", || (**self).memory_folder())?;
        Ok(found.map(|(path, below)| (path, folder(below))))
    }

    fn largest_file(&self) -> u64 {
        survive(|| (**self).largest_file()).unwrap_or(u64::MAX)
    }

    fn host(&self) -> &dyn Host {
        self
    }
}

impl Host for Guarded<Arc<dyn Disk>> {
    fn random(&self) -> io::Result<u64> {
        guard("random", || (**self).host().random())
    }

    fn pause(&self, time: Duration) {
        let _ = survive(|| (**self).host().pause(time));
    }

    fn writes_behind(&self) -> bool {
        survive(|| (**self).host().writes_behind()).unwrap_or(true)
    }

    fn background(&self) -> Background {
        survive(|| (**self).host().background()).unwrap_or(Background::Thread)
    }

    fn zero_steps(&self) -> ZeroSteps {
        survive(|| (**self).host().zero_steps()).unwrap_or_default()
    }
}

impl DiskFolder for Guarded<Arc<dyn DiskFolder>> {
    fn list(&self) -> io::Result<Vec<String>> {
        guard("list", || (**self).list())
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let below = guard("open", || (**self).open(name, access))?;
        Ok(Box::new(Guarded::new(below)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        guard("rename", || (**self).rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        guard("remove", || (**self).remove(name))
    }

    fn sync(&self) -> io::Result<()> {
        guard("sync", || (**self).sync())
    }

    fn try_lock(&self, shared: bool) -> bool {
        survive(|| (**self).try_lock(shared)).unwrap_or(false)
    }

    fn unlock(&self) {
        let _ = survive(|| (**self).unlock());
    }

    fn parent(&self) -> io::Result<Option<Arc<dyn DiskFolder>>> {
        guard("parent", || Ok((**self).parent()?.map(folder)))
    }

    fn check_writable(&self) -> io::Result<()> {
        guard("check_writable", || (**self).check_writable())
    }

    fn overwrites_in_place(&self) -> bool {
        survive(|| (**self).overwrites_in_place()).unwrap_or(false)
    }

    fn identity(&self) -> FolderIdentity {
        survive(|| (**self).identity()).unwrap_or_default()
    }

    fn identity_of(&self, path: &Path) -> io::Result<Option<FolderIdentity>> {
        guard("identity_of", || (**self).identity_of(path))
    }

    fn still_at(&self, path: &Path) -> io::Result<bool> {
        guard("still_at", || (**self).still_at(path))
    }
}

impl DiskFile for Guarded<Box<dyn DiskFile>> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        guard("read_at", || (**self).read_at(offset, into))
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        guard("write_at", || (**self).write_at(offset, pieces))
    }

    fn sync_data(&self) -> io::Result<()> {
        guard("sync_data", || (**self).sync_data())
    }

    fn len(&self) -> io::Result<u64> {
        guard("len", || (**self).len())
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        guard("try_lock", || (**self).try_lock(shared))
    }

    fn unlock(&self) -> io::Result<()> {
        guard("unlock", || (**self).unlock())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        guard("allocate", || (**self).allocate(len))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        guard("discard", || (**self).discard(offset, len))
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        guard("identity", || (**self).identity())
    }

    fn is_own(&self) -> io::Result<bool> {
        guard("is_own", || (**self).is_own())
    }

    fn has_other_names(&self) -> io::Result<bool> {
        guard("has_other_names", || (**self).has_other_names())
    }

    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        guard("map", || (**self).map(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("the drop panics, as the test wants it");
        }
    }

    #[test]
    fn a_drop_that_panics_ends() {
        drop(Guarded::new(PanicsWhenDropped));
    }
}

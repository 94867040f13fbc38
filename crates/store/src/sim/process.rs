//! A process on the simulated disk: the file-system calls of one run.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use std::time::Duration;

use palisade_core::sync::{Mutex, MutexGuard};
use palisade_core::{Memory, sync};

use super::fault::CallKind;
use super::names::NodeId;
use super::names::{MEMORY, name};
use super::world::{Step, World, dead, eio};
use crate::disk::{
    Access, Background, Disk, DiskFile, DiskFolder, FileIdentity, FolderIdentity, Kind, ZeroSteps,
};

/// Times that a slow sync lets the other threads run.
const SLOW_YIELDS: usize = 500;
/// A disk with small segments: every page is a step.
const ZERO_STEPS: ZeroSteps = ZeroSteps { first_bytes: 4096, step_bytes: 4096 };

/// One run on the disk.
#[derive(Clone)]
pub(super) struct Process {
    world: Arc<Mutex<World>>,
    run: u64,
}

impl Process {
    pub(super) fn new(world: Arc<Mutex<World>>, run: u64) -> Process {
        Process { world, run }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock()
    }

    /// A call without an index, which changes nothing.
    fn look<T>(
        &self,
        kind: CallKind,
        what: &Path,
        look: impl FnOnce(&mut World) -> io::Result<T>,
    ) -> io::Result<T> {
        self.world().change(self.run, kind, || name(what).to_owned(), look)
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("run", &self.run).finish_non_exhaustive()
    }
}

/// Calls by a path.
impl Process {
    pub(super) fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.look(CallKind::Read, folder, |world| {
            let inside = world.names.shown.keys().filter(|path| path.parent() == Some(folder));
            Ok(inside.map(|path| name(path).to_owned()).collect())
        })
    }

    pub(super) fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let (node, handle) = self.world().open(self.run, path, access)?;
        let is_writable = access != Access::Read;
        Ok(Box::new(OpenFile { process: self.clone(), node, handle, is_writable }))
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.world().rename(self.run, from, to)
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.world().remove(self.run, path)
    }

    pub(super) fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.world().sync_folder(self.run, folder)
    }
}

impl Disk for Process {
    fn kind(&self, path: &Path) -> io::Result<Kind> {
        let world = self.world();
        world.check_alive(self.run)?;
        Ok(match (world.names.is_folder(path), world.names.file(path)) {
            (true, _) => Kind::Folder,
            (false, Some(_)) => Kind::Other,
            (false, None) => Kind::Missing,
        })
    }

    fn create_folder(&self, path: &Path, _file_mode: u32) -> io::Result<()> {
        self.world().create_folder(self.run, path)
    }

    fn open_folder(&self, path: &Path, _file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        match self.kind(path)? {
            Kind::Folder => {}
            Kind::Other => return Err(io::ErrorKind::NotADirectory.into()),
            Kind::Missing => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(Arc::new(OpenFolder { process: self.clone(), path: path.to_path_buf() }))
    }

    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        if !self.world().medium.has_memory {
            return Ok(None);
        }
        let folder = OpenFolder { process: self.clone(), path: MEMORY.into() };
        Ok(Some((MEMORY.into(), Arc::new(folder))))
    }

    fn random(&self) -> io::Result<u64> {
        Ok(self.world().entropy.next())
    }

    fn pause(&self, _time: Duration) {
        sync::yield_now();
    }

    fn writes_behind(&self) -> bool {
        // The system decides when that thread runs.
        false
    }

    fn background(&self) -> Background {
        let mut world = self.world();
        let is_now = world.check_alive(self.run).is_ok() && world.schedule.is(3, 4);
        if is_now { Background::Now } else { Background::Later }
    }

    fn zero_steps(&self) -> ZeroSteps {
        ZERO_STEPS
    }
}

/// An open folder of one run. Nobody moves folders on this disk: its path is as good as a handle.
#[derive(Debug)]
struct OpenFolder {
    process: Process,
    path: PathBuf,
}

impl DiskFolder for OpenFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        self.process.list(&self.path)
    }

    fn check_writable(&self) -> io::Result<()> {
        self.process.world().check_alive(self.process.run)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        self.process.open(&self.path.join(name), access)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.process.rename(&self.path.join(from), &self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.process.remove(&self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.process.sync_folder(&self.path)
    }

    fn overwrites_in_place(&self) -> bool {
        self.process.world().medium.is_in_place
    }

    fn identity(&self) -> FolderIdentity {
        FolderIdentity { device: 1, inode: 1, born: 0 }
    }

    fn identity_of(&self, _path: &Path) -> io::Result<Option<FolderIdentity>> {
        Ok(Some(self.identity()))
    }
}

/// An open file of one run.
#[derive(Debug)]
struct OpenFile {
    process: Process,
    node: NodeId,
    handle: u64,
    is_writable: bool,
}

impl OpenFile {
    fn world(&self) -> MutexGuard<'_, World> {
        self.process.world()
    }

    fn run(&self) -> u64 {
        self.process.run
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.is_writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl DiskFile for OpenFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut world = self.world();
        if world.node(self.node).is_in_memory && world.faults.is_empty() {
            world.check_alive(self.run())?;
            return Ok(world.node(self.node).read(offset as usize, into));
        }
        // Reads are frequent, and traced only where a fault hits them.
        let has_faults = !world.faults.is_empty();
        let what = has_faults.then(|| format!("{} at {offset}", world.names.text(self.node)));
        match world.begin(self.run(), CallKind::Read, || what.unwrap_or_default())? {
            Step::Eio => Err(eio()),
            Step::Short if into.len() > 1 => {
                let len = 1 + world.chance.index(into.len() - 1);
                Ok(world.node(self.node).read(offset as usize, &mut into[..len]))
            }
            _ => Ok(world.node(self.node).read(offset as usize, into)),
        }
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check_writable()?;
        let bytes = pieces.iter().map(|piece| &piece[..]).collect::<Vec<_>>().concat();
        self.world().write(self.run(), self.node, offset as usize, &bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.world();
        let what = world.names.text(self.node);
        let step = world.begin(self.run(), CallKind::Sync, || what)?;
        let point = match step {
            Step::Eio | Step::NoSpace => {
                world.fail_sync(self.node);
                return Err(if step == Step::Eio { eio() } else { super::world::full() });
            }
            Step::Die if world.chance.is(1, 2) => {
                world.die();
                return Err(dead());
            }
            _ => world.node(self.node).begin_sync(),
        };
        if step == Step::Slow {
            drop(world);
            (0..SLOW_YIELDS).for_each(|_| sync::yield_now());
            world = self.world();
            // A death meanwhile: whether the sync went on is for the power loss to say.
            world.check_alive(self.run())?;
        }
        world.node(self.node).end_sync(point);
        if step == Step::Die {
            world.die();
            return Err(dead());
        }
        if world.node(self.node).take_unreported() { Err(eio()) } else { Ok(()) }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.world().allocate(self.run(), self.node, len as usize)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut world = self.world();
        world.check_alive(self.run())?;
        world.node(self.node).discard(offset as usize, len as usize);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut world = self.world();
        world.check_alive(self.run())?;
        Ok(world.node(self.node).shown.len() as u64)
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.world().check_alive(self.run())?;
        // No number is given twice.
        Ok(FileIdentity { inode: self.node + 1, born: 0 })
    }

    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        self.check_writable()?;
        let mut world = self.world();
        let what = world.names.text(self.node);
        if world.node(self.node).is_in_memory && world.faults.is_empty() {
            world.check_alive(self.run())?;
            return world.node(self.node).map(offset, len);
        }
        world.change(
            self.run(),
            CallKind::Map,
            || what,
            |world| world.node(self.node).map(offset, len),
        )
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        let mut world = self.world();
        world.check_alive(self.run())?;
        let locks = &mut world.node(self.node).locks;
        let is_free =
            locks.iter().all(|&(handle, other)| handle == self.handle || (shared && other));
        if is_free {
            locks.retain(|&(handle, _)| handle != self.handle);
            locks.push((self.handle, shared));
        }
        Ok(is_free)
    }

    fn unlock(&self) -> io::Result<()> {
        let mut world = self.world();
        world.check_alive(self.run())?;
        world.node(self.node).locks.retain(|&(handle, _)| handle != self.handle);
        Ok(())
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut world = self.world();
        if world.check_alive(self.run()).is_ok() {
            let node = world.node(self.node);
            node.locks.retain(|&(handle, _)| handle != self.handle);
            node.handles = node.handles.saturating_sub(1);
            world.collect();
        }
    }
}

//! The file-system calls of one process run.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::fault::{CallKind, FaultKind};
use super::names::{MEMORY, Names, NodeId, name};
use super::world::{CallStep, World, dead};
use crate::disk::{
    Access, Background, Disk, DiskFile, DiskFolder, FileIdentity, FolderIdentity, Host, Kind,
    ZeroSteps,
};
use crate::sync::{Mutex, MutexGuard};
use crate::{Memory, sync};

/// How often a slow sync yields.
const SLOW_YIELDS: usize = 500;
/// Simulated segments are small.
const ZERO_STEPS: ZeroSteps = ZeroSteps { first_bytes: 4096, step_bytes: 4096 };

#[derive(Clone)]
pub(super) struct Process {
    world: Arc<Mutex<World>>,
    run: u64,
}

impl Process {
    pub(super) fn of(world: &Arc<Mutex<World>>) -> Process {
        let run = world.lock().run;
        Process { world: Arc::clone(world), run }
    }

    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.world.lock();
        if world.is_dead || world.run != self.run { Err(dead()) } else { Ok(world) }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Disk for Process {
    fn kind(&self, path: &Path) -> io::Result<Kind> {
        let world = self.world()?;
        Ok(match (world.names.is_folder(path), world.names.file(path)) {
            (true, _) => Kind::Folder,
            (false, Some(_)) => Kind::Other,
            (false, None) => Kind::Missing,
        })
    }

    fn create_folder(&self, path: &Path, _file_mode: u32) -> io::Result<()> {
        self.world()?.create_folder(path)
    }

    fn open_folder(&self, path: &Path, _file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        match self.kind(path)? {
            Kind::Folder => {}
            Kind::Other => return Err(io::ErrorKind::NotADirectory.into()),
            Kind::Missing => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(Arc::new(SimFolder { process: self.clone(), path: path.to_path_buf() }))
    }

    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        if self.world.lock().medium.lacks_memory {
            return Ok(None);
        }
        let folder = SimFolder { process: self.clone(), path: MEMORY.into() };
        Ok(Some((MEMORY.into(), Arc::new(folder))))
    }

    fn host(&self) -> &dyn Host {
        self
    }
}

impl Host for Process {
    fn random(&self) -> io::Result<u64> {
        Ok(self.world.lock().entropy.draw())
    }

    fn pause(&self, _time: Duration) {
        sync::yield_now();
    }

    fn writes_behind(&self) -> bool {
        // The scheduler decides when a background thread runs, so a seed could not repeat a test.
        false
    }

    fn background(&self) -> Background {
        let is_now = self.world().is_ok_and(|mut world| world.schedule.is(3, 4));
        if is_now { Background::Now } else { Background::Later }
    }

    fn zero_steps(&self) -> ZeroSteps {
        ZERO_STEPS
    }
}

/// As its path, because folders never move on this disk.
#[derive(Debug)]
struct SimFolder {
    process: Process,
    path: PathBuf,
}

impl DiskFolder for SimFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut world = self.process.world()?;
        world.change(
            CallKind::Read,
            |_| name(&self.path).to_owned(),
            |world| {
                let names = world.names.shown.keys();
                let inside = names.filter(|path| path.parent() == Some(&self.path));
                Ok(inside.map(|path| name(path).to_owned()).collect())
            },
        )
    }

    fn check_writable(&self) -> io::Result<()> {
        self.process.world().map(drop)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let (node, handle) = self.process.world()?.open(&self.path.join(name), access)?;
        let is_writable = access != Access::Read;
        Ok(Box::new(SimFile { process: self.process.clone(), node, handle, is_writable }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.process.world()?.rename(&self.path.join(from), &self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.process.world()?.remove(&self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.process.world()?.sync_folder(&self.path)
    }

    fn overwrites_in_place(&self) -> bool {
        !self.process.world.lock().medium.copies_on_write
    }

    fn identity(&self) -> FolderIdentity {
        FolderIdentity { device: 1, inode: 1, born: 0 }
    }

    fn identity_of(&self, _path: &Path) -> io::Result<Option<FolderIdentity>> {
        Ok(Some(self.identity()))
    }
}

#[derive(Debug)]
struct SimFile {
    process: Process,
    node: NodeId,
    handle: u64,
    is_writable: bool,
}

impl SimFile {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        self.process.world()
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.is_writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut world = self.world()?;
        let what = |names: &Names| format!("{} at {offset}", names.text(self.node));
        let step = match world.is_safe(self.node) {
            true => CallStep::Go,
            false => world.begin(CallKind::Read, what)?,
        };
        let len = match step {
            CallStep::Meet(FaultKind::Eio) => return Err(FaultKind::Eio.error()),
            CallStep::Meet(FaultKind::ShortWrite) if into.len() > 1 => {
                1 + world.chance.index(into.len() - 1)
            }
            _ => into.len(),
        };
        Ok(world.node(self.node).read(offset as usize, &mut into[..len]))
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check_writable()?;
        let bytes = pieces.iter().map(|piece| &piece[..]).collect::<Vec<_>>().concat();
        self.world()?.write(self.node, offset as usize, &bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.world()?;
        let step = world.begin(CallKind::Sync, |names| names.text(self.node))?;
        let point = match step {
            CallStep::Meet(fault @ (FaultKind::Eio | FaultKind::NoSpace)) => {
                world.fail_sync(self.node);
                return Err(fault.error());
            }
            CallStep::Die if world.chance.is(1, 2) => {
                world.die();
                return Err(dead());
            }
            _ => world.node(self.node).begin_sync(),
        };
        if step == CallStep::Meet(FaultKind::SlowSync) {
            drop(world);
            (0..SLOW_YIELDS).for_each(|_| sync::yield_now());
            // If the process died meanwhile, the sync stays incomplete; a power loss decides what
            // it wrote.
            world = self.world()?;
        }
        world.node(self.node).end_sync(point);
        if step == CallStep::Die {
            world.die();
            return Err(dead());
        }
        let reported = std::mem::take(&mut world.node(self.node).has_unreported);
        if reported { Err(FaultKind::Eio.error()) } else { Ok(()) }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.world()?.allocate(self.node, len as usize)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.world()?.node(self.node).discard(offset as usize, len as usize);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.world()?.node(self.node).shown.len() as u64)
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        // Node numbers are never reused.
        self.world().map(|_| FileIdentity { inode: self.node + 1, born: 0 })
    }

    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        self.check_writable()?;
        let mut world = self.world()?;
        let map = |world: &mut World| world.node(self.node).map(offset, len);
        match world.is_safe(self.node) {
            true => map(&mut world),
            false => world.change(CallKind::Map, |names| names.text(self.node), map),
        }
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        let mut world = self.world()?;
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
        self.world()?.node(self.node).locks.retain(|&(handle, _)| handle != self.handle);
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if let Ok(mut world) = self.world() {
            let node = world.node(self.node);
            node.locks.retain(|&(handle, _)| handle != self.handle);
            node.handles = node.handles.saturating_sub(1);
            world.collect();
        }
    }
}

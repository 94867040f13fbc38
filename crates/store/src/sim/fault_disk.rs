//! A layer of faults over any disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::fault_file::FaultFile;
use super::fault_gate::{Call, Calls, Effect, Gate, Target, call, target};
use super::{CallKind, FOLDER};
use crate::disk::{
    Access, Background, Disk, DiskFile, DiskFolder, FolderIdentity, Host, Kind, ZeroSteps, guarded,
};
use crate::sync::Mutex;
use crate::{FileOptions, FileStore, IntoStore};
use crate::{MIN_SEGMENT_BYTES, Result};

/// A disk whose calls a test counts, holds and makes fail, over any other; clones share all of it.
///
/// ```
/// use palisade::disk::MemDisk;
/// use palisade::sim::{CallKind, Effect, FaultDisk, Target};
/// use palisade::{ErrorKind, Options, Wal};
/// use std::sync::Arc;
///
/// let disk = FaultDisk::new(Arc::new(MemDisk::new()));
/// let log = Wal::with_store(&disk, Options::new())?;
/// disk.set((CallKind::Write, Target::Segment), Effect::NoSpace);
/// assert_eq!(log.commit(b"record").unwrap_err().kind(), ErrorKind::NoSpace);
/// disk.set((CallKind::Write, Target::Segment), Effect::Pass);
/// log.sync()?;
/// # Ok::<(), palisade::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FaultDisk {
    below: Arc<dyn Disk>,
    gate: Arc<Gate>,
}

/// Opens the log in the folder `/log`, or makes it. Segments may be as small as 4 KiB.
impl IntoStore for &FaultDisk {
    fn into_store(self, files: &FileOptions) -> Result<FileStore> {
        self.open(files)
    }
}

impl FaultDisk {
    /// Makes a layer without any fault.
    #[must_use]
    pub fn new(below: Arc<dyn Disk>) -> FaultDisk {
        FaultDisk { below, gate: Arc::default() }
    }

    /// Opens the log as `into_store` does.
    ///
    /// # Errors
    /// As [`FileStore::open`].
    #[doc(hidden)]
    pub fn open(&self, options: &FileOptions) -> Result<FileStore> {
        options.validate(MIN_SEGMENT_BYTES)?;
        FileStore::open_on_any(guarded(Arc::new(self.clone())), Path::new(FOLDER), options)
    }

    /// Gives all later and held `calls` this effect.
    pub fn set(&self, calls: Calls, effect: Effect) {
        self.set_after(0, calls, effect);
    }

    /// As [`set`](FaultDisk::set), but the next `skipped` calls pass.
    pub fn set_after(&self, skipped: usize, calls: Calls, effect: Effect) {
        let mut plan = self.gate.plan.lock();
        let state = plan.of(calls);
        (state.skipped, state.effect) = (skipped, effect);
        drop(plan);
        self.gate.changed.notify_all();
    }

    /// Returns how many such calls have begun.
    #[must_use]
    pub fn count(&self, calls: Calls) -> usize {
        self.gate.plan.lock().of(calls).count
    }

    /// Returns whether such a call is held.
    #[must_use]
    pub fn is_holding(&self, calls: Calls) -> bool {
        self.gate.plan.lock().of(calls).held > 0
    }

    /// Shows each call to `watch` before it is made. An error from `watch` is the call's.
    pub fn watch(&self, watch: impl Fn(&Call<'_>) -> io::Result<()> + Send + Sync + 'static) {
        self.gate.plan.lock().watch = Some(Arc::new(watch));
    }

    /// Makes all log buffers belong to another user.
    pub fn disown_buffers(&self) {
        self.gate.plan.lock().is_disowned = true;
    }
}

impl Disk for FaultDisk {
    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()> {
        self.gate.begin_on(CallKind::CreateFolder, path)?;
        self.below.create_folder(path, file_mode)
    }

    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        self.gate.begin_on(CallKind::Open, path)?;
        let below = self.below.open_folder(path, file_mode)?;
        Ok(folder(below, path, false, &self.gate))
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        self.gate.begin_on(CallKind::Look, path)?;
        self.below.kind(path)
    }

    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        let Some((path, below)) = self.below.memory_folder()? else { return Ok(None) };
        self.gate.begin_on(CallKind::Open, &path)?;
        let folder = folder(below, &path, true, &self.gate);
        Ok(Some((path, folder)))
    }

    fn largest_file(&self) -> u64 {
        self.below.largest_file()
    }

    fn host(&self) -> &dyn Host {
        self
    }
}

impl Host for FaultDisk {
    fn random(&self) -> io::Result<u64> {
        self.gate.begin(&call(CallKind::Look, Target::Other, "random"))?;
        self.below.host().random()
    }

    fn pause(&self, time: Duration) {
        self.below.host().pause(time);
    }

    fn writes_behind(&self) -> bool {
        self.below.host().writes_behind()
    }

    fn background(&self) -> Background {
        self.below.host().background()
    }

    fn zero_steps(&self) -> ZeroSteps {
        self.below.host().zero_steps()
    }
}

fn folder(
    below: Arc<dyn DiskFolder>,
    path: &Path,
    is_memory: bool,
    gate: &Arc<Gate>,
) -> Arc<dyn DiskFolder> {
    let (path, names, gate) = (path.to_path_buf(), Mutex::default(), Arc::clone(gate));
    Arc::new(FaultFolder { below, path, is_memory, names, gate })
}

#[derive(Debug)]
struct FaultFolder {
    below: Arc<dyn DiskFolder>,
    path: PathBuf,
    is_memory: bool,
    names: Mutex<Vec<Weak<Mutex<String>>>>,
    gate: Arc<Gate>,
}

impl FaultFolder {
    fn make(
        &self,
        kind: CallKind,
        name: &str,
        make: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let target = target(self.is_memory, name);
        let effect = self.gate.begin(&call(kind, target, name))?;
        make()?;
        if effect == Effect::HoldDone {
            self.gate.wait_while(effect, (kind, target));
        }
        Ok(())
    }
}

impl DiskFolder for FaultFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        self.gate.begin_on(CallKind::Read, &self.path)?;
        self.below.list()
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let is_there = matches!(access, Access::Read | Access::Write);
        let kind = if is_there { CallKind::Open } else { CallKind::Create };
        self.gate.begin(&call(kind, target(self.is_memory, name), name))?;
        let below = self.below.open(name, access)?;
        let name = Arc::new(Mutex::new(name.to_owned()));
        let mut names = self.names.lock();
        names.retain(|name| name.strong_count() > 0);
        names.push(Arc::downgrade(&name));
        let gate = Arc::clone(&self.gate);
        Ok(Box::new(FaultFile { below, is_memory: self.is_memory, name, gate }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.make(CallKind::Rename, to, || {
            self.below.rename(from, to)?;
            for name in self.names.lock().iter().filter_map(Weak::upgrade) {
                let mut name = name.lock();
                if *name == from {
                    to.clone_into(&mut name);
                }
            }
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.make(CallKind::Remove, name, || self.below.remove(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.gate.begin_on(CallKind::SyncFolder, &self.path)?;
        self.below.sync()
    }

    fn try_lock(&self, shared: bool) -> bool {
        self.gate.begin_on(CallKind::Lock, &self.path).is_ok() && self.below.try_lock(shared)
    }

    fn unlock(&self) {
        // The call has no error.
        let _ = self.gate.begin_on(CallKind::Lock, &self.path);
        self.below.unlock();
    }

    fn parent(&self) -> io::Result<Option<Arc<dyn DiskFolder>>> {
        self.gate.begin_on(CallKind::Open, &self.path)?;
        let Some(below) = self.below.parent()? else { return Ok(None) };
        let parent = folder(below, &self.path.join(".."), self.is_memory, &self.gate);
        Ok(Some(parent))
    }

    fn check_writable(&self) -> io::Result<()> {
        self.gate.begin_on(CallKind::Look, &self.path)?;
        self.below.check_writable()
    }

    fn overwrites_in_place(&self) -> bool {
        self.below.overwrites_in_place()
    }

    fn identity(&self) -> FolderIdentity {
        self.below.identity()
    }

    fn identity_of(&self, path: &Path) -> io::Result<Option<FolderIdentity>> {
        self.gate.begin_on(CallKind::Look, &self.path)?;
        self.below.identity_of(path)
    }
}

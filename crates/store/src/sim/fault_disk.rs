//! A layer over any disk: a test counts its calls, holds them, and lets them fail.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use palisade_core::sync::{Condvar, Mutex};
use palisade_core::{MIN_SEGMENT_BYTES, Result};

use super::fault_file::FaultFile;
use super::{CallKind, FOLDER};
use crate::disk::{
    Access, Background, Disk, DiskFile, DiskFolder, FolderIdentity, Kind, ZeroSteps,
};
use crate::folder::{META, META_TEMP, is_segment_name, is_spare_name};
use crate::{FileOptions, FileStore, IntoStore};

/// What a call is made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Target {
    /// A file with a segment's name: its writes are the log's.
    Segment,
    /// A segment, by the store's own thread: its writes are the zeros ahead of the tail.
    Zeros,
    /// A file that is to become a segment, or was one.
    Spare,
    /// The meta file, or the one that is to take its place.
    Meta,
    /// The marks in the log buffer's file, which a commit writes.
    Marks,
    /// The rest of the log buffer's file.
    Buffer,
    /// A folder.
    Folder,
    /// Any other file.
    Other,
}

/// A kind of call to a kind of file. A rename counts as one to the new name's file.
pub type Calls = (CallKind, Target);

/// What a call meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// The disk below.
    #[default]
    Pass,
    /// EIO, and nothing is done.
    Eio,
    /// A lack of space, and nothing is done.
    NoSpace,
    /// A panic on the calling thread.
    Panic,
    /// A wait until the calls have another effect, which this one has then.
    Hold,
    /// For a rename or a removal: the disk below, and then a wait until the calls have another
    /// effect. Other calls pass.
    HoldDone,
}

/// A call, as a [watch](FaultDisk::watch) sees it before it is made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The kind of call.
    pub kind: CallKind,
    /// What it is made to.
    pub target: Target,
    /// The name of the file, or the path of the folder.
    pub name: &'a str,
    /// Where a read or a write begins.
    pub offset: u64,
    /// How many bytes it is to read, write or allocate.
    pub len: u64,
    /// What a write writes.
    pub pieces: &'a [IoSlice<'a>],
    /// Whether it makes the file longer.
    #[doc(hidden)]
    pub grows: bool,
    /// Whether the store's own thread makes it.
    #[doc(hidden)]
    pub is_background: bool,
}

type Watch = Arc<dyn Fn(&Call<'_>) -> io::Result<()> + Send + Sync>;

/// What is known of calls of one kind.
#[derive(Default)]
struct CallState {
    effect: Effect,
    /// So many more pass before the effect begins.
    skipped: usize,
    count: usize,
    held: usize,
}

#[derive(Default)]
struct FaultPlan {
    states: BTreeMap<Calls, CallState>,
    watch: Option<Watch>,
    /// Whether the log buffers belong to another user.
    is_disowned: bool,
}

impl FaultPlan {
    fn of(&mut self, calls: Calls) -> &mut CallState {
        self.states.entry(calls).or_default()
    }
}

#[derive(Default)]
pub(super) struct Gate {
    plan: Mutex<FaultPlan>,
    changed: Condvar,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    pub(super) fn is_disowned(&self) -> bool {
        self.plan.lock().is_disowned
    }

    pub(super) fn begin(&self, call: &Call<'_>) -> io::Result<Effect> {
        let calls = (call.kind, call.target);
        let mut plan = self.plan.lock();
        plan.of(calls).count += 1;
        let watch = plan.watch.clone();
        drop(plan);
        if let Some(watch) = watch {
            watch(call)?;
        }
        match self.pass(calls) {
            effect @ (Effect::Pass | Effect::Hold | Effect::HoldDone) => Ok(effect),
            Effect::Eio => Err(io::Error::from_raw_os_error(5)),
            Effect::NoSpace => Err(io::ErrorKind::StorageFull.into()),
            Effect::Panic => panic!("the disk panics, as the test wants it"),
        }
    }

    /// Begins a call to the folder at `path`.
    fn begin_on(&self, kind: CallKind, path: &Path) -> io::Result<Effect> {
        self.begin(&call(kind, Target::Folder, &path.to_string_lossy()))
    }

    /// Waits while such calls are held, and returns what this one meets.
    fn pass(&self, calls: Calls) -> Effect {
        let mut plan = self.plan.lock();
        let state = plan.of(calls);
        if state.skipped > 0 {
            state.skipped -= 1;
            return Effect::Pass;
        }
        drop(plan);
        self.wait_while(Effect::Hold, calls)
    }

    /// Waits while `calls` have this effect, and returns the one that they have then.
    fn wait_while(&self, effect: Effect, calls: Calls) -> Effect {
        let mut plan = self.plan.lock();
        plan.of(calls).held += 1;
        while plan.of(calls).effect == effect {
            plan = self.changed.wait(plan, None);
        }
        let state = plan.of(calls);
        state.held -= 1;
        state.effect
    }
}

/// A disk whose calls a test counts, holds and lets fail; clones share all of it.
///
/// The disk below may be any: one in memory for threads that meet at a call, a
/// [`SimDisk`](super::SimDisk) for losses of power.
///
/// ```
/// use palisade::disk::MemDisk;
/// use palisade::sim::{CallKind, Effect, FaultDisk, Target};
/// use palisade::{ErrorKind, Options, Wal};
/// use std::sync::Arc;
///
/// # fn main() -> palisade::Result<()> {
/// let disk = FaultDisk::new(Arc::new(MemDisk::new()));
/// let log = Wal::with_store(&disk, Options::new())?;
/// disk.set((CallKind::Write, Target::Segment), Effect::NoSpace);
/// assert_eq!(log.commit(b"record").unwrap_err().kind(), ErrorKind::NoSpace);
/// disk.set((CallKind::Write, Target::Segment), Effect::Pass);
/// log.sync()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FaultDisk {
    below: Arc<dyn Disk>,
    gate: Arc<Gate>,
}

/// Opens the log in the folder `/log`, as [`FaultDisk::open`] does.
impl IntoStore for &FaultDisk {
    type Store = FileStore;

    fn into_store(self, files: &FileOptions) -> Result<FileStore> {
        self.open(files)
    }
}

impl FaultDisk {
    /// A layer over `below` without any fault.
    #[must_use]
    pub fn new(below: Arc<dyn Disk>) -> FaultDisk {
        FaultDisk { below, gate: Arc::default() }
    }

    /// Opens the log in the folder `/log`, or makes it. Segments may be as small as 4 KiB.
    ///
    /// # Errors
    /// As [`FileStore::open`].
    #[doc(hidden)]
    pub fn open(&self, options: &FileOptions) -> Result<FileStore> {
        options.validate(MIN_SEGMENT_BYTES)?;
        FileStore::open_on_any(Arc::new(self.clone()), Path::new(FOLDER), options)
    }

    /// Gives all later `calls`, and those that are held, this effect.
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

    /// Lets all log buffers belong to another user from now on.
    pub fn disown_buffers(&self) {
        self.gate.plan.lock().is_disowned = true;
    }
}

/// A call that writes nothing.
pub(super) fn call(kind: CallKind, target: Target, name: &str) -> Call<'_> {
    let is_background = std::thread::current().name() == Some("palisade-prepare");
    let is_zeros = is_background
        && target == Target::Segment
        && matches!(kind, CallKind::Write | CallKind::Sync);
    let target = if is_zeros { Target::Zeros } else { target };
    Call { kind, target, name, offset: 0, len: 0, pieces: &[], grows: false, is_background }
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

    fn random(&self) -> io::Result<u64> {
        self.below.random()
    }

    fn pause(&self, time: Duration) {
        self.below.pause(time);
    }

    fn writes_behind(&self) -> bool {
        self.below.writes_behind()
    }

    fn background(&self) -> Background {
        self.below.background()
    }

    fn zero_steps(&self) -> ZeroSteps {
        self.below.zero_steps()
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
    /// Of the open files: a rename changes the names of those, too.
    names: Mutex<Vec<Weak<Mutex<String>>>>,
    gate: Arc<Gate>,
}

/// What a call to the file `name` is made to.
pub(super) fn target(is_memory: bool, name: &str) -> Target {
    match name {
        _ if is_memory => Target::Buffer,
        META | META_TEMP => Target::Meta,
        _ if is_segment_name(name) => Target::Segment,
        _ if is_spare_name(name) => Target::Spare,
        _ => Target::Other,
    }
}

impl FaultFolder {
    /// Makes a call that can be held when it is done.
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
        self.below.try_lock(shared)
    }

    fn unlock(&self) {
        self.below.unlock();
    }

    fn parent(&self) -> io::Result<Option<Arc<dyn DiskFolder>>> {
        let Some(below) = self.below.parent()? else { return Ok(None) };
        let parent = folder(below, &self.path.join(".."), self.is_memory, &self.gate);
        Ok(Some(parent))
    }

    fn check_writable(&self) -> io::Result<()> {
        self.below.check_writable()
    }

    fn overwrites_in_place(&self) -> bool {
        self.below.overwrites_in_place()
    }

    fn identity(&self) -> FolderIdentity {
        self.below.identity()
    }

    fn identity_of(&self, path: &Path) -> io::Result<Option<FolderIdentity>> {
        self.below.identity_of(path)
    }
}

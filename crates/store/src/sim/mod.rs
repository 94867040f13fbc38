//! A simulated disk under the real store, for tests of logs and engines.
//!
//! [`SimDisk`] is a file system in memory that loses power, kills its process, runs full and fails
//! calls.
//!
//! # How to test an engine
//! Run it on a fresh disk for each of its [`calls`](SimDisk::calls), as the example of
//! [`crash_at`](SimDisk::crash_at) does. Check that everything that was acknowledged is there and
//! nothing else. If a check fails, print seed, call and [`trace`](SimDisk::trace).
//!
//! # What is modelled
//! - *Power loss* ([`lose_power`](SimDisk::lose_power)): each [`Loss`] has its own [`Fate`]. Bytes
//!   below the first unsynced write of a sector stay (M1), unless the disk is [without powersafe
//!   overwrite](SimDisk::without_powersafe_overwrite). A rename is atomic; a file's sync covers no
//!   name.
//! - *The log buffer*, in memory: it outlives the process and each mount, and no boot. It has no
//!   limit, its calls have no index, and only faults at [`CallKind::Read`] and [`CallKind::Map`]
//!   meet it.
//! - *Mounts in the same boot* ([`remount`](SimDisk::remount),
//!   [`crash_file_system`](SimDisk::crash_file_system)) with another page cache.
//! - *The death of the process* ([`kill`](SimDisk::kill), [`crash_at`](SimDisk::crash_at)): what
//!   reached the operating system stays, mapped memory included. Its later calls fail and change
//!   nothing.
//! - *Failing calls* ([`fail`](SimDisk::fail)) and *failing write-back*
//!   ([`fail_write_back`](SimDisk::fail_write_back), M3): some dirty sectors, or none, reach the
//!   medium. [`WriteBackFailure`] decides about the others.
//! - *A full disk* ([`set_capacity`](SimDisk::set_capacity)) and *damage*
//!   ([`set_file`](SimDisk::set_file), [`remove_file`](SimDisk::remove_file)).
//!
//! # What is not modelled
//! Syncs that lie (M2), failed folder syncs that forget names (M4), an error that each open file
//! reports (the first sync of any of them takes it), sectors that change without a write to their
//! block, holes, shared blocks, metadata that runs full or rots, links, permissions, other users,
//! and time: nothing sleeps.
//!
//! # Determinism
//! The same seed and the same calls by one thread give the same decisions, bytes and trace.
//! Futures, callbacks and `SyncPolicy::Interval` use a thread of the log. Reads draw nothing unless
//! a fault waits for them.

mod fault;
mod fault_disk;
mod fault_file;
mod fault_gate;
mod loss;
mod names;
mod node;
mod process;
#[cfg(test)]
mod tests;
mod trace;
mod world;
mod write_back;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::fault::{CallKind, Fault, FaultKind, WriteBackFailure};
pub use self::fault_disk::FaultDisk;
pub use self::fault_gate::{Call, Calls, Effect, Target};
pub use self::loss::{Fate, Loss};
use self::names::{Entry, name};
use self::process::Process;
use self::world::World;
use crate::disk::Disk;
use crate::sync::Mutex;
use crate::{FileOptions, FileReader, FileStore, IntoStore};
use crate::{MIN_SEGMENT_BYTES, Result};

const FOLDER: &str = "/log";

/// A simulated disk; clones are handles of the same one. See the [module](self).
#[derive(Clone)]
pub struct SimDisk {
    seed: u64,
    world: Arc<Mutex<World>>,
}

impl SimDisk {
    /// Makes an empty disk with powersafe overwrites (M1) in place.
    #[must_use]
    pub fn new(seed: u64) -> SimDisk {
        SimDisk { seed, world: Arc::new(Mutex::new(World::new(seed))) }
    }

    /// Drops assumption M1: power loss may garble each written block of 4096 bytes. Logs need
    /// `pad_to_block` there.
    #[must_use]
    pub fn without_powersafe_overwrite(self) -> SimDisk {
        self.world.lock().medium.garbles_blocks = true;
        self
    }

    /// Makes the file system write each block to a new place: every write needs free space, and
    /// nothing is zeroed or recycled.
    #[must_use]
    pub fn copy_on_write(self) -> SimDisk {
        self.world.lock().medium.copies_on_write = true;
        self
    }

    /// Sets the treatment of failed write-back. Default [`WriteBackFailure::KeepsPages`].
    #[must_use]
    pub fn failing_as(self, failure: WriteBackFailure) -> SimDisk {
        self.world.lock().medium.failure = failure;
        self
    }

    /// Puts the log buffer on the heap.
    #[must_use]
    pub fn without_memory(self) -> SimDisk {
        self.world.lock().medium.lacks_memory = true;
        self
    }

    /// Opens the log as `into_store` does.
    ///
    /// # Errors
    /// As [`FileStore::open`]; `Io` when the process is dead.
    #[doc(hidden)]
    pub fn open(&self, options: &FileOptions) -> Result<FileStore> {
        options.validate(MIN_SEGMENT_BYTES)?;
        FileStore::open_on_any(self.as_disk(), Path::new(FOLDER), options)
    }

    /// Reads the log as a tool in the same boot does.
    ///
    /// # Errors
    /// As [`FileReader::open`].
    #[doc(hidden)]
    pub fn reader(&self) -> Result<FileReader> {
        FileReader::open_on(self.as_disk(), Path::new(FOLDER))
    }

    /// Replaces the log's files by those of the folder `copy`, on the medium, too.
    pub fn replace_log(&self, copy: &str) {
        let (log, from) = (absolute(FOLDER), absolute(copy));
        let (old, new) = (self.files(), self.files_in(copy));
        let mut world = self.world.lock();
        old.iter().for_each(|name| world.names.forget(&log.join(name)));
        for name in new {
            if let Some(id) = world.names.file(&from.join(&name)) {
                world.names.forget(&from.join(&name));
                world.names.settle(&log.join(&name), id);
            }
        }
        world.collect();
        world.trace.event("another log takes the log's place");
    }

    /// Returns how many calls changed something or synced, over all process runs: the next one's
    /// index.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.world.lock().calls
    }

    /// Makes the process die at the call with this index, which fails, and is done, done in part or
    /// not done. A restart or power loss cancels this.
    ///
    /// ```
    /// use palisade::{Options, Wal, sim::SimDisk};
    ///
    /// let options = Options::new().segment_bytes(4096).buffer_bytes(4096);
    /// let open = |disk: &SimDisk| Wal::with_store(disk, options.clone());
    ///
    /// let (mut call, mut is_done) = (0, false);
    /// while !is_done {
    ///     let disk = SimDisk::new(7);
    ///     disk.crash_at(call);
    ///     // The engine's work.
    ///     let acknowledged = open(&disk).and_then(|wal| wal.commit(b"record"));
    ///     is_done = !disk.is_dead();
    ///     for fate in 0..3 {
    ///         let after = disk.fork(call * 3 + fate);
    ///         after.lose_power();
    ///         let wal = open(&after)?;
    ///         if let Ok(lsn) = acknowledged {
    ///             assert_eq!(wal.get(lsn)?.data(), b"record", "seed 7, call {call}, fate {fate}");
    ///         }
    ///     }
    ///     call += 1;
    /// }
    /// # Ok::<(), palisade::Error>(())
    /// ```
    pub fn crash_at(&self, call: u64) {
        self.world.lock().crash_at = Some(call);
    }

    /// Returns whether the process has died.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.world.lock().is_dead
    }

    /// Kills the process, as `SIGKILL` does, also in a closure of `append_with`.
    pub fn kill(&self) {
        self.world.lock().die();
    }

    /// Starts another process in the same boot, after a [`kill`](SimDisk::kill) if needed.
    pub fn restart(&self) {
        let mut world = self.world.lock();
        world.revive();
        world.trace.event("another process begins");
    }

    /// Loses power, by the disk's generator: another boot and process begin.
    pub fn lose_power(&self) {
        let mut world = self.world.lock();
        let mut fates = world.fates_by_chance();
        world.lose_power(&mut fates);
    }

    /// Loses power with the fates that `choose` returns, in the order of
    /// [`losses`](SimDisk::losses).
    pub fn lose_power_choosing(&self, choose: &mut dyn FnMut(Loss) -> Fate) {
        self.world.lock().lose_power(choose);
    }

    /// Begins another boot and process. Loses only what a failed write-back has forgotten, or as in
    /// a power loss if the file system has shut down.
    pub fn reboot(&self) {
        let mut world = self.world.lock();
        let mut fates = world.fates_of_an_orderly_end();
        world.lose_power(&mut fates);
    }

    /// As [`reboot`](SimDisk::reboot), but in the same boot.
    pub fn remount(&self) {
        let mut world = self.world.lock();
        let mut fates = world.fates_of_an_orderly_end();
        world.remount(&mut fates);
    }

    /// As [`remount`](SimDisk::remount), with the losses of [`lose_power`](SimDisk::lose_power).
    pub fn crash_file_system(&self) {
        let mut world = self.world.lock();
        let mut fates = world.fates_by_chance();
        world.remount(&mut fates);
    }

    /// Returns whether the file system has shut down ([`WriteBackFailure::ShutsDown`]).
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.world.lock().is_shut_down
    }

    /// Returns how often write-back has failed, over all process runs.
    #[must_use]
    pub fn write_back_failures(&self) -> u64 {
        self.world.lock().write_back_failures
    }

    /// Returns how often [`FaultKind::DropPages`] has dropped pages before a read.
    #[must_use]
    pub fn pages_dropped_at_reads(&self) -> u64 {
        self.world.lock().pages_dropped_at_reads
    }

    /// Returns how many files have a failed write-back that their next sync reports.
    #[must_use]
    pub fn unreported_failures(&self) -> usize {
        self.world.lock().nodes.values().filter(|node| node.has_unreported).count()
    }

    /// Makes write-back of an unsynced file, if there is one, fail in the background.
    pub fn fail_write_back(&self) {
        self.world.lock().fail_some_write_back();
    }

    /// Drops all pages that a failed write-back left clean.
    pub fn drop_pages(&self) {
        self.world.lock().drop_pages();
    }

    /// Returns what a power loss would decide over: names, then by file emptying, growth and
    /// sectors.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        self.world.lock().losses().into_iter().map(|(_, loss)| loss).collect()
    }

    /// Returns how many sectors no completed sync covers.
    #[must_use]
    pub fn unsynced_sectors(&self) -> usize {
        self.losses().iter().filter(|loss| loss.is_sector()).count()
    }

    /// Returns a copy whose process has died, without faults. `seed` and this disk's past fix its
    /// chances: use another `seed` for each call, or the same losses often get the same fate.
    #[must_use]
    pub fn fork(&self, seed: u64) -> SimDisk {
        let world = self.world.lock().fork(seed);
        SimDisk { seed, world: Arc::new(Mutex::new(world)) }
    }

    /// Makes calls fail until the fault is spent or [`heal`](SimDisk::heal)ed.
    pub fn fail(&self, fault: Fault) {
        self.world.lock().faults.push(fault);
    }

    #[doc(hidden)]
    #[must_use]
    pub fn waiting_faults(&self) -> usize {
        self.world.lock().faults.len()
    }

    /// Takes all faults back. What they have done stays.
    pub fn heal(&self) {
        self.world.lock().faults.clear();
    }

    /// Limits the disk to `bytes` bytes, in blocks of 4096 per file, or not (`None`, the default).
    /// A call that needs more does a part, or gives `StorageFull`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world.lock().capacity = bytes;
    }

    /// Gives the disk no more space than is used now.
    pub fn fill(&self) {
        let mut world = self.world.lock();
        world.capacity = Some(world.used());
    }

    /// Returns the last calls, with their indexes, and events.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.world.lock().trace.lines()
    }

    /// Returns what the operating system shows of a file in the log's folder. Here and below, a
    /// name that begins at the root may lie in any folder.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        let mut world = self.world.lock();
        let id = world.names.file(&in_folder(name))?;
        let node = world.node(id);
        node.absorb();
        Some(node.shown.clone())
    }

    /// Makes `bytes` the content of the file `name`, on the medium, too.
    pub fn set_file(&self, name: &str, bytes: Vec<u8>) {
        let mut world = self.world.lock();
        let path = in_folder(name);
        let id = world.names.file(&path).unwrap_or_else(|| world.new_node());
        world.node(id).replace(bytes);
        world.names.settle(&path, id);
        world.trace.event(&format!("{name} gets other bytes"));
    }

    /// Removes the file `name`, on the medium, too.
    pub fn remove_file(&self, name: &str) {
        let mut world = self.world.lock();
        world.names.forget(&in_folder(name));
        world.collect();
        world.trace.event(&format!("{name} is taken away"));
    }

    /// Returns the log's files, in order of their names.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.files_in(FOLDER)
    }

    /// As [`files`](SimDisk::files), for the folder at a path that begins at the root.
    #[must_use]
    pub fn files_in(&self, folder: &str) -> Vec<String> {
        let world = self.world.lock();
        let folder = absolute(folder);
        let files = world.names.shown.iter().filter(|(path, entry)| {
            matches!(entry, Entry::File(_)) && path.parent() == Some(&folder)
        });
        files.map(|(path, _)| name(path).to_owned()).collect()
    }

    /// Returns the log buffers' files as paths for [`file`](SimDisk::file).
    #[must_use]
    pub fn buffers(&self) -> Vec<String> {
        let world = self.world.lock();
        let paths = world.names.shown.keys().filter(|path| path.starts_with(names::MEMORY));
        paths.filter_map(|path| path.to_str().map(str::to_owned)).collect()
    }

    /// Returns the disk as the present process sees it, for `Options::open_on` and the engine's
    /// files. After its death each call fails. If you make a folder, sync its parent, too.
    #[must_use]
    pub fn as_disk(&self) -> Arc<dyn Disk> {
        Arc::new(Process::of(&self.world))
    }
}

/// Opens or makes the log in `/log`. Segments may be as small as 4 KiB. No thread is started: the
/// disk's generator decides when the calling thread does background work. `Io`: the process is
/// dead; call [`restart`](SimDisk::restart) first.
impl IntoStore for &SimDisk {
    fn into_store(self, files: &FileOptions) -> Result<FileStore> {
        self.open(files)
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world.lock();
        f.debug_struct("SimDisk")
            .field("seed", &self.seed)
            .field("calls", &world.calls)
            .field("run", &world.run)
            .field("is_dead", &world.is_dead)
            .finish_non_exhaustive()
    }
}

fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

fn in_folder(name: &str) -> PathBuf {
    absolute(FOLDER).join(name)
}

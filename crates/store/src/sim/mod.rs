//! A simulated disk under the real store, for tests of logs and of the engines built on them.
//!
//! [`SimDisk`] is a file system in memory that fails on purpose: it loses power, its process is
//! killed at any call, it is full, its calls fail. A log on it runs the same store as a log on
//! files: each call that creates, names, recycles or syncs a file can fail. One seed fixes
//! everything that the disk decides, so a run that failed can be run again.
//!
//! ```
//! use palisade::sim::SimDisk;
//! use palisade::{Options, Wal};
//!
//! # fn main() -> palisade::Result<()> {
//! let options = Options::new().segment_bytes(4096).buffer_bytes(4096);
//! for seed in 0..10 {
//!     let disk = SimDisk::new(seed);
//!     let log = Wal::with_store(&disk, options.clone())?;
//!     let lsn = log.commit(b"acknowledged")?;
//!     log.append(b"not yet")?;
//!
//!     disk.lose_power();
//!     drop(log); // what the dead process still does reaches nobody
//!     let log = Wal::with_store(&disk, options.clone())?;
//!     assert_eq!(log.get(lsn)?.data(), b"acknowledged", "seed {seed}");
//! }
//! # Ok(()) }
//! ```
//!
//! # How to test an engine
//! Run it once and take [`calls`](SimDisk::calls). Then, for each call, run it again on a fresh
//! disk of the same seed with [`crash_at`](SimDisk::crash_at) that call, until its calls fail;
//! [`fork`](SimDisk::fork) the disk as often as you like, let each fork lose power, reopen, and
//! check that everything that was acknowledged is there and nothing else. Print the seed and the
//! call when a check fails, and [`trace`](SimDisk::trace).
//!
//! # What is modelled
//! - *Power loss* ([`lose_power`](SimDisk::lose_power)): each sector of 512 bytes that no
//!   completed sync covers is kept, dropped, torn or garbled, or has the bytes of an earlier
//!   unsynced write, on its own, whatever became of others. Bytes below the first unsynced write
//!   of a sector stay (M1); [without powersafe
//!   overwrite](SimDisk::without_powersafe_overwrite) whole blocks of 4096 bytes can be garbage.
//!   A file's growth may be lost, kept in part, or kept and read as zeros; so may its emptying.
//!   Names made, renamed or removed since the folder's last sync are each kept or not; a rename
//!   is atomic; a file's own sync covers no name. Then there is another boot.
//! - *The log buffer* lies in a memory file system without a device: its bytes outlive the process
//!   and each mount, and no boot. Of the faults only those at [`CallKind::Read`] and
//!   [`CallKind::Map`] meet it. Its space has no limit, and its calls have no index.
//! - *Mounts in the same boot* ([`remount`](SimDisk::remount),
//!   [`crash_file_system`](SimDisk::crash_file_system)): the page cache is another one, in good
//!   order or as after a power loss.
//! - *The death of the process* ([`kill`](SimDisk::kill), [`crash_at`](SimDisk::crash_at)): what
//!   reached the operating system is there, mapped memory as it was at that moment. A call may
//!   have been done in part. All later calls of that process fail and change nothing.
//! - *Failing calls* ([`fail`](SimDisk::fail)). After a failed sync some of the dirty sectors, or
//!   none, are on the medium. [`WriteBackFailure`] says what becomes of the others (M3): they read
//!   back until the system drops them, at any call and at the reads of
//!   [`FaultKind::DropPages`], and later syncs succeed without them; or their
//!   old bytes show; or the file system shuts down.
//! - *Write-back that fails in the background* ([`FaultKind::WriteBack`],
//!   [`fail_write_back`](SimDisk::fail_write_back)): the same, and the next sync of the file, by
//!   whichever process, reports it once.
//! - *A full disk* ([`set_capacity`](SimDisk::set_capacity)), in blocks of 4096 bytes.
//! - *Damage* ([`set_file`](SimDisk::set_file), [`remove_file`](SimDisk::remove_file)).
//!
//! # What is not modelled
//! Syncs that lie (M2). Sectors that change without a write to their block. Holes and shared
//! blocks; metadata of the file system that runs full or rots. Links, permissions, other users.
//! Failed folder syncs that forget (M4): the names stay unsynced, a later sync covers them.
//! Write-back in the background that succeeds is not an event of its own: whatever it could have
//! done by the time of a power loss is among the fates. An error that each open file reports: the
//! first sync of any of them takes it. Time: nothing sleeps, and a [slow
//! sync](FaultKind::SlowSync) only lets other threads run.
//!
//! # Determinism
//! Same seed, same calls by a single thread: same decisions, same bytes, same trace. With several
//! threads, the system's scheduling decides over the order of their calls. Futures, callbacks
//! and `SyncPolicy::Interval` use a thread of the log. Reads draw nothing unless a fault waits
//! for them.

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

/// The folder in which the log lies.
const FOLDER: &str = "/log";

/// A simulated disk; clones are handles of the same one. See the [module](self).
#[derive(Clone)]
pub struct SimDisk {
    seed: u64,
    world: Arc<Mutex<World>>,
}

impl SimDisk {
    /// Makes an empty disk whose decisions `seed` fixes. Overwrites are powersafe (M1) and in
    /// place.
    #[must_use]
    pub fn new(seed: u64) -> SimDisk {
        SimDisk { seed, world: Arc::new(Mutex::new(World::new(seed))) }
    }

    /// Drops assumption M1: power loss may turn the whole block of 4096 bytes that a write touched
    /// into garbage, also bytes that were synced before. Logs need `pad_to_block` there.
    #[must_use]
    pub fn without_powersafe_overwrite(self) -> SimDisk {
        self.world.lock().medium.garbles_blocks = true;
        self
    }

    /// Makes the file system write each block to a new place: nothing is zeroed or recycled, and
    /// every write needs free space.
    #[must_use]
    pub fn copy_on_write(self) -> SimDisk {
        self.world.lock().medium.copies_on_write = true;
        self
    }

    /// Sets how the file system treats failed write-back. Default [`WriteBackFailure::KeepsPages`].
    #[must_use]
    pub fn failing_as(self, failure: WriteBackFailure) -> SimDisk {
        self.world.lock().medium.failure = failure;
        self
    }

    /// Removes the memory file system: the log buffer lies on the heap.
    #[must_use]
    pub fn without_memory(self) -> SimDisk {
        self.world.lock().medium.lacks_memory = true;
        self
    }

    /// Opens the log on the disk, or makes it. Segments may be as small as 4 KiB. The store starts
    /// no thread: the disk's generator decides when its background work is done, and the calling
    /// thread does it.
    ///
    /// # Errors
    /// As [`FileStore::open`]; `Io` when the process is dead: [`restart`](SimDisk::restart) first.
    #[doc(hidden)]
    pub fn open(&self, options: &FileOptions) -> Result<FileStore> {
        options.validate(MIN_SEGMENT_BYTES)?;
        FileStore::open_on_any(self.as_disk(), Path::new(FOLDER), options)
    }

    /// Looks at the log beside its writer, as a tool does: in the same boot.
    ///
    /// # Errors
    /// As [`FileReader::open`].
    #[doc(hidden)]
    pub fn reader(&self) -> Result<FileReader> {
        FileReader::open_on(self.as_disk(), Path::new(FOLDER))
    }

    /// Puts the files of the folder at the path `copy` in the place of the log's, on the medium,
    /// too: for a repaired or restored log.
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

    /// Returns how many calls there were that change something or sync: the index of the next one.
    /// Calls that only read, open, map or lock have none. The count goes on over all process runs.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.world.lock().calls
    }

    /// Makes the process die at the call with the index `call`: it is done, done in part or not
    /// done, it fails, and so does every later call of the present run. A restart or power loss
    /// cancels it.
    ///
    /// ```rust
    /// # fn main() -> palisade::Result<()> {
    /// use palisade::{Options, Wal, sim::SimDisk};
    ///
    /// let options = Options::new().segment_bytes(4096).buffer_bytes(4096);
    /// let open = |disk: &SimDisk| Wal::with_store(disk, options.clone());
    ///
    /// let (mut call, mut is_done) = (0, false);
    /// while !is_done {
    ///     let disk = SimDisk::new(7);
    ///     disk.crash_at(call);
    ///     // The engine's work; it ends where the process dies.
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
    /// # Ok(()) }
    /// ```
    pub fn crash_at(&self, call: u64) {
        self.world.lock().crash_at = Some(call);
    }

    /// Returns whether the process has died.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.world.lock().is_dead
    }

    /// Kills the process, as `SIGKILL` does. What it has mapped is taken as it is at this moment,
    /// so a closure of `append_with` can call this in the middle of its copy.
    pub fn kill(&self) {
        self.world.lock().die();
    }

    /// Starts another process in the same boot, after a [`kill`](SimDisk::kill) if there was none.
    pub fn restart(&self) {
        let mut world = self.world.lock();
        world.revive();
        world.trace.event("another process begins");
    }

    /// Loses power, by the disk's generator, and turns it on again: another boot, another process.
    pub fn lose_power(&self) {
        let mut world = self.world.lock();
        let mut fates = world.fates_by_chance();
        world.lose_power(&mut fates);
    }

    /// Loses power, with the fate of each [`Loss`] that `choose` returns, and turns it on again:
    /// another boot, another process. Names come first, then the files in the order of their names,
    /// each with its emptying, its growth and its sectors.
    pub fn lose_power_choosing(&self, choose: &mut dyn FnMut(Loss) -> Fate) {
        self.world.lock().lose_power(choose);
    }

    /// Shuts the system down in good order, and starts it again: another boot, another process,
    /// after a [`kill`](SimDisk::kill) if there was none. Everything is on the medium but what a
    /// failed write-back has forgotten. A file system that has shut down loses as in a power loss.
    pub fn reboot(&self) {
        let mut world = self.world.lock();
        let mut fates = world.fates_of_an_orderly_end();
        world.lose_power(&mut fates);
    }

    /// Unmounts the file system in good order, and mounts it again in the same boot; another
    /// process, after a [`kill`](SimDisk::kill) if there was none. Everything is on the medium but
    /// what a failed write-back has forgotten. A file system that has shut down loses as in a power
    /// loss.
    pub fn remount(&self) {
        let mut world = self.world.lock();
        let mut fates = world.fates_of_an_orderly_end();
        world.remount(&mut fates);
    }

    /// Makes the file system lose what it would lose with the power, by the disk's generator, and
    /// mounts it again in the same boot: it shut down, or its device is an image of the old one.
    /// Another process begins.
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

    /// Returns how often write-back has failed so far, in a sync or in the background, over all
    /// process runs.
    #[must_use]
    pub fn write_back_failures(&self) -> u64 {
        self.world.lock().write_back_failures
    }

    /// Returns how often [`FaultKind::DropPages`] has dropped pages right before a read, over all
    /// process runs.
    #[must_use]
    pub fn pages_dropped_at_reads(&self) -> u64 {
        self.world.lock().pages_dropped_at_reads
    }

    /// Returns how many files have a failure of write-back that no sync has reported: the next sync
    /// of each fails.
    #[must_use]
    pub fn unreported_failures(&self) -> usize {
        self.world.lock().nodes.values().filter(|node| node.has_unreported).count()
    }

    /// Makes write-back of some file that has unsynced bytes fail in the background. Does nothing
    /// if there is no such file.
    pub fn fail_write_back(&self) {
        self.world.lock().fail_some_write_back();
    }

    /// Drops all pages that a failed write-back left clean. Without this call the system drops them
    /// now and then, by the disk's generator.
    pub fn drop_pages(&self) {
        self.world.lock().drop_pages();
    }

    /// Returns what a power loss would decide over, in the order in which it would ask.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        self.world.lock().losses().into_iter().map(|(_, loss)| loss).collect()
    }

    /// Returns how many sectors no completed sync covers. The log buffer has none, because no
    /// device is below it.
    #[must_use]
    pub fn unsynced_sectors(&self) -> usize {
        self.losses().iter().filter(|loss| loss.is_sector()).count()
    }

    /// Returns another disk in the same state, whose process has died at this moment. `seed` and
    /// this disk's past fix its chances. With the same `seed`, the same losses often get the same
    /// fate at whichever call the process died, so use another one for each call. The copy has this
    /// disk's capacity and none of its faults.
    #[must_use]
    pub fn fork(&self, seed: u64) -> SimDisk {
        let world = self.world.lock().fork(seed);
        SimDisk { seed, world: Arc::new(Mutex::new(world)) }
    }

    /// Makes calls fail. Faults stay, over all process runs, until they are spent or
    /// [`heal`](SimDisk::heal)ed.
    pub fn fail(&self, fault: Fault) {
        self.world.lock().faults.push(fault);
    }

    /// Returns how many faults wait for their calls.
    #[doc(hidden)]
    #[must_use]
    pub fn waiting_faults(&self) -> usize {
        self.world.lock().faults.len()
    }

    /// Takes all faults back. What they have done stays.
    pub fn heal(&self) {
        self.world.lock().faults.clear();
    }

    /// Gives the disk space for `bytes` bytes in all, counted in blocks of 4096 bytes per file;
    /// `None`, as in the beginning, for as much as is asked for. Where less is free than a call
    /// needs it does a part, or gives `StorageFull`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world.lock().capacity = bytes;
    }

    /// Gives the disk no more space than is used now.
    pub fn fill(&self) {
        let mut world = self.world.lock();
        world.capacity = Some(world.used());
    }

    /// Returns the last calls and events, a line each, calls with their indexes.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.world.lock().trace.lines()
    }

    /// Returns what the operating system shows of the file `name` in the log's folder. Here and
    /// below, a name that begins at the root may lie in any folder.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        let mut world = self.world.lock();
        let id = world.names.file(&in_folder(name))?;
        let node = world.node(id);
        node.absorb();
        Some(node.shown.clone())
    }

    /// Makes `bytes` the content of the file `name` in the log's folder, on the medium, too: for
    /// flipped bits, swapped and foreign files. What it had unsynced is gone.
    pub fn set_file(&self, name: &str, bytes: Vec<u8>) {
        let mut world = self.world.lock();
        let path = in_folder(name);
        let id = world.names.file(&path).unwrap_or_else(|| world.new_node());
        world.node(id).replace(bytes);
        world.names.settle(&path, id);
        world.trace.event(&format!("{name} gets other bytes"));
    }

    /// Takes the file `name` out of the log's folder, on the medium, too.
    pub fn remove_file(&self, name: &str) {
        let mut world = self.world.lock();
        world.names.forget(&in_folder(name));
        world.collect();
        world.trace.event(&format!("{name} is taken away"));
    }

    /// Returns the names of all files in the log's folder, in order, as the operating system shows
    /// them.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.files_in(FOLDER)
    }

    /// Does what [`files`](SimDisk::files) does, for the folder at a path that begins at the root.
    #[must_use]
    pub fn files_in(&self, folder: &str) -> Vec<String> {
        let world = self.world.lock();
        let folder = absolute(folder);
        let files = world.names.shown.iter().filter(|(path, entry)| {
            matches!(entry, Entry::File(_)) && path.parent() == Some(&folder)
        });
        files.map(|(path, _)| name(path).to_owned()).collect()
    }

    /// Returns the files of log buffers, which lie in memory, each as a path that
    /// [`file`](SimDisk::file) takes.
    #[must_use]
    pub fn buffers(&self) -> Vec<String> {
        let world = self.world.lock();
        let paths = world.names.shown.keys().filter(|path| path.starts_with(names::MEMORY));
        paths.filter_map(|path| path.to_str().map(str::to_owned)).collect()
    }

    /// Returns the disk as the present process sees it, for `Options::open_on` and for the engine's
    /// own files. Sync the folder in which you make a folder, too. The log of
    /// `Wal::with_store` lies in the folder `/log`. All calls
    /// fail once the process is dead.
    #[must_use]
    pub fn as_disk(&self) -> Arc<dyn Disk> {
        Arc::new(Process::of(&self.world))
    }
}

/// Opens the log in the folder `/log`, or makes it. Segments may be as small as 4 KiB. The store
/// starts no thread: the disk's generator decides when its background work is done, and the calling
/// thread does it. If the process is dead, the open returns `Io`: call
/// [`restart`](SimDisk::restart) first.
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

/// Returns a path from the root as the store names it.
fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

fn in_folder(name: &str) -> PathBuf {
    absolute(FOLDER).join(name)
}

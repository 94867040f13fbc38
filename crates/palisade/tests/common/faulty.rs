//! A log in memory, on a disk whose calls can be made to fail, to panic, or to wait.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use palisade::disk::Disk;
use palisade::sim::{Call, CallKind, Calls, FaultDisk, FaultKind, Target};
use palisade::{BufferKind, MemStore, Options, Result, Wal};
use palisade_store::{FileOptions, FileStore};

use crate::watchdog::watch;

/// The log's bytes are written.
pub(crate) const WRITE: Calls = (CallKind::Write, Target::Segment);
pub(crate) const READ: Calls = (CallKind::Read, Target::Segment);
/// The log's bytes are synced.
pub(crate) const SYNC: Calls = (CallKind::Sync, Target::Segment);
/// A segment is made: for the tail, for a new epoch, or for the tail that an open moves.
pub(crate) const MAKE_SEGMENT: Calls = (CallKind::Write, Target::Spare);
/// A segment that was made gets its name.
pub(crate) const NAME_SEGMENT: Calls = (CallKind::Rename, Target::Segment);
/// A segment that was released becomes a spare, or goes.
pub(crate) const RELEASE: [Calls; 2] =
    [(CallKind::Rename, Target::Spare), (CallKind::Remove, Target::Segment)];
/// A commit notes what is written, and then what is durable.
pub(crate) const MARK: Calls = (CallKind::Write, Target::Marks);
pub(crate) const SAVE_STATE: Calls = (CallKind::Write, Target::Meta);
pub(crate) const MAKE_BUFFER: Calls = (CallKind::Allocate, Target::Buffer);
/// A truncation gives the log buffer to the new epoch.
pub(crate) const PASS_BUFFER_ON: Calls = (CallKind::Write, Target::Buffer);

/// A log in memory, by its disk. Clones share it, and are one process: [`kill`](Self::kill) ends
/// it, [`next_run`](Self::next_run) begins another one on the same content.
#[derive(Clone, Debug)]
pub(crate) struct FaultyLog {
    pub(crate) inner: MemStore,
    disk: FaultDisk,
    files: FileOptions,
    rewrites: Arc<Rewrites>,
}

/// How often a block was written again that a returned sync had covered.
#[derive(Debug, Default)]
struct Rewrites {
    /// As the marks say, rounded up to a block.
    durable: AtomicU64,
    count: AtomicUsize,
}

impl Rewrites {
    fn watch(&self, call: &Call<'_>, segment_bytes: u64) {
        match (call.kind, call.target) {
            (CallKind::Write, Target::Marks) => {
                let durable = u64::from_le_bytes(call.pieces[0][8..16].try_into().unwrap());
                self.durable.fetch_max(durable.next_multiple_of(4096), Ordering::SeqCst);
            }
            WRITE => {
                let is_rewrite =
                    place_of(call, segment_bytes) < self.durable.load(Ordering::SeqCst);
                self.count.fetch_add(usize::from(is_rewrite), Ordering::SeqCst);
            }
            _ => {}
        }
    }
}

/// The place in the log at which a call to a segment begins, behind the segment's header.
fn place_of(call: &Call<'_>, segment_bytes: u64) -> u64 {
    let number: u64 = call.name.rsplit('-').next().unwrap().parse().unwrap();
    number * segment_bytes + call.offset - 4096
}

impl Deref for FaultyLog {
    type Target = FaultDisk;

    fn deref(&self) -> &FaultDisk {
        &self.disk
    }
}

impl FaultyLog {
    pub(crate) fn new(segment_bytes: u64) -> FaultyLog {
        FaultyLog::with_buffer(segment_bytes, BufferKind::Auto)
    }

    /// The same, whose segments may take `files` files, and which keeps at least `spares` of them.
    pub(crate) fn limited(segment_bytes: u64, files: u64, spares: usize) -> FaultyLog {
        let mut log = FaultyLog::new(segment_bytes);
        log.files.max_bytes = Some(files * (segment_bytes + 4096));
        log.files.spare_segments = spares;
        log
    }

    pub(crate) fn with_buffer(segment_bytes: u64, buffer: BufferKind) -> FaultyLog {
        let mut files = FileOptions::new();
        files.segment_bytes = Some(segment_bytes);
        files.zero_fill = false;
        files.buffer = buffer;
        // Each segment is made by a call of the log, which can then be disturbed.
        let inner = MemStore::new(segment_bytes).without_threads();
        FaultyLog::over(inner, files, Arc::default())
    }

    fn over(inner: MemStore, files: FileOptions, rewrites: Arc<Rewrites>) -> FaultyLog {
        watch();
        let disk = FaultDisk::new(Arc::new(inner.disk().clone()));
        let (watched, segment_bytes) = (Arc::clone(&rewrites), files.segment_bytes.unwrap());
        disk.watch(move |call| {
            watched.watch(call, segment_bytes);
            Ok(())
        });
        FaultyLog { inner, disk, files, rewrites }
    }

    /// The process dies: when this returns, no call is in progress, and none changes anything
    /// any more. What a log that runs still appends goes to the kept buffer, as the last appends
    /// of a process do.
    pub(crate) fn kill(&self) {
        self.inner.kill();
    }

    /// The log as the next process finds it, without faults.
    pub(crate) fn next_run(&self) -> FaultyLog {
        FaultyLog::over(self.inner.clone(), self.files.clone(), Arc::clone(&self.rewrites))
    }

    pub(crate) fn store(&self) -> Result<FileStore> {
        self.disk.open(&self.files)
    }

    /// Opens the log, or makes it.
    pub(crate) fn try_open(&self, options: Options) -> Result<Wal> {
        Wal::with_store(self.store()?, options)
    }

    /// As [`try_open`](Self::try_open), where nothing is to fail.
    pub(crate) fn open(&self, options: Options) -> Wal {
        self.try_open(options).unwrap()
    }

    /// Kills the process of `wal`; returns the log as the next process finds it.
    pub(crate) fn after_kill(&self, wal: Wal) -> FaultyLog {
        self.kill();
        drop(wal);
        self.next_run()
    }

    /// The same with a loss of power.
    pub(crate) fn after_power_loss(&self, wal: Wal) -> FaultyLog {
        let next = self.after_kill(wal);
        next.inner.lose_power();
        next
    }

    /// Returns a medium with the log that cannot read the block at `block`.
    pub(crate) fn disk_without(&self, block: u64) -> Arc<dyn Disk> {
        let (disk, segment_bytes) = (self.next_run().disk, self.files.segment_bytes.unwrap());
        disk.watch(move |call| {
            let is_log = (call.kind, call.target) == (CallKind::Read, Target::Segment);
            if is_log && call.offset >= 4096 {
                let at = place_of(call, segment_bytes);
                if at < block + 4096 && at + call.len > block {
                    return Err(FaultKind::Eio.error());
                }
            }
            Ok(())
        });
        Arc::new(disk)
    }

    /// How many writes, in all runs, went to a block that a returned sync had covered.
    pub(crate) fn rewrites(&self) -> usize {
        self.rewrites.count.load(Ordering::SeqCst)
    }
}

/// A new log in memory, of which nothing fails.
pub(crate) fn log_in_memory(segment_bytes: u64, buffer_bytes: usize) -> Wal {
    watch();
    let options = Options::new().buffer_bytes(buffer_bytes);
    Wal::with_store(MemStore::new(segment_bytes), options).unwrap()
}

/// A new log in memory, and its disk.
pub(crate) fn new_log(segment_bytes: u64, options: Options) -> (Wal, FaultyLog) {
    let store = FaultyLog::new(segment_bytes);
    (store.open(options), store)
}

/// A small log in memory, and its disk.
pub(crate) fn log_and_store() -> (Wal, FaultyLog) {
    new_log(1 << 16, Options::new().buffer_bytes(1 << 14))
}

//! A store in memory whose calls can be made to fail, to panic, or to wait.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use palisade::store::{Epoch, OldBuffer, ReadStore, Segment, State, Store, TailSource};
use palisade::{Error, ErrorKind, FileStore, IntoStore, Lsn, MemStore, Options, Result, Wal};
use palisade_core::Memory;

/// A call that can be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Write,
    Sync,
    Prepare,
    MarkDurable,
    SaveState,
    BeginEpoch,
    ResumeEpoch,
    RenewBuffer,
    MoveTail,
    PassBufferOn,
    Release,
}

/// How a call is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// EIO.
    Broken,
    /// ENOSPC.
    Full,
    /// The base lies below what is prepared.
    Behind,
    Panic,
    /// The call waits until it has another fault, which it then has.
    Hold,
}

#[derive(Debug)]
struct Plan {
    faults: [Fault; OPS],
    calls: [usize; OPS],
    holding: [usize; OPS],
}

const OPS: usize = 11;

/// A [`MemStore`] with faults. Clones share both, and are one process: [`kill`](Self::kill) ends
/// it, [`next_run`](Self::next_run) begins another one on the same content.
#[derive(Clone, Debug)]
pub(crate) struct FaultyStore {
    pub(crate) inner: MemStore,
    faults: Faults,
}

/// The store that a log runs on.
#[derive(Debug)]
pub(crate) struct OpenStore {
    inner: FileStore,
    faults: Faults,
}

impl IntoStore for FaultyStore {
    type Store = OpenStore;

    fn into_store(self) -> Result<OpenStore> {
        Ok(OpenStore { inner: self.inner.open()?, faults: self.faults })
    }
}

#[derive(Clone, Debug)]
struct Faults {
    plan: Arc<(Mutex<Plan>, Condvar)>,
    /// The blocks that a sync has covered, and how often one of them was written again.
    blocks: Arc<Mutex<(BTreeSet<u64>, usize)>>,
    is_alive: Arc<RwLock<bool>>,
}

impl FaultyStore {
    pub(crate) fn new(segment_bytes: u64) -> FaultyStore {
        FaultyStore::over(MemStore::new(segment_bytes))
    }

    pub(crate) fn over(inner: MemStore) -> FaultyStore {
        let plan = Plan { faults: [Fault::None; OPS], calls: [0; OPS], holding: [0; OPS] };
        let faults = Faults {
            plan: Arc::new((Mutex::new(plan), Condvar::new())),
            blocks: Arc::default(),
            is_alive: Arc::new(RwLock::new(true)),
        };
        // Each segment is made by a call of the log, which can then be disturbed.
        FaultyStore { inner: inner.without_threads(), faults }
    }

    /// The process dies: when this returns, no call is in progress, and none changes anything
    /// any more. What a log that runs on the store still appends goes to the kept buffer, as
    /// the last appends of a process do.
    pub(crate) fn kill(&self) {
        *self.faults.is_alive.write().unwrap_or_else(PoisonError::into_inner) = false;
        self.inner.kill();
    }

    /// The store as the next process finds it, without faults.
    pub(crate) fn next_run(&self) -> FaultyStore {
        let mut next = FaultyStore::over(self.inner.clone());
        next.faults.blocks = Arc::clone(&self.faults.blocks);
        next
    }

    /// Opens the log, or makes it.
    pub(crate) fn open(&self, options: Options) -> Wal {
        Wal::with_store(self.clone(), options).unwrap()
    }

    /// Kills the process of `wal`; returns the store as the next process finds it.
    pub(crate) fn after_kill(&self, wal: Wal) -> FaultyStore {
        self.kill();
        drop(wal);
        self.next_run()
    }

    /// The same with a loss of power.
    pub(crate) fn after_power_loss(&self, wal: Wal) -> FaultyStore {
        let next = self.after_kill(wal);
        next.inner.lose_power();
        next
    }

    /// How many writes, in all runs, went to a block that a sync had covered.
    pub(crate) fn rewrites(&self) -> usize {
        self.faults.blocks.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Every later call of `op`, and every one that is held, has `fault`.
    pub(crate) fn set(&self, op: Op, fault: Fault) {
        self.faults.plan().faults[op as usize] = fault;
        self.faults.plan.1.notify_all();
    }

    /// How often `op` was called.
    pub(crate) fn calls(&self, op: Op) -> usize {
        self.faults.plan().calls[op as usize]
    }

    /// Whether a call of `op` is being held.
    pub(crate) fn is_holding(&self, op: Op) -> bool {
        self.faults.plan().holding[op as usize] > 0
    }
}

impl Faults {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call begin, or disturbs it. Nobody dies before the guard is gone.
    fn begin(&self, op: Op) -> Result<RwLockReadGuard<'_, bool>> {
        self.disturb(op)?;
        let is_alive = self.is_alive.read().unwrap_or_else(PoisonError::into_inner);
        if *is_alive { Ok(is_alive) } else { Err(failed(io::Error::from_raw_os_error(5))) }
    }

    fn disturb(&self, op: Op) -> Result<()> {
        let index = op as usize;
        let mut plan = self.plan();
        plan.calls[index] += 1;
        plan.holding[index] += 1;
        while plan.faults[index] == Fault::Hold {
            plan = self.plan.1.wait(plan).unwrap_or_else(PoisonError::into_inner);
        }
        plan.holding[index] -= 1;
        match plan.faults[index] {
            Fault::None | Fault::Hold => Ok(()),
            Fault::Broken => Err(failed(io::Error::from_raw_os_error(5))),
            Fault::Behind => Err(Error::new(ErrorKind::OutOfRange, "more is prepared")),
            Fault::Full => Err(failed(io::ErrorKind::StorageFull.into())),
            Fault::Panic => {
                drop(plan);
                panic!("the store panics, as it was asked to")
            }
        }
    }
}

/// A new log in memory, and its store.
pub(crate) fn new_log(segment_bytes: u64, options: Options) -> (Wal, FaultyStore) {
    let store = FaultyStore::new(segment_bytes);
    (store.open(options), store)
}

/// A small log in memory, and its store.
pub(crate) fn log_and_store() -> (Wal, FaultyStore) {
    new_log(1 << 16, Options::new().buffer_bytes(1 << 14))
}

/// The numbers of the blocks of 4096 bytes in which `[from, to)` lies.
fn blocks_of(from: Lsn, to: Lsn) -> Range<u64> {
    from.as_u64() / 4096..to.as_u64().div_ceil(4096)
}

fn failed(error: io::Error) -> Error {
    Error::io("do what the test forbids", error)
}

impl ReadStore for OpenStore {
    fn state(&self) -> Result<State> {
        self.inner.state()
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        self.inner.segments()
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        self.inner.read(at, into)
    }

    fn place(&self) -> String {
        self.inner.place()
    }
}

impl Store for OpenStore {
    fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        let _alive = self.faults.begin(Op::Write)?;
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        {
            let mut blocks = self.faults.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            let is_rewrite = blocks.0.range(blocks_of(at, at.plus(len as u64))).next().is_some();
            blocks.1 += usize::from(is_rewrite);
        }
        self.inner.write(at, pieces)
    }

    fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        let _alive = self.faults.begin(Op::Sync)?;
        self.inner.sync(from, to)?;
        let mut blocks = self.faults.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.0.extend(blocks_of(from, to));
        Ok(())
    }

    fn mark_durable(&self, durable: Lsn) -> Result<()> {
        let _alive = self.faults.begin(Op::MarkDurable)?;
        self.inner.mark_durable(durable)
    }

    fn prepared(&self) -> Lsn {
        self.inner.prepared()
    }

    fn prepare(&self, to: Lsn) -> Result<()> {
        let _alive = self.faults.begin(Op::Prepare)?;
        self.inner.prepare(to)
    }

    fn prepare_ahead(&self, _tail: Lsn) {}

    fn save_state(&self, state: &State) -> Result<()> {
        let _alive = self.faults.begin(Op::SaveState)?;
        self.inner.save_state(state)
    }

    fn release(&self, from: Lsn, to: Lsn) -> Result<()> {
        let _alive = self.faults.begin(Op::Release)?;
        self.inner.release(from, to)
    }

    fn begin_epoch(&self, epoch: &Epoch) -> Result<()> {
        let _alive = self.faults.begin(Op::BeginEpoch)?;
        self.inner.begin_epoch(epoch)
    }

    fn resume_epoch(&self, epoch: &Epoch, end: Lsn) -> Result<()> {
        let _alive = self.faults.begin(Op::ResumeEpoch)?;
        self.inner.resume_epoch(epoch, end)
    }

    fn move_tail(
        &self,
        epoch: &Epoch,
        from: Lsn,
        to: Lsn,
        source: &mut TailSource<'_>,
    ) -> Result<()> {
        let _alive = self.faults.begin(Op::MoveTail)?;
        self.inner.move_tail(epoch, from, to, source)
    }

    fn old_buffer(&self) -> Result<OldBuffer> {
        self.inner.old_buffer()
    }

    fn renew_buffer(&self, epoch: u64, buffer_bytes: usize, durable: Lsn) -> Result<Memory> {
        let _alive = self.faults.begin(Op::RenewBuffer)?;
        self.inner.renew_buffer(epoch, buffer_bytes, durable)
    }

    fn pass_buffer_on(&self, epoch: u64) -> Result<()> {
        let _alive = self.faults.begin(Op::PassBufferOn)?;
        self.inner.pass_buffer_on(epoch)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn close(&self) {
        self.inner.close();
    }
}

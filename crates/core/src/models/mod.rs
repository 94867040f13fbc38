//! Loom models of the log's lock-free core: the code itself on a [`ModelStore`], with a log buffer
//! of two to four records and two or three threads, in every schedule within a preemption bound. A
//! deadlock, an endless wait, a data race on a byte of the ring and a broken assertion fail a
//! model. `verification/README.md` lists what is not checked.

mod abandon;
mod async_waiters;
mod buffer;
mod commit;
mod leadership;
mod readers;
mod release;
mod room;
mod space_watch;
mod store;
mod truncate_after;

use std::sync::Arc;

use palisade_store::sync::model_check;

pub(crate) use self::store::ModelStore;
use crate::buffer::{Buffer, Reserved};
use crate::frame::EpochSeed;
use crate::{Lsn, Memory, Options, Result, Uuid, Wal};

/// The frame of a [`large`] record: two fill the ring.
const LARGE_FRAME: u64 = 32;
/// The frame of an empty record.
const SMALL_FRAME: u64 = 24;
const RING: u64 = 64;
/// Only the models of segment ends reach its end.
const LONG_SEGMENT: u64 = 4096;

#[derive(Clone, Copy)]
struct Shape {
    base: Lsn,
    ring_bytes: u64,
    segment_bytes: u64,
}

impl Shape {
    const TINY: Shape = Shape { base: Lsn::ZERO, ring_bytes: RING, segment_bytes: LONG_SEGMENT };
    const ROOMY: Shape = Shape { ring_bytes: 2 * RING, ..Shape::TINY };
}

#[derive(Clone)]
struct Log {
    wal: Wal,
    store: Arc<ModelStore>,
}

impl Log {
    fn new(shape: Shape, store: ModelStore) -> Log {
        Log::with_options(shape, store, Options::default())
    }

    fn with_options(shape: Shape, store: ModelStore, options: Options) -> Log {
        let store = Arc::new(store);
        let options = Options { gather_percent: 0, pad_to_block: store.pads(), ..options };
        let memory = Memory::heap(shape.ring_bytes as usize).expect("there is memory");
        let wal = Wal::model(
            Arc::clone(&store),
            memory,
            shape.base,
            shape.segment_bytes,
            seed(),
            &options,
        );
        Log { wal, store }
    }

    fn tiny() -> Log {
        Log::new(Shape::TINY, ModelStore::new(Shape::TINY.base))
    }

    fn roomy() -> Log {
        Log::new(Shape::ROOMY, ModelStore::new(Shape::ROOMY.base))
    }

    fn commit(&self, mark: u8) -> Result<()> {
        let lsn = self.wal.commit(&large(mark))?;
        self.store.assert_synced(lsn, mark);
        assert!(self.wal.durable_lsn() >= lsn.plus(LARGE_FRAME), "an acknowledged end is durable");
        Ok(())
    }

    fn write_filled(&self) -> Lsn {
        self.wal.commit_state().write_filled().unwrap()
    }

    fn append(&self, mark: u8) -> Lsn {
        self.wal.append(&large(mark)).expect("the log takes it").lsn()
    }
}

fn spawn<S: Clone + 'static, T: 'static>(
    shared: &S,
    body: impl FnOnce(&S) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let shared = shared.clone();
    loom::thread::spawn(move || body(&shared))
}

fn bare_buffer() -> Arc<Buffer> {
    let memory = Memory::heap(4 * RING as usize).expect("there is memory");
    let buffer = Buffer::new(memory, Lsn::ZERO, LONG_SEGMENT, seed());
    Arc::new(buffer.expect("a model has memory"))
}

/// Reserves `bytes`, for which the ring has room, unless a flag is set.
fn take(buffer: &Buffer, bytes: u64) -> Option<Reserved<'_>> {
    let claim = buffer.reserve(bytes).ok()?;
    let reserved = claim.occupy(buffer, bytes, buffer.limit(), Lsn::ZERO);
    Some(reserved.expect("the ring has room"))
}

fn large(mark: u8) -> [u8; 8] {
    [mark; 8]
}

fn seed() -> EpochSeed {
    EpochSeed::new(Uuid([7; 16]), 1, 2)
}

#[derive(Clone, Copy)]
enum Bound {
    /// More than any schedule has. (Without a bound the checker leaves out switches.)
    None,
    /// With more the search takes minutes.
    At(usize),
}

impl Bound {
    const fn preemptions(self) -> usize {
        match self {
            Bound::None => 100,
            Bound::At(preemptions) => preemptions,
        }
    }
}

fn check(name: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) {
    model_check(name, bound.preemptions(), model);
}

//! Loom models of the log's lock-free core. They run the code itself, not a copy of it.
//!
//! Each model builds a [`Wal`] on a [`ModelStore`] with a log buffer of two to four records, runs
//! two or three threads on it, and goes through every schedule that the checker finds within its
//! preemption bound. A deadlock, an endless wait, a data race on a byte of the ring and a broken
//! assertion all fail it. `verification/README.md` lists what is not checked.

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

/// Bytes of the frame of a record of [`LARGE`] bytes: with it, two fill the ring of 64 bytes.
const LARGE_FRAME: u64 = 32;
/// Bytes of the frame of an empty record.
const SMALL_FRAME: u64 = 24;
const RING: u64 = 64;
/// A segment so long that only the models of segment ends reach its end.
const LONG_SEGMENT: u64 = 4096;

/// Where a model's log begins, and the sizes of its log buffer and its segments.
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

/// A log and the store that checks its bytes.
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

    /// Commits a large record whose bytes are all `mark`, and checks the acknowledgement.
    fn commit(&self, mark: u8) -> Result<()> {
        let lsn = self.wal.commit(&large(mark))?;
        self.store.assert_synced(lsn, mark);
        assert!(self.wal.durable_lsn() >= lsn.plus(LARGE_FRAME), "an acknowledged end is durable");
        Ok(())
    }

    /// Writes all records that are filled, and returns their end.
    fn write_filled(&self) -> Lsn {
        self.wal.commit_state().write_filled().unwrap()
    }

    fn append(&self, mark: u8) -> Lsn {
        self.wal.append(&large(mark)).expect("the log takes it").lsn()
    }
}

/// Runs `body` with a clone of `shared` on a thread of its own.
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

/// Reserves `bytes`, for which the ring has room. Returns `None` once a flag is set.
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

/// The bound of preemptions per schedule up to which a model is searched.
#[derive(Clone, Copy)]
enum Bound {
    /// More than any schedule has. (With a bound the checker tries more switches than without one,
    /// because without one it leaves out those that it takes for redundant.)
    None,
    /// At most this many. With more the search takes minutes.
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

/// Runs `model` through its schedules up to `bound`.
fn check(name: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) {
    model_check(name, bound.preemptions(), model);
}

//! Loom models of the log's lock-free core: the code itself, not a likeness of it.
//!
//! Each model builds a [`Wal`] on a [`ModelStore`] with a ring of two to four records, lets two or
//! three threads at it, and is run through every schedule that the checker finds within its
//! preemption bound. A deadlock, a wait without end, a data race on a byte of the ring and a broken
//! assertion all fail it. `verification/README.md` says what is not checked.

mod async_waiters;
mod buffer;
mod commit;
mod cut;
mod leadership;
mod room;
mod store;

use std::sync::Arc;

use self::store::ModelStore;
use crate::buffer::{Buffer, Reserved};
use crate::frame::EpochSeed;
use crate::store::Store;
use crate::sync::model_check;
use crate::{Lsn, Memory, Options, Result, Uuid, Wal};

/// Bytes of the frame of a record of [`LARGE`] bytes: with it, two fill the ring of 64 bytes.
const LARGE_FRAME: u64 = 32;
/// Bytes of the frame of an empty record.
const SMALL_FRAME: u64 = 24;
const RING: u64 = 64;
/// A segment that no model but those about segment ends comes to the end of.
const LONG_SEGMENT: u64 = 4096;

/// Where a model's log begins, and how large its ring and its segments are.
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

/// A log and the store that watches what becomes of its bytes.
#[derive(Clone)]
struct Log {
    wal: Wal,
    store: Arc<ModelStore>,
}

impl Log {
    fn new(shape: Shape, store: ModelStore) -> Log {
        let store = Arc::new(store);
        let options =
            Options { gather_percent: 0, pad_to_block: store.pads(), ..Options::default() };
        let memory = Memory::heap(shape.ring_bytes as usize);
        let kept = Arc::clone(&store) as Arc<dyn Store>;
        let wal = Wal::model(kept, memory, shape.base, shape.segment_bytes, seed(), &options);
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

    fn append(&self, mark: u8) -> Lsn {
        self.wal.append(&large(mark)).expect("the log takes it").lsn()
    }
}

/// Reserves `bytes`, for which the ring has room; `None` once a flag is set.
fn take(buffer: &Buffer, bytes: u64) -> Option<Reserved<'_>> {
    let claim = buffer.reserve(bytes).ok()?;
    let granted = claim.granted(bytes, buffer.limit()).expect("the ring has room");
    Some(granted.occupy(buffer, Lsn::ZERO))
}

fn large(mark: u8) -> [u8; 8] {
    [mark; 8]
}

fn seed() -> EpochSeed {
    EpochSeed::new(Uuid([7; 16]), 1, 2)
}

/// How many preemptions per schedule a model is searched to.
#[derive(Clone, Copy)]
enum Bound {
    /// More than any schedule has. (With a bound the checker tries more switches than without
    /// one, where it leaves out those that it takes for redundant.)
    None,
    /// At most this many: with more the search takes minutes.
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

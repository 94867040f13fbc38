//! What the tests of the store on files share.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::disk::{Disk, ZeroSteps};
use crate::folder::{Folder, RESERVE};
use crate::segment::{Segments, Shape};
use crate::testing::TestDisk;
use crate::{Epoch, Lsn, Predecessor, ReadStore, Uuid};
use crate::{FileOptions, FileStore};

pub(super) const SEGMENT_BYTES: u64 = 65_536;
pub(super) const RING_BYTES: usize = 16_384;
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn options(segment_bytes: u64) -> FileOptions {
    FileOptions { segment_bytes: Some(segment_bytes), ..FileOptions::default() }
}

pub(crate) fn segments(disk: Arc<dyn Disk>, path: &Path) -> Segments {
    let shape = Shape {
        uuid: Uuid([1; 16]),
        segment_bytes: 1 << 20,
        codec: None,
        in_place: true,
        zero_fill: false,
        spare_segments: 1,
        zero_steps: ZeroSteps::default(),
        max_bytes: None,
    };
    Segments::open(Folder::at(&disk, path, 0o600).unwrap(), shape, None).unwrap()
}

pub(super) fn open(disk: &TestDisk) -> FileStore {
    disk.open(&options(SEGMENT_BYTES)).unwrap()
}

/// Makes a disk with a store.
pub(super) fn opened() -> (TestDisk, FileStore) {
    let disk = TestDisk::new();
    let store = open(&disk);
    (disk, store)
}

/// Makes a store with `segments` segments in its first epoch, without a log buffer and a preparer.
pub(super) fn running(segments: u64) -> (TestDisk, FileStore) {
    let (disk, store) = opened();
    store.begin_epoch(&epoch(1, 0), &[]).unwrap();
    store.prepare(Lsn::new(segments * SEGMENT_BYTES)).unwrap();
    (disk, store)
}

/// As `running`, with a log buffer and the preparer.
pub(super) fn begun() -> (TestDisk, FileStore) {
    let (disk, store) = opened();
    begin(&store, 1, 0);
    (disk, store)
}

pub(crate) fn epoch(number: u64, base: u64) -> Epoch {
    let predecessor = Predecessor { epoch: number - 1, end: Lsn::ZERO };
    Epoch { number, salt: number * 3, base: Lsn::new(base), predecessor }
}

pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        crate::sync::yield_now();
    }
}

/// Waits longer than a device needs for some MiB.
pub(super) fn pause_below_a_flood() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(40) {
        crate::sync::yield_now();
    }
}

pub(super) fn has_spare(disk: &TestDisk) -> bool {
    disk.spares().iter().any(|name| disk.len(name) > SEGMENT_BYTES)
}

/// As `begun`, with a spare.
pub(super) fn with_a_spare(segment_bytes: u64) -> (TestDisk, FileStore) {
    let disk = TestDisk::new();
    let store = disk.open(&options(segment_bytes)).unwrap();
    begin(&store, 1, 0);
    wait_until("a spare is made", || has_spare(&disk));
    (disk, store)
}

pub(super) fn begin(store: &FileStore, number: u64, base: u64) {
    store.begin_epoch(&epoch(number, base), &[]).unwrap();
    drop(store.renew_buffer(number, RING_BYTES, Lsn::new(base)).unwrap());
    let mut state = store.state().unwrap();
    (state.epoch, state.epoch_base, state.clean) = (number, Lsn::new(base), false);
    state.buffer_bytes = RING_BYTES as u64;
    store.save_state(&state).unwrap();
}

/// Makes a log with a spare and the reserve on a full disk.
pub(super) fn full() -> (TestDisk, FileStore) {
    let (disk, store) = begun();
    // Before it has its bytes, the reserve is removed again where there is no space.
    wait_until("a spare and the reserve are made", || has_spare(&disk) && disk.len(RESERVE) > 0);
    disk.fill(true);
    (disk, store)
}

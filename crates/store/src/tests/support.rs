//! What the tests of the store on files share.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palisade_core::Lsn;
use palisade_core::store::{Epoch, Predecessor, ReadStore, Store};

use super::test_disk::TestDisk;
use crate::folder::RESERVE;
use crate::{FileOptions, FileStore};

pub(super) const SEGMENT_BYTES: u64 = 65_536;
pub(super) const RING_BYTES: usize = 16_384;
/// How long a condition that another thread brings about may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn options(segment_bytes: u64) -> FileOptions {
    FileOptions { segment_bytes: Some(segment_bytes), ..FileOptions::default() }
}

pub(super) fn open(disk: &TestDisk, path: &Path) -> FileStore {
    FileStore::open_on_any(Arc::new(disk.clone()), path, &options(SEGMENT_BYTES)).unwrap()
}

pub(super) fn epoch(number: u64, base: u64) -> Epoch {
    let predecessor = Predecessor { epoch: number - 1, end: Lsn::ZERO };
    Epoch { number, salt: number * 3, base: Lsn::new(base), predecessor }
}

pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        palisade_core::sync::yield_now();
    }
}

/// Longer than a device needs for some MiB: a tail that moves on after it is no flood.
pub(super) fn pause_below_a_flood() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(40) {
        palisade_core::sync::yield_now();
    }
}

/// Whether there is a spare that is not still being made.
pub(super) fn has_spare(path: &Path) -> bool {
    fs::read_dir(path).unwrap().map(Result::unwrap).any(|entry| {
        let is_whole = entry.metadata().is_ok_and(|found| found.len() > SEGMENT_BYTES);
        is_whole && entry.file_name().to_string_lossy().starts_with("spare-")
    })
}

/// A store whose first epoch runs, with a spare.
pub(super) fn open_with_a_spare(disk: &TestDisk, path: &Path, segment_bytes: u64) -> FileStore {
    let options = options(segment_bytes);
    let store = FileStore::open_on_any(Arc::new(disk.clone()), path, &options).unwrap();
    begin(&store, 1, 0);
    wait_until("a spare is made", || has_spare(path));
    store
}

/// Begins `epoch` with a buffer, and saves the state.
pub(super) fn begin(store: &FileStore, number: u64, base: u64) {
    store.begin_epoch(&epoch(number, base)).unwrap();
    drop(store.renew_buffer(number, RING_BYTES, Lsn::new(base)).unwrap());
    let mut state = store.state().unwrap();
    (state.epoch, state.epoch_base, state.clean) = (number, Lsn::new(base), false);
    store.save_state(&state).unwrap();
}

pub(super) fn spares(path: &Path) -> usize {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("spare-")).count()
}

/// A log with a spare and the reserve, and its disk, full but for what is removed.
pub(super) fn full(path: &Path) -> (TestDisk, FileStore) {
    let disk = TestDisk::new(true);
    let store = open(&disk, path);
    begin(&store, 1, 0);
    wait_until("a spare and the reserve are made", || {
        // Before it has its bytes, it is removed again where there is no space.
        let reserved = fs::metadata(path.join(RESERVE)).map_or(0, |found| found.len());
        has_spare(path) && reserved > 0
    });
    disk.controls.fill(true);
    (disk, store)
}

#[cfg(unix)]
pub(super) fn inode_of(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
}

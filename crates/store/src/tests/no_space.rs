//! What the store does on a disk without space.

use std::io::IoSlice;

use super::support::*;
use crate::ReadStore;
use crate::folder::RESERVE;
use crate::testing::TestDisk;
use crate::{ErrorKind, Lsn};

#[test]
fn a_log_opens_on_a_full_disk_and_goes_on_once_there_is_space() {
    let (disk, store) = full();
    drop(store);
    disk.free_by_removal();
    let store = open(&disk);
    begin(&store, 2, SEGMENT_BYTES);
    disk.fill(true);
    let end = Lsn::new(6 * SEGMENT_BYTES);
    assert_eq!(store.prepare(end).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(store.prepare(end).unwrap_err().kind(), ErrorKind::NoSpace);
    disk.fill(false);
    store.prepare(end).unwrap();
    assert!(store.prepared() >= end);
    let numbers: Vec<u64> = store.segments().unwrap().iter().map(|found| found.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_log_that_filled_the_disk_keeps_the_reserve_for_an_open() {
    let (disk, store) = full();
    let refused = store.prepare(Lsn::new(9 * SEGMENT_BYTES)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    let reserve = disk.len(RESERVE);
    assert!(reserve > SEGMENT_BYTES, "{reserve} bytes are reserved");
    let base = store.prepared().as_u64();
    drop(store);
    disk.free_by_removal();
    begin(&open(&disk), 2, base);
}

#[test]
fn a_state_that_lacks_space_gets_the_reserves() {
    let (disk, store) = full();
    let mut state = store.state().unwrap();
    state.clean = true;
    store.save_state(&state).unwrap();
    store.close();
    drop(store);
    // A clean open writes a new meta file, and needs no segment.
    disk.fill(true);
    let store = open(&disk);
    store.resume_epoch(&epoch(1, 0), Lsn::ZERO).unwrap();
    disk.free_by_removal();
    store.save_state(&state).unwrap();
    assert!(!disk.has(RESERVE));
}

#[test]
fn a_write_that_lacks_space_can_be_made_again() {
    let disk = TestDisk::copying_on_write();
    let store = open(&disk);
    store.begin_epoch(&epoch(1, 0), &[]).unwrap();
    let content = [7; 10_000];
    disk.fill(true);
    let error = store.write(Lsn::ZERO, &[IoSlice::new(&content)]).unwrap_err();
    assert_eq!((error.kind(), error.segment()), (ErrorKind::NoSpace, Some(0)));
    disk.fill(false);
    store.write(Lsn::ZERO, &[IoSlice::new(&content)]).unwrap();
    let mut found = [0; 10_000];
    assert_eq!(store.read(Lsn::ZERO, &mut found).unwrap(), 10_000);
    assert_eq!(found, content);
}

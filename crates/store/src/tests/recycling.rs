//! Which files become spares, and what a recycled file holds.

use std::io::IoSlice;

use super::support::*;
use crate::FileStore;
use crate::ReadStore;
use crate::folder::{segment_name, spare_name};
use crate::testing::TestDisk;
use crate::{ErrorKind, Lsn};

#[test]
fn a_disk_that_copies_on_write_gets_no_recycling() {
    let disk = TestDisk::copying_on_write();
    let store = open(&disk);
    store.begin_epoch(&epoch(1, 0), &[]).unwrap();
    store.prepare(Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    let before = disk.spares().len();
    store.release(Lsn::ZERO, Lsn::new(2 * SEGMENT_BYTES)).unwrap();
    assert_eq!(disk.spares().len(), before);
    assert_eq!(store.segments().unwrap().len(), 1);
}

#[test]
fn a_spare_that_was_removed_by_hand_stops_no_release() {
    let (disk, store) = begun();
    store.prepare(Lsn::new(30 * SEGMENT_BYTES)).unwrap();
    store.close();
    store.release(Lsn::ZERO, Lsn::new(20 * SEGMENT_BYTES)).unwrap();
    disk.spares().iter().for_each(|name| disk.remove(name));
    for number in 20..29 {
        store.release(Lsn::ZERO, Lsn::new((number + 1) * SEGMENT_BYTES)).unwrap();
    }
}

#[test]
fn spares_of_an_unclean_end_are_removed_and_of_a_clean_one_used() {
    let disk = TestDisk::new();
    let marked = |number| disk.bytes(&segment_name(number)).ends_with(&[7; 100]);
    let leave_a_spare = || {
        let mut bytes = vec![0; 4096 + SEGMENT_BYTES as usize];
        bytes[4096 + SEGMENT_BYTES as usize - 100..].fill(7);
        disk.write("/log", &spare_name(30), &bytes);
        disk.write("/log", &spare_name(31), &[1; 100]);
    };
    drop(open(&disk));
    leave_a_spare();
    let store = open(&disk);
    store.begin_epoch(&epoch(1, 0), &[]).unwrap();
    assert_eq!(disk.spares().len(), 0, "nobody knows whether a sync of them failed");
    assert!(!marked(0));
    drop(store);

    leave_a_spare();
    let store = open(&disk);
    store.resume_epoch(&epoch(1, 0), Lsn::ZERO).unwrap();
    assert_eq!(disk.spares().len(), 1, "one is only half made");
    store.prepare(Lsn::new(2 * SEGMENT_BYTES)).unwrap();
    assert!(marked(1));
}

/// Makes three segments of an epoch that ended uncleanly, and two of the next.
fn two_epochs(disk: &TestDisk) -> FileStore {
    let store = open(disk);
    store.begin_epoch(&epoch(1, 0), &[]).unwrap();
    store.prepare(Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    drop(store);
    let store = open(disk);
    store.begin_epoch(&epoch(2, 3 * SEGMENT_BYTES), &[]).unwrap();
    store.prepare(Lsn::new(5 * SEGMENT_BYTES)).unwrap();
    store
}

#[test]
fn segments_that_an_unclean_end_left_are_not_recycled() {
    let disk = TestDisk::new();
    let store = two_epochs(&disk);
    store.release(Lsn::ZERO, Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    assert_eq!(disk.spares().len(), 0);
    store.release(Lsn::ZERO, Lsn::new(4 * SEGMENT_BYTES)).unwrap();
    assert_eq!(disk.spares().len(), 1, "this process has made that one");
}

#[test]
fn segments_of_an_old_epoch_are_not_recycled_after_a_clean_end() {
    let disk = TestDisk::new();
    drop(two_epochs(&disk));
    let store = open(&disk);
    store.resume_epoch(&epoch(2, 3 * SEGMENT_BYTES), Lsn::new(4 * SEGMENT_BYTES)).unwrap();
    store.release(Lsn::ZERO, Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    assert_eq!(disk.spares().len(), 0, "the process that made them had no clean end");
    store.release(Lsn::ZERO, Lsn::new(4 * SEGMENT_BYTES)).unwrap();
    assert_eq!(disk.spares().len(), 1);
}

#[test]
fn a_tail_that_moves_gets_new_files_with_all_that_lay_below() {
    let (disk, store) = running(2);
    let old = vec![3; SEGMENT_BYTES as usize + 1000];
    store.write(Lsn::ZERO, &[IoSlice::new(&old)]).unwrap();
    drop(store);
    let store = open(&disk);
    let inode = |number| disk.file(&segment_name(number)).unwrap().identity().unwrap().inode;
    let before = [inode(0), inode(1)];
    let from = Lsn::new(SEGMENT_BYTES - 8);
    let to = Lsn::new(2 * SEGMENT_BYTES + 16);
    store
        .move_tail(&epoch(1, 0), from, to, &mut |at, until, out| {
            out.resize(until.bytes_since(at) as usize, 5);
            Ok(until)
        })
        .unwrap();
    assert!(before.iter().all(|old| ![inode(0), inode(1)].contains(old)), "the files are new");
    let mut found = vec![0; SEGMENT_BYTES as usize];
    store.read(Lsn::ZERO, &mut found).unwrap();
    let (below, moved) = found.split_at(SEGMENT_BYTES as usize - 8);
    assert!(below.iter().all(|&byte| byte == 3) && moved == [5; 8]);
    store.read(Lsn::new(SEGMENT_BYTES), &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == 5));
    let mut last = [0; 100];
    let len = store.read(Lsn::new(2 * SEGMENT_BYTES), &mut last).unwrap();
    assert_eq!(&last[..len], [5; 16], "a segment that only the log buffer held is made");
    let epochs = store.segments().unwrap();
    assert!(epochs.into_iter().all(|segment| segment.header.unwrap().epoch == 1));
}

#[test]
fn a_header_that_does_not_validate_any_more_is_not_copied() {
    let (disk, store) = running(2);
    store.write(Lsn::ZERO, &[IoSlice::new(&[3; 1000])]).unwrap();
    drop(store);
    let store = open(&disk);
    let name = segment_name(0);
    let mut bytes = disk.bytes(&name);
    bytes[40] ^= 1;
    disk.write("/log", &name, &bytes);
    let moved = store.move_tail(&epoch(1, 0), Lsn::ZERO, Lsn::new(1000), &mut |_, until, out| {
        out.resize(1000, 3);
        Ok(until)
    });
    assert_eq!(moved.unwrap_err().kind(), ErrorKind::Io);
    assert!(disk.bytes(&name) == bytes, "the old file has the name still");
}

#[test]
fn a_recycled_file_gets_a_header_and_keeps_its_old_bytes() {
    let (disk, store) = running(2);
    let content = [7; SEGMENT_BYTES as usize];
    store.write(Lsn::ZERO, &[IoSlice::new(&content), IoSlice::new(&content)]).unwrap();
    store.release(Lsn::ZERO, Lsn::new(2 * SEGMENT_BYTES)).unwrap();
    store.prepare(Lsn::new(5 * SEGMENT_BYTES)).unwrap();
    store.close();
    let old = |number: u64| {
        let bytes = disk.bytes(&segment_name(number));
        bytes.get(4096..) == Some(&content)
    };
    let recycled = (2..5).find(|&number| old(number)).unwrap();
    let listed = store.segments().unwrap();
    let found = listed.iter().find(|segment| segment.number == recycled).unwrap();
    let header = found.header.as_ref().unwrap();
    assert_eq!((header.number, header.epoch, header.predecessor), (recycled, 1, None));
    assert_eq!(store.write(Lsn::ZERO, &[IoSlice::new(b"gone")]).unwrap_err().segment(), Some(0));
}

//! Durable writes past the page cache: what they promise, where they fall back, how they fail.

use std::io::{ErrorKind as IoKind, IoSlice};
use std::path::Path;
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};
use palisade_core::store::{Epoch, Predecessor, ReadStore, Store};
use palisade_core::{ErrorKind, Lsn, Result};

use crate::folder::segment_name;
use crate::test_disk::{DirectFault, TestDisk};
use crate::{FileOptions, FileReader, FileStore, SyncMethod};

const SEGMENT_BYTES: u64 = 65_536;
const BLOCK: usize = 4096;

fn options(method: SyncMethod) -> FileOptions {
    // Without zeros nothing of the preparer's is counted among the syncs.
    FileOptions {
        segment_bytes: Some(SEGMENT_BYTES),
        sync_method: method,
        zero_fill: false,
        ..FileOptions::default()
    }
}

fn open(disk: &TestDisk, path: &Path, method: SyncMethod) -> FileStore {
    FileStore::open_on(Arc::new(disk.clone()), path, &options(method)).unwrap()
}

/// A store of direct writes with `segments` prepared segments.
fn begun(disk: &TestDisk, path: &Path, segments: u64) -> FileStore {
    let store = open(disk, path, SyncMethod::Direct);
    let predecessor = Predecessor { epoch: 0, end: Lsn::ZERO };
    store.begin_epoch(&Epoch { number: 1, salt: 3, base: Lsn::ZERO, predecessor }).unwrap();
    store.prepare(Lsn::new(segments * SEGMENT_BYTES)).unwrap();
    disk.controls.direct().opens = 0;
    store
}

/// Memory that begins with a page.
fn aligned(len: usize, byte: u8) -> MmapMut {
    let mut memory = MmapOptions::new().len(len).map_anon().unwrap();
    memory.fill(byte);
    memory
}

fn write(store: &FileStore, at: u64, bytes: &[u8]) -> Result<()> {
    store.write_durable(Lsn::new(at), &[IoSlice::new(bytes)])
}

fn assert_holds(store: &dyn ReadStore, at: u64, len: usize, byte: u8) {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        let read = store.read(Lsn::new(at + done as u64), &mut bytes[done..]).unwrap();
        assert!(read > 0, "the log ends at {done} behind {at}");
        done += read;
    }
    assert!(bytes.iter().all(|&found| found == byte), "{len} bytes at {at} are {byte}");
}

/// How many direct writes and syncs `act` makes.
fn cost(disk: &TestDisk, act: impl FnOnce()) -> (usize, usize) {
    let before = (disk.controls.direct().writes, disk.controls.syncs());
    act();
    (disk.controls.direct().writes - before.0, disk.controls.syncs() - before.1)
}

#[test]
fn whole_blocks_go_past_the_cache_and_need_no_sync() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let store = begun(&disk, temp.path(), 3);
    assert_eq!(store.writes_in_flight(), 4);
    let two = aligned(2 * BLOCK, 2);
    assert_eq!(cost(&disk, || write(&store, 0, &two).unwrap()), (1, 0));
    assert_eq!(cost(&disk, || write(&store, 2 * BLOCK as u64, &two).unwrap()), (1, 0));
    assert_eq!(disk.controls.direct().opens, 1, "the handle stays");
    // Across a segment's end.
    let at = SEGMENT_BYTES - BLOCK as u64;
    assert_eq!(cost(&disk, || write(&store, at, &two).unwrap()), (2, 0));
    assert_holds(&store, 0, 4 * BLOCK, 2);
    assert_holds(&store, at, 2 * BLOCK, 2);
}

#[test]
fn a_sync_leaves_the_files_below_its_range_to_whoever_syncs_them() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let store = begun(&disk, temp.path(), 3);
    for at in [0, 1, 2].map(|number| Lsn::new(number * SEGMENT_BYTES)) {
        store.write(at, &[IoSlice::new(&[1; BLOCK])]).unwrap();
    }
    let ends = [1, 2, 3].map(|number| Lsn::new(number * SEGMENT_BYTES));
    let opens = disk.controls.segment_opens();
    store.sync(ends[0], ends[2]).unwrap();
    store.sync(Lsn::ZERO, ends[0]).unwrap();
    assert_eq!(disk.controls.segment_opens(), opens, "the file keeps what it was told");
    store.mark_durable(ends[2]).unwrap();
    store.sync(Lsn::ZERO, ends[0]).unwrap();
    assert_eq!(disk.controls.segment_opens(), opens + 1, "closed, once all of it is durable");
}

#[test]
fn what_does_not_begin_and_end_with_a_block_is_written_and_synced() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let store = begun(&disk, temp.path(), 1);
    let memory = aligned(4 * BLOCK, 3);
    let (memory_off, place_off) = (&memory[8..8 + BLOCK], &memory[..BLOCK]);
    assert_eq!(cost(&disk, || write(&store, 0, memory_off).unwrap()), (0, 1));
    assert_eq!(cost(&disk, || write(&store, 4096 + 512, place_off).unwrap()), (0, 1));
    assert_eq!(cost(&disk, || write(&store, 12_288, &memory[..100]).unwrap()), (0, 1));
    assert_holds(&store, 0, BLOCK, 3);
    assert_holds(&store, 4096 + 512, BLOCK, 3);
}

#[test]
fn a_file_that_refuses_direct_writes_is_written_and_synced_from_then_on() {
    for refused in [IoKind::InvalidInput, IoKind::Unsupported] {
        let temp = tempfile::tempdir().unwrap();
        let disk = TestDisk::new(true, 1);
        let store = begun(&disk, temp.path(), 2);
        let block = aligned(BLOCK, 4);
        disk.controls.direct().faults.push_back(DirectFault::Error(refused));
        assert_eq!(cost(&disk, || write(&store, 0, &block).unwrap()), (1, 1));
        assert_eq!(cost(&disk, || write(&store, 4096, &block).unwrap()), (0, 1));
        // At the opening of the next segment's.
        disk.controls.direct().open = Some(refused);
        assert_eq!(cost(&disk, || write(&store, SEGMENT_BYTES, &block).unwrap()), (0, 1));
        assert_eq!(cost(&disk, || write(&store, SEGMENT_BYTES + 4096, &block).unwrap()), (0, 1));
        assert_eq!(disk.controls.direct().opens, 2, "nobody asks again");
        assert_holds(&store, 0, 2 * BLOCK, 4);
        assert_holds(&store, SEGMENT_BYTES, 2 * BLOCK, 4);
    }
}

#[test]
fn a_handle_that_cannot_be_opened_for_a_while_is_tried_again() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let store = begun(&disk, temp.path(), 1);
    let block = aligned(BLOCK, 5);
    // As with too many open files.
    disk.controls.direct().open = Some(IoKind::Other);
    assert_eq!(cost(&disk, || write(&store, 0, &block).unwrap()), (0, 1));
    disk.controls.direct().open = None;
    assert_eq!(cost(&disk, || write(&store, 4096, &block).unwrap()), (1, 0));
    assert_holds(&store, 0, 2 * BLOCK, 5);
}

#[test]
fn a_direct_write_that_is_cut_short_goes_on_behind_the_last_whole_block() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let store = begun(&disk, temp.path(), 1);
    let eight = aligned(8 * BLOCK, 6);
    let cut = |bytes| disk.controls.direct().faults.push_back(DirectFault::Short(bytes));
    cut(2 * BLOCK);
    assert_eq!(cost(&disk, || write(&store, 0, &eight).unwrap()), (2, 0));
    cut(3 * BLOCK);
    cut(BLOCK + 512);
    assert_eq!(cost(&disk, || write(&store, 8 * 4096, &eight).unwrap()), (2, 1));
    assert_holds(&store, 0, 16 * BLOCK, 6);
}

#[test]
fn a_direct_write_that_failed_fails_the_segment_for_good() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let store = begun(&disk, temp.path(), 1);
    let block = aligned(BLOCK, 7);
    disk.controls.direct().faults.push_back(DirectFault::Error(IoKind::Other));
    let first = write(&store, 0, &block).unwrap_err();
    assert_eq!(first.kind(), ErrorKind::Io);
    assert_eq!(write(&store, 4096, &block).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(store.sync(Lsn::ZERO, Lsn::new(8192)).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(disk.controls.direct().writes, 1, "it is not tried again");
}

#[test]
fn lack_of_space_is_told_and_ends() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let store = begun(&disk, temp.path(), 1);
    let block = aligned(BLOCK, 8);
    disk.controls.direct().faults.push_back(DirectFault::Error(IoKind::StorageFull));
    assert_eq!(write(&store, 0, &block).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(cost(&disk, || write(&store, 0, &block).unwrap()), (1, 0));
    store.sync(Lsn::ZERO, Lsn::new(4096)).unwrap();
    assert_holds(&store, 0, BLOCK, 8);
}

#[test]
fn a_spare_is_given_up_before_a_durable_write_lacks_space() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let store = begun(&disk, temp.path(), 4);
    // Three spares.
    store.release(Lsn::ZERO, Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    disk.controls.fill(true);
    disk.controls.free_by_removal();
    let block = aligned(BLOCK, 9);
    write(&store, 3 * SEGMENT_BYTES, &block).unwrap();
    assert_holds(&store, 3 * SEGMENT_BYTES, BLOCK, 9);
}

#[test]
fn a_file_in_its_second_life_is_written_under_its_new_name() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let store = begun(&disk, temp.path(), 3);
    let block = aligned(BLOCK, 1);
    write(&store, 0, &block).unwrap();
    write(&store, SEGMENT_BYTES, &block).unwrap();
    store.release(Lsn::ZERO, Lsn::new(2 * SEGMENT_BYTES)).unwrap();
    store.prepare(Lsn::new(4 * SEGMENT_BYTES)).unwrap();
    let recycled = std::fs::read(temp.path().join(segment_name(3))).unwrap();
    assert!(recycled[BLOCK..].contains(&1), "segment 3 was another one");

    let next = aligned(BLOCK, 2);
    write(&store, 3 * SEGMENT_BYTES, &next).unwrap();
    write(&store, 2 * SEGMENT_BYTES, &next).unwrap();
    let reader = FileReader::open(temp.path()).unwrap();
    assert_holds(&reader, 3 * SEGMENT_BYTES, BLOCK, 2);
    assert_holds(&reader, 2 * SEGMENT_BYTES, BLOCK, 2);
}

#[cfg(target_os = "linux")]
#[test]
fn files_that_the_durable_end_has_passed_are_closed() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let store = begun(&disk, temp.path(), 40);
    let folder = temp.path().canonicalize().unwrap();
    let open_segments = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let files = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        let here = files.filter(|file| file.starts_with(&folder));
        here.filter(|file| file.to_string_lossy().contains("segment-")).count()
    };
    assert_eq!(open_segments(), 40);
    // Whole segments need nobody else.
    let segment = aligned(SEGMENT_BYTES as usize, 3);
    for number in 0..10 {
        write(&store, number * SEGMENT_BYTES, &segment).unwrap();
    }
    assert_eq!(open_segments(), 30);
    // The others wait for the durable end: what lies before them may be in flight.
    let end = aligned(BLOCK, 4);
    for number in 10..20 {
        write(&store, number * SEGMENT_BYTES, &end).unwrap();
    }
    assert_eq!(open_segments(), 40);
    store.mark_durable(Lsn::new(19 * SEGMENT_BYTES + 4096)).unwrap();
    assert_eq!(open_segments(), 22);
    assert_holds(&store, 18 * SEGMENT_BYTES, BLOCK, 4);
}

#[test]
fn durable_writes_at_the_same_time_leave_every_block() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let options = FileOptions { zero_fill: true, ..options(SyncMethod::Direct) };
    let store = FileStore::open_on(Arc::new(disk), temp.path(), &options).unwrap();
    let predecessor = Predecessor { epoch: 0, end: Lsn::ZERO };
    store.begin_epoch(&Epoch { number: 1, salt: 3, base: Lsn::ZERO, predecessor }).unwrap();
    drop(store.renew_buffer(1, 4096, Lsn::ZERO).unwrap());
    let blocks = 4 * SEGMENT_BYTES / BLOCK as u64;
    store.prepare(Lsn::new(4 * SEGMENT_BYTES)).unwrap();
    std::thread::scope(|scope| {
        for first in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for block in (first..blocks).step_by(4) {
                    let at = block * BLOCK as u64;
                    write(store, at, &aligned(BLOCK, block as u8 | 1)).unwrap();
                    store.prepare_ahead(Lsn::new(at + BLOCK as u64));
                }
            });
        }
    });
    for block in 0..blocks {
        assert_holds(&store, block * BLOCK as u64, BLOCK, block as u8 | 1);
    }
}

#[test]
fn only_a_disk_that_takes_direct_writes_in_place_gets_several_at_a_time() {
    let in_flight = |disk: TestDisk, method| {
        let temp = tempfile::tempdir().unwrap();
        let store = open(&disk, temp.path(), method);
        (store.sync_method(), store.writes_in_flight())
    };
    let (data, direct) = (SyncMethod::DataSync, SyncMethod::Direct);
    assert_eq!(in_flight(TestDisk::new(true, 1), direct), (direct, 4));
    assert_eq!(in_flight(TestDisk::new(true, 1), data), (data, 1));
    assert_eq!(in_flight(TestDisk::new(false, 1), direct), (direct, 1));
    let without = TestDisk::new(true, 1);
    without.controls.direct().open = Some(IoKind::Unsupported);
    assert_eq!(in_flight(without, direct), (direct, 1));
}

#[test]
fn a_log_keeps_its_method_until_another_one_is_asked_for() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true, 1);
    let kept = || FileReader::open(temp.path()).unwrap().sync_method().unwrap();
    drop(open(&disk, temp.path(), SyncMethod::Direct));
    assert_eq!(kept(), SyncMethod::Direct);
    assert_eq!(open(&disk, temp.path(), SyncMethod::Auto).writes_in_flight(), 4);
    let other = open(&disk, temp.path(), SyncMethod::DataSync);
    assert_eq!((other.sync_method(), kept()), (SyncMethod::DataSync, SyncMethod::Direct));
    other.save_state(&other.state().unwrap()).unwrap();
    drop(other);
    assert_eq!(kept(), SyncMethod::DataSync);
    assert_eq!(open(&disk, temp.path(), SyncMethod::Auto).writes_in_flight(), 1);
}

//! What must hold for the store on files, on a disk that tests control.

use std::fs;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palisade_core::store::{Epoch, OldBuffer, Predecessor, ReadStore, Store};
use palisade_core::{ErrorKind, Lsn, MemoryKind};

use crate::folder::{RESERVE, segment_name, spare_name};
use crate::test_disk::TestDisk;
use crate::{FileOptions, FileStore};

const SEGMENT_BYTES: u64 = 65_536;
const RING_BYTES: usize = 16_384;
/// How long a condition that another thread brings about may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn options(segment_bytes: u64) -> FileOptions {
    FileOptions { segment_bytes: Some(segment_bytes), ..FileOptions::default() }
}

fn open(disk: &TestDisk, path: &Path) -> FileStore {
    FileStore::open_on_any(Arc::new(disk.clone()), path, &options(SEGMENT_BYTES)).unwrap()
}

fn epoch(number: u64, base: u64) -> Epoch {
    let predecessor = Predecessor { epoch: number - 1, end: Lsn::ZERO };
    Epoch { number, salt: number * 3, base: Lsn::new(base), predecessor }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        palisade_core::sync::yield_now();
    }
}

/// Longer than a device needs for some MiB: a tail that moves on after it is no flood.
fn pause_below_a_flood() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(40) {
        palisade_core::sync::yield_now();
    }
}

/// Whether there is a spare that is not still being made.
fn has_spare(path: &Path) -> bool {
    fs::read_dir(path).unwrap().map(Result::unwrap).any(|entry| {
        let is_whole = entry.metadata().is_ok_and(|found| found.len() > SEGMENT_BYTES);
        is_whole && entry.file_name().to_string_lossy().starts_with("spare-")
    })
}

/// A store whose first epoch runs, with a spare.
fn open_with_a_spare(disk: &TestDisk, path: &Path, segment_bytes: u64) -> FileStore {
    let options = options(segment_bytes);
    let store = FileStore::open_on_any(Arc::new(disk.clone()), path, &options).unwrap();
    begin(&store, 1, 0);
    wait_until("a spare is made", || has_spare(path));
    store
}

#[test]
fn opening_an_empty_log_takes_few_syncs() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    let mut state = store.state().unwrap();
    store.begin_epoch(&epoch(1, 0)).unwrap();
    store.renew_buffer(1, RING_BYTES, Lsn::ZERO).unwrap();
    (state.epoch, state.clean) = (1, false);
    store.save_state(&state).unwrap();
    // The folder's name 1, meta 2, segment 2, state 2; the spare and the reserve, beside all this,
    // 4.
    assert!(disk.controls.syncs() <= 11, "{}", disk.controls.syncs());
}

/// Begins `epoch` with a buffer, and saves the state.
fn begin(store: &FileStore, number: u64, base: u64) {
    store.begin_epoch(&epoch(number, base)).unwrap();
    drop(store.renew_buffer(number, RING_BYTES, Lsn::new(base)).unwrap());
    let mut state = store.state().unwrap();
    (state.epoch, state.epoch_base, state.clean) = (number, Lsn::new(base), false);
    store.save_state(&state).unwrap();
}

/// Attacks: power loss would take a folder whose name nobody can sync, with all that is in it.
#[test]
fn no_folder_is_made_where_its_name_cannot_be_synced() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    disk.controls.forbid(temp.path());
    let path = temp.path().join("log");
    let open = || FileStore::open_on_any(Arc::new(disk.clone()), &path, &options(SEGMENT_BYTES));
    let error = open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(error.path(), Some(temp.path()), "{error}");
    assert!(!path.exists(), "nothing was made");
    // Who made a folder there could sync its name: it is no business of the log's.
    fs::create_dir(&path).unwrap();
    drop(open().unwrap());
}

#[test]
fn a_kill_leaves_the_buffer_and_its_marks() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    assert!(matches!(store.old_buffer().unwrap(), OldBuffer::Missing));
    begin(&store, 4, 0);
    store.write(Lsn::ZERO, &[IoSlice::new(&[1; 800])]).unwrap();
    store.mark_durable(Lsn::new(640)).unwrap();
    drop(store);

    let store = open(&disk, temp.path());
    match store.old_buffer().unwrap() {
        OldBuffer::Found { epoch: 4, durable, written, memory } => {
            let marks = (durable, written, memory.len());
            assert_eq!(marks, (Lsn::new(640), Lsn::new(800), RING_BYTES));
            assert_eq!(memory.kind(), MemoryKind::Mapped);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_that_was_closed_leaves_no_buffer() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    begin(&store, 1, 0);
    assert_eq!(disk.buffers().len(), 1);
    let mut state = store.state().unwrap();
    state.clean = true;
    store.save_state(&state).unwrap();
    store.close();
    assert_eq!(disk.buffers(), Vec::<String>::new());
}

#[test]
fn an_open_removes_the_buffers_of_earlier_process_runs() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    for number in 1..4 {
        let store = open(&disk, temp.path());
        begin(&store, number, (number - 1) * SEGMENT_BYTES);
        assert_eq!(disk.buffers().len(), 1);
    }
}

#[test]
fn a_disk_that_copies_on_write_gets_no_recycling() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(false);
    let store = open(&disk, temp.path());
    store.begin_epoch(&epoch(1, 0)).unwrap();
    store.prepare(Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    let before = spares(temp.path());
    store.release(Lsn::ZERO, Lsn::new(2 * SEGMENT_BYTES)).unwrap();
    assert_eq!(spares(temp.path()), before);
    assert_eq!(store.segments().unwrap().len(), 1);
}

fn spares(path: &Path) -> usize {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("spare-")).count()
}

/// A log with a spare and the reserve, and its disk, full but for what is removed.
fn full(path: &Path) -> (TestDisk, FileStore) {
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

#[test]
fn a_log_opens_on_a_full_disk_and_everything_goes_on_when_there_is_space() {
    let temp = tempfile::tempdir().unwrap();
    let (disk, store) = full(temp.path());
    drop(store);
    disk.controls.free_by_removal();
    let store = open(&disk, temp.path());
    begin(&store, 2, SEGMENT_BYTES);
    disk.controls.fill(true);
    let end = Lsn::new(6 * SEGMENT_BYTES);
    assert_eq!(store.prepare(end).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(store.prepare(end).unwrap_err().kind(), ErrorKind::NoSpace);
    disk.controls.fill(false);
    store.prepare(end).unwrap();
    assert!(store.prepared() >= end);
    let numbers: Vec<u64> = store.segments().unwrap().iter().map(|found| found.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_log_that_filled_the_disk_itself_keeps_the_reserve_to_open_with() {
    let temp = tempfile::tempdir().unwrap();
    let (disk, store) = full(temp.path());
    let refused = store.prepare(Lsn::new(9 * SEGMENT_BYTES)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    let reserve = fs::metadata(temp.path().join(RESERVE)).unwrap().len();
    assert!(reserve > SEGMENT_BYTES, "{reserve} bytes are reserved");
    let base = store.prepared().as_u64();
    drop(store);
    disk.controls.free_by_removal();
    begin(&open(&disk, temp.path()), 2, base);
}

#[test]
fn a_state_that_lacks_space_gets_the_reserves() {
    let temp = tempfile::tempdir().unwrap();
    let (disk, store) = full(temp.path());
    let mut state = store.state().unwrap();
    state.clean = true;
    store.save_state(&state).unwrap();
    store.close();
    drop(store);
    // A clean open writes a new meta file, and needs no segment.
    disk.controls.fill(true);
    let store = open(&disk, temp.path());
    store.resume_epoch(&epoch(1, 0), Lsn::ZERO).unwrap();
    disk.controls.free_by_removal();
    store.save_state(&state).unwrap();
    assert!(!temp.path().join(RESERVE).exists());
}

#[test]
fn a_spare_that_was_removed_by_hand_stops_no_release() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    begin(&store, 1, 0);
    store.prepare(Lsn::new(30 * SEGMENT_BYTES)).unwrap();
    store.close();
    store.release(Lsn::ZERO, Lsn::new(20 * SEGMENT_BYTES)).unwrap();
    for entry in fs::read_dir(temp.path()).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with("spare-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    for number in 20..29 {
        store.release(Lsn::ZERO, Lsn::new((number + 1) * SEGMENT_BYTES)).unwrap();
    }
}

#[test]
fn a_sync_error_that_the_preparer_gets_reaches_the_leader() {
    const LARGE: u64 = 8 << 20;
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open_with_a_spare(&disk, temp.path(), LARGE);
    disk.controls.fail_preparer();
    let mut tail = 1 << 20;
    wait_until("the preparer syncs zeros", || {
        pause_below_a_flood();
        store.prepare_ahead(Lsn::new(tail));
        tail += 64 << 10;
        disk.controls.has_failed_preparer()
    });
    store.write(Lsn::ZERO, &[IoSlice::new(b"record")]).unwrap();
    wait_until("the leader gets the error", || store.sync(Lsn::ZERO, Lsn::new(6)).is_err());
    let error = store.sync(Lsn::ZERO, Lsn::new(6)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn a_write_that_lacks_space_can_be_made_again() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(false);
    let store = open(&disk, temp.path());
    store.begin_epoch(&epoch(1, 0)).unwrap();
    let content = [7; 10_000];
    disk.controls.fill(true);
    let error = store.write(Lsn::ZERO, &[IoSlice::new(&content)]).unwrap_err();
    assert_eq!((error.kind(), error.segment()), (ErrorKind::NoSpace, Some(0)));
    disk.controls.fill(false);
    store.write(Lsn::ZERO, &[IoSlice::new(&content)]).unwrap();
    let mut found = [0; 10_000];
    assert_eq!(store.read(Lsn::ZERO, &mut found).unwrap(), 10_000);
    assert_eq!(found, content);
}

#[test]
fn spares_that_an_unclean_end_left_are_removed_and_those_of_a_clean_one_used() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let marked = |path: &Path| fs::read(path).is_ok_and(|bytes| bytes.ends_with(&[7; 100]));
    let leave_a_spare = || {
        let mut bytes = vec![0; 4096 + SEGMENT_BYTES as usize];
        bytes[4096 + SEGMENT_BYTES as usize - 100..].fill(7);
        fs::write(temp.path().join(spare_name(30)), bytes).unwrap();
        fs::write(temp.path().join(spare_name(31)), [1; 100]).unwrap();
    };
    drop(open(&disk, temp.path()));
    leave_a_spare();
    let store = open(&disk, temp.path());
    store.begin_epoch(&epoch(1, 0)).unwrap();
    assert_eq!(spares(temp.path()), 0, "nobody knows whether a sync of them failed");
    assert!(!marked(&temp.path().join(segment_name(0))));
    drop(store);

    leave_a_spare();
    let store = open(&disk, temp.path());
    store.resume_epoch(&epoch(1, 0), Lsn::ZERO).unwrap();
    assert_eq!(spares(temp.path()), 1, "one is only half made");
    store.prepare(Lsn::new(2 * SEGMENT_BYTES)).unwrap();
    assert!(marked(&temp.path().join(segment_name(1))));
}

#[test]
fn segments_that_an_unclean_end_left_are_not_recycled() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    store.begin_epoch(&epoch(1, 0)).unwrap();
    store.prepare(Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    drop(store);
    let store = open(&disk, temp.path());
    store.begin_epoch(&epoch(2, 3 * SEGMENT_BYTES)).unwrap();
    store.prepare(Lsn::new(5 * SEGMENT_BYTES)).unwrap();
    store.release(Lsn::ZERO, Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    assert_eq!(spares(temp.path()), 0);
    store.release(Lsn::ZERO, Lsn::new(4 * SEGMENT_BYTES)).unwrap();
    assert_eq!(spares(temp.path()), 1, "this process has made that one");
}

#[test]
fn a_tail_that_moves_gets_new_files_with_all_that_lay_below() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    store.begin_epoch(&epoch(1, 0)).unwrap();
    store.prepare(Lsn::new(2 * SEGMENT_BYTES)).unwrap();
    let old = vec![3; SEGMENT_BYTES as usize + 1000];
    store.write(Lsn::ZERO, &[IoSlice::new(&old)]).unwrap();
    drop(store);
    let store = open(&disk, temp.path());
    let inode = |number| inode_of(&temp.path().join(segment_name(number)));
    // As long as they are open, no other file gets their numbers.
    let kept = [0, 1].map(|number| fs::File::open(temp.path().join(segment_name(number))).unwrap());
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
    drop(kept);
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

#[cfg(unix)]
fn inode_of(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
}

#[test]
fn the_preparer_keeps_zeros_and_a_segment_ahead_of_the_tail() {
    const LARGE: u64 = 8 << 20;
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = FileStore::open_on_any(Arc::new(disk), temp.path(), &options(LARGE)).unwrap();
    begin(&store, 1, 0);
    let len = |number| {
        let found = fs::metadata(temp.path().join(segment_name(number)));
        found.map_or(0, |found| found.len().saturating_sub(4096))
    };
    assert_eq!(len(0), 1 << 20);
    wait_until("a spare is made", || has_spare(temp.path()));
    while len(0) < LARGE {
        let tail = len(0) / 2;
        pause_below_a_flood();
        store.prepare_ahead(Lsn::new(tail));
        let goal = LARGE.min(tail + (2 * tail).max(1 << 20));
        wait_until("zeros are written ahead", || len(0) >= goal);
    }
    store.prepare_ahead(Lsn::new(LARGE / 2 + 4096));
    wait_until("the next segment is made", || store.prepared() >= Lsn::new(2 * LARGE));
}

#[test]
fn closing_lets_another_store_have_the_log_and_can_be_repeated() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    store.begin_epoch(&epoch(1, 0)).unwrap();
    store.write(Lsn::ZERO, &[IoSlice::new(b"12345678")]).unwrap();
    store.close();
    store.close();
    drop(open(&disk, temp.path()));
    let mut bytes = [0; 8];
    assert_eq!(store.read(Lsn::ZERO, &mut bytes).unwrap(), 8);
    assert_eq!(&bytes, b"12345678");
}

#[test]
fn a_recycled_file_gets_a_header_and_keeps_its_old_bytes() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(&TestDisk::new(true), temp.path());
    store.begin_epoch(&epoch(1, 0)).unwrap();
    let content = [7; SEGMENT_BYTES as usize];
    store.prepare(Lsn::new(2 * SEGMENT_BYTES)).unwrap();
    store.write(Lsn::ZERO, &[IoSlice::new(&content), IoSlice::new(&content)]).unwrap();
    store.release(Lsn::ZERO, Lsn::new(2 * SEGMENT_BYTES)).unwrap();
    store.prepare(Lsn::new(5 * SEGMENT_BYTES)).unwrap();
    store.close();
    let old = |number: u64| {
        let bytes = fs::read(temp.path().join(segment_name(number)));
        bytes.is_ok_and(|bytes| bytes[4096..] == content)
    };
    let recycled = (2..5).find(|&number| old(number)).unwrap();
    let listed = store.segments().unwrap();
    let found = listed.iter().find(|segment| segment.number == recycled).unwrap();
    let header = found.header.as_ref().unwrap();
    assert_eq!((header.number, header.epoch, header.predecessor), (recycled, 1, None));
    assert_eq!(store.write(Lsn::ZERO, &[IoSlice::new(b"gone")]).unwrap_err().segment(), Some(0));
}

#[test]
fn an_epoch_that_follows_a_running_one_begins_above_all_that_is_prepared() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    begin(&store, 1, 0);
    store.prepare(Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    let refused = store.begin_epoch(&epoch(2, 2 * SEGMENT_BYTES)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfRange, "{refused}");
    let base = store.prepared();
    store.begin_epoch(&epoch(2, base.as_u64())).unwrap();
    store.mark_durable(base).unwrap();
    store.pass_buffer_on(2).unwrap();
    store.discard(Lsn::new(100), base).unwrap();
    let segments = store.segments().unwrap();
    let epochs: Vec<_> = segments.into_iter().map(|found| found.header.unwrap().epoch).collect();
    assert_eq!((epochs[0], epochs[1..].iter().all(|epoch| *epoch == 2)), (1, true), "{epochs:?}");
    drop(store);
    let store = open(&disk, temp.path());
    let found = store.old_buffer().unwrap();
    let OldBuffer::Found { epoch: 2, durable, memory, .. } = found else { panic!("{found:?}") };
    assert_eq!((durable, memory.len()), (base, RING_BYTES));
}

/// Attacks: once an epoch has begun, nothing that could lack is needed to end the truncation.
#[test]
fn a_buffer_is_passed_on_without_another_file_descriptor() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    store.begin_epoch(&epoch(1, 0)).unwrap();
    store.renew_buffer(1, RING_BYTES, Lsn::ZERO).unwrap();
    let base = store.prepared();
    store.begin_epoch(&epoch(2, base.as_u64())).unwrap();
    disk.controls.exhaust(true);
    store.mark_durable(base).unwrap();
    store.pass_buffer_on(2).unwrap();
    let refused = store.begin_epoch(&epoch(3, 2 * base.as_u64())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoFiles, "{refused}");
}

/// Attacks: the log buffer may have what no segment has. An open that cannot reach it must fail,
/// instead of recovering without it.
#[test]
fn a_lack_of_a_file_descriptor_at_an_open_hides_no_log_buffer() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    begin(&store, 1, 0);
    drop(store);
    for opens in 0.. {
        disk.controls.lack_a_descriptor_after(opens);
        let shared = Arc::new(disk.clone());
        let store = FileStore::open_on_any(shared, temp.path(), &options(SEGMENT_BYTES));
        match store.and_then(|store| store.old_buffer()) {
            Ok(OldBuffer::Found { epoch: 1, .. }) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoFiles, "{opens}: {error}"),
            Ok(other) => panic!("{opens}: {other:?}"),
        }
        if !disk.controls.has_lacked_a_descriptor() {
            break;
        }
    }
}

/// Attacks: the process run would go on without the memory that outlives it.
#[test]
fn a_lack_of_a_file_descriptor_puts_no_log_buffer_on_the_heap() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open(&disk, temp.path());
    store.begin_epoch(&epoch(1, 0)).unwrap();
    disk.controls.lack_a_descriptor_after(0);
    let error = store.renew_buffer(1, RING_BYTES, Lsn::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoFiles, "{error}");
    let memory = store.renew_buffer(1, RING_BYTES, Lsn::ZERO).unwrap();
    assert_eq!(memory.kind(), MemoryKind::Mapped);
}

/// Attacks: what could not be opened was not written to, so it is as good as before.
#[test]
fn a_lack_of_a_file_descriptor_takes_no_spare() {
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open_with_a_spare(&disk, temp.path(), 4 << 20);
    store.close();
    let to = store.prepared().plus(1);
    // For the look whether the name is free, and for the header.
    for opens in 0..2 {
        disk.controls.lack_a_descriptor_after(opens);
        assert_eq!(store.prepare(to).unwrap_err().kind(), ErrorKind::NoFiles);
        assert!(has_spare(temp.path()), "{opens}");
    }
    store.prepare(to).unwrap();
    assert!(!has_spare(temp.path()), "the segment is made of it");
}

#[test]
fn zeros_that_a_cut_overtakes_do_not_reach_the_files_next_life() {
    const LARGE: u64 = 2 << 20;
    let temp = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(true);
    let store = open_with_a_spare(&disk, temp.path(), LARGE);
    store.prepare(Lsn::new(2 * LARGE)).unwrap();
    let held = disk.controls.hold_zeros();
    pause_below_a_flood();
    store.prepare_ahead(Lsn::new(600 << 10));
    wait_until("the preparer is in a step", || disk.controls.has_held_zeros());

    // The log is cut in the segment, goes on in another one, and its head leaves the segment.
    let base = store.prepared();
    let predecessor = Predecessor { epoch: 1, end: Lsn::new(64) };
    store.begin_epoch(&Epoch { predecessor, ..epoch(2, base.as_u64()) }).unwrap();
    store.release(Lsn::ZERO, base).unwrap();
    // Enough of them for every spare.
    let segments = 4;
    let end = base.plus(segments * LARGE);
    store.prepare(end).unwrap();
    let records = vec![7; LARGE as usize];
    for number in 0..segments {
        store.write(base.plus(number * LARGE), &[IoSlice::new(&records)]).unwrap();
    }
    drop(held);
    // Waits for the preparer.
    store.close();
    for number in 0..segments {
        let mut found = vec![0; LARGE as usize];
        assert_eq!(store.read(base.plus(number * LARGE), &mut found).unwrap(), found.len());
        assert!(found == records, "segment {number} behind the cut");
    }
}

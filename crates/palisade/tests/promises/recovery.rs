//! What comes back after a kill, after loss of power, and once more after that.

use std::thread;

use palisade::sim::SimDisk;
use palisade::store::ReadStore;
use palisade::{BufferKind, FileOptions, Lsn, MemStore, Options, Wal};

use crate::faulty::FaultyStore;
use crate::folder::{contents, copy_as_killed, folder, small};
use crate::watchdog::{guarded, until};

fn options() -> Options {
    Options::new().buffer_bytes(1 << 14)
}

fn open(store: &FaultyStore) -> Wal {
    Wal::with_store(store.clone(), options()).unwrap()
}

fn append(wal: &Wal, count: u32) -> Vec<(Lsn, Vec<u8>)> {
    let datas = (0..count).map(|n| n.to_le_bytes().repeat(n as usize % 20));
    datas.map(|data| (wal.append(&data).unwrap().lsn(), data)).collect()
}

#[test]
fn records_that_only_the_buffer_held_are_replayed_after_a_kill_and_durable_then() {
    let store = FaultyStore::new(1 << 16);
    let wal = open(&store);
    let expected = append(&wal, 50);
    assert_eq!(wal.stats().writes, 0, "all of it has to be in the buffer only");
    store.kill();
    drop(wal);
    let next = store.next_life();
    let wal = open(&next);
    assert_eq!(wal.recovery_report().records_from_buffer, 50);
    assert_eq!(contents(&wal).unwrap(), expected);
    next.kill();
    drop(wal);
    next.inner.lose_power();
    let wal = open(&next.next_life());
    assert_eq!(wal.recovery_report().records_from_buffer, 0);
    assert_eq!(contents(&wal).unwrap(), expected, "what was reported never shrinks");
}

#[test]
fn a_buffer_in_memory_is_replayed_after_a_kill() {
    let disk = SimDisk::new(1);
    let mut files = FileOptions::new();
    files.buffer = BufferKind::Mapped;
    let open = || Wal::with_store(disk.open(&files).unwrap(), Options::new()).unwrap();
    let wal = open();
    assert!(wal.stats().appends_survive_kill);
    let expected = append(&wal, 50);
    assert_eq!(wal.stats().writes, 0, "all of it has to be in the buffer only");
    disk.restart();
    drop(wal);
    let reopened = open();
    assert_eq!(reopened.recovery_report().records_from_buffer, 50);
    assert_eq!(contents(&reopened).unwrap(), expected);
}

#[test]
fn a_heap_buffer_says_that_it_keeps_nothing_and_keeps_what_was_flushed() {
    let (_dir, path) = folder();
    let wal = small().buffer(BufferKind::Heap).open(&path).unwrap();
    assert!(!wal.stats().appends_survive_kill);
    assert!(!wal.recovery_report().appends_survive_kill);
    let expected = append(&wal, 20);
    wal.flush_to_os(expected[19].0).unwrap();
    append(&wal, 20);
    let (_copy, killed) = copy_as_killed(&path);
    let reopened = small().open(&killed).unwrap();
    assert_eq!(contents(&reopened).unwrap(), expected);
}

#[test]
fn a_second_recovery_on_files_equals_the_first() {
    let (_dir, path) = folder();
    let wal = small().open(&path).unwrap();
    let mut expected = append(&wal, 2000);
    wal.sync().unwrap();
    expected.extend(append(&wal, 30));
    wal.flush_to_os(expected[2029].0).unwrap();
    let mut copies = vec![copy_as_killed(&path)];
    for _ in 0..3 {
        let reopened = small().open(&copies.last().unwrap().1).unwrap();
        assert_eq!(contents(&reopened).unwrap(), expected);
        copies.push(copy_as_killed(&copies.last().unwrap().1));
    }
}

#[test]
fn a_log_killed_at_any_moment_of_a_recovery_on_files_comes_back_whole() {
    let (_dir, path) = folder();
    let wal = small().open(&path).unwrap();
    let expected = append(&wal, 500);
    wal.flush_to_os(expected[499].0).unwrap();
    let (_copy, killed) = copy_as_killed(&path);
    // An open that returned and appended nothing is the last moment of a recovery.
    for _ in 0..5 {
        let reopened = small().open(&killed).unwrap();
        let (_later, at_that_moment) = copy_as_killed(&killed);
        drop(reopened);
        let later = small().open(&at_that_moment).unwrap();
        assert_eq!(contents(&later).unwrap(), expected);
    }
}

#[test]
fn loss_of_power_leaves_all_that_was_committed_and_a_prefix_of_the_rest() {
    let store = FaultyStore::new(1 << 16);
    let wal = open(&store);
    let mut expected = append(&wal, 300);
    wal.sync().unwrap();
    let committed = expected.len();
    expected.extend(append(&wal, 300));
    store.kill();
    drop(wal);
    store.inner.lose_power();
    let found = contents(&open(&store.next_life())).unwrap();
    assert!(found.len() >= committed);
    assert_eq!(found, expected[..found.len()]);
}

/// Evidence that claims too much would make a torn log look damaged, and refuse it: the second
/// half of a padding that crosses a segment end is the place where that is easily done.
#[test]
fn a_padding_across_a_segment_end_claims_no_more_than_was_durable() {
    let store = FaultyStore::over(MemStore::new(4096).kept_buffer(false));
    let wal = Wal::with_store(store.clone(), Options::new().buffer_bytes(4096)).unwrap();
    let kept = wal.commit(&[1; 1000]).unwrap();
    let torn = wal.append(&[2; 1800]).unwrap().lsn();
    let crossed = wal.append(&[3; 1800]).unwrap().lsn();
    assert!(crossed.as_u64() > 4096, "the record has to lie behind a padding");
    wal.flush_to_os(crossed).unwrap();
    store.kill();
    drop(wal);
    let everything = bytes_at(&store.inner, Lsn::new(4096), 4096);
    store.inner.lose_power();
    // The medium kept the second segment, and nothing of the record that the first one ends in.
    store.inner.damage(Lsn::new(4096), &everything).unwrap();
    let wal = Wal::with_store(store.next_life(), Options::new().buffer_bytes(4096)).unwrap();
    assert_eq!(contents(&wal).unwrap(), [(kept, vec![1; 1000])]);
    let report = wal.recovery_report();
    assert_eq!(report.end, torn);
    assert!(report.torn_bytes > 0 && report.torn_reason.is_some(), "{report:?}");
}

fn bytes_at(store: &MemStore, at: Lsn, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let len = store.read(at, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn a_torn_batch_is_not_there_at_all() {
    let members: [&[u8]; 3] = [&[1; 100], &[2; 100], &[3; 100]];
    let frame_bytes = 24 + 3 * 128;
    for torn_at in (0..frame_bytes).step_by(8) {
        let store = FaultyStore::over(MemStore::new(1 << 16).kept_buffer(false));
        let wal = open(&store);
        let before = wal.commit(b"before").unwrap();
        let batch = wal.append_batch(&members).unwrap().lsn();
        wal.flush_to_os(batch).unwrap();
        store.kill();
        drop(wal);
        let frame = Lsn::new(batch.as_u64() - 24);
        let at = frame.plus(torn_at);
        let flipped: Vec<u8> = bytes_at(&store.inner, at, 1).iter().map(|byte| !byte).collect();
        store.inner.damage(at, &flipped).unwrap();
        let wal = open(&store.next_life());
        // The alignment behind a payload is covered by the batch's checksum, too.
        assert_eq!(contents(&wal).unwrap(), [(before, b"before".to_vec())], "byte {torn_at}");
        assert_eq!(wal.recovery_report().end, frame);
    }
}

/// What one thread was told.
#[derive(Default)]
struct Told {
    appended: Vec<(Lsn, Vec<u8>)>,
    committed: Vec<(Lsn, Vec<u8>)>,
}

fn work_until_killed(wal: &Wal, thread: u8) -> Told {
    let mut told = Told::default();
    for n in 0_u32.. {
        let data = [&[thread], &n.to_le_bytes()[..]].concat();
        let list = if n % 5 == 0 { &mut told.committed } else { &mut told.appended };
        let done = if n % 5 == 0 {
            wal.commit(&data)
        } else {
            wal.append(&data).map(|ticket| ticket.lsn())
        };
        match done {
            Ok(lsn) => list.push((lsn, data)),
            Err(_) => break,
        }
    }
    told
}

fn kill_under_load(keeps_buffer: bool, power_is_lost: bool) {
    let store = FaultyStore::over(MemStore::new(1 << 14).kept_buffer(keeps_buffer));
    let wal = open(&store);
    let told: Vec<Told> = thread::scope(|scope| {
        let threads: Vec<_> = (0..6_u8)
            .map(|thread| {
                let wal = &wal;
                scope.spawn(move || work_until_killed(wal, thread))
            })
            .collect();
        until(|| wal.stats().syncs > 100);
        store.kill();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    drop(wal);
    if power_is_lost {
        store.inner.lose_power();
    }
    let found = contents(&open(&store.next_life())).unwrap();
    let is_there = |record: &(Lsn, Vec<u8>)| found.binary_search(record).is_ok();
    for thread in &told {
        assert!(thread.committed.iter().all(is_there), "every acknowledged commit is there");
        if keeps_buffer && !power_is_lost {
            assert!(thread.appended.iter().all(is_there), "every append that returned is there");
        }
    }
    for thread in 0..told.len() {
        // Those of one thread are a prefix of what it appended: none missing, none twice.
        let numbers = found.iter().filter(|(_, data)| usize::from(data[0]) == thread);
        let numbers: Vec<u32> =
            numbers.map(|(_, data)| u32::from_le_bytes(data[1..].try_into().unwrap())).collect();
        assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>());
    }
}

#[test]
fn a_kill_under_load_loses_no_append_that_returned_where_the_buffer_is_kept() {
    guarded(|| (0..20).for_each(|_| kill_under_load(true, false)));
}

#[test]
fn a_kill_under_load_loses_no_commit_where_the_buffer_is_lost() {
    guarded(|| (0..20).for_each(|_| kill_under_load(false, false)));
}

#[test]
fn loss_of_power_under_load_loses_no_commit() {
    guarded(|| (0..20).for_each(|_| kill_under_load(true, true)));
}

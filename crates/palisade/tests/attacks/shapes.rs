//! Records and options at the ends of their ranges.

use palisade::store::ReadStore;
use palisade::{BufferKind, ErrorKind, Lsn, MemStore, Options, SyncPolicy, Wal, framed_bytes};

use crate::content::{Random, numbers, record};
use crate::faulty::FaultyStore;
use crate::folder::{contents, copy_as_killed, folder, small};
use crate::watchdog::guarded;

/// Attacks: the limit is looked at before anything is reserved; a frame of every length, and the
/// padding before it, is found again.
#[test]
fn a_record_of_every_size_from_0_to_the_limit_comes_back() {
    guarded(|| {
        let store = FaultyStore::new(4096);
        let options = Options::new().buffer_bytes(4096);
        let wal = Wal::with_store(store.clone(), options.clone()).unwrap();
        let max = wal.max_record_bytes();
        let mut expected = Vec::new();
        for len in 0..=max {
            let data: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
            expected.push((wal.append(&data).unwrap().lsn(), data));
        }
        let reserved = wal.reserved_lsn();
        for len in [max + 1, max + 2, 2 * max, 1 << 20] {
            let error = wal.append(&vec![7; len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{len}");
            assert_eq!(wal.reserved_lsn(), reserved, "{len}: nothing is reserved");
        }
        wal.sync().unwrap();
        assert!(contents(&wal).unwrap() == expected);
        store.kill();
        drop(wal);
        store.inner.lose_power();
        let wal = Wal::with_store(store.next_life(), options).unwrap();
        assert!(contents(&wal).unwrap() == expected);
    });
}

/// A log whose tail lies `rest` bytes before the end of its first segment.
fn log_with_rest(rest: u64) -> (FaultyStore, Wal, u64) {
    let store = FaultyStore::over(MemStore::new(4096).kept_buffer(false));
    let wal = Wal::with_store(store.clone(), Options::new().buffer_bytes(4096)).unwrap();
    let mut number = 0;
    while wal.reserved_lsn().as_u64() < 4096 - rest {
        let missing = (4096 - rest - wal.reserved_lsn().as_u64()) as usize;
        // The last one fills up exactly, and none leaves less than a record behind.
        let frame = if missing <= 400 { missing } else { 200 };
        drop(wal.append(&record(number, frame - framed_bytes(0) as usize)).unwrap());
        number += 1;
    }
    wal.sync().unwrap();
    (store, wal, number)
}

/// Attacks: a batch lies in one segment, and its checksum covers all of it: torn anywhere, it is
/// not there.
#[test]
fn a_batch_that_meets_a_segment_end_is_whole_or_not_there() {
    guarded(|| {
        const MEMBERS: [usize; 3] = [100, 60, 200];
        let frame = framed_bytes(0) + MEMBERS.iter().map(|len| framed_bytes(*len)).sum::<u64>();
        for rest in (0..=frame + 16).step_by(8) {
            for torn_after in [None, Some(24), Some(24 + 128), Some(frame - 8)] {
                let (store, wal, before) = log_with_rest(rest);
                let members: Vec<Vec<u8>> = MEMBERS
                    .iter()
                    .zip(before..)
                    .map(|(len, number)| record(number, *len))
                    .collect();
                let members: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
                let first = wal.append_batch(&members).unwrap().lsn();
                let start = Lsn::new(first.as_u64() - framed_bytes(0));
                let end = start.plus(frame);
                assert_eq!(start.segment(4096), end.as_u64().div_ceil(4096) - 1, "one segment");
                wal.flush_to_os(first).unwrap();
                store.kill();
                drop(wal);
                if let Some(kept) = torn_after {
                    garble(&store.inner, start.plus(kept), end);
                }
                let wal = Wal::with_store(store.next_life(), Options::new().buffer_bytes(4096));
                let found = numbers(wal.unwrap().records().unwrap());
                let count = if torn_after.is_none() { before + 3 } else { before };
                assert_eq!(found, (0..count).collect::<Vec<_>>(), "{rest} {torn_after:?}");
            }
        }
    });
}

fn garble(store: &MemStore, from: Lsn, to: Lsn) {
    let mut bytes = vec![0; to.bytes_since(from) as usize];
    Random::new(from.as_u64()).fill(&mut bytes);
    store.damage(from, &bytes).unwrap();
}

/// Attacks: nothing in the protocol needs what an option adds; an appender makes its own room.
#[test]
fn a_log_with_all_options_off_or_at_their_smallest_keeps_every_promise() {
    guarded(|| {
        for policy in [SyncPolicy::OnCommit, SyncPolicy::Always, SyncPolicy::Os] {
            let (_dir, path) = folder();
            let options = small()
                .buffer_bytes(4096)
                .buffer(BufferKind::Heap)
                .sync_policy(policy)
                .spare_segments(0)
                .zero_fill(false)
                .write_bytes(1)
                .gather_percent(0)
                .max_waiters(1)
                .read_ahead_bytes(4096);
            let wal = options.open(&path).unwrap();
            let mut places = Vec::new();
            for number in 0..600 {
                places.push(wal.append(&record(number, 300)).unwrap().lsn());
            }
            wal.sync().unwrap();
            wal.truncate_before(places[400]).unwrap();
            let (_copy, killed) = copy_as_killed(&path);
            let reopened = options.open(&killed).unwrap();
            assert_eq!(numbers(reopened.records().unwrap()), (400..600).collect::<Vec<_>>());
            wal.close().unwrap();
            let wal = options.open(&path).unwrap();
            assert!(wal.recovery_report().clean);
            assert_eq!(numbers(wal.records().unwrap()), (400..600).collect::<Vec<_>>());
        }
    });
}

/// Attacks: the same with the smallest segments and buffer that any store may have.
#[test]
fn a_log_in_memory_at_its_smallest_goes_through_many_segments() {
    guarded(|| {
        let store = FaultyStore::new(4096);
        let options = Options::new()
            .buffer_bytes(4096)
            .write_bytes(1)
            .gather_percent(0)
            .max_waiters(1)
            .read_ahead_bytes(4096);
        let wal = Wal::with_store(store.clone(), options.clone()).unwrap();
        (0..300).for_each(|number| drop(wal.append(&record(number, 1000)).unwrap()));
        wal.commit(&record(300, 8)).unwrap();
        assert!(store.inner.segments().unwrap().len() >= 75);
        store.kill();
        drop(wal);
        store.inner.lose_power();
        let wal = Wal::with_store(store.next_life(), options).unwrap();
        assert_eq!(numbers(wal.records().unwrap()), (0..=300).collect::<Vec<_>>());
    });
}

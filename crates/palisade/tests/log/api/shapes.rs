//! Records and options at the ends of their ranges.

use crate::prelude::*;

/// Protection: the limit is looked at before anything is reserved; a frame of every length, and the
/// padding before it, is found again.
#[test]
fn a_record_of_every_size_from_0_to_the_limit_comes_back() {
    let store = FaultyLog::new(4096);
    let options = Options::new().buffer_bytes(4096);
    let wal = store.open(options.clone());
    let max = wal.max_record_bytes();
    assert_eq!(wal.segment_bytes(), 4096);
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
    assert!(contents(&wal) == expected);
    let wal = store.after_power_loss(wal).open(options);
    assert!(contents(&wal) == expected);
}

/// A log whose tail lies `rest` bytes before the end of its first segment.
fn log_with_rest(rest: u64) -> (FaultyLog, Wal, u64) {
    let store = FaultyLog::with_buffer(4096, BufferKind::Heap);
    let wal = store.open(Options::new().buffer_bytes(4096));
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

/// Protection: a batch lies in one segment, and its checksum covers all of it: torn anywhere, it is
/// not there.
#[test]
fn a_batch_that_meets_a_segment_end_is_whole_or_not_there() {
    const MEMBERS: [usize; 3] = [100, 60, 200];
    let frame = framed_bytes(0) + MEMBERS.iter().map(|len| framed_bytes(*len)).sum::<u64>();
    for rest in (0..=frame + 16).step_by(8) {
        for torn_after in [None, Some(24), Some(24 + 128), Some(frame - 8)] {
            let (store, wal, before) = log_with_rest(rest);
            let members: Vec<Vec<u8>> =
                MEMBERS.iter().zip(before..).map(|(len, number)| record(number, *len)).collect();
            let members: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
            let first = wal.append_batch(&members).unwrap().lsn();
            let start = Lsn::new(first.as_u64() - framed_bytes(0));
            let end = start.plus(frame);
            assert_eq!(start.segment(4096), end.as_u64().div_ceil(4096) - 1, "one segment");
            wal.flush_to_os(first).unwrap();
            let next = store.after_kill(wal);
            if let Some(kept) = torn_after {
                garble(&next.inner, start.plus(kept), end);
            }
            let wal = next.open(Options::new().buffer_bytes(4096));
            let found = numbers(&wal);
            let count = if torn_after.is_none() { before + 3 } else { before };
            assert_eq!(found, all(count), "{rest} {torn_after:?}");
        }
    }
}

fn garble(store: &MemStore, from: Lsn, to: Lsn) {
    let mut bytes = vec![0; to.bytes_since(from) as usize];
    fill(from.as_u64(), &mut bytes);
    store.damage(from, &bytes).unwrap();
}

/// Protection: nothing in the protocol needs what an option adds; an appender makes its own room.
#[test]
fn a_log_with_all_options_off_or_smallest_keeps_every_promise() {
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
        let places = append(&wal, 0..600, 300);
        wal.sync().unwrap();
        wal.truncate_before(places[400]).unwrap();
        let (_copy, killed) = copy_as_killed(&path);
        let reopened = options.open(&killed).unwrap();
        assert_eq!(numbers(&reopened), (400..600).collect::<Vec<_>>());
        wal.close().unwrap();
        let wal = options.open(&path).unwrap();
        assert!(wal.recovery_report().clean);
        assert_eq!(numbers(&wal), (400..600).collect::<Vec<_>>());
    }
}

/// Protection: the same with the smallest segments and buffer that any store may have.
#[test]
fn a_log_in_memory_at_its_smallest_goes_through_many_segments() {
    let store = FaultyLog::new(4096);
    let options = Options::new()
        .buffer_bytes(4096)
        .write_bytes(1)
        .gather_percent(0)
        .max_waiters(1)
        .read_ahead_bytes(4096);
    let wal = store.open(options.clone());
    append(&wal, 0..300, 1000);
    wal.commit(&record(300, 8)).unwrap();
    assert!(store.inner.reader().unwrap().segments().unwrap().len() >= 75);
    let wal = store.after_power_loss(wal).open(options);
    assert_eq!(numbers(&wal), (0..=300).collect::<Vec<_>>());
}

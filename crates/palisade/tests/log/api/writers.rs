//! Many writers at a segment's end.

use crate::prelude::*;

const WRITERS: u64 = 32;
/// Of the store's thread that makes segments.
const MAX_AHEAD: u64 = 4;

/// Appends `per_writer` records from each of 32 threads that set off together.
fn append_together(wal: &Wal, first: u64, per_writer: u64, len: usize) {
    let barrier = Barrier::new(WRITERS as usize);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for n in 0..per_writer {
                    let number = first + writer * per_writer + n;
                    drop(wal.append(&record(number, len)).unwrap());
                }
            });
        }
    });
}

/// Protection: a reservation that crosses a segment's end belongs to one thread, which pads it; a
/// segment is made by the holder of the write lock alone.
#[test]
fn rotation_under_32_writers_makes_exactly_one_segment() {
    for round in 0..50 {
        let (wal, store) = new_log(SEGMENT_BYTES, Options::new().buffer_bytes(1 << 14));
        let mut number = 0;
        // One record short of the end, more or less: the first thread crosses it.
        while wal.reserved_lsn().as_u64() < SEGMENT_BYTES - 500 - round * 8 {
            drop(wal.append(&record(number, 400)).unwrap());
            number += 1;
        }
        wal.sync().unwrap();
        let made = store.count(NAME_SEGMENT);
        append_together(&wal, number, 1, 400);
        wal.sync().unwrap();
        assert_eq!(store.count(NAME_SEGMENT), made + 1, "round {round}: one segment is made");
        let segments: Vec<u64> = store
            .inner
            .reader()
            .unwrap()
            .segments()
            .unwrap()
            .iter()
            .map(|segment| segment.number)
            .collect();
        assert_eq!(segments, [0, 1], "round {round}");
        let found = numbers(&wal);
        assert_eq!(found.len() as u64, number + WRITERS, "round {round}: none is lost or twice");
        let distinct: BTreeSet<u64> = found.into_iter().collect();
        assert_eq!(distinct.len() as u64, number + WRITERS);
    }
}

/// Protection: the same on files, where a thread of the store makes segments ahead of the leader.
#[test]
fn rotation_of_files_under_32_writers_makes_each_segment_once() {
    let (_dir, path, wal) = log_on_files(small());
    append_together(&wal, 0, 100, 400);
    wal.sync().unwrap();
    let needed = wal.reserved_lsn().as_u64().div_ceil(SEGMENT_BYTES);
    let segments = Inspector::open(&path).unwrap().segments().unwrap();
    let present: Vec<u64> = segments.iter().map(|segment| segment.number).collect();
    // Those that the records need, and those that the store's thread makes ahead: one, or more
    // for a tail that it could not keep up with.
    let most = needed + MAX_AHEAD + 1;
    assert!((needed..=most).contains(&(present.len() as u64)), "{present:?}, {needed}");
    assert_eq!(present, all(present.len() as u64));
    let found: BTreeSet<u64> = numbers(&wal).into_iter().collect();
    assert_eq!(found, (0..WRITERS * 100).collect());
    wal.close().unwrap();
    let wal = small().open(&path).unwrap();
    assert_eq!(numbers(&wal).len() as u64, WRITERS * 100);
}

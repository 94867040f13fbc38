//! A full log buffer: which append gets the room that a write makes.

use crate::on_disk;
use crate::prelude::*;

const BUFFER_BYTES: usize = 1 << 14;
const SEGMENT_BYTES: u64 = 1 << 14;
/// The promise of `append`: the others reserve at most eight laps, and its own record may become
/// padding first.
const MOST_LAPS: u64 = 9;
/// So long the others go on at most, so that a test fails and does not hang.
const ENOUGH_LAPS: u64 = 60;

/// A log with short pieces, of which no thread writes but that of an append, and its disk.
fn quiet_log() -> (Wal, FaultDisk) {
    watch();
    let disk = FaultDisk::new(SimDisk::new(1).as_disk());
    let mut files = FileOptions::new();
    files.segment_bytes = Some(SEGMENT_BYTES);
    files.zero_fill = false;
    let options = Options::new().buffer_bytes(BUFFER_BYTES).write_bytes(BUFFER_BYTES / 8);
    (Wal::with_store(disk.open(&files).unwrap(), options).unwrap(), disk)
}

/// The same, whose buffer is full. Before each write of a piece, short appends take the room that
/// the piece before has made.
fn crowded_log() -> (Wal, FaultDisk) {
    let (wal, disk) = quiet_log();
    let others = wal.clone();
    disk.watch(move |call| {
        if (call.kind, call.target) == WRITE {
            fill_up(&others);
        }
        Ok(())
    });
    // The first of them completes a piece.
    while wal.reserved_lsn().as_u64() < BUFFER_BYTES as u64 {
        wal.append(&[1; 100]).unwrap();
    }
    (wal, disk)
}

/// Appends short records as long as there is room.
fn fill_up(wal: &Wal) {
    let end = ENOUGH_LAPS * BUFFER_BYTES as u64;
    while wal.reserved_lsn().as_u64() < end && wal.try_append(&[1; 100]).is_ok() {}
}

/// Checks that `append` reserves within the promised laps, and ends the log.
fn gets_room_in_time(append: impl Fn(&Wal) -> Lsn) {
    let (wal, disk) = crowded_log();
    for _ in 0..3 {
        let before = wal.reserved_lsn();
        let lsn = append(&wal);
        let distance = lsn.as_u64() - before.as_u64();
        assert!(distance <= MOST_LAPS * BUFFER_BYTES as u64, "{distance} bytes before it");
    }
    assert!(wal.stats().waits_for_room > 0);
    disk.watch(|_| Ok(()));
    wal.close().unwrap();
}

/// Protection: an append that waits for room is overtaken by eight laps of the log buffer at most.
#[test]
fn a_long_append_gets_room_although_others_take_each_piece() {
    gets_room_in_time(|wal| wal.append(&vec![2; wal.max_record_bytes()]).unwrap().lsn());
}

/// The same for a batch, and for records that are written in place.
#[test]
fn a_long_batch_and_an_in_place_record_get_room_beside_others() {
    gets_room_in_time(|wal| {
        let half = vec![2_u8; wal.max_record_bytes() / 2 - 64];
        wal.append_batch([&half, &half]).unwrap().lsns()[0]
    });
    gets_room_in_time(|wal| {
        wal.append_with(wal.max_record_bytes(), |_, bytes| bytes.fill(2)).unwrap().lsn()
    });
}

/// Protection: an append that fails leaves the queue for room, or all others would wait for it.
#[test]
fn an_append_that_finds_no_space_keeps_no_room() {
    let (wal, disk) = quiet_log();
    disk.set(WRITE, Effect::NoSpace);
    fill_up(&wal);
    let error = wal.append(&vec![2; wal.max_record_bytes()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    disk.set(WRITE, Effect::Pass);
    let from = wal.reserved_lsn();
    while wal.reserved_lsn().bytes_since(from) < 2 * MOST_LAPS * BUFFER_BYTES as u64 {
        wal.append(&[1; 100]).unwrap();
    }
    wal.close().unwrap();
}

/// Protection: an append without room writes, so one thread alone gets room again and again.
#[test]
fn a_full_buffer_needs_no_other_thread() {
    let disk = SimDisk::new(1);
    let wal = on_disk::open(&disk);
    disk.fill();
    let mut number = 0;
    let error = loop {
        match wal.append(&record(number, 100)) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "the buffer is full");
    disk.set_capacity(None);
    let last = number + 200;
    append(&wal, number..last, 100);
    wal.close().unwrap();
    assert_eq!(numbers(&on_disk::open(&disk)), all(last));
}

/// Threads fill the buffer while others append records of the greatest length.
#[test]
fn long_appends_beside_sixteen_threads_get_room_within_ten_laps() {
    const BUFFER_BYTES: usize = 1 << 20;
    let wal = log_in_memory(1 << 22, BUFFER_BYTES);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    wal.append(&[1; 4096]).unwrap();
                }
            });
        }
        let long = vec![2; wal.max_record_bytes()];
        let mut laps = Vec::new();
        for _ in 0..20 {
            let before = wal.reserved_lsn();
            let lsn = wal.append(&long).unwrap().lsn();
            laps.push((lsn.as_u64() - before.as_u64()) as f64 / BUFFER_BYTES as f64);
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(laps.iter().all(|laps| *laps <= 10.0), "{laps:.1?}");
    });
}

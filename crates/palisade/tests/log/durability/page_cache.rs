//! The page cache is another one than the log was written through, and the boot is the same: the
//! file system shut down and was mounted again, or this is an image of its device.

use crate::prelude::*;

const SYNCED: u64 = 3;
/// With a ring of 4096 bytes, more than it holds.
const WRITTEN: u64 = 15;
const RECORDS: u64 = 17;

fn open(disk: &SimDisk) -> Wal {
    watch();
    let mut files = FileOptions::new();
    files.segment_bytes = Some(16 << 10);
    // The zeros ahead would be synced, and what was written before with them.
    files.zero_fill = false;
    Wal::with_store(disk.open(&files).unwrap(), Options::new().buffer_bytes(4096)).unwrap()
}

/// Protection: the log buffer notes how far the log was written. What is missing below was in the
/// page cache and is lost with it, which no thread's death explains.
#[test]
fn what_the_page_cache_lost_ends_the_log_and_is_no_hole() {
    let mut shortened = 0;
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        let wal = open(&disk);
        append(&wal, 0..SYNCED, 480);
        wal.sync().unwrap();
        let written = append(&wal, SYNCED..WRITTEN, 480);
        wal.flush_to_os(*written.last().unwrap()).unwrap();
        append(&wal, WRITTEN..RECORDS, 480);
        disk.crash_file_system();
        drop(wal);
        let wal = open(&disk);
        let found = numbers(&wal);
        let count = found.len() as u64;
        assert_eq!(found, all(count), "seed {seed}");
        assert!((SYNCED..=RECORDS).contains(&count), "seed {seed}: {count}");
        assert_eq!(wal.recovery_report().holes_padded, 0, "seed {seed}");
        shortened += u64::from(count < RECORDS);
    }
    assert!(shortened > 50, "the page cache was lost in {shortened} of 300 runs only");
}

/// Protection: a sync fails, the process drops its poisoned log and ends, and the system drops the
/// pages that it could not write back. The ring is all that has the appends then.
#[test]
fn a_dropped_poisoned_log_keeps_its_appends_in_the_log_buffer() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let wal = open(&disk);
        wal.commit(&record(0, 480)).unwrap();
        let written = append(&wal, 1..5, 480);
        wal.flush_to_os(written[3]).unwrap();
        disk.fail(Fault::nth(CallKind::Sync, 0, FaultKind::Eio));
        assert_eq!(wal.sync().unwrap_err().kind(), ErrorKind::Poisoned);
        drop(wal);
        disk.restart();
        disk.drop_pages();
        let found = numbers(&open(&disk));
        assert_eq!(found, all(5), "seed {seed}");
    }
}

/// Protection: the log buffer notes how far the log was written before appends use the ring's bytes
/// again. So what they have overwritten, and the page cache has lost, is no hole.
#[test]
fn what_buffer_and_page_cache_lost_ends_the_log_and_is_no_hole() {
    let mut shortened = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let wal = open(&disk);
        wal.commit(&record(0, 80)).unwrap();
        // One write takes almost a ring: what is below a hole is written when the hole is filled.
        let last = with_a_hole(&wal, 992, |fill| {
            append(&wal, 2..3, 992);
            let last = wal.append(&record(3, wal.max_record_bytes())).unwrap().lsn();
            fill();
            last
        });
        wal.flush_to_os(last).unwrap();
        // Overwrites the beginning of what was the hole, and completes no piece.
        let written = wal.written_lsn();
        append(&wal, 4..5, 96);
        assert_eq!(wal.written_lsn(), written);
        disk.crash_file_system();
        drop(wal);
        let wal = open(&disk);
        assert_eq!(wal.recovery_report().holes_padded, 0, "seed {seed}");
        shortened += u64::from(wal.recovery_report().records < 5);
    }
    assert!(shortened > 20, "the page cache was lost in {shortened} of 100 runs only");
}

//! Losses of power that need a floor more than one lap of the ring below the log's end.

use palisade::sim::{CallKind, Fault, FaultKind, SimDisk};
use palisade::{ErrorKind, FileOptions, Options, Result, Wal};

fn open(disk: &SimDisk) -> Result<Wal> {
    let mut files = FileOptions::new();
    files.segment_bytes = Some(16_384);
    Wal::with_store(disk.open(&files)?, Options::new().buffer_bytes(4096))
}

fn count(wal: &Wal) -> usize {
    let mut records = wal.iter().unwrap();
    let mut count = 0;
    while records.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// Nothing was ever synced, so the floor is the epoch's base. An orderly reboot keeps the ring; the
/// open in the next boot writes its records into the segment, and the sync of that fails (M3). The
/// next open in that boot finds them in the segment, where they read right, and reports them.
fn a_failed_sync_in_the_boot_after(records: usize) {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let wal = open(&disk).unwrap();
        for number in 0..records {
            wal.append(&[number as u8; 200]).unwrap();
        }
        disk.kill();
        drop(wal);
        disk.reboot();
        disk.fail(Fault::nth(CallKind::Sync, 0, FaultKind::Eio));
        assert_eq!(open(&disk).map(drop).unwrap_err().kind(), ErrorKind::Io);
        disk.heal();
        disk.kill();
        disk.restart();
        let wal = open(&disk).unwrap();
        assert_eq!(count(&wal), records, "seed {seed}: an orderly reboot keeps everything");
        disk.lose_power();
        drop(wal);
        let wal = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(count(&wal), records, "seed {seed}: what was reported is gone");
    }
}

#[test]
fn a_failed_sync_in_the_boot_after_takes_nothing_that_was_reported_a_lap_above_the_floor() {
    a_failed_sync_in_the_boot_after(50);
}

#[test]
fn a_failed_sync_in_the_boot_after_takes_nothing_that_was_reported_at_the_floor() {
    a_failed_sync_in_the_boot_after(1);
}

/// The ring may have what the segments lack: a failure to map it is not a ring without records.
#[test]
fn a_buffer_that_cannot_be_mapped_now_is_not_taken_for_an_empty_one() {
    let disk = SimDisk::new(1);
    let wal = open(&disk).unwrap();
    assert!(wal.stats().appends_survive_kill);
    wal.append(b"survives the death of the process").unwrap();
    disk.kill();
    drop(wal);
    disk.restart();
    disk.fail(Fault::nth(CallKind::Map, 0, FaultKind::Eio));
    let opened = open(&disk);
    disk.heal();
    match opened {
        Ok(wal) => assert_eq!(count(&wal), 1, "{:?}", wal.recovery_report().buffer_note),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert_eq!(count(&open(&disk).unwrap()), 1);
        }
    }
}

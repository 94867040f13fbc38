//! A log buffer that an open cannot use at this moment.

use palisade::sim::{CallKind, Fault, FaultKind, SimDisk};
use palisade::{ErrorKind, FileOptions, Options, Result, Wal};

fn open(disk: &SimDisk) -> Result<Wal> {
    let mut files = FileOptions::new();
    files.segment_bytes = Some(16_384);
    Wal::with_store(disk.open(&files)?, Options::new().buffer_bytes(4096))
}

fn count(wal: &Wal) -> usize {
    let mut records = wal.records().unwrap();
    let mut count = 0;
    while records.next().unwrap().is_some() {
        count += 1;
    }
    count
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

//! What the open of a closed log asks of the disk: as much for many segments as for few.

use std::path::Path;
use std::sync::Arc;

use palisade_core::{Options, Wal};

use crate::file::FileStore;
use crate::options::FileOptions;
use crate::test_disk::TestDisk;

const SEGMENT_BYTES: u64 = 64 << 10;

fn open(disk: &TestDisk, path: &Path) -> Wal {
    let options = FileOptions {
        segment_bytes: Some(SEGMENT_BYTES),
        zero_fill: false,
        ..FileOptions::default()
    };
    let store = FileStore::open_on(Arc::new(disk.clone()), path, &options).unwrap();
    let mut options = Options::default();
    options.buffer_bytes = 1 << 16;
    Wal::with_store(store, &options).unwrap()
}

/// A closed log of at least `segments` segments, of `lives` epochs.
fn closed_log(path: &Path, segments: u64, lives: u64) {
    for life in 1..=lives {
        let wal = open(&TestDisk::new(true, 1), path);
        let record = vec![life as u8; 20_000];
        while wal.reserved_lsn().segment(SEGMENT_BYTES) < segments * life / lives {
            wal.append(&record).unwrap();
        }
        // Only the last life ends well.
        if life == lives {
            wal.close().unwrap();
        }
    }
}

/// How often the files of segments are opened by the open of a closed log.
fn opens(segments: u64, lives: u64) -> usize {
    let temp = tempfile::tempdir().unwrap();
    closed_log(temp.path(), segments, lives);
    let disk = TestDisk::new(true, 1);
    let wal = open(&disk, temp.path());
    let opens = disk.controls.segment_opens();
    let report = wal.recovery_report();
    // Less what lies between one epoch and the next.
    assert!(report.clean && report.segments > segments * 9 / 10, "{report:?}");
    opens
}

#[test]
fn the_open_of_a_closed_log_looks_at_few_headers_however_many_segments_there_are() {
    // Of the lowest one, of the clean end's and those behind it; and the preparer's look, beside it.
    let (few, many) = (opens(10, 1), opens(200, 1));
    assert!(few <= 12 && many <= 12, "{few} and {many}");
    // For each epoch more a bisection.
    let lives = opens(200, 5);
    assert!(lives <= 12 + 4 * 2 * 8, "{lives}");
}

#[test]
fn the_open_of_a_closed_log_waits_for_few_syncs() {
    let temp = tempfile::tempdir().unwrap();
    closed_log(temp.path(), 10, 1);
    let syncs = |boot: u8| {
        let disk = TestDisk::new(true, boot);
        let wal = open(&disk, temp.path());
        let syncs = disk.controls.awaited_syncs();
        wal.append(&[boot; 20_000]).unwrap();
        wal.close().unwrap();
        syncs
    };
    // The state's second copy, of which nobody knows whether it is on the medium; both copies anew.
    assert_eq!(syncs(1), 3);
    // In another boot the buffer's file and its name, too.
    assert_eq!(syncs(2), 5);
    assert_eq!(syncs(2), 3);
}

//! What the open of a closed log asks of the disk: as much for many segments and epochs as for few.

use palisade_store::FileOptions;
use palisade_store::sim::{CallKind, Target};
use palisade_store::testing::TestDisk;

use super::support::with_buffer;
use crate::Wal;

const SEGMENT_BYTES: u64 = 64 << 10;

fn open(disk: &TestDisk, folder: &str) -> Wal {
    let options = FileOptions {
        segment_bytes: Some(SEGMENT_BYTES),
        zero_fill: false,
        ..FileOptions::default()
    };
    let store = disk.open_at(folder, &options).unwrap();
    Wal::with_store(store, with_buffer(1 << 16)).unwrap()
}

/// Makes a closed log of at least `segments` segments, of `epochs` epochs.
fn closed_log(segments: u64, epochs: u64) -> TestDisk {
    let disk = TestDisk::new();
    for epoch in 1..=epochs {
        let wal = open(&disk, "/log");
        let record = vec![epoch as u8; 20_000];
        while wal.reserved_lsn().segment(SEGMENT_BYTES) < segments * epoch / epochs {
            wal.append(&record).unwrap();
        }
        // Only the last epoch ends well.
        if epoch == epochs {
            wal.close().unwrap();
        }
    }
    disk
}

/// Opens a closed log. Returns how often the open opens files of segments.
fn opens(segments: u64, epochs: u64) -> usize {
    let disk = closed_log(segments, epochs).again();
    let wal = open(&disk, "/log");
    let opens = disk.faults.count((CallKind::Open, Target::Segment));
    let report = wal.recovery_report();
    // Less what lies between one epoch and the next.
    assert!(report.clean && report.segments > segments * 9 / 10, "{report:?}");
    opens
}

#[test]
fn the_open_of_a_long_closed_log_reads_only_headers_at_its_end() {
    // Of the clean end's segment and those prepared behind it; and the preparer's look, beside it.
    for (segments, epochs) in [(10, 1), (200, 1), (200, 5)] {
        let opens = opens(segments, epochs);
        assert!(opens <= 12, "{opens} with {segments} segments of {epochs} epochs");
    }
}

#[test]
fn the_open_of_a_closed_log_waits_for_few_syncs() {
    let log = closed_log(10, 1);
    let syncs = |boot: u8| {
        let disk = log.again();
        let wal = open(&disk, "/log");
        let syncs = disk.awaited_syncs();
        wal.append(&[boot; 20_000]).unwrap();
        wal.close().unwrap();
        syncs
    };
    // A new meta file, and its name; whichever boot it is.
    assert_eq!(syncs(1), 2);
    assert_eq!(syncs(2), 2);
    assert_eq!(syncs(2), 2);
}

/// Checks a log that `cp` has copied: its bytes may lie only in the page cache, also below the
/// floor.
#[test]
fn a_log_copied_to_another_folder_syncs_every_segment_once() {
    let log = closed_log(20, 1);
    log.make_folder("/copy");
    let names = log.names();
    names.iter().for_each(|name| log.write("/copy", name, &log.bytes(name)));
    let segments = names.iter().filter(|name| name.starts_with("segment-")).count();
    let syncs = || {
        let disk = log.again();
        let wal = open(&disk, "/copy");
        let syncs = disk.awaited_syncs();
        wal.close().unwrap();
        syncs
    };
    // Each segment, the folder and the one that holds it, then the state.
    assert_eq!(syncs(), segments + 2 + 2);
    assert_eq!(syncs(), 2, "it is at home there now");
}

//! What an open does about damage and about an end that is not clean, as the caller chose.

use std::path::{Path, PathBuf};

use palisade::{BufferKind, EndCause, Error, ErrorKind, Lsn, Options, RecoveryPolicy, Verify};
use tempfile::TempDir;

use crate::folder::{contents, copy_as_killed, flip, folder, place_of, small, snapshot};

pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;

fn data(n: u32) -> Vec<u8> {
    n.to_le_bytes().repeat(60)
}

pub(crate) fn full() -> Options {
    small().verify(Verify::Full)
}

/// A log of two epochs, the second beginning at record 700, closed cleanly or killed after all
/// was synced; and its records.
pub(crate) fn log(closed: bool) -> (TempDir, PathBuf, Vec<(Lsn, Vec<u8>)>) {
    let (dir, path) = folder();
    let options = small().buffer(BufferKind::Heap);
    let mut records = Vec::new();
    for life in 0..2 {
        let wal = options.open(&path).unwrap();
        for n in 700 * life..700 * (life + 1) {
            records.push((wal.append(&data(n)).unwrap().lsn(), data(n)));
        }
        wal.checkpoint(records[records.len() - 1].0).unwrap();
        if closed && life == 1 {
            wal.close().unwrap();
        }
    }
    (dir, path, records)
}

/// Damages the payload of the record at `lsn`.
pub(crate) fn damage(path: &Path, lsn: Lsn) {
    let (file, at) = place_of(path, lsn, SEGMENT_BYTES);
    flip(&file, at + 40);
}

pub(crate) fn damage_header(path: &Path, lsn: Lsn) {
    let (file, _) = place_of(path, lsn, SEGMENT_BYTES);
    flip(&file, 50);
}

/// Opens a log that has to be refused and left as it is.
pub(crate) fn refused(options: &Options, path: &Path, kind: ErrorKind) -> Error {
    let before = snapshot(path);
    let error = options.open(path).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(snapshot(path) == before, "what is refused is left as it is: {error}");
    error
}

#[test]
fn require_clean_refuses_every_end_but_a_clean_one_and_changes_nothing() {
    let require_clean = small().recovery(RecoveryPolicy::RequireClean);
    let (_dir, path, _) = log(false);
    let error = refused(&require_clean, &path, ErrorKind::Unclean);
    assert!(error.to_string().contains("RecoveryPolicy::Strict"), "{error}");
    let wal = small().open(&path).unwrap();
    wal.close().unwrap();
    let wal = require_clean.open(&path).unwrap();
    assert_eq!(wal.recovery_report().end_cause, EndCause::CleanClose);
    drop(wal);
    refused(&require_clean, &path, ErrorKind::Unclean);
    let (_dir, fresh) = folder();
    require_clean.open(&fresh).unwrap().close().unwrap();
    require_clean.open(&fresh).unwrap();
}

#[test]
fn full_verification_refuses_damage_anywhere_and_the_tail_alone_does_not_see_it() {
    for closed in [false, true] {
        let (_dir, path, records) = log(closed);
        for index in [0, 1, 300, 699, 700, 900] {
            let (_copy, path) = copy_as_killed(&path);
            damage(&path, records[index].0);
            for threads in [0, 1, 3] {
                let options = full().verify_threads(threads);
                let error = refused(&options, &path, ErrorKind::Corrupt);
                assert_eq!(error.lsn(), Some(records[index].0), "record {index}");
                let segment = records[index].0.as_u64() / SEGMENT_BYTES;
                assert_eq!(error.segment(), Some(segment));
            }
            small().open(&path).unwrap();
        }
    }
}

#[test]
fn full_verification_of_a_whole_log_counts_all_of_it() {
    for closed in [false, true] {
        let (_dir, path, records) = log(closed);
        let predicted = full().dry_run(&path).unwrap();
        let wal = full().open(&path).unwrap();
        let report = wal.recovery_report();
        assert!(report.verified && report.clean == closed);
        assert_eq!(report.records, 1400);
        assert!(report.bytes >= 1400 * 264, "{report:?}");
        assert_eq!((predicted.records, predicted.end), (1400, report.end));
        assert_eq!(contents(&wal).unwrap(), records);
    }
}

#[test]
fn damage_below_the_head_is_nobodys_business() {
    let (_dir, path, records) = log(false);
    let wal = small().open(&path).unwrap();
    wal.truncate_before(records[650].0).unwrap();
    wal.close().unwrap();
    damage(&path, records[649].0);
    let wal = full().open(&path).unwrap();
    assert_eq!(wal.recovery_report().records, 750);
}

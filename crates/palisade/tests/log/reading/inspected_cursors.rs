//! The lags of cursors that a reader beside the writer computes from the files.

use palisade::CursorStatus;

use crate::prelude::*;

/// Of 1000 bytes each, with their headers.
const RECORDS_PER_SEGMENT: u64 = SEGMENT_BYTES / 1024;

fn fill(wal: &Wal, count: u64) -> Vec<Lsn> {
    let lsns = (0..count).map(|_| wal.append(&[7; 1000]).unwrap().lsn()).collect();
    wal.sync().unwrap();
    lsns
}

fn inspected(path: &std::path::Path) -> Vec<CursorStatus> {
    let log = Inspector::open(path).unwrap();
    let cursors = log.cursors().unwrap();
    let states = log.state().unwrap().cursors;
    assert!(cursors.iter().all(|cursor| !cursor.is_open));
    for (cursor, saved) in cursors.iter().zip(&states) {
        assert_eq!((&cursor.name, cursor.position), (&saved.name, saved.position));
        assert_eq!(cursor.keeps_the_log, saved.keeps(cursor.lag));
    }
    assert_eq!(cursors.len(), states.len());
    cursors
}

/// Checks that the files show what the writer knows, and returns the lags.
fn agreed(wal: &Wal, path: &std::path::Path) -> Vec<u64> {
    let mut known = wal.cursors().unwrap();
    known.iter_mut().for_each(|cursor| cursor.is_open = false);
    assert_eq!(inspected(path), known);
    assert_eq!(Inspector::open(path).unwrap().end().unwrap(), wal.reserved_lsn());
    known.iter().map(|cursor| cursor.lag).collect()
}

#[test]
fn a_reader_beside_the_writer_sees_the_same_lags_as_the_writer() {
    let (_folder, path, wal) = log_on_files(small());
    assert_eq!(agreed(&wal, &path), []);
    let lsns = fill(&wal, 3 * RECORDS_PER_SEGMENT);
    for (name, from, max_lag) in [("far", 0, 100), ("near", 20, u64::MAX), ("none", 30, 0)] {
        drop(wal.create_cursor(name, Some(lsns[from]), max_lag).unwrap());
    }
    let lags = agreed(&wal, &path);
    assert_eq!(lags[1], wal.reserved_lsn().bytes_since(lsns[20]));
    let keep: Vec<bool> = inspected(&path).iter().map(|cursor| cursor.keeps_the_log).collect();
    assert_eq!(keep, [false, true, false]);
    // The position of the first is below the head, that of the last in a discarded range.
    wal.truncate_before(lsns[10]).unwrap();
    wal.truncate_after(lsns[25]).unwrap();
    agreed(&wal, &path);
    fill(&wal, 1);
    agreed(&wal, &path);
    let before = inspected(&path);
    wal.close().unwrap();
    // A close may write a mark.
    assert!(inspected(&path)[0].lag - before[0].lag <= 24);
    let wal = small().open(&path).unwrap();
    fill(&wal, 1);
    agreed(&wal, &path);
}

/// Protection: a lag counts from the first LSN that can have a record, for tools, too.
#[test]
fn a_reader_sees_no_lag_of_a_cursor_that_has_all_records() {
    let (_folder, path, wal) = log_on_files(small());
    fill(&wal, 10);
    let mut cursor = wal.create_cursor("one", None, SEGMENT_BYTES / 2).unwrap();
    while cursor.next(Duration::ZERO).unwrap().is_some() {}
    cursor.save().unwrap();
    drop(cursor);
    wal.abandon();
    for _ in 0..3 {
        let wal = small().open(&path).unwrap();
        assert_eq!(agreed(&wal, &path), [0]);
        wal.abandon();
        assert_eq!(inspected(&path)[0].lag, 0);
    }
    let wal = small().open(&path).unwrap();
    fill(&wal, 1);
    assert_eq!(agreed(&wal, &path).len(), 1);
    assert!(inspected(&path)[0].keeps_the_log);
}

/// Protection: records that a truncation of the prefix removed count as lag, for tools, too.
#[test]
fn a_reader_sees_the_lag_of_a_cursor_that_lost_records() {
    let (_folder, path, wal) = log_on_files(small());
    drop(wal.create_cursor("one", None, SEGMENT_BYTES / 2).unwrap());
    fill(&wal, 2 * RECORDS_PER_SEGMENT);
    wal.abandon();
    let wal = small().open(&path).unwrap();
    wal.truncate_before(wal.reserved_lsn()).unwrap();
    let lag = inspected(&path)[0].lag;
    assert!(lag > SEGMENT_BYTES, "{lag}");
    wal.abandon();
    let wal = small().open(&path).unwrap();
    assert_eq!(agreed(&wal, &path).len(), 1);
    assert!(!inspected(&path)[0].keeps_the_log);
}

#[test]
fn a_log_without_its_meta_file_has_no_cursors_and_the_same_end() {
    let (_folder, path, wal) = log_on_files(small());
    fill(&wal, 20);
    drop(wal.create_cursor("one", None, 0).unwrap());
    let end = wal.reserved_lsn();
    wal.close().unwrap();
    std::fs::remove_file(path.join("meta")).unwrap();
    assert_eq!(inspected(&path), []);
    assert_eq!(Inspector::open(&path).unwrap().end().unwrap(), end);
}

//! Segments that are missing or have damaged headers: what is below is printed and counted, and a
//! walk over what is left does not end as if nothing were missing.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::common::wait_until;

const ALL: usize = 80;

/// A log of several segments, which was closed, or whose process was killed. The preparer has made
/// the segment above the last record.
fn log(is_closed: bool) -> (TempDir, Vec<Lsn>) {
    let (folder, wal) = open_log(&small());
    let lsns: Vec<Lsn> = (0..ALL).map(|_| wal.commit(&[7; 5000]).unwrap()).collect();
    let above = segment(&folder, lsns[ALL - 1].segment(SEGMENT) + 1);
    wait_until("a segment is prepared", || above.exists());
    if is_closed {
        wal.close().unwrap()
    } else {
        wal.abandon()
    }
    (folder, lsns)
}

fn segment(folder: &TempDir, number: u64) -> PathBuf {
    folder.path().join(format!("segment-{number:020}"))
}

/// The records below the LSN.
fn below(lsns: &[Lsn], end: u64) -> usize {
    lsns.iter().filter(|lsn| lsn.as_u64() < end).count()
}

#[test]
fn dump_stat_and_verify_read_what_is_below_a_missing_segment() {
    for is_closed in [true, false] {
        let (folder, lsns) = log(is_closed);
        fs::remove_file(segment(&folder, 3)).unwrap();
        let expected = below(&lsns, 3 * SEGMENT);
        let dumped = palisade(folder.path(), &["dump"]);
        assert_eq!((code(&dumped), out(&dumped).lines().count()), (4, expected), "{dumped:?}");
        assert!(err(&dumped).contains("missing"), "{dumped:?}");
        let (exit, counted) = json(folder.path(), &["stat"]);
        assert_eq!((exit, counted["records"].as_u64()), (4, Some(expected as u64)), "{counted}");
        let (exit, verdict) = json(folder.path(), &["verify"]);
        assert_eq!((exit, verdict["records"].as_u64()), (4, Some(expected as u64)), "{verdict}");
        assert_eq!(verdict["end"], 3 * SEGMENT, "{verdict}");
        let present = fs::read_dir(folder.path()).unwrap();
        let names = present.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let segments = names.filter(|name| name.starts_with("segment-")).count();
        assert_eq!(verdict["segments"], segments, "{verdict}");
        let above = lsns[below(&lsns, 4 * SEGMENT)].to_string();
        let dumped = palisade(folder.path(), &["dump", "--from", &above]);
        let rest = ALL - below(&lsns, 4 * SEGMENT);
        assert_eq!((code(&dumped), out(&dumped).lines().count()), (4, rest), "{dumped:?}");
    }
}

#[test]
fn dump_and_verify_read_a_segment_with_a_damaged_header() {
    let (folder, _) = log(false);
    let mut bytes = fs::read(segment(&folder, 3)).unwrap();
    bytes[50] ^= 1;
    fs::write(segment(&folder, 3), bytes).unwrap();
    let dumped = palisade(folder.path(), &["dump"]);
    assert_eq!((code(&dumped), out(&dumped).lines().count()), (4, ALL), "{dumped:?}");
    let (exit, verdict) = json(folder.path(), &["verify"]);
    assert_eq!((exit, verdict["records"].as_u64()), (4, Some(ALL as u64)), "{verdict}");
}

#[test]
fn a_walk_and_a_map_name_a_lost_last_segment_with_records() {
    for is_removed in [true, false] {
        let (folder, lsns) = log(false);
        let whole = palisade(folder.path(), &["salvage"]);
        assert_eq!((code(&whole), err(&whole)), (0, String::new()));
        let last = lsns[ALL - 1].segment(SEGMENT);
        if is_removed {
            fs::remove_file(segment(&folder, last)).unwrap();
        } else {
            fs::write(segment(&folder, last), b"").unwrap();
        }
        assert_eq!(code(&palisade(folder.path(), &["verify"])), 4);
        let left = palisade(folder.path(), &["salvage"]);
        let expected = below(&lsns, last * SEGMENT);
        assert_eq!((code(&left), out(&left).lines().count()), (4, expected), "{left:?}");
        let gap = format!("gap: LSN {} to {}\n", last * SEGMENT, (last + 1) * SEGMENT);
        assert_eq!(err(&left), gap);
        let (_, map) = json(folder.path(), &["map"]);
        let parts = map["segment_list"].as_array().unwrap();
        let part = parts.iter().find(|part| part["number"] == last).unwrap();
        let expected = if is_removed { "missing" } else { "damaged header" };
        assert_eq!(part["state"], expected, "{map}");
    }
}

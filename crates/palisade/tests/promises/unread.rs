//! The open of a closed log looks at few headers: what is wrong with the others is refused, by name,
//! when their segments are first read, and nothing is lost by looking so late.

use std::fs;
use std::path::{Path, PathBuf};

use palisade::inspect::{Archive, Inspector, Outcome};
use palisade::{Error, ErrorKind, Lsn, Options, Verify, Wal};
use tempfile::TempDir;

use crate::folder::{contents, copy_as_killed, flip, folder, small, snapshot};

const SEGMENT_BYTES: u64 = 64 << 10;
/// The segment that is attacked, and those around it.
const ATTACKED: u64 = 3;
const SEGMENTS: u64 = 8;

fn segment(path: &Path, number: u64) -> PathBuf {
    path.join(format!("segment-{number:020}"))
}

fn closed_log() -> (TempDir, PathBuf, Vec<Lsn>) {
    let (dir, path) = folder();
    let wal = small().open(&path).unwrap();
    let mut lsns = Vec::new();
    while lsns.last().is_none_or(|lsn: &Lsn| lsn.segment(SEGMENT_BYTES) < SEGMENTS) {
        lsns.push(wal.append(&[lsns.len() as u8; 1000]).unwrap().lsn());
    }
    wal.close().unwrap();
    (dir, path, lsns)
}

fn swap(path: &Path, one: u64, other: u64) {
    let (first, second) = (segment(path, one), segment(path, other));
    let kept = fs::read(&first).unwrap();
    fs::rename(&second, &first).unwrap();
    fs::write(&second, kept).unwrap();
}

/// Each kind of wrong header in a closed log, and what the error is to say of it.
fn attacks() -> Vec<(TempDir, PathBuf, Vec<Lsn>, &'static str)> {
    let says = ["does not validate", "segment 4", "is of log", "does not validate", "missing"];
    let logs = says.into_iter().enumerate().map(|(index, says)| {
        let (dir, path, lsns) = closed_log();
        let file = segment(&path, ATTACKED);
        match index {
            0 => flip(&file, 50),
            1 => swap(&path, ATTACKED, ATTACKED + 1),
            2 => {
                let (_other_dir, other, _) = closed_log();
                fs::copy(segment(&other, ATTACKED), &file).unwrap();
            }
            3 => fs::write(&file, b"").unwrap(),
            // Behind the open: what is missing before it is seen by it.
            _ => {}
        }
        (dir, path, lsns, says)
    });
    logs.collect()
}

fn assert_refused(error: &Error, says: &str) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(error.segment(), Some(ATTACKED), "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn a_header_that_is_wrong_in_a_closed_log_is_refused_by_its_first_reader() {
    for (_dir, path, lsns, says) in attacks() {
        let wal = small().open(&path).unwrap();
        assert!(wal.recovery_report().clean, "{says}");
        if says == "missing" {
            fs::remove_file(segment(&path, ATTACKED)).unwrap();
        }
        let is_attacked = |lsn: &&Lsn| lsn.segment(SEGMENT_BYTES) == ATTACKED;
        let attacked = *lsns.iter().find(is_attacked).unwrap();
        // Again and again: nothing is taken for looked at that was refused.
        for _ in 0..2 {
            assert_refused(&wal.get(attacked).unwrap_err(), says);
            assert_refused(&wal.iter_from(attacked).unwrap_err(), says);
            assert_refused(&wal.tail_from(attacked).unwrap_err(), says);
            assert_refused(&wal.truncate_before(attacked).unwrap_err(), says);
            assert_refused(&wal.checkpoint(attacked).unwrap_err(), says);
            let mut records = wal.iter().unwrap();
            for lsn in lsns.iter().take_while(|lsn| lsn.segment(SEGMENT_BYTES) < ATTACKED) {
                assert_eq!(records.next().unwrap().unwrap().lsn(), *lsn);
            }
            assert_refused(&records.next().unwrap_err(), says);
            assert!(records.next().unwrap().is_none(), "fused after the error");
        }
        let is_sound = |lsn: &&Lsn| ![ATTACKED, ATTACKED + 1].contains(&lsn.segment(SEGMENT_BYTES));
        for lsn in lsns.iter().filter(is_sound) {
            assert_eq!(wal.get(*lsn).unwrap().lsn(), *lsn);
        }
        wal.commit(&[7; 100]).unwrap();
    }
}

#[test]
fn a_replay_of_a_closed_log_ends_where_a_header_is_wrong() {
    for (_dir, path, _, says) in attacks().into_iter().filter(|(.., says)| *says != "missing") {
        let error = small().open_replaying(&path, None, |_| Ok::<(), Error>(())).unwrap_err();
        assert_refused(&error, says);
    }
}

#[test]
fn full_verification_tools_and_unclean_opens_look_at_all_headers() {
    for (_dir, path, _, says) in attacks().into_iter().filter(|(.., says)| *says != "missing") {
        let before = snapshot(&path);
        assert_refused(&small().verify(Verify::Full).open(&path).unwrap_err(), says);
        let verdict = Inspector::open(&path).unwrap().verify().unwrap();
        assert_eq!((verdict.outcome, verdict.bad_places[0].segment), (Outcome::Corrupt, ATTACKED));
        assert!(snapshot(&path) == before, "a refused log is left as it is");
        // A life that does not end with `close` leaves a log of which all is looked at.
        drop(small().open(&path).unwrap());
        let before = snapshot(&path);
        assert_refused(&small().open(&path).unwrap_err(), says);
        assert!(snapshot(&path) == before, "a refused log is left as it is");
    }
}

/// The head's, the running epoch's first one, the clean end's: an open has need of them.
#[test]
fn headers_that_an_open_needs_and_segments_that_are_missing_are_refused_by_it() {
    let (_dir, path, lsns) = closed_log();
    let wal = small().open(&path).unwrap();
    let cut = lsns.iter().position(|lsn| lsn.segment(SEGMENT_BYTES) == 6).unwrap();
    wal.truncate_after(lsns[cut + 3]).unwrap();
    wal.truncate_before(lsns[cut / 3]).unwrap();
    let first = wal.append(&[1; 1000]).unwrap().lsn();
    let end = (0..200).fold(first, |_, _| wal.append(&[2; 1000]).unwrap().lsn());
    let head = wal.head_lsn();
    wal.close().unwrap();
    let refused = |path: &Path, number: u64| {
        let before = snapshot(path);
        let error = small().open(path).unwrap_err();
        assert_eq!((error.kind(), error.segment()), (ErrorKind::Corrupt, Some(number)), "{error}");
        assert!(snapshot(path) == before, "a refused log is left as it is");
    };
    for lsn in [head, first, end] {
        let (_copy, copy) = copy_as_killed(&path);
        flip(&segment(&copy, lsn.segment(SEGMENT_BYTES)), 50);
        refused(&copy, lsn.segment(SEGMENT_BYTES));
    }
    for number in [head.segment(SEGMENT_BYTES) + 1, end.segment(SEGMENT_BYTES) - 1] {
        let (_copy, copy) = copy_as_killed(&path);
        fs::remove_file(segment(&copy, number)).unwrap();
        refused(&copy, number);
    }
    assert_eq!(contents(&small().open(&path).unwrap()).unwrap().len(), cut + 4 - cut / 3 + 201);
}

fn archiving(path: &Path) -> Options {
    small().archive(path)
}

#[test]
fn no_archive_takes_a_segment_whose_header_is_wrong() {
    for (dir, path, lsns, says) in attacks().into_iter().filter(|(.., says)| *says != "missing") {
        let archive = dir.path().join("archive");
        let wal = archiving(&archive).open(&path).unwrap();
        let is_behind = |lsn: &&Lsn| lsn.segment(SEGMENT_BYTES) == ATTACKED + 3;
        let behind = *lsns.iter().find(is_behind).unwrap();
        for _ in 0..2 {
            assert_refused(&wal.truncate_before(behind).unwrap_err(), says);
            assert!(segment(&path, ATTACKED).exists() && segment(&path, ATTACKED + 1).exists());
            assert!(!segment(&archive, ATTACKED).exists());
            assert!(segment(&archive, ATTACKED - 1).exists(), "what lies below is in it");
            assert!(!segment(&path, ATTACKED - 1).exists());
        }
        assert_eq!(wal.head_lsn(), behind);
        let records = Archive::open(&archive).unwrap().records(None).unwrap();
        let below = |lsn: &&Lsn| lsn.segment(SEGMENT_BYTES) < ATTACKED;
        assert_eq!(read(records), lsns.iter().filter(below).copied().collect::<Vec<_>>());
    }
}

fn read(mut records: palisade::Records) -> Vec<Lsn> {
    let mut lsns = Vec::new();
    while let Some(record) = records.next().unwrap() {
        lsns.push(record.lsn());
    }
    lsns
}

/// What lies below the head is given up by whoever truncates, whatever its header says.
#[test]
fn a_truncation_of_the_head_frees_segments_that_were_not_looked_at() {
    for (_dir, path, lsns, says) in attacks().into_iter().filter(|(.., says)| *says != "missing") {
        let wal = small().open(&path).unwrap();
        let is_behind = |lsn: &&Lsn| lsn.segment(SEGMENT_BYTES) == ATTACKED + 2;
        let behind = lsns.iter().position(|lsn| is_behind(&lsn)).unwrap();
        wal.truncate_before(lsns[behind]).unwrap();
        assert!(!segment(&path, ATTACKED).exists(), "{says}");
        assert_eq!(read(wal.iter().unwrap()), lsns[behind..]);
        drop(wal);
        assert_eq!(read(small().open(&path).unwrap().iter().unwrap()), lsns[behind..]);
    }
}

/// A cut takes away what was not looked at, and nobody is asked for it later.
#[test]
fn a_cut_through_segments_that_were_not_looked_at_leaves_what_it_keeps() {
    let (dir, path, lsns) = closed_log();
    let archive = dir.path().join("archive");
    let wal: Wal = archiving(&archive).open(&path).unwrap();
    let kept = lsns.iter().position(|lsn| lsn.segment(SEGMENT_BYTES) == 2).unwrap();
    wal.truncate_after(lsns[kept]).unwrap();
    let more = wal.commit(&[9; 100]).unwrap();
    let expected: Vec<Lsn> = lsns[..=kept].iter().copied().chain([more]).collect();
    assert_eq!(read(wal.iter().unwrap()), expected);
    wal.truncate_before(more).unwrap();
    assert_eq!(read(wal.iter().unwrap()), [more]);
    assert_eq!(read(Archive::open(&archive).unwrap().records(None).unwrap()), lsns[..=kept]);
    wal.close().unwrap();
    assert_eq!(read(archiving(&archive).open(&path).unwrap().iter().unwrap()), [more]);
}

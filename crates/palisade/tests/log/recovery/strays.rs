//! Files that have a segment's name and are none.

use crate::prelude::*;

const HEADER_BYTES: usize = 4096;
/// The last segments that the format has LSNs for, and one that no log of a test comes to.
const FAR_ABOVE: [u64; 3] = [(1 << 60) / SEGMENT_BYTES - 1, (1 << 60) / SEGMENT_BYTES / 2, 1 << 20];

fn append_synced(wal: &Wal, numbers: std::ops::Range<u64>) -> Vec<Lsn> {
    let lsns = append(wal, numbers, 240);
    wal.sync().unwrap();
    lsns
}

/// A log of some segments that its process has just lost, or closed.
fn log(is_closed: bool) -> (tempfile::TempDir, PathBuf) {
    let (dir, path, wal) = log_on_files(heap());
    append_synced(&wal, 0..600);
    if is_closed {
        wal.close().unwrap();
        return (dir, path);
    }
    copy_as_killed(&path)
}

/// What may lie under a segment's name that is no segment of the log in `path`.
fn strangers(path: &Path) -> Vec<Vec<u8>> {
    let own = fs::read(segment(path, 0)).unwrap();
    let (_other, other) = log(true);
    vec![
        vec![0; 100],
        vec![0; HEADER_BYTES + SEGMENT_BYTES as usize],
        vec![0x5a; 20_000],
        // Of another place of the same log, and of another log.
        own,
        fs::read(segment(&other, 1)).unwrap(),
    ]
}

/// Protection: what lies out of reach of the log has no part in it.
#[test]
fn a_stray_file_far_above_the_log_moves_nothing() {
    for is_closed in [false, true] {
        let (_dir, path) = log(is_closed);
        let (_plain, plain) = copy_as_killed(&path);
        let expected = heap().open(&plain).unwrap().recovery_report().base;
        let empty = FAR_ABOVE.map(|number| (number, Vec::new()));
        let others = strangers(&path).into_iter().map(|bytes| (FAR_ABOVE[0], bytes));
        for (number, bytes) in others.chain(empty) {
            let (_copy, copy) = copy_as_killed(&path);
            let stray = segment(&copy, number);
            fs::write(&stray, &bytes).unwrap();
            let outcome = if is_closed { Outcome::Clean } else { Outcome::Unclean };
            let verdict = Inspector::open(&copy).unwrap().verify().unwrap();
            assert_eq!((verdict.outcome, verdict.strays), (outcome, vec![number]));

            let wal = heap().open(&copy).unwrap();
            let report = wal.recovery_report();
            assert_eq!((report.base, report.clean), (expected, is_closed), "{number}");
            assert_eq!(report.strays, [number]);
            append_synced(&wal, 600..1200);
            wal.close().unwrap();
            let wal = heap().open(&copy).unwrap();
            assert!(wal.recovery_report().clean);
            append_synced(&wal, 1200..1300);
            assert_eq!(numbers(&wal), all(1300));
            assert_eq!(fs::read(&stray).unwrap(), bytes, "it is left as it is");
        }
    }
}

/// Protection: the same for the next LSN of a copy.
#[test]
fn a_stray_file_far_above_the_log_moves_nothing_in_its_copies() {
    let (_dir, path) = log(true);
    let end = Inspector::open(&path).unwrap().verify().unwrap().end;
    let copies = |path: &Path| {
        let (dir, backup) = (tempfile::tempdir().unwrap(), path.with_file_name("backup"));
        let plan = |from| Restore::plan(from, None, &mut |_| {}).unwrap();
        let wal = heap().open(path).unwrap();
        let base_of_backup = wal.backup_to(&backup).unwrap().base;
        wal.close().unwrap();
        let repaired = repair(path, &dir.path().join("repaired"), end).unwrap();
        [base_of_backup, repaired.base, plan(RestoreFrom::log(path)).report().base]
    };
    let expected = copies(&path);
    for number in FAR_ABOVE {
        let (_copy, copy) = copy_as_killed(&path);
        fs::write(segment(&copy, number), b"not a segment").unwrap();
        assert_eq!(copies(&copy), expected, "{number}");
    }
}

/// Protection: a segment whose header has rotted is none any more, but its LSNs were given.
#[test]
fn segments_whose_headers_have_rotted_still_count_for_the_base() {
    let (_dir, path, wal) = log_on_files(heap());
    // The tail is far in its segment, so that the next one is made ahead.
    let tail = append_synced(&wal, 0..950).pop().unwrap().segment(SEGMENT_BYTES);
    until(|| segment(&path, tail + 1).exists());
    wal.close().unwrap();
    let (_copy, copy) = copy_as_killed(&path);
    let highest = numbers_of(&copy).pop().unwrap();
    assert!(highest > tail);
    for number in tail + 1..=highest {
        flip(&segment(&copy, number), 20);
    }
    let wal = heap().open(&copy).unwrap();
    let report = wal.recovery_report();
    assert!(report.base >= Lsn::new((highest + 1) * SEGMENT_BYTES), "{report:?}");
    assert_eq!(report.strays, (tail + 1..=highest).collect::<Vec<_>>());
    wal.truncate_before(report.base).unwrap();
    assert!((tail + 1..=highest).all(|number| segment(&copy, number).exists()));
}

fn numbers_of(path: &Path) -> Vec<u64> {
    let segments = Inspector::open(path).unwrap().segments().unwrap();
    segments.iter().map(|segment| segment.number).collect()
}

/// Protection: the log does not write over what it did not make, and says what is in its way.
#[test]
fn a_stray_file_that_the_log_comes_to_is_refused_by_name() {
    let (_dir, path, wal) = log_on_files(heap());
    let stray = segment(&path, 40);
    fs::write(&stray, b"not a segment").unwrap();
    let error = (0..20_000).find_map(|number| wal.commit(&record(number, 240)).err()).unwrap();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Poisoned, Some(&*stray)), "{error}");
    assert_eq!(fs::read(&stray).unwrap(), b"not a segment");
}

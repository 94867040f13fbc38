//! A log whose meta file is gone: every open refuses it, and the tools read it from the headers of
//! its segments.

use crate::content::numbers_in;
use crate::prelude::*;

/// Where the meta file has its second copy.
const SECOND_COPY_AT: u64 = 16 << 10;

/// A way to lose the meta file, and what an open says then.
type Loss = (fn(&Path), ErrorKind);

fn losses() -> [Loss; 4] {
    [
        (|meta| fs::remove_file(meta).unwrap(), ErrorKind::Foreign),
        (|meta| fs::write(meta, [0; 8192]).unwrap(), ErrorKind::Foreign),
        (|meta| fs::write(meta, []).unwrap(), ErrorKind::Foreign),
        (
            |meta| [100, SECOND_COPY_AT + 100].into_iter().for_each(|at| flip(meta, at)),
            ErrorKind::Corrupt,
        ),
    ]
}

/// A killed log of three epochs of 400 records each; those before record `first` were truncated.
fn log(first: u64) -> (tempfile::TempDir, PathBuf, Lsn) {
    let (mut dir, mut path) = folder();
    let mut head = Lsn::ZERO;
    for run in 0..3 {
        let wal = heap().open(&path).unwrap();
        for number in run * 400..(run + 1) * 400 {
            let lsn = wal.append(&record(number, 240)).unwrap().lsn();
            head = if number == first { lsn } else { head };
        }
        wal.sync().unwrap();
        if run == 1 {
            wal.truncate_before(head).unwrap();
        }
        let copy = copy_as_killed(&path);
        drop(wal);
        (dir, path) = copy;
    }
    (dir, path, head)
}

fn salvaged(log: &Inspector) -> (Vec<u64>, usize) {
    let mut salvage = log.salvage(None).unwrap();
    let (mut found, mut gaps) = (Vec::new(), 0);
    while let Some(next) = salvage.next().unwrap() {
        match next {
            Salvaged::Record(record) => found.push(number_of(record.data()).unwrap()),
            _ => gaps += 1,
        }
    }
    (found, gaps)
}

/// No repair and no other folder brings such a log back.
fn assert_says_what_is_left(error: &Error) {
    let text = error.to_string();
    for part in ["nothing was changed", "the last truncation", "`palisade dump`", "a new log"] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    for part in ["name an empty folder", "palisade repair", "verify --deep", "is mounted"] {
        assert!(!text.contains(part), "`{part}` is in {text}");
    }
}

/// Protection: reading needs no more than the headers of segments.
#[test]
fn a_log_without_its_meta_file_can_be_read_and_not_opened() {
    let (_dir, path, head) = log(300);
    let state = Inspector::open(&path).unwrap().state().unwrap();
    for (lose, kind) in losses() {
        let (_copy, copy) = copy_as_killed(&path);
        lose(&copy.join("meta"));
        let before = snapshot(&copy);
        let error = heap().open(&copy).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_says_what_is_left(&error);
        assert_says_what_is_left(&Repair::plan(&copy, head, &mut |_| {}).unwrap_err());
        let log = Inspector::open(&copy).unwrap();
        assert!(log.has_rebuilt_state() && !log.has_writer().unwrap());
        let rebuilt = log.state().unwrap();
        assert_eq!((rebuilt.uuid, rebuilt.segment_bytes), (state.uuid, state.segment_bytes));
        let base = Lsn::new(head.segment(SEGMENT_BYTES) * SEGMENT_BYTES);
        assert_eq!((rebuilt.head, rebuilt.clean), (base, false));
        // With what the head's segment holds below the head.
        let found = numbers_in(log.records(None).unwrap());
        assert_eq!(found, (found[0]..1200).collect::<Vec<_>>());
        assert!((100..=300).contains(&found[0]), "from record {}", found[0]);
        assert_eq!(salvaged(&log), (found.clone(), 0));
        for verdict in [log.verify().unwrap(), log.verify_deep(1).unwrap()] {
            assert_eq!((verdict.outcome, verdict.records), (Outcome::Corrupt, found.len() as u64));
            let why = verdict.why.unwrap();
            assert!(why.contains("`meta`") && why.contains("no other damage"), "{why}");
        }
        assert!(snapshot(&copy) == before, "reading changes nothing");
    }
}

/// What is left of a log without its meta file, one of whose headers is damaged, too.
fn left(path: &Path, number: u64) -> (Lsn, Vec<u64>, usize) {
    let (_copy, copy) = copy_as_killed(path);
    flip(&segment(&copy, number), 30);
    let log = Inspector::open(&copy).unwrap();
    let verdict = log.verify().unwrap();
    assert_eq!(verdict.outcome, Outcome::Corrupt);
    assert!(verdict.why.unwrap().contains("there is more damage"));
    let (found, gaps) = salvaged(&log);
    (log.state().unwrap().head, found, gaps)
}

/// Protection: the same, where a header is damaged, too.
#[test]
fn a_damaged_header_hides_no_segment_of_a_log_without_meta() {
    let (_dir, path, _) = log(0);
    fs::remove_file(path.join("meta")).unwrap();
    // Another segment of the epoch tells what its records begin with.
    for number in [0, 1] {
        assert_eq!(left(&path, number), (Lsn::ZERO, (0..1200).collect(), 0));
    }
    // The only one of its epoch: nothing does, and what it held is a gap.
    let (_dir, path, head) = log(300);
    fs::remove_file(path.join("meta")).unwrap();
    let lowest = head.segment(SEGMENT_BYTES);
    let base = Lsn::new(lowest * SEGMENT_BYTES);
    assert_eq!(left(&path, lowest), (base, (400..1200).collect(), 1));
}

/// Protection: segments of another log, and files that are none, have no word in it.
#[test]
fn foreign_files_do_not_change_the_state_read_without_meta() {
    let (_dir, path, head) = log(700);
    let (_other, other, _) = log(700);
    let wal = heap().open(&other).unwrap();
    wal.commit(&record(0, 240)).unwrap();
    assert!(head.segment(SEGMENT_BYTES) > 1, "segment 0 is far below");
    let state = Inspector::open(&path).unwrap().state().unwrap();
    fs::remove_file(path.join("meta")).unwrap();
    let expected = Inspector::open(&path).unwrap().state().unwrap();
    let stranger = fs::read_dir(&other).unwrap().map(|entry| entry.unwrap().path());
    let stranger =
        stranger.filter(|path| path.to_str().unwrap().contains("segment-")).max().unwrap();
    // At its own place, and at another one.
    fs::copy(&stranger, path.join(stranger.file_name().unwrap())).unwrap();
    fs::copy(&stranger, segment(&path, 7_000)).unwrap();
    fs::write(segment(&path, 0), b"").unwrap();
    assert_eq!(Inspector::open(&path).unwrap().state().unwrap(), expected);
    assert_eq!(expected.uuid, state.uuid);

    // Nothing else in the folder is a log.
    let (_dir, none) = folder();
    fs::create_dir(&none).unwrap();
    fs::write(segment(&none, 0), [0x5a; 5000]).unwrap();
    assert_eq!(Inspector::open(&none).unwrap_err().kind(), ErrorKind::Foreign);
}

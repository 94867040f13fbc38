//! Logs that keep nothing of what lies above their head, because that is damaged: a repair lets
//! them begin anew, and the archive goes on, or says where it breaks.

use crate::prelude::*;

fn base_of(lsn: Lsn) -> Lsn {
    Lsn::new(lsn.as_u64() - lsn.as_u64() % SEGMENT_BYTES)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Record,
    Missing,
}

/// What a log was before it lost all that it held, and what it is since.
struct Lost {
    _dir: tempfile::TempDir,
    archive: std::path::PathBuf,
    before: Entries,
    since: Entries,
    /// Where it began anew.
    base: Lsn,
}

/// A log of two runs, of 40 records each, whose head at the record `head` is damaged, begins anew
/// and archives some of what it holds then.
fn begin_anew(head: impl Fn(&Entries) -> usize, damage: Damage) -> (usize, Lost) {
    let (dir, path) = folder();
    let archive = dir.path().join("archive");
    let options = small().on_release(Archive::open(&archive).unwrap()).verify(Verify::Full);
    let mut before = append_bytes(&options.open(&path).unwrap(), 0..40, 4000);
    let wal = options.open(&path).unwrap();
    before.extend(append_bytes(&wal, 40..80, 4000));
    let head = head(&before);
    wal.truncate_before(before[head].0).unwrap();
    drop(wal);
    hurt(&path, before[head].0, damage);
    let into = dir.path().join("repaired");
    let report = repair(&path, &into, before[head].0).unwrap();
    assert_eq!(report.records, 0);
    let wal = options.open(&into).unwrap();
    assert_eq!(contents(&wal), []);
    let base = wal.recovery_report().base;
    let since = append_bytes(&wal, 100..160, 4000);
    wal.truncate_before(since[50].0).unwrap();
    assert_eq!(contents(&wal), since[50..]);
    (head, Lost { _dir: dir, archive, before, since, base })
}

fn hurt(path: &Path, lsn: Lsn, damage: Damage) {
    let (file, at) = place_of(path, lsn, SEGMENT_BYTES);
    match damage {
        Damage::Record => flip(&file, at + 40),
        Damage::Missing => fs::remove_file(file).unwrap(),
    }
}

/// The records of the archive from `from` on, and the place and the text of the error that ends
/// them.
fn archived(archive: &Path, from: Option<Lsn>) -> (Entries, Option<(Lsn, String)>) {
    let (records, error) = archived_from(archive, from);
    let error = error.map(|error| {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        (error.lsn().unwrap(), error.to_string())
    });
    (records, error)
}

/// A head within a segment, one at the base of a segment, one at the base of a run, and one
/// within that run.
fn heads() -> [fn(&Entries) -> usize; 4] {
    let of_segment = |records: &Entries| {
        let later = records.iter().enumerate().skip(1);
        later.clone().find(|(_, (lsn, _))| base_of(*lsn) == *lsn).unwrap().0
    };
    [|_| 20, of_segment, |_| 40, |_| 60]
}

#[test]
fn an_archive_goes_on_when_the_log_begins_anew() {
    for head in heads() {
        let (head, lost) = begin_anew(head, Damage::Record);
        let (found, error) = archived(&lost.archive, None);
        assert_eq!(error, None, "head {head}");
        assert_eq!(found[..head], lost.before[..head], "all below the head was archived");
        assert!(found.len() >= head + 40, "head {head}");
        assert_eq!(found[head..], lost.since[..found.len() - head]);
    }
}

/// With the head's segment its epoch is lost, and what lay in it below the head.
#[test]
fn an_archive_reports_a_gap_where_a_log_began_anew() {
    for head in heads() {
        let (head, lost) = begin_anew(head, Damage::Missing);
        let place = base_of(lost.before[head].0);
        let whole = lost.before.iter().take_while(|(lsn, _)| *lsn < place).count();
        let (found, error) = archived(&lost.archive, None);
        assert_eq!(found, lost.before[..whole], "head {head}");
        let (lsn, text) = error.expect("what is missing is no end");
        assert!(lsn <= place && lsn > lost.before[whole - 1].0, "{text}");
        assert!(text.contains(&lost.base.to_string()), "{text}");
        let (found, error) = archived(&lost.archive, Some(lost.base));
        assert_eq!(error, None, "head {head}");
        assert!(found.len() >= 40 && found == lost.since[..found.len()]);
    }
}

/// One file that is missing costs what it held, in an older run, too.
#[test]
fn what_lies_behind_a_gap_in_an_archive_is_read_from_there() {
    let (dir, path) = folder();
    let archive = dir.path().join("archive");
    let options = small().on_release(Archive::open(&archive).unwrap());
    let mut records = append_bytes(&options.open(&path).unwrap(), 0..40, 4000);
    let wal = options.open(&path).unwrap();
    records.extend(append_bytes(&wal, 40..80, 4000));
    wal.truncate_before(records[75].0).unwrap();
    let (file, _) = place_of(&archive, records[20].0, SEGMENT_BYTES);
    fs::remove_file(file).unwrap();
    let base = base_of(records[20].0);
    let (found, error) = archived(&archive, None);
    assert_eq!(error.map(|(lsn, _)| lsn), Some(base));
    assert_eq!(found[..], records[..found.len()]);
    assert!(records[found.len()].0 >= base);
    let (found, error) = archived(&archive, Some(records[40].0));
    assert_eq!(error, None);
    assert!(found.len() > 20 && found == records[40..40 + found.len()]);
}

/// The run before the lost one is archived and released: it ended with its segment at the head,
/// or the head is where a run began that stayed empty.
#[test]
fn an_archive_goes_on_without_a_file_of_the_run_before_the_loss() {
    for is_empty_run in [false, true] {
        let (dir, path) = folder();
        let archive = dir.path().join("archive");
        let options = small().on_release(Archive::open(&archive).unwrap()).verify(Verify::Full);
        let mut wal = options.open(&path).unwrap();
        let fill = |n: u8| (wal.append(&[n; 4072]).unwrap().lsn(), vec![n; 4072]);
        let before: Entries = (0..16).map(fill).collect();
        assert_eq!(wal.reserved_lsn(), Lsn::new(SEGMENT_BYTES));
        if is_empty_run {
            drop(wal);
            wal = options.open(&path).unwrap();
        }
        wal.truncate_before(wal.reserved_lsn()).unwrap();
        drop(wal);
        let wal = options.open(&path).unwrap();
        let lost = append_bytes(&wal, 40..60, 4000);
        wal.close().unwrap();
        hurt(&path, lost[0].0, Damage::Record);
        let into = dir.path().join("repaired");
        repair(&path, &into, lost[0].0).unwrap();
        let wal = options.open(&into).unwrap();
        assert_eq!(contents(&wal), []);
        let since = append_bytes(&wal, 100..160, 4000);
        wal.truncate_before(since[50].0).unwrap();
        let (found, error) = archived(&archive, None);
        assert_eq!(error, None, "{is_empty_run}");
        assert_eq!(found[..16], before);
        assert!(found.len() >= 56 && found[16..] == since[..found.len() - 16]);
    }
}

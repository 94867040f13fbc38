//! Segments that are missing or empty: what is below can be read, and no tool ends as if nothing
//! were missing.

use palisade::inspect::Gap;

use crate::prelude::*;

const ALL: u8 = 80;

/// A log of several segments, which was closed, or whose process died. The preparer has made the
/// segment above the last record.
fn log(is_closed: bool) -> (TempDir, PathBuf, Entries) {
    let (dir, path, wal) = log_on_files(small());
    let records = append_bytes(&wal, 0..ALL, 3000);
    wal.sync().unwrap();
    let last = records[usize::from(ALL) - 1].0.segment(SEGMENT_BYTES);
    until(|| segment(&path, last + 1).exists());
    if is_closed {
        wal.close().unwrap()
    } else {
        wal.abandon()
    }
    (dir, path, records)
}

/// The records and the gaps of a salvage.
fn salvaged(path: &Path) -> (Vec<Lsn>, Vec<Gap>) {
    let mut salvage = Inspector::open(path).unwrap().salvage(None).unwrap();
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    while let Some(next) = salvage.next().unwrap() {
        match next {
            Salvaged::Record(record) => found.push(record.lsn()),
            Salvaged::Gap(gap) => gaps.push(gap),
            _ => {}
        }
    }
    (found, gaps)
}

#[test]
fn records_below_a_missing_segment_are_read_and_then_the_error() {
    for is_closed in [true, false] {
        let (_dir, path, records) = log(is_closed);
        let lost = records[40].0.segment(SEGMENT_BYTES);
        fs::remove_file(segment(&path, lost)).unwrap();
        let below = records.iter().filter(|(lsn, _)| lsn.segment(SEGMENT_BYTES) < lost).count();
        let view = Inspector::open(&path).unwrap();
        let (found, error) = read_until_error(view.records(None).unwrap());
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Corrupt));
        assert_eq!(found, records[..below]);
        let verdict = view.verify().unwrap();
        assert_eq!((verdict.outcome, verdict.records), (Outcome::Corrupt, below as u64));
        assert!(verdict.end <= records[40].0 && verdict.segments > 0, "{verdict:?}");
    }
}

#[test]
fn a_salvage_reports_that_the_last_segment_with_records_is_lost() {
    for is_removed in [true, false] {
        let (_dir, path, records) = log(false);
        assert_eq!(salvaged(&path).1, []);
        let lost = records[usize::from(ALL) - 1].0.segment(SEGMENT_BYTES);
        match is_removed {
            true => fs::remove_file(segment(&path, lost)).unwrap(),
            false => fs::write(segment(&path, lost), b"").unwrap(),
        }
        let (found, gaps) = salvaged(&path);
        assert!(found.iter().all(|lsn| lsn.segment(SEGMENT_BYTES) < lost));
        let ends = gaps.iter().map(|gap| (gap.from.as_u64(), gap.to.as_u64())).collect::<Vec<_>>();
        assert_eq!(ends, [(lost * SEGMENT_BYTES, (lost + 1) * SEGMENT_BYTES)]);
    }
}

//! Recovery tells damage from a torn tail: durable records are never truncated silently,
//! and a log that is refused is left as it is, byte for byte.

use crate::content::places;
use crate::prelude::*;

/// A killed log of three segments, without a buffer that could mend it, and its records; the
/// one in the middle is the checkpoint.
fn killed_log() -> (TempDir, std::path::PathBuf, Vec<Lsn>) {
    let (_dir, path, wal) = log_on_files(heap());
    let lsns: Vec<Lsn> = (0..700_u32).map(|n| append(&wal, n)).collect();
    wal.checkpoint(lsns[650]).unwrap();
    for n in 0..5 {
        append(&wal, n);
    }
    wal.flush_to_os(Lsn::new(wal.reserved_lsn().as_u64() - 8)).unwrap();
    let (copy, killed) = copy_as_killed(&path);
    (copy, killed, lsns)
}

fn append(wal: &Wal, n: u32) -> Lsn {
    wal.append(&n.to_le_bytes().repeat(60)).unwrap().lsn()
}

fn assert_names(error: &Error, path: &Path, segment: u64, lsn: Option<Lsn>) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.is_fatal());
    assert_eq!(error.segment(), Some(segment), "{error}");
    assert_eq!(error.lsn(), lsn, "{error}");
    let text = error.to_string();
    let path = path.display().to_string();
    for part in [path.as_str(), "nothing was changed", "palisade verify", "backup"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn damage_below_the_floor_is_refused_and_names_segment_and_lsn() {
    let (_dir, path, lsns) = killed_log();
    let damaged = lsns[640];
    assert_eq!(damaged.segment(SEGMENT_BYTES), lsns[650].segment(SEGMENT_BYTES));
    for offset in [0, 5, 8, 24, 100] {
        let (file, at) = place_of(&path, damaged.plus(offset), SEGMENT_BYTES);
        flip(&file, at);
        let error = refused(&small(), &path);
        assert_names(&error, &path, damaged.segment(SEGMENT_BYTES), Some(damaged));
        assert_eq!(Inspector::open(&path).unwrap().verify().unwrap().outcome, Outcome::Corrupt);
        flip(&file, at);
    }
    assert_eq!(contents(&small().open(&path).unwrap()).len(), 705);
}

#[test]
fn a_torn_tail_above_the_floor_is_removed_and_reported() {
    let (_dir, path, _) = killed_log();
    let last = *places(&path).last().unwrap();
    let (file, at) = place_of(&path, last.plus(30), SEGMENT_BYTES);
    flip(&file, at);
    let verdict = Inspector::open(&path).unwrap().verify().unwrap();
    assert_eq!((verdict.outcome, verdict.end), (Outcome::TornTail, last));
    // A damaged record below hides neither the tail nor the epoch that lacks a record.
    let below = places(&path)[10];
    let (other, place) = place_of(&path, below.plus(30), SEGMENT_BYTES);
    flip(&other, place);
    let verdict = Inspector::open(&path).unwrap().verify_deep(0).unwrap();
    let found = (verdict.outcome, verdict.end, verdict.torn_bytes);
    assert_eq!(found, (Outcome::Corrupt, below, 24 + 240));
    let why = verdict.why.unwrap();
    assert!(why.contains("no valid record of epoch"), "{why}");
    flip(&other, place);
    let wal = small().open(&path).unwrap();
    let report = wal.recovery_report();
    assert_eq!(report.end, last);
    assert_eq!(report.torn_bytes, 24 + 240);
    let reason = report.torn_reason.as_deref().unwrap_or_default();
    assert!(reason.contains(&last.to_string()), "{reason}");
    assert_eq!(contents(&wal).len(), 704);
    assert_eq!(wal.get(last).unwrap_err().kind(), ErrorKind::Truncated);
    assert_eq!(wal.wait_durable(last).unwrap_err().kind(), ErrorKind::Truncated);
}

#[test]
fn one_damaged_copy_of_the_state_is_mended_and_two_are_refused() {
    let (_dir, path, _) = killed_log();
    let meta = path.join("meta");
    flip(&meta, 100);
    drop(small().open(&path).unwrap());
    drop(small().open(&path).unwrap());
    flip(&meta, 16_384 + 100);
    drop(small().open(&path).unwrap());
    flip(&meta, 100);
    flip(&meta, 16_384 + 100);
    let error = refused(&small(), &path);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("meta"), "{error}");
}

#[test]
fn a_log_buffer_that_is_gone_counts_as_empty_and_is_reported() {
    // A copy of a folder has none.
    let (_dir, path, _) = killed_log();
    let wal = small().open(&path).unwrap();
    assert!(wal.recovery_report().buffer_note.is_some());
    assert_eq!(contents(&wal).len(), 705);
}

#[test]
fn damage_in_a_cleanly_closed_log_shows_when_it_is_read() {
    let (_dir, path, wal) = log_on_files(small());
    let lsns: Vec<Lsn> = (0..300).map(|n| append(&wal, n)).collect();
    wal.close().unwrap();
    let (file, at) = place_of(&path, lsns[100].plus(24), SEGMENT_BYTES);
    flip(&file, at);
    let verdict = Inspector::open(&path).unwrap().verify().unwrap();
    assert_eq!((verdict.outcome, verdict.end), (Outcome::Corrupt, lsns[100]));
    let wal = small().open(&path).unwrap();
    let (found, error) = read_until_error(wal.records().unwrap());
    assert!(found.iter().map(|(lsn, _)| lsn).eq(&lsns[..100]));
    let error = error.unwrap();
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(lsns[100])));
    assert_eq!(wal.get(lsns[100]).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(wal.get(lsns[101]).unwrap().lsn(), lsns[101]);
}

/// Ten commits with the mapped buffer, and a copy of the folder as a kill leaves it.
fn killed_with_mapped_buffer() -> (tempfile::TempDir, std::path::PathBuf, Vec<Lsn>) {
    let (_dir, path, wal) = log_on_files(small().buffer(BufferKind::Mapped));
    let lsns = (0..10_u8).map(|n| wal.commit(&[n; 100]).unwrap()).collect();
    let (dir, copy) = copy_as_killed(&path);
    (dir, copy, lsns)
}

#[test]
fn damage_below_the_floor_is_refused_despite_the_log_buffer() {
    let (_dir, path, lsns) = killed_with_mapped_buffer();
    let (file, offset) = place_of(&path, lsns[5], SEGMENT_BYTES);
    flip(&file, offset + 30);
    let error = refused(&small(), &path);
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(lsns[5])), "{error}");
}

#[test]
fn a_damaged_header_of_buffered_bytes_is_refused() {
    let (_dir, path, lsns) = killed_with_mapped_buffer();
    let (file, _) = place_of(&path, lsns[0], SEGMENT_BYTES);
    flip(&file, 50);
    assert_eq!(refused(&small(), &path).kind(), ErrorKind::Corrupt);
}

#[test]
fn a_log_without_segments_is_refused_if_its_head_proves_one() {
    let (_dir, path, wal) = log_on_files(small());
    let lsns: Vec<Lsn> = (0..1500).map(|_| wal.append(&[3; 100]).unwrap().lsn()).collect();
    wal.truncate_before(lsns[1200]).unwrap();
    drop(wal);
    for entry in std::fs::read_dir(&path).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("segment-") || name == "buffer" {
            std::fs::remove_file(file).unwrap();
        }
    }
    let error = small().open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn a_damaged_segment_prepared_after_a_clean_end_is_not_written() {
    let (_dir, path, wal) = log_on_files(small());
    let kept: Vec<Lsn> = (0..500).map(|_| wal.append(&[1; 100]).unwrap().lsn()).collect();
    wal.sync().unwrap();
    let looker = Inspector::open(&path).unwrap();
    let last = || looker.segments().unwrap().pop().unwrap();
    let end = kept[499].plus(framed_bytes(100));
    // A thread of the store's own prepares it; a close would end the thread, come to it or not.
    until(|| last().number > end.as_u64() / SEGMENT_BYTES);
    wal.close().unwrap();
    let last = last();
    let (file, _) = place_of(&path, Lsn::new(last.number * SEGMENT_BYTES), SEGMENT_BYTES);
    flip(&file, 50);
    let wal = small().open(&path).unwrap();
    assert!(!wal.recovery_report().clean);
    let more: Vec<Lsn> = (0..1000).map(|_| wal.commit(&[2; 100]).unwrap()).collect();
    drop(wal);
    let wal = small().open(&path).unwrap();
    for lsn in kept.iter().chain(&more) {
        wal.get(*lsn).unwrap();
    }
}

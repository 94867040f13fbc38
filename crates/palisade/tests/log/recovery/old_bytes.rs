//! Files that hold what an earlier lap left: whole records of equal size, where new ones belong.

use crate::prelude::*;

const HEADER_BLOCK: usize = 4096;
/// 128 frames of it fill a segment: old and new records begin at the same offsets.
const RECORD_BYTES: usize = 512 - 24;
const PER_SEGMENT: u64 = SEGMENT_BYTES / 512;

/// A log that was killed in the middle of its fourth segment, and the bytes of its first, which
/// is full of valid records of the same epoch and size.
fn killed() -> (TempDir, PathBuf, Vec<u8>, u64) {
    let (_dir, path, wal) = log_on_files(heap());
    let count = 3 * PER_SEGMENT + 20;
    let places = append(&wal, 0..count, RECORD_BYTES);
    wal.sync().unwrap();
    let old = fs::read(segment(&path, 0)).unwrap();
    wal.truncate_before(places[PER_SEGMENT as usize]).unwrap();
    let (copy, killed) = copy_as_killed(&path);
    (copy, killed, old, count)
}

fn check(wal: &Wal, count: u64) {
    assert_eq!(numbers(wal), (PER_SEGMENT..count).collect::<Vec<_>>());
}

/// Protection: the checksum of a record's header covers its LSN. The header of the recycled file is
/// whole and durable, its bytes are all of the lap before.
#[test]
fn old_records_of_equal_size_under_a_new_header_stay_gone() {
    let (_dir, path, old, count) = killed();
    // The tail's own segment, as if nothing but its first records had reached the medium.
    let last = segment(&path, 3);
    let mut bytes = fs::read(&last).unwrap();
    let from = HEADER_BLOCK + 20 * 512;
    bytes.truncate(from);
    bytes.extend_from_slice(&old[from..]);
    assert_eq!(bytes.len() as u64, HEADER_BLOCK as u64 + SEGMENT_BYTES);
    fs::write(&last, bytes).unwrap();
    check(&heap().open(&path).unwrap(), count);
}

/// Protection: the same where a later segment has only its header from the new lap.
#[test]
fn a_prepared_segment_full_of_old_records_adds_none() {
    let (_dir, path, wal) = log_on_files(heap());
    append(&wal, 0..PER_SEGMENT, RECORD_BYTES);
    wal.sync().unwrap();
    let old = fs::read(segment(&path, 0)).unwrap();
    append(&wal, PER_SEGMENT..2 * PER_SEGMENT, RECORD_BYTES);
    wal.sync().unwrap();
    append(&wal, 2 * PER_SEGMENT..2 * PER_SEGMENT + 1, RECORD_BYTES);
    wal.sync().unwrap();
    let (_copy, killed) = copy_as_killed(&path);
    // All but the header of the last segment is of the first lap.
    let last = segment(&killed, 2);
    let mut bytes = fs::read(&last).unwrap();
    bytes.truncate(HEADER_BLOCK);
    bytes.extend_from_slice(&old[HEADER_BLOCK..]);
    fs::write(&last, &bytes).unwrap();
    // A copy has no log buffer, whose marks would prove that the record was there.
    let wal = heap().open(&killed).unwrap();
    assert_eq!(numbers(&wal), all(2 * PER_SEGMENT));
}

/// Protection: a spare is never read, and gets a name only when its header is durable: a crash in
/// the middle of recycling leaves half a header over old records.
#[test]
fn a_spare_with_a_torn_header_and_old_records_adds_none() {
    let (_dir, path, old, count) = killed();
    let header = fs::read(segment(&path, 3)).unwrap();
    for torn_at in [0, 1, 24, 40, 64, 100, 512, 2048, HEADER_BLOCK] {
        let mut bytes = old.clone();
        bytes[..torn_at].copy_from_slice(&header[..torn_at]);
        let (_copy, copy) = copy_as_killed(&path);
        fs::write(copy.join("spare-000000"), &bytes).unwrap();
        fs::write(copy.join("spare-000001"), &bytes).unwrap();
        let wal = heap().open(&copy).unwrap();
        check(&wal, count);
        // It is used next, as whatever segment comes.
        let next = wal.commit(&record(count, RECORD_BYTES)).unwrap();
        let (_again, copy) = copy_as_killed(&copy);
        let wal = heap().open(&copy).unwrap();
        check(&wal, count + 1);
        assert_eq!(number_of(wal.get(next).unwrap().data()), Some(count));
    }
}

/// Protection: a segment counts by its header alone: its checksum, then its number. On a medium
/// that lies, the name of a recycled file can be durable before its header is. The open cannot tell
/// this from a damaged segment with acknowledged records.
#[test]
fn a_segment_with_a_torn_header_over_old_records_is_refused() {
    let (_dir, path, old, count) = killed();
    let header = fs::read(segment(&path, 3)).unwrap();
    let ahead = (4..).find(|number| !segment(&path, *number).exists()).unwrap();
    for torn_at in [0, 24, 40, 64, 100, 512, 2048, HEADER_BLOCK] {
        let mut bytes = old.clone();
        bytes[..torn_at].copy_from_slice(&header[..torn_at]);
        let (_copy, copy) = copy_as_killed(&path);
        fs::write(segment(&copy, ahead), bytes).unwrap();
        assert_refused(&copy, ahead);
        fs::remove_file(segment(&copy, ahead)).unwrap();
        check(&heap().open(&copy).unwrap(), count);
    }
}

fn assert_refused(path: &Path, number: u64) {
    let error = refused(&heap(), path);
    assert_eq!((error.kind(), error.segment()), (ErrorKind::Corrupt, Some(number)), "{error}");
}

/// Protection: the same where half a header has the right number over the fields of an earlier run:
/// the header's checksum. Taken for one, it would say that all before it was truncated.
#[test]
fn a_segment_with_half_a_header_over_an_earlier_run_is_refused() {
    let (_dir, path) = folder();
    let wal = heap().open(&path).unwrap();
    append(&wal, 0..PER_SEGMENT, RECORD_BYTES);
    wal.sync().unwrap();
    drop(wal);
    let old = fs::read(segment(&path, 0)).unwrap();
    let wal = heap().open(&path).unwrap();
    let count = PER_SEGMENT + 20;
    append(&wal, PER_SEGMENT..count, RECORD_BYTES);
    wal.sync().unwrap();
    let (_copy, killed) = copy_as_killed(&path);
    let tail = wal.reserved_lsn().segment(SEGMENT_BYTES);
    let ahead = (tail..).find(|number| !segment(&killed, *number).exists()).unwrap();
    while !segment(&path, ahead).exists() {
        append(&wal, count..count + 1, RECORD_BYTES);
        wal.sync().unwrap();
    }
    let header = fs::read(segment(&path, ahead)).unwrap();
    // Up to: the feature bits, the log, the number, the bytes of a segment, the epoch, the salt.
    for torn_at in [24, 40, 48, 64, 72, 80] {
        let mut bytes = old.clone();
        bytes[..torn_at].copy_from_slice(&header[..torn_at]);
        let (_copy, copy) = copy_as_killed(&killed);
        fs::write(segment(&copy, ahead), bytes).unwrap();
        assert_refused(&copy, ahead);
    }
}

//! What a crash leaves of the last bytes, and of the log's state.

use crate::prelude::*;

const PAGE_BYTES: u64 = 4096;

/// Writes bytes of no meaning over `[from, to)`, one segment's.
fn garble(path: &Path, from: Lsn, to: Lsn, seed: u64) {
    let (file, at) = place_of(path, from, SEGMENT_BYTES);
    let mut bytes = fs::read(&file).unwrap();
    let end = at as usize + to.bytes_since(from) as usize;
    bytes.resize(bytes.len().max(end), 0);
    fill(seed, &mut bytes[at as usize..end]);
    fs::write(file, bytes).unwrap();
}

/// A killed log that had `committed` records when its last sync ended and more after that, and
/// the place of each record.
fn killed(committed: u64, more: u64) -> (TempDir, PathBuf, Vec<Lsn>, Lsn) {
    let (_dir, path, wal) = log_on_files(heap());
    let mut places = append(&wal, 0..committed, 90);
    wal.sync().unwrap();
    let durable = wal.durable_lsn();
    places.extend(append(&wal, committed..committed + more, 90));
    wal.flush_to_os(*places.last().unwrap()).unwrap();
    let (dir, copy) = copy_as_killed(&path);
    (dir, copy, places, durable)
}

/// Protection: a record counts only if its payload's checksum holds, and the floor is where the
/// last sync was. M1: garbage from the first unsynced byte on, at any length, to the page's end.
#[test]
fn garbage_in_the_last_page_costs_no_committed_record() {
    const COMMITTED: u64 = 40;
    let (_dir, path, places, durable) = killed(COMMITTED, 20);
    let frame = framed_bytes(90);
    let page_end = Lsn::new(durable.as_u64().next_multiple_of(PAGE_BYTES));
    for from in (durable.as_u64()..page_end.as_u64()).step_by(24).map(Lsn::new) {
        let (_copy, copy) = copy_as_killed(&path);
        garble(&copy, from, page_end, from.as_u64());
        let wal = heap().open(&copy).unwrap();
        let found = numbers(&wal);
        // The first record that the garbage touches, and all behind it, are gone.
        let whole = places.iter().filter(|place| place.plus(frame) <= from).count() as u64;
        assert!(whole >= COMMITTED);
        assert_eq!(found, all(whole), "garbage from LSN {from}");
        let more = wal.commit(&record(whole, 90)).unwrap();
        assert!(more >= page_end, "no LSN is used twice");
    }
}

/// Protection: the same where the end of a payload is garbage that begins within the record.
#[test]
fn a_record_whose_payload_is_half_garbage_is_not_there() {
    let (_dir, path, places, _) = killed(10, 1);
    let last = places[10];
    for from in 24..24 + 90 {
        let (_copy, copy) = copy_as_killed(&path);
        garble(&copy, last.plus(from), last.plus(24 + 90), from);
        let wal = heap().open(&copy).unwrap();
        assert_eq!(numbers(&wal), all(10), "byte {from}");
        assert_eq!(wal.recovery_report().end, last);
    }
}

/// Protection: every change of the state writes both copies, and clears the clean flag in both
/// before the open returns.
#[test]
fn a_bit_flip_in_one_meta_copy_after_a_clean_open_drops_nothing() {
    let (_dir, path, wal) = log_on_files(heap());
    let commit = |wal: &Wal, number| wal.commit(&record(number, 90)).map(drop).unwrap();
    (0..30).for_each(|number| commit(&wal, number));
    wal.close().unwrap();
    let wal = heap().open(&path).unwrap();
    assert!(wal.recovery_report().clean);
    (30..60).for_each(|number| commit(&wal, number));
    let (_copy, killed) = copy_as_killed(&path);
    for copy in 0..2 {
        // One bit of every byte that means something, and some of those that do not.
        for byte in (0..128).chain((128..4096).step_by(509)) {
            let (_copy, damaged) = copy_as_killed(&killed);
            let file = damaged.join("meta");
            let mut bytes = fs::read(&file).unwrap();
            bytes[copy * 16_384 + byte] ^= 1 << (byte % 8);
            fs::write(file, bytes).unwrap();
            let wal = heap().open(&damaged).unwrap();
            assert_eq!(numbers(&wal), all(60), "copy {copy}, byte {byte}");
        }
    }
}

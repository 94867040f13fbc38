//! Damage is told from a torn tail: what had been durable for certain is never cut off silently,
//! and a log that is refused is left as it is, byte for byte.

use std::fs;
use std::path::Path;

use palisade::inspect::{Inspector, Outcome};
use palisade::store::{ReadStore, State};
use palisade::{BufferKind, Error, ErrorKind, Lsn, MemStore, Options, Wal, framed_bytes};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::faulty::FaultyStore;
use crate::folder::{contents, copy_as_killed, flip, folder, place_of, small, snapshot};
use crate::watchdog::{guarded, until};

const SEGMENT_BYTES: u64 = 64 << 10;

/// A killed log of three segments, without a buffer that could mend it, and its records; the
/// one in the middle is the checkpoint.
fn killed_log() -> (TempDir, std::path::PathBuf, Vec<Lsn>) {
    let (_dir, path) = folder();
    let wal = small().buffer(BufferKind::Heap).open(&path).unwrap();
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

/// Opens the log, which has to be refused and left as it is.
fn refused(path: &Path) -> Error {
    let before = snapshot(path);
    let error = small().open(path).unwrap_err();
    assert!(snapshot(path) == before, "a refused log is left as it is, byte for byte: {error}");
    error
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
fn damage_below_the_floor_is_refused_with_its_segment_and_lsn_and_nothing_is_changed() {
    let (_dir, path, lsns) = killed_log();
    let damaged = lsns[640];
    assert_eq!(damaged.segment(SEGMENT_BYTES), lsns[650].segment(SEGMENT_BYTES));
    for offset in [0, 5, 8, 24, 100] {
        let (file, at) = place_of(&path, damaged.plus(offset), SEGMENT_BYTES);
        flip(&file, at);
        let error = refused(&path);
        assert_names(&error, &path, damaged.segment(SEGMENT_BYTES), Some(damaged));
        assert_eq!(Inspector::open(&path).unwrap().verify().unwrap().outcome, Outcome::Corrupt);
        flip(&file, at);
    }
    assert_eq!(contents(&small().open(&path).unwrap()).unwrap().len(), 705);
}

#[test]
fn a_torn_tail_above_the_floor_is_cut_off_and_reported() {
    let (_dir, path, _) = killed_log();
    let records = Inspector::open(&path).unwrap();
    let mut records = records.records(None).unwrap();
    let mut last = Lsn::ZERO;
    while let Some(record) = records.next().unwrap() {
        last = record.lsn();
    }
    let (file, at) = place_of(&path, last.plus(30), SEGMENT_BYTES);
    flip(&file, at);
    let verdict = Inspector::open(&path).unwrap().verify().unwrap();
    assert_eq!((verdict.outcome, verdict.end), (Outcome::TornTail, last));
    let wal = small().open(&path).unwrap();
    let report = wal.recovery_report();
    assert_eq!(report.end, last);
    assert_eq!(report.torn_bytes, 24 + 240);
    let reason = report.torn_reason.as_deref().unwrap_or_default();
    assert!(reason.contains(&last.to_string()), "{reason}");
    assert_eq!(contents(&wal).unwrap().len(), 704);
    assert_eq!(wal.get(last).unwrap_err().kind(), ErrorKind::Truncated);
    assert_eq!(wal.wait_durable(last).unwrap_err().kind(), ErrorKind::Truncated);
}

#[test]
fn a_missing_segment_is_refused() {
    let (_dir, path, lsns) = killed_log();
    for lsn in [lsns[0], lsns[300], lsns[640]] {
        let (file, _) = place_of(&path, lsn, SEGMENT_BYTES);
        let bytes = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let error = refused(&path);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(error.segment(), Some(lsn.segment(SEGMENT_BYTES)), "{error}");
        fs::write(&file, bytes).unwrap();
    }
    small().open(&path).unwrap();
}

#[test]
fn a_damaged_segment_header_is_refused() {
    let (_dir, path, lsns) = killed_log();
    for lsn in [lsns[0], lsns[300], lsns[640]] {
        let (file, _) = place_of(&path, lsn, SEGMENT_BYTES);
        for offset in [0, 9, 40, 4000] {
            flip(&file, offset);
            let error = refused(&path);
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert_eq!(error.segment(), Some(lsn.segment(SEGMENT_BYTES)), "{error}");
            flip(&file, offset);
        }
    }
    small().open(&path).unwrap();
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
    let error = refused(&path);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("meta"), "{error}");
}

#[test]
fn a_log_buffer_that_is_gone_counts_as_empty_and_is_reported() {
    // A copy of a folder has none.
    let (_dir, path, _) = killed_log();
    let wal = small().open(&path).unwrap();
    assert!(wal.recovery_report().buffer_note.is_some());
    assert_eq!(contents(&wal).unwrap().len(), 705);
}

#[test]
fn damage_in_a_cleanly_closed_log_shows_when_it_is_read() {
    let (_dir, path) = folder();
    let wal = small().open(&path).unwrap();
    let lsns: Vec<Lsn> = (0..300).map(|n| append(&wal, n)).collect();
    wal.close().unwrap();
    let (file, at) = place_of(&path, lsns[100].plus(24), SEGMENT_BYTES);
    flip(&file, at);
    let verdict = Inspector::open(&path).unwrap().verify().unwrap();
    assert_eq!((verdict.outcome, verdict.end), (Outcome::Corrupt, lsns[100]));
    let wal = small().open(&path).unwrap();
    let mut records = wal.records().unwrap();
    for lsn in &lsns[..100] {
        assert_eq!(records.next().unwrap().unwrap().lsn(), *lsn);
    }
    let error = records.next().unwrap_err();
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(lsns[100])));
    assert!(records.next().unwrap().is_none(), "fused after the error");
    assert_eq!(wal.get(lsns[100]).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(wal.get(lsns[101]).unwrap().lsn(), lsns[101]);
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Kill,
    Close,
    Checkpoint,
}

/// Records, the end below which nothing may be lost silently, and the store after `ending`.
fn history(lens: &[usize], ending: Ending) -> (MemStore, Vec<(Lsn, Vec<u8>)>, Lsn) {
    let store = FaultyStore::over(MemStore::new(4096).kept_buffer(false));
    let wal = Wal::with_store(store.clone(), Options::new().buffer_bytes(4096)).unwrap();
    let mut records = Vec::new();
    for (n, len) in lens.iter().enumerate() {
        let data = vec![n as u8; *len];
        let lsn = match n % 3 {
            0 => wal.commit(&data).unwrap(),
            1 => wal.append(&data).unwrap().lsn(),
            _ => wal.append_batch(&[&data]).unwrap().lsn(),
        };
        records.push((lsn, data));
    }
    let promised = match ending {
        Ending::Kill => wal.durable_lsn(),
        Ending::Close => {
            let end = wal.reserved_lsn();
            wal.close().unwrap();
            return (store.inner, records, end);
        }
        Ending::Checkpoint => {
            let lsn = records[records.len() / 2].0;
            wal.checkpoint(lsn).unwrap();
            lsn
        }
    };
    store.kill();
    drop(wal);
    if matches!(ending, Ending::Checkpoint) {
        store.inner.lose_power();
    }
    (store.inner, records, promised)
}

type Image = (State, Vec<Vec<u8>>);

fn image(store: &MemStore) -> Image {
    let segments = store.segments().unwrap();
    let bytes = segments.iter().map(|segment| {
        let mut bytes = vec![0; 4096];
        let len = store.read(Lsn::new(segment.number * 4096), &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    });
    (store.state().unwrap(), bytes.collect())
}

/// Reads until the end or an error.
fn read_all(wal: &Wal) -> (Vec<(Lsn, Vec<u8>)>, Option<Error>) {
    let mut records = wal.records().unwrap();
    let mut found = Vec::new();
    loop {
        match records.next() {
            Ok(Some(record)) => found.push((record.lsn(), record.data().to_vec())),
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

fn flip_and_open(lens: &[usize], ending: Ending, share: u16, bit: u8) {
    let (store, records, promised) = history(lens, ending);
    let end = promised.as_u64().max(1);
    let at = Lsn::new(end * u64::from(share) / (1 << 16));
    let mut byte = [0];
    store.read(at, &mut byte).unwrap();
    store.damage(at, &[byte[0] ^ 1 << (bit % 8)]).unwrap();
    let before = image(&store);
    let wal = match Wal::with_store(store.clone(), Options::new().buffer_bytes(4096)) {
        Ok(wal) => wal,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let lsn = error.lsn().expect("the place is named");
            assert!(lsn <= at, "{error}, flipped at {at}");
            assert_eq!(error.segment(), Some(lsn.as_u64() / 4096));
            assert!(image(&store) == before, "a refused log is left as it is");
            return;
        }
    };
    let (found, error) = read_all(&wal);
    assert_eq!(found, records[..found.len()], "nothing that was not appended");
    match error {
        Some(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let before_the_place = records
                .iter()
                .filter(|(lsn, data)| lsn.plus(palisade::framed_bytes(data.len())) <= at);
            assert_eq!(found.len(), before_the_place.count(), "{error}, flipped at {at}");
        }
        None => {
            let is_promised = |(lsn, _): &&(Lsn, Vec<u8>)| *lsn < promised;
            let promised = records.iter().take_while(is_promised).count();
            assert!(found.len() >= promised, "flipped at {at}: cut off without a word");
        }
    }
}

proptest! {
    #[test]
    fn one_flipped_bit_never_cuts_off_silently_what_was_durable(
        lens in prop::collection::vec(0..1500_usize, 1..40),
        ending in prop::sample::select(vec![Ending::Kill, Ending::Close, Ending::Checkpoint]),
        share in any::<u16>(),
        bit in any::<u8>(),
    ) {
        flip_and_open(&lens, ending, share, bit);
    }
}

/// Ten commits with the mapped buffer, and a copy of the folder as a kill leaves it.
fn killed_with_mapped_buffer() -> (tempfile::TempDir, std::path::PathBuf, Vec<Lsn>) {
    let (_dir, path) = folder();
    let wal = small().buffer(BufferKind::Mapped).open(&path).unwrap();
    let lsns = (0..10_u8).map(|n| wal.commit(&[n; 100]).unwrap()).collect();
    let (dir, copy) = copy_as_killed(&path);
    (dir, copy, lsns)
}

#[test]
fn damage_below_the_floor_is_refused_though_the_ring_still_has_the_record() {
    let (_dir, path, lsns) = killed_with_mapped_buffer();
    let (file, offset) = place_of(&path, lsns[5], SEGMENT_BYTES);
    flip(&file, offset + 30);
    let before = snapshot(&path);
    let error = small().open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(error.lsn(), Some(lsns[5]));
    assert_eq!(snapshot(&path), before);
}

#[test]
fn a_damaged_header_under_recovered_bytes_is_refused_though_the_ring_has_them() {
    let (_dir, path, lsns) = killed_with_mapped_buffer();
    let (file, _) = place_of(&path, lsns[0], SEGMENT_BYTES);
    flip(&file, 50);
    let before = snapshot(&path);
    assert_eq!(small().open(&path).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(snapshot(&path), before);
}

#[test]
fn a_log_whose_segments_are_all_gone_is_refused_where_the_head_proves_one() {
    let (_dir, path) = folder();
    let wal = small().open(&path).unwrap();
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
fn a_damaged_segment_prepared_behind_a_clean_end_is_not_written_into() {
    guarded(|| {
        let (_dir, path) = folder();
        let wal = small().open(&path).unwrap();
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
    });
}

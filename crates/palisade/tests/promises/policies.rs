//! What an open does about damage, as the caller chose: nothing is lost that was not named, and
//! what was given up never comes back.

use std::fs;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use palisade::inspect::{Inspector, Outcome};
use palisade::store::Store;
use palisade::{
    BufferKind, EndCause, Error, ErrorKind, LostRange, Lsn, MemStore, Options, RecoveryPolicy,
    Verify, Wal,
};
use tempfile::TempDir;

use crate::faulty::FaultyStore;
use crate::folder::{Snapshot, contents, copy_as_killed, flip, folder, place_of, small, snapshot};
use crate::salvage::salvage;

pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;

fn data(n: u32) -> Vec<u8> {
    n.to_le_bytes().repeat(60)
}

pub(crate) fn named(lsn: Lsn) -> RecoveryPolicy {
    RecoveryPolicy::PointInTime { lose_from: Some(lsn) }
}

const UNNAMED: RecoveryPolicy = RecoveryPolicy::PointInTime { lose_from: None };

pub(crate) fn full() -> Options {
    small().verify(Verify::Full)
}

/// A log of two epochs, the second beginning at record 700, closed cleanly or killed after all
/// was synced; and its records.
pub(crate) fn log(closed: bool) -> (TempDir, PathBuf, Vec<(Lsn, Vec<u8>)>) {
    let (dir, path) = folder();
    let options = small().buffer(BufferKind::Heap);
    let mut records = Vec::new();
    for life in 0..2 {
        let wal = options.open(&path).unwrap();
        for n in 700 * life..700 * (life + 1) {
            records.push((wal.append(&data(n)).unwrap().lsn(), data(n)));
        }
        wal.checkpoint(records[records.len() - 1].0).unwrap();
        if closed && life == 1 {
            wal.close().unwrap();
        }
    }
    (dir, path, records)
}

/// Damages the payload of the record at `lsn`.
pub(crate) fn damage(path: &Path, lsn: Lsn) {
    let (file, at) = place_of(path, lsn, SEGMENT_BYTES);
    flip(&file, at + 40);
}

pub(crate) fn damage_header(path: &Path, lsn: Lsn) {
    let (file, _) = place_of(path, lsn, SEGMENT_BYTES);
    flip(&file, 50);
}

/// Opens a log that has to be refused and left as it is.
pub(crate) fn refused(options: &Options, path: &Path, kind: ErrorKind) -> Error {
    let before = snapshot(path);
    let error = options.open(path).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(snapshot(path) == before, "what is refused is left as it is: {error}");
    error
}

fn copy(from: &Path) -> (TempDir, PathBuf) {
    copy_as_killed(from)
}

fn restore(path: &Path, files: &Snapshot) {
    for entry in fs::read_dir(path).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (name, bytes) in files {
        fs::write(path.join(name), bytes).unwrap();
    }
}

#[test]
fn absolute_refuses_every_end_but_a_clean_one_and_changes_nothing() {
    let absolute = small().recovery(RecoveryPolicy::Absolute);
    let (_dir, path, _) = log(false);
    let error = refused(&absolute, &path, ErrorKind::Unclean);
    assert!(error.to_string().contains("RecoveryPolicy::Strict"), "{error}");
    let wal = small().open(&path).unwrap();
    wal.close().unwrap();
    let wal = absolute.open(&path).unwrap();
    assert_eq!(wal.recovery_report().end_cause, EndCause::CleanClose);
    drop(wal);
    refused(&absolute, &path, ErrorKind::Unclean);
    let (_dir, fresh) = folder();
    absolute.open(&fresh).unwrap().close().unwrap();
    absolute.open(&fresh).unwrap();
}

#[test]
fn full_verification_refuses_damage_anywhere_and_the_tail_alone_does_not_see_it() {
    for closed in [false, true] {
        let (_dir, path, records) = log(closed);
        for index in [0, 1, 300, 699, 700, 900] {
            let (_copy, path) = copy(&path);
            damage(&path, records[index].0);
            for threads in [0, 1, 3] {
                let options = full().verify_threads(threads);
                let error = refused(&options, &path, ErrorKind::Corrupt);
                assert_eq!(error.lsn(), Some(records[index].0), "record {index}");
                let segment = records[index].0.as_u64() / SEGMENT_BYTES;
                assert_eq!(error.segment(), Some(segment));
            }
            small().open(&path).unwrap();
        }
    }
}

#[test]
fn full_verification_of_a_whole_log_counts_all_of_it() {
    for closed in [false, true] {
        let (_dir, path, records) = log(closed);
        let foreseen = full().foresee(&path).unwrap();
        let wal = full().open(&path).unwrap();
        let report = wal.recovery_report();
        assert!(report.verified && report.clean == closed);
        assert_eq!((report.records, report.lost), (1400, None));
        assert!(report.bytes >= 1400 * 264, "{report:?}");
        assert_eq!((foreseen.records, foreseen.end), (1400, report.end));
        assert_eq!(contents(&wal).unwrap(), records);
    }
}

#[test]
fn damage_below_the_head_is_nobodys_business() {
    let (_dir, path, records) = log(false);
    let wal = small().open(&path).unwrap();
    wal.truncate_before(records[650].0).unwrap();
    wal.close().unwrap();
    damage(&path, records[649].0);
    let wal = full().open(&path).unwrap();
    assert_eq!(wal.recovery_report().records, 750);
}

/// Damages the record at `index`, opens with the loss named, and checks what comes of it, in this
/// life and the later ones.
fn lose(path: &Path, records: &[(Lsn, Vec<u8>)], index: usize, options: &Options) {
    let from = records[index].0;
    let error = refused(&options.clone().recovery(UNNAMED), path, ErrorKind::WouldLose);
    let lost = error.lost_range().expect("the range is named");
    assert_eq!((lost.from, error.lsn()), (from, Some(from)));
    assert!(lost.to > records[records.len() - 1].0, "{lost}");
    assert_eq!(lost.readable_records, (records.len() - index - 1) as u64);
    assert!(error.to_string().contains(&lost.to_string()), "{error}");

    let wal = options.clone().recovery(named(from)).open(path).unwrap();
    let report = wal.recovery_report().clone();
    assert_eq!((report.lost, report.end_cause), (Some(lost), EndCause::Damage));
    assert!(report.end <= from, "{report:?}");
    assert!(wal.checkpoint_lsn() <= report.end, "what was given up was never applied");
    assert!(wal.reserved_lsn() >= lost.to, "no LSN is used twice");
    let kept = &records[..index];
    assert_eq!(contents(&wal).unwrap(), kept);
    let later = wal.commit(b"later").unwrap();
    let gone = wal.get(records[index].0).unwrap_err().kind();
    assert_eq!(gone, ErrorKind::Truncated);
    drop(wal);

    let expected: Vec<_> = kept.iter().cloned().chain([(later, b"later".to_vec())]).collect();
    for policy in [RecoveryPolicy::Strict, UNNAMED, named(from)] {
        let wal = full().recovery(policy).open(path).unwrap();
        assert_eq!(wal.recovery_report().lost, None);
        assert!(wal.checkpoint_lsn() <= report.end, "{policy:?}");
        assert_eq!(contents(&wal).unwrap(), expected, "what was given up stays gone");
    }
    let verdict = Inspector::open(path).unwrap().verify_deep(0).unwrap();
    assert_ne!(verdict.outcome, Outcome::Corrupt, "{verdict:?}");
}

#[test]
fn a_named_loss_ends_the_log_at_the_first_bad_place_and_never_comes_back() {
    for closed in [false, true] {
        let (_dir, path, records) = log(closed);
        for index in [0, 1, 300, 699, 700, 701, 1398] {
            let (_copy, path) = copy(&path);
            damage(&path, records[index].0);
            lose(&path, &records, index, &full());
        }
    }
}

#[test]
fn damage_in_the_tail_needs_no_full_verification() {
    let (_dir, path, records) = log(false);
    damage(&path, records[1390].0);
    lose(&path, &records, 1390, &small());
}

#[test]
fn the_lowest_of_several_bad_places_counts() {
    let (_dir, path, records) = log(false);
    for index in [1395, 1200, 400, 60] {
        damage(&path, records[index].0);
    }
    damage_header(&path, records[1000].0);
    let error = refused(&full().recovery(UNNAMED), &path, ErrorKind::WouldLose);
    assert_eq!(error.lsn(), Some(records[60].0));
    let wal = full().recovery(named(records[60].0)).open(&path).unwrap();
    assert_eq!(contents(&wal).unwrap(), records[..60]);
}

#[test]
fn a_missing_segment_and_a_damaged_header_are_bad_places_too() {
    let (_dir, path, records) = log(false);
    let first_of = |lsn: Lsn| {
        let base = Lsn::new(lsn.as_u64() - lsn.as_u64() % SEGMENT_BYTES);
        (base, records.iter().filter(|(lsn, _)| *lsn < base).count())
    };
    for is_missing in [true, false] {
        for lsn in [records[400].0, records[1100].0, records[1399].0] {
            let (_copy, path) = copy(&path);
            let (file, _) = place_of(&path, lsn, SEGMENT_BYTES);
            match is_missing {
                true => fs::remove_file(file).unwrap(),
                false => damage_header(&path, lsn),
            }
            let (base, kept) = first_of(lsn);
            let error = refused(&small().recovery(UNNAMED), &path, ErrorKind::WouldLose);
            assert_eq!(error.lost_range().unwrap().from, base, "{error}");
            let wal = small().recovery(named(base)).open(&path).unwrap();
            assert_eq!(contents(&wal).unwrap(), records[..kept]);
            assert!(wal.reserved_lsn() > records[1399].0);
            drop(wal);
            assert_eq!(contents(&full().open(&path).unwrap()).unwrap(), records[..kept]);
        }
    }
}

/// Nothing in the folder shows how far the log once went, but the checkpoint does.
#[test]
fn no_lsn_is_used_twice_though_the_last_segments_are_gone() {
    let (_dir, path, records) = log(false);
    let first = records[1100].0.as_u64() / SEGMENT_BYTES;
    let gone = |name: &str| {
        let number = name.strip_prefix("segment-").and_then(|number| number.parse::<u64>().ok());
        number.is_some_and(|number| number >= first)
    };
    for name in snapshot(&path).keys().filter(|name| gone(name)) {
        fs::remove_file(path.join(name)).unwrap();
    }
    let base = Lsn::new(first * SEGMENT_BYTES);
    let error = refused(&small().recovery(UNNAMED), &path, ErrorKind::WouldLose);
    let lost = error.lost_range().unwrap();
    assert_eq!((lost.from, lost.readable_records), (base, 0));
    assert!(lost.to >= records[1399].0, "{lost}");
    let wal = small().recovery(named(base)).open(&path).unwrap();
    assert!(wal.reserved_lsn() > records[1399].0);
    let kept = records.iter().filter(|(lsn, _)| *lsn < base).count();
    assert_eq!(contents(&wal).unwrap(), records[..kept]);
}

#[test]
fn a_log_without_its_first_segment_begins_anew() {
    let (_dir, path, records) = log(false);
    let (file, _) = place_of(&path, records[0].0, SEGMENT_BYTES);
    fs::remove_file(file).unwrap();
    let error = refused(&small().recovery(UNNAMED), &path, ErrorKind::WouldLose);
    let lost = error.lost_range().unwrap();
    assert_eq!((lost.from, lost.readable_records > 1000), (Lsn::ZERO, true), "{error}");
    let wal = small().recovery(named(Lsn::ZERO)).open(&path).unwrap();
    assert_eq!(contents(&wal).unwrap(), []);
    let lsn = wal.commit(b"anew").unwrap();
    assert!(lsn > records[1399].0);
    drop(wal);
    assert_eq!(contents(&full().open(&path).unwrap()).unwrap(), [(lsn, b"anew".to_vec())]);
}

#[test]
fn a_log_whose_heads_segment_is_damaged_begins_anew() {
    for what in ["header", "record", "gone"] {
        let (_dir, path, records) = log(false);
        let wal = small().open(&path).unwrap();
        let head = records[300].0;
        wal.truncate_before(head).unwrap();
        wal.close().unwrap();
        let (file, _) = place_of(&path, head, SEGMENT_BYTES);
        match what {
            "header" => damage_header(&path, head),
            "record" => damage(&path, head),
            _ => fs::remove_file(file).unwrap(),
        }
        let error = refused(&full().recovery(UNNAMED), &path, ErrorKind::WouldLose);
        assert_eq!(error.lost_range().unwrap().from, head, "{what}: {error}");
        let wal = full().recovery(named(head)).open(&path).unwrap();
        assert_eq!(contents(&wal).unwrap(), []);
        let lsn = wal.commit(b"anew").unwrap();
        assert!(lsn > records[1399].0 && wal.head_lsn() <= lsn);
        drop(wal);
        assert_eq!(lsns_of(&full().open(&path).unwrap()), [lsn], "{what}");
    }
}

/// The header of the epoch that a loss began says where the log was cut: without it the log is
/// refused, and what was given up stays gone.
#[test]
fn a_loss_whose_header_rots_is_refused_and_nothing_comes_back() {
    let (_dir, path, records) = log(false);
    damage(&path, records[1000].0);
    let wal = full().recovery(named(records[900].0)).open(&path).unwrap();
    let base = wal.recovery_report().base;
    wal.commit(b"later").unwrap();
    wal.close().unwrap();
    damage_header(&path, base);
    for policy in [RecoveryPolicy::Strict, UNNAMED, named(base), named(records[10].0)] {
        refused(&small().recovery(policy), &path, ErrorKind::Corrupt);
    }
}

/// Where an epoch ended is known from the header of the next one alone: without it, records that
/// a truncation cut off could not be told from the log's own.
#[test]
fn without_the_header_that_says_where_an_epoch_ended_no_place_to_cut_is_offered() {
    let (_dir, path, records) = log(false);
    damage_header(&path, records[700].0);
    for policy in [RecoveryPolicy::Strict, UNNAMED, named(records[700].0), named(records[10].0)] {
        let error = refused(&full().recovery(policy), &path, ErrorKind::Corrupt);
        assert_eq!(error.lost_range(), None, "{error}");
    }
    let (found, gaps) = salvage(&path, None);
    assert_eq!(found, records, "salvage reads all of it: {gaps:?}");
}

#[test]
fn a_place_below_the_first_bad_one_must_be_a_records_own() {
    let (_dir, path, records) = log(false);
    damage(&path, records[1000].0);
    let before = snapshot(&path);
    for below in [999, 701, 700, 400, 1, 0] {
        let lsn = records[below].0;
        refused(&full().recovery(named(lsn.plus(8))), &path, ErrorKind::NotARecord);
        let wal = full().recovery(named(lsn)).open(&path).unwrap();
        let lost = wal.recovery_report().lost.unwrap();
        assert_eq!((lost.from, lost.readable_records), (lsn, (1400 - below - 1) as u64));
        assert_eq!(contents(&wal).unwrap(), records[..below], "record {below}");
        drop(wal);
        assert_eq!(contents(&full().open(&path).unwrap()).unwrap(), records[..below]);
        restore(&path, &before);
    }
    // Between the epochs lies nothing, so nothing can begin there.
    let dead = records[699].0.plus(8 * 1024);
    refused(&full().recovery(named(dead)), &path, ErrorKind::NotARecord);
}

#[test]
fn a_name_left_in_the_settings_gives_up_nothing_else() {
    let (_dir, path, records) = log(false);
    damage(&path, records[1000].0);
    let options = full().recovery(named(records[1000].0));
    let wal = options.open(&path).unwrap();
    let more: Vec<Lsn> = (0..10).map(|n| wal.commit(&[n; 100]).unwrap()).collect();
    wal.close().unwrap();
    damage(&path, more[5]);
    let error = refused(&options, &path, ErrorKind::NotARecord);
    assert_eq!(error.lsn(), Some(records[1000].0), "{error}");
    let above = full().recovery(named(more[6]));
    let error = refused(&above, &path, ErrorKind::WouldLose);
    assert_eq!(error.lost_range().unwrap().from, more[5]);
}

/// A log in memory that is damaged at a record, and the LSNs of all of its records.
pub(crate) type Damaged = (MemStore, Vec<Lsn>);

/// A log in memory of two epochs with 20 records each, of which `bad` is damaged.
fn damaged_in_memory(options: &Options, bad: usize, closed: bool) -> Damaged {
    let store = MemStore::new(4096);
    let mut lsns: Vec<Lsn> = Vec::new();
    for life in 0..2 {
        let wal = Wal::with_store(store.clone(), options.clone()).unwrap();
        lsns.extend((0..20_u8).map(|n| wal.commit(&[n; 300]).unwrap()));
        wal.checkpoint(lsns[lsns.len() - 1]).unwrap();
        if closed && life == 1 {
            wal.close().unwrap();
        }
    }
    store.write(lsns[bad].plus(30), &[IoSlice::new(b"rot")]).unwrap();
    (store, lsns)
}

fn lsns_of(wal: &Wal) -> Vec<Lsn> {
    contents(wal).unwrap().iter().map(|(lsn, _)| *lsn).collect()
}

/// The open that gives up what lies from the record `bad` on dies at each of its steps, by a kill
/// and with the power: the log is as it was before, or holds `kept`, and no LSN is used twice.
pub(crate) fn die_at_each_step_of_a_loss(
    strict: &Options,
    make: impl Fn() -> Damaged,
    bad: usize,
    kept: std::ops::Range<usize>,
) {
    for loses_power in [false, true] {
        let (mut as_before, mut ended) = (0, 0);
        for steps in 0.. {
            let (inner, lsns) = make();
            let (bad, kept) = (lsns[bad], &lsns[kept.clone()]);
            let lossy = strict.clone().recovery(named(bad));
            let store = FaultyStore::over(inner);
            store.die_after(steps);
            let is_done = Wal::with_store(store.clone(), lossy.clone()).is_ok();
            if loses_power {
                store.inner.lose_power();
            }
            let next = store.next_life();
            match Wal::with_store(next.clone(), strict.clone()) {
                Ok(wal) => {
                    assert_eq!(lsns_of(&wal), kept, "{bad}: after {steps} steps");
                    assert!(wal.checkpoint_lsn() <= bad, "{bad}: after {steps} steps");
                    ended += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "after {steps} steps: {error}");
                    assert_eq!(error.lsn(), Some(bad));
                    as_before += 1;
                }
            }
            let wal = Wal::with_store(next.next_life(), lossy).unwrap();
            assert_eq!(lsns_of(&wal), kept, "{bad}: after {steps} steps");
            assert!(wal.commit(b"later").unwrap() > lsns[lsns.len() - 1], "no LSN is used twice");
            if is_done {
                break;
            }
        }
        assert!(as_before > 0 && ended > 2, "{bad}: {as_before} and {ended}");
    }
}

#[test]
fn a_log_killed_at_any_step_of_a_loss_is_as_before_or_ends_where_it_was_said() {
    let strict = Options::new().buffer_bytes(4096).verify(Verify::Full);
    for (bad, closed) in [(0, true), (10, false), (10, true), (20, true), (30, false), (30, true)] {
        let make = || damaged_in_memory(&strict, bad, closed);
        die_at_each_step_of_a_loss(&strict, make, bad, 0..bad);
    }
}

#[test]
fn what_would_be_lost_is_known_without_losing_it() {
    let (_dir, path, records) = log(false);
    damage(&path, records[1000].0);
    let before = snapshot(&path);
    let foreseen = full().recovery(named(records[1000].0)).foresee(&path).unwrap();
    assert!(snapshot(&path) == before);
    let lost: LostRange = foreseen.lost.unwrap();
    assert_eq!((lost.from, lost.readable_records), (records[1000].0, 399));
    let wal = full().recovery(named(lost.from)).open(&path).unwrap();
    assert_eq!(wal.recovery_report().lost, Some(lost));
}

//! Truncations of both ends, and LSNs of records that a truncation has removed.

mod common;

use std::io::ErrorKind;

use wal_db::{Lsn, MemStore, SegmentedStore, Wal, WalStore};

use common::{Place, contents, corrupt_at, kind_of};

/// Truncates two of three records, appends two others, and returns all five LSNs.
fn replace_two<S: WalStore>(wal: &Wal<S>) -> Vec<Lsn> {
    let mut lsns: Vec<_> = [b"a", b"b", b"c"].map(|data| wal.append(data).unwrap()).to_vec();
    wal.truncate_after(lsns[0]).unwrap();
    lsns.extend([b"d", b"e"].map(|data| wal.append_and_sync(data).unwrap()));
    lsns
}

#[test]
fn a_truncated_suffix_is_gone_after_a_crash() {
    let place = Place::new();
    let wal = Wal::open(place.log()).unwrap();
    let lsns: Vec<_> = [b"a", b"b", b"c"].map(|data| wal.append(data).unwrap()).to_vec();
    assert_eq!(corrupt_at(wal.truncate_after(Lsn::new(lsns[1].get() + 1))), lsns[1].get() + 1);
    assert_eq!(corrupt_at(wal.truncate_after(Lsn::new(u64::MAX))), u64::MAX);
    wal.truncate_after(lsns[0]).unwrap();
    assert!(wal.append(b"d").unwrap() > lsns[2]);
    wal.sync().unwrap();
    wal.log().clone().abandon();
    drop(wal);
    assert_eq!(contents(&Wal::open(place.log()).unwrap()), [b"a", b"d"]);
}

#[test]
fn only_a_segmented_log_truncates_its_prefix() {
    let place = Place::new();
    let wal = Wal::open(place.log()).unwrap();
    wal.append(b"a").unwrap();
    let second = wal.append(b"b").unwrap();
    assert_eq!(wal.truncate_before(second).unwrap(), Lsn::new(0));
    assert_eq!(contents(&wal), [b"a", b"b"]);

    let wal = Wal::open_segmented(place.path("a/new/folder"), 100).unwrap();
    let record = [7; 10_000];
    let lsns: Vec<_> = (0..60).map(|_| wal.append(&record).unwrap()).collect();
    wal.sync().unwrap();
    let space = wal.log().space().unwrap().segments;
    assert_eq!(wal.truncate_before(lsns[50]).unwrap(), lsns[50]);
    assert!(wal.log().space().unwrap().segments < space);
    // The head never moves down, and never above the end.
    assert_eq!(wal.truncate_before(lsns[3]).unwrap(), lsns[50]);
    assert_eq!(corrupt_at(wal.truncate_before(Lsn::new(lsns[55].get() + 8))), lsns[55].get() + 8);
    wal.log().clone().abandon();
    drop(wal);
    let wal = Wal::open_segmented(place.path("a/new/folder"), 100).unwrap();
    assert_eq!(wal.iter().unwrap().next().unwrap().unwrap().lsn(), lsns[50]);
    assert_eq!(wal.iter_from(lsns[0]).unwrap().count(), 10);
    assert_eq!(wal.truncate_before(Lsn::new(u64::MAX)).unwrap().get(), wal.len());
    assert!(wal.is_empty());
    drop(wal);
    // The size of segments is fixed.
    assert!(Wal::open_segmented(place.path("a/new/folder"), 1 << 20).is_err());
    assert_eq!(kind_of(SegmentedStore::open(place.path("b"), 0)), ErrorKind::InvalidInput);
}

#[test]
fn truncate_after_refuses_the_lsn_of_a_truncated_record() {
    let wal = Wal::with_store(MemStore::new()).unwrap();
    for gone in &replace_two(&wal)[1..3] {
        assert_eq!(corrupt_at(wal.truncate_after(*gone)), gone.get());
    }
    assert_eq!(contents(&wal), [b"a", b"d", b"e"]);
}

#[test]
fn truncate_before_refuses_the_lsn_of_a_truncated_record() {
    let place = Place::new();
    let wal = Wal::open_segmented(place.path("folder"), 1 << 20).unwrap();
    for gone in &replace_two(&wal)[1..3] {
        assert_eq!(corrupt_at(wal.truncate_before(*gone)), gone.get());
    }
    assert_eq!(contents(&wal), [b"a", b"d", b"e"]);
}

#[test]
fn iter_from_refuses_a_truncated_lsn_that_is_no_end() {
    let wal = Wal::with_store(MemStore::new()).unwrap();
    let lsns = replace_two(&wal);
    let mut records = wal.iter_from(lsns[2]).unwrap();
    assert_eq!(corrupt_at(records.next().unwrap()), lsns[2].get());
    assert!(records.next().is_none());
    // An engine may have saved it as the end of the log.
    assert_eq!(wal.iter_from(lsns[1]).unwrap().count(), 2);
    assert_eq!(wal.iter_from(lsns[3]).unwrap().count(), 2);
    // Nothing is above a record that is gone.
    wal.truncate_after(lsns[0]).unwrap();
    assert_eq!(wal.iter_from(lsns[3]).unwrap().count(), 0);
}

#[test]
fn iter_from_accepts_an_earlier_end_of_the_log() {
    let place = Place::new();
    let wal = Wal::open_segmented(place.path("folder"), 64 << 10).unwrap();
    let mut segments = 0;
    for number in 0..200 {
        let end = wal.len();
        let lsn = wal.append(&[number; 1008]).unwrap();
        segments += u64::from(lsn.get() > end);
        let first = wal.iter_from(Lsn::new(end)).unwrap().next().unwrap().unwrap();
        assert_eq!(first.lsn(), lsn);
    }
    assert!(segments > 0, "no record began a segment");
}

//! A thread that died between reserving and publishing leaves a hole below appends that have
//! returned. In the same boot recovery pads it; after loss of power the log ends there.

use std::sync::mpsc::channel;
use std::thread;

use palisade::{Lsn, Options, Wal};

use crate::faulty::FaultyStore;
use crate::folder::contents;
use crate::watchdog::guarded;

/// Calls `beyond` while a reservation of `len` bytes is held open. It is filled when `beyond`
/// calls what it is given; its owner calls the log never again.
pub(crate) fn with_a_hole<R>(wal: &Wal, len: usize, beyond: impl FnOnce(&dyn Fn()) -> R) -> R {
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let filled = wal.append_with(len, |_, bytes| {
                bytes.fill(0xee);
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
            });
            drop(filled.unwrap());
        });
        has_begun.recv().unwrap();
        beyond(&|| go_on.send(()).unwrap())
    })
}

const SEGMENT_BYTES: u64 = 1 << 16;

fn open(store: &FaultyStore) -> Wal {
    Wal::with_store(store.clone(), Options::new().buffer_bytes(1 << 14)).unwrap()
}

fn append(wal: &Wal, from: u8, to: u8) -> Vec<(Lsn, Vec<u8>)> {
    let datas = (from..to).map(|n| vec![n; usize::from(n)]);
    datas.map(|data| (wal.append(&data).unwrap().lsn(), data)).collect()
}

#[test]
fn a_hole_is_padded_in_the_same_boot_and_what_lies_behind_is_kept() {
    guarded(|| {
        for len in [0, 1, 8, 100, 2000] {
            let store = FaultyStore::new(SEGMENT_BYTES);
            let wal = open(&store);
            let mut expected = append(&wal, 0, 10);
            wal.sync().unwrap();
            with_a_hole(&wal, len, |fill_it| {
                expected.extend(append(&wal, 10, 20));
                store.kill();
                for round in 0..2 {
                    let store = store.next_life();
                    let reopened = open(&store);
                    let report = reopened.recovery_report();
                    // The second time the padding is a frame like any other.
                    assert_eq!(report.holes_padded, 1 - round, "{len} bytes: {report:?}");
                    assert_eq!(contents(&reopened).unwrap(), expected);
                    store.kill();
                    drop(reopened);
                }
                fill_it();
            });
        }
    });
}

#[test]
fn what_recovery_kept_behind_a_hole_survives_loss_of_power_afterwards() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        with_a_hole(&wal, 100, |fill_it| {
            let expected = append(&wal, 0, 10);
            store.kill();
            let next = store.next_life();
            drop(open(&next));
            next.inner.lose_power();
            let reopened = open(&next.next_life());
            assert_eq!(contents(&reopened).unwrap(), expected);
            fill_it();
        });
    });
}

#[test]
fn two_holes_are_two_paddings() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let mut expected = append(&wal, 0, 5);
        with_a_hole(&wal, 300, |fill_first| {
            expected.extend(append(&wal, 5, 10));
            with_a_hole(&wal, 24, |fill_second| {
                expected.extend(append(&wal, 10, 15));
                let batch = wal.append_batch(&[b"whole", b"or not at all"]).unwrap().lsn();
                expected.push((batch, b"whole".to_vec()));
                expected.push((batch.plus(32), b"or not at all".to_vec()));
                store.kill();
                let reopened = open(&store.next_life());
                assert_eq!(reopened.recovery_report().holes_padded, 2);
                assert_eq!(contents(&reopened).unwrap(), expected);
                fill_second();
            });
            fill_first();
        });
    });
}

#[test]
fn after_loss_of_power_the_log_ends_at_the_first_hole() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let expected = append(&wal, 0, 10);
        wal.sync().unwrap();
        with_a_hole(&wal, 100, |fill_it| {
            append(&wal, 10, 20);
            store.kill();
            store.inner.lose_power();
            let reopened = open(&store.next_life());
            assert_eq!(reopened.recovery_report().holes_padded, 0);
            assert_eq!(contents(&reopened).unwrap(), expected);
            assert!(reopened.reserved_lsn() > wal.reserved_lsn(), "no LSN is used twice");
            fill_it();
        });
    });
}

#[test]
fn a_hole_with_nothing_behind_is_the_end() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let expected = append(&wal, 0, 10);
        with_a_hole(&wal, 100, |fill_it| {
            store.kill();
            let reopened = open(&store.next_life());
            assert_eq!(reopened.recovery_report().holes_padded, 0);
            assert_eq!(contents(&reopened).unwrap(), expected);
            fill_it();
        });
    });
}

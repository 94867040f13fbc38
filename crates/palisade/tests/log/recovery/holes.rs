//! A thread that died between reserving and publishing leaves a hole below appends that have
//! returned. In the same boot recovery pads it; after loss of power the log ends there.

use crate::prelude::*;

fn open(store: &FaultyLog) -> Wal {
    store.open(Options::new().buffer_bytes(1 << 14))
}

/// Records of different lengths.
fn append(wal: &Wal, from: u8, to: u8) -> Entries {
    (from..to).flat_map(|n| append_bytes(wal, n..n + 1, usize::from(n))).collect()
}

#[test]
fn a_hole_is_padded_in_the_same_boot_and_what_follows_is_kept() {
    for len in [0, 1, 8, 100, 2000] {
        let (wal, store) = log_and_store();
        let mut expected = append(&wal, 0, 10);
        wal.sync().unwrap();
        with_a_hole(&wal, len, |fill_it| {
            expected.extend(append(&wal, 10, 20));
            store.kill();
            for round in 0..2 {
                let store = store.next_run();
                let reopened = open(&store);
                let report = reopened.recovery_report();
                // The second time the padding is a frame like any other.
                assert_eq!(report.holes_padded, 1 - round, "{len} bytes: {report:?}");
                assert_eq!(contents(&reopened), expected);
                store.kill();
                drop(reopened);
            }
            fill_it();
        });
    }
}

#[test]
fn records_recovered_behind_a_hole_survive_a_later_power_loss() {
    let (wal, store) = log_and_store();
    with_a_hole(&wal, 100, |fill_it| {
        let expected = append(&wal, 0, 10);
        store.kill();
        let next = store.next_run();
        drop(open(&next));
        next.inner.lose_power();
        let reopened = open(&next.next_run());
        assert_eq!(contents(&reopened), expected);
        fill_it();
    });
}

#[test]
fn two_holes_are_two_paddings() {
    let (wal, store) = log_and_store();
    let mut expected = append(&wal, 0, 5);
    with_a_hole(&wal, 300, |fill_first| {
        expected.extend(append(&wal, 5, 10));
        with_a_hole(&wal, 24, |fill_second| {
            expected.extend(append(&wal, 10, 15));
            let batch = wal.append_batch(["whole", "or not at all"]).unwrap().lsn();
            expected.push((batch, b"whole".to_vec()));
            expected.push((batch.plus(32), b"or not at all".to_vec()));
            store.kill();
            let reopened = open(&store.next_run());
            assert_eq!(reopened.recovery_report().holes_padded, 2);
            assert_eq!(contents(&reopened), expected);
            fill_second();
        });
        fill_first();
    });
}

#[test]
fn a_hole_with_nothing_behind_or_after_power_loss_ends_the_log() {
    for power_is_lost in [false, true] {
        let (wal, store) = log_and_store();
        let expected = append(&wal, 0, 10);
        if power_is_lost {
            wal.sync().unwrap();
        }
        with_a_hole(&wal, 100, |fill_it| {
            if power_is_lost {
                append(&wal, 10, 20);
            }
            store.kill();
            if power_is_lost {
                store.inner.lose_power();
            }
            let reopened = open(&store.next_run());
            assert_eq!(reopened.recovery_report().holes_padded, 0, "{power_is_lost}");
            assert_eq!(contents(&reopened), expected, "{power_is_lost}");
            let is_above = reopened.reserved_lsn() > wal.reserved_lsn();
            assert!(is_above || !power_is_lost, "no LSN is used twice");
            fill_it();
        });
    }
}

//! Who is in the log while its suffix is truncated: appends continue above it, waiters and
//! readers get an error, and no call returns `Ok` for a record that is gone.

use super::truncations::{SEGMENT_BYTES, is_truncated, open, options};
use crate::prelude::*;

#[test]
fn no_waiter_gets_ok_for_a_truncated_record() {
    let (wal, _) = new_log(SEGMENT_BYTES, options());
    let kept = wal.append(b"kept").unwrap();
    let waited = wal.append(b"truncated").unwrap();
    let awaited = wal.append(b"truncated, too").unwrap();
    let lsn = awaited.lsn();
    let unwritten = wal.records().unwrap();
    wal.flush_to_os(lsn).unwrap();
    let old_records = wal.records().unwrap();
    wal.truncate_after(kept.lsn()).unwrap();
    assert!(!waited.is_durable() && kept.is_durable());
    assert!(is_truncated(waited.wait()));
    assert!(is_truncated(waited.wait_timeout(Duration::ZERO)));
    assert!(is_truncated(block_on(awaited)));
    assert!(is_truncated(wal.get(lsn)) && is_truncated(wal.wait_durable(lsn)));
    assert!(is_truncated(wal.flush_to_os(lsn)) && is_truncated(wal.on_durable(lsn, |_| ())));
    assert!(is_truncated(wal.truncate_before(lsn)) && is_truncated(wal.checkpoint(lsn)));
    assert_eq!(kept.wait().unwrap(), kept.lsn());
    for mut records in [unwritten, old_records] {
        assert_eq!(records.next().unwrap().unwrap().lsn(), kept.lsn());
        assert!(is_truncated(records.next()));
        assert!(records.next().unwrap().is_none(), "an iterator is at its end after an error");
    }
    let next = wal.commit(b"next").unwrap();
    wal.checkpoint(next).unwrap();
    assert!(is_truncated(wal.checkpoint(lsn)), "also below a later checkpoint");
}

#[test]
fn a_head_above_a_truncation_acknowledges_nothing() {
    // One truncation; two in a row; one that takes back an earlier one's epoch.
    for kept in [&[0][..], &[0, 3], &[3, 0]] {
        let (wal, _) = new_log(SEGMENT_BYTES, options());
        let first = wal.append(b"first").unwrap().lsn();
        let mut truncated = Vec::new();
        for &kept in kept {
            let mut lsn = first;
            for n in 0..6 {
                let ticket = wal.append(&[n; 300]).unwrap();
                if n < kept {
                    lsn = ticket.lsn();
                } else {
                    truncated.push(ticket);
                }
            }
            wal.truncate_after(lsn).unwrap();
        }
        let behind = wal.append(b"behind").unwrap().lsn();
        wal.truncate_before(behind).unwrap();
        for ticket in truncated {
            let lsn = ticket.lsn();
            assert!(!ticket.is_durable());
            assert!(is_truncated(ticket.wait()));
            assert!(is_truncated(ticket.wait_timeout(Duration::ZERO)));
            assert!(is_truncated(block_on(ticket)));
            assert!(is_truncated(wal.wait_durable(lsn)) && is_truncated(wal.get(lsn)));
            assert!(is_truncated(wal.flush_to_os(lsn)));
            assert!(is_truncated(wal.on_durable(lsn, |_| ())));
        }
        assert_eq!(contents(&wal), [(behind, b"behind".to_vec())]);
    }
}

#[test]
fn readers_get_truncated_if_the_head_has_passed_the_truncation() {
    let (wal, _) = new_log(SEGMENT_BYTES, options());
    let kept = wal.append(b"kept").unwrap().lsn();
    for n in 0..20 {
        wal.append(&[n; 300]).unwrap();
    }
    wal.sync().unwrap();
    let mut records = wal.records().unwrap();
    let mut beyond = wal.tail().unwrap();
    for _ in 0..10 {
        records.next().unwrap().unwrap();
        beyond.next(Duration::ZERO).unwrap().unwrap();
    }
    wal.truncate_after(kept).unwrap();
    let behind = wal.commit(b"behind").unwrap();
    wal.truncate_before(behind).unwrap();
    assert!(is_truncated(records.next()));
    assert!(is_truncated(beyond.next(Duration::ZERO)));
}

#[test]
fn a_tail_gets_what_is_kept_below_a_truncation_below_the_head() {
    let (wal, _) = new_log(SEGMENT_BYTES, options());
    let first = wal.commit(b"first").unwrap();
    let mut tail = wal.tail().unwrap();
    assert_eq!(tail.next(Duration::ZERO).unwrap().unwrap().lsn(), first);
    assert!(tail.next(Duration::ZERO).unwrap().is_none());
    let kept = append_bytes(&wal, 0..5, 100);
    wal.append(b"truncated").unwrap();
    wal.truncate_after(kept[4].0).unwrap();
    let behind = wal.commit(b"behind").unwrap();
    wal.truncate_before(behind).unwrap();
    for (lsn, data) in kept.iter().chain(&[(behind, b"behind".to_vec())]) {
        let record = tail.next(Duration::ZERO).unwrap().unwrap();
        assert_eq!((record.lsn(), record.data()), (*lsn, &data[..]));
    }
}

#[test]
fn appends_wait_during_a_truncation_and_continue_above_it() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let mut expected = append_bytes(&wal, 0..5, 100);
    store.set(MAKE_SEGMENT, Effect::Hold);
    thread::scope(|scope| {
        let (log, kept) = (&wal, expected[2].0);
        let cutter = scope.spawn(move || log.truncate_after(kept));
        until(|| store.is_holding(MAKE_SEGMENT));
        let end = wal.reserved_lsn();
        assert_eq!(wal.try_append(b"no").unwrap_err().kind(), ErrorKind::NoRoom);
        let appenders: Vec<_> =
            (0..4_u8).map(|n| (n, scope.spawn(move || log.commit(&[n; 50]).unwrap()))).collect();
        let batch = scope.spawn(|| wal.append_batch(&[b"a", b"b"]).unwrap().lsn());
        assert_eq!(wal.reserved_lsn(), end, "nothing is reserved meanwhile");
        store.set(MAKE_SEGMENT, Effect::Pass);
        cutter.join().unwrap().unwrap();
        expected.truncate(3);
        let mut behind: Entries = Vec::new();
        for (n, appender) in appenders {
            behind.push((appender.join().unwrap(), vec![n; 50]));
        }
        let batch = batch.join().unwrap();
        behind.push((batch, b"a".to_vec()));
        behind.push((batch.plus(framed_bytes(1)), b"b".to_vec()));
        behind.sort();
        assert!(behind[0].0 >= end);
        expected.extend(behind);
    });
    assert_eq!(contents(&wal), expected);
    assert_eq!(contents(&open(&store.after_kill(wal))), expected);
}

#[test]
fn owners_above_the_new_end_finish_and_their_waiters_are_served() {
    let (wal, _) = new_log(SEGMENT_BYTES, options());
    let kept = wal.append(b"kept").unwrap().lsn();
    let (sender, receiver) = channel();
    with_a_hole(&wal, 100, |fill_it| {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| wal.commit(b"beyond the hole"));
            let reserved = [4, 100, b"beyond the hole".len()].map(framed_bytes);
            until(|| wal.reserved_lsn() == kept.plus(reserved.iter().sum()));
            let last = Lsn::new(wal.reserved_lsn().as_u64() - 8);
            wal.on_durable(last, move |result| sender.send(result).unwrap()).unwrap();
            let cutter = scope.spawn(|| wal.truncate_after(kept));
            until(|| wal.try_append(b"").is_err());
            fill_it();
            cutter.join().unwrap().unwrap();
            let served = waiter.join().unwrap();
            assert!(
                served.is_ok() || is_truncated(served),
                "served before the truncation, or truncated"
            );
        });
    });
    let called = receiver.recv().unwrap();
    assert!(called.is_ok() || is_truncated(called));
    assert_eq!(contents(&wal), [(kept, b"kept".to_vec())]);
}

#[test]
fn a_close_beside_a_truncation_makes_a_clean_end() {
    for op in [MAKE_SEGMENT, PASS_BUFFER_ON, SAVE_STATE] {
        let (wal, store) = new_log(SEGMENT_BYTES, options());
        let expected = append_bytes(&wal, 0..10, 100);
        wal.sync().unwrap();
        store.set(op, Effect::Hold);
        thread::scope(|scope| {
            let cutter = scope.spawn(|| wal.truncate_after(expected[4].0));
            until(|| store.is_holding(op));
            let closer = scope.spawn(|| wal.clone().close());
            store.set(op, Effect::Pass);
            cutter.join().unwrap().unwrap();
            closer.join().unwrap().unwrap();
        });
        drop(wal);
        let wal = open(&store.next_run());
        assert!(wal.recovery_report().clean);
        assert_eq!(contents(&wal), expected[..5]);
    }
}

#[test]
fn an_overtaken_truncation_of_the_head_succeeds() {
    let (wal, _) = new_log(SEGMENT_BYTES, options());
    for round in 0..50_u8 {
        let entries = append_bytes(&wal, 0..60, 100);
        thread::scope(|scope| {
            let truncations = [3, 7, 20, 45].map(|at| {
                let (wal, lsn) = (&wal, entries[at].0);
                scope.spawn(move || wal.truncate_before(lsn))
            });
            for truncation in truncations {
                truncation.join().unwrap().unwrap();
            }
        });
        assert_eq!(wal.head_lsn(), entries[45].0, "round {round}");
    }
}

/// The last record of a segment ends where the next epoch begins.
#[test]
fn a_tail_gets_truncated_after_the_last_record_of_a_segment() {
    let (wal, _) = new_log(SEGMENT_BYTES, options());
    let kept = wal.append(b"kept").unwrap().lsn();
    let mut tail = wal.tail().unwrap();
    while wal.reserved_lsn().as_u64() < SEGMENT_BYTES {
        let room = SEGMENT_BYTES - wal.reserved_lsn().as_u64();
        wal.append(&vec![1; room.min(1024) as usize - 24]).unwrap();
    }
    wal.sync().unwrap();
    assert_eq!(wal.reserved_lsn().as_u64(), SEGMENT_BYTES);
    while tail.next(Duration::ZERO).unwrap().is_some() {}
    wal.truncate_after(kept).unwrap();
    wal.commit(b"later").unwrap();
    assert!(is_truncated(tail.next(Duration::ZERO)));
}

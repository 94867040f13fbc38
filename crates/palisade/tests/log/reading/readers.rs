//! Readers beside appends and truncations: what they need stays, what is gone is named so.

use crate::prelude::*;

/// Appends and truncates, so that segments are released all the time; returns at the end.
fn churn(wal: &Wal) {
    let mut kept = std::collections::VecDeque::new();
    for n in 1..20_000_u32 {
        kept.push_back(wal.append(&n.to_le_bytes().repeat(50)).unwrap().lsn());
        if kept.len() > 20 {
            let lsn = kept.drain(..15).next_back().unwrap();
            wal.truncate_before(lsn).unwrap();
        }
    }
}

fn beside_churn(read: impl Fn(&Wal) + Sync) {
    let wal = log_in_memory(4096, 4096);
    wal.commit(&[0; 4]).unwrap();
    thread::scope(|scope| {
        let churner = scope.spawn(|| churn(&wal));
        while !churner.is_finished() {
            read(&wal);
        }
    });
}

#[test]
fn an_iterator_beside_truncations_meets_no_released_segment() {
    beside_churn(|wal| {
        let mut records = wal.records().unwrap();
        let mut last = None;
        while let Some(record) = records.next().unwrap() {
            let n = u32::from_le_bytes(record.data()[..4].try_into().unwrap());
            assert!(last.is_none_or(|last| n == last + 1), "{n} after {last:?}");
            last = Some(n);
        }
    });
}

#[test]
fn a_record_beside_truncations_is_either_there_or_truncated() {
    beside_churn(|wal| {
        let head = wal.head_lsn();
        match wal.get(head) {
            Ok(record) => assert_eq!(record.lsn(), head),
            Err(error) if error.kind() == ErrorKind::Truncated => {
                assert!(wal.head_lsn() > head);
            }
            Err(error) => panic!("{error:?}"),
        }
    });
}

#[test]
fn a_tail_beside_truncations_goes_on_or_says_truncated() {
    beside_churn(|wal| match wal.tail_from(wal.head_lsn()) {
        Ok(mut tail) => {
            for _ in 0..10 {
                tail.next(Duration::ZERO).unwrap();
            }
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Truncated, "{error}"),
    });
}

#[test]
fn a_tail_past_a_mark_alone_survives_a_truncation_below_it() {
    let wal = log_in_memory(4096, 4096);
    let first = wal.commit(b"first").unwrap();
    let kept = wal.commit(b"kept").unwrap();
    // Its mark lies behind the record.
    wal.checkpoint(kept).unwrap();
    let mut tail = wal.tail().unwrap();
    for lsn in [first, kept] {
        assert_eq!(tail.next(Duration::ZERO).unwrap().unwrap().lsn(), lsn);
    }
    assert!(tail.next(Duration::ZERO).unwrap().is_none());
    wal.truncate_after(kept).unwrap();
    assert!(tail.next(Duration::ZERO).unwrap().is_none());
    let behind = wal.commit(b"behind").unwrap();
    assert_eq!(tail.next(Duration::ZERO).unwrap().unwrap().lsn(), behind);
    wal.truncate_after(kept).unwrap();
    let error = tail.next(Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated, "it has given what is truncated");
}

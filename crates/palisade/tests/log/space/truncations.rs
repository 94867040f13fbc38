//! Truncation of the suffix, for Raft: what is truncated stays gone, what is kept stays there, in
//! every later run and whatever fails on the way.

use crate::prelude::*;

pub(crate) const SEGMENT_BYTES: u64 = 8 << 10;

pub(crate) fn options() -> Options {
    Options::new().buffer_bytes(4 << 10)
}

pub(crate) fn open(store: &FaultyLog) -> Wal {
    store.open(options())
}

pub(crate) fn is_truncated<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    result.unwrap_err().kind() == ErrorKind::Truncated
}

#[test]
fn truncated_records_stay_gone_and_kept_ones_stay_in_later_runs() {
    // From a truncation in the first segment to one that leaves the last record but one.
    for kept in [0, 3, 35, 38, 77, 98] {
        let (wal, store) = new_log(SEGMENT_BYTES, options());
        let mut expected = append_bytes(&wal, 0..100, 180);
        let gone = expected.split_off(kept + 1);
        let highest = wal.reserved_lsn();
        let end_of_kept = wal.get(expected[kept].0).unwrap().next_lsn();
        wal.truncate_after(expected[kept].0).unwrap();
        assert_eq!(contents(&wal), expected);
        assert!(wal.reserved_lsn() >= highest && wal.durable_lsn() == wal.reserved_lsn());
        // Shorter ones: none of the old may show between or behind them.
        expected.extend(append_bytes(&wal, 100..120, 40));
        assert!(expected[kept + 1].0 >= highest, "no LSN is used twice");
        assert_eq!(contents(&wal), expected);
        let mut store = store.after_kill(wal);
        for _ in 0..3 {
            let wal = open(&store);
            assert_eq!(contents(&wal), expected);
            for (lsn, _) in &gone {
                assert!(is_truncated(wal.get(*lsn)) && is_truncated(wal.wait_durable(*lsn)));
                let resumed = wal.resume_lsn(*lsn).unwrap();
                assert_eq!(resumed, end_of_kept);
                let begins_there = *lsn == end_of_kept;
                assert!(begins_there || is_truncated(wal.records_from(*lsn)));
                assert!(begins_there || is_truncated(wal.tail_from(*lsn)));
                let cursor = || wal.create_cursor("late", Some(*lsn), u64::MAX);
                assert!(begins_there || is_truncated(cursor()));
                for from in [resumed, end_of_kept] {
                    let mut records = wal.records_from(from).unwrap();
                    let first = records.next().unwrap().map(|next| next.lsn());
                    assert_eq!(first, Some(expected[kept + 1].0));
                }
            }
            store = store.after_power_loss(wal);
        }
    }
}

#[test]
fn a_truncation_above_the_last_record_changes_nothing() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let expected = append_bytes(&wal, 0..5, 100);
    let last = expected[4].0;
    let end = wal.reserved_lsn();
    wal.truncate_after(last).unwrap();
    assert_eq!((wal.reserved_lsn(), wal.durable_lsn()), (end, end));
    let store = store.after_kill(wal);
    let wal = open(&store);
    let base = wal.reserved_lsn();
    wal.truncate_after(last).unwrap();
    assert_eq!(wal.reserved_lsn(), base, "the running epoch is empty");
    assert_eq!(contents(&wal), expected);
    assert_eq!(store.count(NAME_SEGMENT), 1, "the segment that the open made");
}

#[test]
fn what_is_no_record_to_keep_is_refused_and_nothing_is_changed() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let before = append_bytes(&wal, 0..40, 200);
    let batch = wal.append_batch(["one", "two", "three"]).unwrap().lsn();
    let second = batch.plus(framed_bytes(3));
    let third = second.plus(framed_bytes(3));
    let behind = wal.append(b"behind").unwrap().lsn();
    wal.truncate_before(before[10].0).unwrap();
    let expected = contents(&wal);
    let end = wal.reserved_lsn();
    let segments = store.count(NAME_SEGMENT);
    let cases = [
        (before[9].0, ErrorKind::Truncated),
        (before[20].0.plus(8), ErrorKind::NotARecord),
        (Lsn::new(batch.as_u64() - 24), ErrorKind::NotARecord),
        (batch, ErrorKind::InvalidArgument),
        (second, ErrorKind::InvalidArgument),
        (end, ErrorKind::NotARecord),
        (end.plus(8), ErrorKind::OutOfRange),
    ];
    for (lsn, kind) in cases {
        let error = wal.truncate_after(lsn).unwrap_err();
        assert_eq!((error.kind(), error.lsn()), (kind, Some(lsn)), "{error}");
    }
    assert_eq!(contents(&wal), expected);
    assert_eq!(store.count(NAME_SEGMENT), segments, "no epoch has begun");
    wal.truncate_after(third).unwrap();
    assert_eq!(contents(&wal), expected[..expected.len() - 1]);
    assert!(is_truncated(wal.truncate_after(behind)));
    wal.clone().close().unwrap();
    assert_eq!(wal.truncate_after(third).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_checkpoint_is_lowered_to_the_new_end() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let entries = append_bytes(&wal, 0..10, 100);
    wal.checkpoint(entries[8].0).unwrap();
    wal.truncate_after(entries[3].0).unwrap();
    assert_eq!(wal.checkpoint_lsn(), entries[4].0, "the end of what is kept");
    let wal = open(&store.after_kill(wal));
    assert_eq!(wal.checkpoint_lsn(), entries[4].0);
    assert_eq!(contents(&wal), entries[..4]);
}

#[test]
fn lack_of_space_for_the_new_epoch_changes_nothing() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let mut expected = append_bytes(&wal, 0..5, 100);
    // For the epoch alone, and for the records before it, too.
    for fills_the_buffer in [false, true] {
        store.set(MAKE_SEGMENT, Effect::NoSpace);
        if fills_the_buffer {
            while wal.try_append(&[9; 150]).map(|t| expected.push((t.lsn(), vec![9; 150]))).is_ok()
            {
            }
        }
        assert_eq!(wal.truncate_after(expected[1].0).unwrap_err().kind(), ErrorKind::NoSpace);
        store.set(MAKE_SEGMENT, Effect::Pass);
        expected.push((wal.commit(b"goes on").unwrap(), b"goes on".to_vec()));
        assert_eq!(contents(&wal), expected);
    }
    wal.truncate_after(expected[1].0).unwrap();
    assert_eq!(contents(&wal), expected[..2]);
}

/// Checks also that no thread hangs.
#[test]
fn a_failure_once_the_new_epoch_may_have_begun_poisons_the_log() {
    let ops = [MAKE_SEGMENT, MARK, PASS_BUFFER_ON, SAVE_STATE];
    for (op, fault) in ops.into_iter().flat_map(|op| [(op, Effect::Eio), (op, Effect::Panic)]) {
        let (wal, store) = new_log(SEGMENT_BYTES, options());
        let expected = append_bytes(&wal, 0..5, 100);
        wal.sync().unwrap();
        store.set(op, Effect::Hold);
        thread::scope(|scope| {
            let cutter = scope.spawn(|| wal.truncate_after(expected[1].0));
            until(|| store.is_holding(op));
            let appender = scope.spawn(|| wal.append(b"meanwhile").map(drop));
            store.set(op, fault);
            let error = cutter.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{op:?}");
            assert_eq!(appender.join().unwrap().unwrap_err().kind(), ErrorKind::Poisoned);
        });
        let found = contents(&open(&store.after_kill(wal)));
        let whole = if op == MAKE_SEGMENT { 5 } else { 2 };
        assert_eq!(found, expected[..whole], "{op:?}");
    }
}

#[test]
fn the_end_of_what_is_durable_is_a_place_to_truncate_at() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    wal.append(&[1; 180]).unwrap();
                    wal.append_batch([[2; 90]; 3]).unwrap();
                    wal.append_many([[3; 30]; 5]).unwrap();
                    wal.append_batch([[4; 7]; 4]).unwrap().wait().unwrap();
                }
            });
        }
        for _ in 0..100 {
            let end = wal.durable_lsn();
            let truncated = wal.checkpoint(end).and_then(|()| wal.truncate_before(end));
            // A failure ends the threads, too.
            is_over.fetch_or(truncated.is_err(), Ordering::Relaxed);
            truncated.unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let found = contents(&wal);
    assert!(found.iter().filter(|(_, data)| data[0] == 4).count() % 4 == 0, "no batch is divided");
    assert_eq!(contents(&open(&store.after_kill(wal))), found);
}

#[test]
fn a_commit_that_needs_a_segment_does_not_wait_for_a_release() {
    for held in RELEASE {
        let (wal, store) = new_log(SEGMENT_BYTES, options());
        // More segments than are kept as spares.
        let lsns: Vec<Lsn> = (0..1000).map(|_| wal.append(&[1; 180]).unwrap().lsn()).collect();
        store.set(held, Effect::Hold);
        thread::scope(|scope| {
            let release = scope.spawn(|| wal.truncate_before(lsns[990]));
            until(|| store.is_holding(held));
            let made = store.count(NAME_SEGMENT);
            for data in 0..100 {
                wal.commit(&[data; 180]).unwrap();
            }
            assert!(store.count(NAME_SEGMENT) > made && store.is_holding(held));
            store.set(held, Effect::Pass);
            release.join().unwrap().unwrap();
        });
    }
}

#[test]
fn all_records_left_by_a_crash_or_truncation_can_be_truncated() {
    for is_truncated in [false, true] {
        let (wal, store) = new_log(SEGMENT_BYTES, options());
        let kept = append_bytes(&wal, 0..10, 180);
        wal.sync().unwrap();
        let (wal, store) = if is_truncated {
            wal.append(&[99; 180]).unwrap();
            wal.truncate_after(kept[9].0).unwrap();
            (wal, store)
        } else {
            let store = store.after_kill(wal);
            (open(&store), store)
        };
        let end = wal.records_from(kept[9].0).unwrap().next().unwrap().unwrap().next_lsn();
        wal.checkpoint(end).unwrap();
        assert!(wal.checkpoint_lsn() >= end);
        wal.truncate_before(end).unwrap();
        assert_eq!(contents(&wal), []);
        let next = append_bytes(&wal, 10..12, 180);
        // The checkpoint's mark lies before the first of them.
        let head = wal.head_lsn();
        assert!(head > end && head.plus(24) == next[0].0, "the log begins where it went on");
        assert_eq!(contents(&open(&store.after_kill(wal))), next);
    }
}

//! Models of readers beside truncations.

use std::sync::Arc;
use std::time::Duration;

use super::store::ModelStore;
use super::{Bound, LARGE_FRAME, LONG_SEGMENT, Log, RING, SMALL_FRAME, Shape, check, spawn};
use crate::{ErrorKind, Lsn};

const BASE: Lsn = Lsn::new(LONG_SEGMENT);

fn log(shape: Shape) -> Log {
    Log::new(shape, ModelStore::new(Lsn::ZERO))
}

#[test]
fn a_view_has_all_of_a_replacement_or_none() {
    check("a_view_has_all_of_a_replacement_or_none", Bound::At(3), || {
        let log = log(Shape::ROOMY);
        let kept = log.append(1);
        let end = log.append(2).plus(LARGE_FRAME);
        log.wal.sync().unwrap();
        let reader = spawn(&log, move |log| {
            let (durable, reserved) = (log.wal.durable_extents(), log.wal.reserved_extents());
            let before = vec![(Lsn::ZERO, end)];
            let after = vec![(Lsn::ZERO, kept.plus(LARGE_FRAME)), (BASE, BASE.plus(SMALL_FRAME))];
            assert!(durable == before || durable == after, "{durable:?}");
            assert!(reserved == before || reserved == after, "{reserved:?}");
            assert!(durable == before || reserved == after, "it does not go back");
            let live = log.wal.live_bytes();
            assert!([2 * LARGE_FRAME, LARGE_FRAME + SMALL_FRAME].contains(&live), "{live}");
        });
        log.wal.replace_above(kept, kept.plus(LARGE_FRAME), &[b""]).unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_backup_has_all_of_a_replacement_or_none() {
    check("a_backup_has_all_of_a_replacement_or_none", Bound::At(2), || {
        let log = log(Shape::ROOMY);
        let kept = log.append(1);
        let end = log.append(2).plus(LARGE_FRAME);
        log.wal.sync().unwrap();
        let reader = spawn(&log, move |log| {
            let backup = log.wal.backup().unwrap();
            let report = backup.plan.report();
            let is_before = (report.end, report.bytes) == (end, 2 * LARGE_FRAME);
            let after = (BASE.plus(SMALL_FRAME), LARGE_FRAME + SMALL_FRAME);
            assert!(is_before || (report.end, report.bytes) == after, "{report:?}");
        });
        log.wal.replace_above(kept, kept.plus(LARGE_FRAME), &[b""]).unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_hold_has_all_of_a_replacement_or_none() {
    check("a_hold_has_all_of_a_replacement_or_none", Bound::At(2), || {
        let log = log(Shape::ROOMY);
        let kept = log.append(1);
        log.append(2);
        log.wal.sync().unwrap();
        let hold = Arc::new(log.wal.hold(kept).unwrap());
        let reader = spawn(&hold, move |hold| {
            let count = hold.records().and_then(|mut records| {
                let mut count = 0;
                while records.next()?.is_some() {
                    count += 1;
                }
                Ok(count)
            });
            match count {
                Ok(count) => assert_eq!(count, 2, "one that is kept, and another"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Truncated),
            }
        });
        log.wal.replace_above(kept, kept.plus(LARGE_FRAME), &[b""]).unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_tail_beside_a_replacement_finds_a_record() {
    check("a_tail_beside_a_replacement_finds_a_record", Bound::At(2), || {
        let log = log(Shape::ROOMY);
        let kept = log.append(1);
        log.wal.sync().unwrap();
        let mut tail = log.wal.tail().unwrap();
        assert_eq!(tail.next(Duration::ZERO).unwrap().unwrap().lsn(), kept);
        // The tail has not looked for it yet.
        log.append(2);
        log.wal.sync().unwrap();
        let reader = spawn(&log, move |_| {
            let found = tail.next(Duration::ZERO).map(|found| found.map(|record| record.lsn()));
            let found =
                found.expect("what it returned stays").expect("the log always has a record");
            assert!(found > kept);
        });
        log.wal.replace_above(kept, kept.plus(LARGE_FRAME), &[b""]).unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_learns_that_its_begin_was_truncated() {
    check("a_reader_learns_that_its_begin_was_truncated", Bound::At(2), || {
        let log = log(Shape::ROOMY);
        let kept = log.append(1);
        let end = log.append(2).plus(LARGE_FRAME);
        log.wal.sync().unwrap();
        let reader = spawn(&log, move |log| {
            match log.wal.records_from(end) {
                Ok(records) => assert_eq!(records.position(), end, "it skips nothing"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Truncated),
            }
            log.wal.tail_from(end)
        });
        log.wal.truncate_above(kept, kept.plus(LARGE_FRAME)).unwrap();
        let tail = reader.join().unwrap();
        let next = tail.and_then(|mut tail| tail.next(Duration::ZERO).map(drop));
        assert_eq!(next.unwrap_err().kind(), ErrorKind::Truncated, "it has processed what is gone");
    });
}

/// Checks that a reader from the first record on keeps that record, unless a release comes first.
fn check_pin<T: Send + 'static>(name: &str, bound: Bound, take: fn(&Log, Lsn) -> crate::Result<T>) {
    check(name, bound, move || {
        let log = log(Shape::ROOMY);
        let (first, second) = (log.append(1), log.append(2));
        log.wal.sync().unwrap();
        let holder = spawn(&log, move |log| take(log, first));
        log.wal.save_head(second).unwrap();
        log.wal.release().unwrap();
        match holder.join().unwrap() {
            Ok(reader) => {
                assert!(log.store.released_to() <= first, "what is held is there");
                drop(reader);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Truncated),
        }
        assert_eq!(log.store.released_to(), second, "the last release frees the rest");
    });
}

#[test]
fn a_pin_keeps_what_a_release_would_free() {
    let name = "a_pin_keeps_what_a_release_would_free";
    check_pin(name, Bound::None, |log, first| log.wal.hold(first));
}

#[test]
fn an_iterator_keeps_what_a_release_would_free() {
    let name = "an_iterator_keeps_what_a_release_would_free";
    check_pin(name, Bound::At(2), |log, first| log.wal.records_from(first));
}

#[test]
fn a_reader_whose_file_was_freed_finds_its_lease_lost() {
    check("a_reader_whose_file_was_freed_finds_its_lease_lost", Bound::None, || {
        let log = log(Shape { segment_bytes: RING, ..Shape::ROOMY });
        let first = log.append(1);
        let next_segment = [log.append(2), log.append(3)][1];
        let reader = log.wal.leased_reader(LARGE_FRAME).unwrap();
        let reading = spawn(&(log.clone(), reader), move |(log, reader)| {
            let is_freed = log.store.released_to() > first;
            assert!(!is_freed || reader.is_lost(), "it would take freed bytes for damage");
        });
        log.wal.save_head(next_segment).unwrap();
        log.wal.release().unwrap();
        reading.join().unwrap();
        assert_eq!(log.store.released_to(), next_segment, "the reader lags too much");
    });
}

#[test]
fn two_truncations_at_a_time_are_one_after_the_other() {
    check("two_truncations_at_a_time_are_one_after_the_other", Bound::At(2), || {
        let log = log(Shape { ring_bytes: 4 * RING, ..Shape::ROOMY });
        let lsns = [log.append(1), log.append(2), log.append(3)];
        let truncate = move |log: &Log, kept: usize| {
            log.wal.truncate_above(lsns[kept], lsns[kept].plus(LARGE_FRAME))
        };
        let other = spawn(&log, move |log| truncate(log, 1));
        truncate(&log, 0).unwrap();
        // The lower one may have come first, and has then removed the record that the other keeps.
        // Or the other one found nothing to do.
        if let Err(error) = other.join().unwrap() {
            assert_eq!(error.kind(), ErrorKind::Truncated);
            assert_eq!(log.wal.reserved_lsn(), BASE);
        }
        assert_eq!(log.wal.durable_lsn(), log.wal.reserved_lsn());
        assert_eq!(log.wal.live_bytes(), LARGE_FRAME);
        log.wal.wait_durable(lsns[0]).unwrap();
        for gone in [lsns[1], lsns[2]] {
            let error = log.wal.wait_durable(gone).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Truncated);
        }
        let end = log.wal.reserved_lsn();
        assert_eq!(log.append(4), end, "above all LSNs that were given out");
    });
}

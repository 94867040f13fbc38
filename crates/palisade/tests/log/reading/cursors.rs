//! Cursors: what they return again after a crash, what they keep, and how they lose it.

use crate::prelude::*;

/// Of 1000 bytes each, with their headers.
const RECORDS_PER_SEGMENT: u64 = SEGMENT_BYTES / 1024;

fn numbers(cursor: &mut Cursor, most: usize) -> Vec<u64> {
    let mut found = Vec::new();
    while found.len() < most {
        let Some(record) = cursor.next(Duration::ZERO).unwrap() else { break };
        found.push(u64::from_le_bytes(record.data()[..8].try_into().unwrap()));
    }
    found
}

fn fill(wal: &Wal, numbers: std::ops::Range<u64>) -> Vec<Lsn> {
    let record = |number: u64| [&number.to_le_bytes()[..], &[0; 992]].concat();
    let lsns = numbers.map(|number| wal.append(&record(number)).unwrap().lsn()).collect();
    wal.sync().unwrap();
    lsns
}

/// Protection: a consumer's loop ends with the log, also if it does not wait.
#[test]
fn a_consumer_that_never_waits_learns_that_the_log_has_ended() {
    for end in [ErrorKind::Closed, ErrorKind::Poisoned] {
        let (wal, store) = log_and_store();
        let (mut tail, mut cursor) =
            (wal.tail().unwrap(), wal.create_cursor("one", None, 0).unwrap());
        fill(&wal, 0..3);
        assert_eq!(numbers(&mut cursor, 9), [0, 1, 2]);
        while tail.next(Duration::ZERO).unwrap().is_some() {}
        if end == ErrorKind::Closed {
            wal.close().unwrap();
        } else {
            store.set(SYNC, Effect::Eio);
            wal.commit(b"not durable").unwrap_err();
        }
        for _ in 0..2 {
            assert_eq!(cursor.peek(Duration::ZERO).unwrap_err().kind(), end);
            assert_eq!(cursor.next(Duration::ZERO).unwrap_err().kind(), end);
            assert_eq!(tail.next(Duration::ZERO).unwrap_err().kind(), end);
        }
    }
}

#[test]
fn a_cursor_goes_on_where_it_was_saved_and_repeats_what_was_not() {
    let (_folder, path, wal) = log_on_files(small());
    fill(&wal, 0..10);
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    assert_eq!(numbers(&mut cursor, 4), [0, 1, 2, 3]);
    cursor.save().unwrap();
    assert_eq!(numbers(&mut cursor, 2), [4, 5]);
    drop((cursor, wal));
    let wal = small().open(&path).unwrap();
    let mut cursor = wal.cursor("one").unwrap();
    assert_eq!(numbers(&mut cursor, 9), [4, 5, 6, 7, 8, 9]);
    cursor.confirm();
    drop(cursor);
    wal.close().unwrap();
    let wal = small().open(&path).unwrap();
    let mut cursor = wal.cursor("one").unwrap();
    assert_eq!(numbers(&mut cursor, 9), []);
    fill(&wal, 10..11);
    let peeked = cursor.peek(Duration::ZERO).unwrap().unwrap().lsn();
    assert_eq!(cursor.next(Duration::ZERO).unwrap().unwrap().lsn(), peeked);
}

#[test]
fn a_cursor_keeps_the_log_until_it_lags_too_much() {
    let (_folder, path, wal) = log_on_files(small());
    let mut kept = wal.create_cursor("kept", None, 8 * SEGMENT_BYTES).unwrap();
    let lsns = fill(&wal, 0..100);
    assert_eq!(numbers(&mut kept, 5).len(), 5);
    kept.save().unwrap();
    wal.truncate_before(lsns[90]).unwrap();
    assert_eq!(wal.head_lsn(), lsns[5]);
    drop((kept, wal));
    // It keeps the log although it is not open, also in the next run.
    let wal = small().open(&path).unwrap();
    wal.truncate_before(lsns[95]).unwrap();
    assert_eq!(wal.head_lsn(), lsns[5]);
    assert!(wal.cursors().unwrap()[0].keeps_the_log);
    let mut kept = wal.cursor("kept").unwrap();
    assert_eq!(numbers(&mut kept, 2), [5, 6]);
    let more = fill(&wal, 100..100 + 8 * RECORDS_PER_SEGMENT);
    assert!(!wal.cursors().unwrap()[0].keeps_the_log);
    wal.truncate_before(more[0]).unwrap();
    assert_eq!(wal.head_lsn(), more[0]);
    assert_eq!(kept.next(Duration::ZERO).unwrap_err().kind(), ErrorKind::Lagged);
    assert_eq!(kept.next(Duration::ZERO).unwrap_err().kind(), ErrorKind::Lagged);
    assert_eq!(kept.save().unwrap_err().kind(), ErrorKind::Lagged);
    drop(kept);
    let mut kept = wal.cursor("kept").unwrap();
    assert_eq!(kept.next(Duration::ZERO).unwrap_err().kind(), ErrorKind::Lagged);
    kept.seek(more[1]).unwrap();
    assert_eq!(numbers(&mut kept, 1), [101]);
}

/// Protection: a cursor lags by records, and a crash leaves none between two epochs.
#[test]
fn a_cursor_with_all_records_does_not_lag_after_idle_crashes() {
    let (_folder, path) = folder();
    let wal = small().open(&path).unwrap();
    fill(&wal, 0..10);
    let mut cursor = wal.create_cursor("one", None, SEGMENT_BYTES / 2).unwrap();
    assert_eq!(numbers(&mut cursor, 99).len(), 10);
    cursor.save().unwrap();
    drop(cursor);
    wal.abandon();
    for _ in 0..9 {
        small().open(&path).unwrap().abandon();
    }
    let wal = small().open(&path).unwrap();
    let status = wal.cursors().unwrap().remove(0);
    assert!(wal.reserved_lsn().bytes_since(status.position) > status.max_lag);
    assert!(status.keeps_the_log);
    assert_eq!(status.lag, 0);
    // The pin of an open cursor counts in the same way.
    let mut cursor = wal.cursor("one").unwrap();
    assert_eq!(numbers(&mut cursor, 1), []);
    assert_eq!(wal.space().unwrap().pins[0].lag, 0);
    let record = fill(&wal, 10..11)[0];
    wal.truncate_before(wal.reserved_lsn()).unwrap();
    assert_eq!(wal.head_lsn(), record);
    assert_eq!(numbers(&mut cursor, 9), [10]);
}

/// Protection: a lag leaves out the LSNs that a crash skips, also if only a mark is before them.
#[test]
fn a_cursor_with_all_records_keeps_the_log_after_mark_and_crash() {
    for closes in [false, true] {
        let (_folder, path) = folder();
        let mut wal = small().open(&path).unwrap();
        let mut cursor = wal.create_cursor("one", None, SEGMENT_BYTES / 2).unwrap();
        fill(&wal, 0..1);
        assert_eq!(numbers(&mut cursor, 9), [0]);
        cursor.save().unwrap();
        drop(cursor);
        if closes {
            wal.close().unwrap();
            wal = small().open(&path).unwrap();
        } else {
            wal.checkpoint(wal.reserved_lsn()).unwrap();
        }
        wal.abandon();
        let wal = small().open(&path).unwrap();
        let status = wal.cursors().unwrap().remove(0);
        assert!(wal.reserved_lsn().bytes_since(status.position) > status.max_lag);
        assert!(status.keeps_the_log, "{status:?}");
        fill(&wal, 1..2);
        wal.truncate_before(wal.reserved_lsn()).unwrap();
        assert_eq!(numbers(&mut wal.cursor("one").unwrap(), 9), [1]);
    }
}

/// Protection: a cursor that has lost records lags by them, also when no record is left above it.
#[test]
fn a_cursor_with_truncated_records_lags_in_later_epochs_too() {
    let (_folder, path) = folder();
    let wal = small().open(&path).unwrap();
    drop(wal.create_cursor("one", None, SEGMENT_BYTES / 2).unwrap());
    fill(&wal, 0..2 * RECORDS_PER_SEGMENT);
    wal.abandon();
    let wal = small().open(&path).unwrap();
    wal.truncate_before(wal.reserved_lsn()).unwrap();
    wal.abandon();
    let wal = small().open(&path).unwrap();
    let status = wal.cursors().unwrap().remove(0);
    assert!(status.lag > SEGMENT_BYTES, "{status:?}");
    assert!(!status.keeps_the_log);
    let error = wal.cursor("one").unwrap().next(Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lagged);
}

#[test]
fn a_cursor_that_keeps_nothing_reads_until_the_head_passes_it() {
    let (_folder, _, wal) = log_on_files(small());
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    let lsns = fill(&wal, 0..4 * RECORDS_PER_SEGMENT);
    // The pin stays at the first segment: nothing was read above it.
    let first = RECORDS_PER_SEGMENT as usize;
    assert_eq!(numbers(&mut cursor, first).len(), first);
    let position = cursor.position();
    wal.truncate_before(position).unwrap();
    assert_eq!(numbers(&mut cursor, 1), [RECORDS_PER_SEGMENT]);
    assert!(cursor.peek(Duration::ZERO).unwrap().is_some());
    wal.truncate_before(cursor.position()).unwrap();
    assert_eq!(numbers(&mut cursor, 1), [RECORDS_PER_SEGMENT + 1]);
    wal.truncate_before(lsns[3 * first]).unwrap();
    assert_eq!(cursor.peek(Duration::ZERO).unwrap_err().kind(), ErrorKind::Lagged);
}

#[test]
fn a_peeked_record_is_not_returned_from_a_freed_file() {
    let (_folder, _, wal) = log_on_files(small());
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    let lsns = fill(&wal, 0..4 * RECORDS_PER_SEGMENT);
    assert!(cursor.peek(Duration::ZERO).unwrap().is_some());
    wal.truncate_before(lsns[lsns.len() - 1]).unwrap();
    assert_eq!(cursor.next(Duration::ZERO).unwrap_err().kind(), ErrorKind::Lagged);
}

/// The pin is lost while the file is read.
#[test]
fn a_record_read_from_a_file_freed_meanwhile_is_not_returned() {
    let (wal, log) = log_and_store();
    let lsns = fill(&wal, 0..4 * RECORDS_PER_SEGMENT);
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    log.set(READ, Effect::Hold);
    thread::scope(|scope| {
        let reader = scope.spawn(|| cursor.next(Duration::ZERO).map(drop).unwrap_err().kind());
        until(|| log.is_holding(READ));
        // Nothing is read for it: the log has written nothing above.
        wal.truncate_before(wal.reserved_lsn()).unwrap();
        assert!(wal.head_lsn() > lsns[RECORDS_PER_SEGMENT as usize]);
        log.set(READ, Effect::Pass);
        assert_eq!(reader.join().unwrap(), ErrorKind::Lagged);
    });
}

/// The position was durable, so the log is not complete without what lies below it.
#[test]
fn damage_below_a_cursor_is_refused() {
    let (_folder, path, wal) = log_on_files(heap());
    let lsns = fill(&wal, 0..10);
    let cursor = wal.create_cursor("one", Some(lsns[8]), 0).unwrap();
    let (_copy, path) = copy_as_killed(&path);
    drop((cursor, wal));
    let damage = |lsn: Lsn| {
        let (file, at) = place_of(&path, lsn.plus(100), SEGMENT_BYTES);
        flip(&file, at);
    };
    damage(lsns[7]);
    assert_eq!(heap().open(&path).unwrap_err().kind(), ErrorKind::Corrupt);
    damage(lsns[7]);
    damage(lsns[8]);
    assert_eq!(contents(&heap().open(&path).unwrap()).len(), 8);
}

#[test]
fn the_next_state_has_what_a_cursor_confirmed_before_its_drop() {
    let (_folder, _, wal) = log_on_files(small());
    let lsns = fill(&wal, 0..10);
    let mut one = wal.create_cursor("one", None, u64::MAX).unwrap();
    assert_eq!(numbers(&mut one, 3).len(), 3);
    one.confirm();
    assert_eq!(wal.cursors().unwrap()[0].position, lsns[0]);
    wal.checkpoint(lsns[1]).unwrap();
    assert_eq!(wal.cursors().unwrap()[0].position, lsns[3]);
    assert_eq!(numbers(&mut one, 3).len(), 3);
    one.confirm();
    drop(one);
    // Another handle continues where the last one confirmed, saved or not.
    let mut one = wal.cursor("one").unwrap();
    assert_eq!(one.position(), lsns[6]);
    assert_eq!(numbers(&mut one, 1), [6]);
    drop(one);
    wal.truncate_before(lsns[8]).unwrap();
    assert_eq!(wal.head_lsn(), lsns[6]);
    assert_eq!(wal.cursors().unwrap()[0].position, lsns[6]);
}

#[test]
fn a_cursor_above_a_suffix_truncation_fails_until_it_seeks() {
    let (_folder, _, wal) = log_on_files(small());
    let lsns = fill(&wal, 0..10);
    let mut cursor = wal.create_cursor("one", Some(lsns[4]), u64::MAX).unwrap();
    assert_eq!(numbers(&mut cursor, 3), [4, 5, 6]);
    cursor.save().unwrap();
    wal.truncate_after(lsns[5]).unwrap();
    let after = fill(&wal, 20..22);
    for _ in 0..2 {
        assert_eq!(cursor.save().unwrap_err().kind(), ErrorKind::Truncated);
        for _ in 0..2 {
            assert_eq!(cursor.next(Duration::ZERO).unwrap_err().kind(), ErrorKind::Truncated);
        }
        drop(cursor);
        cursor = wal.cursor("one").unwrap();
    }
    assert_eq!(cursor.position(), lsns[7]);
    let to = wal.resume_lsn(lsns[7]).unwrap();
    cursor.seek(to).unwrap();
    assert_eq!((to, numbers(&mut cursor, 5)), (lsns[6], vec![20, 21]));
    wal.truncate_before(after[1]).unwrap();
    assert_eq!(wal.head_lsn(), after[0], "nothing above the truncation is confirmed");
}

/// Between the end of an epoch and the base of the next one there is no record.
#[test]
fn a_cursor_at_an_epochs_end_survives_a_head_at_the_next_base() {
    let (_folder, path, wal) = log_on_files(small());
    let lsns = fill(&wal, 0..3);
    let names = ["keeps", "open", "other"];
    for (name, max_lag) in names.into_iter().zip([u64::MAX, 0, 0]) {
        let mut cursor = wal.create_cursor(name, None, max_lag).unwrap();
        assert_eq!(numbers(&mut cursor, 3).len(), 3);
        cursor.save().unwrap();
    }
    let end = wal.cursor("keeps").unwrap().position();
    drop(wal);
    // Twice, the first time in an epoch that stays empty.
    for _ in 0..2 {
        let wal = small().open(&path).unwrap();
        let open = wal.cursor("open").unwrap();
        let base = wal.reserved_lsn();
        assert!(end < base);
        wal.truncate_before(base).unwrap();
        assert_eq!(wal.head_lsn(), base);
        open.save().unwrap();
        assert_eq!(wal.resume_lsn(end).unwrap(), end);
        assert_eq!(wal.resume_lsn(lsns[2]).unwrap(), base);
    }
    let wal = small().open(&path).unwrap();
    let mut open = wal.cursor("open").unwrap();
    fill(&wal, 3..5);
    assert_eq!(numbers(&mut open, 1), [3]);
    wal.truncate_before(open.position()).unwrap();
    assert_eq!(wal.head_lsn(), wal.records().unwrap().next().unwrap().unwrap().lsn());
    assert_eq!(wal.head_lsn().as_u64() % SEGMENT_BYTES, 0, "the first cursor keeps the record");
    for name in ["keeps", "other"] {
        assert_eq!(numbers(&mut wal.cursor(name).unwrap(), 9), [3, 4]);
    }
}

/// The next open forgets an epoch without records, and its base.
#[test]
fn a_cursor_at_the_base_of_an_empty_epoch_survives_later_opens() {
    let (_folder, path, wal) = log_on_files(small());
    fill(&wal, 0..3);
    drop(wal);
    let wal = small().open(&path).unwrap();
    let base = wal.reserved_lsn();
    drop(wal.create_cursor("made", Some(base), u64::MAX).unwrap());
    wal.create_cursor("sought", None, u64::MAX).unwrap().seek(base).unwrap();
    drop(wal);
    // More than the bases that the log remembers.
    (0..20).for_each(|_| drop(small().open(&path).unwrap()));
    let wal = small().open(&path).unwrap();
    assert!(wal.reserved_lsn() > base);
    fill(&wal, 3..5);
    for name in ["made", "sought"] {
        assert_eq!(numbers(&mut wal.cursor(name).unwrap(), 9), [3, 4]);
    }
}

#[test]
fn a_position_is_saved_only_when_what_lies_below_it_is_durable() {
    for sought in [false, true] {
        let (wal, log) = log_and_store();
        let end = wal.append(b"not durable yet").unwrap().end_lsn();
        let cursor = if sought {
            let mut cursor = wal.create_cursor("one", None, 0).unwrap();
            cursor.seek(end).unwrap();
            cursor
        } else {
            wal.create_cursor("one", Some(end), 0).unwrap()
        };
        log.kill();
        drop(cursor);
        let wal = log.after_power_loss(wal).open(Options::new().buffer_bytes(1 << 14));
        assert_eq!(contents(&wal).len(), 1);
        assert_eq!(wal.cursor("one").unwrap().position(), end);
    }
}

#[test]
fn a_save_that_failed_is_done_by_the_next_one() {
    let (wal, log) = log_and_store();
    let lsns = fill(&wal, 0..5);
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    assert_eq!(numbers(&mut cursor, 3).len(), 3);
    log.set(SAVE_STATE, Effect::NoSpace);
    assert_eq!(cursor.save().unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(wal.cursors().unwrap()[0].position, lsns[0]);
    drop(cursor);
    assert_eq!(wal.checkpoint(lsns[1]).unwrap_err().kind(), ErrorKind::NoSpace);
    log.set(SAVE_STATE, Effect::Pass);
    wal.checkpoint(lsns[1]).unwrap();
    assert_eq!(wal.cursors().unwrap()[0].position, lsns[3]);
}

#[test]
fn cancelling_ends_a_cursor_also_after_a_seek() {
    let (_folder, _, wal) = log_on_files(small());
    let lsns = fill(&wal, 0..3);
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    let canceller = cursor.canceller();
    cursor.seek(lsns[2]).unwrap();
    canceller.cancel();
    assert!(cursor.next(Duration::MAX).unwrap().is_none());
}

#[test]
fn copies_of_a_log_have_its_cursors() {
    let (_folder, path, wal) = log_on_files(small());
    fill(&wal, 0..6);
    let mut cursor = wal.create_cursor("one", None, u64::MAX).unwrap();
    assert_eq!(numbers(&mut cursor, 2).len(), 2);
    cursor.save().unwrap();
    let copy = path.with_extension("copy");
    wal.backup_to(&copy).unwrap();
    let copy = small().open(&copy).unwrap();
    assert_eq!(numbers(&mut copy.cursor("one").unwrap(), 9), [2, 3, 4, 5]);
}

#[test]
fn wrong_names_and_second_handles_are_refused() {
    let (_folder, _, wal) = log_on_files(small());
    let kind = |found: palisade::Result<Cursor>| found.map(drop).unwrap_err().kind();
    assert_eq!(kind(wal.cursor("none")), ErrorKind::NotFound);
    assert_eq!(wal.remove_cursor("none").unwrap_err().kind(), ErrorKind::NotFound);
    for name in ["", "a\0b", &"x".repeat(33)] {
        assert_eq!(kind(wal.create_cursor(name, None, 0)), ErrorKind::InvalidArgument);
    }
    let cursor = wal.create_cursor("one", None, 0).unwrap();
    assert_eq!(kind(wal.create_cursor("one", None, 0)), ErrorKind::AlreadyExists);
    assert_eq!(kind(wal.cursor("one")), ErrorKind::Locked);
    assert_eq!(wal.remove_cursor("one").unwrap_err().kind(), ErrorKind::Locked);
    drop(cursor);
    wal.remove_cursor("one").unwrap();
    for number in 0..64 {
        drop(wal.create_cursor(&number.to_string(), None, 0).unwrap());
    }
    assert_eq!(kind(wal.create_cursor("one", None, 0)), ErrorKind::InvalidArgument);
    assert_eq!(wal.cursors().unwrap().len(), 64);
}

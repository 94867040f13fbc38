//! Truncation from a record on, and records that take the place of what went, in one step.

use std::iter::repeat_n;

use super::truncations::{SEGMENT_BYTES, is_truncated, open, options};
use crate::on_disk;
use crate::prelude::*;

fn next(tail: &mut Tail) -> Option<Vec<u8>> {
    tail.next(Duration::ZERO).unwrap().map(|record| record.data().to_vec())
}

/// Opens the log again after each kind of end, and compares what is there.
fn check_later_runs(wal: Wal, store: &FaultyLog, expected: &Entries) {
    assert_eq!(contents(&wal), *expected);
    let store = store.after_kill(wal);
    let wal = open(&store);
    assert_eq!(contents(&wal), *expected);
    wal.clone().close().unwrap();
    let store = store.after_kill(wal);
    let wal = open(&store);
    assert_eq!(contents(&wal), *expected);
    let store = store.after_power_loss(wal);
    assert_eq!(contents(&open(&store)), *expected);
}

#[test]
fn any_record_and_all_above_it_can_be_truncated_or_replaced() {
    for replaces in [false, true] {
        for kept in [0, 1, 35, 38, 77, 99] {
            let (wal, store) = new_log(SEGMENT_BYTES, options());
            let mut expected = append_bytes(&wal, 0..100, 180);
            let gone = expected.split_off(kept);
            let highest = wal.reserved_lsn();
            if replaces {
                let datas = [vec![200; 70], vec![], vec![201; 500]];
                let lsns = wal.replace_from(gone[0].0, &datas).unwrap();
                assert!(lsns[0] >= highest && wal.durable_lsn() == wal.reserved_lsn());
                expected.extend(lsns.into_iter().zip(datas));
            } else {
                wal.truncate_from(gone[0].0).unwrap();
            }
            for (lsn, _) in &gone {
                assert!(is_truncated(wal.get(*lsn)) && is_truncated(wal.wait_durable(*lsn)));
            }
            check_later_runs(wal, &store, &expected);
        }
    }
}

/// Protection: an epoch without records leaves no trace. Named as the predecessor, it would be a
/// missing epoch for the next open.
#[test]
fn epochs_whose_first_record_goes_leave_no_trace() {
    // The first epoch of a log; one above others; and one above others below the head.
    for (runs, truncates_before) in [(1, false), (3, false), (3, true)] {
        let (mut wal, mut store) = new_log(SEGMENT_BYTES, options());
        let mut expected = Entries::new();
        for run in 1..runs {
            expected.extend(append_bytes(&wal, run..run + 1, 100));
            store = store.after_kill(wal);
            wal = open(&store);
        }
        if truncates_before {
            wal.truncate_before(wal.reserved_lsn()).unwrap();
            expected.clear();
        }
        let first = wal.append(b"goes").unwrap().lsn();
        wal.append(b"goes, too").unwrap();
        wal.truncate_from(first).unwrap();
        assert_eq!(contents(&wal), expected, "{runs} {truncates_before}");
        let replaced = wal.append(b"replaced").unwrap().lsn();
        let lsns = wal.replace_from(replaced, ["stays"]).unwrap();
        expected.push((lsns[0], b"stays".to_vec()));
        check_later_runs(wal, &store, &expected);
    }
}

/// Protection: the head may be at a segment that is not the first of its epoch, or within a batch.
#[test]
fn a_log_can_be_emptied_from_any_head() {
    for is_in_a_batch in [false, true] {
        let (wal, store) = new_log(SEGMENT_BYTES, options());
        let head = if is_in_a_batch {
            wal.append_batch(["first", "second"]).unwrap().lsns()[0]
        } else {
            // 32 frames fill a segment.
            let entries = append_bytes(&wal, 0..100, 232);
            let of_third = |(lsn, _): &&(Lsn, Vec<u8>)| lsn.as_u64() == 2 * SEGMENT_BYTES;
            entries.iter().find(of_third).expect("a record begins at a segment").0
        };
        wal.truncate_before(head).unwrap();
        let store = store.after_kill(wal);
        let wal = open(&store);
        wal.truncate_from(head).unwrap();
        assert!(wal.is_empty().unwrap());
        let lsn = wal.append(b"next").unwrap().lsn();
        check_later_runs(wal, &store, &vec![(lsn, b"next".to_vec())]);
    }
}

#[test]
fn a_batch_goes_as_a_whole() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let expected = append_bytes(&wal, 0..3, 100);
    let batch = wal.append_batch(["one", "two"]).unwrap().lsns().to_vec();
    let cases = [
        (batch[1], ErrorKind::InvalidArgument),
        (batch[0].plus(8), ErrorKind::NotARecord),
        (wal.reserved_lsn().plus(8), ErrorKind::OutOfRange),
    ];
    let made = store.count(NAME_SEGMENT);
    for (lsn, kind) in cases {
        for error in [wal.truncate_from(lsn).err(), wal.replace_from(lsn, ["new"]).err()] {
            let error = error.expect("refused");
            assert_eq!((error.kind(), error.lsn()), (kind, Some(lsn)), "{error}");
        }
    }
    assert_eq!(store.count(NAME_SEGMENT), made, "no epoch has begun");
    wal.truncate_from(batch[0]).unwrap();
    check_later_runs(wal, &store, &expected);
}

/// The members below the head are still to be archived. The other end can empty the log.
#[test]
fn the_rest_of_a_batch_is_truncated_from_below() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let batch = wal.append_batch(["below", "head", "above"]).unwrap().lsns().to_vec();
    wal.truncate_before(batch[1]).unwrap();
    for lsn in [batch[1], batch[2]] {
        let error = wal.truncate_from(lsn).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("truncate_before"), "{error}");
    }
    wal.truncate_before(wal.reserved_lsn()).unwrap();
    check_later_runs(wal, &store, &Entries::new());
}

/// An engine that repeats a call, or comes late, must not remove the records of another.
#[test]
fn the_lsn_of_a_truncated_record_names_no_other() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let mut expected = append_bytes(&wal, 0..2, 100);
    let first = expected.pop().unwrap().0;
    let vote = wal.replace_from(first, ["vote"]).unwrap()[0];
    expected.push((vote, b"vote".to_vec()));
    assert!(is_truncated(wal.truncate_from(first)));
    assert!(is_truncated(wal.replace_from(first, ["other"])));
    let store = store.after_kill(wal);
    let wal = open(&store);
    assert!(is_truncated(wal.truncate_from(first)));
    check_later_runs(wal, &store, &expected);
}

/// The next epoch could begin where the segment of the truncated record ends.
#[test]
fn a_position_at_a_segments_end_shows_a_truncation_below_it() {
    for replaces in [false, true] {
        let (wal, store) = new_log(SEGMENT_BYTES, options());
        // 32 frames fill the segment.
        let entries = append_bytes(&wal, 0..32, 232);
        wal.sync().unwrap();
        let saved = wal.get(entries[31].0).unwrap().next_lsn();
        assert_eq!(saved.as_u64(), SEGMENT_BYTES);
        let mut tail = wal.tail_from(saved).unwrap();
        if replaces {
            wal.replace_from(entries[31].0, ["other"]).unwrap();
        } else {
            wal.truncate_from(entries[31].0).unwrap();
            wal.commit(b"other").unwrap();
        }
        assert!(is_truncated(tail.next(Duration::ZERO)));
        drop(tail);
        let wal = open(&store.after_kill(wal));
        assert!(is_truncated(wal.records_from(saved)) && is_truncated(wal.tail_from(saved)));
        assert_eq!(wal.resume_lsn(saved).unwrap(), entries[31].0, "below what it has applied");
    }
}

/// The end of the last record is a place to truncate from, whatever the log keeps above it.
#[test]
fn the_end_of_the_last_record_may_have_padding_or_a_mark() {
    for pads in [false, true] {
        let (wal, store) = new_log(SEGMENT_BYTES, options().pad_to_block(pads));
        let lsn = wal.commit(b"stays").unwrap();
        let end = wal.get(lsn).unwrap().next_lsn();
        wal.checkpoint(end).unwrap();
        wal.truncate_from(end).unwrap();
        assert_eq!(contents(&wal), [(lsn, b"stays".to_vec())]);
        let max = vec![7; wal.max_record_bytes()];
        let lsns = wal.replace_from(wal.reserved_lsn(), [&max]).unwrap();
        assert_eq!(wal.get(lsns[0]).unwrap().data(), max);
        drop((wal, store));
    }
}

/// A reader sees the log before the replacement or after it.
#[test]
fn readers_beside_replacements_always_find_a_record() {
    watch();
    let wal = Wal::with_store(palisade::MemStore::new(SEGMENT_BYTES), options()).unwrap();
    let mut vote = wal.commit(b"vote").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // More threads than cores: some pause between their reads of the end and of the epochs.
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(!wal.is_empty().unwrap());
                    assert!(wal.live_bytes() > 0);
                    assert_eq!(wal.last_record().unwrap().unwrap().data(), b"vote");
                }
            });
        }
        for _ in 0..3_000 {
            vote = wal.replace_from(vote, ["vote"]).unwrap()[0];
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn at_the_end_a_truncation_is_empty_and_a_replacement_appends() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let mut expected = append_bytes(&wal, 0..3, 100);
    let end = wal.reserved_lsn();
    wal.truncate_from(end).unwrap();
    assert!(wal.replace_from(end, [[0_u8; 0]; 0]).unwrap().is_empty());
    assert_eq!((wal.reserved_lsn(), wal.durable_lsn()), (end, end), "no epoch has begun");
    let lsns = wal.replace_from(end, ["one", "two"]).unwrap();
    expected.extend(lsns.into_iter().zip([b"one".to_vec(), b"two".to_vec()]));
    check_later_runs(wal, &store, &expected);
}

#[test]
fn records_that_do_not_fit_are_refused_and_nothing_is_changed() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let mut expected = append_bytes(&wal, 0..3, 100);
    let most = framed_bytes(wal.max_record_bytes());
    let count = (most / framed_bytes(100)) as usize;
    let record = [7; 100];
    let too_many = wal.replace_from(expected[1].0, repeat_n(record, count + 1)).unwrap_err();
    let endless = wal.replace_from(expected[1].0, std::iter::repeat(record)).unwrap_err();
    for error in [too_many, endless] {
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    }
    assert_eq!(contents(&wal), expected);
    let lsns = wal.replace_from(expected[1].0, repeat_n(record, count)).unwrap();
    expected.truncate(1);
    expected.extend(lsns.into_iter().map(|lsn| (lsn, record.to_vec())));
    check_later_runs(wal, &store, &expected);
}

#[test]
fn tags_and_blocks_are_kept() {
    let (wal, store) = new_log(SEGMENT_BYTES, options().pad_to_block(true));
    let first = wal.commit_tagged(1, b"one").unwrap();
    let lsns = wal.replace_from_tagged(first, [(7, "seven"), (9, "nine")]).unwrap();
    assert!(wal.durable_lsn().as_u64().is_multiple_of(4096), "a sync ends with a block");
    assert_eq!(wal.get(lsns[1]).unwrap().tag(), 9);
    let last = wal.commit(b"last").unwrap();
    assert_eq!(lsns_of(&wal), [lsns[0], lsns[1], last]);
    assert_eq!(store.rewrites(), 0, "a block that a sync covered is written once");
}

/// The records become durable before the truncation: a crash at any call leaves all or nothing.
#[test]
fn a_crash_in_between_leaves_the_log_as_it_was_or_replaced() {
    for (op, is_replaced) in [(MAKE_SEGMENT, false), (SAVE_STATE, true)] {
        let (wal, store) = new_log(SEGMENT_BYTES, options());
        let mut expected = append_bytes(&wal, 0..5, 100);
        wal.sync().unwrap();
        store.set(op, Effect::Eio);
        let error = wal.replace_from(expected[2].0, ["new", "newer"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        let found = contents(&open(&store.after_power_loss(wal)));
        if is_replaced {
            expected.truncate(2);
            let data = |(_, data): &(Lsn, Vec<u8>)| data.clone();
            let datas: Vec<Vec<u8>> = found.iter().map(data).collect();
            assert_eq!(datas[2..], [b"new".to_vec(), b"newer".to_vec()]);
            assert_eq!(found[..2], expected);
        } else {
            assert_eq!(found, expected);
        }
    }
}

/// Protection: a truncation notes its first records as durable before it returns.
#[test]
fn damage_to_a_record_that_replaced_others_is_no_torn_tail() {
    let disk = SimDisk::new(1);
    let wal = on_disk::open(&disk);
    let old = wal.commit(b"old").unwrap();
    let new = wal.replace_from(old, ["new"]).unwrap()[0];
    end_process(&disk, wal);
    disk.restart();
    let (name, _) = on_disk::sector_of(new);
    let mut bytes = disk.file(&name).unwrap();
    bytes[(on_disk::HEADER_BYTES + new.as_u64() % on_disk::SEGMENT_BYTES) as usize + 24] ^= 1;
    disk.set_file(&name, bytes);
    let opened = on_disk::open_as(&disk, BufferKind::Auto, on_disk::options());
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Protection: a truncation passes the log buffer on to its epoch.
#[test]
fn an_append_after_a_replacement_survives_a_kill() {
    let disk = SimDisk::new(1);
    let wal = on_disk::open(&disk);
    let old = wal.commit(b"old").unwrap();
    wal.replace_from(old, ["new"]).unwrap();
    wal.append(b"later").unwrap();
    end_process(&disk, wal);
    disk.restart();
    let datas: Vec<_> = contents(&on_disk::open(&disk)).into_iter().map(|(_, data)| data).collect();
    assert_eq!(datas, [b"new".to_vec(), b"later".to_vec()]);
}

#[test]
fn a_tail_that_has_given_none_of_it_goes_on_above() {
    let wal = log_in_memory(1 << 16, 1 << 16);
    let mut from_head = wal.tail().unwrap();
    let first = wal.commit(b"first").unwrap();
    let mut from_first = wal.tail_from(first).unwrap();
    let above = wal.commit(b"above").unwrap();
    let mut from_above = wal.tail_from(above).unwrap();
    let mut from_end = wal.tail_from(wal.reserved_lsn()).unwrap();
    let mut has_given = wal.tail().unwrap();
    assert_eq!(next(&mut has_given), Some(b"first".to_vec()));
    wal.replace_from(first, ["second"]).unwrap();
    assert_eq!(next(&mut from_head), Some(b"second".to_vec()));
    assert_eq!(next(&mut from_first), Some(b"second".to_vec()), "it has given nothing");
    assert!(is_truncated(has_given.next(Duration::ZERO)));
    assert!(is_truncated(from_above.next(Duration::ZERO)), "what is below it is gone");
    assert!(is_truncated(from_end.next(Duration::ZERO)));
    // A tail that stands where an epoch begins has given nothing of it.
    let second = wal.records().unwrap().into_iter().next().unwrap().unwrap().lsn();
    wal.truncate_from(second).unwrap();
    let third = wal.commit(b"third").unwrap();
    let mut at_base = wal.tail_from(third).unwrap();
    wal.replace_from(third, ["fourth"]).unwrap();
    assert_eq!(next(&mut at_base), Some(b"fourth".to_vec()));
}

#[test]
fn a_tail_whose_next_record_goes_waits_for_another() {
    let wal = log_in_memory(1 << 16, 1 << 16);
    wal.commit(b"first").unwrap();
    let second = wal.commit(b"second").unwrap();
    let mut tail = wal.tail().unwrap();
    assert_eq!(next(&mut tail), Some(b"first".to_vec()));
    wal.truncate_from(second).unwrap();
    assert_eq!(next(&mut tail), None);
    wal.commit(b"third").unwrap();
    assert_eq!(next(&mut tail), Some(b"third".to_vec()));
    assert_eq!(tail.position(), wal.reserved_lsn());
}

/// The clean end is saved whatever was truncated.
#[test]
fn a_log_that_was_emptied_can_be_closed() {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    wal.truncate_from(append_bytes(&wal, 0..3, 100)[0].0).unwrap();
    wal.clone().close().unwrap();
    let wal = open(&store.after_kill(wal));
    assert!(wal.recovery_report().clean && wal.is_empty().unwrap());
}

/// The positions that consumers save: after a crash without new records they still hold.
#[test]
fn a_position_at_the_end_of_the_last_record_is_no_truncated_one() {
    let (wal, mut store) = new_log(SEGMENT_BYTES, options());
    let mut at_head = wal.tail().unwrap().position();
    store = store.after_kill(wal);
    for _ in 0..2 {
        let wal = open(&store);
        assert_eq!(wal.tail_from(at_head).unwrap().position(), at_head);
        let mut tail = wal.tail().unwrap();
        assert!(tail.next(Duration::ZERO).unwrap().is_none());
        at_head = tail.position();
        drop(tail);
        store = store.after_kill(wal);
    }
    let wal = open(&store);
    let entries = append_bytes(&wal, 0..3, 100);
    let end = wal.get(entries[2].0).unwrap().next_lsn();
    store = store.after_kill(wal);
    for _ in 0..3 {
        let wal = open(&store);
        let mut records = wal.records().unwrap();
        while records.next().unwrap().is_some() {}
        assert_eq!(records.position(), end);
        drop(records);
        assert!(wal.records_from(end).unwrap().next().unwrap().is_none());
        assert!(wal.tail_from(end).unwrap().next(Duration::ZERO).unwrap().is_none());
        assert_eq!(wal.tail_from(end).unwrap().position(), end);
        assert_eq!(wal.tail_from(wal.reserved_lsn()).unwrap().position(), end);
        for lsn in [end, wal.reserved_lsn()] {
            assert_eq!(wal.resume_lsn(lsn).unwrap(), end, "it holds in each later run");
        }
        let inside = end.plus(8);
        assert!(is_truncated(wal.records_from(inside)) && is_truncated(wal.tail_from(inside)));
        assert_eq!(wal.resume_lsn(inside).unwrap(), end);
        for (lsn, _) in &entries {
            assert_eq!(wal.resume_lsn(*lsn).unwrap(), *lsn);
        }
        let above = wal.resume_lsn(wal.reserved_lsn().plus(8)).unwrap_err();
        assert_eq!(above.kind(), ErrorKind::OutOfRange);
        store = store.after_kill(wal);
    }
}

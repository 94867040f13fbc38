//! Models of a full log buffer and of a full disk.

use super::store::{Fault, ModelStore};
use super::{Bound, LARGE_FRAME, Log, RING, Shape, check, large, spawn};
use crate::buffer::LAPS;
use crate::{ErrorKind, Lsn};

#[test]
fn two_threads_make_room_for_each_other() {
    check("two_threads_make_room_for_each_other", Bound::At(3), || {
        let log = Log::tiny();
        log.append(1);
        log.append(2);
        let other = spawn(&log, move |log| log.append(4));
        log.append(8);
        other.join().unwrap();
        log.write_filled();
        assert_eq!(log.store.marks().iter().sum::<u8>(), 15);
    });
}

#[test]
fn a_full_ring_does_not_stop_a_sync() {
    check("a_full_ring_does_not_stop_a_sync", Bound::At(3), || {
        let log = Log::tiny();
        log.append(1);
        let committer = spawn(&log, move |log| log.commit(2).unwrap());
        log.append(4);
        committer.join().unwrap();
        log.write_filled();
        assert_eq!(log.store.marks().iter().sum::<u8>(), 7);
    });
}

#[test]
fn a_full_disk_loses_nothing_and_does_not_poison() {
    check("a_full_disk_loses_nothing_and_does_not_poison", Bound::At(3), || {
        let log = Log::new(Shape::ROOMY, ModelStore::with_fault(Lsn::ZERO, Fault::Space));
        let other = spawn(&log, move |log| commit_again(log, 1));
        // This thread does not retry, so the other must finish without it.
        if let Err(error) = log.wal.commit(&large(2)) {
            assert_eq!(error.kind(), ErrorKind::NoSpace);
        }
        other.join().unwrap();
        log.wal.sync().unwrap();
        assert_eq!(log.store.marks().len(), 2, "both records were written once");
    });
}

/// Commits, and waits once more after `NoSpace`.
fn commit_again(log: &Log, mark: u8) {
    let ticket = log.wal.append(&large(mark)).unwrap();
    if let Err(error) = ticket.wait() {
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        ticket.wait().expect("the disk was full once");
    }
    log.store.assert_synced(ticket.lsn(), mark);
}

#[test]
fn an_append_that_waits_is_overtaken_for_bounded_laps() {
    check("an_append_that_waits_is_overtaken_for_bounded_laps", Bound::At(1), || {
        let log = Log::tiny();
        log.append(1);
        let tail = log.append(2).plus(LARGE_FRAME);
        let buffer = &log.wal.commit_state().buffer;
        let place = buffer.take_place(tail);
        // The last of them has to wait for the drop of the place.
        let last = LAPS * RING / LARGE_FRAME + 1;
        let other = spawn(&log, move |log| (0..last).map(|_| log.append(4)).last());
        let limit = tail.plus(LAPS * RING);
        log.write_filled();
        assert!(buffer.reserved() <= limit, "the room above is for the first");
        log.write_filled();
        assert!(buffer.reserved() <= limit, "the room above is for the first");
        drop(place);
        let end = other.join().unwrap().unwrap().plus(LARGE_FRAME);
        assert_eq!(end, limit.plus(LARGE_FRAME));
    });
}

#[test]
fn a_refusal_ends_once() {
    check("a_refusal_ends_once", Bound::At(3), || {
        let log = Log::new(Shape::ROOMY, ModelStore::new(Shape::ROOMY.base).above_its_limit());
        log.wal.refuse_above_limit();
        assert_eq!(log.wal.append(&large(1)).unwrap_err().kind(), ErrorKind::NoSpace);
        log.store.set_files(1);
        let other = spawn(&log, move |log| log.append(1));
        let lsn = log.append(2);
        assert_ne!(other.join().unwrap(), lsn, "no range is given twice");
        log.write_filled();
        assert_eq!(log.store.marks().iter().sum::<u8>(), 3);
    });
}

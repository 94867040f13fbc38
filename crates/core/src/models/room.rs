//! Models of a full log buffer and of a full disk: which thread makes room, and which gets an
//! error.

use super::store::{Fault, ModelStore};
use super::{Bound, Log, Shape, check, large, spawn};
use crate::{ErrorKind, Lsn};

#[test]
fn a_full_ring_needs_no_other_thread() {
    check("a_full_ring_needs_no_other_thread", Bound::None, || {
        let log = Log::tiny();
        // Five records fill the log buffer, a ring, two and a half times.
        for mark in 1..=5 {
            log.append(mark);
        }
        log.write_filled();
        assert_eq!(log.store.marks(), [1, 2, 3, 4, 5]);
    });
}

#[test]
fn two_threads_make_room_for_each_other() {
    check("two_threads_make_room_for_each_other", Bound::At(4), || {
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

/// Appends a record and waits for it. After `NoSpace` waits once more, as the error advises.
fn commit_again(log: &Log, mark: u8) {
    let ticket = log.wal.append(&large(mark)).unwrap();
    if let Err(error) = ticket.wait() {
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        ticket.wait().expect("the disk was full once");
    }
    log.store.assert_synced(ticket.lsn(), mark);
}

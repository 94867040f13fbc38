//! Models of group commit. An observer waits as a tail does: it neither leads nor requests a sync.

use std::sync::Arc;
use std::time::Duration;

use palisade_store::sync::{Instant, OnceLock};

use super::store::{Fault, ModelStore};
use super::{Bound, LARGE_FRAME, Log, SMALL_FRAME, Shape, check, large, spawn, take};
use crate::{ErrorKind, Lsn};

/// Checks P3 and P4.
#[test]
fn no_wake_up_is_lost() {
    check("no_wake_up_is_lost", Bound::At(3), || {
        let log = Log::roomy();
        let other = spawn(&log, move |log| log.commit(1).unwrap());
        log.commit(2).unwrap();
        other.join().unwrap();
    });
}

/// Checks P3 and P4.
#[test]
fn no_wake_up_of_three_is_lost() {
    check("no_wake_up_of_three_is_lost", Bound::At(2), || {
        let log = Log::roomy();
        // All three wait. The committer's record may be appended after the sync for the others
        // began.
        let lsn = log.append(1);
        let waiter = spawn(&log, move |log| {
            log.wal.wait_durable(lsn).unwrap();
            log.store.assert_synced(lsn, 1);
        });
        let committer = spawn(&log, move |log| log.commit(2).unwrap());
        log.wal.wait_durable(lsn).unwrap();
        waiter.join().unwrap();
        committer.join().unwrap();
    });
}

/// Checks P4.
#[test]
fn an_observer_is_woken_by_the_sync_of_another() {
    check("an_observer_is_woken_by_the_sync_of_another", Bound::At(3), || {
        let log = Log::roomy();
        let observer = spawn(&log, move |log| {
            for count in 1..=2 {
                let end = Lsn::new(count * LARGE_FRAME);
                assert!(log.wal.commit_state().observe(end, far(), || false).unwrap());
                log.store.assert_synced_to(end);
            }
        });
        log.commit(1).unwrap();
        log.commit(2).unwrap();
        observer.join().unwrap();
    });
}

/// Checks P10.
#[test]
fn a_cancelled_tail_does_not_sleep_on() {
    check("a_cancelled_tail_does_not_sleep_on", Bound::None, || {
        let log = Log::roomy();
        let cancelled = Arc::new(OnceLock::new());
        let seen = Arc::clone(&cancelled);
        let observer = spawn(&log, move |log| {
            let is_cancelled = || seen.get().is_some();
            log.wal.commit_state().observe(Lsn::new(1), far(), is_cancelled).unwrap()
        });
        assert!(cancelled.set(()).is_ok());
        log.wal.commit_state().wake_observers();
        assert!(!observer.join().unwrap(), "nothing is durable");
    });
}

#[test]
fn the_owner_of_a_hole_need_not_come_back() {
    check("the_owner_of_a_hole_need_not_come_back", Bound::None, || {
        let log = Log::roomy();
        let buffer = &log.wal.commit_state().buffer;
        let hole = take(buffer, SMALL_FRAME).expect("the log is open");
        let waiter = spawn(&log, move |log| log.commit(1).unwrap());
        // This thread fills the hole, and then makes no other call of the log.
        hole.pad();
        waiter.join().unwrap();
    });
}

#[test]
fn a_hole_keeps_nobody_below_it() {
    check("a_hole_keeps_nobody_below_it", Bound::At(3), || {
        let log = Log::roomy();
        let buffer = &log.wal.commit_state().buffer;
        let below = log.append(1);
        let hole = take(buffer, SMALL_FRAME).expect("the log is open");
        let waiter = spawn(&log, move |log| log.commit(2).unwrap());
        // The owner waits for the record below the hole before it fills the hole. If the other
        // thread leads, it must sync that record first.
        log.wal.wait_durable(below).unwrap();
        log.store.assert_synced(below, 1);
        hole.pad();
        waiter.join().unwrap();
    });
}

/// Checks P2 and P5.
#[test]
fn durable_is_never_ahead_of_the_sync() {
    check("durable_is_never_ahead_of_the_sync", Bound::At(3), || {
        let log = Log::roomy();
        let committer = spawn(&log, move |log| log.commit(1).unwrap());
        let writer = spawn(&log, move |log| {
            let lsn = log.append(2);
            log.write_filled();
            log.store.assert_held_to(log.wal.written_lsn());
            lsn
        });
        log.store.assert_synced_to(log.wal.durable_lsn());
        committer.join().unwrap();
        writer.join().unwrap();
        log.store.assert_synced_to(log.wal.durable_lsn());
    });
}

#[test]
fn a_padded_sync_ends_with_a_block() {
    check("a_padded_sync_ends_with_a_block", Bound::At(2), || {
        // The store checks where each sync ends.
        let log = Log::new(Shape::ROOMY, ModelStore::new(Lsn::ZERO).padded());
        let other = spawn(&log, move |log| log.commit(1).unwrap());
        log.commit(2).unwrap();
        other.join().unwrap();
    });
}

#[test]
fn watermarks_are_in_their_order() {
    check("watermarks_are_in_their_order", Bound::None, || {
        let log = Log::roomy();
        let committer = spawn(&log, move |log| log.commit(1).unwrap());
        let durable = log.wal.durable_lsn();
        let written = log.wal.written_lsn();
        let filled = log.wal.filled_lsn();
        assert!(durable <= written && written <= filled);
        assert!(filled <= log.wal.reserved_lsn());
        log.store.assert_held_to(written);
        committer.join().unwrap();
    });
}

#[test]
fn poison_reaches_every_waiter() {
    check("poison_reaches_every_waiter", Bound::At(3), || poison(Fault::Sync));
}

#[test]
fn poison_of_a_write_reaches_every_waiter() {
    check("poison_of_a_write_reaches_every_waiter", Bound::At(3), || poison(Fault::Write));
}

fn poison(fault: Fault) {
    let log = Log::new(Shape::ROOMY, ModelStore::with_fault(Lsn::ZERO, fault));
    let lsn = log.append(1);
    let observer = spawn(&log, move |log| assert_observer_fails(log, lsn.plus(1)));
    let other = spawn(&log, move |log| assert_poisoned(log, 2));
    let error = log.wal.wait_durable(lsn).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    other.join().unwrap();
    observer.join().unwrap();
    assert_eq!(log.wal.durable_lsn(), Lsn::ZERO, "nothing is acknowledged");
    assert_poisoned(&log, 4);
    let refused = log.wal.append(&large(5)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Poisoned, "nothing is reserved after a failure");
}

#[test]
fn poison_by_an_appender_reaches_an_observer() {
    check("poison_by_an_appender_reaches_an_observer", Bound::At(4), || {
        let log = Log::new(Shape::ROOMY, ModelStore::with_fault(Lsn::ZERO, Fault::Write));
        let observer = spawn(&log, move |log| assert_observer_fails(log, Lsn::new(1)));
        log.append(1);
        // No thread leads, so only this write meets the failure.
        log.wal.commit_state().write_filled().unwrap_err();
        observer.join().unwrap();
    });
}

fn assert_poisoned(log: &Log, mark: u8) {
    let error = log.wal.commit(&large(mark)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
}

fn assert_observer_fails(log: &Log, target: Lsn) {
    let error = log.wal.commit_state().observe(target, far(), || false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
}

/// Returns a time that never comes: time stands still in a model.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

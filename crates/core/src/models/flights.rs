//! Models of durable writes that overlap: order, failure, lack of space, room, buffered writes.

#![expect(clippy::disallowed_types, reason = "what all schedules show lies outside of the model")]

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use loom::thread;

use super::store::{Fault, ModelStore};
use super::{Bound, Log, Shape, check};
use crate::sync::Ordering;
use crate::{ErrorKind, Lsn};

fn log(shape: Shape, fault: Fault) -> Log {
    Log::new(shape, ModelStore::with_fault(shape.base, fault).overlapping())
}

/// Runs `model`, and checks that in some schedule two flights were in the air.
fn check_overlap(name: &str, bound: Bound, model: impl Fn() -> Log + Send + Sync + 'static) {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    check(name, bound, move || {
        let log = model();
        // Relaxed: read when all is over.
        seen.fetch_max(log.store.most_flying(), Ordering::Relaxed);
    });
    // Relaxed: as above.
    assert_eq!(most.load(Ordering::Relaxed), 2, "{name}: flights overlap in some schedule");
}

#[test]
fn flights_land_in_any_order() {
    check_overlap("flights_land_in_any_order", Bound::At(3), || {
        let log = log(Shape::BLOCKS, Fault::None);
        let other = {
            let log = log.clone();
            thread::spawn(move || log.commit(1).unwrap())
        };
        log.commit(2).unwrap();
        other.join().unwrap();
        log
    });
}

#[test]
fn flights_of_three_land_in_any_order() {
    check_overlap("flights_of_three_land_in_any_order", Bound::At(1), || {
        let log = log(Shape::BLOCKS, Fault::None);
        let others = [1, 2].map(|mark| {
            let log = log.clone();
            thread::spawn(move || log.commit(mark).unwrap())
        });
        log.commit(3).unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
        log
    });
}

#[test]
fn a_flight_that_fails_is_never_passed() {
    check_overlap("a_flight_that_fails_is_never_passed", Bound::At(3), || {
        let log = log(Shape::BLOCKS, Fault::LowestFlight);
        let fails = |log: &Log, mark| {
            assert_eq!(log.commit(mark).unwrap_err().kind(), ErrorKind::Poisoned);
        };
        let other = {
            let log = log.clone();
            thread::spawn(move || fails(&log, 1))
        };
        fails(&log, 2);
        other.join().unwrap();
        assert_eq!(log.wal.durable_lsn(), Lsn::ZERO);
        log
    });
}

#[test]
fn a_buffered_write_never_passes_a_flight_that_fails() {
    let name = "a_buffered_write_never_passes_a_flight_that_fails";
    check(name, Bound::At(2), || {
        let log = log(Shape::BLOCKS, Fault::LowestFlight);
        let flusher = {
            let log = log.clone();
            thread::spawn(move || {
                let appended = log.wal.append(&super::large(1));
                let flushed = appended.and_then(|ticket| log.wal.flush_to_os(ticket.lsn()));
                if let Err(error) = flushed {
                    assert_eq!(error.kind(), ErrorKind::Poisoned);
                }
            })
        };
        let failed = log.wal.commit(&super::large(2)).is_err();
        flusher.join().unwrap();
        if failed {
            assert_eq!(log.wal.written_lsn(), Lsn::ZERO, "the flight's room is not given away");
        }
    });
}

#[test]
fn a_lack_of_space_in_the_air_loses_nothing() {
    check_overlap("a_lack_of_space_in_the_air_loses_nothing", Bound::At(2), || {
        let log = log(Shape::BLOCKS, Fault::SpaceOfLowestFlight);
        let wait = |log: &Log, mark| {
            let lsn = log.append(mark);
            while let Err(error) = log.wal.wait_durable(lsn) {
                assert_eq!(error.kind(), ErrorKind::NoSpace);
                thread::yield_now();
            }
            log.store.assert_synced(lsn, mark);
        };
        let other = {
            let log = log.clone();
            thread::spawn(move || wait(&log, 1))
        };
        wait(&log, 2);
        other.join().unwrap();
        let mut marks = log.store.marks();
        marks.sort_unstable();
        assert_eq!(marks, [1, 2], "each is there once");
        log
    });
}

#[test]
fn a_full_ring_waits_for_the_lowest_flight() {
    // Two blocks fill the ring: what comes third needs the room of the first.
    let shape = Shape { ring_bytes: 2 * super::RING, ..Shape::BLOCKS };
    check("a_full_ring_waits_for_the_lowest_flight", Bound::At(2), move || {
        let log = log(shape, Fault::None);
        let other = {
            let log = log.clone();
            thread::spawn(move || log.commit(1).unwrap())
        };
        log.commit(2).unwrap();
        log.commit(3).unwrap();
        other.join().unwrap();
        assert_eq!(log.store.marks().len(), 3);
    });
}

#[test]
fn a_buffered_write_meets_no_flight() {
    check("a_buffered_write_meets_no_flight", Bound::At(3), || {
        let log = log(Shape::BLOCKS, Fault::None);
        let flusher = {
            let log = log.clone();
            thread::spawn(move || {
                let lsn = log.append(1);
                log.wal.flush_to_os(lsn).unwrap();
                log.store.assert_held_to(lsn.plus(super::LARGE_FRAME));
            })
        };
        log.commit(2).unwrap();
        log.commit(3).unwrap();
        flusher.join().unwrap();
        log.wal.sync().unwrap();
        assert_eq!(log.store.marks().len(), 3);
    });
}

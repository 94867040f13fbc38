//! Models of durable writes that overlap: order, failure, lack of space, room, buffered writes.

use std::sync::Arc;

use loom::thread;

use super::commit::far;
use super::store::{Fault, ModelStore};
use super::{Bound, LARGE_FRAME, Log, Shape, check};
use crate::sync::{Figure, Ordering};
use crate::{ErrorKind, Lsn, Result};

fn log(shape: Shape, fault: Fault) -> Log {
    Log::new(shape, ModelStore::with_fault(shape.base, fault).overlapping())
}

/// Runs `model`, and checks that in some schedule two flights were in the air.
fn check_overlap(name: &str, bound: Bound, model: impl Fn() -> Log + Send + Sync + 'static) {
    // One bit for each number of flights that were in the air. Outside of the model: see `check`.
    let numbers = Arc::new(Figure::new(0));
    let seen = Arc::clone(&numbers);
    check(name, bound, move || {
        let log = model();
        // Relaxed: read when all is over.
        seen.fetch_or(1 << log.store.most_flying(), Ordering::Relaxed);
    });
    // Relaxed: as above.
    let numbers = numbers.load(Ordering::Relaxed);
    assert_eq!(numbers.checked_ilog2(), Some(2), "{name}: flights overlap in some schedule");
}

#[test]
fn flights_land_in_any_order() {
    check_overlap("flights_land_in_any_order", Bound::At(2), || {
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
        let lsn = log.append(3);
        let others = [1, 2].map(|mark| {
            let log = log.clone();
            thread::spawn(move || log.commit(mark).unwrap())
        });
        wait(&log, lsn, 3).unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
        log
    });
}

#[test]
fn a_flight_that_fails_is_never_passed() {
    check_overlap("a_flight_that_fails_is_never_passed", Bound::At(2), || {
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
        let other = {
            let log = log.clone();
            // This one does not come back: the other may not depend on it.
            thread::spawn(move || match log.commit(1) {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace),
            })
        };
        commit_again(&log, 2);
        other.join().unwrap();
        log.wal.sync().unwrap();
        assert_each_is_there_once(&log);
        log
    });
}

#[test]
fn who_waits_for_what_went_back_has_a_leader() {
    check_overlap("who_waits_for_what_went_back_has_a_leader", Bound::At(2), || {
        let log = log(Shape::BLOCKS, Fault::SpaceOfLowestFlight);
        let hasty = {
            let log = log.clone();
            // Its deadline comes with the lack of space.
            thread::spawn(move || {
                let end = log.append(1).plus(LARGE_FRAME);
                match log.wal.commit_state().wait(end, Some(far())) {
                    Ok(true) => log.store.assert_synced_to(end),
                    Ok(false) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace),
                }
            })
        };
        commit_again(&log, 2);
        hasty.join().unwrap();
        log.wal.sync().unwrap();
        assert_each_is_there_once(&log);
        log
    });
}

/// Commits, and waits again each time that space is lacking: at once, then less hastily.
fn commit_again(log: &Log, mark: u8) {
    let lsn = log.append(mark);
    let mut was_refused = false;
    while let Err(error) = wait(log, lsn, mark) {
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        if std::mem::replace(&mut was_refused, true) {
            thread::yield_now();
        }
    }
}

fn wait(log: &Log, lsn: Lsn, mark: u8) -> Result<()> {
    log.wal.wait_durable(lsn)?;
    log.store.assert_synced(lsn, mark);
    Ok(())
}

fn assert_each_is_there_once(log: &Log) {
    let mut marks = log.store.marks();
    marks.sort_unstable();
    assert_eq!(marks, [1, 2], "each is there once");
}

#[test]
fn a_full_ring_waits_for_the_lowest_flight() {
    // Two blocks fill the ring: what comes third needs the room of the first.
    let shape = Shape { ring_bytes: 2 * super::RING, ..Shape::BLOCKS };
    check("a_full_ring_waits_for_the_lowest_flight", Bound::At(1), move || {
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
    check("a_buffered_write_meets_no_flight", Bound::At(2), || {
        let log = log(Shape::BLOCKS, Fault::None);
        let flusher = {
            let log = log.clone();
            thread::spawn(move || {
                let lsn = log.append(1);
                log.wal.flush_to_os(lsn).unwrap();
                log.store.assert_held_to(lsn.plus(LARGE_FRAME));
            })
        };
        log.commit(2).unwrap();
        flusher.join().unwrap();
        log.wal.sync().unwrap();
        assert_eq!(log.store.marks().len(), 2);
    });
}

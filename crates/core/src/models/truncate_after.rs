//! Models of the truncation of the suffix.

use palisade_store::sync::yield_now;

use super::store::ModelStore;
use super::{
    Bound, LARGE_FRAME, LONG_SEGMENT, Log, RING, SMALL_FRAME, Shape, bare_buffer, check, seed,
    spawn, take,
};
use crate::buffer::{Buffer, NotFixed, Stop};
use crate::frame::EpochSeed;
use crate::{ErrorKind, Lsn, Uuid};

const BASE: Lsn = Lsn::new(LONG_SEGMENT);
/// The base of a bare buffer's second epoch, within its room.
const BUFFER_BASE: Lsn = Lsn::new(2 * RING);

fn second_seed() -> EpochSeed {
    EpochSeed::new(Uuid([7; 16]), 2, 3)
}

fn wait_until_filled(buffer: &Buffer, end: Lsn) {
    let mut at = Lsn::ZERO;
    while at < end {
        match buffer.published_end(at) {
            Some(next) => at = next,
            None => yield_now(),
        }
    }
    assert_eq!(at, end, "the end that the flag fixed is that of a reservation");
}

/// Checks P9.
#[test]
fn a_reservation_knows_the_seed_of_its_epoch() {
    check("a_reservation_knows_the_seed_of_its_epoch", Bound::None, || {
        let buffer = bare_buffer();
        let owner = spawn(&buffer, move |buffer| {
            for _ in 0..2 {
                let Some(reserved) = take(buffer, SMALL_FRAME) else { continue };
                let is_second = reserved.lsn() >= BUFFER_BASE;
                let expected = if is_second { second_seed() } else { seed() };
                assert_eq!(buffer.seed(), expected, "at {}", reserved.lsn());
                reserved.pad();
            }
        });
        let paused = buffer.stop_at_block(Stop::Paused);
        let (end, _) = paused.expect("nobody else sets a flag");
        wait_until_filled(&buffer, end);
        buffer.resume(BUFFER_BASE, second_seed());
        assert!(buffer.reserved() >= BUFFER_BASE);
        owner.join().unwrap();
    });
}

#[test]
fn a_flag_that_comes_during_a_pause_stays() {
    check("a_flag_that_comes_during_a_pause_stays", Bound::None, || {
        let buffer = bare_buffer();
        let closer = spawn(&buffer, move |buffer| buffer.stop(Stop::Closed));
        let owner = spawn(&buffer, move |buffer| {
            if let Some(reserved) = take(buffer, SMALL_FRAME) {
                reserved.pad();
            }
        });
        match buffer.stop_at_block(Stop::Paused) {
            Ok((end, _)) => {
                wait_until_filled(&buffer, end);
                buffer.resume(BUFFER_BASE, second_seed());
            }
            Err(error) => assert_eq!(error, NotFixed::Stopped(Stop::Closed)),
        }
        closer.join().unwrap();
        owner.join().unwrap();
        assert_eq!(buffer.tail(), Err(Stop::Closed));
    });
}

#[test]
fn a_pause_loses_no_append_and_places_none_twice() {
    check("a_pause_loses_no_append_and_places_none_twice", Bound::At(4), || {
        let log = Log::new(Shape { ring_bytes: 4 * RING, ..Shape::ROOMY }, store());
        let kept = log.append(1);
        let appender = spawn(&log, move |log| log.append(2));
        log.wal.truncate_above(kept, kept.plus(LARGE_FRAME)).unwrap();
        let lsn = appender.join().unwrap();
        log.write_filled();
        let is_there = |frame: &&super::store::WrittenFrame| frame.mark == 2;
        let frames = log.store.frames();
        let places: Vec<Lsn> = frames.iter().filter(is_there).map(|frame| frame.lsn).collect();
        assert_eq!(places, [lsn], "it lies where its append returned, and nowhere else");
        assert!(lsn < BASE || log.wal.reserved_lsn() > BASE);
    });
}

#[test]
fn watermarks_are_in_their_order_beside_a_jump() {
    check("watermarks_are_in_their_order_beside_a_jump", Bound::None, || {
        let log = Log::roomy();
        let reader = spawn(&log, move |log| {
            let durable = log.wal.durable_lsn();
            let written = log.wal.written_lsn();
            let filled = log.wal.filled_lsn();
            assert!(durable <= written && written <= filled);
            assert!(filled <= log.wal.reserved_lsn());
        });
        let commit = log.wal.commit_state();
        assert!(commit.buffer.stop_at_block(Stop::Paused).is_ok());
        commit.with_leadership(|cursor| commit.jump(cursor, BASE, second_seed())).unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_truncated_record_is_never_acknowledged_afterwards() {
    check("a_truncated_record_is_never_acknowledged_afterwards", Bound::At(3), || {
        let log = Log::new(Shape::ROOMY, store());
        let kept = log.append(1);
        let truncated = log.append(2);
        let waiter = spawn(&log, move |log| {
            let has_jumped = log.wal.durable_lsn() >= BASE;
            match log.wal.wait_durable(truncated) {
                Ok(()) => {
                    assert!(!has_jumped, "the watermark stands for what is gone");
                    log.store.assert_synced(truncated, 2);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Truncated),
            }
        });
        log.wal.truncate_above(kept, kept.plus(LARGE_FRAME)).unwrap();
        let error = log.wal.wait_durable(truncated).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated);
        waiter.join().unwrap();
    });
}

fn store() -> ModelStore {
    ModelStore::new(Lsn::ZERO)
}

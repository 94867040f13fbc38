//! Models of the log buffer.

use std::sync::Arc;

use super::store::ModelStore;
use super::{Bound, LARGE_FRAME, Log, RING, SMALL_FRAME, Shape, bare_buffer, check, spawn, take};
use crate::buffer::{Buffer, Stop};
use crate::frame::Kind;
use crate::{ErrorKind, Lsn};

fn reserve_and_pad(buffer: &Buffer, sizes: &[u64]) -> Vec<(Lsn, Lsn)> {
    let mut ranges = Vec::new();
    for &bytes in sizes {
        let Some(reserved) = take(buffer, bytes) else { continue };
        ranges.push((reserved.lsn(), reserved.end()));
        reserved.pad();
    }
    ranges
}

fn assert_cover(mut ranges: Vec<(Lsn, Lsn)>, end: Lsn) {
    ranges.sort_unstable();
    let mut at = Lsn::ZERO;
    for (from, to) in ranges {
        assert_eq!(from, at, "ranges touch and do not overlap");
        at = to;
    }
    assert_eq!(at, end);
}

#[test]
fn reservations_never_overlap() {
    check("reservations_never_overlap", Bound::None, || {
        let buffer = bare_buffer();
        let reserve = |buffer: &Arc<Buffer>| reserve_and_pad(buffer, &[SMALL_FRAME, LARGE_FRAME]);
        let others = [spawn(&buffer, reserve), spawn(&buffer, reserve)];
        let mut ranges = reserve_and_pad(&buffer, &[LARGE_FRAME]);
        for other in others {
            ranges.extend(other.join().unwrap());
        }
        assert_cover(ranges, buffer.reserved());
    });
}

/// Checks P1.
#[test]
fn bytes_below_filled_are_readable() {
    check("bytes_below_filled_are_readable", Bound::At(3), || {
        let log = Log::roomy();
        let others = [1, 2].map(|mark| spawn(&log, move |log| log.append(mark)));
        // The store checks each frame that it gets. The checker finds a data race on a byte.
        log.write_filled();
        log.write_filled();
        for other in others {
            other.join().unwrap();
        }
        let end = log.write_filled();
        assert_eq!(end, Lsn::new(2 * LARGE_FRAME));
        assert_eq!(log.store.marks().iter().sum::<u8>(), 3, "both records were written");
    });
}

/// Checks P2.
#[test]
fn ring_wrap_never_overwrites_unwritten_bytes() {
    check("ring_wrap_never_overwrites_unwritten_bytes", Bound::At(5), || {
        // The base makes records lie across the end of the ring's memory.
        let shape = Shape { base: Lsn::new(48), ..Shape::TINY };
        let log = Log::new(shape, ModelStore::new(shape.base));
        log.append(1);
        log.append(2);
        let writer = spawn(&log, move |log| log.write_filled());
        let appender = spawn(&log, move |log| {
            log.append(3);
        });
        writer.join().unwrap();
        appender.join().unwrap();
        log.write_filled();
        assert_eq!(log.store.marks(), [1, 2, 3]);
    });
}

#[test]
fn two_appenders_share_the_room_of_one_lap() {
    check("two_appenders_share_the_room_of_one_lap", Bound::None, || {
        let log = Log::tiny();
        log.append(1);
        let other = spawn(&log, move |log| log.append(2));
        // One appender gets the last room, and the other has to make room. If both look for room
        // before either reserves, the second one to reserve waits with its claim.
        log.append(4);
        other.join().unwrap();
        log.write_filled();
        assert_eq!(log.store.marks().iter().sum::<u8>(), 7);
    });
}

#[test]
fn exactly_one_crosser_pads() {
    check("exactly_one_crosser_pads", Bound::None, || {
        let segment_bytes = RING;
        let shape = Shape { segment_bytes, ..Shape::ROOMY };
        let log = Log::new(shape, ModelStore::new(shape.base));
        drop(log.wal.append(&[]).unwrap());
        let others = [1, 2].map(|mark| spawn(&log, move |log| log.append(mark)));
        for other in others {
            let lsn = other.join().unwrap();
            let last = lsn.plus(LARGE_FRAME - 1);
            assert_eq!(lsn.segment(segment_bytes), last.segment(segment_bytes), "it crosses");
        }
        log.write_filled();
        // [24, 56) is a record. [56, 88) crosses the segment's end at 64, so it becomes padding:
        // 8 bytes below the end and 24 above. The crosser's record begins at 88.
        let is_padding = |kind| kind == Kind::Padding;
        let frames = log.store.frames();
        let paddings: Vec<_> = frames.iter().filter(|frame| is_padding(frame.kind)).collect();
        let places: Vec<_> = paddings.iter().map(|frame| frame.lsn.as_u64()).collect();
        assert_eq!(places, [56, 64], "one crosser padded, once");
        assert_eq!(log.wal.reserved_lsn(), Lsn::new(120));
        assert_eq!(log.store.marks().len(), 3);
    });
}

#[test]
fn a_flag_fixes_the_end() {
    check("a_flag_fixes_the_end", Bound::None, || {
        let buffer = bare_buffer();
        let owner =
            spawn(&buffer, move |buffer| reserve_and_pad(buffer, &[SMALL_FRAME, LARGE_FRAME]));
        let closer = spawn(&buffer, move |buffer| buffer.stop(Stop::Closed));
        let seen = buffer.reserved();
        let end = buffer.stop(Stop::Poisoned);
        let ranges = owner.join().unwrap();
        assert_eq!(closer.join().unwrap(), end, "the first flag fixed the end");
        assert!(seen <= end && buffer.reserved() == end);
        assert_cover(ranges, end);
        assert_eq!(buffer.tail(), Err(Stop::Poisoned));
    });
}

#[test]
fn a_close_keeps_every_append_that_returned() {
    check("a_close_keeps_every_append_that_returned", Bound::At(4), || {
        let log = Log::roomy();
        let appender = spawn(&log, move |log| match log.wal.append(&super::large(1)) {
            Ok(ticket) => Some(ticket.lsn()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed);
                None
            }
        });
        log.wal.clone().close().unwrap();
        assert!(log.store.is_clean());
        if let Some(lsn) = appender.join().unwrap() {
            log.store.assert_synced(lsn, 1);
        }
    });
}

#[test]
fn a_dropped_reservation_leaves_no_hole() {
    check("a_dropped_reservation_leaves_no_hole", Bound::None, || {
        let log = Log::roomy();
        let quitter = spawn(&log, move |log| {
            let buffer = &log.wal.commit_state().buffer;
            drop(take(buffer, SMALL_FRAME).expect("the log is open"));
        });
        // Hangs if the range below stays a hole.
        log.commit(1).unwrap();
        quitter.join().unwrap();
        log.write_filled();
        let bytes: u64 =
            log.store.frames().iter().map(|frame| frame.end.bytes_since(frame.lsn)).sum();
        assert_eq!(bytes, SMALL_FRAME + LARGE_FRAME, "the range is padding");
    });
}

//! Logs that are full: what takes their room, and that they can be emptied.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use palisade::disk::{Disk, MemDisk};
use palisade::sim::{CallKind, Fault, FaultKind, SimDisk};
use palisade::{Error, ErrorKind, Lsn, OnRelease, ReleasedSegment, Result};
use palisade_streams::{Options, Stream, Streams};

const SEGMENT: u64 = 64 << 10;
const FILE_HEADER: u64 = 4096;

fn log() -> palisade::Options {
    palisade::Options::new().segment_bytes(SEGMENT).buffer_bytes(64 << 10)
}

fn limited(segments: u64) -> palisade::Options {
    log().max_bytes(segments * (SEGMENT + FILE_HEADER))
}

/// The test does the keeper's steps.
fn by_hand(log: palisade::Options) -> Options {
    Options::new().log(log).background(false)
}

fn in_memory(log: palisade::Options) -> Streams {
    by_hand(log).open_on(Arc::new(MemDisk::new()), "/log").unwrap()
}

fn settle(streams: &Streams) {
    while streams.maintain().unwrap() {}
}

/// Does steps until one fails or nothing is left to do.
fn settle_or_fail(streams: &Streams) -> Result<()> {
    let ended = (0..10_000).find_map(|_| match streams.maintain() {
        Ok(true) => None,
        Ok(false) => Some(Ok(())),
        Err(error) => Some(Err(error)),
    });
    ended.expect("the keeper never ends")
}

/// Appends until there is no room. Returns the next index.
fn fill(stream: &Stream, data: &[u8]) -> u64 {
    let error = loop {
        if let Err(error) = stream.append(data) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    stream.next_index().unwrap()
}

fn truncate_all(stream: &Stream) {
    stream.truncate_before(stream.next_index().unwrap()).unwrap();
}

#[test]
fn truncations_leave_room_for_what_keeps_a_full_log() {
    let streams = in_memory(limited(12));
    let stream = streams.create("s").unwrap();
    let next = fill(&stream, &[7; 8]);
    let error = (1..next).find_map(|first| stream.truncate_before(first).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    // The log below is not full: what is in its buffer can be written.
    streams.sync().unwrap();
    // The lowest segments have the anchor of the stream, and nothing else that is live.
    settle(&streams);
    assert!(streams.log().head_lsn().as_u64() >= SEGMENT);
    truncate_all(&stream);
    settle(&streams);
    stream.append("there is room").unwrap();
}

#[test]
fn threads_that_truncate_a_full_log_do_not_fill_it() {
    for _ in 0..20 {
        let streams = in_memory(limited(8));
        let all: Vec<_> = (0..8).map(|n| streams.create(format!("{n}")).unwrap()).collect();
        while all.iter().all(|stream| stream.append([7; 8]).is_ok()) {}
        std::thread::scope(|scope| {
            for stream in &all {
                scope.spawn(|| {
                    let next = stream.next_index().unwrap();
                    let refused = (1..next).find_map(|first| stream.truncate_before(first).err());
                    assert!(refused.is_none_or(|error| error.kind() == ErrorKind::NoSpace));
                });
            }
        });
        streams.sync().unwrap();
        let (space, end) = (streams.log().space().unwrap(), streams.log().reserved_lsn());
        assert!(space.segments <= 8, "{space:?}");
        assert!(end.as_u64() <= 7 * SEGMENT, "{space:?}, {end}");
    }
}

#[test]
fn streams_can_be_emptied_when_single_truncations_have_no_room() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let open = || by_hand(limited(12)).open_on(Arc::clone(&disk), "/log").unwrap();
    let streams = open();
    let (slow, fast) = (streams.create("slow").unwrap(), streams.create("fast").unwrap());
    // Too much to be moved.
    while streams.log().reserved_lsn().as_u64() < 3 * SEGMENT {
        slow.append([7; 1000]).unwrap();
    }
    let next = fill(&fast, &[]);
    let truncate_one = |first| {
        let refused = fast.truncate_before(first).err();
        settle(&streams);
        refused
    };
    let refused = (1..next).find_map(truncate_one);
    assert_eq!(refused.unwrap().kind(), ErrorKind::NoSpace);
    drop((slow, fast));
    // Also after a kill, which costs a segment.
    streams.sync().unwrap();
    streams.log().clone().abandon();
    drop(streams);
    let streams = open();
    for name in ["slow", "fast"] {
        truncate_all(&streams.stream(name).unwrap());
    }
    settle(&streams);
    streams.create("there is room").unwrap();
}

#[test]
fn a_log_above_its_limit_can_be_emptied() {
    for segments in [11, 10, 9, 8] {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let open = |segments| by_hand(limited(segments)).open_on(Arc::clone(&disk), "/log");
        let streams = open(12).unwrap();
        fill(&streams.create("s").unwrap(), &[7; 8]);
        streams.close().unwrap();
        drop(streams);
        let streams = open(segments).unwrap();
        settle(&streams);
        let stream = streams.stream("s").unwrap();
        // One entry at a time has no room, or no more.
        while stream.truncate_before(stream.first_index().unwrap() + 1).is_ok() {}
        truncate_all(&stream);
        settle(&streams);
        streams.create("there is room").unwrap();
    }
}

#[test]
fn truncations_have_room_after_two_kills_of_a_full_log() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let open = || by_hand(limited(12)).open_on(Arc::clone(&disk), "/log").unwrap();
    let streams = open();
    fill(&streams.create("s").unwrap(), &[7; 1000]);
    streams.sync().unwrap();
    streams.log().clone().abandon();
    drop(streams);
    let streams = open();
    streams.stream("s").unwrap().truncate_before(1).unwrap().wait().unwrap();
    streams.log().clone().abandon();
    drop(streams);
    let streams = open();
    truncate_all(&streams.stream("s").unwrap());
    settle(&streams);
    streams.create("there is room").unwrap();
}

#[test]
fn values_and_positions_have_room_after_a_kill_of_a_full_log() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let open = || by_hand(limited(12)).open_on(Arc::clone(&disk), "/log").unwrap();
    let streams = open();
    let stream = streams.create("s").unwrap();
    stream.consumer("c").unwrap();
    let next = fill(&stream, &[7; 1000]);
    streams.sync().unwrap();
    streams.log().clone().abandon();
    drop((stream, streams));
    let streams = open();
    let stream = streams.stream("s").unwrap();
    stream.put("vote", "7").unwrap();
    let mut consumer = stream.consumer("c").unwrap();
    while consumer.next(Duration::ZERO).unwrap().is_some() {}
    consumer.ack(next - 1).unwrap();
    // The rest is for truncations, also if values and positions take all that they may.
    while stream.put("vote", "8").is_ok() || consumer.seek(next).is_ok() {}
    stream.truncate_before(next - 1).unwrap().wait().unwrap();
    settle(&streams);
    stream.append("there is room").unwrap();
}

#[test]
fn footers_leave_the_room_of_values() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let open = || by_hand(limited(48)).open_on(Arc::clone(&disk), "/log").unwrap();
    let streams = open();
    fill(&streams.create("s").unwrap(), &[7; 8]);
    settle(&streams);
    streams.log().clone().abandon();
    drop(streams);
    open().stream("s").unwrap().put("vote", "7").unwrap();
}

#[test]
fn segments_kept_by_a_log_cursor_are_released_when_it_reads_on() {
    let streams = in_memory(limited(12));
    let stream = streams.create("s").unwrap();
    let mut cursor = streams.log().create_cursor("c", None, u64::MAX).unwrap();
    let next = fill(&stream, &[7; 1000]);
    stream.truncate_before(next).unwrap().wait().unwrap();
    settle(&streams);
    while cursor.next(Duration::ZERO).unwrap().is_some() {
        cursor.confirm();
    }
    cursor.save().unwrap();
    assert_eq!(stream.append([7; 1000]).unwrap_err().kind(), ErrorKind::NoSpace);
    settle(&streams);
    stream.append("there is room").unwrap();
}

/// An archive that may be away for a while.
#[derive(Debug, Default)]
struct Archive {
    is_away: AtomicBool,
    refused: AtomicU64,
}

impl Archive {
    fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }
}

impl OnRelease for Archive {
    fn released(&self, _: &ReleasedSegment<'_>) -> Result<()> {
        if self.is_away.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            // As if it was a log that has failed. The log that calls has not.
            return Err(Error::new(ErrorKind::Poisoned, "the archive is away"));
        }
        Ok(())
    }
}

/// Fills a log whose archive is away, and empties the streams. Returns the archive, the log and an
/// open of the same log.
fn with_left_files() -> (Arc<Archive>, Streams, impl Fn() -> Streams) {
    let archive = Arc::new(Archive::default());
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let open = {
        let archive = Arc::clone(&archive);
        move || {
            let log = limited(12).on_release(Arc::clone(&archive));
            by_hand(log).open_on(Arc::clone(&disk), "/log").unwrap()
        }
    };
    let streams = open();
    let stream = streams.create("s").unwrap();
    fill(&stream, &[7; 1000]);
    archive.set_away(true);
    truncate_all(&stream);
    assert_eq!(settle_or_fail(&streams).unwrap_err().kind(), ErrorKind::Poisoned);
    (archive, streams, open)
}

#[test]
fn files_that_a_failed_release_has_left_take_room() {
    let (archive, streams, _) = with_left_files();
    let stream = streams.stream("s").unwrap();
    let taken = streams.log().space().unwrap().segments;
    let next = fill(&stream, &[7; 1000]);
    assert!(streams.log().space().unwrap().segments <= taken + 1);
    // What is kept for truncations is still there.
    for first in next.saturating_sub(50)..next {
        stream.truncate_before(first).unwrap();
    }
    archive.set_away(false);
    settle(&streams);
    stream.append("there is room").unwrap();
}

#[test]
fn files_of_an_earlier_process_run_take_room_until_released() {
    let (archive, streams, open) = with_left_files();
    streams.close().unwrap();
    drop(streams);
    let streams = open();
    let stream = streams.stream("s").unwrap();
    let taken = streams.log().space().unwrap().segments;
    fill(&stream, &[7; 1000]);
    assert!(streams.log().space().unwrap().segments <= taken + 1);
    archive.set_away(false);
    settle(&streams);
    stream.append("there is room").unwrap();
}

#[test]
fn a_failed_release_stops_neither_moves_nor_footers() {
    let (archive, streams, _) = with_left_files();
    let before = streams.log().checkpoint_lsn();
    archive.set_away(false);
    settle(&streams);
    let slow = streams.create("slow").unwrap();
    let fast = streams.create("fast").unwrap();
    slow.append("stays").unwrap();
    archive.set_away(true);
    for _ in 0..2 * SEGMENT / 1000 {
        fast.append([7; 1000]).unwrap();
    }
    // Too much to be moved.
    for _ in 0..2 * SEGMENT / 1000 {
        slow.append([7; 1000]).unwrap();
    }
    truncate_all(&fast);
    let moved = streams.stats().moved_bytes;
    let refused = archive.refused.load(Ordering::SeqCst);
    settle_or_fail(&streams).unwrap_err();
    assert!(archive.refused.load(Ordering::SeqCst) <= refused + 2, "once a round, not a step");
    assert!(streams.stats().moved_bytes > moved);
    assert!(streams.log().checkpoint_lsn() > before);
}

/// `keep` makes something that keeps released files, and `free` ends it.
fn check_that_moves_leave_the_last_segment<K>(
    log: palisade::Options,
    keep: impl FnOnce(&Streams) -> K,
    free: impl FnOnce(K),
) {
    let options = by_hand(log).move_percent(50);
    let streams = options.open_on(Arc::new(MemDisk::new()), "/log").unwrap();
    let (slow, fast) = (streams.create("slow").unwrap(), streams.create("fast").unwrap());
    let one_less = || slow.truncate_before(slow.first_index().unwrap() + 1).map(drop);
    let kept = keep(&streams);
    // The streams take three segments, a third of which stays.
    while [&fast, &fast, &slow].iter().all(|stream| stream.append([7; 192]).is_ok()) {}
    truncate_all(&fast);
    let _ = settle_or_fail(&streams);
    // That third is now in the segment below the one that is in use, of which half is free. It is a
    // little less than half a segment.
    while slow.put("vote", vec![7; 500]).is_ok() {}
    (0..155).for_each(|_| one_less().unwrap());
    let (moved, end) = (streams.stats().moved_bytes, streams.log().reserved_lsn().as_u64());
    assert!((4 * SEGMENT + SEGMENT / 2..5 * SEGMENT).contains(&end), "{end}");
    let _ = settle_or_fail(&streams);
    assert_eq!(streams.stats().moved_bytes, moved);
    one_less().unwrap();
    free(kept);
    settle(&streams);
    assert!(streams.stats().moved_bytes > moved);
    slow.append("there is room").unwrap();
}

#[test]
fn moves_leave_truncations_a_segment_while_an_archive_is_away() {
    let archive = Arc::new(Archive::default());
    archive.set_away(true);
    let log = limited(6).on_release(Arc::clone(&archive));
    check_that_moves_leave_the_last_segment(log, |_| (), |()| archive.set_away(false));
}

#[test]
fn moves_leave_truncations_a_segment_while_a_tail_keeps_files() {
    let tail = |streams: &Streams| streams.tail_all().unwrap();
    check_that_moves_leave_the_last_segment(limited(6), tail, drop);
}

#[test]
fn moves_leave_truncations_a_segment_while_a_cursor_keeps_files() {
    let cursor = |streams: &Streams| streams.log().create_cursor("c", None, u64::MAX).unwrap();
    check_that_moves_leave_the_last_segment(limited(6), cursor, |mut cursor| {
        while cursor.next(Duration::ZERO).unwrap().is_some() {
            cursor.confirm();
        }
        cursor.save().unwrap();
    });
}

#[test]
fn a_release_that_fails_ends_the_round() {
    let disk = SimDisk::new(1);
    let streams = by_hand(log()).with_store(&disk).unwrap();
    let stream = streams.create("s").unwrap();
    for _ in 0..5 * SEGMENT / 1000 {
        stream.append([7; 1000]).unwrap();
    }
    streams.delete("s").unwrap().wait().unwrap();
    disk.fail(Fault::all(CallKind::Write, FaultKind::NoSpace));
    assert_eq!(settle_or_fail(&streams).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(streams.log().head_lsn(), Lsn::ZERO);
    disk.heal();
    settle(&streams);
    assert!(streams.log().head_lsn() > Lsn::ZERO);
}

#[test]
fn moves_that_fail_do_not_keep_what_can_be_released() {
    let (archive, disk) = (Arc::new(Archive::default()), SimDisk::new(1));
    let streams = by_hand(log().on_release(Arc::clone(&archive))).with_store(&disk).unwrap();
    let (slow, fast) = (streams.create("slow").unwrap(), streams.create("fast").unwrap());
    for _ in 0..5 * SEGMENT / 1000 {
        fast.append([7; 1000]).unwrap();
    }
    slow.append("stays").unwrap();
    for _ in 0..SEGMENT / 1000 {
        fast.append([7; 1000]).unwrap();
    }
    archive.set_away(true);
    truncate_all(&fast);
    streams.sync().unwrap();
    while streams.log().head_lsn() == Lsn::ZERO {
        assert!(streams.maintain().unwrap());
    }
    let taken = streams.log().space().unwrap().segments;
    // The archive refuses what is left, and a move is planned.
    assert!(streams.maintain().unwrap());
    disk.fail(Fault::all(CallKind::Write, FaultKind::NoSpace));
    archive.set_away(false);
    for _ in 0..10 {
        let _ = streams.maintain();
    }
    assert!(streams.log().space().unwrap().segments < taken);
}

#[test]
fn an_archive_that_was_away_does_not_end_the_keepers_thread() {
    let archive = Arc::new(Archive::default());
    archive.set_away(true);
    let options = Options::new().log(log().on_release(Arc::clone(&archive)));
    let streams = options.open_on(Arc::new(MemDisk::new()), "/log").unwrap();
    let stream = streams.create("s").unwrap();
    for _ in 0..5 * SEGMENT / 1000 {
        stream.append([7; 1000]).unwrap();
    }
    truncate_all(&stream);
    wait_until(|| streams.stats().keeper_error.is_some());
    archive.set_away(false);
    wait_until(|| streams.log().space().unwrap().segments <= 2);
}

#[test]
fn an_archive_away_beside_a_full_disk_does_not_end_the_keeper() {
    let (archive, disk) = (Arc::new(Archive::default()), SimDisk::new(1));
    archive.set_away(true);
    let options = Options::new().log(log().on_release(Arc::clone(&archive)));
    let streams = options.with_store(&disk).unwrap();
    let stream = streams.create("s").unwrap();
    for _ in 0..5 * SEGMENT / 1000 {
        stream.append([7; 1000]).unwrap();
    }
    truncate_all(&stream);
    wait_until(|| streams.stats().keeper_error.is_some());
    disk.fail(Fault::all(CallKind::Write, FaultKind::NoSpace));
    stream.append("cannot be synced now").unwrap();
    let refused = archive.refused.load(Ordering::SeqCst);
    wait_until(|| archive.refused.load(Ordering::SeqCst) > refused + 2);
    archive.set_away(false);
    disk.heal();
    wait_until(|| streams.log().space().unwrap().segments <= 2);
}

fn wait_until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not come to hold");
        std::thread::yield_now();
    }
}

fn a_tail_lags_and_reads_on(options: Options) {
    let streams = options.open_on(Arc::new(MemDisk::new()), "/log").unwrap();
    let stream = streams.create("s").unwrap();
    let mut tail = streams.tail_all().unwrap();
    let next = fill(&stream, &[7; 1000]);
    stream.truncate_before(next).unwrap().wait().unwrap();
    settle(&streams);
    assert_eq!(stream.append([7; 1000]).unwrap_err().kind(), ErrorKind::NoSpace);
    let read = std::iter::from_fn(|| tail.next(Duration::ZERO).unwrap().map(drop)).count();
    assert_eq!(read as u64, next);
    // Its files are there until the keeper releases them, so a thread decides how much fits.
    let next = fill(&stream, &[7; 1000]);
    streams.sync().unwrap();
    while tail.next(Duration::ZERO).unwrap().is_some() {}
    stream.truncate_before(next).unwrap().wait().unwrap();
    settle(&streams);
    stream.append("there is room").unwrap();
    streams.close().unwrap();
}

#[test]
fn files_that_a_tail_has_read_take_room_until_they_are_released() {
    a_tail_lags_and_reads_on(by_hand(limited(12)));
}

#[test]
fn files_read_by_a_tail_take_room_beside_the_keepers_thread() {
    a_tail_lags_and_reads_on(Options::new().log(limited(12)));
}

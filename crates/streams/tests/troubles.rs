//! The keeper and the calls beside damage, devices that fail for a while, and threads that fill a
//! log.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use palisade::sim::{CallKind, Fate, Fault, FaultKind, SimDisk};
use palisade::{ErrorKind, Lsn, MemStore};
use palisade_streams::{Follow, Followed, Options, Reader, Stream, Streams};
use tempfile::TempDir;

const SEGMENT: u64 = 64 << 10;
const HEADER: u64 = 4096;

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn log() -> palisade::Options {
    palisade::Options::new().segment_bytes(SEGMENT).buffer_bytes(64 << 10)
}

fn by_hand(log: palisade::Options) -> Options {
    Options::new().log(log).background(false)
}

fn append_many(stream: &Stream, count: u64) {
    for _ in 0..count {
        stream.append([7; 1000]).unwrap();
    }
}

fn truncate_all(stream: &Stream) {
    stream.truncate_before(stream.next_index().unwrap()).unwrap();
}

fn settle(streams: &Streams) {
    while streams.maintain().unwrap() {}
}

/// Changes a byte of the frame at `lsn` on the disk; a second call changes it back.
fn damage(folder: &Path, lsn: Lsn, byte: u64) {
    let path = folder.join(format!("segment-{:020}", lsn.as_u64() / SEGMENT));
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let (mut byte, at) = ([0], HEADER + lsn.as_u64() % SEGMENT + byte);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn what_a_release_was_for_is_durable_before_it() {
    let disk = SimDisk::new(1);
    let open = || by_hand(log()).with_store(&disk).unwrap();
    let streams = open();
    let (gone, kept) = (streams.create("gone").unwrap(), streams.create("kept").unwrap());
    append_many(&gone, 200);
    // The keeper moves the anchors out of the way.
    gone.truncate_before(100).unwrap().wait().unwrap();
    settle(&streams);
    // Too much to be moved.
    append_many(&kept, 200);
    streams.sync().unwrap();
    let head = streams.log().head_lsn();
    truncate_all(&gone);
    while streams.log().head_lsn() == head {
        assert!(streams.maintain().unwrap());
    }
    disk.lose_power_choosing(&mut |_| Fate::Drop);
    drop((gone, kept, streams));
    disk.restart();
    let gone = open().stream("gone").unwrap();
    assert_eq!((gone.first_index().unwrap(), gone.next_index().unwrap()), (200, 200));
}

#[test]
fn a_log_that_many_threads_have_filled_can_be_emptied() {
    let folder = folder();
    for (threads, bytes) in [(32, 8 << 10), (32, 1000), (8, 32_000), (32, 32_000)] {
        let limit = 8 * (SEGMENT + HEADER);
        let streams = by_hand(log().max_bytes(limit)).open(folder.path()).unwrap();
        let all: Vec<_> = (0..threads)
            .map(|n| streams.stream_or_create(format!("{bytes} {n}")).unwrap())
            .collect();
        std::thread::scope(|scope| {
            for stream in &all {
                scope.spawn(move || {
                    let data = vec![1; bytes];
                    let refused = (0..).find_map(|_| stream.append(&data).err());
                    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::NoSpace));
                });
            }
        });
        all.iter().for_each(truncate_all);
        streams.sync().unwrap();
        settle(&streams);
        all[0].commit("there is room again").unwrap();
        for stream in all {
            streams.delete(stream.name()).unwrap();
        }
        streams.sync().unwrap();
        settle(&streams);
        streams.close().unwrap();
    }
}

/// Entries of two streams; one of `slow`, in the first segment, is damaged. What `other` had is
/// truncated.
fn damaged(folder: &Path, options: &Options) -> (Streams, Stream) {
    let streams = options.open(folder).unwrap();
    let (slow, other) = (streams.create("slow").unwrap(), streams.create("other").unwrap());
    let lsns: Vec<_> = (0..10_u8).map(|n| slow.append([n; 100]).unwrap().lsn()).collect();
    append_many(&other, 700);
    streams.sync().unwrap();
    damage(folder, lsns[3], 60);
    assert_eq!(slow.get(3).unwrap_err().kind(), ErrorKind::Corrupt);
    truncate_all(&other);
    (streams, other)
}

#[test]
fn a_damaged_entry_keeps_its_segment_and_not_the_keeper() {
    let folder = folder();
    let (streams, other) = damaged(folder.path(), &by_hand(log()));
    settle(&streams);
    assert_eq!(streams.log().head_lsn(), Lsn::ZERO);
    assert_eq!(streams.pinned()[0].name, b"slow");
    // Footers are written meanwhile.
    append_many(&other, 700);
    settle(&streams);
    streams.delete("slow").unwrap();
    truncate_all(&other);
    settle(&streams);
    let end = streams.log().reserved_lsn();
    assert!(streams.log().head_lsn().as_u64() + SEGMENT > end.as_u64(), "the log is empty");
}

#[test]
fn a_damaged_entry_does_not_end_the_keepers_thread() {
    let folder = folder();
    let (streams, _other) = damaged(folder.path(), &Options::new().log(log()));
    streams.delete("slow").unwrap().wait().unwrap();
    let began = Instant::now();
    while streams.log().head_lsn() == Lsn::ZERO {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", streams.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_read_error_passes(log: palisade::Options, records: u64) {
    let disk = SimDisk::new(7);
    let streams = by_hand(log).with_store(&disk).unwrap();
    let (slow, other) = (streams.create("slow").unwrap(), streams.create("other").unwrap());
    for n in 0..10_u8 {
        slow.append([n; 100]).unwrap();
    }
    append_many(&other, 200);
    streams.sync().unwrap();
    truncate_all(&other);
    disk.fail(Fault::all(CallKind::Read, FaultKind::Eio));
    for _ in 0..50 {
        // A footer cannot be written either.
        let _ = streams.maintain();
    }
    assert_eq!(streams.log().head_lsn(), Lsn::ZERO);
    disk.heal();
    let refused = (0..records).find_map(|_| other.append([7; 1000]).err());
    assert!(refused.is_none_or(|error| error.kind() == ErrorKind::NoSpace));
    truncate_all(&other);
    settle(&streams);
    assert!(streams.log().head_lsn() > Lsn::ZERO);
    assert_eq!(slow.range(..).unwrap().filter(Result::is_ok).count(), 10);
}

#[test]
fn a_read_error_that_passes_does_not_pin_the_log() {
    a_read_error_passes(log(), 2000);
}

#[test]
fn a_read_error_that_passes_does_not_pin_a_full_log() {
    a_read_error_passes(log().max_bytes(10 * (SEGMENT + HEADER)), 2000);
}

#[test]
fn what_a_failed_wait_left_is_durable_once_it_is_found() {
    let disk = SimDisk::new(7);
    let streams = by_hand(log()).with_store(&disk).unwrap();
    let stream = streams.create("s").unwrap();
    disk.fail(Fault::all(CallKind::Write, FaultKind::NoSpace));
    assert_eq!(streams.create("late").unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(streams.stream_or_create("late").unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(stream.consumer("c").map(drop).unwrap_err().kind(), ErrorKind::NoSpace);
    disk.heal();
    let lose_the_rest = |disk: &SimDisk| disk.lose_power_choosing(&mut |_| Fate::Drop);
    streams.stream_or_create("late").unwrap();
    let other = streams.create("other").unwrap();
    disk.fail(Fault::all(CallKind::Write, FaultKind::NoSpace));
    assert_eq!(other.consumer("c").map(drop).unwrap_err().kind(), ErrorKind::NoSpace);
    disk.heal();
    drop(other.consumer("c").unwrap());
    drop((stream, other, streams));
    lose_the_rest(&disk);
    let streams = by_hand(log()).with_store(&disk).unwrap();
    assert_eq!(streams.stream("late").unwrap().len().unwrap(), 0);
    assert_eq!(streams.stream("other").unwrap().consumers().unwrap().len(), 1);
}

#[test]
fn an_open_refuses_values_that_the_keeper_could_not_move() {
    let folder = folder();
    let open = |buffer: usize| {
        let log = palisade::Options::new().segment_bytes(1 << 20).buffer_bytes(buffer);
        by_hand(log).open(folder.path())
    };
    let streams = open(1 << 20).unwrap();
    streams.create("a").unwrap().put("key", vec![1; 60 << 10]).unwrap();
    streams.close().unwrap();
    drop(streams);
    let refused = open(16 << 10).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("stream \"a\" take"), "{refused}");
    assert_eq!(
        open(1 << 20).unwrap().stream("a").unwrap().value("key").unwrap(),
        Some(vec![1; 60 << 10])
    );
}

/// A thread waits for the sync of entry 0 of `s`. Returns what it gets after `change`, and no sync.
fn waiting(change: impl FnOnce(&Stream)) -> ErrorKind {
    let streams = by_hand(log()).with_store(MemStore::new(SEGMENT)).unwrap();
    let stream = streams.create("s").unwrap();
    let mut tail = stream.tail(0).unwrap();
    stream.append("not durable").unwrap();
    std::thread::scope(|scope| {
        // Only a tail that learns nothing waits for so long.
        let waiter = scope.spawn(|| tail.next(Duration::from_secs(30)));
        let began = Instant::now();
        while streams.log().space().unwrap().pins.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60), "the thread does not wait");
            std::thread::yield_now();
        }
        change(&stream);
        waiter.join().unwrap().expect_err("the entry is gone").kind()
    })
}

#[test]
fn a_thread_that_waits_for_a_sync_learns_that_the_entry_is_gone() {
    let deleted = waiting(|stream| drop(stream.streams().delete("s").unwrap()));
    assert_eq!(deleted, ErrorKind::NotFound);
    let truncated = waiting(|stream| drop(stream.truncate_before(1).unwrap()));
    assert_eq!(truncated, ErrorKind::Truncated);
}

/// Returns the indexes that follow, and how many reads have failed meanwhile. The first that fails
/// is the last to do so.
fn rest_of(follow: &mut Follow, disk: &SimDisk) -> (Vec<u64>, usize) {
    let (mut found, mut failed) = (Vec::new(), 0);
    loop {
        match follow.next() {
            Ok(Some(Followed::Entry(entry))) => found.push(entry.index()),
            Ok(None) => return (found, failed),
            Err(error) if error.kind() == ErrorKind::Io => {
                disk.heal();
                failed += 1;
            }
            other => panic!("{other:?} after {found:?}"),
        }
    }
}

/// Reads that fail from number `n` on: the log repeats one that failed, for fewer bytes.
fn bad_reads(n: u64) -> Fault {
    Fault::nth(CallKind::Read, n, FaultKind::Eio).times(4)
}

#[test]
fn a_reader_counts_the_records_of_a_read_that_failed_once() {
    let mut failed = 0;
    for n in 0..60 {
        let disk = SimDisk::new(7);
        let streams = by_hand(log()).with_store(&disk).unwrap();
        let stream = streams.create("s").unwrap();
        streams.sync().unwrap();
        let open = || Reader::open_on(disk.as_disk(), "/log").unwrap();
        let mut reader = open();
        append_many(&stream, 200);
        streams.sync().unwrap();
        disk.fail(bad_reads(n));
        failed += usize::from(reader.refresh().is_err());
        disk.heal();
        reader.refresh().unwrap();
        let now = open();
        assert_eq!(reader.streams(), now.streams(), "the read error at {n}");
        assert_eq!(reader.stats(), now.stats(), "the read error at {n}");
    }
    assert!(failed > 8, "{failed} reads have failed");
}

#[test]
fn a_read_error_after_a_recovery_hides_nothing_from_readers() {
    let mut all_failed = (0, 0);
    for n in 0..60 {
        let disk = SimDisk::new(7);
        let streams = by_hand(log()).with_store(&disk).unwrap();
        let stream = streams.create("s").unwrap();
        append_many(&stream, 200);
        streams.sync().unwrap();
        let open = || Reader::open_on(disk.as_disk(), "/log").unwrap();
        let (mut reader, mut follow) = (open(), open().follow("s", None).unwrap());
        assert_eq!(rest_of(&mut follow, &disk), ((0..200).collect(), 0));
        streams.log().clone().abandon();
        drop((stream, streams));
        let streams = by_hand(log()).with_store(&disk).unwrap();
        streams.stream("s").unwrap().commit("after the kill").unwrap();

        let fail = || disk.fail(bad_reads(n));
        fail();
        all_failed.0 += usize::from(reader.refresh().is_err());
        disk.heal();
        reader.refresh().unwrap();
        let now = open();
        assert_eq!(reader.streams(), now.streams(), "the read error at {n}");
        assert_eq!(reader.stats(), now.stats(), "the read error at {n}");
        fail();
        let (found, failed) = rest_of(&mut follow, &disk);
        disk.heal();
        assert_eq!(found, [200], "the read error at {n}");
        all_failed.1 += failed;
    }
    // Each reads the meta file and the segments; headers are read again if that fails.
    assert!(all_failed.0 > 8 && all_failed.1 > 8, "{all_failed:?}");
}

/// The keeper must release up to a segment, and write the footer of the one before, although the
/// header of the segment's first frame or record is damaged.
fn with_a_damaged_header(at: impl Fn(Lsn) -> Lsn) {
    let folder = folder();
    let streams = by_hand(log()).open(folder.path()).unwrap();
    let (victim, keep) = (streams.create("victim").unwrap(), streams.create("keep").unwrap());
    let other = streams.create("other").unwrap();
    while streams.log().reserved_lsn().as_u64() + 1040 < SEGMENT {
        other.append([7; 1000]).unwrap();
    }
    let first = victim.append([7; 1000]).unwrap().lsn();
    assert_eq!(first.as_u64() / SEGMENT, 1);
    // They keep segment 1: too much to be moved.
    for _ in 0..60 {
        keep.append([7; 1000]).unwrap();
    }
    for _ in 0..300 {
        other.append([7; 1000]).unwrap();
    }
    streams.sync().unwrap();
    damage(folder.path(), at(first), 2);
    settle(&streams);
    assert!(streams.log().checkpoint_lsn().as_u64() >= SEGMENT);
    streams.delete("victim").unwrap();
    truncate_all(&other);
    settle(&streams);
    assert!(streams.log().head_lsn().as_u64() >= SEGMENT);
    assert_eq!(keep.get(29).unwrap().data(), [7; 1000]);
    streams.close().unwrap();
    drop((streams, victim, keep, other));
    let streams = by_hand(log()).open(folder.path()).unwrap();
    assert_eq!(streams.stream("keep").unwrap().get(29).unwrap().data(), [7; 1000]);
}

#[test]
fn the_keeper_passes_a_damaged_header_of_the_first_record() {
    with_a_damaged_header(|first| first);
}

#[test]
fn the_keeper_passes_a_damaged_header_of_a_segments_first_frame() {
    with_a_damaged_header(|_| Lsn::new(SEGMENT));
}

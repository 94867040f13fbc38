//! Records that the streams have released and that are still there: a cursor of the log keeps them,
//! an archive has them, or a reader has read them.

use std::path::Path;
use std::sync::Arc;

use palisade::disk::MemDisk;
use palisade::sim::SimDisk;
use palisade::{Archive, Lsn, Restore, RestoreFrom, Wal};
use palisade_streams::{Options, Reader, Stream, Streams, verify};
use tempfile::TempDir;

const SEGMENT: u64 = 64 << 10;

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn log() -> palisade::Options {
    palisade::Options::new().segment_bytes(SEGMENT).buffer_bytes(64 << 10)
}

fn open_with(log: palisade::Options, path: &Path) -> Streams {
    Options::new().log(log).background(false).open(path).unwrap()
}

fn open(path: &Path) -> Streams {
    open_with(log(), path)
}

fn settle(streams: &Streams) {
    while streams.maintain().unwrap() {}
}

/// Appends so much that the log goes on by `segments`.
fn fill(stream: &Stream, segments: u64) {
    for _ in 0..segments * SEGMENT / 1000 {
        stream.append([7; 1000]).unwrap();
    }
    stream.streams().sync().unwrap();
}

fn truncate(stream: &Stream) {
    let next = stream.next_index().unwrap();
    stream.truncate_before(next).unwrap().wait().unwrap();
}

/// Makes stream `s`, and deletes it. The log has no record of it any more, nor a footer that was
/// written before these were released.
fn use_a_slot(streams: &Streams) {
    let fast = streams.create("fast").unwrap();
    streams.create("s").unwrap().append("old").unwrap();
    streams.delete("s").unwrap().wait().unwrap();
    fill(&fast, 4);
    truncate(&fast);
    settle(streams);
    fill(&fast, 3);
    settle(streams);
}

/// Checks that a replay, an open by footers and an open without them find `s` with one entry.
fn check(path: &Path, data: &[u8]) {
    let mut reader = Reader::open(path).unwrap();
    let first = reader.entries("s", ..).unwrap().next().unwrap();
    assert_eq!(first.unwrap().data(), data);
    let verdict = verify(path).unwrap();
    assert!(verdict.is_whole(), "{verdict:?}");
    let streams = open(path);
    assert_eq!(streams.stream("s").unwrap().get(0).unwrap().data(), data);
    assert_eq!(streams.list(), [b"fast".to_vec(), b"s".to_vec()]);
}

#[test]
fn a_later_stream_of_a_slot_is_found_beside_what_a_cursor_keeps() {
    let folder = folder();
    let path = folder.path().join("log");
    let streams = open(&path);
    let cursor = streams.log().create_cursor("kept", None, u64::MAX).unwrap();
    use_a_slot(&streams);
    assert_eq!(streams.log().head_lsn(), Lsn::ZERO);
    drop(cursor);
    streams.close().unwrap();
    drop(streams);
    let streams = open(&path);
    assert!(streams.open_report().footers > 0);
    streams.create("s").unwrap().commit("new").unwrap();
    streams.close().unwrap();
    drop(streams);
    check(&path, b"new");
}

#[test]
fn a_restore_has_a_stream_whose_slot_was_used_before() {
    // Twice, so that the record which keeps the generation is released, too.
    for rounds in 1..3 {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        let open_archived =
            || open_with(log().on_release(Archive::open(path("archive")).unwrap()), &path("log"));
        for _ in 0..rounds {
            let streams = open_archived();
            if let Ok(fast) = streams.stream("fast") {
                truncate(&fast);
                drop(fast);
                streams.delete("fast").unwrap().wait().unwrap();
            }
            use_a_slot(&streams);
            streams.close().unwrap();
        }
        let streams = open_archived();
        streams.create("s").unwrap().commit("new").unwrap();
        streams.close().unwrap();
        drop(streams);
        let from = RestoreFrom::archive(path("archive")).with_log(path("log"));
        let plan = Restore::plan(from, None, &mut |_| {}).unwrap();
        plan.write(path("restored"), &mut |_| {}).unwrap();
        check(&path("restored"), b"new");
    }
}

#[test]
fn a_reader_that_stays_finds_the_streams_of_the_next_open() {
    let folder = folder();
    let path = folder.path().join("log");
    let streams = open(&path);
    let fast = streams.create("fast").unwrap();
    streams.create("s").unwrap();
    let mut reader = Reader::open(&path).unwrap();
    streams.delete("s").unwrap().wait().unwrap();
    for _ in 0..6 {
        fill(&fast, 2);
        truncate(&fast);
        reader.refresh().unwrap();
        settle(&streams);
        reader.refresh().unwrap();
    }
    drop(fast);
    streams.close().unwrap();
    drop(streams);
    let streams = open(&path);
    streams.create("s").unwrap().commit("new").unwrap();
    reader.refresh().unwrap();
    let first = reader.entries("s", ..).unwrap().next().unwrap();
    assert_eq!(first.unwrap().data(), b"new");
}

/// The segment with the deletion is released before it has a footer, and the footers above lead
/// over it to those of lower segments.
#[test]
fn a_deletion_stays_where_a_cursor_keeps_older_footers() {
    for makes_it_again in [false, true] {
        let folder = folder();
        let path = folder.path().join("log");
        let streams = open(&path);
        let cursor = streams.log().create_cursor("kept", None, u64::MAX).unwrap();
        let fast = streams.create("fast").unwrap();
        streams.create("s").unwrap().append("old").unwrap();
        fill(&fast, 2);
        settle(&streams);
        fill(&fast, 2);
        streams.delete("s").unwrap().wait().unwrap();
        fill(&fast, 2);
        truncate(&fast);
        settle(&streams);
        if makes_it_again {
            streams.create("s").unwrap().commit("new").unwrap();
        }
        fill(&fast, 2);
        settle(&streams);
        drop((cursor, fast));
        streams.close().unwrap();
        drop(streams);
        if makes_it_again {
            check(&path, b"new");
        } else {
            assert!(verify(&path).unwrap().is_whole());
            assert_eq!(open(&path).list(), [b"fast".to_vec()]);
        }
    }
}

const ANCHOR: u16 = 0x5303;
const FOOTER_END: u16 = 0x5309;

/// Decodes numbers of seven bits a byte, the least first.
fn decode(bytes: &[u8]) -> Vec<u64> {
    let of =
        |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f));
    bytes.split_inclusive(|byte| *byte < 0x80).map(of).collect()
}

fn encode(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &number in numbers {
        let len = number.max(1).ilog2() / 7 + 1;
        let more = |at: u32| if at + 1 < len { 0x80 } else { 0 };
        bytes.extend((0..len).map(|at| (number >> (7 * at)) as u8 & 0x7f | more(at)));
    }
    bytes
}

/// Appends another end of the last footer, as `change` leaves its numbers.
fn forge_last_end(path: &Path, change: impl FnOnce(&Wal, &mut Vec<u64>)) {
    let wal = log().open(path).unwrap();
    let (mut records, mut ends) = (wal.records_from(wal.checkpoint_lsn()).unwrap(), Vec::new());
    while let Some(record) = records.next().unwrap() {
        ends.extend((record.tag() == FOOTER_END).then(|| decode(record.data())));
    }
    let mut end = ends.pop().unwrap();
    change(&wal, &mut end);
    wal.append_tagged(FOOTER_END, &encode(&end)).unwrap();
    wal.close().unwrap();
}

/// `is_released`: the log has released the deletion, after an open that found its generation in a
/// footer. So the keeper has appended no other record that says it.
fn check_that_a_smaller_generation_is_found(is_released: bool) {
    let folder = folder();
    let path = folder.path().join("log");
    let mut streams = open(&path);
    let mut fast = streams.create("fast").unwrap();
    fill(&fast, 1);
    streams.create("gone").unwrap();
    streams.delete("gone").unwrap().wait().unwrap();
    let deleted_at = fast.next_index().unwrap();
    fill(&fast, 2);
    settle(&streams);
    if is_released {
        let middle = u64::midpoint(deleted_at, fast.next_index().unwrap());
        drop(fast);
        streams.close().unwrap();
        drop(streams);
        streams = open(&path);
        fast = streams.stream("fast").unwrap();
        fast.truncate_before(middle).unwrap();
        settle(&streams);
        assert!(streams.log().head_lsn() > Lsn::ZERO);
        fill(&fast, 2);
        settle(&streams);
    }
    drop(fast);
    streams.close().unwrap();
    drop(streams);
    assert!(verify(&path).unwrap().is_whole());
    forge_last_end(&path, |_, end| assert_eq!(std::mem::replace(end.last_mut().unwrap(), 0), 1));
    let bad = verify(&path).unwrap().bad_footers;
    let said: Vec<_> = bad.iter().map(|bad| bad.why.as_str()).collect();
    assert_eq!(said, ["its generation is 0, and a record below it says 1"]);
}

#[test]
fn a_check_finds_a_footer_generation_below_that_of_a_deletion() {
    check_that_a_smaller_generation_is_found(false);
}

#[test]
fn a_check_finds_a_footer_generation_below_another_footers() {
    check_that_a_smaller_generation_is_found(true);
}

#[test]
fn an_open_follows_no_footer_that_leads_over_a_segment() {
    let folder = folder();
    let path = folder.path().join("log");
    let streams = open(&path);
    let fast = streams.create("fast").unwrap();
    fill(&fast, 5);
    settle(&streams);
    let len = fast.len().unwrap();
    drop(fast);
    streams.close().unwrap();
    drop(streams);
    // Another end of the last footer leads to the footer below the one before.
    forge_last_end(&path, |wal, end| {
        let before = decode(wal.get(Lsn::new(end[3])).unwrap().data());
        end[3] = before[3];
        assert!(before[3] > 0);
    });

    let verdict = verify(&path).unwrap();
    assert_eq!(verdict.bad_footers.len(), 4, "{verdict:?}");
    let streams = open(&path);
    assert!(streams.open_report().footer_note.is_some());
    assert_eq!(streams.stream("fast").unwrap().range(..).unwrap().count() as u64, len);
}

#[test]
fn the_generation_is_durable_before_a_deletion_is_released() {
    let disk = SimDisk::new(7);
    let open = || Options::new().log(log()).background(false).with_store(&disk).unwrap();
    let streams = open();
    let fast = streams.create("fast").unwrap();
    streams.create("s").unwrap();
    streams.delete("s").unwrap().wait().unwrap();
    fill(&fast, 4);
    truncate(&fast);
    while streams.stats().released_bytes == 0 {
        assert!(streams.maintain().unwrap(), "nothing is released");
    }
    assert!(streams.log().head_lsn() > Lsn::ZERO);
    disk.lose_power();
    disk.restart();
    drop((fast, streams));
    let streams = open();
    streams.create("s").unwrap();
    assert_eq!(last_generation(&streams), 1);
}

/// The generation of the stream that was made last: the high half of the id in its anchor.
fn last_generation(streams: &Streams) -> u64 {
    let mut records = streams.log().records().unwrap();
    let mut ids = Vec::new();
    while let Some(record) = records.next().unwrap() {
        ids.extend((record.tag() == ANCHOR).then(|| decode(record.data())[0]));
    }
    ids.last().unwrap() >> 32
}

/// Makes a full log of twelve segments in which nothing is live, and kills it: that passes over the
/// rest of the last segment, so there is no room for a record.
fn kill_where_all_is_dead(streams: &Streams, deletions: u64, has_footers: bool) {
    for _ in 0..deletions {
        streams.create("again").unwrap();
        streams.delete("again").unwrap();
    }
    let small: Vec<_> = (0..10).map(|n| format!("small {n}")).collect();
    streams.create_many(&small).unwrap();
    let stream = streams.create("s").unwrap();
    while stream.append([7; 100]).is_ok() {
        while has_footers && streams.maintain().unwrap() {}
    }
    streams.sync().unwrap();
    let refused = (1..).find(|&first| stream.truncate_before(first).is_err());
    assert!(refused.is_some());
    small.iter().for_each(|name| drop(streams.delete(name).unwrap()));
    streams.delete("s").unwrap().wait().unwrap();
    streams.log().clone().abandon();
}

#[test]
fn a_release_needs_no_room_where_deletions_are_last() {
    for (deletions, has_footers) in [(0, true), (2, true), (0, false), (2, false)] {
        let disk = Arc::new(MemDisk::new());
        let limited = || log().max_bytes(12 * (SEGMENT + 4096));
        let open = || {
            let options = Options::new().log(limited()).background(false);
            options.open_on(disk.clone(), "/log").unwrap()
        };
        kill_where_all_is_dead(&open(), deletions, has_footers);
        let streams = open();
        assert!(streams.maintain().unwrap());
        assert!(streams.log().head_lsn() > Lsn::ZERO, "the first step releases");
        // A kill before the next step: the record that says the generation is there.
        streams.log().clone().abandon();
        drop(streams);
        let streams = open();
        streams.create("again").unwrap();
        assert!(last_generation(&streams) >= deletions.max(1));
        settle(&streams);
        streams.create("there is room").unwrap();
    }
}

//! Cases at the edges: what readers of the crate have found by thinking.

use palisade::{ErrorKind, MemStore};
use palisade_streams::{Options, Stream, Streams};
use std::time::Duration;

fn options() -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    Options::new().log(log).background(false)
}
fn open() -> Streams {
    options().with_store(MemStore::new(64 << 10)).unwrap()
}

/// Settings of a log of at most so many segments.
fn limited(segments: u64) -> Options {
    let log = palisade::Options::new().segment_bytes(SEGMENT).buffer_bytes(64 << 10);
    Options::new().log(log.max_bytes(segments * (SEGMENT + 4096)))
}

fn settle(streams: &Streams) {
    let ends = (0..100_000).any(|_| !streams.maintain().unwrap());
    assert!(ends, "the keeper never ends");
}

/// A truncation above what the tail has returned must not end it later.
#[test]
fn a_tail_passes_a_truncation_above_its_position() {
    let streams = open();
    let s = streams.create("s").unwrap();
    let mut tail = s.tail(0).unwrap();
    for n in 0..3_u8 {
        s.append([n]).unwrap();
    }
    s.truncate_after(1).unwrap(); // the tail has returned nothing yet
    s.append("new 2").unwrap();
    s.commit("3").unwrap();
    for n in 0..4 {
        let entry = tail.next(Duration::from_secs(5)).unwrap().unwrap();
        assert_eq!(entry.index(), n);
    }
}

#[test]
fn a_tail_at_the_end_reports_a_close() {
    let streams = open();
    let s = streams.create("s").unwrap();
    let mut tail = s.tail(0).unwrap();
    streams.close().unwrap();
    let got = tail.next(Duration::from_millis(200));
    assert_eq!(got.unwrap_err().kind(), ErrorKind::Closed);
}

/// An anchor that was moved while the stream was long, then a truncation and a release.
#[test]
fn a_queue_with_a_backlog_that_was_consumed_opens_again() {
    let store = MemStore::new(64 << 10);
    let streams = options().with_store(store.clone()).unwrap();
    let queue = streams.create("queue").unwrap();
    for n in 0..20_000_u64 {
        queue.append(n.to_le_bytes()).unwrap();
        if n == 3000 {
            queue.truncate_before(n).unwrap();
        }
    }
    settle(&streams); // the first segment has only the anchor: it is moved
    assert!(streams.stats().moved_bytes > 0);
    queue.truncate_before(19_990).unwrap();
    settle(&streams);
    streams.close().unwrap();
    drop((queue, streams));
    let streams = options().with_store(store).unwrap();
    assert_eq!(streams.stream("queue").unwrap().len().unwrap(), 10);
}

/// A footer that knows of a truncation, and an entry far above in a later segment.
#[test]
fn a_footer_that_knows_a_far_truncation_opens_again() {
    let store = MemStore::new(64 << 10);
    let options = options().move_percent(1);
    let streams = options.with_store(store.clone()).unwrap();
    let (a, other) = (streams.create("a").unwrap(), streams.create("other").unwrap());
    let segment = || streams.log().reserved_lsn().as_u64() >> 16;
    while segment() < 20 {
        a.append([1; 8]).unwrap();
    }
    let now = segment();
    while segment() == now {
        other.append([7; 4000]).unwrap();
    }
    a.append([1; 8]).unwrap();
    a.truncate_from(3).unwrap();
    settle(&streams);
    streams.close().unwrap();
    drop((a, other, streams));
    let streams = options.with_store(store).unwrap();
    assert_eq!(streams.stream("a").unwrap().len().unwrap(), 3);
}

/// With no stream left, the keeper must come to an end wherever the last record ends.
#[test]
fn the_keeper_ends_without_streams() {
    for pad in 0..40_usize {
        let streams = open();
        let s = streams.create("s").unwrap();
        // Leave less and less room for the deletion.
        while (streams.log().reserved_lsn().as_u64()) < (64 << 10) - 1200 - 8 * pad as u64 {
            s.append([0; 100]).unwrap();
        }
        let left = (64 << 10) - streams.log().reserved_lsn().as_u64();
        s.append(vec![0; (left as usize).saturating_sub(24 + 16 + 8 * pad)]).unwrap();
        streams.delete("s").unwrap();
        settle(&streams);
    }
}

/// A log that is opened with a smaller buffer still moves and releases.
#[test]
fn a_smaller_buffer_moves_longer_entries() {
    let store = MemStore::new(64 << 10);
    let streams = options().with_store(store.clone()).unwrap();
    let (slow, fast) = (streams.create("slow").unwrap(), streams.create("fast").unwrap());
    slow.append([1; 20_000]).unwrap();
    for _ in 0..400 {
        fast.append([7; 3000]).unwrap();
    }
    fast.truncate_before(400).unwrap();
    streams.close().unwrap();
    drop((slow, fast, streams));
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10);
    let streams = Options::new().log(log).background(false).with_store(store).unwrap();
    settle(&streams);
}

#[test]
fn the_text_of_out_of_range_counts_entries() {
    let streams = open();
    let s = streams.create("s").unwrap();
    for n in 0..10_u8 {
        s.append([n]).unwrap();
    }
    s.truncate_before(9).unwrap();
    let texts = [s.get(10).unwrap_err(), s.truncate_before(11).unwrap_err()].map(|e| e.to_string());
    assert!(texts.iter().all(|text| text.contains("Stream::next_index")), "{texts:?}");
    assert!(!texts[0].contains("has 10 entries"), "{texts:?}");
}

const SEGMENT: u64 = 64 << 10;

fn segment(streams: &Streams) -> u64 {
    streams.log().reserved_lsn().as_u64() / SEGMENT
}

/// Appends until the tail is in the next segment.
fn fill(streams: &Streams, stream: &Stream) {
    let at = segment(streams);
    while segment(streams) == at {
        stream.append([7; 1000]).unwrap();
    }
}

fn kill(streams: Streams) {
    streams.sync().unwrap();
    streams.log().clone().abandon();
}

/// The anchor moves between the removal of the last value and the footer that says so.
#[test]
fn a_removed_value_does_not_come_back() {
    let store = MemStore::new(64 << 10);
    let streams = options().with_store(store.clone()).unwrap();
    let (x, y) = (streams.create("x").unwrap(), streams.create("y").unwrap());
    fill(&streams, &y);
    let before = y.next_index().unwrap();
    x.put("k", "1").unwrap();
    fill(&streams, &y);
    settle(&streams);
    x.remove_value("k").unwrap();
    fill(&streams, &y);
    y.truncate_before(before).unwrap();
    settle(&streams);
    fill(&streams, &y);
    settle(&streams);
    drop((x, y));
    kill(streams);
    let streams = options().with_store(store).unwrap();
    assert_eq!(streams.stream("x").unwrap().value("k").unwrap(), None);
    assert!(streams.open_report().footers > 0);
}

#[test]
fn the_keeper_ends_if_only_a_deletion_is_left() {
    let store = MemStore::new(64 << 10);
    let streams = options().with_store(store.clone()).unwrap();
    streams.create("x").unwrap();
    streams.delete("x").unwrap().wait().unwrap();
    kill(streams);
    settle(&options().with_store(store).unwrap());
}

/// The longest record holds only a small part of what the footer has.
#[test]
fn a_footer_of_many_streams_has_many_parts() {
    let log = palisade::Options::new().segment_bytes(4 << 20).buffer_bytes(16 << 10);
    let options = Options::new().log(log).background(false);
    let store = MemStore::new(4 << 20);
    let streams = options.with_store(store.clone()).unwrap();
    let all = streams.create_many((0..20_000).map(|n| format!("stream {n}"))).unwrap();
    while streams.log().reserved_lsn().as_u64() < 5 << 20 {
        for stream in &all {
            stream.append([1; 30]).unwrap();
        }
    }
    settle(&streams);
    let lens: Vec<_> = all.iter().map(|stream| stream.len().unwrap()).collect();
    drop(all);
    kill(streams);
    let streams = options.with_store(store).unwrap();
    assert_eq!(streams.open_report().footers, 1, "{:?}", streams.open_report());
    for (n, len) in lens.into_iter().enumerate() {
        assert_eq!(streams.stream(format!("stream {n}")).unwrap().len().unwrap(), len);
    }
}

/// No segment becomes free by the truncation alone: the keeper must look for a move.
#[test]
fn a_refused_append_and_a_truncation_wake_the_keeper() {
    let streams = limited(12).with_store(MemStore::new(SEGMENT)).unwrap();
    let (slow, fast) = (streams.create("slow").unwrap(), streams.create("fast").unwrap());
    // Several times: the keeper looks for work by itself when it starts, maybe late.
    for _ in 0..5 {
        let mut at = u64::MAX;
        let error = loop {
            if segment(&streams) != at {
                at = segment(&streams);
                if let Err(error) = slow.append([1]) {
                    break error;
                }
            }
            if let Err(error) = fast.append([7; 1000]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        fast.truncate_before(fast.next_index().unwrap() - 1).unwrap().wait().unwrap();
        let begun = std::time::Instant::now();
        while fast.append([7; 1000]).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", streams.stats());
            std::thread::yield_now();
        }
    }
}

/// The anchors of idle streams are small beside the entries of the others.
#[test]
fn many_idle_streams_beside_large_entries_do_not_keep_the_log() {
    let log = palisade::Options::new().segment_bytes(1 << 20).buffer_bytes(256 << 10);
    let options = Options::new().log(log).background(false);
    let streams = options.with_store(MemStore::new(1 << 20)).unwrap();
    let busy = streams.create("busy").unwrap();
    streams.create_many((0..500).map(|n| format!("idle {n}"))).unwrap();
    for _ in 0..200 {
        busy.append([7; 100_000]).unwrap();
        busy.truncate_before(busy.next_index().unwrap()).unwrap();
        settle(&streams);
        let stats = streams.stats();
        assert!(stats.segments <= 3, "{stats:?}");
        assert!(stats.moved_bytes * 10 <= stats.released_bytes + (1 << 20), "{stats:?}");
    }
}

/// The keeper takes long entries beside short ones for short. It ends a move that costs more than
/// the budget, and makes up for it before the next one.
#[test]
fn long_live_entries_beside_short_ones_are_not_moved_in_vain() {
    let streams = open();
    let (kept, fast) = (streams.create("kept").unwrap(), streams.create("fast").unwrap());
    for round in 0..60 {
        for n in 0..1200_u32 {
            fast.append([7; 8]).unwrap();
            // From the tenth round on, half of each segment is live.
            if n % 40 == 0 && round >= 10 {
                kept.append([7; 1000]).unwrap();
            }
        }
        fast.truncate_before(fast.next_index().unwrap()).unwrap();
        settle(&streams);
    }
    let stats = streams.stats();
    let allowed = (stats.released_bytes + stats.segments * SEGMENT) / 10 + SEGMENT / 2;
    assert!(stats.moved_bytes <= allowed, "{stats:?}");
    assert_eq!(kept.get(0).unwrap().data(), [7; 1000]);
}

/// A reader keeps segments that nothing else needs. When it ends, the log has room.
#[test]
fn a_full_log_has_room_again_when_a_tail_ends() {
    let options = limited(12).background(false);
    let streams = options.with_store(MemStore::new(SEGMENT)).unwrap();
    let stream = streams.create("s").unwrap();
    let tail = streams.tail_all().unwrap();
    while stream.append([7; 1000]).is_ok() {}
    stream.truncate_before(stream.next_index().unwrap()).unwrap();
    settle(&streams);
    assert_eq!(stream.append([7; 1000]).unwrap_err().kind(), ErrorKind::NoSpace);
    drop(tail);
    // Without a step of the keeper, which counts the files, too.
    stream.append([7; 1000]).unwrap();
}

/// What the budget allows to move may have no room. Truncations go on, and free the log.
#[test]
fn moves_leave_room_for_truncations_at_the_limit() {
    for percent in [10, 25, 50] {
        let options = limited(40).move_percent(percent).background(false);
        let streams = options.with_store(MemStore::new(SEGMENT)).unwrap();
        let (slow, fast) = (streams.create("slow").unwrap(), streams.create("fast").unwrap());
        while segment(&streams) < 36 * u64::from(percent) / 100 - 2 {
            slow.append([7; 1000]).unwrap();
        }
        while fast.append([7; 1000]).is_ok() {}
        fast.truncate_before(fast.next_index().unwrap()).unwrap().wait().unwrap();
        settle(&streams);
        slow.truncate_before(slow.next_index().unwrap()).unwrap().wait().unwrap();
        settle(&streams);
        for _ in 0..1000 {
            fast.append([7; 1000]).unwrap();
        }
    }
}

/// Each end without a close passes over numbers of segments, which take no space.
#[test]
fn kills_take_no_room_that_the_log_has() {
    let store = MemStore::new(SEGMENT);
    let open = || {
        let options = limited(20).move_percent(0).background(false);
        options.with_store(store.clone()).unwrap()
    };
    let streams = open();
    streams.create("kept").unwrap().commit("entry").unwrap();
    streams.create("other").unwrap();
    kill(streams);
    for round in 0..12 {
        let streams = open();
        let appended = streams.stream("other").unwrap().append("entry").map(drop);
        let space = streams.log().space().unwrap();
        appended.unwrap_or_else(|error| panic!("round {round}: {error}, {space:?}"));
        kill(streams);
    }
    // What is there counts.
    let other = open().stream("other").unwrap();
    while other.append([7; 1000]).is_ok() {}
    let space = other.streams().log().space().unwrap();
    assert!((16..=18).contains(&space.segments), "{space:?}");
}

/// Such a log has no record yet, so nothing says which numbers have segments.
#[test]
fn kills_before_the_first_record_take_no_room() {
    let store = MemStore::new(SEGMENT);
    let open = || limited(6).background(false).with_store(store.clone()).unwrap();
    for _ in 0..12 {
        kill(open());
    }
    let streams = open();
    let space = streams.log().space().unwrap();
    streams.create("s").unwrap_or_else(|error| panic!("{error}, {space:?}"));
}

/// A run that appends nothing can leave the file of a segment without a record.
#[test]
fn files_without_records_take_room() {
    let store = MemStore::new(SEGMENT);
    let open = || {
        let options = limited(12).move_percent(0).background(false);
        options.with_store(store.clone()).unwrap()
    };
    let streams = open();
    streams.create("kept").unwrap().commit("entry").unwrap();
    kill(streams);
    for _ in 0..4 {
        open().close().unwrap();
        kill(open());
    }
    let kept = open().stream("kept").unwrap();
    while kept.append([7; 1000]).is_ok() {}
    kept.streams().sync().unwrap();
    let space = kept.streams().log().space().unwrap();
    // The last append may have begun one more than 9.
    assert!((9..=10).contains(&space.segments), "{space:?}");
}

/// The last segment has no record at which the log could begin, and there is no room for one.
#[test]
fn a_full_log_whose_last_record_fills_a_segment_is_emptied() {
    let options = limited(6).move_percent(0).background(false);
    let streams = options.with_store(MemStore::new(SEGMENT)).unwrap();
    let stream = streams.create("s").unwrap();
    while stream.append([7; 8]).is_ok() {}
    assert_eq!(segment(&streams), 3);
    // The record of a truncation takes 32 bytes, as that of a deletion.
    let rest = || SEGMENT - streams.log().reserved_lsn().as_u64() % SEGMENT;
    let mut first = 0;
    while rest() > 32 {
        first += 1;
        stream.truncate_before(first).unwrap();
    }
    streams.delete("s").unwrap();
    assert_eq!(streams.log().reserved_lsn().as_u64(), 4 * SEGMENT, "the segment is full");
    settle(&streams);
    streams.create("s").unwrap().commit([7; 1000]).unwrap();
}

/// A footer that takes more than its segment: each value of its streams, although only small ones
/// were set in the segment.
#[test]
fn footers_leave_room_for_truncations_at_the_limit() {
    let options = limited(60).move_percent(0).background(false);
    let streams = options.with_store(MemStore::new(SEGMENT)).unwrap();
    let names = (0..100).map(|n| format!("s{n}"));
    let all: Vec<_> = names.map(|name| streams.create(name).unwrap()).collect();
    for stream in &all {
        stream.put("large", [7; 3900]).unwrap();
    }
    settle(&streams);
    for stream in &all {
        stream.put("small", "1").unwrap();
    }
    let filler = streams.create("filler").unwrap();
    while filler.append([7; 1000]).is_ok() {}
    settle(&streams);
    filler.truncate_before(filler.next_index().unwrap()).unwrap().wait().unwrap();
    for stream in all {
        streams.delete(stream.name()).unwrap().wait().unwrap();
    }
    settle(&streams);
    filler.commit("it has room again").unwrap();
}

/// The copy of a durable entry is durable when the keeper's step ends.
#[test]
fn a_tail_returns_a_durable_entry_that_was_moved() {
    let streams = open();
    let (slow, fast) = (streams.create("slow").unwrap(), streams.create("fast").unwrap());
    slow.commit("entry").unwrap();
    for _ in 0..20 {
        fill(&streams, &fast);
    }
    fast.truncate_before(fast.next_index().unwrap()).unwrap().wait().unwrap();
    while streams.stats().moved_bytes == 0 {
        assert!(streams.maintain().unwrap(), "nothing is moved");
        let entry = slow.tail(0).unwrap().next(Duration::ZERO).unwrap();
        assert_eq!(entry.expect("it is durable").data(), b"entry");
    }
}

#[test]
fn a_truncation_of_nothing_returns_the_first_index() {
    let streams = open();
    let stream = streams.create("s").unwrap();
    (0..9).for_each(|_| drop(stream.append("entry").unwrap()));
    assert_eq!(stream.truncate_before(5).unwrap().index(), 5);
    assert_eq!(stream.truncate_before(3).unwrap().index(), 5);
}

/// Records with valid checksums that no `Streams` appends.
#[test]
fn forged_records_are_refused_or_reported() {
    let number = |mut number: u64| {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    };
    let entry = |index| [vec![0], number(index)].concat();
    let anchor = vec![0, 0, 0, 1, b'a', 0];
    for (records, kind) in [
        (vec![(0x5301, entry(u64::MAX)), (0x5301, entry(u64::MAX))], ErrorKind::Corrupt),
        (vec![(0x5303, anchor.clone()), (0x5301, entry(30_000_000))], ErrorKind::Corrupt),
        (vec![(0x5303, anchor.clone()), (0x5302, entry(1 << 59))], ErrorKind::Corrupt),
        (vec![(0x5301, entry(0))], ErrorKind::Corrupt),
        (vec![(0x5303, vec![0, 5, 3, 1, b'a', 0])], ErrorKind::Corrupt),
        (vec![(0x5310, anchor)], ErrorKind::Foreign),
    ] {
        let store = MemStore::new(SEGMENT);
        let log = palisade::Options::new().segment_bytes(SEGMENT).buffer_bytes(64 << 10);
        let wal = palisade::Wal::with_store(store.clone(), log).unwrap();
        for (tag, bytes) in &records {
            wal.append_tagged(*tag, bytes).unwrap();
        }
        wal.close().unwrap();
        drop(wal);
        let error = options().with_store(store).unwrap_err();
        assert_eq!(error.kind(), kind, "{records:?}: {error}");
    }
}

//! The calls of streams, one by one: what they return, and what bad input gets.

use std::sync::Arc;
use std::time::Duration;

use palisade::disk::MemDisk;
use palisade::{ErrorKind, MemStore, OpenMode, Result, SyncPolicy};
use palisade_streams::{Entry, MAX_NAME_BYTES, Options, Stream, Streams};

/// Small segments, and no thread: a test decides when the keeper works.
fn options() -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    Options::new().log(log).background(false)
}

fn open() -> Streams {
    options().with_store(MemStore::new(64 << 10)).unwrap()
}

fn data(entries: impl Iterator<Item = Result<Entry>>) -> Vec<Vec<u8>> {
    entries.map(|entry| entry.unwrap().into_data()).collect()
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// Lets the keeper work until it has nothing to do.
fn settle(streams: &Streams) {
    let steps = (0..10_000).take_while(|_| streams.maintain().unwrap()).count();
    assert!(steps < 10_000, "the keeper comes to an end");
}

/// Appends so much that the tail is in another segment.
fn fill_a_segment(stream: &Stream) {
    for _ in 0..70 {
        stream.append([7; 1000]).unwrap();
    }
}

#[test]
fn names_are_any_bytes_up_to_the_limit() {
    let streams = open();
    let longest = vec![0xff; MAX_NAME_BYTES];
    for name in [&b"a/b"[..], b"\0", b"..", &longest] {
        assert_eq!(streams.create(name).unwrap().name(), name);
        assert_eq!(kind(streams.create(name)), ErrorKind::AlreadyExists);
        assert_eq!(streams.stream(name).unwrap().len().unwrap(), 0);
    }
    for name in [&b""[..], &[7; MAX_NAME_BYTES + 1]] {
        assert_eq!(kind(streams.create(name)), ErrorKind::InvalidArgument);
    }
    assert_eq!(kind(streams.stream("none")), ErrorKind::NotFound);
    assert_eq!(streams.list().len(), 4);
}

#[test]
fn indexes_are_dense_and_ranges_are_clipped() {
    let streams = open();
    let (a, b) = (streams.create("a").unwrap(), streams.create("b").unwrap());
    for n in 0..100_u64 {
        assert_eq!(a.append(n.to_le_bytes()).unwrap().index(), n);
        assert_eq!(b.append([n as u8; 3]).unwrap().index(), n);
    }
    a.truncate_before(10).unwrap().wait().unwrap();
    assert_eq!((a.first_index().unwrap(), a.last_index().unwrap()), (10, Some(99)));
    assert_eq!(a.range(..).unwrap().map(|one| one.unwrap().index()).sum::<u64>(), (10..100).sum());
    let back: Vec<_> = a.range_rev(20..=22).unwrap().map(|one| one.unwrap().index()).collect();
    assert_eq!(back, [22, 21, 20]);
    assert_eq!(a.range(95..1000).unwrap().count(), 5);
    #[expect(clippy::reversed_empty_ranges, reason = "it is what a caller may ask for")]
    let none = a.range(50..40).unwrap();
    assert_eq!(none.count(), 0);
    let wanted = a.get_batch(&[50, 11, 50]).unwrap();
    assert_eq!(wanted.iter().map(Entry::index).collect::<Vec<_>>(), [50, 11, 50]);
    assert_eq!(kind(a.get(9)), ErrorKind::Truncated);
    assert_eq!(kind(a.get(100)), ErrorKind::OutOfRange);
    assert_eq!(kind(a.get_batch(&[50, 100])), ErrorKind::OutOfRange);
    assert_eq!(data(b.range(98..).unwrap()), [[98; 3], [99; 3]]);
}

#[test]
fn truncations_at_both_ends() {
    let streams = open();
    let stream = streams.create("raft").unwrap();
    for n in 0..10_u8 {
        stream.append([n]).unwrap();
    }
    assert_eq!(stream.truncate_after(6).unwrap().wait().unwrap(), 7);
    assert_eq!(stream.append("seven again").unwrap().index(), 7);
    assert_eq!(stream.get(7).unwrap().data(), b"seven again");
    stream.truncate_before(5).unwrap().wait().unwrap();
    // Below what is there already: nothing to do.
    stream.truncate_before(3).unwrap().wait().unwrap();
    assert_eq!(stream.first_index().unwrap(), 5);
    assert_eq!(kind(stream.truncate_before(9)), ErrorKind::OutOfRange);
    assert_eq!(kind(stream.truncate_from(9)), ErrorKind::OutOfRange);
    assert_eq!(kind(stream.truncate_from(4)), ErrorKind::Truncated);
    stream.truncate_from(5).unwrap().wait().unwrap();
    assert!(stream.is_empty().unwrap());
    assert_eq!(stream.last_index().unwrap(), None);
    assert_eq!(stream.append("five again").unwrap().index(), 5);
    stream.truncate_before(6).unwrap().wait().unwrap();
    assert_eq!(stream.append("six").unwrap().index(), 6);
}

#[test]
fn a_stream_that_is_made_anew_shows_nothing_of_the_deleted_one() {
    let store = MemStore::new(64 << 10);
    for run in 0..3 {
        let streams = options().with_store(store.clone()).unwrap();
        let old = streams.stream_or_create("name").unwrap();
        assert_eq!(old.len().unwrap(), run.min(1));
        old.append("old").unwrap();
        old.put("key", "old").unwrap();
        streams.delete("name").unwrap().wait().unwrap();
        assert_eq!(kind(old.append("more")), ErrorKind::NotFound);
        assert_eq!(kind(old.get(0)), ErrorKind::NotFound);
        assert_eq!(kind(old.value("key")), ErrorKind::NotFound);
        assert_eq!(kind(streams.delete("name")), ErrorKind::NotFound);
        let new = streams.create("name").unwrap();
        assert_eq!((new.len().unwrap(), new.value("key").unwrap()), (0, None));
        assert_eq!(new.commit("new").unwrap(), 0);
        assert_eq!(data(new.range(..).unwrap()), [b"new"]);
        assert_eq!(kind(old.get(0)), ErrorKind::NotFound, "the handle is of the deleted one");
    }
}

#[test]
fn a_batch_is_applied_whole_or_not_at_all() {
    let (streams, other) = (open(), open());
    let (a, b) = (streams.create("a").unwrap(), streams.create("b").unwrap());
    let gone = streams.create("gone").unwrap();
    let foreign = other.create("a").unwrap();
    streams.delete("gone").unwrap().wait().unwrap();
    let batch = streams.batch().append(&a, b"1").append(&b, b"2").append(&a, b"3");
    assert_eq!(batch.put(&b, b"k", b"v").apply().unwrap().wait().unwrap(), [0, 0, 1]);
    assert_eq!(kind(streams.batch().apply()), ErrorKind::InvalidArgument);
    let with_gone = streams.batch().append(&a, b"x").append(&gone, b"x");
    assert_eq!(kind(with_gone.apply()), ErrorKind::NotFound);
    let with_foreign = streams.batch().append(&a, b"x").append(&foreign, b"x");
    assert_eq!(kind(with_foreign.apply()), ErrorKind::InvalidArgument);
    let long = vec![0; 40 << 10];
    assert_eq!(
        kind(streams.batch().append(&a, b"x").append(&b, &long).apply()),
        ErrorKind::TooLarge
    );
    let half = vec![0; 5 << 10];
    let values = streams.batch().append(&a, b"x").put(&b, b"1", &half).put(&b, b"2", &half);
    assert_eq!(kind(values.apply()), ErrorKind::TooLarge);
    assert_eq!((a.len().unwrap(), b.len().unwrap()), (2, 1));
    assert_eq!(b.value("k").unwrap().unwrap(), b"v");
    let removed = streams.batch().remove_value(&b, b"k").append(&b, b"5").apply().unwrap();
    assert_eq!((removed.indexes(), b.value("k").unwrap()), (&[1][..], None));
}

#[test]
fn what_streams_cannot_work_with_is_refused() {
    let too_small = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(8 << 10);
    let always = palisade::Options::new().sync_policy(SyncPolicy::Always);
    let too_long = palisade::Options::new().segment_bytes(32 << 30);
    let logs = [too_small, too_long, always].map(|log| Options::new().log(log));
    for options in logs.into_iter().chain([Options::new().move_percent(51)]) {
        let store = MemStore::new(64 << 10);
        assert_eq!(kind(options.with_store(store.clone())), ErrorKind::InvalidArgument);
        // A log that it made would keep the length of its segments.
        let disk = Arc::new(MemDisk::new());
        assert_eq!(kind(options.open_on(disk.clone(), "/log")), ErrorKind::InvalidArgument);
        let must_exist = palisade::Options::new().open_mode(OpenMode::MustExist);
        assert_eq!(kind(must_exist.open_on(disk, "/log")), ErrorKind::NotFound);
    }
    let store = MemStore::new(64 << 10);
    let plain = palisade::Options::new().buffer_bytes(64 << 10);
    palisade::Wal::with_store(store.clone(), plain).unwrap().commit(b"no stream").unwrap();
    let error = options().with_store(store).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
}

#[test]
fn a_log_at_its_limit_takes_truncations_and_then_entries_again() {
    let limit = 8 * ((64 << 10) + 4096);
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    let options = Options::new().log(log.max_bytes(limit)).background(false);
    let streams = options.with_store(MemStore::new(64 << 10)).unwrap();
    let (slow, fast) = (streams.create("slow").unwrap(), streams.create("fast").unwrap());
    slow.append("keeps the log").unwrap();
    let error = loop {
        if let Err(error) = fast.append([7; 1000]) {
            break error;
        }
        assert!(fast.len().unwrap() < 10_000, "the limit holds");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let pinned = streams.pinned();
    let names: Vec<_> = pinned.iter().map(|pin| (&pin.name[..], pin.first)).collect();
    assert!(
        names.contains(&(b"slow", Some(0))) && names.contains(&(b"fast", Some(0))),
        "{names:?}"
    );
    // A truncation and a move find room, and free the log.
    fast.truncate_before(fast.next_index().unwrap()).unwrap();
    settle(&streams);
    assert!(streams.stats().moved_bytes > 0);
    fast.commit([7; 1000]).unwrap();
    assert_eq!(slow.get(0).unwrap().data(), b"keeps the log");
}

#[test]
fn a_slow_stream_is_moved_and_keeps_its_indexes() {
    let streams = open();
    let (slow, fast) = (streams.create("slow").unwrap(), streams.create("fast").unwrap());
    let idle = streams.create("idle").unwrap();
    idle.put("schema", "3").unwrap();
    for n in 0..10_u8 {
        slow.append([n; 100]).unwrap();
    }
    for _ in 0..20 {
        fill_a_segment(&fast);
        fast.truncate_before(fast.next_index().unwrap()).unwrap();
        settle(&streams);
        let stats = streams.stats();
        assert!(stats.segments <= 3, "{stats:?}");
        assert!(stats.moved_bytes * 10 <= stats.released_bytes + (64 << 10), "{stats:?}");
        for n in 0..10_u8 {
            assert_eq!(slow.get(u64::from(n)).unwrap().data(), [n; 100]);
        }
    }
    assert_eq!(idle.value("schema").unwrap().unwrap(), b"3");
}

#[test]
fn a_stream_has_numbers() {
    let streams = open();
    let (s, other) = (streams.create("s").unwrap(), streams.create("other").unwrap());
    let numbers = |s: &Stream| {
        let stats = s.stats().unwrap();
        (stats.entries, stats.segments, stats.values, stats.value_bytes)
    };
    assert_eq!(numbers(&s), (0, 0, 0, 0));
    s.append([7; 1000]).unwrap();
    fill_a_segment(&other);
    s.append([7; 1000]).unwrap();
    s.put("vote", "3").unwrap();
    // A key has a byte more, for its kind.
    assert_eq!(numbers(&s), (2, 2, 1, 6));
    let bytes = s.stats().unwrap().bytes;
    assert!((1500..2500).contains(&bytes), "{bytes}");
    s.truncate_before(1).unwrap();
    assert_eq!(numbers(&s), (1, 1, 1, 6));
    streams.delete("s").unwrap();
    assert_eq!(kind(s.stats()), ErrorKind::NotFound);
}

/// What was released before does not pay for a copy of segments of which all is live.
#[test]
fn segments_that_are_live_stay_where_they_are() {
    let streams = open();
    let (kept, fast) = (streams.create("kept").unwrap(), streams.create("fast").unwrap());
    for _ in 0..30 {
        fill_a_segment(&fast);
        fast.truncate_before(fast.next_index().unwrap()).unwrap();
        settle(&streams);
    }
    let before = streams.stats();
    assert!(before.released_bytes > 20 * (64 << 10), "{before:?}");
    for _ in 0..5 {
        fill_a_segment(&kept);
        settle(&streams);
    }
    let after = streams.stats();
    assert!(after.segments >= 5, "{after:?}");
    assert!(after.moved_bytes - before.moved_bytes < 32 << 10, "{before:?} {after:?}");
}

#[test]
fn a_tail_returns_what_is_durable_and_tells_of_truncations() {
    let streams = open();
    let stream = streams.create("s").unwrap();
    let mut tail = stream.tail(0).unwrap();
    let wait = Duration::from_secs(60);
    assert_eq!(tail.next(Duration::ZERO).unwrap(), None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..50_u8).for_each(|n| assert_eq!(stream.commit([n]).unwrap(), u64::from(n)))
        });
        for n in 0..50_u8 {
            let entry = tail.next(wait).unwrap().expect("it is committed");
            assert_eq!((entry.index(), entry.data()), (u64::from(n), &[n][..]));
        }
    });
    assert_eq!(kind(stream.tail(51)), ErrorKind::OutOfRange);
    // Above what it has returned: it does not matter to the tail.
    stream.append("replaced").unwrap();
    stream.truncate_from(50).unwrap();
    stream.commit("new").unwrap();
    assert_eq!(tail.next(wait).unwrap().unwrap().data(), b"new");
    stream.truncate_from(49).unwrap();
    stream.commit("49 again").unwrap();
    assert_eq!(kind(tail.next(wait)), ErrorKind::Truncated, "it has returned another entry 49");
    let mut late = stream.tail(10).unwrap();
    stream.truncate_before(20).unwrap();
    assert_eq!(kind(late.next(wait)), ErrorKind::Truncated);
    let mut last = stream.tail(49).unwrap();
    streams.delete("s").unwrap();
    assert_eq!(kind(last.next(wait)), ErrorKind::NotFound);
}

#[test]
fn a_tail_of_all_streams_returns_the_order_of_the_log() {
    let streams = open();
    let (a, b) = (streams.create("a").unwrap(), streams.create("b").unwrap());
    a.append("before").unwrap();
    let mut tail = streams.tail_all().unwrap();
    for (stream, data) in [(&a, "1"), (&b, "2"), (&a, "3")] {
        stream.append(data).unwrap();
    }
    streams.sync().unwrap();
    let mut next = || tail.next(Duration::from_secs(60)).unwrap().unwrap();
    let mut found = Vec::new();
    for _ in 0..3 {
        let (name, entry) = next();
        found.push((name, entry.index(), entry.into_data()));
    }
    let of = |name: &str, index, data: &str| (name.into(), index, data.into());
    assert_eq!(found, [of("a", 1, "1"), of("b", 0, "2"), of("a", 2, "3")]);
}

#[test]
fn a_tail_of_all_streams_passes_over_those_that_were_deleted() {
    let streams = open();
    let (a, b) = (streams.create("a").unwrap(), streams.create("b").unwrap());
    let mut tail = streams.tail_all().unwrap();
    a.append("of the deleted one").unwrap();
    b.append("between").unwrap();
    streams.delete("a").unwrap();
    // It has the place and the name of the deleted one.
    streams.create("a").unwrap().append("of the new one").unwrap();
    streams.sync().unwrap();
    let mut next = || tail.next(Duration::ZERO).unwrap();
    let (name, entry) = next().unwrap();
    assert_eq!((name, entry.data()), (b"b".to_vec(), &b"between"[..]));
    let (name, entry) = next().unwrap();
    assert_eq!((name, entry.data()), (b"a".to_vec(), &b"of the new one"[..]));
    assert_eq!(next(), None);
}

#[test]
fn beside_deletions_a_tail_of_all_streams_names_each_entry_once() {
    const ENTRIES: u64 = 300;
    let streams = open();
    let kept = streams.create("kept").unwrap();
    let mut tail = streams.tail_all().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..ENTRIES {
                kept.commit(n.to_le_bytes()).unwrap();
            }
        });
        scope.spawn(|| {
            for n in 0..ENTRIES {
                let stream = streams.create("deleted").unwrap();
                assert_eq!(stream.append(n.to_le_bytes()).unwrap().index(), 0);
                streams.delete("deleted").unwrap();
            }
        });
        let (mut of_kept, mut of_deleted) = (0, None);
        while of_kept < ENTRIES {
            let (name, entry) = tail.next(Duration::from_secs(60)).unwrap().unwrap();
            let n = u64::from_le_bytes(entry.data().try_into().unwrap());
            if name == b"kept" {
                assert_eq!((entry.index(), n), (of_kept, of_kept));
                of_kept += 1;
            } else {
                assert_eq!((&name[..], entry.index()), (&b"deleted"[..], 0));
                assert!(of_deleted < Some(n), "{n} after {of_deleted:?}");
                of_deleted = Some(n);
            }
        }
    });
}

/// Threads that append, truncate and read while the keeper's thread moves and releases.
#[test]
fn threads_see_their_entries_while_the_keeper_moves_them() {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    let options = Options::new().log(log).move_percent(50);
    let store = MemStore::new(64 << 10);
    let streams = options.with_store(store.clone()).unwrap();
    let keeps = |thread: u64| thread.is_multiple_of(2);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let stream = streams.create(format!("stream {thread}")).unwrap();
            scope.spawn(move || {
                for n in 0..3000_u64 {
                    let index =
                        stream.append([n.to_le_bytes(), [thread as u8; 8]].concat()).unwrap();
                    assert_eq!(index.index(), n);
                    if keeps(thread) {
                        let entry = stream.get(n / 2).unwrap();
                        assert_eq!(entry.data()[..8], (n / 2).to_le_bytes());
                    } else if n >= 100 {
                        stream.truncate_before(n - 50).unwrap();
                        assert_eq!(stream.get(n - 50).unwrap().data()[..8], (n - 50).to_le_bytes());
                    }
                    stream.append([0; 200]).unwrap();
                    stream.truncate_from(n + 1).unwrap();
                }
            });
        }
    });
    streams.sync().unwrap();
    drop(streams);
    let streams = options.with_store(store).unwrap();
    for thread in 0..4 {
        let stream = streams.stream(format!("stream {thread}")).unwrap();
        let first = if keeps(thread) { 0 } else { 2949 };
        assert_eq!((stream.first_index().unwrap(), stream.next_index().unwrap()), (first, 3000));
        for (n, entry) in (first..).zip(stream.range(..).unwrap()) {
            assert_eq!(entry.unwrap().data(), [n.to_le_bytes(), [thread as u8; 8]].concat());
        }
    }
}

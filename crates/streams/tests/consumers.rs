//! Consumers: where they continue, what truncations and deletions do to them, and their limits.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use palisade::{ErrorKind, MemStore, Result};
use palisade_streams::{Consumer, ConsumerStatus, Options, Reader, Stream, Streams, verify};

const ZERO: Duration = Duration::ZERO;

/// Small segments, and no thread: a test decides when the keeper works.
fn options() -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    Options::new().log(log).background(false)
}

fn open() -> Streams {
    options().with_store(MemStore::new(64 << 10)).unwrap()
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// Makes a stream with durable entries `0`, `1` and so on.
fn topic(streams: &Streams, entries: u8) -> Stream {
    let stream = streams.create("topic").unwrap();
    (0..entries).for_each(|n| drop(stream.append([n]).unwrap()));
    streams.sync().unwrap();
    stream
}

/// Reads what is durable.
fn read(consumer: &mut Consumer) -> Vec<Vec<u8>> {
    let next = || consumer.next(ZERO).unwrap().map(palisade_streams::Entry::into_data);
    std::iter::from_fn(next).collect()
}

fn status(stream: &Stream) -> Vec<(u64, u64, bool)> {
    let of = |one: ConsumerStatus| (one.acked, one.lag, one.is_truncated);
    stream.consumers().unwrap().into_iter().map(of).collect()
}

#[test]
fn a_consumer_continues_above_what_was_acknowledged() {
    let store = MemStore::new(64 << 10);
    let streams = options().with_store(store.clone()).unwrap();
    let stream = topic(&streams, 5);
    stream.truncate_before(1).unwrap();
    assert_eq!(stream.lowest_acked().unwrap(), None);
    let mut consumer = stream.consumer("c").unwrap();
    assert_eq!(
        (consumer.position(), consumer.acked().unwrap(), consumer.lag().unwrap()),
        (1, 1, 4)
    );
    assert_eq!(consumer.peek(ZERO).unwrap().unwrap().data(), [1]);
    assert_eq!(read(&mut consumer), [[1], [2], [3], [4]]);
    assert_eq!(consumer.ack(2).unwrap().wait().unwrap(), 2);
    // What was acknowledged already stays so.
    assert!(consumer.ack(1).unwrap().is_durable());
    assert_eq!((consumer.acked().unwrap(), consumer.lag().unwrap()), (3, 2));
    stream.append("not durable").unwrap();
    assert_eq!((consumer.next(ZERO).unwrap(), consumer.lag().unwrap()), (None, 3));
    drop(consumer);
    assert_eq!(read(&mut stream.consumer("c").unwrap()), [[3], [4]], "nothing was acknowledged");
    drop((stream, streams));

    let streams = options().with_store(store).unwrap();
    let stream = streams.stream("topic").unwrap();
    let mut other = stream.consumer("other").unwrap();
    assert_eq!((other.name(), other.stream().name()), (&b"other"[..], &b"topic"[..]));
    other.next(ZERO).unwrap().unwrap();
    other.ack(1).unwrap();
    assert_eq!(status(&stream), [(3, 3, false), (2, 4, false)]);
    assert_eq!(stream.lowest_acked().unwrap(), Some(2));
    stream.truncate_before(2).unwrap();
    assert_eq!(stream.consumer("c").unwrap().next(ZERO).unwrap().unwrap().data(), [3]);
}

#[test]
fn a_batch_saves_a_position_with_what_the_consumer_appends() {
    let (streams, elsewhere) = (open(), open());
    let (stream, output) = (topic(&streams, 4), streams.create("output").unwrap());
    let mut consumer = stream.consumer("c").unwrap();
    assert_eq!(read(&mut consumer).len(), 4);
    let gone = streams.create("gone").unwrap();
    streams.delete("gone").unwrap();
    let refused = streams.batch().ack(&consumer, 3).append(&gone, b"x").apply();
    assert_eq!(kind(refused), ErrorKind::NotFound);
    let refused = streams.batch().append(&output, b"x").ack(&consumer, 4).apply();
    assert_eq!(kind(refused), ErrorKind::OutOfRange);
    let foreign = topic(&elsewhere, 1).consumer("c").unwrap();
    let refused = streams.batch().append(&output, b"x").ack(&foreign, 0).apply();
    assert_eq!(kind(refused), ErrorKind::InvalidArgument);
    assert_eq!((consumer.acked().unwrap(), output.len().unwrap()), (0, 0), "nothing was changed");
    // The highest acknowledgement counts, not the last one.
    let batch = streams.batch().ack(&consumer, 2).append(&output, b"sum").ack(&consumer, 1);
    assert_eq!(batch.apply().unwrap().wait().unwrap(), [0]);
    assert_eq!((consumer.acked().unwrap(), output.len().unwrap()), (3, 1));
    streams.batch().ack(&consumer, 0).apply().unwrap();
    assert_eq!(consumer.acked().unwrap(), 3);
}

#[test]
fn of_two_threads_that_open_a_consumer_one_gets_it() {
    let streams = open();
    let stream = streams.create("s").unwrap();
    for round in 0..200 {
        // Each second round opens one that there is already.
        let name = format!("c{}", round / 2);
        let (begins, ends) = (Barrier::new(2), Barrier::new(2));
        let open = || {
            begins.wait();
            let opened = stream.consumer(&name);
            ends.wait();
            opened.map(drop)
        };
        let opened = thread::scope(|scope| {
            let other = scope.spawn(open);
            [open(), other.join().unwrap()]
        });
        assert_eq!(opened.iter().filter(|result| result.is_ok()).count(), 1, "{opened:?}");
        let refused = opened.into_iter().find_map(Result::err).unwrap();
        assert_eq!(refused.kind(), ErrorKind::Locked);
        assert_eq!(stream.consumers().unwrap().len(), round / 2 + 1);
    }
}

#[test]
fn a_consumer_has_one_handle_and_can_be_removed() {
    let streams = open();
    let (stream, other) = (topic(&streams, 2), streams.create("other").unwrap());
    let mut consumer = stream.consumer("c").unwrap();
    consumer.next(ZERO).unwrap().unwrap();
    consumer.ack(0).unwrap();
    for refused in [stream.consumer("c").map(drop), stream.remove_consumer("c").map(drop)] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert!(error.to_string().contains("\"c\" is open already"), "{error}");
    }
    assert_eq!(other.consumer("c").unwrap().acked().unwrap(), 0, "of another stream");
    assert_eq!(kind(stream.remove_consumer("none")), ErrorKind::NotFound);
    drop(consumer);
    stream.remove_consumer("c").unwrap().wait().unwrap();
    assert_eq!(kind(stream.remove_consumer("c")), ErrorKind::NotFound);
    assert_eq!(status(&stream), []);
    assert_eq!(stream.consumer("c").unwrap().position(), 0, "a new one begins at the first entry");
    for name in [&b""[..], &[7; 1025]] {
        assert_eq!(kind(stream.consumer(name)), ErrorKind::InvalidArgument);
    }
}

#[test]
fn a_consumer_of_truncated_entries_fails_until_it_seeks() {
    let streams = open();
    let stream = topic(&streams, 6);
    let mut consumer = stream.consumer("c").unwrap();
    consumer.next(ZERO).unwrap().unwrap();
    consumer.ack(0).unwrap();
    stream.truncate_before(3).unwrap();
    assert_eq!(status(&stream), [(1, 3, true)]);
    assert_eq!(kind(consumer.next(ZERO)), ErrorKind::Truncated);
    drop(consumer);
    let mut consumer = stream.consumer("c").unwrap();
    let error = consumer.peek(ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    assert!(error.to_string().contains("call Consumer::seek"), "{error}");
    assert_eq!(kind(consumer.seek(2)), ErrorKind::Truncated);
    assert_eq!(kind(consumer.seek(7)), ErrorKind::OutOfRange);
    assert_eq!(kind(consumer.next(ZERO)), ErrorKind::Truncated, "it stays where it was");
    consumer.seek(stream.first_index().unwrap()).unwrap().wait().unwrap();
    assert_eq!(consumer.next(ZERO).unwrap().unwrap().data(), [3]);
    assert_eq!(consumer.acked().unwrap(), 3, "a seek acknowledges what is below");
    // Backwards, too.
    consumer.next(ZERO).unwrap().unwrap();
    consumer.ack(4).unwrap();
    consumer.seek(4).unwrap();
    assert_eq!((consumer.acked().unwrap(), consumer.position()), (4, 4));
}

#[test]
fn entries_that_replace_acknowledged_ones_are_not_passed_over() {
    let store = MemStore::new(64 << 10);
    let streams = options().with_store(store.clone()).unwrap();
    let stream = topic(&streams, 6);
    let mut consumer = stream.consumer("c").unwrap();
    assert_eq!(read(&mut consumer).len(), 6);
    consumer.ack(4).unwrap();
    let mut idle = stream.consumer("idle").unwrap();
    idle.next(ZERO).unwrap().unwrap();
    idle.ack(0).unwrap();
    stream.truncate_from(2).unwrap();
    (0..5).for_each(|_| drop(stream.append("new").unwrap()));
    streams.sync().unwrap();
    assert_eq!(status(&stream), [(2, 5, true), (1, 6, false)]);
    assert_eq!(kind(consumer.next(ZERO)), ErrorKind::Truncated);
    assert_eq!(kind(consumer.ack(4)), ErrorKind::Truncated);
    assert_eq!(idle.next(ZERO).unwrap().unwrap().data(), [1], "it had not come so far");
    drop((consumer, idle, stream));
    // As a kill does.
    streams.log().clone().abandon();
    drop(streams);

    let streams = options().with_store(store).unwrap();
    let stream = streams.stream("topic").unwrap();
    let mut consumer = stream.consumer("c").unwrap();
    let error = consumer.next(ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    assert!(error.to_string().contains("entry 2, which"), "{error}");
    assert_eq!(kind(consumer.ack(1)), ErrorKind::Truncated);
    consumer.seek(consumer.position()).unwrap();
    assert_eq!(read(&mut consumer), [b"new"; 5]);
    assert_eq!(status(&stream), [(2, 5, false), (1, 6, false)]);
}

#[test]
fn an_entry_that_was_returned_and_replaced_is_not_acknowledged() {
    let streams = open();
    let stream = topic(&streams, 6);
    let mut consumer = stream.consumer("c").unwrap();
    assert_eq!(read(&mut consumer).len(), 6);
    stream.truncate_from(3).unwrap();
    (0..3).for_each(|_| drop(stream.append("new").unwrap()));
    streams.sync().unwrap();
    assert_eq!(kind(consumer.ack(5)), ErrorKind::Truncated);
    let batch = streams.batch().append(&stream, b"x").ack(&consumer, 3);
    assert_eq!(kind(batch.apply()), ErrorKind::Truncated);
    // Those below are what the consumer has returned.
    consumer.ack(2).unwrap();
    assert_eq!(status(&stream), [(3, 3, false)]);
    assert_eq!(kind(consumer.next(ZERO)), ErrorKind::Truncated);
    drop(consumer);
    assert_eq!(read(&mut stream.consumer("c").unwrap()), [b"new"; 3]);
}

#[test]
fn a_peeked_entry_that_was_replaced_is_not_returned() {
    let streams = open();
    let stream = topic(&streams, 2);
    let mut consumer = stream.consumer("c").unwrap();
    assert_eq!(consumer.next(ZERO).unwrap().unwrap().data(), [0]);
    assert_eq!(consumer.peek(ZERO).unwrap().unwrap().data(), [1]);
    assert_eq!(kind(consumer.ack(1)), ErrorKind::OutOfRange, "it was not returned");
    stream.truncate_from(1).unwrap();
    stream.commit("new").unwrap();
    assert_eq!(consumer.next(ZERO).unwrap().unwrap().data(), b"new");
    consumer.ack(1).unwrap();
}

#[test]
fn consumers_of_a_deleted_stream_are_gone() {
    let streams = open();
    let stream = topic(&streams, 3);
    let mut old = stream.consumer("c").unwrap();
    assert_eq!(read(&mut old).len(), 3);
    old.ack(2).unwrap();
    streams.delete("topic").unwrap();
    let anew = topic(&streams, 1);
    assert_eq!(status(&anew), []);
    let mut consumer = anew.consumer("c").unwrap();
    assert_eq!(read(&mut consumer), [[0]]);
    assert_eq!(kind(old.next(ZERO)), ErrorKind::NotFound);
    assert_eq!(kind(old.ack(2)), ErrorKind::NotFound);
    assert_eq!(kind(old.seek(0)), ErrorKind::NotFound);
    assert_eq!(kind(old.acked()), ErrorKind::NotFound);
    assert_eq!(kind(streams.batch().ack(&old, 0).apply()), ErrorKind::NotFound);
    assert_eq!(kind(stream.consumers()), ErrorKind::NotFound);
    assert_eq!(kind(stream.consumer("d")), ErrorKind::NotFound);
    assert_eq!(consumer.acked().unwrap(), 0);
}

#[test]
fn no_key_of_a_value_is_that_of_a_consumer() {
    let folder = tempfile::tempdir().unwrap();
    let streams = options().open(folder.path()).unwrap();
    let stream = topic(&streams, 2);
    let mut consumer = stream.consumer("c").unwrap();
    consumer.next(ZERO).unwrap().unwrap();
    consumer.ack(0).unwrap();
    for key in ["c", "\u{1}c", "\0c", ""] {
        assert_eq!(stream.value(key).unwrap(), None);
        stream.put(key, [0xff; 9]).unwrap();
        assert_eq!(stream.value(key).unwrap().unwrap(), [0xff; 9]);
        stream.remove_value(key).unwrap();
    }
    stream.put("c", "7").unwrap();
    streams.sync().unwrap();
    assert_eq!(status(&stream), [(1, 1, false)]);
    let reader = Reader::open(folder.path()).unwrap();
    assert_eq!(reader.values("topic").unwrap(), [(b"c".to_vec(), b"7".to_vec())]);
    assert_eq!(reader.stream("topic").unwrap().values, 1);
    assert_eq!(reader.consumers("topic").unwrap(), stream.consumers().unwrap());
}

#[test]
fn consumers_are_moved_with_their_stream_and_found_by_footers() {
    let folder = tempfile::tempdir().unwrap();
    let streams = options().open(folder.path()).unwrap();
    let (stream, fast) = (topic(&streams, 9), streams.create("fast").unwrap());
    let mut consumer = stream.consumer("c").unwrap();
    for n in 0..9 {
        consumer.next(ZERO).unwrap().unwrap();
        consumer.ack(n).unwrap();
        (0..70).for_each(|_| drop(fast.append([7; 1000]).unwrap()));
        fast.truncate_before(fast.next_index().unwrap()).unwrap();
        while streams.maintain().unwrap() {}
    }
    assert!(streams.stats().moved_bytes > 0 && streams.stats().released_bytes > 0);
    stream.truncate_from(8).unwrap();
    // Segments that stay, and get their footers.
    (0..140).for_each(|_| drop(fast.append([7; 1000]).unwrap()));
    while streams.maintain().unwrap() {}
    streams.sync().unwrap();
    let expected = stream.consumers().unwrap();
    assert_eq!(status(&stream), [(8, 0, true)]);
    assert!(verify(folder.path()).unwrap().is_whole());
    assert_eq!(Reader::open(folder.path()).unwrap().consumers("topic").unwrap(), expected);
    drop((consumer, stream, fast));
    streams.close().unwrap();
    drop(streams);
    let streams = options().open(folder.path()).unwrap();
    assert!(streams.open_report().footers > 0);
    assert_eq!(streams.stream("topic").unwrap().consumers().unwrap(), expected);
}

/// A stream whose consumers take all that its values may take.
#[test]
fn acknowledgements_and_truncations_work_at_the_limit_of_values() {
    let streams = open();
    let stream = topic(&streams, 3);
    let mut consumers = Vec::new();
    let error = loop {
        match stream.consumer(format!("{}", consumers.len())) {
            Ok(consumer) => consumers.push(consumer),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(kind(stream.put("key", "")), ErrorKind::TooLarge);
    assert!(consumers.len() > 200, "{}", consumers.len());
    for consumer in &mut consumers {
        assert_eq!(read(consumer).len(), 3);
        consumer.ack(2).unwrap();
    }
    stream.truncate_from(1).unwrap().wait().unwrap();
    assert!(status(&stream).into_iter().all(|status| status == (1, 0, true)));
    stream.commit("new").unwrap();
    for consumer in &mut consumers {
        consumer.seek(1).unwrap();
        assert_eq!(read(consumer), [b"new"]);
    }
}

/// An engine may truncate only what was acknowledged, so a full log must take acknowledgements.
#[test]
fn a_full_log_has_room_for_acknowledgements_and_truncations() {
    let limit = 8 * ((64 << 10) + 4096);
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    let options = Options::new().log(log.max_bytes(limit)).background(false);
    let streams = options.with_store(MemStore::new(64 << 10)).unwrap();
    let stream = topic(&streams, 1);
    let mut consumer = stream.consumer("c").unwrap();
    let error = (0..10_000).find_map(|_| stream.append([7; 1000]).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    streams.sync().unwrap();
    assert!(read(&mut consumer).len() > 200);
    let batch = streams.batch().ack(&consumer, 0).append(&stream, b"");
    assert_eq!(kind(batch.apply()), ErrorKind::NoSpace, "an append is one in a batch, too");
    streams.batch().ack(&consumer, 0).apply().unwrap();
    // Positions without a truncation do not take all that is left.
    let error = (0..10_000).find_map(|n| consumer.seek(n % 2).err());
    assert_eq!(error.unwrap().kind(), ErrorKind::NoSpace);
    assert_eq!(consumer.position(), consumer.acked().unwrap(), "it stays where it was");
    stream.truncate_before(stream.next_index().unwrap()).unwrap();
    while streams.maintain().unwrap() {}
    stream.commit("again").unwrap();
}

/// An engine may have to save a value before it truncates, such as what a Raft group purges.
#[test]
fn a_full_log_takes_values_and_leaves_room_for_acknowledgements() {
    let limit = 8 * ((64 << 10) + 4096);
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    let options = Options::new().log(log.max_bytes(limit)).background(false);
    let streams = options.with_store(MemStore::new(64 << 10)).unwrap();
    let stream = topic(&streams, 3);
    let mut consumer = stream.consumer("c").unwrap();
    while stream.append([7; 1000]).is_ok() {}
    streams.sync().unwrap();
    assert!(read(&mut consumer).len() > 200);
    stream.put("vote", "term 2").unwrap();
    stream.remove_value("vote").unwrap();
    let batch = streams.batch().put(&stream, b"vote", b"term 3").ack(&consumer, 0);
    batch.apply().unwrap();
    let batch = streams.batch().put(&stream, b"vote", b"term 4").append(&stream, b"");
    assert_eq!(kind(batch.apply()), ErrorKind::NoSpace, "an append is one in a batch, too");
    // A long value does not take the room that is left for short ones.
    let error = (0..100).find_map(|_| stream.put("long", [7; 6000]).err());
    assert_eq!(error.unwrap().kind(), ErrorKind::NoSpace);
    stream.put("vote", "term 5").unwrap();
    // Values do not take the room that is left for acknowledgements.
    let error = (0..10_000).find_map(|n| stream.put("vote", format!("term {n}")).err());
    assert_eq!(error.unwrap().kind(), ErrorKind::NoSpace);
    let batch = streams.batch().put(&stream, b"vote", b"term 10000");
    assert_eq!(kind(batch.apply()), ErrorKind::NoSpace);
    (1..200).for_each(|index| drop(consumer.ack(index).unwrap()));
    stream.truncate_before(stream.next_index().unwrap()).unwrap();
    while streams.maintain().unwrap() {}
    stream.put("vote", "term 6").unwrap();
    stream.commit("again").unwrap();
}

#[test]
fn a_batch_that_sets_a_value_again_counts_it_once() {
    let streams = open();
    let stream = streams.create("s").unwrap();
    // Two of them are too long.
    let long = vec![7; 5 << 10];
    let batch = streams.batch().put(&stream, b"k", &long).put(&stream, b"k", b"short");
    batch.put(&stream, b"l", &long).apply().unwrap();
    assert_eq!(stream.value("k").unwrap().unwrap(), b"short");
    // A removal makes room in the same batch.
    let batch = streams.batch().remove_value(&stream, b"l").put(&stream, b"m", &long);
    batch.apply().unwrap();
    let batch = streams.batch().put(&stream, b"n", &long).put(&stream, b"o", b"");
    assert_eq!(kind(batch.apply()), ErrorKind::TooLarge);
}

/// A position that no consumer writes.
#[test]
fn a_forged_position_is_refused() {
    for value in [&[0; 8][..], &[2; 9], &[0; 10]] {
        let store = MemStore::new(64 << 10);
        let streams = options().with_store(store.clone()).unwrap();
        streams.create("a").unwrap();
        let mut found = None;
        let mut records = streams.log().records().unwrap();
        while let Some(record) = records.next().unwrap() {
            found = Some(record.data().to_vec());
        }
        // The id of the stream is in front of its anchor: varint bytes up to the first below 0x80.
        let anchor = found.unwrap();
        let len = anchor.iter().position(|byte| *byte < 0x80).unwrap() + 1;
        let forged = [&anchor[..len], &[2, 1, b'c', 1], value].concat();
        streams.log().append_tagged(0x5307, &forged).unwrap().wait().unwrap();
        drop((records, streams));
        assert_eq!(kind(options().with_store(store)), ErrorKind::Corrupt);
    }
}

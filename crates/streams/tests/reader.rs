//! A reader finds in the files what the streams hold, over random histories, and so does a check of
//! the footers. A follower returns each entry once.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use palisade::inspect::{Inspector, Outcome};
use palisade::{ErrorKind, Result, Wal};
use palisade_streams::{ConsumerStatus, Followed, Options, Reader, Stream, Streams, verify};
use tempfile::TempDir;

const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENT_HEADER_BYTES: u64 = 4096;
const NAMES: [&[u8]; 5] = [b"a", b"stream", b"\xff\x00", b"slow", b"idle"];
const KEYS: [&[u8]; 2] = [b"vote", b""];

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn open(dir: &Path) -> Streams {
    let log = palisade::Options::new().segment_bytes(SEGMENT_BYTES).buffer_bytes(16 << 10);
    Options::new().log(log).move_percent(50).background(false).open(dir).unwrap()
}

/// A generator of random numbers: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        for (left, shift) in [(true, 13), (false, 7), (true, 17)] {
            self.0 ^= if left { self.0 << shift } else { self.0 >> shift };
        }
        self.0 % n
    }
}

type Values = Vec<Option<Vec<u8>>>;
type Content = BTreeMap<Vec<u8>, (u64, u64, Vec<(u64, Vec<u8>)>, Values, Vec<ConsumerStatus>)>;

fn of_streams(streams: &Streams) -> Content {
    let read = |name: Vec<u8>| {
        let stream = streams.stream(&name).unwrap();
        let bounds = (stream.first_index().unwrap(), stream.next_index().unwrap());
        let entries = stream.range(..).unwrap().map(Result::unwrap);
        let entries = entries.map(|entry| (entry.index(), entry.into_data())).collect();
        let values = KEYS.map(|key| stream.value(key).unwrap()).to_vec();
        (name, (bounds.0, bounds.1, entries, values, stream.consumers().unwrap()))
    };
    streams.list().into_iter().map(read).collect()
}

fn of_reader(reader: &mut Reader) -> Content {
    let names: Vec<_> = reader.streams().into_iter().map(|status| status.name).collect();
    let read = |name: Vec<u8>| {
        let status = reader.stream(&name).unwrap();
        let entries = reader.entries(&name, ..).unwrap().map(Result::unwrap);
        let entries: Vec<_> = entries.map(|entry| (entry.index(), entry.into_data())).collect();
        assert_eq!(status.entries, entries.len() as u64);
        assert_eq!(status.bytes, entries.iter().map(|(_, data)| data.len() as u64).sum());
        let values: BTreeMap<_, _> = reader.values(&name).unwrap().into_iter().collect();
        assert_eq!(status.values, values.len() as u64);
        let values = KEYS.map(|key| values.get(key).cloned()).to_vec();
        let consumers = reader.consumers(&name).unwrap();
        (name, (status.first, status.next, entries, values, consumers))
    };
    names.into_iter().map(read).collect()
}

fn step(streams: &Streams, dice: &mut Dice) {
    let name = NAMES[dice.below(5) as usize];
    let stream = streams.stream_or_create(name).unwrap();
    let (first, next) = (stream.first_index().unwrap(), stream.next_index().unwrap());
    let at = first + dice.below(next - first + 1);
    let key = KEYS[dice.below(2) as usize];
    match dice.below(40) {
        0 => drop(stream.truncate_from(at).unwrap()),
        1..4 if name != b"slow" => drop(stream.truncate_before(at).unwrap()),
        4 | 5 if name != b"slow" => drop(stream.truncate_before(next).unwrap()),
        6 => drop(stream.put(key, vec![7; dice.below(30) as usize]).unwrap()),
        7 => drop(stream.remove_value(key).unwrap()),
        8 if dice.below(8) == 0 => drop(streams.delete(name).unwrap()),
        9..12 => drop(streams.maintain().unwrap()),
        12 => while streams.maintain().unwrap() {},
        16 => drop(stream.remove_consumer("c")),
        17..20 => {
            let mut consumer = stream.consumer("c").unwrap();
            match consumer.next(Duration::ZERO) {
                Ok(Some(entry)) => drop(consumer.ack(entry.index()).unwrap()),
                Ok(None) => {}
                Err(_) => drop(consumer.seek(at).unwrap()),
            }
        }
        13..16 => {
            let other = streams.stream_or_create("other").unwrap();
            let batch = streams.batch().append(&stream, b"both").append(&other, &[9; 300]);
            drop(batch.append(&stream, b"and again").apply().unwrap());
        }
        _ => {
            let len = [0, 300, 900, 3000, 4000][dice.below(5) as usize];
            drop(stream.append(vec![dice.below(256) as u8; len]).unwrap());
        }
    }
}

#[test]
fn a_reader_and_a_check_find_what_the_streams_hold() {
    let (mut footers, mut moved, mut released) = (0, 0, 0);
    for seed in 1..=12 {
        let (folder, mut dice) = (folder(), Dice(0x9e37_79b9_7f4a_7c15 ^ seed));
        let mut streams = open(folder.path());
        let mut early = Reader::open(folder.path()).unwrap();
        for round in 0..14 {
            for _ in 0..20 + dice.below(400) {
                step(&streams, &mut dice);
            }
            streams.sync().unwrap();
            let expected = of_streams(&streams);
            let mut reader = Reader::open(folder.path()).unwrap();
            assert!(of_reader(&mut reader) == expected, "seed {seed}, round {round}");
            early.refresh().unwrap();
            assert!(of_reader(&mut early) == expected, "seed {seed}, round {round}: refreshed");
            let verdict = verify(folder.path()).unwrap();
            assert!(verdict.is_whole(), "seed {seed}, round {round}: {verdict:?}");
            assert_eq!(verdict.streams, expected.len() as u64);
            footers += verdict.footers;
            moved += reader.stats().moved;
            released += u64::from(reader.stats().head.as_u64() > 0);
            match dice.below(4) {
                0 => {
                    streams.close().unwrap();
                    streams = open(folder.path());
                }
                1 => {
                    drop(streams);
                    streams = open(folder.path());
                }
                _ => {}
            }
        }
    }
    assert!(footers > 0 && moved > 0 && released > 0, "the histories leave out what they check");
}

fn fill(stream: &Stream, entries: u64) {
    for _ in 0..entries {
        let next = stream.next_index().unwrap();
        stream.append(next.to_le_bytes().repeat(100)).unwrap();
    }
    stream.streams().sync().unwrap();
}

#[test]
fn a_follower_returns_each_entry_once_and_names_truncations() {
    let folder = folder();
    let streams = open(folder.path());
    let stream = streams.create("followed").unwrap();
    fill(&stream, 10);
    let mut follow = Reader::open(folder.path()).unwrap().follow("followed", Some(4)).unwrap();
    let expect_entries = |range: std::ops::Range<u64>, follow: &mut palisade_streams::Follow| {
        for index in range {
            let Some(Followed::Entry(entry)) = follow.next().unwrap() else { panic!("{index}") };
            assert_eq!(entry.index(), index);
            assert_eq!(entry.data(), index.to_le_bytes().repeat(100));
        }
    };
    expect_entries(4..10, &mut follow);
    assert_eq!(follow.next().unwrap(), None);
    fill(&stream, 40);
    expect_entries(10..50, &mut follow);

    stream.truncate_from(45).unwrap();
    fill(&stream, 10);
    let replaced = Followed::Replaced { from: 45, to: 50 };
    assert_eq!(follow.next().unwrap(), Some(replaced));
    expect_entries(45..55, &mut follow);
    assert_eq!(follow.next().unwrap(), None);

    fill(&stream, 200);
    stream.truncate_before(200).unwrap();
    streams.sync().unwrap();
    while streams.maintain().unwrap() {}
    assert!(streams.stats().released_bytes > 0);
    assert_eq!(follow.next().unwrap(), Some(Followed::Truncated { from: 55, to: 200 }));
    expect_entries(200..255, &mut follow);

    streams.delete("followed").unwrap().wait().unwrap();
    streams.create("followed").unwrap();
    assert_eq!(follow.next().unwrap_err().kind(), ErrorKind::NotFound);
    let reader = || Reader::open(folder.path()).unwrap();
    assert_eq!(reader().follow("none", None).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(reader().follow("followed", Some(1)).unwrap_err().kind(), ErrorKind::OutOfRange);
}

/// The follower reads the log anew, and comes to a truncation before it comes to the stream's name.
#[test]
fn a_follower_sees_a_truncation_below_the_anchor_of_its_stream() {
    let folder = folder();
    let streams = open(folder.path());
    let segment = || streams.log().reserved_lsn().as_u64() / streams.log().segment_bytes();
    let (stream, other) = (streams.create("s").unwrap(), streams.create("other").unwrap());
    let fill_a_segment = || {
        let at = segment();
        while segment() == at {
            other.append([7; 1000]).unwrap();
        }
    };
    fill(&stream, 10);
    let mut follow = Reader::open(folder.path()).unwrap().follow("s", None).unwrap();
    for _ in 0..10 {
        assert!(matches!(follow.next().unwrap(), Some(Followed::Entry(_))));
    }
    fill_a_segment();
    stream.truncate_from(5).unwrap();
    fill(&stream, 7);
    (0..30).for_each(|_| fill_a_segment());
    other.truncate_before(other.next_index().unwrap()).unwrap().wait().unwrap();
    while streams.stats().released_bytes == 0 {
        assert!(streams.maintain().unwrap(), "nothing is released");
    }
    streams.sync().unwrap();
    let replaced = Followed::Replaced { from: 5, to: 10 };
    assert_eq!(follow.next().unwrap(), Some(replaced));
    assert!(matches!(follow.next().unwrap(), Some(Followed::Entry(entry)) if entry.index() == 5));
}

/// The writer moves the entries and releases the record of the truncation. Then it only moves.
#[test]
fn a_follower_distinguishes_replaced_from_moved_entries() {
    let folder = folder();
    let streams = open(folder.path());
    let (stream, other) = (streams.create("s").unwrap(), streams.create("other").unwrap());
    let release_what_is_there = || {
        let end = streams.log().reserved_lsn();
        (0..2000).for_each(|_| drop(other.append([7; 1000]).unwrap()));
        other.truncate_before(other.next_index().unwrap()).unwrap().wait().unwrap();
        while streams.maintain().unwrap() {}
        assert!(streams.log().head_lsn() > end);
        streams.sync().unwrap();
    };
    fill(&stream, 10);
    let mut follow = Reader::open(folder.path()).unwrap().follow("s", None).unwrap();
    for _ in 0..10 {
        assert!(matches!(follow.next().unwrap(), Some(Followed::Entry(_))));
    }
    stream.truncate_from(5).unwrap();
    for index in 5..10 {
        stream.append([index; 7]).unwrap();
    }
    release_what_is_there();
    let replaced = Followed::Replaced { from: 5, to: 10 };
    assert_eq!(follow.next().unwrap(), Some(replaced));
    for index in 5..10 {
        let Some(Followed::Entry(entry)) = follow.next().unwrap() else { panic!("{index}") };
        assert_eq!((entry.index(), entry.data()), (index.into(), &[index; 7][..]));
    }
    release_what_is_there();
    assert_eq!(follow.next().unwrap(), None);
    stream.truncate_from(8).unwrap();
    release_what_is_there();
    assert_eq!(follow.next().unwrap(), Some(Followed::Replaced { from: 8, to: 10 }));
    assert_eq!(follow.next().unwrap(), None);
}

#[test]
fn entries_moved_or_removed_during_a_read_are_found_or_named() {
    let folder = folder();
    let streams = open(folder.path());
    let (moved, gone) = (streams.create("moved").unwrap(), streams.create("gone").unwrap());
    fill(&moved, 3);
    fill(&gone, 400);
    let mut reader = Reader::open(folder.path()).unwrap();
    gone.truncate_before(390).unwrap();
    streams.sync().unwrap();
    while streams.maintain().unwrap() {}
    assert!(streams.stats().moved_bytes > 0 && streams.stats().released_bytes > 0);
    let entries: Vec<_> = reader.entries("gone", ..).unwrap().collect();
    assert_eq!(entries[0].as_ref().unwrap_err().kind(), ErrorKind::Truncated);
    let indexes: Vec<u64> = entries[1..].iter().map(|one| one.as_ref().unwrap().index()).collect();
    assert_eq!(indexes, (390..400).collect::<Vec<_>>());
    assert_eq!(reader.entries("moved", ..).unwrap().map(Result::unwrap).count(), 3);
}

#[test]
fn a_log_that_is_none_of_streams_is_foreign() {
    let folder = folder();
    let wal = Wal::open(folder.path()).unwrap();
    assert!(Reader::open(folder.path()).unwrap().streams().is_empty(), "no record is no proof");
    wal.commit(b"a record").unwrap();
    let refused = Reader::open(folder.path()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Foreign);
    assert!(refused.to_string().contains("palisade dump"), "{refused}");
    assert_eq!(verify(folder.path()).unwrap_err().kind(), ErrorKind::Foreign);
}

/// Changes one byte of the log.
fn damage(dir: &Path, lsn: u64) {
    let path = dir.join(format!("segment-{:020}", lsn / SEGMENT_BYTES));
    let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let offset = SeekFrom::Start(SEGMENT_HEADER_BYTES + lsn % SEGMENT_BYTES);
    let mut byte = [0];
    file.seek(offset).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(offset).unwrap();
    file.write_all(&[byte[0] ^ 1]).unwrap();
}

/// The LSN of the first record for which `is_it` holds.
fn find(dir: &Path, is_it: impl Fn(&palisade::Record<'_>) -> bool) -> u64 {
    let mut records = Inspector::open(dir).unwrap().records(None).unwrap();
    while let Some(record) = records.next().unwrap() {
        if is_it(&record) {
            return record.lsn().as_u64();
        }
    }
    panic!("no such record");
}

#[test]
fn a_check_names_entries_and_footers_that_are_damaged() {
    let folder = folder();
    let streams = open(folder.path());
    let stream = streams.create("damaged").unwrap();
    fill(&stream, 200);
    while streams.maintain().unwrap() {}
    drop(stream);
    streams.close().unwrap();
    assert!(verify(folder.path()).unwrap().is_whole());

    let data = 7_u64.to_le_bytes().repeat(100);
    let entry = find(folder.path(), |record| record.data().ends_with(&data));
    damage(folder.path(), entry + 60);
    let verdict = verify(folder.path()).unwrap();
    assert_eq!(verdict.log.outcome, Outcome::Corrupt);
    let missing: Vec<_> = verdict.missing.iter().map(|it| (&*it.name, it.first, it.last)).collect();
    assert_eq!(missing, [(&b"damaged"[..], 7, 7)]);
    assert!(!verdict.is_whole());

    damage(folder.path(), entry + 60);
    let part = find(folder.path(), |record| record.tag() == 0x5308);
    damage(folder.path(), part + 20);
    let verdict = verify(folder.path()).unwrap();
    assert_eq!((verdict.bad_footers.len(), verdict.missing.len()), (1, 0), "{verdict:?}");
    assert_eq!(verdict.bad_footers[0].segment, 0);
    fs::remove_dir_all(folder.path()).unwrap();
}

//! A log at its limit, and one with more segments than its records need.

use std::sync::Arc;

use palisade::disk::MemDisk;
use palisade::sim::{CallKind, Effect, FaultDisk, Target};
use palisade::{ErrorKind, SyncPolicy};
use palisade_lsm::{Database, Error, Keyspace, Options, Result};

const FILE: u64 = 68 << 10;

fn options(is_background: bool, segments: u64) -> Options {
    options_with(SyncPolicy::default(), is_background, segments)
}

fn options_with(policy: SyncPolicy, is_background: bool, segments: u64) -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10);
    let log = log.sync_policy(policy);
    let options = Options::new().background(is_background).cache_bytes(1 << 20);
    options.log(log.max_bytes(segments * FILE))
}

/// Checks that a write failed and that its record is in the log.
fn assert_appended<T>(written: Result<T>) {
    match written.map(drop).unwrap_err() {
        Error::Log(error) => assert!(error.appended_lsn().is_some(), "{error}"),
        other => panic!("{other}"),
    }
}

fn segments(database: &Database) -> u64 {
    database.log().space().unwrap().segments
}

/// The memtables alone would ask for no flush: the log is full at a hundredth of them.
#[test]
fn a_log_with_a_limit_takes_many_times_as_much() {
    for (is_background, limit) in [(false, 4), (true, 4), (false, 8), (true, 8)] {
        let folder = tempfile::tempdir().unwrap();
        let database = options(is_background, limit).open(folder.path()).unwrap();
        let keyspace = database.create_keyspace("k").unwrap();
        for number in 0..2000_u32 {
            keyspace.append_put(number.to_be_bytes(), [7; 1000]).unwrap();
            if number % 16 == 0 {
                keyspace.put("count", number.to_be_bytes()).unwrap();
            }
        }
        database.close().unwrap();
        drop(keyspace);
        let database = options(is_background, limit).open(folder.path()).unwrap();
        assert_eq!(database.keyspace("k").unwrap().range::<&str>(..).count(), 2001);
    }
}

/// Each crash takes a segment, whatever it holds.
#[test]
fn repeated_kills_of_a_process_do_not_fill_its_log() {
    for is_background in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        for life in 0..25_u32 {
            let database = options(is_background, 12).open(folder.path()).unwrap();
            let keyspace = database.keyspace_or_create("k").unwrap();
            keyspace.put(life.to_be_bytes(), "x").unwrap();
            // Without the thread the write has flushed. The thread is killed at any moment.
            assert!(segments(&database) <= if is_background { 12 } else { 3 }, "life {life}");
            database.log().clone().abandon();
        }
        let database = options(is_background, 12).open(folder.path()).unwrap();
        assert_eq!(database.keyspace("k").unwrap().range::<&str>(..).count(), 25);
    }
}

/// Fills the log while a cursor keeps its segments. Returns the number of values, and the error.
fn fill(database: &Database) -> (u32, palisade::Error) {
    drop(database.log().create_cursor("slow", None, u64::MAX).unwrap());
    let keyspace = database.keyspace_or_create("k").unwrap();
    let put = |number: u32| keyspace.put(number.to_be_bytes(), [7; 4000]).map(drop);
    let (count, error) = (0..).find_map(|n| put(n).err().map(|error| (n, error))).unwrap();
    match error {
        Error::Log(error) => (count, error),
        other => panic!("{other}"),
    }
}

#[test]
fn a_full_log_takes_writes_again_after_what_kept_it_has_gone() {
    type Heal = fn(&Database, &Keyspace);
    let heals: [Heal; 5] = [
        |database, _| database.flush().unwrap(),
        |database, _| database.sync().unwrap(),
        |_, keyspace| assert!(keyspace.put("healed", "").is_ok()),
        |_, keyspace| drop(keyspace.append_put("healed", "").unwrap()),
        |database, _| drop(database.create_keyspace("healed").unwrap()),
    ];
    for (number, heal) in (0..).zip(heals.iter().cycle().take(2 * heals.len())) {
        let is_background = number >= heals.len();
        let folder = tempfile::tempdir().unwrap();
        let database = options(is_background, 6).open(folder.path()).unwrap();
        let (count, error) = fill(&database);
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{number}: {error}");
        // Nothing has failed for good: only space is missing.
        let refused = database.flush().unwrap_err();
        assert!(matches!(&refused, Error::Log(error) if error.is_shortage()), "{refused}");
        assert!(database.stats().memtable_bytes > 0, "{number}");
        assert_eq!(database.stats().sealed_memtables, 0, "{number}");
        // A write that could only not wait is visible. One that was not appended is not.
        let keyspace = database.keyspace("k").unwrap();
        let is_visible = keyspace.get(count.to_be_bytes()).unwrap().is_some();
        assert_eq!(is_visible, error.appended_lsn().is_some(), "{number}: {error}");
        // At last the buffer of the log is full, too.
        let more = (0..100).find_map(|_| keyspace.append_put("more", [7; 4000]).err()).unwrap();
        assert!(matches!(&more, Error::Log(error) if error.appended_lsn().is_none()), "{more}");
        database.log().remove_cursor("slow").unwrap();
        heal(&database, &keyspace);
        for number in 0..500_u32 {
            keyspace.append_put(number.to_be_bytes(), [8; 4000]).unwrap();
        }
        drop(keyspace);
        database.close().unwrap();
        let database = options(is_background, 6).open(folder.path()).unwrap();
        let found = database.keyspace("k").unwrap();
        let values: Vec<_> =
            found.range::<&str>(..).map(|pair| pair.unwrap().1[..].to_vec()).collect();
        assert_eq!(values.iter().filter(|value| **value == [8; 4000]).count(), 500);
    }
}

#[test]
fn a_full_log_is_closed_and_opened_after_what_kept_it_has_gone() {
    for (is_background, is_closed) in [(false, false), (false, true), (true, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let database = options(is_background, 6).open(folder.path()).unwrap();
        let (count, error) = fill(&database);
        database.log().remove_cursor("slow").unwrap();
        if is_closed {
            database.close().unwrap()
        } else {
            drop(database)
        }
        for _ in 0..3 {
            let database = options(is_background, 6).open(folder.path()).unwrap();
            let keyspace = database.keyspace("k").unwrap();
            let values = keyspace.range::<&str>(..).count();
            assert_eq!(values as u32, count + u32::from(error.appended_lsn().is_some()));
            keyspace.put(0_u32.to_be_bytes(), "again").unwrap();
            database.log().clone().abandon();
        }
    }
}

/// With `SyncPolicy::Os` a record can be in the log, and the write of it fail. Then the keyspace
/// has its number: the next one must not get it, too.
#[test]
fn a_keyspace_whose_record_could_only_not_be_written_exists() {
    const WRITES: (CallKind, Target) = (CallKind::Write, Target::Segment);
    for is_background in [false, true] {
        let disk = FaultDisk::new(Arc::new(MemDisk::new()));
        let folder = tempfile::tempdir().unwrap();
        let options = options_with(SyncPolicy::Os, is_background, 6);
        let open = || options.open_on(Arc::new(disk.clone()), "/log", folder.path()).unwrap();
        let database = open();
        let keyspace = database.create_keyspace("k").unwrap();
        disk.set(WRITES, Effect::NoSpace);
        assert_appended(keyspace.append_put("key", "value"));
        for name in ["first", "second"] {
            assert_appended(database.create_keyspace(name));
            let again = database.create_keyspace(name).unwrap_err();
            assert!(matches!(again, Error::AlreadyExists(_)), "{again}");
        }
        disk.set(WRITES, Effect::Pass);
        assert_eq!(keyspace.get("key").unwrap().as_deref(), Some(b"value".as_slice()));
        for name in ["first", "second"] {
            database.keyspace(name).unwrap().put("name", name).unwrap();
        }
        database.log().clone().abandon();
        drop((keyspace, database));
        let database = open();
        assert_eq!(database.keyspaces(), ["k", "first", "second"]);
        for name in ["first", "second"] {
            let found = database.keyspace(name).unwrap().get("name").unwrap();
            assert_eq!(found.as_deref(), Some(name.as_bytes()));
        }
    }
}

//! Handles of a database that was closed or dropped, and second opens.

use palisade::ErrorKind;
use palisade_lsm::{Database, Error, Options};

fn small() -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10);
    Options::new().memtable_bytes(64 << 10).cache_bytes(1 << 20).log(log)
}

fn log_kind(error: &Error) -> Option<ErrorKind> {
    match error {
        Error::Log(error) => Some(error.kind()),
        _ => None,
    }
}

#[test]
fn a_closed_database_reads_and_does_not_write() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    keyspace.put("key", "value").unwrap();
    database.close().unwrap();
    let refused = keyspace.put("key", "other").unwrap_err();
    assert_eq!(log_kind(&refused), Some(ErrorKind::Closed));
    assert_eq!(keyspace.get("key").unwrap().unwrap(), b"value");
    for change in [Database::flush, Database::compact] {
        let refused = change(keyspace.database()).unwrap_err();
        assert_eq!(log_kind(&refused), Some(ErrorKind::Closed));
    }
}

#[test]
fn a_full_memtable_of_a_closed_database_is_not_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().background(false).open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    while database.stats().memtable_bytes < 64 << 10 {
        keyspace.append_put("key", [7; 100]).unwrap();
    }
    database.close().unwrap();
    let refused = keyspace.put("key", "other").unwrap_err();
    assert_eq!(log_kind(&refused), Some(ErrorKind::Closed));
}

#[test]
fn handles_of_a_closed_or_dropped_database_keep_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let open = || small().open(folder.path());
    let database = open().unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    keyspace.put("key", "value").unwrap();
    database.close().unwrap();
    assert_eq!(log_kind(&open().unwrap_err()), Some(ErrorKind::Locked));
    drop(keyspace);

    let mut range = open().unwrap().keyspace("k").unwrap().range::<&str>(..);
    assert_eq!(log_kind(&open().unwrap_err()), Some(ErrorKind::Locked));
    assert_eq!(range.next().unwrap().unwrap().1, b"value");
    drop(range);
    assert_eq!(open().unwrap().keyspace("k").unwrap().get("key").unwrap().unwrap(), b"value");
}

#[test]
fn a_second_open_is_refused_before_it_touches_tables() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().open(folder.path()).unwrap();
    let error = small().open(folder.path()).unwrap_err();
    assert_eq!(log_kind(&error), Some(ErrorKind::Locked));
    drop(database);
    small().open(folder.path()).unwrap();
}

//! Damage, loss and failures get errors that name them, and lose no commit.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::small;
use palisade::ErrorKind;
use palisade::disk::MemDisk;
use palisade::sim::{CallKind, Effect, FaultDisk, Target};
use palisade_redb::{Options, PalisadeBackend};
use redb::{
    Builder, CommitError, Database, DatabaseError, ReadableDatabase, StorageError, TableDefinition,
};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("table");
const NEEDLE: &[u8] = b"a value that is easy to find in a file";

fn database(backend: &PalisadeBackend) -> Database {
    Builder::new().create_with_backend(backend.clone()).unwrap()
}

fn put(db: &Database, key: u64) -> Result<(), CommitError> {
    let transaction = db.begin_write().map_err(|_| CommitError::from(StorageError::PreviousIo))?;
    transaction.open_table(TABLE).unwrap().insert(key, NEEDLE).unwrap();
    transaction.commit()
}

fn has(db: &Database, key: u64) -> bool {
    let transaction = db.begin_read().unwrap();
    transaction.open_table(TABLE).unwrap().get(key).unwrap().is_some()
}

/// Makes a database with ten entries in `folder`. Its process ends as by a kill, or closes it.
fn ten_entries(folder: &Path, is_closed: bool) -> PathBuf {
    let path = folder.join("db");
    let backend = small().open(&path).unwrap();
    let db = database(&backend);
    (0..10).for_each(|key| put(&db, key).unwrap());
    if !is_closed {
        backend.log().clone().abandon();
    }
    path
}

/// Changes one byte of each place where the file has the needle. Returns how many there were.
fn damage(file: &Path) -> usize {
    let mut bytes = fs::read(file).unwrap();
    let places: Vec<usize> =
        (0..bytes.len()).filter(|&at| bytes[at..].starts_with(NEEDLE)).collect();
    places.iter().for_each(|&at| bytes[at + 3] ^= 1);
    fs::write(file, bytes).unwrap();
    places.len()
}

#[test]
fn a_damaged_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_entries(folder.path(), false);
    let files = fs::read_dir(path.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let damaged: usize =
        files.filter(|file| file.file_name().unwrap() != "meta").map(|file| damage(&file)).sum();
    assert!(damaged >= 10);
    let error = small().open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_damaged_base_file_is_found_by_redb() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_entries(folder.path(), true);
    assert!(damage(&path.join("base.redb")) > 0);
    let mut db = database(&small().open(&path).unwrap());
    let checked = db.check_integrity();
    assert!(matches!(checked, Ok(false) | Err(DatabaseError::Storage(StorageError::Corrupted(_)))));
}

#[test]
fn a_base_file_that_is_too_short_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_entries(folder.path(), true);
    let file = fs::OpenOptions::new().write(true).open(path.join("base.redb")).unwrap();
    file.set_len(file.metadata().unwrap().len() - 4096).unwrap();
    let error = small().open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.path(), Some(&*path.join("base.redb")));
}

#[test]
fn a_lost_log_or_base_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_entries(folder.path(), true);
    let away = folder.path().join("away");
    for name in ["log", "base.redb"] {
        fs::rename(path.join(name), &away).unwrap();
        let error = small().open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{name}: {error}");
        fs::rename(&away, path.join(name)).unwrap();
    }
    fs::rename(path.join("log"), &away).unwrap();
    let empty = palisade::Options::new().segment_bytes(64 << 10);
    empty.open(path.join("log")).unwrap().close().unwrap();
    let error = small().open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// Before the first checkpoint the base file has no page, and the log has all commits.
#[test]
fn a_lost_log_is_refused_also_before_the_first_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_entries(folder.path(), false);
    let away = folder.path().join("away");
    fs::rename(path.join("log"), &away).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            fs::create_dir(path.join("log")).unwrap();
        }
        let error = small().open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    fs::remove_dir(path.join("log")).unwrap();
    fs::rename(&away, path.join("log")).unwrap();
    assert!(has(&database(&small().open(&path).unwrap()), 9));
}

#[test]
fn a_database_that_is_there_is_not_created() {
    for is_closed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = ten_entries(folder.path(), is_closed);
        let log = palisade::Options::new().open_mode(palisade::OpenMode::CreateNew);
        let error = Options::new().log(log).open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert!(has(&database(&small().open(&path).unwrap()), 9));
    }
}

#[test]
fn a_second_open_is_refused_until_the_database_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = database(&small().open(&path).unwrap());
    put(&db, 1).unwrap();
    let error = small().open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ResourceBusy);

    let reader = db.begin_read().unwrap();
    drop(db); // the transaction keeps the backend
    assert!(has(&database(&small().open(&path).unwrap()), 1));
    drop(reader);
}

#[test]
fn a_closed_database_is_a_file_for_redb_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_entries(folder.path(), true);
    let mut db = Database::open(path.join("base.redb")).unwrap();
    assert!(has(&db, 9) && db.check_integrity().unwrap());
}

/// Each commit of redb changes the header, which is in the first page.
#[test]
fn a_base_file_other_than_the_last_checkpoints_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (older, newer) = (folder.path().join("older"), folder.path().join("newer"));
    let base = ten_entries(folder.path(), true).join("base.redb");
    let open = || small().open(folder.path().join("db"));
    fs::copy(&base, &older).unwrap();
    put(&database(&open().unwrap()), 10).unwrap();
    fs::copy(&base, &newer).unwrap();

    put(&Database::open(&base).unwrap(), 11).unwrap();
    let changed = fs::read(&base).unwrap();
    for (bytes, what) in [(changed, "changed by redb"), (fs::read(&older).unwrap(), "older")] {
        for is_in_use in [false, true] {
            fs::copy(&newer, &base).unwrap();
            if is_in_use {
                let backend = open().unwrap();
                let db = database(&backend);
                put(&db, 12).unwrap();
                backend.log().clone().abandon();
                fs::copy(&base, &newer).unwrap();
            }
            fs::write(&base, &bytes).unwrap();
            let error = open().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}, {is_in_use}: {error}");
            assert_eq!(error.path(), Some(&*base), "{what}, {is_in_use}: {error}");
        }
    }
    fs::copy(&newer, &base).unwrap();
    assert!(has(&database(&open().unwrap()), 12));
}

#[test]
fn after_a_failure_nothing_is_acknowledged_until_the_next_open() {
    for failing in [
        (CallKind::Sync, Target::Segment),
        (CallKind::Sync, Target::Other),
        (CallKind::Write, Target::Other),
    ] {
        let disk = FaultDisk::new(Arc::new(MemDisk::new()));
        let backend = small().open_on(Arc::new(disk.clone()), "/db").unwrap();
        let db = database(&backend);
        put(&db, 1).unwrap();
        disk.set(failing, Effect::Eio);
        // The base file is written and synced with the next checkpoint only.
        let failed = (2..1000).find(|&key| put(&db, key).is_err()).unwrap();
        disk.set(failing, Effect::Pass);
        assert!(put(&db, failed).is_err());
        assert_eq!(backend.checkpoint().unwrap_err().kind(), ErrorKind::Poisoned);
        drop((db, backend));

        let db = database(&small().open_on(Arc::new(disk.clone()), "/db").unwrap());
        assert!((1..failed).all(|key| has(&db, key)), "{failing:?}");
        put(&db, failed + 1).unwrap();
    }
}

#[test]
fn a_record_limit_below_a_page_is_refused() {
    let log = palisade::Options::new().buffer_bytes(4 << 10);
    let error = small().log(log).open_on(Arc::new(MemDisk::new()), "/db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

//! One database at a time has a storage, whichever handle it has.

use std::io;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::process::Command;
use std::sync::Arc;

use crate::common::small;
use palisade::ErrorKind;
use palisade::disk::MemDisk;
use palisade_redb::PalisadeBackend;
use redb::{
    BackendError, Builder, Database, DatabaseError, ReadOnlyDatabase, ReadableDatabase,
    StorageBackend, StorageError, TableDefinition,
};

const TABLE: TableDefinition<'_, u64, u64> = TableDefinition::new("table");
const WHOLE: (Bound<u64>, Bound<u64>) = (Unbounded, Unbounded);
const FOLDER: &str = "PALISADE_REDB_LOCKED";
const NAME: &str = "locks::another_process_is_refused_while_a_database_is_open";

fn create(backend: &PalisadeBackend) -> Result<Database, DatabaseError> {
    Builder::new().create_with_backend(backend.clone())
}

fn read_only(backend: &PalisadeBackend) -> Result<ReadOnlyDatabase, DatabaseError> {
    Builder::new().open_read_only_with_backend(backend.clone())
}

fn put(db: &Database, key: u64) {
    let transaction = db.begin_write().unwrap();
    transaction.open_table(TABLE).unwrap().insert(key, key).unwrap();
    transaction.commit().unwrap();
}

fn has(db: &impl ReadableDatabase, key: u64) -> bool {
    db.begin_read().unwrap().open_table(TABLE).unwrap().get(key).unwrap().is_some()
}

fn is_open_elsewhere<T>(opened: Result<T, DatabaseError>) -> bool {
    matches!(opened, Err(DatabaseError::DatabaseAlreadyOpen))
}

fn is_closed<T>(opened: Result<T, DatabaseError>) -> bool {
    let Err(DatabaseError::Storage(StorageError::Io(error))) = opened else { return false };
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<palisade::Error>());
    inner.is_some_and(|error| error.kind() == ErrorKind::Closed)
}

#[test]
fn a_second_database_on_a_clone_is_refused_and_disturbs_nothing() {
    let disk = Arc::new(MemDisk::new());
    let backend = small().open_on(disk.clone(), "/db").unwrap();
    let db = create(&backend).unwrap();
    put(&db, 1);
    assert!(is_open_elsewhere(create(&backend)));
    assert!(is_open_elsewhere(read_only(&backend)));
    backend.checkpoint().unwrap();
    put(&db, 2);
    drop(db);
    assert!(is_closed(create(&backend)) && is_closed(read_only(&backend)));

    let db = create(&small().open_on(disk, "/db").unwrap()).unwrap();
    assert!(has(&db, 1) && has(&db, 2));
}

#[test]
fn databases_that_only_read_share_a_storage() {
    let disk = Arc::new(MemDisk::new());
    put(&create(&small().open_on(disk.clone(), "/db").unwrap()).unwrap(), 1);
    let backend = small().open_on(disk.clone(), "/db").unwrap();
    let readers = [(); 2].map(|()| read_only(&backend).unwrap());
    assert!(is_open_elsewhere(create(&backend)));
    let [first, last] = readers;
    drop(first);
    assert!(has(&last, 1) && is_open_elsewhere(create(&backend)));
    // The last one closes the log: then another backend can open it.
    assert_eq!(small().open_on(disk.clone(), "/db").unwrap_err().kind(), ErrorKind::Locked);
    drop(last);
    put(&create(&small().open_on(disk, "/db").unwrap()).unwrap(), 2);
}

#[test]
fn locks_belong_to_one_handle_and_end_with_it() {
    let backend = small().open_on(Arc::new(MemDisk::new()), "/db").unwrap();
    let [first, second] = [backend.clone(), backend.clone()];
    let exclusive = |handle: &PalisadeBackend| handle.try_lock_range(WHOLE.0, WHOLE.1).unwrap();
    let shared = |handle: &PalisadeBackend| handle.try_lock_shared_range(Included(0), Unbounded);
    assert!(exclusive(&first) && !exclusive(&second) && !shared(&second).unwrap());
    second.unlock_range(WHOLE.0, WHOLE.1).unwrap(); // it holds none
    assert!(!exclusive(&second));
    first.unlock_range(WHOLE.0, WHOLE.1).unwrap();
    assert!(shared(&first).unwrap() && shared(&second).unwrap() && !exclusive(&backend));
    drop(first);
    assert!(!exclusive(&backend));
    drop(second);
    assert!(exclusive(&backend));
    for (start, end) in [(Unbounded, Excluded(9)), (Included(1), Unbounded)] {
        let refused = backend.try_lock_range(start, end);
        assert!(matches!(refused, Err(BackendError::Unsupported)));
    }
}

/// The storage of another process may have changed the base file since.
#[test]
fn a_handle_of_a_closed_storage_writes_nothing() {
    let disk = Arc::new(MemDisk::new());
    let stale = small().open_on(disk.clone(), "/db").unwrap();
    put(&create(&stale).unwrap(), 1);
    let db = create(&small().open_on(disk, "/db").unwrap()).unwrap();
    assert_eq!(stale.checkpoint().unwrap_err().kind(), ErrorKind::Closed);
    let written = (1..200).find_map(|page| stale.write(page * 4096, &[7; 4096]).err()).unwrap();
    assert_ne!(written.kind(), io::ErrorKind::UnexpectedEof, "{written}");
    put(&db, 2);
    assert!(has(&db, 1) && has(&db, 2));
}

#[test]
fn another_process_is_refused_while_a_database_is_open() {
    if let Some(path) = std::env::var_os(FOLDER) {
        let error = small().open(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("db");
    let db = create(&small().open(&path).unwrap()).unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap());
    let other = other.args(["--exact", NAME]).env(FOLDER, &path).output().unwrap();
    let output = String::from_utf8_lossy(&other.stdout);
    assert!(other.status.success() && output.contains("1 passed"), "{output}");
    put(&db, 1);
}

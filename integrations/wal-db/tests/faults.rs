//! What a failing device does to a log: a disk that fails chosen calls.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use palisade::disk::{DEFAULT_FILE_MODE, Disk, MemDisk};
use palisade::sim::{CallKind, Effect, FaultDisk, Target};
use wal_db::{FileStore, Result, Wal, WalError};

const FOLDER: &str = "/db";

fn disk() -> FaultDisk {
    let disk = FaultDisk::new(Arc::new(MemDisk::new()));
    disk.create_folder(Path::new(FOLDER), DEFAULT_FILE_MODE).unwrap();
    disk
}

fn open(disk: &FaultDisk) -> Result<Wal> {
    let path = Path::new(FOLDER).join("wal.log");
    Wal::with_store(FileStore::open_on(Arc::new(disk.clone()), path)?)
}

fn contents(wal: &Wal) -> Vec<Vec<u8>> {
    wal.iter().unwrap().map(|record| record.unwrap().into_data()).collect()
}

fn kind_of<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    match result.unwrap_err() {
        WalError::Io { source, .. } => source.kind(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_failed_sync_is_not_forgotten() {
    let disk = disk();
    let wal = open(&disk).unwrap();
    wal.append_and_sync(b"acknowledged").unwrap();
    disk.set((CallKind::Sync, Target::Segment), Effect::Eio);
    wal.append_and_sync(b"not acknowledged").unwrap_err();
    disk.set((CallKind::Sync, Target::Segment), Effect::Pass);
    wal.sync().unwrap_err();
    wal.append(b"refused").unwrap_err();
    assert!(contents(&wal).len() <= 2);
    drop(wal);
    let wal = open(&disk).unwrap();
    assert_eq!(contents(&wal)[0], b"acknowledged");
    wal.append_and_sync(b"next").unwrap();
    assert_eq!(contents(&wal).last().unwrap(), b"next");
}

#[test]
fn a_full_disk_loses_nothing() {
    let disk = disk();
    let wal = open(&disk).unwrap();
    disk.set((CallKind::Write, Target::Segment), Effect::NoSpace);
    wal.append(b"one").unwrap();
    assert_eq!(kind_of(wal.sync()), ErrorKind::StorageFull);
    assert_eq!(kind_of(wal.append_and_sync(b"two")), ErrorKind::StorageFull);
    disk.set((CallKind::Write, Target::Segment), Effect::Pass);
    wal.sync().unwrap();
    assert_eq!(contents(&wal), [b"one", b"two"]);
    drop(wal);
    assert_eq!(contents(&open(&disk).unwrap()), [b"one", b"two"]);
}

#[test]
fn an_open_that_fails_loses_nothing() {
    let disk = disk();
    open(&disk).unwrap().append(b"kept").unwrap();
    for calls in [(CallKind::Read, Target::Meta), (CallKind::Sync, Target::Meta)] {
        disk.set(calls, Effect::Eio);
        open(&disk).unwrap_err();
        disk.set(calls, Effect::Pass);
        assert_eq!(contents(&open(&disk).unwrap()), [b"kept"]);
    }
}

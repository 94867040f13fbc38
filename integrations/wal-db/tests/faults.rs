//! What a failing device does to a log: a disk that fails chosen calls.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use palisade::disk::{DEFAULT_FILE_MODE, Disk, MemDisk};
use palisade::sim::{CallKind, Effect, FaultDisk, Target};
use palisade::{BufferKind, Options, SyncPolicy};
use wal_db::{FileStore, Result, Wal, WalError};

const FOLDER: &str = "/db";

fn disk() -> FaultDisk {
    let disk = FaultDisk::new(Arc::new(MemDisk::new()));
    disk.create_folder(Path::new(FOLDER), DEFAULT_FILE_MODE).unwrap();
    disk
}

fn open(disk: &FaultDisk) -> Result<Wal> {
    open_with(disk, None)
}

fn open_with(disk: &FaultDisk, options: Option<Options>) -> Result<Wal> {
    let store = FileStore::open_on(Arc::new(disk.clone()), Path::new(FOLDER).join("wal.log"))?;
    Wal::with_store(match options {
        Some(options) => store.with_options(options),
        None => store,
    })
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
    let text = wal.append_and_sync(b"two").unwrap_err().to_string();
    assert!(text.contains("do not append the record again"), "{text}");
    disk.set((CallKind::Write, Target::Segment), Effect::Pass);
    wal.sync().unwrap();
    assert_eq!(contents(&wal), [b"one", b"two"]);
    drop(wal);
    assert_eq!(contents(&open(&disk).unwrap()), [b"one", b"two"]);
}

#[test]
fn a_poisoned_log_never_fails_for_lack_of_space() {
    let disk = disk();
    let wal = open(&disk).unwrap();
    let lsn = wal.append_and_sync(b"acknowledged").unwrap();
    disk.set((CallKind::Sync, Target::Segment), Effect::NoSpace);
    let calls: [&dyn Fn() -> Result<()>; 5] = [
        &|| wal.append_and_sync(b"lost").map(drop),
        &|| wal.sync(),
        &|| wal.append(b"refused").map(drop),
        &|| wal.truncate_after(lsn),
        &|| wal.sync(),
    ];
    for call in calls {
        let kind = kind_of(call());
        assert_ne!(kind, ErrorKind::StorageFull);
    }
    disk.set((CallKind::Sync, Target::Segment), Effect::Pass);
    assert_ne!(kind_of(wal.sync()), ErrorKind::StorageFull);
    drop(wal);
    assert_eq!(contents(&open(&disk).unwrap())[0], b"acknowledged");
}

#[test]
fn an_append_lacks_space_only_if_it_has_appended_nothing() {
    let long = vec![3; 100_000];
    let policies = [SyncPolicy::OnCommit, SyncPolicy::Os, SyncPolicy::Always];
    for (policy, is_long) in
        policies.into_iter().flat_map(|policy| [(policy, false), (policy, true)])
    {
        let record = if is_long { long.as_slice() } else { b"in doubt" };
        let disk = disk();
        let options = Options::new().buffer(BufferKind::Heap).buffer_bytes(64 << 10);
        let wal = open_with(&disk, Some(options.sync_policy(policy))).unwrap();
        let mut expected = vec![b"before".to_vec()];
        wal.append(&expected[0]).unwrap();
        disk.set((CallKind::Write, Target::Segment), Effect::NoSpace);
        for call in [Wal::append, Wal::append_and_sync] {
            for _ in 0..3 {
                let end = wal.len();
                let refused = call(&wal, record);
                let text = refused.as_ref().unwrap_err().to_string();
                if text.contains("do not append the record again") {
                    expected.push(record.to_vec());
                }
                // Parts that the full disk does not let the log remove are no record, either.
                assert!(kind_of(refused) != ErrorKind::StorageFull || wal.len() == end);
            }
        }
        disk.set((CallKind::Write, Target::Segment), Effect::Pass);
        wal.sync().unwrap();
        assert!(contents(&wal) == expected, "{policy:?}: {} records", contents(&wal).len());
        wal.append(b"after").unwrap();
        expected.push(b"after".to_vec());
        drop(wal);
        assert!(contents(&open(&disk).unwrap()) == expected);
    }
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

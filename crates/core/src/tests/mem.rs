//! What must hold for the store in memory.

use palisade_store::{MemStore, ReadStore};

use super::support;
use crate::{ErrorKind, Options, Wal};

const SEGMENT_BYTES: u64 = 4096;

fn open(store: &MemStore) -> Wal {
    Wal::with_store(store.open().unwrap(), Options::default()).unwrap()
}

/// Opens the log, and returns the data of its records.
fn records(store: &MemStore) -> Vec<Vec<u8>> {
    let found = support::records(&open(store)).into_iter();
    found.map(|(_, data)| data).collect()
}

#[test]
fn a_log_comes_back_on_a_clone_across_segments() {
    let store = MemStore::new(SEGMENT_BYTES);
    let wal = open(&store);
    let written: Vec<Vec<u8>> = (0..20).map(|index| vec![index; 1500]).collect();
    for record in &written {
        wal.append(record).unwrap();
    }
    drop(wal);
    assert!(store.reader().unwrap().segments().unwrap().len() >= 7);
    assert_eq!(records(&store.clone()), written);
}

#[test]
fn power_loss_takes_what_was_not_synced_and_nothing_else() {
    let store = MemStore::new(SEGMENT_BYTES);
    let wal = open(&store);
    wal.commit(b"synced").unwrap();
    let lost = wal.append(b"not synced").unwrap().lsn();
    wal.flush_to_os(lost).unwrap();
    drop(wal);
    store.lose_power();
    assert_eq!(records(&store), [b"synced"]);
}

#[test]
fn a_kept_buffer_outlives_the_log_and_another_does_not() {
    for (store, is_kept) in [
        (MemStore::new(SEGMENT_BYTES), true),
        (MemStore::new(SEGMENT_BYTES).kept_buffer(false), false),
    ] {
        let wal = open(&store);
        wal.commit(b"synced").unwrap();
        wal.append(b"in the buffer only").unwrap();
        // Nothing that the log does from here on counts, as its process is dead.
        std::mem::forget(wal);
        store.kill();
        assert_eq!(records(&store).len(), 1 + usize::from(is_kept));
    }
}

#[test]
fn a_second_log_beside_a_running_one_is_refused() {
    let store = MemStore::new(SEGMENT_BYTES);
    let log = open(&store);
    let lsn = log.commit(b"first").unwrap();
    let refused = store.open().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Locked, "{refused}");
    assert_eq!(log.get(lsn).unwrap().data(), b"first");
    drop(log);
    assert_eq!(open(&store).get(lsn).unwrap().data(), b"first");
}

#[test]
fn what_a_killed_log_still_does_changes_nothing() {
    let store = MemStore::new(SEGMENT_BYTES);
    let mut written = Vec::new();
    for run in 0..40_u8 {
        let wal = open(&store);
        for _ in 0..=run % 7 {
            wal.commit(&[run; 1500]).unwrap();
            written.push(vec![run; 1500]);
        }
        // Its preparer may be at work.
        std::mem::forget(wal);
        store.kill();
    }
    assert_eq!(records(&store), written);
}

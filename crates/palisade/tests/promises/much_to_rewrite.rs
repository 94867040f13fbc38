//! An open that writes much again syncs behind its own writes: what fails there, and when.

use std::panic::{AssertUnwindSafe, catch_unwind};

use palisade::{ErrorKind, Lsn, Options, Result, SyncPolicy, Wal};

use crate::faulty::{Fault, FaultyStore, Op};
use crate::folder::contents;
use crate::watchdog::guarded;

const SEGMENT_BYTES: u64 = 1 << 20;
/// Enough for several syncs behind the writes.
const MUCH: u64 = 40 << 20;

fn options(pads: bool) -> Options {
    let options = Options::new().buffer_bytes(1 << 20).sync_policy(SyncPolicy::Os);
    options.pad_to_block(pads)
}

fn open(store: &FaultyStore, pads: bool) -> Result<Wal> {
    Wal::with_store(store.clone(), options(pads))
}

/// A log killed with much that no sync has covered; how many records it has.
fn killed(pads: bool) -> (FaultyStore, usize) {
    let store = FaultyStore::new(SEGMENT_BYTES);
    let wal = open(&store, pads).unwrap();
    wal.commit(b"acknowledged").unwrap();
    let mut count = 1;
    while wal.append(&[count as u8; 70_000]).unwrap().lsn() < Lsn::new(MUCH) {
        count += 1;
    }
    store.kill();
    drop(wal);
    (store.next_life(), count + 1)
}

#[test]
fn blocks_that_were_synced_behind_the_writes_are_not_written_again() {
    guarded(|| {
        let (store, count) = killed(true);
        assert_eq!(store.rewrites(), 0);
        let wal = open(&store, true).unwrap();
        assert_eq!(contents(&wal).unwrap().len(), count);
        assert_eq!(store.rewrites(), 0);
    });
}

#[test]
fn a_sync_that_fails_behind_the_writes_ends_the_open_and_loses_nothing() {
    guarded(|| {
        for fault in [Fault::Broken, Fault::Full] {
            let (store, count) = killed(false);
            store.set(Op::Sync, fault);
            let error = open(&store, false).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::NoSpace), "{error}");
            assert_eq!(store.calls(Op::Sync), 1, "no sync is tried again");
            let next = store.next_life();
            let wal = open(&next, false).unwrap();
            assert_eq!(wal.recovery_report().floor, Lsn::new(40));
            assert_eq!(contents(&wal).unwrap().len(), count);
            next.kill();
            drop(wal);
            next.inner.lose_power();
            let wal = open(&next.next_life(), false).unwrap();
            assert_eq!(contents(&wal).unwrap().len(), count, "what was reported stays");
        }
    });
}

#[test]
fn a_panic_behind_the_writes_ends_the_open() {
    guarded(|| {
        for op in [Op::Sync, Op::Write] {
            let (store, count) = killed(false);
            store.set(op, Fault::Panic);
            assert!(catch_unwind(AssertUnwindSafe(|| open(&store, false).map(drop))).is_err());
            let wal = open(&store.next_life(), false).unwrap();
            assert_eq!(contents(&wal).unwrap().len(), count);
        }
    });
}

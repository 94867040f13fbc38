//! A log that panics while it leads, which only a fault of its own can cause: here a disk panics
//! that the store does not guard.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;

use palisade_store::FileOptions;
use palisade_store::sim::{CallKind, Calls, Effect, Target};
use palisade_store::sync::{AtomicU32, Ordering, spawn, survive};
use palisade_store::testing::TestDisk;

use super::support::{PATIENCE, records, with_buffer};
use crate::{ErrorKind, Lsn, Result, Wal};

const WRITE: Calls = (CallKind::Write, Target::Segment);
const SYNC: Calls = (CallKind::Sync, Target::Segment);

fn open(disk: &TestDisk) -> Wal {
    let files =
        FileOptions { segment_bytes: Some(8 << 10), zero_fill: false, ..FileOptions::default() };
    Wal::with_store(disk.open(&files).unwrap(), with_buffer(4 << 10)).unwrap()
}

/// Makes a log whose flusher writes nothing, so that the thread of the test meets a panic.
fn log() -> (TestDisk, Wal) {
    let disk = TestDisk::without_threads();
    let wal = open(&disk);
    wal.commit(b"kept").unwrap();
    (disk, wal)
}

fn is_poisoned<T>(result: Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Poisoned)
}

#[test]
fn a_leader_that_panics_poisons_and_leaves_leadership_free() {
    for calls in [WRITE, SYNC] {
        let (disk, wal) = log();
        disk.faults.set(calls, Effect::Panic);
        assert!(survive(|| wal.commit(b"panics").map(drop)).is_none());
        disk.faults.set(calls, Effect::Pass);
        assert!(is_poisoned(wal.sync()), "{calls:?}");
        let (sender, ended) = channel();
        let abandon = move || {
            wal.abandon();
            sender.send(()).unwrap();
        };
        drop(spawn("abandons", abandon).unwrap());
        ended.recv_timeout(PATIENCE).expect("`abandon` waits for the leader that is gone");
        assert_eq!(records(&open(&disk))[0].1, b"kept");
    }
}

/// What the next write of the state does.
const PASSES: u32 = 0;
const IS_TO_PANIC: u32 = 1;
/// It waits until the test lets it panic.
const WAITS: u32 = 2;
const PANICS: u32 = 3;

#[test]
fn a_panic_in_a_truncation_poisons_before_another_state_save() {
    for _ in 0..100 {
        let (disk, wal) = log();
        let lsns: Vec<Lsn> = (0..4).map(|_| wal.commit(&[0; 100]).unwrap()).collect();
        let (above, other) = (lsns[3], wal.clone());
        let step = Arc::new(AtomicU32::new(PASSES));
        let at = Arc::clone(&step);
        disk.faults.watch(move |call| {
            let is_save = (call.kind, call.target) == (CallKind::Write, Target::Meta);
            // SeqCst, here and below: a test.
            let begins = || {
                at.compare_exchange(IS_TO_PANIC, WAITS, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            };
            if is_save && begins() {
                while at.load(Ordering::SeqCst) == WAITS {
                    std::hint::spin_loop();
                }
                panic!("the disk panics in a save of the state, as the test wants it");
            }
            Ok::<(), io::Error>(())
        });
        step.store(IS_TO_PANIC, Ordering::SeqCst);
        let truncate = || wal.truncate_from(lsns[1]).map(drop);
        // The other call waits for the lock of the state that the panic frees, or comes later.
        let (sender, ended) = channel();
        let at = Arc::clone(&step);
        let saver = move || {
            while at.load(Ordering::SeqCst) != WAITS {
                std::hint::spin_loop();
            }
            let goes_on = spawn("lets it panic", move || {
                (0..20_000).for_each(|_| std::hint::spin_loop());
                at.store(PANICS, Ordering::SeqCst);
            });
            sender.send(is_poisoned(other.truncate_before(above))).unwrap();
            drop(goes_on.unwrap());
        };
        drop(spawn("saves", saver).unwrap());
        assert!(survive(truncate).is_none());
        assert!(ended.recv_timeout(PATIENCE).unwrap(), "it has saved a state of the old epoch");
    }
}

#[test]
fn an_appender_that_panics_while_it_makes_room_poisons() {
    let (disk, wal) = log();
    disk.faults.set(WRITE, Effect::Panic);
    let append = || wal.append(&[0; 200]).map(drop);
    assert!((0..100).any(|_| survive(append).is_none()), "an append makes room");
    disk.faults.set(WRITE, Effect::Pass);
    assert!(is_poisoned(append()));
}

//! A failure that the preparer meets behind the leader's back, when nobody asks for a sync any
//! more.

use palisade_store::sim::{CallKind, Fault, FaultKind};

use super::*;
use crate::Wal;
use crate::tests::support::with_buffer;

const SEEDS: u64 = 40;
/// More calls of a kind than the end of a log takes.
const CALLS: u64 = 8;

fn open(disk: &SimDisk) -> crate::Result<Wal> {
    Wal::with_store(disk.open(&files(65536))?, with_buffer(16384))
}

/// Runs `run` on a disk of each seed for each call that is to fail, with a text that names both. It
/// returns whether the call failed.
fn run_all(run: impl Fn(&SimDisk, u64, &str) -> bool) {
    let all = (0..SEEDS).flat_map(|seed| (0..CALLS).map(move |call| (seed, call)));
    let failed = |&(seed, call): &(u64, u64)| {
        run(&SimDisk::new(seed), call, &format!("seed {seed}, call {call}"))
    };
    assert!(all.filter(failed).count() > 0, "no call failed");
}

/// Fails each sync of a close in turn, the preparer's among them. After a close that returns `Ok`,
/// the next process can trust the log.
#[test]
fn a_close_with_a_preparer_failure_is_no_clean_end() {
    run_all(|disk, sync, run| {
        let wal = open(disk).unwrap();
        wal.commit(&[1; 3000]).unwrap();
        disk.fail(Fault::nth(CallKind::Sync, sync, FaultKind::Eio));
        let closed = wal.close();
        let has_failed = disk.write_back_failures() > 0;
        disk.heal();
        disk.restart();
        let wal = open(disk).unwrap();
        assert!(closed.is_err() || disk.write_back_failures() == 0, "{run}");
        let lsns: Vec<_> = (0..10).map(|number| wal.commit(&[number; 1000]).unwrap()).collect();
        wal.close().unwrap();
        disk.remount();
        let wal = open(disk).unwrap_or_else(|error| panic!("{run}: {error}"));
        let is_gone = |lsn| wal.get(lsn).is_err();
        assert!(!lsns.into_iter().any(is_gone), "{run}: acknowledged");
        has_failed
    });
}

/// Fails each sync at the drop of the last handle in turn. The drop must leave the ring, because
/// what the preparer's sync has lost of the leader's writes is in the ring only.
#[test]
fn a_failure_of_the_preparer_at_a_drop_leaves_the_ring() {
    run_all(|disk, sync, run| {
        let wal = open(disk).unwrap();
        wal.commit(&[1; 3000]).unwrap();
        let lsn = wal.append(&[2; 900]).unwrap().lsn();
        wal.flush_to_os(lsn).unwrap();
        disk.fail(Fault::nth(CallKind::Sync, sync, FaultKind::Eio));
        drop(wal);
        disk.heal();
        disk.drop_pages();
        disk.restart();
        let wal = open(disk).unwrap();
        assert!(wal.get(lsn).is_ok(), "{run}: {:?}", wal.recovery_report());
        disk.write_back_failures() > 0
    });
}

/// Fails each write in turn. A failed write of zeros poisons, as any other write: the next call
/// that needs the log returns the error.
#[test]
fn the_next_call_gets_the_error_of_a_failed_write_of_zeros() {
    run_all(|disk, write, run| {
        let wal = open(disk).unwrap();
        let before = disk.trace().len();
        disk.fail(Fault::nth(CallKind::Write, write, FaultKind::Eio));
        let committed = (0..3).map(|_| wal.commit(&[1; 6000])).all(|commit| commit.is_ok());
        let closed = wal.close().is_ok();
        let has_failed = disk.trace()[before..].iter().any(|line| line.ends_with("-> EIO"));
        assert!(!(has_failed && committed && closed), "{run}");
        has_failed
    });
}

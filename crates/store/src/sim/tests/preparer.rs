//! A failure that the preparer meets behind the leader's back, when nobody asks for a sync any
//! more.

use palisade_core::Wal;

use super::*;
use crate::tests::support::with_buffer;

const SEEDS: u64 = 40;
/// More syncs than the end of a log takes.
const SYNCS: u64 = 8;

fn open(disk: &SimDisk) -> palisade_core::Result<Wal> {
    Wal::with_store(disk.open(&files(65536))?, &with_buffer(16384))
}

/// Each sync of a close fails in turn, the preparer's among them. A close that returns Ok is one
/// that the next process can trust.
#[test]
fn a_failure_of_the_preparer_at_a_close_is_not_followed_by_a_clean_end() {
    let mut met = 0;
    for (seed, sync) in (0..SEEDS).flat_map(|seed| (0..SYNCS).map(move |sync| (seed, sync))) {
        let disk = SimDisk::new(seed);
        let wal = open(&disk).unwrap();
        wal.commit(&[1; 3000]).unwrap();
        disk.fail(Fault::nth(CallKind::Sync, sync, FaultKind::Eio));
        let closed = wal.close();
        met += usize::from(disk.write_back_failures() > 0);
        disk.heal();
        disk.restart();
        let wal = open(&disk).unwrap();
        assert!(closed.is_err() || disk.write_back_failures() == 0, "seed {seed}, sync {sync}");
        let lsns: Vec<_> = (0..10).map(|number| wal.commit(&[number; 1000]).unwrap()).collect();
        wal.close().unwrap();
        disk.remount();
        let wal = open(&disk).unwrap_or_else(|error| panic!("seed {seed}, sync {sync}: {error}"));
        let is_gone = |lsn| wal.get(lsn).is_err();
        assert!(!lsns.into_iter().any(is_gone), "seed {seed}, sync {sync}: acknowledged");
    }
    assert!(met > 0, "no sync failed");
}

/// The same at the drop of the last handle, which gives the ring back: what the preparer's sync has
/// lost of the leader's writes is in the ring only.
#[test]
fn a_failure_of_the_preparer_at_a_drop_leaves_the_ring() {
    let mut met = 0;
    for (seed, sync) in (0..SEEDS).flat_map(|seed| (0..SYNCS).map(move |sync| (seed, sync))) {
        let disk = SimDisk::new(seed);
        let wal = open(&disk).unwrap();
        wal.commit(&[1; 3000]).unwrap();
        let lsn = wal.append(&[2; 900]).unwrap().lsn();
        wal.flush_to_os(lsn).unwrap();
        disk.fail(Fault::nth(CallKind::Sync, sync, FaultKind::Eio));
        drop(wal);
        met += usize::from(disk.write_back_failures() > 0);
        disk.heal();
        disk.drop_pages();
        disk.restart();
        let wal = open(&disk).unwrap();
        assert!(wal.get(lsn).is_ok(), "seed {seed}, sync {sync}: {:?}", wal.recovery_report());
    }
    assert!(met > 0, "no sync failed");
}

/// A write of zeros that fails poisons, as any other write: the next call that needs the log says
/// so.
#[test]
fn the_next_call_gets_the_error_of_a_failed_write_of_zeros() {
    let mut met = 0;
    for (seed, write) in (0..SEEDS).flat_map(|seed| (0..SYNCS).map(move |write| (seed, write))) {
        let disk = SimDisk::new(seed);
        let wal = open(&disk).unwrap();
        let before = disk.trace().len();
        disk.fail(Fault::nth(CallKind::Write, write, FaultKind::Eio));
        let committed = (0..3).map(|_| wal.commit(&[1; 6000])).all(|commit| commit.is_ok());
        let closed = wal.close().is_ok();
        let has_failed = disk.trace()[before..].iter().any(|line| line.ends_with("-> EIO"));
        assert!(!(has_failed && committed && closed), "seed {seed}, write {write}");
        met += usize::from(has_failed);
    }
    assert!(met > 0, "no write failed");
}

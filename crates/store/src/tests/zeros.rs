//! The preparer, which writes zeros ahead of the tail.

use std::io::IoSlice;

use super::support::*;
use crate::FileStore;
use crate::folder::segment_name;
use crate::sim::{CallKind, Calls, Effect, Target};
use crate::testing::TestDisk;
use crate::{Epoch, Predecessor, ReadStore};
use crate::{ErrorKind, Lsn};

const WRITE_ZEROS: Calls = (CallKind::Write, Target::Zeros);
const SYNC_ZEROS: Calls = (CallKind::Sync, Target::Zeros);
const LARGE: u64 = 8 << 20;

fn move_the_tail_until(store: &FileStore, what: &str, mut is_done: impl FnMut() -> bool) {
    let mut tail = 1 << 20;
    wait_until(what, || {
        pause_below_a_flood();
        store.prepare_ahead(Lsn::new(tail));
        tail += 64 << 10;
        is_done()
    });
}

#[test]
fn a_sync_error_that_the_preparer_gets_reaches_the_leader() {
    let (disk, store) = with_a_spare(LARGE);
    let before = disk.faults.count(SYNC_ZEROS);
    disk.faults.set(SYNC_ZEROS, Effect::Eio);
    move_the_tail_until(&store, "zeros are synced", || disk.faults.count(SYNC_ZEROS) > before);
    store.write(Lsn::ZERO, &[IoSlice::new(b"record")]).unwrap();
    wait_until("the leader gets the error", || store.sync(Lsn::ZERO, Lsn::new(6)).is_err());
    let error = store.sync(Lsn::ZERO, Lsn::new(6)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn the_preparer_keeps_zeros_and_a_segment_ahead_of_the_tail() {
    let disk = TestDisk::new();
    let store = disk.open(&options(LARGE)).unwrap();
    begin(&store, 1, 0);
    let len = |number| disk.len(&segment_name(number)).saturating_sub(4096);
    assert_eq!(len(0), 1 << 20);
    wait_until("a spare is made", || has_spare(&disk));
    while len(0) < LARGE {
        let tail = len(0) / 2;
        pause_below_a_flood();
        store.prepare_ahead(Lsn::new(tail));
        let goal = LARGE.min(tail + (2 * tail).max(1 << 20));
        wait_until("zeros are written ahead", || len(0) >= goal);
    }
    store.prepare_ahead(Lsn::new(LARGE / 2 + 4096));
    wait_until("the next segment is made", || store.prepared() >= Lsn::new(2 * LARGE));
}

#[test]
fn zeros_that_lack_space_are_synced_as_far_as_they_were_written() {
    let (disk, store) = with_a_spare(LARGE);
    let counts = || [WRITE_ZEROS, SYNC_ZEROS].map(|calls| disk.faults.count(calls));
    disk.faults.set(WRITE_ZEROS, Effect::NoSpace);
    let [writes, syncs] = counts();
    move_the_tail_until(&store, "zeros lack space", || counts()[0] > writes);
    wait_until("what was written is synced", || counts()[1] > syncs);
}

#[test]
fn zeros_overtaken_by_a_truncation_do_not_reach_the_next_epoch() {
    let (disk, store) = with_a_spare(LARGE);
    store.prepare(Lsn::new(2 * LARGE)).unwrap();
    disk.faults.set(WRITE_ZEROS, Effect::Hold);
    pause_below_a_flood();
    store.prepare_ahead(Lsn::new(600 << 10));
    wait_until("the preparer is in a step", || disk.faults.is_holding(WRITE_ZEROS));

    // The log is truncated in the segment, goes on in another one, and its head leaves the segment.
    let base = store.prepared();
    let predecessor = Predecessor { epoch: 1, end: Lsn::new(64) };
    store.begin_epoch(&Epoch { predecessor, ..epoch(2, base.as_u64()) }, &[]).unwrap();
    store.release(Lsn::ZERO, base).unwrap();
    // Enough of them for every spare.
    let segments = 4;
    let end = base.plus(segments * LARGE);
    store.prepare(end).unwrap();
    let records = vec![7; LARGE as usize];
    for number in 0..segments {
        store.write(base.plus(number * LARGE), &[IoSlice::new(&records)]).unwrap();
    }
    disk.faults.set(WRITE_ZEROS, Effect::Pass);
    // Waits for the preparer.
    store.close();
    for number in 0..segments {
        let mut found = vec![0; LARGE as usize];
        assert_eq!(store.read(base.plus(number * LARGE), &mut found).unwrap(), found.len());
        assert!(found == records, "segment {number} behind the truncation");
    }
}

//! Models of the moment in which leadership becomes free.

use std::time::Duration;

use super::{Bound, LARGE_FRAME, Log, SMALL_FRAME, check, spawn, take};

#[test]
fn a_waiter_that_timed_out_leaves_leadership_free() {
    check("a_waiter_that_timed_out_leaves_leadership_free", Bound::At(2), || {
        let log = Log::roomy();
        // The hole keeps the first round from serving those above it.
        let below = log.append(1);
        let hole = take(&log.wal.commit_state().buffer, SMALL_FRAME).expect("the log is open");
        let middle = log.append(2);
        let top = log.append(4);
        // Its deadline has passed from the start: it registers at most, and may be woken as
        // a candidate while it leaves.
        let hasty = spawn(&log, move |log| wait_in_passing(log, middle.plus(LARGE_FRAME)));
        let patient = spawn(&log, move |log| {
            log.wal.wait_durable(top).unwrap();
            log.store.assert_synced(top, 4);
        });
        log.wal.wait_durable(below).unwrap();
        hole.pad();
        hasty.join().unwrap();
        patient.join().unwrap();
    });
}

fn wait_in_passing(log: &Log, end: crate::Lsn) {
    let deadline = palisade_store::sync::Instant::now().checked_add(Duration::ZERO);
    if log.wal.commit_state().wait(end, deadline).unwrap() {
        log.store.assert_synced_to(end);
    }
}

/// Checks P2 and P4.
#[test]
fn a_thread_that_yields_is_served_or_leads() {
    check("a_thread_that_yields_is_served_or_leads", Bound::At(2), || {
        let log = Log::roomy();
        let other = spawn(&log, move |log| log.commit(1).unwrap());
        let lsn = log.append(2);
        // Time stands still, so it yields until it is served or leads.
        let most = Duration::from_nanos(1);
        let waited = log.wal.commit_state().yield_for(most, lsn.plus(LARGE_FRAME), None);
        assert!(waited.expect("no time has passed").unwrap());
        log.store.assert_synced(lsn, 2);
        other.join().unwrap();
    });
}

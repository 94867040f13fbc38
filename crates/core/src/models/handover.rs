//! Models of leadership that changes hands.

use std::time::Duration;

use loom::thread;

use super::{Bound, Log, check};

#[test]
fn a_waiter_that_timed_out_passes_leadership_on() {
    check("a_waiter_that_timed_out_passes_leadership_on", Bound::At(2), || {
        let log = Log::roomy();
        let below = log.append(1);
        let first = {
            let log = log.clone();
            thread::spawn(move || log.wal.wait_durable(below).unwrap())
        };
        let last = {
            let log = log.clone();
            thread::spawn(move || log.commit(2).unwrap())
        };
        // Its deadline has passed from the start: it registers at most, and may be given
        // leadership while it leaves.
        let ticket = log.wal.append(&super::large(4)).unwrap();
        if ticket.wait_timeout(Duration::ZERO).unwrap() {
            log.store.assert_synced(ticket.lsn(), 4);
        }
        first.join().unwrap();
        last.join().unwrap();
    });
}

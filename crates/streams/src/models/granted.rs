//! Threads that append below a limit at the same time.

use std::sync::Arc;

use loom::thread;
use palisade_store::sync::{AtomicU64, Ordering, model_check};

use crate::granted::Granted;

const LIMIT: u64 = 2;

/// Checks that threads which each ask for room append no more than there is room for.
#[test]
fn threads_append_no_more_than_there_is_room_for() {
    model_check("threads_append_no_more_than_there_is_room_for", 3, || {
        let log = Arc::new((Granted::new(), AtomicU64::new(0)));
        let append = |(granted, end): &(Granted, AtomicU64)| {
            // Relaxed: as `Wal::reserved_lsn`.
            let has_room = |others| end.load(Ordering::Relaxed) + others < LIMIT;
            let taken = granted.take(1, has_room);
            if taken.is_some() {
                end.fetch_add(1, Ordering::Relaxed);
            }
        };
        let other = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                append(&log);
                append(&log);
            })
        };
        append(&log);
        other.join().expect("no thread panics");
        assert!(log.1.load(Ordering::Relaxed) <= LIMIT);
    });
}

//! Named losses of all that a log has: killed at any step, they leave it as it was, or empty.

use std::io::IoSlice;

use palisade::store::Store;
use palisade::{ErrorKind, Lsn, MemStore, Options, RecoveryPolicy, Verify, Wal};

use crate::faulty::FaultyStore;
use crate::folder::contents;

fn strict() -> Options {
    Options::new().buffer_bytes(4096).verify(Verify::Full)
}

fn lossy(lose_from: Option<Lsn>) -> Options {
    strict().recovery(RecoveryPolicy::PointInTime { lose_from })
}

/// A log whose first record is damaged, and where that lies: at a head within a segment, or far
/// above the head, because the first epoch stayed empty.
fn damaged(is_within: bool) -> (MemStore, Lsn) {
    let store = MemStore::new(4096);
    drop(Wal::with_store(store.clone(), strict()).unwrap());
    let wal = Wal::with_store(store.clone(), strict()).unwrap();
    let lsns: Vec<Lsn> = (0..3_u8).map(|n| wal.commit(&[n; 300]).unwrap()).collect();
    let first = if is_within { lsns[1] } else { lsns[0] };
    if is_within {
        wal.truncate_before(first).unwrap();
    }
    drop(wal);
    // So that there is evidence for all of them.
    drop(Wal::with_store(store.clone(), strict()).unwrap());
    store.write(first.plus(30), &[IoSlice::new(b"rot")]).unwrap();
    (store, first)
}

#[test]
fn a_loss_of_everything_that_is_killed_at_any_step_is_as_before_or_done() {
    for (is_within, loses_power) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut as_before, mut ended) = (0, 0);
        for steps in 0.. {
            let (inner, first) = damaged(is_within);
            let store = FaultyStore::over(inner);
            store.die_after(steps);
            let is_done = Wal::with_store(store.clone(), lossy(Some(first))).is_ok();
            if loses_power {
                store.inner.lose_power();
            }
            let next = store.next_life();
            match Wal::with_store(next.clone(), strict()) {
                Ok(wal) => {
                    assert_eq!(contents(&wal).unwrap(), []);
                    assert_eq!(wal.get(first).unwrap_err().kind(), ErrorKind::Truncated);
                    ended += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "after {steps} steps: {error}");
                    assert_eq!(error.lsn(), Some(first), "after {steps} steps: {error}");
                    as_before += 1;
                }
            }
            let wal = Wal::with_store(next.next_life(), lossy(Some(first))).unwrap();
            assert_eq!(contents(&wal).unwrap(), []);
            if is_done {
                break;
            }
        }
        assert!(as_before > 0 && ended > 2, "{is_within}: {as_before} and {ended}");
    }
}

#[test]
fn a_loss_of_an_epochs_last_record_reaches_to_the_end_of_the_epoch() {
    let store = MemStore::new(4096);
    let wal = Wal::with_store(store.clone(), strict()).unwrap();
    wal.commit(b"first").unwrap();
    let last = wal.commit(b"last").unwrap();
    let end = wal.reserved_lsn();
    drop(wal);
    drop(Wal::with_store(store.clone(), strict()).unwrap());
    // In the same boot the sync line says more.
    store.lose_power();
    store.write(last.plus(25), &[IoSlice::new(b"rot")]).unwrap();
    let error = Wal::with_store(store, lossy(None)).unwrap_err();
    let lost = error.lost_range().expect("the range is named");
    assert_eq!((lost.from, lost.to, lost.readable_records), (last, end, 0));
}

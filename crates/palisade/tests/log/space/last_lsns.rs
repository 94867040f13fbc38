//! The last LSNs of a log, and stores that leave none for the next epoch: cuts are refused, and
//! nothing hangs or is lost.

use palisade::store::{Epoch, Predecessor, ReadStore, State, Store};
use palisade::{ErrorKind, Lsn, MemStore, Options, Wal};

use crate::faulty::{Fault, Op, new_log};
use crate::folder::contents;
use crate::watchdog::watched;

const SEGMENT_BYTES: u64 = 8 << 10;

fn options() -> Options {
    Options::new().buffer_bytes(4 << 10)
}

/// An empty log that has `segments` left before its last LSN.
fn near_the_limit(segments: u64) -> MemStore {
    let mem = MemStore::new(SEGMENT_BYTES);
    let store = mem.open().unwrap();
    let base = Lsn::new(Lsn::LIMIT.as_u64() - segments * SEGMENT_BYTES);
    let predecessor = Predecessor { epoch: 0, end: base };
    store.begin_epoch(&Epoch { number: 1, salt: 1, base, predecessor }).unwrap();
    let state = State {
        epoch: 1,
        epoch_base: base,
        epoch_salt: 1,
        head: base,
        clean_end: base,
        ..store.state().unwrap()
    };
    store.save_state(&state).unwrap();
    mem
}

#[test]
fn a_cut_that_leaves_no_lsn_is_refused_and_the_log_stays_as_it_is() {
    let _watch = watched();
    let store = near_the_limit(4);
    let wal = Wal::with_store(store.clone(), options()).unwrap();
    let kept = wal.append(b"kept").unwrap().lsn();
    let mut cuts = 0;
    let (error, last) = loop {
        let last = wal.append(b"to be cut").unwrap().lsn();
        match wal.truncate_after(kept) {
            Ok(()) => cuts += 1,
            Err(error) => break (error, last),
        }
    };
    assert_eq!((error.kind(), cuts), (ErrorKind::OutOfRange, 3), "{error}");
    assert!(error.to_string().contains("begin another"), "{error}");
    // The log goes on, and what was not cut is there.
    let more = wal.commit(b"more").unwrap();
    wal.close().unwrap();
    let wal = Wal::with_store(store, options()).unwrap();
    let lsns: Vec<Lsn> = contents(&wal).iter().map(|(lsn, _)| *lsn).collect();
    assert_eq!(lsns, [kept, last, more]);
}

#[test]
fn a_cut_does_not_wait_for_ever_for_a_store_that_always_has_something_prepared() {
    let _watch = watched();
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    let kept = wal.append(b"kept").unwrap().lsn();
    let last = wal.append(b"last").unwrap().lsn();
    store.set(Op::BeginEpoch, Fault::Behind);
    let error = wal.truncate_after(kept).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
    wal.commit(b"the log goes on").unwrap();
    assert_eq!(wal.get(last).unwrap().data(), b"last");
    store.set(Op::BeginEpoch, Fault::None);
    wal.truncate_after(kept).unwrap();
    assert_eq!(contents(&wal), [(kept, b"kept".to_vec())]);
}

#[test]
fn appends_of_several_threads_at_the_last_lsn_all_end_with_an_error() {
    let _watch = watched();
    for _ in 0..3000 {
        let start = std::sync::Barrier::new(4);
        let wal = Wal::with_store(near_the_limit(1), options()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let error = loop {
                        if let Err(error) = wal.append(&[1; 200]) {
                            break error;
                        }
                    };
                    let kind = error.kind();
                    assert!(matches!(kind, ErrorKind::OutOfRange | ErrorKind::Poisoned), "{error}");
                    assert!(error.to_string().contains("used up"), "{error}");
                });
            }
        });
    }
}

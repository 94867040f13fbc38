//! The last LSNs of a log: truncations are refused, and nothing hangs or is lost.

use palisade_store::{Epoch, FileStore, MemStore, Predecessor, ReadStore, State};

use super::support::{records, with_buffer};
use crate::{ErrorKind, Lsn, Wal};

const SEGMENT_BYTES: u64 = 8 << 10;

fn log(store: FileStore) -> Wal {
    Wal::with_store(store, with_buffer(4 << 10)).unwrap()
}

fn lsns(wal: &Wal) -> Vec<Lsn> {
    records(wal).into_iter().map(|(lsn, _)| lsn).collect()
}

/// Makes an empty log that has `segments` left before its last LSN.
fn near_the_limit(segments: u64) -> MemStore {
    let mem = MemStore::new(SEGMENT_BYTES);
    let store = mem.open().unwrap();
    let base = Lsn::new(Lsn::LIMIT.as_u64() - segments * SEGMENT_BYTES);
    let predecessor = Predecessor { epoch: 0, end: base };
    store.begin_epoch(&Epoch { number: 1, salt: 1, base, predecessor }, &[]).unwrap();
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
fn a_truncation_that_leaves_no_lsn_fails_and_changes_nothing() {
    let store = near_the_limit(4);
    let wal = log(store.open().unwrap());
    let kept = wal.append(b"kept").unwrap().lsn();
    let mut truncations = 0;
    let (error, last) = loop {
        let last = wal.append(b"to be truncated").unwrap().lsn();
        match wal.truncate_after(kept) {
            Ok(()) => truncations += 1,
            Err(error) => break (error, last),
        }
    };
    assert_eq!((error.kind(), truncations), (ErrorKind::OutOfRange, 3), "{error}");
    assert!(error.to_string().contains("begin another"), "{error}");
    // The log goes on, and what was not truncated is there.
    let more = wal.commit(b"more").unwrap();
    wal.close().unwrap();
    let wal = log(store.open().unwrap());
    assert_eq!(lsns(&wal), [kept, last, more]);
}

#[test]
fn concurrent_appends_at_the_last_lsn_all_end_with_an_error() {
    for _ in 0..3000 {
        let start = std::sync::Barrier::new(4);
        let wal = log(near_the_limit(1).open().unwrap());
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

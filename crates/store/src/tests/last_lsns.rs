//! The last LSNs of a log, and stores that leave none for the next epoch: truncations are refused,
//! and nothing hangs or is lost.

use std::io::IoSlice;

use palisade_core::store::{
    Epoch, OldBuffer, Predecessor, ReadStore, Segment, State, Store, TailSource,
};
use palisade_core::sync::Mutex;
use palisade_core::{Error, ErrorKind, Lsn, Memory, Result, Wal};

use super::support::{pass_on, records, with_buffer};
use crate::{FileStore, MemStore};

const SEGMENT_BYTES: u64 = 8 << 10;

fn log(store: impl Store) -> Wal {
    Wal::with_store(store, &with_buffer(4 << 10)).unwrap()
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

/// A store that says once of a second epoch's base that more is prepared.
#[derive(Debug)]
struct SaysMoreIsPrepared(FileStore, Mutex<bool>);

impl ReadStore for SaysMoreIsPrepared {
    pass_on! {
        fn state() -> Result<State>;
        fn segments() -> Result<Vec<Segment>>;
        fn read(at: Lsn, into: &mut [u8]) -> Result<usize>;
        fn place() -> String;
    }
}

impl Store for SaysMoreIsPrepared {
    fn begin_epoch(&self, epoch: &Epoch, first: &[u8]) -> Result<()> {
        if epoch.number > 1 && std::mem::take(&mut *self.1.lock()) {
            return Err(Error::new(ErrorKind::OutOfRange, "more is prepared"));
        }
        self.0.begin_epoch(epoch, first)
    }

    pass_on! {
        fn write(at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()>;
        fn sync(from: Lsn, to: Lsn) -> Result<()>;
        fn mark_durable(durable: Lsn) -> Result<()>;
        fn prepared() -> Lsn;
        fn prepare(to: Lsn) -> Result<()>;
        fn prepare_ahead(tail: Lsn) -> ();
        fn save_state(state: &State) -> Result<()>;
        fn release(from: Lsn, to: Lsn) -> Result<()>;
        fn resume_epoch(epoch: &Epoch, end: Lsn) -> Result<()>;
        fn old_buffer() -> Result<OldBuffer>;
        fn renew_buffer(epoch: u64, bytes: usize, durable: Lsn) -> Result<Memory>;
        fn move_tail(epoch: &Epoch, from: Lsn, to: Lsn, source: &mut TailSource<'_>) -> Result<()>;
        fn pass_buffer_on(epoch: u64) -> Result<()>;
        fn random() -> Result<u64>;
        fn close() -> ();
    }
}

#[test]
fn a_truncation_ends_though_its_store_always_prepares_more() {
    let mem = MemStore::new(SEGMENT_BYTES).without_threads();
    let wal = log(SaysMoreIsPrepared(mem.open().unwrap(), Mutex::new(true)));
    let kept = wal.append(b"kept").unwrap().lsn();
    let last = wal.append(b"last").unwrap().lsn();
    let error = wal.truncate_after(kept).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
    wal.commit(b"the log goes on").unwrap();
    assert_eq!(wal.get(last).unwrap().data(), b"last");
    wal.truncate_after(kept).unwrap();
    assert_eq!(lsns(&wal), [kept]);
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

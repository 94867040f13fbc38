//! A log that panics while it leads, which only a fault of its own can cause.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::mpsc::channel;

use palisade_core::store::{Epoch, OldBuffer, ReadStore, Segment, State, Store, TailSource};
use palisade_core::sync::{Mutex, spawn, survive};
use palisade_core::{ErrorKind, Lsn, Memory, Result, Wal};

use super::support::{PATIENCE, pass_on, records, with_buffer};
use crate::{FileStore, MemStore};

/// A store that panics once in the call of this name.
#[derive(Debug)]
struct Panics(FileStore, Arc<Mutex<&'static str>>);

impl Panics {
    fn begin(&self, call: &str) {
        let is_due = *self.1.lock() == call;
        if is_due {
            *self.1.lock() = "panics";
            // The test clears the name when another thread has come to the lock of the state.
            while *self.1.lock() == "panics" && call == "save_state" {
                std::hint::spin_loop();
            }
            panic!("the store panics in `{call}`, as the test wants it");
        }
    }
}

impl ReadStore for Panics {
    pass_on! {
        fn state() -> Result<State>;
        fn segments() -> Result<Vec<Segment>>;
        fn read(at: Lsn, into: &mut [u8]) -> Result<usize>;
        fn place() -> String;
    }
}

impl Store for Panics {
    fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.begin("write");
        self.0.write(at, pieces)
    }

    fn save_state(&self, state: &State) -> Result<()> {
        self.begin("save_state");
        self.0.save_state(state)
    }

    fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.begin("sync");
        self.0.sync(from, to)
    }

    /// The flusher writes nothing, so the thread of the test meets the panic.
    fn writes_behind(&self) -> bool {
        false
    }

    pass_on! {
        fn begin_epoch(epoch: &Epoch, first: &[u8]) -> Result<()>;
        fn mark_durable(durable: Lsn) -> Result<()>;
        fn prepared() -> Lsn;
        fn prepare(to: Lsn) -> Result<()>;
        fn prepare_ahead(tail: Lsn) -> ();
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

/// Makes a log whose store panics in the call that the test names. Returns also the name.
fn log(mem: &MemStore) -> (Wal, Arc<Mutex<&'static str>>) {
    let call = Arc::new(Mutex::new(""));
    let store = Panics(mem.open().unwrap(), Arc::clone(&call));
    let wal = Wal::with_store(store, &with_buffer(4 << 10)).unwrap();
    wal.commit(b"kept").unwrap();
    (wal, call)
}

fn is_poisoned<T>(result: Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Poisoned)
}

#[test]
fn a_leader_that_panics_poisons_and_leaves_leadership_free() {
    for at in ["write", "sync"] {
        let mem = MemStore::new(8 << 10).without_threads();
        let (wal, call) = log(&mem);
        *call.lock() = at;
        assert!(survive(|| wal.commit(b"panics").map(drop)).is_none());
        assert!(is_poisoned(wal.sync()), "{at}");
        let (sender, ended) = channel();
        let abandon = move || {
            wal.abandon();
            sender.send(()).unwrap();
        };
        drop(spawn("abandons", abandon).unwrap());
        ended.recv_timeout(PATIENCE).expect("`abandon` waits for the leader that is gone");
        let (wal, _) = log(&mem);
        assert_eq!(records(&wal)[0].1, b"kept");
    }
}

#[test]
fn a_panic_in_a_truncation_poisons_before_another_state_save() {
    for _ in 0..100 {
        let (wal, call) = log(&MemStore::new(8 << 10).without_threads());
        let lsns: Vec<Lsn> = (0..4).map(|_| wal.commit(&[0; 100]).unwrap()).collect();
        let (above, other) = (lsns[3], wal.clone());
        let (sender, ended) = channel();
        *call.lock() = "save_state";
        let truncate = || wal.truncate_from(lsns[1]).map(drop);
        // The other call waits for the lock of the state that the panic frees, or comes later.
        let at = Arc::clone(&call);
        let saver = move || {
            while *at.lock() != "panics" {
                std::hint::spin_loop();
            }
            let goes_on = spawn("lets it panic", move || {
                (0..20_000).for_each(|_| std::hint::spin_loop());
                *at.lock() = "";
            });
            sender.send(is_poisoned(other.truncate_before(above))).unwrap();
            drop(goes_on.unwrap());
        };
        drop(spawn("saves", saver).unwrap());
        assert!(survive(truncate).is_none());
        assert!(ended.recv_timeout(PATIENCE).unwrap(), "it has saved a state of the old epoch");
    }
}

#[test]
fn an_appender_that_panics_while_it_makes_room_poisons() {
    let (wal, call) = log(&MemStore::new(8 << 10).without_threads());
    *call.lock() = "write";
    let append = || wal.append(&[0; 200]).map(drop);
    assert!((0..100).any(|_| survive(append).is_none()), "an append makes room");
    assert!(is_poisoned(append()));
}

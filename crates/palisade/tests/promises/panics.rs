//! A store that panics leaves a state that nobody knows: it poisons, and nobody hangs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;

use palisade::{ErrorKind, Lsn, Options, Wal};

use crate::executor::block_on;
use crate::faulty::{Fault, FaultyStore, Op};
use crate::folder::contents;
use crate::watchdog::{PATIENCE, guarded, until};

fn open(store: &FaultyStore) -> Wal {
    Wal::with_store(store.clone(), Options::new().buffer_bytes(4096)).unwrap()
}

fn is_poisoned<T>(result: Result<T, palisade::Error>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Poisoned)
}

/// Whether `call` panicked or gave the sticky error.
fn fails(call: impl FnOnce() -> Result<Lsn, palisade::Error>) -> bool {
    catch_unwind(AssertUnwindSafe(call)).map_or(true, is_poisoned)
}

fn poisons(op: Op) {
    let store = FaultyStore::new(1 << 16);
    let wal = open(&store);
    let kept = wal.commit(b"kept").unwrap();
    store.set(op, Fault::Hold);
    thread::scope(|scope| {
        let (wal, store) = (&wal, &store);
        scope.spawn(move || assert!(fails(|| wal.commit(b"leader"))));
        until(|| store.is_holding(op));
        for _ in 0..3 {
            scope.spawn(move || assert!(fails(|| wal.commit(b"follower"))));
        }
        scope.spawn(move || assert!(fails(|| block_on(wal.append(b"future").unwrap()))));
        until(|| wal.stats().waiters == 4);
        store.set(op, Fault::Panic);
    });
    assert!(is_poisoned(wal.append(b"x")));
    assert!(is_poisoned(wal.commit(b"x")));
    assert!(is_poisoned(wal.sync()));
    assert_eq!(wal.stats().waiters, 0);
    drop(wal);
    store.set(op, Fault::None);
    store.inner.lose_power();
    assert_eq!(contents(&open(&store)).unwrap()[0], (kept, b"kept".to_vec()));
}

#[test]
fn a_store_that_panics_in_write_poisons_and_nobody_hangs() {
    guarded(|| poisons(Op::Write));
}

#[test]
fn a_store_that_panics_in_sync_poisons_and_nobody_hangs() {
    guarded(|| poisons(Op::Sync));
}

#[test]
fn a_store_that_panics_while_an_append_makes_room_poisons() {
    guarded(|| {
        let store = FaultyStore::new(1 << 16);
        let wal = open(&store);
        store.set(Op::Write, Fault::Panic);
        let append = || wal.append(&[0; 200]).map(|ticket| ticket.lsn());
        assert!((0..100).any(|_| fails(append)));
        assert!(is_poisoned(wal.append(b"x")));
        assert!(is_poisoned(wal.clone().close()));
    });
}

/// The log's own thread meets the panic here: it must still bring the news.
#[test]
fn callbacks_learn_of_a_store_that_panics_on_the_thread_that_runs_them() {
    guarded(|| {
        for op in [Op::Write, Op::Sync] {
            let store = FaultyStore::new(1 << 16);
            let wal = open(&store);
            let first = wal.append(b"first").unwrap().lsn();
            let last = wal.append(b"last").unwrap().lsn();
            store.set(op, Fault::Panic);
            let (sender, receiver) = channel();
            wal.on_durable(first, move |result| sender.send(result).unwrap()).unwrap();
            let told = receiver.recv_timeout(PATIENCE).expect("the callback has to be called");
            assert!(is_poisoned(told), "{op:?}");
            assert!(is_poisoned(wal.wait_durable(last)));
            assert!(is_poisoned(wal.on_durable(last, |_| ())));
        }
    });
}

#[test]
fn futures_alone_learn_of_a_store_that_panics() {
    guarded(|| {
        for op in [Op::Write, Op::Sync] {
            let store = FaultyStore::new(1 << 16);
            let wal = open(&store);
            let ticket = wal.append(b"awaited").unwrap();
            store.set(op, Fault::Panic);
            assert!(is_poisoned(block_on(ticket)), "{op:?}");
        }
    });
}

#[test]
fn a_callback_that_panics_keeps_no_other_from_being_called() {
    guarded(|| {
        let store = FaultyStore::new(1 << 16);
        let wal = open(&store);
        let (sender, receiver) = channel();
        for n in 0..10 {
            let lsn = wal.append(&[n]).unwrap().lsn();
            let sender = sender.clone();
            wal.on_durable(lsn, move |_| {
                assert!(n % 3 != 0, "every third panics, as the test wants it");
                sender.send(n).unwrap();
            })
            .unwrap();
        }
        let called: Vec<u8> = receiver.iter().take(6).collect();
        assert_eq!(called, [1, 2, 4, 5, 7, 8]);
        block_on(wal.append(b"still alive").unwrap()).unwrap();
    });
}

#[test]
fn a_store_that_panics_in_save_state_or_release_poisons_nothing() {
    guarded(|| {
        for op in [Op::SaveState, Op::Release] {
            let store = FaultyStore::new(1 << 16);
            let wal = open(&store);
            wal.commit(b"given up").unwrap();
            let head = wal.commit(b"kept").unwrap();
            store.set(op, Fault::Panic);
            let cut = catch_unwind(AssertUnwindSafe(|| wal.truncate_before(head)));
            assert!(cut.is_err(), "{op:?}");
            wal.commit(b"goes on").unwrap();
            store.set(op, Fault::None);
            wal.truncate_before(head).unwrap();
            wal.commit(b"still").unwrap();
            drop(wal);
            store.inner.lose_power();
            let wal = open(&store.next_life());
            assert_eq!(wal.head_lsn(), head);
            let datas = contents(&wal).unwrap().into_iter().map(|(_, data)| data);
            let expected: [&[u8]; 3] = [b"kept", b"goes on", b"still"];
            assert!(datas.eq(expected), "{op:?}");
        }
    });
}

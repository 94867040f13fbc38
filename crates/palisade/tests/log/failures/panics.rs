//! A disk that panics leaves what one that fails leaves: a write or sync poisons, and nobody hangs.

use crate::prelude::*;

const THREADS: u64 = 8;

fn open(store: &FaultyLog) -> Wal {
    store.open(Options::new().buffer_bytes(4096))
}

fn is_poisoned<T>(result: Result<T, palisade::Error>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Poisoned)
}

fn poisons(op: Calls) {
    let (wal, store) = new_log(1 << 16, Options::new().buffer_bytes(4096));
    let kept = wal.commit(b"kept").unwrap();
    store.set(op, Effect::Hold);
    thread::scope(|scope| {
        let (wal, store) = (&wal, &store);
        scope.spawn(move || assert!(is_poisoned(wal.commit(b"leader"))));
        until(|| store.is_holding(op));
        for _ in 0..3 {
            scope.spawn(move || assert!(is_poisoned(wal.commit(b"follower"))));
        }
        scope.spawn(move || assert!(is_poisoned(block_on(wal.append(b"future").unwrap()))));
        until(|| wal.stats().waiters == 4);
        store.set(op, Effect::Panic);
    });
    assert!(is_poisoned(wal.append(b"x")), "{op:?}");
    assert!(is_poisoned(wal.commit(b"x")), "{op:?}");
    assert!(is_poisoned(wal.sync()), "{op:?}");
    assert_eq!(wal.stats().waiters, 0, "{op:?}");
    drop(wal);
    store.set(op, Effect::Pass);
    store.inner.lose_power();
    assert_eq!(contents(&open(&store))[0], (kept, b"kept".to_vec()));
}

#[test]
fn a_store_panic_in_a_write_or_sync_poisons_and_hangs_no_thread() {
    for op in [WRITE, SYNC] {
        poisons(op);
    }
}

#[test]
fn a_store_that_panics_while_an_append_makes_room_poisons() {
    let (wal, store) = new_log(1 << 16, Options::new().buffer_bytes(4096));
    store.set(WRITE, Effect::Panic);
    let append = || wal.append(&[0; 200]).map(|ticket| ticket.lsn());
    assert!((0..100).any(|_| is_poisoned(append())));
    assert!(is_poisoned(wal.append(b"x")));
    assert!(is_poisoned(wal.clone().close()));
}

/// The log's own thread meets the panic here: it must still bring the news.
#[test]
fn callbacks_get_the_error_if_the_store_panics_on_their_thread() {
    for op in [WRITE, SYNC] {
        let (wal, store) = new_log(1 << 16, Options::new().buffer_bytes(4096));
        let first = wal.append(b"first").unwrap().lsn();
        let last = wal.append(b"last").unwrap().lsn();
        store.set(op, Effect::Panic);
        let (sender, receiver) = channel();
        wal.on_durable(first, move |result| sender.send(result).unwrap()).unwrap();
        let told = receiver.recv_timeout(PATIENCE).expect("the callback has to be called");
        assert!(is_poisoned(told), "{op:?}");
        assert!(is_poisoned(wal.wait_durable(last)));
        assert!(is_poisoned(wal.on_durable(last, |_| ())));
    }
}

#[test]
fn futures_alone_learn_of_a_store_that_panics() {
    for op in [WRITE, SYNC] {
        let (wal, store) = new_log(1 << 16, Options::new().buffer_bytes(4096));
        let ticket = wal.append(b"awaited").unwrap();
        store.set(op, Effect::Panic);
        assert!(is_poisoned(block_on(ticket)), "{op:?}");
    }
}

#[test]
fn a_callback_that_panics_keeps_no_other_from_being_called() {
    let (wal, _) = new_log(1 << 16, Options::new().buffer_bytes(4096));
    let (sender, receiver) = channel();
    for n in 0..10 {
        let lsn = wal.append(&[n]).unwrap().lsn();
        let sender = sender.clone();
        let log = wal.clone();
        wal.on_durable(lsn, move |result| {
            assert!(result.is_ok() && log.durable_lsn() > lsn);
            assert!(n % 3 != 0, "every third panics, as the test wants it");
            sender.send(n).unwrap();
        })
        .unwrap();
    }
    let called: Vec<u8> = receiver.iter().take(6).collect();
    assert_eq!(called, [1, 2, 4, 5, 7, 8]);
    block_on(wal.append(b"still alive").unwrap()).unwrap();
}

#[test]
fn a_store_that_panics_in_save_state_or_release_poisons_nothing() {
    for op in [SAVE_STATE, RELEASE[0]] {
        let (wal, store) = new_log(4096, Options::new().buffer_bytes(4096));
        // A whole segment.
        for _ in 0..6 {
            wal.commit(&[0; 1000]).unwrap();
        }
        let head = wal.commit(b"kept").unwrap();
        store.set(op, Effect::Panic);
        assert_eq!(wal.truncate_before(head).unwrap_err().kind(), ErrorKind::Io, "{op:?}");
        wal.commit(b"goes on").unwrap();
        store.set(op, Effect::Pass);
        wal.truncate_before(head).unwrap();
        wal.commit(b"still").unwrap();
        let wal = open(&store.after_power_loss(wal));
        assert_eq!(wal.head_lsn(), head);
        let expected: [&[u8]; 3] = [b"kept", b"goes on", b"still"];
        assert_eq!(datas_of(&wal), expected, "{op:?}");
    }
}

/// Protection: who has reserved and leads a write for its own room poisons when the store panics,
/// so that its hole keeps nobody waiting.
#[test]
fn a_store_panic_between_reserve_and_publish_hangs_no_thread() {
    for round in 0..200 {
        let (wal, store) = new_log(1 << 16, Options::new().buffer_bytes(4096));
        // Room for one more record, at which all of them look before any has reserved.
        for number in 0..7 {
            drop(wal.append(&record(number, 500)).unwrap());
        }
        store.set(WRITE, Effect::Panic);
        let barrier = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (wal, barrier) = (&wal, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    append_until_it_fails(wal, thread);
                });
            }
        });
        let sticky = wal.append(b"after the panic").unwrap_err();
        assert_eq!(sticky.kind(), ErrorKind::Poisoned, "round {round}: {sticky}");
        assert_eq!(wal.sync().unwrap_err().to_string(), sticky.to_string());
        assert_eq!(wal.stats().waiters, 0);
        let next = store.after_kill(wal);
        let found = numbers(&open(&next));
        assert_eq!(found[..7], [0, 1, 2, 3, 4, 5, 6], "round {round}");
    }
}

fn append_until_it_fails(wal: &Wal, thread: u64) {
    for n in 0..100 {
        let data = record(1000 + thread * 100 + n, 376);
        if let Err(error) = wal.append(&data) {
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
            return;
        }
    }
    panic!("a buffer of 4 KiB cannot hold it all");
}

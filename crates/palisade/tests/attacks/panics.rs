//! A store that panics while an appender holds a reservation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use palisade::{ErrorKind, Options, Wal};

use crate::content::{numbers, record};
use crate::faulty::{Fault, FaultyStore, Op};
use crate::watchdog::guarded;

const THREADS: u64 = 8;

/// Attacks: who has reserved and leads a write for its own room poisons when the store panics, so
/// that its hole keeps nobody waiting.
#[test]
fn a_panic_in_the_store_between_reserve_and_publish_poisons_and_nobody_hangs() {
    guarded(|| {
        for round in 0..200 {
            let store = FaultyStore::new(1 << 16);
            let wal = Wal::with_store(store.clone(), Options::new().buffer_bytes(4096)).unwrap();
            // Room for one more record, at which all of them look before any has reserved.
            for number in 0..7 {
                drop(wal.append(&record(number, 500)).unwrap());
            }
            store.set(Op::Write, Fault::Panic);
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
            store.kill();
            drop(wal);
            let wal = Wal::with_store(store.next_life(), Options::new().buffer_bytes(4096));
            let found = numbers(wal.unwrap().records().unwrap());
            assert_eq!(found[..7], [0, 1, 2, 3, 4, 5, 6], "round {round}");
        }
    });
}

fn append_until_it_fails(wal: &Wal, thread: u64) {
    for n in 0..100 {
        let data = record(1000 + thread * 100 + n, 376);
        let append = || wal.append(&data).map(drop);
        match catch_unwind(AssertUnwindSafe(append)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
                return;
            }
            Err(_) => return,
        }
    }
    panic!("a buffer of 4 KiB cannot hold it all");
}

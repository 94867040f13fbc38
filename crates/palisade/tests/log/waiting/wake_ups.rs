//! Those who wait and do not come back, and those who nobody wakes.

use crate::prelude::*;

fn commit(wal: &Wal) {
    wal.commit(b"waits").unwrap();
}

/// Protection: a dropped future gives its registration back, and the wait only.
#[test]
fn a_cancelled_future_gives_up_its_wait_and_not_its_record() {
    let (wal, store) = log_and_store();
    store.set(SYNC, Effect::Hold);
    for number in 0..200 {
        let mut ticket = wal.append(&record(number, 40)).unwrap();
        assert!(poll_once(&mut ticket).is_pending());
        drop(ticket);
        assert_eq!(wal.stats().waiters, 0, "nobody waits any more");
    }
    store.set(SYNC, Effect::Pass);
    wal.sync().unwrap();
    let next = store.after_power_loss(wal);
    let options = Options::new().buffer_bytes(1 << 14);
    let wal = next.open(options);
    assert_eq!(numbers(&wal), all(200));
}

/// Protection: the flusher wakes by itself. Nobody waits, nobody appends again.
#[test]
fn an_idle_tail_under_interval_becomes_durable() {
    watch();
    let store = MemStore::new(1 << 16);
    let policy = SyncPolicy::Interval(Duration::from_millis(5));
    let options = Options::new().buffer_bytes(1 << 14).sync_policy(policy);
    let wal = Wal::with_store(store.clone(), options.clone()).unwrap();
    for number in 0..5 {
        // A pause longer than the interval, for the flusher to fall asleep in.
        let before = wal.stats().syncs;
        let end = wal.append(&record(number, 40)).unwrap().end_lsn();
        until(|| wal.durable_lsn() >= end);
        assert_eq!(wal.stats().syncs, before + 1);
    }
    let wal = std::mem::ManuallyDrop::new(wal);
    store.lose_power();
    let again = Wal::with_store(store, options).unwrap();
    assert_eq!(numbers(&again), all(5));
    drop(std::mem::ManuallyDrop::into_inner(wal));
}

/// Protection: leadership goes to threads only. A future that is polled once and kept, its waker
/// good for nothing, stands in nobody's way.
#[test]
fn a_future_polled_once_and_never_again_keeps_nobody_waiting() {
    let (wal, store) = log_and_store();
    for round in 0..100 {
        store.set(SYNC, Effect::Hold);
        thread::scope(|scope| {
            let wal = &wal;
            let (polled, is_polled) = channel();
            let (go_on, may_go_on) = channel::<()>();
            // Polled first, so that it is the lowest that waits.
            scope.spawn(move || {
                let mut forgotten = wal.append(b"polled once").unwrap();
                assert!(poll_once(&mut forgotten).is_pending());
                polled.send(()).unwrap();
                may_go_on.recv().unwrap();
                drop(forgotten);
            });
            is_polled.recv().unwrap();
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| commit(wal))).collect();
            let task = scope.spawn(|| block_on(wal.append(b"task").unwrap()).unwrap());
            store.set(SYNC, Effect::Pass);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            task.join().unwrap();
            go_on.send(()).unwrap();
        });
        assert_eq!(wal.stats().waiters, 0, "round {round}");
    }
}

/// Protection: a leader that leaves with none but futures beyond it has the flusher lead for them.
/// The future comes behind the sync under way, is polled once, and never again.
#[test]
fn a_future_polled_once_behind_a_leader_becomes_durable() {
    let (wal, store) = log_and_store();
    // In a single round the flusher may come so late that it finds leadership free.
    for _ in 0..100 {
        store.set(SYNC, Effect::Hold);
        thread::scope(|scope| {
            let leader = scope.spawn(|| commit(&wal));
            until(|| store.is_holding(SYNC));
            let mut behind = wal.append(b"behind").unwrap();
            assert!(poll_once(&mut behind).is_pending());
            store.set(SYNC, Effect::Pass);
            leader.join().unwrap();
            until(|| behind.is_durable());
        });
        assert_eq!(wal.stats().waiters, 0);
    }
}

/// Protection: a waiter whose deadline has passed has tried to lead after its last wake-up.
#[test]
fn drops_and_time_outs_against_wake_ups_lose_none() {
    let (wal, _) = log_and_store();
    thread::scope(|scope| {
        for thread in 0..2 {
            let wal = &wal;
            scope.spawn(move || {
                let mut dice = Dice::new(thread);
                for _ in 0..3000 {
                    let mut ticket = wal.append(b"dropped").unwrap();
                    let is_durable = match dice.below(4) {
                        0 => poll_once(&mut ticket).is_ready(),
                        1 => block_on(&mut ticket).is_ok(),
                        2 => ticket.wait_timeout(Duration::ZERO).unwrap(),
                        _ => {
                            let time = Duration::from_micros(dice.below(30));
                            ticket.wait_timeout(time).unwrap()
                        }
                    };
                    assert!(!is_durable || ticket.is_durable());
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| (0..3000).for_each(|_| commit(&wal)));
        }
    });
    assert_eq!(wal.stats().waiters, 0);
    block_on(wal.append(b"the last").unwrap()).unwrap();
    assert_eq!(wal.durable_lsn(), wal.reserved_lsn());
}

/// Protection: committers that yield in the place of a sleep wait for *durable*, too.
#[test]
fn more_committers_than_cores_return_only_when_durable() {
    let (wal, store) = log_and_store();
    store.watch(|call| {
        // Committers sleep at once if syncs take longer than 0.25 ms, and gather only if they take
        // some time. A sleep could take longer than that.
        let began = Instant::now();
        while (call.kind, call.target) == SYNC && began.elapsed() < Duration::from_micros(30) {
            std::hint::spin_loop();
        }
        Ok(())
    });
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let lsn = wal.commit(b"waits").unwrap();
                    assert!(wal.durable_lsn() > lsn);
                }
            });
        }
    });
}

//! Waits with a deadline, and leadership that has to go on when its holder leaves.

use crate::prelude::*;

#[test]
fn a_wait_of_no_time_returns_and_leaves_the_others_served() {
    let (wal, store) = log_and_store();
    let alone = wal.append(b"alone").unwrap();
    // Nobody leads, so it leads itself: a thread that only polls comes to its end.
    assert!(alone.wait_timeout(Duration::ZERO).unwrap());
    store.set(SYNC, Effect::Hold);
    thread::scope(|scope| {
        let (wal, store) = (&wal, &store);
        scope.spawn(|| wal.commit(b"leader").unwrap());
        until(|| store.is_holding(SYNC));
        let impatient = wal.append(b"impatient").unwrap();
        assert!(!impatient.wait_timeout(Duration::ZERO).unwrap());
        scope.spawn(|| wal.commit(b"follower").unwrap());
        until(|| wal.stats().waiters == 1);
        assert!(!impatient.wait_timeout(Duration::from_millis(1)).unwrap());
        store.set(SYNC, Effect::Pass);
    });
    assert_eq!(wal.stats().waiters, 0);
    wal.sync().unwrap();
}

#[test]
fn a_timed_out_leader_above_a_hole_hands_over_to_a_waiter() {
    let (wal, _store) = log_and_store();
    with_a_hole(&wal, 8, |fill_it| {
        // Nobody else is there to lead. Below, another thread may lead first.
        let alone = wal.append(b"alone").unwrap();
        assert!(!alone.wait_timeout(Duration::from_millis(1)).unwrap());
        thread::scope(|scope| {
            let wal = &wal;
            let leader = scope.spawn(|| {
                let ticket = wal.append(b"leader").unwrap();
                ticket.wait_timeout(Duration::from_millis(100)).unwrap()
            });
            let waiter = scope.spawn(|| wal.commit(b"waiter").unwrap());
            let future = scope.spawn(|| block_on(wal.append(b"future").unwrap()).unwrap());
            assert!(!leader.join().unwrap(), "nothing above a hole is durable");
            assert_eq!(wal.durable_lsn().as_u64(), 0);
            fill_it();
            waiter.join().unwrap();
            future.join().unwrap();
        });
    });
    assert_eq!(wal.stats().waiters, 0);
}

#[test]
fn futures_above_a_hole_complete_when_its_owner_only_fills_it() {
    let (wal, _store) = log_and_store();
    with_a_hole(&wal, 8, |fill_it| {
        thread::scope(|scope| {
            let wal = &wal;
            for _ in 0..3 {
                scope.spawn(|| block_on(wal.append(b"future").unwrap()).unwrap());
            }
            until(|| wal.stats().waiters == 3);
            fill_it();
        });
    });
    assert_eq!(wal.durable_lsn(), wal.reserved_lsn());
}

#[test]
fn a_full_buffer_behind_a_hole_waits_for_its_owner_alone() {
    watch();
    let store = MemStore::new(1 << 16);
    let wal = Wal::with_store(store, Options::new().buffer_bytes(4096)).unwrap();
    with_a_hole(&wal, 8, |fill_it| {
        thread::scope(|scope| {
            let wal = &wal;
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| drop(wal.append(&[0; 200]).unwrap())));
            }
            until(|| wal.try_append(&[0; 1000]).is_err());
            assert_eq!(wal.written_lsn().as_u64(), 0);
            fill_it();
        });
    });
    wal.sync().unwrap();
    assert_eq!(wal.durable_lsn(), wal.reserved_lsn());
}

#[test]
fn a_close_beside_commits_is_clean_and_keeps_all_acknowledged() {
    watch();
    for round in 0..20 {
        let store = MemStore::new(1 << 14);
        let options = Options::new().buffer_bytes(4096);
        let wal = Wal::with_store(store.clone(), options.clone()).unwrap();
        let acknowledged = thread::scope(|scope| {
            let wal = &wal;
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(move || commit_until_closed(wal))).collect();
            until(|| wal.stats().syncs > round);
            wal.clone().close().unwrap();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        drop(wal);
        store.lose_power();
        let wal = Wal::with_store(store, options).unwrap();
        assert!(wal.recovery_report().clean);
        assert!(acknowledged.iter().all(|lsn| wal.get(*lsn).is_ok()));
    }
}

fn commit_until_closed(wal: &Wal) -> Vec<Lsn> {
    let mut acknowledged = Vec::new();
    loop {
        match wal.commit(&[7; 100]) {
            Ok(lsn) => acknowledged.push(lsn),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                return acknowledged;
            }
        }
    }
}

/// Checks that the commit leads though the flusher was asked to.
#[test]
fn a_commit_in_a_callback_leads_instead_of_the_flusher() {
    let (wal, _store) = log_and_store();
    let (first, second) = (wal.append(b"1").unwrap().lsn(), wal.append(b"2").unwrap().lsn());
    let (done, is_done) = std::sync::mpsc::channel();
    let (log, also_done) = (wal.clone(), done.clone());
    wal.on_durable(first, move |result| {
        result.unwrap();
        log.append(b"3").unwrap();
        let other = log.append(b"4").unwrap().lsn();
        log.on_durable(other, move |result| also_done.send(result).unwrap()).unwrap();
        done.send(log.commit(b"5").map(drop)).unwrap();
    })
    .unwrap();
    wal.on_durable(second, |result| result.unwrap()).unwrap();
    is_done.recv().unwrap().unwrap();
    is_done.recv().unwrap().unwrap();
    wal.commit(b"6").unwrap();
}

#[test]
fn a_tail_waits_over_marks_and_learns_that_the_log_was_closed() {
    let (wal, _store) = log_and_store();
    let lsn = wal.commit(b"1").unwrap();
    let mut tail = wal.tail().unwrap();
    assert_eq!(tail.next(PATIENCE).unwrap().unwrap().lsn(), lsn);
    let writer = std::thread::spawn(move || {
        wal.checkpoint(lsn).unwrap();
        let next = wal.commit(b"2").unwrap();
        wal.close().unwrap();
        next
    });
    let seen = tail.next(PATIENCE).unwrap().unwrap().lsn();
    assert_eq!(seen, writer.join().unwrap());
    assert_eq!(tail.next(PATIENCE).unwrap_err().kind(), ErrorKind::Closed);
}

//! Tickets awaited without a runtime: durable when they are ready, cancel safe, movable, alone
//! and among threads.

use std::task::Wake;

use crate::prelude::*;

fn poll(ticket: &mut Ticket<'_>, waker: &Waker) -> Poll<palisade::Result<Lsn>> {
    Pin::new(ticket).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_future_wakes_the_waker_that_polled_it_last() {
    let (wal, store) = log_and_store();
    store.set(SYNC, Effect::Hold);
    let ticket = wal.append(b"x").unwrap().detach();
    let wakers = [Arc::new(Count::default()), Arc::new(Count::default())];
    let polled = wakers.iter().fold(ticket, |mut ticket, waker| {
        let waker = Waker::from(Arc::clone(waker));
        thread::spawn(move || {
            assert!(poll(&mut ticket, &waker).is_pending());
            ticket
        })
        .join()
        .unwrap()
    });
    assert_eq!(wal.stats().waiters, 1);
    store.set(SYNC, Effect::Pass);
    until(|| wakers[1].woken() > 0);
    let mut polled = polled;
    assert!(poll(&mut polled, Waker::noop()).is_ready());
    assert_eq!((wakers[0].woken(), wakers[1].woken()), (0, 1));
}

/// A waker may own whatever it likes: letting go of it is foreign code, which may come back.
struct OwnsATicket {
    _ticket: Mutex<Ticket<'static>>,
}

impl Wake for OwnsATicket {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_whose_drop_comes_back_to_the_log_blocks_nobody() {
    let (wal, store) = log_and_store();
    store.set(SYNC, Effect::Hold);
    let waker_with_ticket = || {
        let mut owned = wal.append(b"owned").unwrap().detach();
        assert!(poll(&mut owned, Waker::noop()).is_pending());
        Waker::from(Arc::new(OwnsATicket { _ticket: Mutex::new(owned) }))
    };
    // The log holds the last handle of the first waker when the second replaces it.
    let mut ticket = wal.append(b"outer").unwrap();
    assert!(poll(&mut ticket, &waker_with_ticket()).is_pending());
    assert!(poll(&mut ticket, &waker_with_ticket()).is_pending());
    assert_eq!(wal.stats().waiters, 2);
    drop(ticket);
    assert_eq!(wal.stats().waiters, 0);
    store.set(SYNC, Effect::Pass);
}

#[test]
fn one_future_too_many_is_refused_and_disturbs_no_other_waiter() {
    let store = FaultyLog::new(1 << 16);
    let options = Options::new().buffer_bytes(1 << 14).max_waiters(2);
    let wal = store.open(options);
    store.set(SYNC, Effect::Hold);
    thread::scope(|scope| {
        let wal = &wal;
        scope.spawn(|| wal.commit(b"leader").unwrap());
        until(|| store.is_holding(SYNC));
        let mut waiting = [wal.append(b"first").unwrap(), wal.append(b"second").unwrap()];
        for ticket in &mut waiting {
            assert!(poll(ticket, Waker::noop()).is_pending());
        }
        let mut one_too_many = wal.append(b"one too many").unwrap();
        let Poll::Ready(Err(error)) = poll(&mut one_too_many, Waker::noop()) else {
            panic!("a third future waits");
        };
        assert_eq!(error.kind(), ErrorKind::TooManyWaiters);
        assert_eq!(error.appended_lsn(), Some(one_too_many.lsn()), "{error}");
        assert_eq!(wal.get(one_too_many.lsn()).unwrap().data(), b"one too many");
        // Threads are not counted: each is a limit of its own.
        scope.spawn(|| wal.commit(b"follower").unwrap());
        until(|| wal.stats().waiters == 3);
        store.set(SYNC, Effect::Pass);
        assert_eq!(one_too_many.wait().unwrap(), one_too_many.lsn());
        assert!(waiting.iter().all(|ticket| ticket.wait().is_ok()));
    });
}

#[test]
fn a_refused_callback_whose_drop_calls_the_log_blocks_no_thread() {
    let store = FaultyLog::new(1 << 16);
    let options = Options::new().buffer_bytes(1 << 14).max_waiters(1);
    let wal = store.open(options);
    store.set(SYNC, Effect::Hold);
    let mut owned = wal.append(b"owned").unwrap().detach();
    assert!(poll(&mut owned, Waker::noop()).is_pending());
    let lsn = wal.append(b"one too many").unwrap().lsn();
    let refused = wal.on_durable(lsn, move |_| drop(owned)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooManyWaiters);
    assert!(refused.to_string().contains("max_waiters"), "{refused}");
    assert_eq!(wal.stats().waiters, 0, "the callback went, and its ticket with it");
    store.set(SYNC, Effect::Pass);
}

#[test]
fn futures_alone_are_served_without_a_thread_that_commits() {
    let wal = log_and_store().0;
    run_all((0..10_u8).map(|task| Box::pin(append_and_await(wal.clone(), task)) as _).collect());
    assert_eq!(contents(&wal).len(), 10 * 50);
    assert_eq!(wal.durable_lsn(), wal.reserved_lsn());
    assert_eq!(wal.stats().waiters, 0);
}

async fn append_and_await(wal: Wal, task: u8) {
    for n in 0..50_u8 {
        let ticket = wal.append(&[task, n]).unwrap();
        let end = ticket.end_lsn();
        ticket.await.unwrap();
        assert!(wal.durable_lsn() >= end);
    }
}

#[test]
fn futures_and_threads_are_served_together() {
    let (_dir, _, wal) = log_on_files(small());
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            let wal = &wal;
            scope.spawn(move || {
                for n in 0..50_u8 {
                    let lsn = wal.commit(&[thread, n]).unwrap();
                    assert!(wal.durable_lsn() > lsn);
                }
            });
        }
        let tasks = (4..10_u8).map(|task| Box::pin(append_and_await(wal.clone(), task)) as _);
        run_all(tasks.collect());
    });
    assert_eq!(contents(&wal).len(), 10 * 50);
    assert_eq!(wal.stats().waiters, 0);
}

#[test]
fn detached_tickets_keep_the_log_open_until_they_are_served() {
    watch();
    let store = MemStore::new(1 << 16);
    let options = Options::new().buffer_bytes(1 << 14);
    let wal = Wal::with_store(store.clone(), options.clone()).unwrap();
    let ticket = wal.append(b"detached").unwrap().detach();
    drop(wal);
    let lsn = thread::spawn(move || block_on(ticket)).join().unwrap().unwrap();
    store.lose_power();
    assert_eq!(Wal::with_store(store, options).unwrap().get(lsn).unwrap().data(), b"detached");
}

#[test]
fn a_callback_may_drop_the_last_handle_and_append_before() {
    watch();
    let store = MemStore::new(1 << 16);
    let options = Options::new().buffer_bytes(1 << 14);
    let wal = Wal::with_store(store.clone(), options.clone()).unwrap();
    let (sender, receiver) = channel();
    let lsn = wal.append(b"first").unwrap().lsn();
    let last_handle = wal.clone();
    wal.on_durable(lsn, move |result| {
        result.unwrap();
        drop(last_handle.append(b"second").unwrap());
        drop(last_handle);
        sender.send(()).unwrap();
    })
    .unwrap();
    drop(wal);
    receiver.recv().unwrap();
    let found = contents(&Wal::with_store(store, options).unwrap());
    assert_eq!(found.len(), 2);
}

#[test]
fn every_callback_is_called_once_even_if_the_log_goes_away() {
    for round in 0..100_u64 {
        let wal = log_and_store().0;
        let (sender, receiver) = channel();
        for n in 0..round % 7 {
            let lsn = wal.append(&n.to_le_bytes()).unwrap().lsn();
            let sender = sender.clone();
            wal.on_durable(lsn, move |told| sender.send((n, told)).unwrap()).unwrap();
        }
        drop(sender);
        drop(wal);
        let mut told: Vec<u64> = Vec::new();
        for (n, result) in receiver {
            assert!(result.is_ok() || result.is_err_and(|e| e.kind() == ErrorKind::Closed));
            told.push(n);
        }
        told.sort_unstable();
        assert_eq!(told, (0..round % 7).collect::<Vec<_>>());
    }
}

/// A waker that takes its time: it says that it was woken, then waits to be let go.
struct Slow {
    woken: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Wake for Slow {
    fn wake(self: Arc<Self>) {
        self.woken.send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
    }
}

#[test]
fn a_slow_waker_blocks_no_thread_and_callbacks_stay_in_order() {
    let (wal, store) = log_and_store();
    let mut slow = wal.append(b"slow waker").unwrap();
    let first = wal.append(b"first callback").unwrap().lsn();
    let (woken, was_woken) = channel();
    let (let_go, go_on) = channel();
    let (ran, order) = channel();
    let note = |n: u32| {
        let ran = ran.clone();
        move |told: palisade::Result<()>| ran.send((n, told.is_ok())).unwrap()
    };
    store.set(SYNC, Effect::Hold);
    thread::scope(|scope| {
        let leader = scope.spawn(|| wal.sync());
        until(|| store.is_holding(SYNC));
        let waker = Waker::from(Arc::new(Slow { woken, go_on: Mutex::new(go_on) }));
        assert!(poll(&mut slow, &waker).is_pending());
        wal.on_durable(first, note(1)).unwrap();
        store.set(SYNC, Effect::Pass);
        was_woken.recv().unwrap();
        // The flusher is in the waker. Threads need it for nothing.
        leader.join().unwrap().unwrap();
        let second = wal.append(b"second callback").unwrap().lsn();
        wal.on_durable(second, note(2)).unwrap();
        wal.wait_durable(second).unwrap();
        let_go.send(()).unwrap();
        assert_eq!([order.recv().unwrap(), order.recv().unwrap()], [(1, true), (2, true)]);
    });
}

#[test]
fn a_callback_may_block_on_a_future_of_the_same_log() {
    let wal = log_and_store().0;
    let first = wal.append(b"first").unwrap().lsn();
    let second = wal.append(b"second").unwrap().detach();
    let (ran, order) = channel();
    let log = wal.clone();
    wal.on_durable(first, move |_| {
        let third = log.append(b"third").unwrap();
        let awaited = [block_on(second), block_on(third)];
        ran.send(awaited.map(|lsn| lsn.is_ok())).unwrap();
    })
    .unwrap();
    assert_eq!(order.recv().unwrap(), [true, true]);
}

#[test]
fn a_callback_beside_a_close_runs_on_its_thread_or_is_refused() {
    for _ in 0..100 {
        let wal = log_and_store().0;
        let lsn = wal.append(b"record").unwrap().lsn();
        let (ran, names) = channel();
        thread::scope(|scope| {
            let closer = wal.clone();
            scope.spawn(move || closer.close().unwrap());
            let note = move |_| {
                ran.send(thread::current().name().map(str::to_owned)).unwrap();
            };
            match wal.on_durable(lsn, note) {
                Ok(()) => {
                    assert_eq!(names.recv().unwrap().as_deref(), Some("palisade-callbacks"));
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
            }
        });
    }
}

/// A panic payload whose drop panics.
struct Nasty;

impl Drop for Nasty {
    fn drop(&mut self) {
        panic!("the payload's drop panics");
    }
}

#[test]
fn a_panic_with_a_panicking_payload_ends_no_thread_of_the_log() {
    let wal = log_and_store().0;
    let lsn = wal.append(b"record").unwrap().lsn();
    wal.on_durable(lsn, |_| std::panic::panic_any(Nasty)).unwrap();
    let (ran, was_run) = channel();
    wal.on_durable(lsn, move |result| ran.send(result.is_ok()).unwrap()).unwrap();
    assert!(was_run.recv().unwrap(), "the next callback runs");
}

/// A waker that owns a future: it drops it when it is woken, once all other handles are gone.
struct DropsItsTicket {
    ticket: Mutex<Option<Ticket<'static>>>,
    others_are_gone: Mutex<Receiver<()>>,
}

impl Wake for DropsItsTicket {
    fn wake(self: Arc<Self>) {
        self.others_are_gone.lock().unwrap().recv().unwrap();
        let ticket = self.ticket.lock().unwrap().take();
        drop(ticket);
    }
}

#[test]
fn a_callback_behind_a_waker_that_drops_the_last_handle_runs() {
    let (wal, store) = log_and_store();
    store.set(SYNC, Effect::Hold);
    // Both are there before the flusher writes, so that one sync covers both.
    let mut ticket = wal.append(b"first").unwrap().detach();
    let second = wal.append(b"second").unwrap().lsn();
    let (gone, others_are_gone) = channel();
    let waker = Arc::new(DropsItsTicket {
        ticket: Mutex::default(),
        others_are_gone: Mutex::new(others_are_gone),
    });
    assert!(poll(&mut ticket, &Waker::from(Arc::clone(&waker))).is_pending());
    *waker.ticket.lock().unwrap() = Some(ticket);
    let (send, ran) = channel();
    wal.on_durable(second, move |result| send.send(result).unwrap()).unwrap();
    until(|| store.is_holding(SYNC));
    drop(wal);
    store.set(SYNC, Effect::Pass);
    gone.send(()).unwrap();
    ran.recv().unwrap().unwrap();
    assert!(ran.recv().is_err(), "it runs once");
}

#[test]
fn a_callback_for_a_durable_record_gets_ok_though_a_write_fails() {
    let (wal, store) = log_and_store();
    let durable = wal.commit(b"durable").unwrap();
    let later = wal.append(b"later").unwrap().lsn();
    store.set(WRITE, Effect::Hold);
    let (send, got) = channel();
    let failed = send.clone();
    wal.on_durable(later, move |result| failed.send(result).unwrap()).unwrap();
    until(|| store.is_holding(WRITE));
    // The flusher is in the write, and comes upon this one together with the failure.
    wal.on_durable(durable, move |result| send.send(result).unwrap()).unwrap();
    store.set(WRITE, Effect::NoSpace);
    let results = [got.recv().unwrap(), got.recv().unwrap()];
    assert!(results[0].is_ok(), "{results:?}");
    assert_eq!(results[1].as_ref().unwrap_err().kind(), ErrorKind::NoSpace);
    store.set(WRITE, Effect::Pass);
}

#[test]
fn callbacks_that_are_due_count_as_waiters() {
    let store = FaultyLog::new(1 << 16);
    let wal = store.open(Options::new().buffer_bytes(1 << 14).max_waiters(3));
    let lsn = wal.commit(b"durable").unwrap();
    let (go, wait) = channel::<()>();
    let (began, has_begun) = channel();
    wal.on_durable(lsn, move |_| {
        began.send(()).unwrap();
        wait.recv().unwrap();
    })
    .unwrap();
    has_begun.recv().unwrap();
    // The first one runs. Three waiters may wait behind it.
    for _ in 0..2 {
        wal.on_durable(lsn, |_| {}).unwrap();
    }
    // When this future is ready, the flusher has moved the callbacks into the queue.
    block_on(wal.append(b"barrier").unwrap()).unwrap();
    assert_eq!(wal.stats().waiters, 2);
    wal.on_durable(lsn, |_| {}).unwrap();
    let refused = wal.on_durable(lsn, |_| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooManyWaiters, "{refused}");
    go.send(()).unwrap();
}

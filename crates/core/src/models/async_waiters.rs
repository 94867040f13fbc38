//! Models of wakers, callbacks and the flusher.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use palisade_store::sync::{AtomicU32, Ordering, WaitWord};

use super::store::{Fault, ModelStore};
use super::{Bound, LARGE_FRAME, Log, Shape, check, large, spawn};
use crate::commit::{Key, Wait};
use crate::{ErrorKind, Lsn, Result};

struct Bell {
    rings: AtomicU32,
    word: WaitWord,
}

impl Bell {
    fn new() -> Arc<Bell> {
        Arc::new(Bell { rings: AtomicU32::new(0), word: WaitWord::default() })
    }

    fn wait_for_more_than(&self, heard: u32) {
        loop {
            let seen = self.word.look();
            // Relaxed: as in `wake`.
            if self.rings.load(Ordering::Relaxed) > heard {
                return;
            }
            self.word.sleep(seen, None);
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Relaxed: the model's executor gives the log no order; the log orders what a poll finds.
        self.rings.fetch_add(1, Ordering::Relaxed);
        self.word.wake_all();
    }
}

/// Polls `future` only when it is woken.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let bell = Bell::new();
    let waker = Waker::from(Arc::clone(&bell));
    let mut future = pin!(future);
    let mut heard = 0;
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        bell.wait_for_more_than(heard);
        heard += 1;
    }
}

#[test]
fn a_waker_is_woken_or_sees_completion() {
    check("a_waker_is_woken_or_sees_completion", Bound::At(2), || {
        let log = Log::roomy();
        let leader = spawn(&log, move |log| log.commit(1).unwrap());
        let lsn = block_on(log.wal.append(&large(2)).unwrap()).unwrap();
        log.store.assert_synced(lsn, 2);
        leader.join().unwrap();
    });
}

/// Checks P6.
#[test]
fn the_flusher_leads_where_no_thread_does() {
    check("the_flusher_leads_where_no_thread_does", Bound::At(5), || {
        let log = Log::roomy();
        let lsn = block_on(log.wal.append(&large(1)).unwrap()).unwrap();
        log.store.assert_synced(lsn, 1);
    });
}

/// Checks P3 and P6.
#[test]
fn a_leader_that_leaves_wakes_the_flusher() {
    check("a_leader_that_leaves_wakes_the_flusher", Bound::At(3), || {
        let log = Log::roomy();
        let ticket = log.wal.append(&large(1)).unwrap();
        let leader =
            spawn(&log, move |log| log.wal.commit_state().with_leadership(|_| ()).unwrap());
        let lsn = block_on(ticket).unwrap();
        log.store.assert_synced(lsn, 1);
        leader.join().unwrap();
    });
}

#[test]
fn poison_reaches_a_future() {
    check("poison_reaches_a_future", Bound::At(2), || {
        let log = Log::new(Shape::ROOMY, ModelStore::with_fault(Lsn::ZERO, Fault::Sync));
        let ticket = log.wal.append(&large(2)).unwrap();
        let leader = spawn(&log, move |log| log.commit(1).unwrap_err());
        let error = block_on(ticket).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert_eq!(leader.join().unwrap().kind(), ErrorKind::Poisoned);
    });
}

struct Watch<'w> {
    log: &'w Log,
    target: Lsn,
    key: Option<Key>,
}

impl Future for Watch<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Watch { log, target, key } = &mut *self;
        log.wal.ensure_flusher()?;
        log.wal.commit_state().poll_wait(Wait::Watch, *target, key, context)
    }
}

/// Checks P3 and P6.
#[test]
fn a_polled_tail_is_woken_by_the_sync_of_another() {
    check("a_polled_tail_is_woken_by_the_sync_of_another", Bound::At(2), || {
        let log = Log::roomy();
        let leader = spawn(&log, move |log| log.commit(1).unwrap());
        block_on(Watch { log: &log, target: Lsn::new(1), key: None }).unwrap();
        log.store.assert_synced_to(Lsn::new(LARGE_FRAME));
        leader.join().unwrap();
    });
}

#[test]
fn poison_reaches_a_polled_tail() {
    check("poison_reaches_a_polled_tail", Bound::At(2), || {
        let log = Log::new(Shape::ROOMY, ModelStore::with_fault(Lsn::ZERO, Fault::Sync));
        let leader = spawn(&log, move |log| log.commit(1).unwrap_err());
        let watched = block_on(Watch { log: &log, target: Lsn::new(1), key: None });
        assert_eq!(watched.unwrap_err().kind(), ErrorKind::Poisoned);
        leader.join().unwrap();
    });
}

#[test]
fn a_dropped_future_keeps_nobody_waiting() {
    check("a_dropped_future_keeps_nobody_waiting", Bound::At(2), || {
        let log = Log::roomy();
        let waiter = spawn(&log, move |log| log.commit(1).unwrap());
        {
            let bell = Bell::new();
            let waker = Waker::from(bell);
            let mut ticket = pin!(log.wal.append(&large(2)).unwrap());
            let _ = ticket.as_mut().poll(&mut Context::from_waker(&waker));
        }
        waiter.join().unwrap();
    });
}

#[test]
fn a_callback_runs_once() {
    check("a_callback_runs_once", Bound::At(3), || {
        let log = Log::roomy();
        let lsn = log.append(1);
        let bell = Bell::new();
        let (ring, seen) = (Arc::clone(&bell), Arc::clone(&log.store));
        log.wal
            .on_durable(lsn, move |result| {
                result.unwrap();
                seen.assert_synced_to(Lsn::new(LARGE_FRAME));
                ring.wake();
            })
            .unwrap();
        bell.wait_for_more_than(0);
        drop(log);
        // Relaxed: as in `wake`; the flusher has ended with the last handle.
        assert_eq!(bell.rings.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_close_waits_for_a_callback_that_calls_the_log() {
    check("a_close_waits_for_a_callback_that_calls_the_log", Bound::At(2), || {
        let log = Log::roomy();
        let lsn = log.append(1);
        let bell = Bell::new();
        let (ring, again) = (Arc::clone(&bell), log.wal.clone());
        log.wal
            .on_durable(lsn, move |result| {
                result.unwrap();
                let second = Arc::clone(&ring);
                match again.on_durable(lsn, move |_| second.wake()) {
                    Ok(()) => {}
                    // The close was faster.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
                }
            })
            .unwrap();
        log.wal.close().unwrap();
    });
}

//! Tails that tasks poll: woken by the sync of another thread, never the cause of one; and their
//! end.

use std::future::poll_fn;

use palisade::Result;

use crate::prelude::*;

const FILE_BYTES: u64 = SEGMENT_BYTES + 4096;

async fn next(tail: &mut Tail) -> Result<Option<RecordBuf>> {
    poll_fn(|context| tail.poll_next(context).map_ok(|found| found.map(RecordBuf::from))).await
}

/// Polls once. Returns the record's bytes, or `None` if there is none yet.
fn poll(tail: &mut Tail, waker: &Waker) -> Result<Option<Vec<u8>>> {
    match tail.poll_next(&mut Context::from_waker(waker)) {
        Poll::Pending => Ok(None),
        Poll::Ready(found) => Ok(found?.map(|record| record.data().to_vec())),
    }
}

fn assert_pending(tail: &mut Tail, waker: &Waker) {
    assert!(tail.poll_next(&mut Context::from_waker(waker)).is_pending());
}

#[test]
fn polled_tails_see_each_record_once_in_order_beside_commits() {
    const RECORDS: u64 = 400;
    let (_folder, _, wal) = log_on_files(small());
    thread::scope(|scope| {
        for first in [0, RECORDS / 2] {
            let wal = &wal;
            scope.spawn(move || {
                for number in first..first + RECORDS / 2 {
                    wal.commit(&number.to_le_bytes()).unwrap();
                }
            });
        }
        run_all((0..3).map(|_| Box::pin(see_all(wal.clone(), RECORDS)) as _).collect());
    });
}

async fn see_all(wal: Wal, records: u64) {
    let mut tail = wal.tail().unwrap();
    let mut seen = Vec::new();
    for _ in 0..records {
        seen.push(next(&mut tail).await.unwrap().unwrap());
        assert!(tail.position() <= wal.durable_lsn());
    }
    assert!(seen.is_sorted_by(|one, other| one.lsn() < other.lsn()));
    let mut numbers: Vec<u64> =
        seen.iter().map(|record| u64::from_le_bytes(record.data().try_into().unwrap())).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..records).collect::<Vec<_>>());
}

#[test]
fn a_poll_requests_no_sync_and_the_next_sync_wakes_its_task() {
    // A sync that the poll asked for could come together with that of the other thread.
    for _ in 0..50 {
        check_that_a_poll_asks_for_no_sync();
    }
}

fn check_that_a_poll_asks_for_no_sync() {
    let (wal, store) = log_and_store();
    let mut tail = wal.tail().unwrap();
    let bell = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&bell));
    wal.append(b"x").unwrap();
    assert_pending(&mut tail, &waker);
    assert_eq!(wal.stats().waiters, 1);
    store.set(SYNC, Effect::Hold);
    thread::scope(|scope| {
        scope.spawn(|| wal.commit(b"y").unwrap());
        until(|| store.is_holding(SYNC));
        assert_pending(&mut tail, &waker);
        assert_eq!(bell.woken(), 0, "nothing is durable");
        store.set(SYNC, Effect::Pass);
        until(|| bell.woken() > 0);
    });
    assert_eq!(wal.stats().syncs, 1);
    assert_eq!(poll(&mut tail, &waker).unwrap().unwrap(), b"x");
    assert_eq!(poll(&mut tail, &waker).unwrap().unwrap(), b"y");
    assert_pending(&mut tail, &waker);
    assert_eq!(wal.stats().syncs, 1, "a tail leads no round");
    assert_eq!(bell.woken(), 1);
}

#[test]
fn a_task_that_is_polled_before_it_is_woken_loses_nothing() {
    let (wal, store) = log_and_store();
    let mut tail = wal.tail().unwrap();
    let bell = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&bell));
    for number in 0..50_u8 {
        assert_pending(&mut tail, &waker);
        wal.commit(&[number]).unwrap();
        // Half of the polls come after the flusher has taken the registration out.
        if number % 2 == 0 {
            until(|| wal.stats().waiters == 0);
        }
        assert_eq!(poll(&mut tail, &waker).unwrap().unwrap(), [number]);
    }
    store.set(SYNC, Effect::Hold);
    assert_pending(&mut tail, &waker);
    until(|| wal.stats().waiters == 1);
    store.set(SYNC, Effect::Pass);
}

#[test]
fn a_dropped_tail_waits_no_more() {
    let (wal, _store) = log_and_store();
    let mut tail = wal.tail().unwrap();
    assert_pending(&mut tail, Waker::noop());
    assert_eq!(wal.stats().waiters, 1);
    drop(tail);
    assert_eq!(wal.stats().waiters, 0);
}

#[test]
fn one_polled_tail_too_many_is_refused() {
    let store = FaultyLog::new(1 << 16);
    let wal = store.open(Options::new().buffer_bytes(1 << 14).max_waiters(1));
    let (mut one, mut other) = (wal.tail().unwrap(), wal.tail().unwrap());
    assert_pending(&mut one, Waker::noop());
    let error = poll(&mut other, Waker::noop()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooManyWaiters);
    drop(one);
    assert_pending(&mut other, Waker::noop());
}

#[test]
fn poison_reaches_a_polled_tail() {
    let (wal, store) = log_and_store();
    let mut tail = wal.tail().unwrap();
    wal.commit(b"before").unwrap();
    store.set(SYNC, Effect::Eio);
    thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            assert_eq!(block_on(next(&mut tail)).unwrap().unwrap().data(), b"before");
            block_on(next(&mut tail)).unwrap_err()
        });
        assert_eq!(wal.commit(b"x").unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(consumer.join().unwrap().kind(), ErrorKind::Poisoned);
    });
}

#[test]
fn a_close_ends_a_polled_tail_after_the_last_record() {
    let (_folder, _, wal) = log_on_files(small());
    let mut tail = wal.tail().unwrap();
    thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            let record = block_on(next(&mut tail)).unwrap().unwrap();
            (record.into_data(), block_on(next(&mut tail)).unwrap_err().kind())
        });
        until(|| wal.stats().waiters == 1);
        wal.append(b"last").unwrap();
        wal.close().unwrap();
        assert_eq!(consumer.join().unwrap(), (b"last".to_vec(), ErrorKind::Closed));
    });
}

#[test]
fn the_ended_future_completes_at_the_end_and_not_at_a_sync() {
    let (wal, _) = log_and_store();
    let bell = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut ended = wal.ended();
    let mut poll = || Pin::new(&mut ended).poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    wal.commit(b"one").unwrap();
    assert!(poll().is_pending());
    assert_eq!(wal.stats().waiters, 1, "it is registered once");
    wal.close().unwrap();
    assert!(matches!(poll(), Poll::Ready(error) if error.kind() == ErrorKind::Closed));
    let (wal, store) = log_and_store();
    let ended = wal.ended();
    drop((wal.ended(), poll_once(&mut wal.ended())));
    assert_eq!(wal.stats().waiters, 0, "a dropped one waits no more");
    thread::scope(|scope| {
        let waits = scope.spawn(|| block_on(ended).kind());
        until(|| wal.stats().waiters == 1);
        store.set(SYNC, Effect::Eio);
        wal.commit(b"x").unwrap_err();
        assert_eq!(waits.join().unwrap(), ErrorKind::Poisoned);
    });
}

#[test]
fn a_truncation_reaches_a_polled_tail() {
    let (_folder, _, wal) = log_on_files(small());
    let first = wal.commit(b"stays").unwrap();
    wal.commit(b"goes").unwrap();
    let (mut reads_on, mut has_seen_both) = (wal.tail().unwrap(), wal.tail().unwrap());
    assert_eq!(poll(&mut reads_on, Waker::noop()).unwrap().unwrap(), b"stays");
    for _ in 0..2 {
        poll(&mut has_seen_both, Waker::noop()).unwrap().unwrap();
    }
    assert_pending(&mut has_seen_both, Waker::noop());
    wal.truncate_after(first).unwrap();
    assert_pending(&mut reads_on, Waker::noop());
    wal.commit(b"new").unwrap();
    assert_eq!(block_on(next(&mut reads_on)).unwrap().unwrap().data(), b"new");
    let error = block_on(next(&mut has_seen_both)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    assert_eq!(block_on(next(&mut has_seen_both)).unwrap(), None);
}

#[test]
fn a_cancelled_tail_returns_at_once_and_for_good() {
    let (_folder, path, wal) = log_on_files(small());
    let mut tail = wal.tail().unwrap();
    let canceller = tail.canceller();
    thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            assert!(tail.next(Duration::MAX).unwrap().is_none());
            tail
        });
        until(|| wal.stats().waiters == 1);
        canceller.cancel();
        let mut tail = consumer.join().unwrap();
        wal.commit(b"later").unwrap();
        assert!(tail.next(Duration::MAX).unwrap().is_none());
        assert_eq!(block_on(next(&mut tail)).unwrap(), None);
        assert_eq!(tail.position(), Lsn::ZERO);
    });
    // The canceller, which is still there, keeps no log open.
    drop(wal);
    assert_eq!(small().open(&path).unwrap().records().unwrap().into_iter().count(), 1);
    canceller.cancel();
}

#[test]
fn a_tail_is_a_stream_of_owned_records() {
    use futures_core::Stream;
    use std::pin::Pin;

    let (wal, store) = log_and_store();
    wal.commit(b"x").unwrap();
    let mut tail = wal.tail().unwrap();
    let mut next = |waker: &Waker| {
        <Tail as Stream>::poll_next(Pin::new(&mut tail), &mut Context::from_waker(waker))
    };
    let Poll::Ready(Some(Ok(record))) = next(Waker::noop()) else { panic!("a record is durable") };
    assert_eq!(record.data(), b"x");
    assert!(next(Waker::noop()).is_pending());
    store.set(SYNC, Effect::Eio);
    wal.commit(b"y").unwrap_err();
    let Poll::Ready(Some(Err(error))) = next(Waker::noop()) else { panic!("the log is poisoned") };
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(matches!(next(Waker::noop()), Poll::Ready(None)), "a stream ends after an error");
}

/// A lack of space is the error of those who wait for a sync. A tail waits on.
#[test]
fn a_polled_tail_does_not_get_the_lack_of_space_of_another_task() {
    let (_folder, _, wal) = log_on_files(small().spare_segments(0).max_bytes(4 * FILE_BYTES));
    let mut committed = 0;
    while wal.commit(&[7; 1024]).is_ok() {
        committed += 1;
    }
    let mut tail = wal.tail().unwrap();
    let waker = Waker::noop();
    for _ in 0..committed {
        assert!(poll(&mut tail, waker).unwrap().is_some());
    }
    assert_pending(&mut tail, waker);
    let error = block_on(wal.barrier()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_pending(&mut tail, waker);
    wal.truncate_before(wal.durable_lsn()).unwrap();
    wal.sync().unwrap();
    assert!(poll(&mut tail, waker).unwrap().is_some());
}

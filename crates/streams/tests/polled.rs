//! Tails and consumers that tasks poll: what wakes them, and how they end.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures_core::Stream as Futures;
use palisade::{ErrorKind, MemStore, Result};
use palisade_streams::{Consumer, Entry, Options, Stream, Streams, Tail, TailAll};

fn open_with(log: palisade::Options) -> Streams {
    let log = log.segment_bytes(64 << 10).buffer_bytes(64 << 10);
    let options = Options::new().log(log).background(false);
    options.with_store(MemStore::new(64 << 10)).unwrap()
}

fn open() -> Streams {
    open_with(palisade::Options::new())
}

/// Unparks the thread that waits for a future, and counts the calls.
struct Bell {
    thread: Thread,
    rung: AtomicUsize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn bell() -> Arc<Bell> {
    Arc::new(Bell { thread: thread::current(), rung: AtomicUsize::new(0) })
}

fn rung(bell: &Bell) -> usize {
    bell.rung.load(Ordering::SeqCst)
}

/// Waits until the bell has rung more often than that.
fn hear(bell: &Bell, more_than: usize) {
    let begun = Instant::now();
    while rung(bell) <= more_than {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody wakes the task");
        thread::park_timeout(Duration::from_secs(1));
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(bell());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// Polls once. Returns the entry's bytes, or `None` if there is none yet.
fn poll(tail: &mut Tail, waker: &Waker) -> Result<Option<Vec<u8>>> {
    match tail.poll_next(&mut Context::from_waker(waker)) {
        Poll::Pending => Ok(None),
        Poll::Ready(found) => found.map(|entry| Some(entry.into_data())),
    }
}

async fn next<T: Futures + Unpin>(of: &mut T) -> Option<T::Item> {
    poll_fn(|context| Futures::poll_next(Pin::new(&mut *of), context)).await
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_task_is_woken_by_its_stream_and_the_sync_and_asks_for_none() {
    let streams = open();
    let (stream, other) = (streams.create("s").unwrap(), streams.create("other").unwrap());
    let mut tail = stream.tail(0).unwrap();
    let bell = bell();
    let waker = Waker::from(Arc::clone(&bell));
    assert_eq!(poll(&mut tail, &waker).unwrap(), None);
    // A sync that makes nothing of the stream durable does not wake it.
    other.commit("elsewhere").unwrap();
    assert_eq!(rung(&bell), 0);
    stream.append("hello").unwrap();
    assert_eq!(rung(&bell), 1);
    assert_eq!(poll(&mut tail, &waker).unwrap(), None);
    assert!(!stream.append("more").unwrap().is_durable(), "the poll asked for no sync");
    streams.sync().unwrap();
    hear(&bell, 1);
    assert_eq!(poll(&mut tail, &waker).unwrap().unwrap(), b"hello");
    assert_eq!(poll(&mut tail, &waker).unwrap().unwrap(), b"more");
    assert_eq!((poll(&mut tail, &waker).unwrap(), tail.position()), (None, 2));
}

#[test]
fn tasks_see_each_entry_once_beside_committers() {
    const ENTRIES: u64 = 300;
    let streams = open();
    let stream = streams.create("s").unwrap();
    let (mut tail, mut all) = (stream.tail(0).unwrap(), streams.tail_all().unwrap());
    let mut consumer = stream.consumer("c").unwrap();
    let check = |n: u64, index, data: &[u8]| assert_eq!((n, data), (index, &n.to_le_bytes()[..]));
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..ENTRIES {
                assert_eq!(stream.commit(n.to_le_bytes()).unwrap(), n);
            }
        });
        scope.spawn(|| {
            for n in 0..ENTRIES {
                let entry = block_on(next(&mut tail)).unwrap().unwrap();
                check(n, entry.index(), entry.data());
            }
        });
        scope.spawn(|| {
            for n in 0..ENTRIES {
                let (name, entry) = block_on(next(&mut all)).unwrap().unwrap();
                check(n, entry.index(), entry.data());
                assert_eq!(name, b"s");
            }
        });
        for n in 0..ENTRIES {
            let entry = block_on(next(&mut consumer)).unwrap().unwrap();
            check(n, entry.index(), entry.data());
            consumer.ack(entry.index()).unwrap();
        }
    });
    assert_eq!(consumer.lag().unwrap(), 0);
}

/// Lets a task wait at the end of the stream while `act` runs. Returns how the wait ends.
fn end(act: impl FnOnce(&Streams, &Stream)) -> ErrorKind {
    let streams = open();
    let stream = streams.create("s").unwrap();
    stream.commit("first").unwrap();
    let mut tail = stream.tail(0).unwrap();
    let bell = bell();
    let waker = Waker::from(Arc::clone(&bell));
    assert_eq!(poll(&mut tail, &waker).unwrap().unwrap(), b"first");
    assert_eq!(poll(&mut tail, &waker).unwrap(), None);
    act(&streams, &stream);
    // Woken by `act` itself, or by a thread of the log that it has ended.
    hear(&bell, 0);
    let ended = kind(poll(&mut tail, &waker));
    assert_eq!(kind(poll(&mut tail, &waker)), ended, "it stays so");
    ended
}

#[test]
fn the_end_of_the_log_and_changes_of_the_stream_reach_a_task() {
    assert_eq!(end(|streams, _| streams.close().unwrap()), ErrorKind::Closed);
    let killed = end(|streams, _| streams.log().clone().abandon());
    assert!(matches!(killed, ErrorKind::Closed | ErrorKind::Poisoned), "{killed:?}");
    assert_eq!(end(|streams, _| drop(streams.delete("s").unwrap())), ErrorKind::NotFound);
    let replaced = end(|_, stream| drop(stream.truncate_from(0).unwrap()));
    assert_eq!(replaced, ErrorKind::Truncated);
}

#[test]
fn a_close_lets_a_task_have_the_entries_before_it() {
    let streams = open();
    let stream = streams.create("s").unwrap();
    let mut tail = stream.tail(0).unwrap();
    let bell = bell();
    let waker = Waker::from(Arc::clone(&bell));
    assert_eq!(poll(&mut tail, &waker).unwrap(), None);
    stream.append("last").unwrap();
    streams.close().unwrap();
    assert_eq!(poll(&mut tail, &waker).unwrap().unwrap(), b"last");
    assert_eq!(kind(poll(&mut tail, &waker)), ErrorKind::Closed);
}

#[test]
fn an_entry_replaced_before_it_is_durable_is_not_returned() {
    let streams = open();
    let stream = streams.create("s").unwrap();
    let mut tail = stream.tail(0).unwrap();
    stream.append("old").unwrap();
    assert_eq!(poll(&mut tail, Waker::noop()).unwrap(), None);
    stream.truncate_from(0).unwrap();
    stream.commit("new").unwrap();
    assert_eq!(poll(&mut tail, Waker::noop()).unwrap().unwrap(), b"new");
}

/// As the test above, for a thread. It passes whether the thread waits already or not.
#[test]
fn an_entry_replaced_while_a_thread_waits_is_not_returned() {
    for _ in 0..20 {
        let streams = open();
        let stream = streams.create("s").unwrap();
        let mut tail = stream.tail(0).unwrap();
        stream.append("old").unwrap();
        let begins = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                begins.wait();
                tail.next(Duration::from_secs(60)).unwrap().expect("it is durable").into_data()
            });
            begins.wait();
            (0..20).for_each(|_| thread::yield_now());
            stream.truncate_from(0).unwrap();
            stream.commit("new").unwrap();
            assert_eq!(waiter.join().unwrap(), b"new");
        });
    }
}

#[test]
fn a_waiting_task_counts_once_and_a_dropped_one_no_more() {
    let streams = open_with(palisade::Options::new().max_waiters(1));
    let stream = streams.create("s").unwrap();
    let (mut one, mut two) = (stream.tail(0).unwrap(), stream.tail(0).unwrap());
    assert_eq!(poll(&mut one, Waker::noop()).unwrap(), None);
    assert_eq!(kind(poll(&mut two, Waker::noop())), ErrorKind::TooManyWaiters);
    // It waits for the sync now, and not for the end of the log, too.
    stream.append("not durable").unwrap();
    assert_eq!(poll(&mut one, Waker::noop()).unwrap(), None);
    assert_eq!(kind(poll(&mut two, Waker::noop())), ErrorKind::TooManyWaiters);
    drop(one);
    assert_eq!(poll(&mut two, Waker::noop()).unwrap(), None);
}

/// A waker whose drop uses the stream, as foreign code may do.
struct Caller(Stream);

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.0.first_index().unwrap();
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.append("from the drop of a waker").unwrap();
    }
}

#[test]
fn wakers_may_use_the_stream() {
    // In a thread of its own: a lock that is held while a waker runs would stop it for ever.
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let streams = open();
        let stream = streams.create("s").unwrap();
        let mut tail = stream.tail(0).unwrap();
        for _ in 0..2 {
            // The second one replaces the first.
            let waker = Waker::from(Arc::new(Caller(stream.clone())));
            assert_eq!(poll(&mut tail, &waker).unwrap(), None);
        }
        drop(tail);
        stream.append("wakes nobody any more").unwrap();
        let mut tail = stream.tail(stream.next_index().unwrap()).unwrap();
        let waker = Waker::from(Arc::new(Caller(stream.clone())));
        assert_eq!(poll(&mut tail, &waker).unwrap(), None);
        stream.append("wakes").unwrap();
        drop(waker);
        drop(tail);
        // Refused after the stream has got the waker, so only the stream drops it.
        let crowded = open_with(palisade::Options::new().max_waiters(1));
        let other = crowded.create("s").unwrap();
        let (mut one, mut two) = (other.tail(0).unwrap(), other.tail(0).unwrap());
        assert_eq!(poll(&mut one, Waker::noop()).unwrap(), None);
        let waker = Waker::from(Arc::new(Caller(other.clone())));
        assert_eq!(kind(poll(&mut two, &waker)), ErrorKind::TooManyWaiters);
        drop(waker);
        drop(two);
        done.send((stream.len().unwrap(), other.len().unwrap())).unwrap();
    });
    // Two entries, and one for each waker that was dropped.
    assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok((5, 1)));
}

/// A waker that panics. The drop of its payload panics, too.
struct Panics;

struct Payload;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::panic_any(Payload);
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("the payload's drop panics");
    }
}

/// Returns what a change of a stream returns. Fails if the panic of a waker reaches the caller,
/// whose unwinding would drop the payload.
fn changed<R>(change: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(change)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        panic!("the panic of a waker reached the caller");
    })
}

#[test]
fn a_waker_that_panics_fails_no_change_and_keeps_no_task_asleep() {
    let streams = open();
    let (one, two) = (streams.create("one").unwrap(), streams.create("two").unwrap());
    let (bell, panics) = (bell(), Waker::from(Arc::new(Panics)));
    let rings = Waker::from(Arc::clone(&bell));
    // Eight of each kind: the order in which the tails of a stream are woken is random.
    let tail = |n: usize| [&one, &two][n % 2].tail(0).unwrap();
    let mut tails: Vec<Tail> = (0..32).map(tail).collect();
    let mut wait = || {
        for (n, tail) in tails.iter_mut().enumerate() {
            let waker = [&panics, &rings][n / 2 % 2];
            while poll(tail, waker).unwrap().is_some() {}
        }
    };
    wait();
    assert_eq!(changed(|| one.append("first").unwrap().index()), 0);
    assert_eq!(rung(&bell), 8);
    changed(|| one.truncate_from(0).map(drop)).unwrap();
    wait();
    let batch = streams.batch().append(&one, b"again").append(&two, b"in the same batch");
    assert_eq!(changed(|| batch.apply().unwrap().indexes().to_vec()), [0, 0]);
    assert_eq!(rung(&bell), 8 + 16);
    streams.sync().unwrap();
    wait();
    changed(|| streams.delete("one").map(drop)).unwrap();
    assert_eq!(rung(&bell), 8 + 16 + 8);
}

/// A waker that closes the log, and then reads what a tail finds.
struct Closes {
    streams: Streams,
    tail: Mutex<Tail>,
    found: mpsc::Sender<Result<Option<Vec<u8>>>>,
}

impl Wake for Closes {
    fn wake(self: Arc<Self>) {
        self.streams.close().unwrap();
        for _ in 0..2 {
            let next = self.tail.lock().unwrap().next(Duration::from_secs(60));
            self.found.send(next.map(|entry| entry.map(Entry::into_data))).unwrap();
        }
    }
}

#[test]
fn a_close_between_append_and_wake_up_of_tails_hides_no_entry() {
    let streams = open();
    let (one, two) = (streams.create("one").unwrap(), streams.create("two").unwrap());
    let (mut first, mut task) = (one.tail(0).unwrap(), two.tail(0).unwrap());
    let (found, was_found) = mpsc::channel();
    let tail = Mutex::new(two.tail(0).unwrap());
    let closes = Closes { streams: streams.clone(), tail, found };
    assert_eq!(poll(&mut first, &Waker::from(Arc::new(closes))).unwrap(), None);
    let bell = bell();
    assert_eq!(poll(&mut task, &Waker::from(Arc::clone(&bell))).unwrap(), None);
    // The tails of `one` are woken first, and those of `two` afterwards.
    streams.batch().append(&one, b"wakes").append(&two, b"last").apply().unwrap();
    assert_eq!(was_found.recv().unwrap().unwrap().unwrap(), b"last");
    assert_eq!(kind(was_found.recv().unwrap()), ErrorKind::Closed);
    hear(&bell, 0);
    assert_eq!(poll(&mut task, Waker::noop()).unwrap().unwrap(), b"last");
    assert_eq!(kind(poll(&mut task, Waker::noop())), ErrorKind::Closed);
}

/// A waker whose drop appends an entry and closes the log.
struct AppendsAndCloses(Stream);

impl Wake for AppendsAndCloses {
    fn wake(self: Arc<Self>) {}
}

impl Drop for AppendsAndCloses {
    fn drop(&mut self) {
        self.0.append("last").unwrap();
        self.0.streams().close().unwrap();
    }
}

#[test]
fn an_append_and_a_close_between_look_and_wait_hide_no_entry() {
    let streams = open_with(palisade::Options::new().max_waiters(1));
    let stream = streams.create("s").unwrap();
    let (mut one, mut two) = (stream.tail(0).unwrap(), stream.tail(0).unwrap());
    assert_eq!(poll(&mut one, Waker::noop()).unwrap(), None);
    // Refused after the stream has got the waker, so only the stream has it.
    let waker = Waker::from(Arc::new(AppendsAndCloses(stream.clone())));
    assert_eq!(kind(poll(&mut two, &waker)), ErrorKind::TooManyWaiters);
    drop((waker, one));
    // The next poll looks at the stream, and then drops that waker for its own.
    assert_eq!(poll(&mut two, Waker::noop()).unwrap().unwrap(), b"last");
    assert_eq!(kind(poll(&mut two, Waker::noop())), ErrorKind::Closed);
}

#[test]
fn streams_of_entries_end_after_an_error() {
    let streams = open();
    let stream = streams.create("s").unwrap();
    stream.commit("first").unwrap();
    let mut tail: Tail = stream.tail(0).unwrap();
    let mut all: TailAll = streams.tail_all().unwrap();
    let mut consumer: Consumer = stream.consumer("c").unwrap();
    assert_eq!(block_on(next(&mut tail)).unwrap().unwrap().data(), b"first");
    assert_eq!(block_on(next(&mut consumer)).unwrap().unwrap().data(), b"first");
    stream.truncate_from(0).unwrap();
    stream.commit("again").unwrap();
    assert_eq!(kind(block_on(next(&mut tail)).unwrap()), ErrorKind::Truncated);
    assert!(block_on(next(&mut tail)).is_none());
    assert_eq!(kind(block_on(next(&mut consumer)).unwrap()), ErrorKind::Truncated);
    assert!(block_on(next(&mut consumer)).is_none());
    consumer.seek(0).unwrap();
    assert_eq!(block_on(next(&mut consumer)).unwrap().unwrap().data(), b"again");
    assert_eq!(block_on(next(&mut all)).unwrap().unwrap().1.data(), b"again");
    streams.close().unwrap();
    assert_eq!(kind(block_on(next(&mut all)).unwrap()), ErrorKind::Closed);
    assert!(block_on(next(&mut all)).is_none());
    assert_eq!(kind(block_on(next(&mut consumer)).unwrap()), ErrorKind::Closed);
    assert!(block_on(next(&mut consumer)).is_none());
}

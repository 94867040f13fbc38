//! Code of the engine that panics on a thread of the log, or in the log's drop: the log goes on,
//! each of its ends ends it, and the same process can open it again.

use std::task::Wake;

use palisade::Result;

use crate::held_release::held;
use crate::prelude::*;

#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Abandon,
    Drop,
}

const ENDS: [End; 3] = [End::Close, End::Abandon, End::Drop];

fn end(wal: Wal, how: End) {
    match how {
        End::Close => wal.close().unwrap(),
        End::Abandon => wal.abandon(),
        End::Drop => drop(wal),
    }
}

struct PanicsWhenWoken(Sender<()>);

impl Wake for PanicsWhenWoken {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
        panic!("the waker panics");
    }
}

struct PanicsWhenDropped;

impl Wake for PanicsWhenDropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("the waker's drop panics");
    }
}

/// Says that it was woken, then waits.
struct Waits {
    woken: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        self.woken.send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: impl Wake + Send + Sync + 'static) {
    let waker = Waker::from(Arc::new(waker));
    assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
}

/// What a program gives the log to call, and makes panic.
type Misuse = fn(&Wal);

fn panics_in(call: impl FnOnce()) {
    catch_unwind(AssertUnwindSafe(call)).unwrap_err();
}

const MISUSES: [(&str, Misuse); 8] = [
    ("a waker that is woken", |wal| {
        let (sender, woken) = channel();
        poll(&mut wal.append(b"awaited").unwrap(), PanicsWhenWoken(sender.clone()));
        let mut ticket = wal.append(b"awaited").unwrap();
        poll(&mut ticket, PanicsWhenWoken(sender));
        woken.recv().unwrap();
        block_on(ticket).unwrap();
    }),
    ("a waker that is dropped", |wal| {
        let mut tail = wal.tail_from(wal.reserved_lsn()).unwrap();
        let waker = Waker::from(Arc::new(PanicsWhenDropped));
        assert!(tail.poll_next(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        drop(tail);
    }),
    ("a callback", |wal| {
        let lsn = wal.append(b"called back").unwrap().lsn();
        let (sender, called) = channel();
        wal.on_durable(lsn, |_| panic!("the callback panics")).unwrap();
        wal.on_durable(lsn, move |_| sender.send(()).unwrap()).unwrap();
        called.recv().unwrap();
    }),
    ("a callback for released segments", |wal| {
        let lsn = fill(wal);
        let error = wal.truncate_before(lsn).unwrap_err();
        assert!(error.to_string().contains("panicked") && !error.is_fatal(), "{error}");
        assert!(wal.truncate_before_in_background(lsn).unwrap().wait().is_err());
    }),
    ("a closure that writes a record", |wal| {
        panics_in(|| drop(wal.append_with(100, |_, _| panic!("the closure panics"))));
    }),
    ("an iterator of records", |wal| {
        let lsn = wal.commit(b"stays").unwrap();
        let records = || std::iter::repeat_with(|| -> Vec<u8> { panic!("the iterator panics") });
        panics_in(|| drop(wal.replace_from(lsn, records().take(2))));
        assert_eq!(wal.get(lsn).unwrap().data(), b"stays");
    }),
    ("a codec that encodes", |wal| {
        panics_in(|| drop(wal.commit(b"panic")));
        panics_in(|| drop(wal.append_batch([b"first", b"panic"])));
    }),
    ("a codec that decodes", |wal| {
        let lsn = wal.commit(b"decodes badly").unwrap();
        panics_in(|| drop(wal.get(lsn)));
    }),
];

/// Appends records until a segment is behind the last one. Returns where that one begins.
fn fill(wal: &Wal) -> Lsn {
    loop {
        let lsn = wal.commit(&[7; 1000]).unwrap();
        if lsn >= wal.head_lsn().plus(SEGMENT_BYTES) {
            return lsn;
        }
    }
}

#[derive(Debug)]
struct PanickingCallback;

impl OnRelease for PanickingCallback {
    fn released(&self, _: &ReleasedSegment<'_>) -> Result<()> {
        panic!("the callback for released segments panics")
    }
}

#[derive(Debug)]
struct PanickingCodec;

impl Codec for PanickingCodec {
    fn name(&self) -> &str {
        "test-panicking"
    }

    fn encode(&self, _: u16, data: &[u8], into: &mut Vec<u8>) -> Result<()> {
        assert!(data != b"panic", "the codec panics");
        into.extend_from_slice(data);
        into.push(1);
        Ok(())
    }

    fn decode(&self, _: u16, stored: &[u8], into: &mut [u8]) -> Result<usize> {
        assert!(!stored.starts_with(b"decodes badly"), "the codec panics");
        let data = &stored[..stored.len() - 1];
        into[..data.len()].copy_from_slice(data);
        Ok(data.len())
    }
}

fn options() -> Options {
    Options::new()
        .segment_bytes(SEGMENT_BYTES)
        .buffer_bytes(1 << 14)
        .on_release(PanickingCallback)
        .soft_limit(SEGMENT_BYTES, |_| panic!("the callback for the soft limit panics"))
}

#[test]
fn code_of_the_engine_that_panics_keeps_the_log_from_nothing() {
    watch();
    for (what, misuse) in MISUSES {
        for how in ENDS {
            let has_codec = what.starts_with("a codec");
            let with = |options: Options| match has_codec {
                true => options.codec(PanickingCodec),
                false => options,
            };
            let store = MemStore::new(SEGMENT_BYTES);
            let wal = Wal::with_store(store.clone(), with(options())).unwrap();
            misuse(&wal);
            let lsn = wal.commit(b"goes on").unwrap();
            end(wal, how);
            let wal = Wal::with_store(store, with(options())).unwrap();
            assert_eq!(wal.get(lsn).unwrap().data(), b"goes on", "{what}, {how:?}");
        }
    }
}

/// The thread that releases is in a waker when the log ends, so a release is left in the queue.
#[test]
fn a_waker_of_a_queued_release_that_panics_lets_the_log_end() {
    for how in ENDS {
        let (callback, results, begins) = held();
        let (_dir, path, wal) = log_on_files(small().on_release(callback));
        let lsn = fill(&wal);
        let mut first = wal.truncate_before_in_background(lsn).unwrap();
        begins.recv().unwrap();
        let mut queued = wal.truncate_before_in_background(lsn).unwrap();
        let ((woken, was_woken), (go, go_on)) = (channel(), channel());
        let (panics, panicked) = channel();
        poll(&mut first, Waits { woken, go_on: Mutex::new(go_on) });
        poll(&mut queued, PanicsWhenWoken(panics));
        results.send(Ok(())).unwrap();
        was_woken.recv().unwrap();
        thread::scope(|scope| {
            let ended = scope.spawn(|| end(wal, how));
            // The last handle ends the log on the thread that releases.
            if matches!(how, End::Drop) {
                ended.join().unwrap();
                go.send(()).unwrap();
                panicked.recv().unwrap();
            } else {
                panicked.recv().unwrap();
                go.send(()).unwrap();
                ended.join().unwrap();
            }
        });
        assert!(queued.wait().is_err());
        drop((first, queued));
        // The thread that releases drops its handle at last.
        let again = || small().open(&path);
        until(|| !again().is_err_and(|error| error.kind() == ErrorKind::Locked));
        assert_eq!(again().unwrap().head_lsn(), lsn, "{how:?}");
    }
}

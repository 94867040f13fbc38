//! The least that futures need: one that blocks on a future, one that runs several tasks.

use std::pin::{Pin, pin};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls `future` on this thread, which parks in between.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

/// Polls `future` once, with a waker that wakes nobody.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

type Body = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    body: Mutex<Option<Body>>,
    ready: Sender<Arc<Task>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let ready = self.ready.clone();
        // The executor may have ended: then nobody waits for the task.
        let _ = ready.send(self);
    }
}

/// Runs `bodies` on this thread until all have ended. A task is polled only when it was woken.
pub(crate) fn run_all(bodies: Vec<Body>) {
    let (ready, queue): (Sender<Arc<Task>>, Receiver<Arc<Task>>) = channel();
    let mut left = bodies.len();
    for body in bodies {
        let task = Task { body: Mutex::new(Some(body)), ready: ready.clone() };
        ready.send(Arc::new(task)).unwrap();
    }
    while left > 0 {
        let task = queue.recv().unwrap();
        let waker = Waker::from(Arc::clone(&task));
        let mut body = task.body.lock().unwrap();
        let polled = body.as_mut().map(|body| body.as_mut().poll(&mut Context::from_waker(&waker)));
        if polled.is_some_and(|polled| polled.is_ready()) {
            *body = None;
            left -= 1;
        }
    }
}

/// Notes how often it was woken.
#[derive(Default)]
pub(crate) struct Count(pub(crate) Mutex<usize>);

impl Count {
    pub(crate) fn woken(&self) -> usize {
        *self.0.lock().unwrap()
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

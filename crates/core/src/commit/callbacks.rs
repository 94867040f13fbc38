//! The callback thread: runs the callbacks of `on_durable` one at a time, in LSN order.
//!
//! Callbacks have a thread of their own, so that a callback may wait for the log in any way: the
//! flusher continues meanwhile. The first callback starts the thread. The thread ends with `close`
//! or the last handle, when its queue is empty.
//!
//! # Ordering pairs
//! The queue's lock orders a callback before the thread's look. P10: the word changes after that.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::Commit;
use super::async_waiters::Callback;
use super::background::BackgroundThread;
use super::flusher::survive;
use crate::Result;
use crate::sync::{Mutex, WaitWord};

pub(super) struct CallbackThread {
    queue: Mutex<Queue>,
    word: WaitWord,
    thread: BackgroundThread,
}

#[derive(Default)]
struct Queue {
    due: VecDeque<(Callback, Result<()>)>,
    must_stop: bool,
}

impl CallbackThread {
    pub(super) fn new() -> CallbackThread {
        let thread = BackgroundThread::new("palisade-callbacks");
        CallbackThread { queue: Mutex::default(), word: WaitWord::default(), thread }
    }

    /// How many callbacks are due and have not begun.
    pub(super) fn len(&self) -> usize {
        self.queue.lock().due.len()
    }
}

impl fmt::Debug for CallbackThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackThread").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Commit {
    /// Starts the callback thread if it does not run.
    pub(crate) fn start_callback_thread(self: &Arc<Self>) -> Result<()> {
        self.callbacks.thread.start(|| {
            let log = Arc::clone(self);
            move || log.run_callbacks()
        })
    }

    /// Lets the thread run `callback` with `result`.
    pub(super) fn run_soon(&self, callback: Callback, result: Result<()>) {
        self.callbacks.queue.lock().due.push_back((callback, result));
        self.callbacks.word.wake_all();
    }

    pub(super) fn stop_callback_thread(&self) {
        self.callbacks.queue.lock().must_stop = true;
        self.callbacks.word.wake_all();
        self.callbacks.thread.join();
    }

    fn run_callbacks(&self) {
        // If a callback forks the process, the child runs this thread, too.
        while self.check_process().is_ok() {
            let seen = self.callbacks.word.look();
            let (next, must_stop) = {
                let mut queue = self.callbacks.queue.lock();
                (queue.due.pop_front(), queue.must_stop)
            };
            match next {
                Some((callback, result)) => drop(survive(|| callback(result))),
                None if must_stop => return,
                None => self.callbacks.word.sleep(seen, None),
            }
        }
    }
}

//! Workers: threads that run jobs one at a time, in the order in which they come.
//!
//! The callback thread runs the callbacks of `on_durable`, in LSN order, and of the soft limit. A
//! callback may wait for the log in any way: the flusher continues meanwhile. The release thread
//! frees segments for `truncate_before_in_background`, so that no callback waits for files. The
//! first job starts a worker. `close` or the last handle ends it when its queue is empty. The
//! release thread's queue is emptied before that: a callback may wait for a release that has not
//! begun.
//!
//! # Ordering pairs
//! The queue's lock orders a job before the thread's look. P10: the word changes after that.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use palisade_store::sync::{Mutex, WaitWord, survive};

use super::Commit;
use super::async_waiters::Callback;
use super::background::BackgroundThread;
use crate::Result;

pub(crate) struct Worker {
    queue: Mutex<JobQueue>,
    word: WaitWord,
    thread: BackgroundThread,
}

#[derive(Default)]
struct JobQueue {
    due: VecDeque<(Callback, Result<()>)>,
    must_stop: bool,
}

/// Which worker of a log.
pub(crate) type WhichWorker = fn(&Commit) -> &Worker;

impl Worker {
    pub(super) fn new(name: &'static str) -> Worker {
        let thread = BackgroundThread::new(name);
        Worker { queue: Mutex::default(), word: WaitWord::default(), thread }
    }

    /// Returns how many jobs are due and have not begun.
    pub(super) fn len(&self) -> usize {
        self.queue.lock().due.len()
    }

    /// Lets the thread call `job` with `result`.
    pub(super) fn run_soon(&self, job: Callback, result: Result<()>) {
        self.queue.lock().due.push_back((job, result));
        self.word.wake_all();
    }

    /// Drops the jobs that have not begun, and lets the thread end.
    pub(super) fn refuse(&self) {
        let dropped = {
            let mut queue = self.queue.lock();
            queue.must_stop = true;
            std::mem::take(&mut queue.due)
        };
        // A job is foreign code: outside of the lock.
        drop(dropped);
    }

    /// Ends the thread when its queue is empty, and waits for it, unless it is the caller.
    pub(super) fn stop(&self) {
        self.queue.lock().must_stop = true;
        self.word.wake_all();
        self.thread.join();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Commit {
    /// Starts the worker if it does not run.
    pub(crate) fn start_worker(self: &Arc<Self>, which: WhichWorker) -> Result<()> {
        which(self).thread.start(|| {
            let log = Arc::clone(self);
            move || log.run_worker(which)
        })
    }

    /// Lets the release thread run `job`. If the thread is to end, drops the job.
    pub(crate) fn release_soon(self: &Arc<Self>, job: Callback) -> Result<()> {
        self.start_worker(|log| &log.releases)?;
        let refused = {
            let mut queue = self.releases.queue.lock();
            if queue.must_stop {
                // It may find its queue empty, and nobody would take the job out.
                Some(job)
            } else {
                queue.due.push_back((job, Ok(())));
                None
            }
        };
        drop(refused);
        self.releases.word.wake_all();
        Ok(())
    }

    fn run_worker(&self, which: WhichWorker) {
        let worker = which(self);
        // If a job forks the process, the child runs this thread, too.
        while self.check_process().is_ok() {
            let seen = worker.word.look();
            let (next, must_stop) = {
                let mut queue = worker.queue.lock();
                (queue.due.pop_front(), queue.must_stop)
            };
            match next {
                Some((job, result)) => drop(survive(|| job(result))),
                None if must_stop => return,
                None => worker.word.sleep(seen, None),
            }
        }
    }
}

//! The threads of a log, each started at most once. Workers run jobs one at a time, in order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use palisade_store::sync::{JoinHandle, Mutex, WaitWord, is_current, spawn, survive};

use super::Commit;
use super::async_waiters::Callback;
use crate::{Error, Result};

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

pub(crate) type WhichWorker = fn(&Commit) -> &Worker;

impl Worker {
    pub(super) fn new(name: &'static str) -> Worker {
        let thread = BackgroundThread::new(name);
        Worker { queue: Mutex::default(), word: WaitWord::default(), thread }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.lock().due.len()
    }

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
    pub(crate) fn start_worker(self: &Arc<Self>, which: WhichWorker) -> Result<()> {
        which(self).thread.start(|| {
            let log = Arc::clone(self);
            move || log.run_worker(which)
        })
    }

    /// Lets the release thread run `job`, or drops it if that thread is to end.
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

#[derive(Debug)]
pub(super) struct BackgroundThread {
    name: &'static str,
    state: Mutex<ThreadState>,
}

#[derive(Debug)]
enum ThreadState {
    NotStarted,
    Running(JoinHandle),
    Joined,
}

impl BackgroundThread {
    pub(super) fn new(name: &'static str) -> BackgroundThread {
        BackgroundThread { name, state: Mutex::new(ThreadState::NotStarted) }
    }

    /// Starts the thread, unless it was started before.
    pub(super) fn start<B: FnOnce() + Send + 'static>(
        &self,
        make: impl FnOnce() -> B,
    ) -> Result<()> {
        let mut state = self.state.lock();
        if let ThreadState::NotStarted = *state {
            let handle = spawn(self.name, make())
                .map_err(|source| Error::io("start a background thread", source))?;
            *state = ThreadState::Running(handle);
        }
        Ok(())
    }

    /// Waits for the thread's end, unless it is the caller. It does not start again.
    pub(super) fn join(&self) {
        // A statement of its own: the lock is free during the join, because the thread may ask for
        // itself to be started.
        let state = std::mem::replace(&mut *self.state.lock(), ThreadState::Joined);
        if let ThreadState::Running(handle) = state
            && !is_current(&handle)
        {
            // Its panic hook has reported a panic of the thread.
            let _ = handle.join();
        }
    }
}

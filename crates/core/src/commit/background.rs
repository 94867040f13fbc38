//! A background thread of the log, started at most once.

use palisade_store::sync::{JoinHandle, Mutex, is_current, spawn};

use crate::{Error, Result};

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

    /// Starts the thread with the body that `make` makes. Does nothing if it was started before.
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

//! The log's one background thread: leads where only wakers wait, runs callbacks, keeps the
//! interval policy, and writes complete pieces behind the appenders.
//!
//! It is started by the first future, callback or complete piece, or at open under `Interval`,
//! and ends with the last handle. Threads never need it: one that finds no room writes itself,
//! one that waits leads itself.
//!
//! # Ordering pairs
//! - P6: the mailbox's lock orders a request before the thread's look at it; `unpark` after the
//!   request makes a look follow. The thread takes all requests before it parks, so one that
//!   arrives between look and park finds the token set and the park returns at once.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crate::commit::{Callback, Commit, Waiter};
use crate::sync::{Instant, JoinHandle, Mutex, Parker, is_current, park, park_until, spawn};
use crate::{Error, Result};

/// How long the thread leads before it looks into its mailbox again.
const LEAD_SLICE: Duration = Duration::from_millis(20);

/// The mailbox of the background thread, and its handle once it runs.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    mailbox: Mutex<Mailbox>,
    thread: Mutex<Option<JoinHandle>>,
}

#[derive(Default)]
struct Mailbox {
    parker: Option<Parker>,
    lead: bool,
    write: bool,
    stop: bool,
    // The thread has taken its last look: callbacks run where they are due.
    ended: bool,
    callbacks: VecDeque<(Callback, Result<()>)>,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox")
            .field("lead", &self.lead)
            .field("write", &self.write)
            .field("stop", &self.stop)
            .field("callbacks", &self.callbacks.len())
            .finish_non_exhaustive()
    }
}

impl Flusher {
    /// Hands leadership to the thread. The caller holds it or has just claimed it.
    pub(crate) fn lead_soon(&self) {
        let mut mailbox = self.mailbox.lock();
        mailbox.lead = true;
        mailbox.wake();
    }

    /// Lets the thread hand what is filled to the store; false if it has not come to the last
    /// such request yet.
    #[must_use]
    pub(crate) fn write_soon(&self) -> bool {
        let mut mailbox = self.mailbox.lock();
        let is_behind = std::mem::replace(&mut mailbox.write, true);
        mailbox.wake();
        !is_behind
    }

    /// Lets the thread run `callback` with `result`; runs it here if the thread has ended.
    pub(crate) fn run_soon(&self, callback: Callback, result: Result<()>) {
        let mut mailbox = self.mailbox.lock();
        if mailbox.ended {
            drop(mailbox);
            callback(result);
            return;
        }
        mailbox.callbacks.push_back((callback, result));
        mailbox.wake();
    }

    /// Takes the callbacks out of `taken` and lets the thread run them with `result`, in their
    /// order; leaves them where the thread has ended. Runs none itself: the caller holds a lock.
    pub(crate) fn take_callbacks(&self, taken: &mut Vec<Waiter>, result: &Result<()>) {
        if !taken.iter().any(|waiter| matches!(waiter, Waiter::Callback(_))) {
            return;
        }
        let mut mailbox = self.mailbox.lock();
        if mailbox.ended {
            return;
        }
        let callbacks = taken.extract_if(.., |waiter| matches!(waiter, Waiter::Callback(_)));
        mailbox.callbacks.extend(callbacks.filter_map(|waiter| match waiter {
            Waiter::Callback(callback) => Some((callback, result.clone())),
            _ => None,
        }));
        mailbox.wake();
    }

    /// Starts the thread if it does not run.
    pub(crate) fn ensure_started(commit: &Arc<Commit>, interval: Option<Duration>) -> Result<()> {
        commit.check_process()?;
        let mut thread = commit.flusher.thread.lock();
        if thread.is_none() {
            let log = Arc::clone(commit);
            let handle = spawn("palisade-flusher", move || run(&log, interval))
                .map_err(|source| Error::io("start the flusher thread", source))?;
            *thread = Some(handle);
        }
        Ok(())
    }

    /// Ends the thread after it has run the callbacks that are due, and waits for it unless it
    /// is the caller.
    pub(crate) fn stop(&self) {
        {
            let mut mailbox = self.mailbox.lock();
            mailbox.stop = true;
            mailbox.wake();
        }
        // A statement of its own: the lock is free during the join, because a callback that the
        // thread still runs may ask for the thread to be started.
        let thread = self.thread.lock().take();
        if let Some(handle) = thread
            && !is_current(&handle)
        {
            // A panic of the thread has been reported by its panic hook.
            let _ = handle.join();
        }
    }
}

impl Mailbox {
    fn wake(&self) {
        if let Some(parker) = &self.parker {
            parker.unpark();
        }
    }
}

fn run(commit: &Commit, interval: Option<Duration>) {
    commit.flusher.mailbox.lock().parker = Some(Parker::current());
    let mut due = interval.map(|interval| Instant::now() + interval);
    // A callback that forks leaves this thread in the child, too.
    while commit.check_process().is_ok() {
        let (lead, write, callbacks) = {
            let mut mailbox = commit.flusher.mailbox.lock();
            let callbacks = std::mem::take(&mut mailbox.callbacks);
            let lead = std::mem::take(&mut mailbox.lead);
            if !lead && callbacks.is_empty() && mailbox.stop {
                mailbox.ended = true;
                return;
            }
            (lead, std::mem::take(&mut mailbox.write), callbacks)
        };
        let idle = !lead && !write && callbacks.is_empty();
        if write {
            // A failure has poisoned the log or, on a full disk, shows to whoever needs the room.
            survive(|| drop(commit.write_filled()));
        }
        run_callbacks(callbacks);
        if lead {
            survive(|| commit.lead_for_guests(Instant::now() + LEAD_SLICE));
        }
        if let (Some(at), Some(interval)) = (due, interval)
            && Instant::now() >= at
        {
            due = Some(Instant::now() + interval);
            survive(|| sync_what_is_old(commit));
        } else if idle {
            due.map_or_else(park, park_until);
        }
    }
}

/// The interval policy: whatever was appended before this call becomes durable. A failure
/// poisons the log or, on a full disk, comes again with the next interval.
fn sync_what_is_old(commit: &Commit) {
    let reserved = commit.buffer.reserved();
    if commit.durable.read() < reserved {
        drop(commit.wait(reserved, Some(Instant::now() + LEAD_SLICE)));
    }
}

fn run_callbacks(callbacks: VecDeque<(Callback, Result<()>)>) {
    for (callback, result) in callbacks {
        survive(|| callback(result));
    }
}

/// Runs foreign code, whose panic must not end the thread that others need: a callback's is its
/// owner's, a store's has poisoned the log, and this thread has callbacks to tell so.
fn survive(run: impl FnOnce()) {
    let _ = std::panic::catch_unwind(AssertUnwindSafe(run));
}

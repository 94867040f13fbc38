//! The flusher: a background thread that wakes async waiters, leads for those that need a sync,
//! keeps the interval policy, and writes complete pieces.
//!
//! The first future, callback or complete piece starts it, and under `Interval` the open. It ends
//! with `close`, `abandon` or the last handle. No thread needs it: appenders make room themselves,
//! and threads that wait for a sync lead.
//!
//! # Protocol
//! The flusher repeats these steps:
//! 1. Read the word of its wait group.
//! 2. Take all requests. After WRITE, write all filled records to the store.
//! 3. Serve the async waiters whose target is durable. If some are left that only watch, register
//!    their lowest target as a thread does, then look at *durable* again.
//! 4. If the interval is over and everything is durable, begin the next interval. Else if others
//!    are left, or the interval is over, register as a thread does: the lowest target of the
//!    others, else the end of the last reservation. If that is not durable and leadership is free,
//!    lead, and begin the next interval.
//! 5. After STOP, serve once more, refuse new async waiters, give `Closed` to those that are left,
//!    and end.
//! 6. If the target of 3 or 4 was durable, or 4 led or began the next interval, go to 1: there may
//!    be more to do. Else sleep until the word differs from that of 1, or until the end of the
//!    interval if that is yet to come, then go to 1. If the interval is over, the leader wakes the
//!    flusher when it frees leadership.
//!
//! # Ordering pairs
//! - P6: a request is a bit. A thread registers its async waiter under the lock of the async
//!   waiters, then sets the bit (Relaxed). The flusher takes the bits (Relaxed) at 2, then locks
//!   the async waiters at 3. If the bit was set already, the flusher has yet to come to 2, so its
//!   next lock at 3 comes after that of the thread. If the bit was not set, the thread changes the
//!   word of the wait group, so the flusher comes to 2 again before it sleeps (P10).
//!
//! # Checked by
//! `the_flusher_leads_where_no_thread_does`, `a_waker_is_woken_or_sees_completion`,
//! `poison_reaches_a_future`, `a_callback_runs_once`.

use std::sync::Arc;
use std::time::Duration;

use palisade_store::sync::{AtomicU32, Instant, Ordering, survive};

use super::async_waiters::{Due, Left, Wait};
use super::threads::BackgroundThread;
use super::wait_group::WaitGroup;
use super::{Commit, is_over};
use crate::{Error, ErrorKind, Lsn, Result};

/// How long the flusher leads before it looks at its requests again.
const LEAD_SLICE: Duration = Duration::from_millis(20);
pub(crate) const MIN_INTERVAL: Duration = Duration::from_micros(100);
/// The longest wait after a failed attempt of the interval policy.
const RETRY: Duration = Duration::from_millis(20);

/// Async waiters have come.
const SERVE: u32 = 1;
/// A piece is complete.
const WRITE: u32 = 2;
/// The log ends.
const STOP: u32 = 4;

const ALL: &[Wait] = &[Wait::ForSync, Wait::Watch];

#[derive(Debug)]
pub(super) struct Flusher {
    requests: AtomicU32,
    pub(super) group: WaitGroup,
    thread: BackgroundThread,
}

impl Flusher {
    pub(super) fn new() -> Flusher {
        let thread = BackgroundThread::new("palisade-flusher");
        Flusher { requests: AtomicU32::new(0), group: WaitGroup::new(), thread }
    }

    pub(super) fn ask_to_serve(&self) {
        self.ask(SERVE);
    }

    fn ask(&self, request: u32) -> bool {
        // Relaxed: the lock of the async waiters orders the registration [P6].
        let is_new = self.requests.fetch_or(request, Ordering::Relaxed) & request == 0;
        if is_new {
            self.group.wake_all();
        }
        is_new
    }

    fn take_requests(&self) -> u32 {
        // Relaxed: as in `ask`.
        self.requests.swap(0, Ordering::Relaxed)
    }
}

struct Timer {
    interval: Duration,
    next: Instant,
}

impl Timer {
    fn new(interval: Duration) -> Timer {
        let interval = interval.max(MIN_INTERVAL);
        Timer { interval, next: Instant::now() + interval }
    }

    fn restart(&mut self, has_synced: bool) {
        let wait = if has_synced { self.interval } else { self.interval.min(RETRY) };
        self.next = Instant::now() + wait;
    }
}

impl Commit {
    pub(crate) fn start_flusher(self: &Arc<Self>, interval: Option<Duration>) -> Result<()> {
        self.flusher.thread.start(|| {
            let log = Arc::clone(self);
            move || log.run_flusher(interval)
        })
    }

    /// Asks the flusher to write all filled records. Returns false if it has yet to take an earlier
    /// request.
    #[must_use]
    pub(crate) fn write_soon(&self) -> bool {
        self.flusher.ask(WRITE)
    }

    /// Ends the flusher and the workers, and waits for those that are not the caller. Due callbacks
    /// still run; releases that have not begun do not.
    pub(crate) fn stop_background_threads(&self) {
        self.flusher.ask(STOP);
        self.flusher.thread.join();
        // If the flusher was never started, no thread has done this yet.
        self.async_waiters.close();
        let closed = Error::bare(ErrorKind::Closed);
        self.fail_async_waiters(ALL, &closed, &mut Due::default());
        // Before `callbacks.stop`: a callback may wait for a release that has not begun.
        self.releases.refuse();
        self.callbacks.stop();
        self.releases.stop();
    }

    fn run_flusher(&self, interval: Option<Duration>) {
        let mut timer = interval.map(Timer::new);
        let mut due = Due::default();
        // If a waker forks the process, the child runs this thread, too.
        while self.check_process().is_ok() {
            let seen = self.flusher.group.look();
            let requests = self.flusher.take_requests();
            if requests & WRITE != 0 {
                // The flusher reports no error. After a failed write the log is poisoned. If the
                // disk is full, the threads that need room get the error when they write.
                let _ = survive(|| drop(self.write_filled()));
            }
            let left = self.serve(&mut due);
            let must_stop = requests & STOP != 0;
            let is_due = timer.as_ref().is_some_and(|timer| is_over(Some(timer.next)));
            let mut may_have_more = left.watching.is_some_and(|target| self.watch(target));
            if is_due && self.is_all_durable() {
                timer.iter_mut().for_each(|timer| timer.restart(true));
                may_have_more = true;
            } else if let Some(target) =
                left.waiting.or_else(|| is_due.then(|| self.buffer.reserved()))
            {
                may_have_more |= self.lead_as_flusher(target, &mut due, &mut timer);
            }
            if must_stop {
                self.serve(&mut due);
                self.async_waiters.close();
                self.fail_async_waiters(ALL, &Error::bare(ErrorKind::Closed), &mut due);
                return;
            }
            if !may_have_more {
                // With a target registered, a leader that leaves wakes this thread.
                let deadline = timer.as_ref().filter(|_| !is_due).map(|timer| timer.next);
                self.flusher.group.sleep(seen, deadline);
            }
        }
    }

    fn is_all_durable(&self) -> bool {
        self.durable.read() >= self.buffer.reserved()
    }

    /// Registers a target of a tail. Returns whether it is durable.
    fn watch(&self, target: Lsn) -> bool {
        self.flusher.group.register(target);
        self.durable.read() >= target
    }

    /// Leads if leadership is free. Returns whether there may be more to do.
    fn lead_as_flusher(&self, target: Lsn, due: &mut Due, timer: &mut Option<Timer>) -> bool {
        self.flusher.group.register(target);
        if self.check().is_err() {
            // `serve` has failed the async waiters, or will after the wake-up that follows poison.
            *timer = None;
            return false;
        }
        if self.durable.read() >= target {
            return true;
        }
        if !self.leadership.try_take() {
            return false;
        }
        let led = survive(|| self.lead(target, Some(Instant::now() + LEAD_SLICE), true));
        if let Some(Err(error)) = &led {
            // A lack of space is not an error of a tail. If the log is poisoned, `serve` fails all.
            self.fail_async_waiters(&[Wait::ForSync], error, due);
        }
        timer.iter_mut().for_each(|timer| timer.restart(matches!(led, Some(Ok(true)))));
        true
    }

    /// Wakes the async waiters whose target is durable, or all if the log is poisoned.
    fn serve(&self, due: &mut Due) -> Left {
        let left = self.async_waiters.take_due(self.durable.read(), due);
        self.queue_callbacks(due, &Ok(()));
        wake(due);
        match self.check() {
            Ok(()) => left,
            Err(error) => {
                self.fail_async_waiters(ALL, &error, due);
                Left::default()
            }
        }
    }

    /// Gives `error` to the async waiters that `of` names, and `Ok` to all whose target is durable.
    fn fail_async_waiters(&self, of: &[Wait], error: &Error, due: &mut Due) {
        let mut failed = Due::default();
        self.async_waiters.take_all(of, &self.durable, error, due, &mut failed);
        self.queue_callbacks(due, &Ok(()));
        self.queue_callbacks(&mut failed, &Err(error.clone()));
        wake(due);
        wake(&mut failed);
    }

    /// Gives callbacks to their thread, before any waker runs: a waker may drop the last handle,
    /// which ends that thread.
    fn queue_callbacks(&self, due: &mut Due, result: &Result<()>) {
        due.callbacks
            .drain(..)
            .for_each(|callback| self.callbacks.run_soon(callback, result.clone()));
    }
}

fn wake(due: &mut Due) {
    for waker in due.wakers.drain(..) {
        let _ = survive(|| waker.wake());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_failed_attempt_of_the_interval_policy_is_repeated_soon() {
        let mut timer = Timer::new(HOUR);
        timer.restart(false);
        assert!(timer.next <= Instant::now() + RETRY);
        timer.restart(true);
        assert!(timer.next > Instant::now() + HOUR / 2);
    }

    #[test]
    fn an_interval_has_a_least_length() {
        assert_eq!(Timer::new(Duration::from_nanos(1)).interval, MIN_INTERVAL);
    }
}

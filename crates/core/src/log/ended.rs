//! The end of the log, as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Wal;
use crate::commit::{Key, Wait};
use crate::{Error, ErrorKind, Lsn};

/// No record ends here, so only the end of the log ends a wait for it.
const NEVER_DURABLE: Lsn = Lsn::new(u64::MAX);

impl Wal {
    /// Returns a future that completes when the log is closed or poisoned, with the error that
    /// later calls return. For a task that waits for something else than a record.
    ///
    /// The future keeps the log open.
    pub fn ended(&self) -> Ended {
        Ended { wal: self.clone(), key: None }
    }
}

/// Completes with `Closed`, `Poisoned` or `Forked` when no more records become durable in this
/// process. Completes with `TooManyWaiters` or `Io` if it cannot wait: see `Tail::poll_next`.
///
/// A sync of the log does not wake the task. A waiting task counts towards `Options::max_waiters`.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Ended {
    wal: Wal,
    key: Option<Key>,
}

impl Future for Ended {
    type Output = Error;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Error> {
        let Ended { wal, key } = self.get_mut();
        let log = wal.commit_state();
        if let Err(error) = log.check_goes_on(NEVER_DURABLE).and_then(|()| wal.ensure_flusher()) {
            return Poll::Ready(error);
        }
        let waited = log.poll_wait(Wait::Watch, NEVER_DURABLE, key, context);
        waited.map(|ended| ended.err().unwrap_or(Error::bare(ErrorKind::Closed)))
    }
}

/// Cancels the wait of a task that has polled.
impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.wal.commit_state().cancel_wait(Wait::Watch, key);
        }
    }
}

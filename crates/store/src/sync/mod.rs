//! The only module through which this crate and the stores use atomics, locks, wait words and
//! threads.
//!
//! Other modules share data between threads only through it (tests aside), so that the model
//! checker (`--cfg loom`) sees every access. Real builds use std, futexes and mmap. The module is
//! hidden from the documentation, and is no part of the interface.

#[cfg(loom)]
mod model;
mod process;
#[cfg(not(loom))]
mod real;
mod wait_word;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use crossbeam_utils::CachePadded;
#[cfg(loom)]
pub use model::*;
pub use process::ProcessMark;
#[cfg(not(loom))]
pub use real::*;
pub use wait_word::WaitWord;

/// Calls `run`, and returns `None` if it panics. A panic of a waker, a callback or a store must not
/// end the thread that others need. The panic hook has reported it.
pub fn survive<R>(run: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Some(result),
        Err(payload) => {
            // Its drop may panic, too.
            std::mem::forget(payload);
            None
        }
    }
}

/// Yields the core 16 times, then sleeps, each time twice as long, up to half a millisecond.
///
/// For events that send no wake-up, such as an append that fills its hole. Polling puts the cost on
/// the thread that waits, and not on the append.
#[derive(Debug, Default)]
pub struct Backoff {
    rounds: u32,
}

impl Backoff {
    const YIELDS: u32 = 16;
    const LONGEST_US: u64 = 500;

    /// Gives up the core or sleeps, at most half a millisecond.
    pub fn wait(&mut self) {
        if self.rounds < Self::YIELDS {
            yield_now();
        } else {
            let doublings = (self.rounds - Self::YIELDS).min(6);
            sleep(std::time::Duration::from_micros((10 << doublings).min(Self::LONGEST_US)));
        }
        self.rounds = self.rounds.saturating_add(1);
    }
}

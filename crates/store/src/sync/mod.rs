//! The only module through which the crates use atomics, locks, wait words and threads (tests
//! aside), so that the model checker (`--cfg loom`) sees every access.

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

/// Calls `run`, and returns `None` if it panics: a panic of foreign code must not end a thread that
/// others need.
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

/// Yields the core 16 times, then sleeps, each time twice as long, up to half a millisecond. For
/// events without a wake-up, such as an append that fills its hole.
#[derive(Debug, Default)]
pub struct Backoff {
    rounds: u32,
}

impl Backoff {
    const YIELDS: u32 = 16;
    const LONGEST_US: u64 = 500;

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

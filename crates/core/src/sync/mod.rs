//! The one door to atomics, cells, locks, wait words and threads, of this crate and the stores.
//!
//! Nothing else in these crates names them, so that the model checker (`--cfg loom`) sees every
//! access, and a reader finds every primitive here. Real builds use std. It is no part of the
//! interface.

#[cfg(loom)]
mod model;
mod process;
#[cfg(not(loom))]
mod real;
mod wait_word;

#[cfg(loom)]
pub use model::*;
#[cfg(not(loom))]
pub use real::*;

pub use process::ProcessMark;

pub use crossbeam_utils::CachePadded;
pub use wait_word::WaitWord;

/// Waits a little longer each time: first by giving up the core, then by sleeping.
///
/// For waits whose end no other thread announces (the hole of an append in progress): bounded
/// polling keeps the cost on the waiting side and off the append path.
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

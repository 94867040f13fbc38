//! Bytes that threads were allowed to append below the limit of the log, and may not have appended
//! yet. Threads that append at the same time count for each other: else each of them would find the
//! same room.

use palisade_store::sync::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Granted(AtomicU64);

impl Granted {
    pub(crate) fn new() -> Granted {
        Granted(AtomicU64::new(0))
    }

    /// Counts `bytes` that the caller will append, until it drops what is returned: it does so when
    /// it has counted the records. `has_room` says whether there is room if others append so many
    /// bytes first. Returns `None`, and counts nothing, if there is none.
    pub(crate) fn take(&self, bytes: u64, has_room: impl Fn(u64) -> bool) -> Option<Taken<'_>> {
        // Acquire, with the Release in `drop`: if the bytes of another thread are not counted any
        // more, this thread sees the end of the log behind them.
        let mut others = self.0.load(Ordering::Acquire);
        while has_room(others) {
            match self.0.compare_exchange_weak(
                others,
                others + bytes,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    let taken = Taken { granted: self, bytes };
                    // Again: another thread may have appended since the first look, and the sum may
                    // be the same. A thread that looks from now on counts these bytes.
                    return has_room(others).then_some(taken);
                }
                Err(now) => others = now,
            }
        }
        None
    }

    /// Returns what a log without a limit grants.
    pub(crate) fn none(&self) -> Taken<'_> {
        Taken { granted: self, bytes: 0 }
    }
}

/// Bytes that were granted.
#[must_use]
#[derive(Debug)]
pub(crate) struct Taken<'g> {
    granted: &'g Granted,
    bytes: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // Release: with the AcqRel in `take`.
            self.granted.0.fetch_sub(self.bytes, Ordering::Release);
        }
    }
}

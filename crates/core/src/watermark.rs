//! Watermarks: monotonic exclusive ends, published by one thread at a time, read by all.
//!
//! # Words
//! *reserved* >= *filled* >= *written* >= *durable*, each a frame boundary. *reserved* is the
//! buffer's tail; the other three are [`Watermark`]s, as is the admission limit (`buffer::queue`).
//!
//! # States
//! | watermark | publisher | what a reader may do below it |
//! |---|---|---|
//! | filled | the holder of the write lock | nothing: it is a gauge for `stats` |
//! | written | the holder of the write lock | overwrite the ring one lap later; read the store |
//! | admission limit | who holds the lock of the queue for room | reserve in the log buffer |
//! | durable | the leader | report to a caller that its record survives power loss |
//!
//! # Ordering pairs
//! - P2: `publish` (Release) with `read` (Acquire). For *written* it orders the leader's reads of
//!   the ring before the next lap's copies over the same bytes. For *durable* it orders the end of
//!   the sync before what the caller does with its acknowledgement.
//!
//! # Checked by
//! `ring_wrap_never_overwrites_unwritten_bytes`, `durable_is_never_ahead_of_the_sync`.

use palisade_store::sync::{AtomicU64, CachePadded, Ordering};

use crate::Lsn;

/// On a cache line of its own.
#[derive(Debug)]
pub(crate) struct Watermark(CachePadded<AtomicU64>);

impl Watermark {
    pub(crate) fn new(at: Lsn) -> Watermark {
        Watermark(CachePadded::new(AtomicU64::new(at.as_u64())))
    }

    #[inline]
    pub(crate) fn read(&self) -> Lsn {
        // Acquire: pairs with the Release in `publish` [P2].
        Lsn::new(self.0.load(Ordering::Acquire))
    }

    /// Reads the value alone, without an order with other memory.
    #[inline]
    pub(crate) fn peek(&self) -> Lsn {
        // Relaxed: every value that was ever published stays true, however old.
        Lsn::new(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn publish(&self, to: Lsn) {
        debug_assert!(to >= self.peek(), "a watermark never falls");
        // Release: a thread that reads `to` sees all that was done below it; pairs with the Acquire
        // in `read` [P2].
        self.0.store(to.as_u64(), Ordering::Release);
    }
}

//! What a store finds of the log buffer of an earlier process run.

use std::fmt;

use crate::Lsn;

/// What an earlier process run left in the log buffer.
///
/// A buffer that is found was written since the operating system was started: it lies in memory.
pub enum OldBuffer {
    /// There is none: a new log, another boot, or a store without one.
    Missing,
    /// There is one that does not validate; the text says why. It counts as missing.
    Invalid(String),
    /// A valid one.
    Found {
        /// The epoch that the buffer belonged to.
        epoch: u64,
        /// The last durable watermark that was noted with `mark_durable`.
        durable: Lsn,
        /// Everything below was handed to the operating system with `write`.
        written: Lsn,
        /// A copy of the buffer's bytes: position `lsn % len`. Empty if the buffer was on the heap.
        ring: Vec<u8>,
    },
}

// By hand: the bytes of the ring help no reader.
impl fmt::Debug for OldBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OldBuffer::Missing => f.write_str("Missing"),
            OldBuffer::Invalid(text) => f.debug_tuple("Invalid").field(text).finish(),
            OldBuffer::Found { epoch, durable, written, ring } => f
                .debug_struct("Found")
                .field("epoch", epoch)
                .field("durable", durable)
                .field("written", written)
                .field("ring_bytes", &ring.len())
                .finish(),
        }
    }
}

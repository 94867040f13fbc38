//! What lies in the log byte by byte: LSNs, frames and their checksum.

pub mod frame;

/// Returns a length of log bytes as a length in memory. On a 32-bit target, where a segment may be
/// larger than the address space, this is the largest length rather than a part of the real one.
#[inline]
pub(crate) fn in_memory(log_bytes: u64) -> usize {
    usize::try_from(log_bytes).unwrap_or(usize::MAX)
}

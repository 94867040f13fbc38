//! Prefetch: hints to the processor that a cache line will be touched soon.
//!
//! Two cores pass the ring and the slots between them: the appender writes lines that the writer
//! has read, and the writer reads lines that the appender has written. Each such line costs about
//! 100 ns unless it is requested in time. Both threads know early enough what they will need
//! (`docs/decisions/0002-cost-of-an-append.md`). A hint changes no memory and no order. Under the
//! model checker there is none.

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Requests the line at `address`, which will be read or written soon. Any address is allowed.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline(always)]
#[expect(unsafe_code, reason = "the processor's hint has no safe form")]
pub fn will_touch(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint accesses nothing; the processor drops it where the address is not mapped.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// Does nothing: the language has no such hint here.
#[cfg(not(all(target_arch = "x86_64", not(loom))))]
pub fn will_touch(_address: *const u8) {}

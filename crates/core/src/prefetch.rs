//! Hints to the processor: a cache line will be read, or written, soon.
//!
//! Two cores pass the ring and the slots between them: the appender writes lines that the writer
//! has read, the writer reads lines that the appender has written. Each such line costs about
//! 100 ns unless it is asked for in time; both know early enough what they will need
//! (`docs/decisions/0009-cost-of-an-append.md`). A hint changes no memory and no order, so the
//! model checker need not see it.

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// The line at `address` will be read soon. Any address will do.
#[inline(always)]
pub(crate) fn will_read(address: *const u8) {
    hint(address, false);
}

/// The line at `address` will be written soon. Any address will do.
#[inline(always)]
pub(crate) fn will_write(address: *const u8) {
    hint(address, true);
}

#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline(always)]
#[expect(unsafe_code, reason = "the processor's hint has no safe form")]
fn hint(address: *const u8, write: bool) {
    use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
    let address = address.cast();
    if write {
        // SAFETY: a hint accesses nothing; the processor drops it where the address is not
        // mapped, and runs it as no operation where it does not know this form.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(address) };
    } else {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
}

#[cfg(not(all(target_arch = "x86_64", not(loom))))]
fn hint(_address: *const u8, _write: bool) {}

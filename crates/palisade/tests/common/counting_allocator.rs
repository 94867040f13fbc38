//! An allocator in place of the system's, which counts for each thread by itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

// Constant and without a destructor, so that using them allocates nothing.
thread_local! {
    /// Allocations of the thread; `None` where it does not count.
    pub(crate) static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
    /// The most bytes that the thread has asked for at once.
    pub(crate) static LARGEST: Cell<usize> = const { Cell::new(0) };
    /// Bytes that the thread has allocated, less those that it has freed.
    pub(crate) static KEPT: Cell<i64> = const { Cell::new(0) };
}

fn note(bytes: usize) {
    COUNT.with(|count| count.set(count.get().map(|count| count + 1)));
    LARGEST.with(|largest| largest.set(largest.get().max(bytes)));
    note_kept(bytes as i64);
}

fn note_kept(bytes: i64) {
    KEPT.with(|kept| kept.set(kept.get() + bytes));
}

#[expect(unsafe_code, reason = "an allocator can be put in no other way")]
// SAFETY:
// - Every call is handed to the system's allocator as it came, which keeps the contract.
// - `note` and `note_kept` neither allocate nor unwind: constant thread-local cells without a
//   destructor, and sums that cannot overflow.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        note_kept(-(layout.size() as i64));
        // SAFETY: `block` came from the system's allocator through this one, with `layout`.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note_kept(-(layout.size() as i64));
        // SAFETY: `block` came from the system's allocator through this one, with `layout`.
        unsafe { System.dealloc(block, layout) }
    }
}

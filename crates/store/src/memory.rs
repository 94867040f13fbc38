//! The memory of the log buffer: bytes on the heap or in a shared file mapping, with wrapping
//! offsets.
//!
//! Many threads write disjoint ranges while the leader reads others, as the core's `Buffer` allows.
//! Under the model checker every 8 bytes are a cell, so that an unordered copy and read fail.
//!
//! Hints to the processor request lines that another thread has written, which otherwise cost about
//! 100 ns each (`docs/decisions/0002-cost-of-an-append.md`). They change no memory and no order.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use memmap2::MmapRaw;

const HEAD_BYTES: usize = 24;

/// What a [`Memory`] lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The heap, which dies with the process.
    Heap,
    /// A shared file mapping, which outlives the process.
    Mapped,
}

/// The bytes of a log buffer, which clones share.
#[derive(Clone)]
pub struct Memory {
    bytes: bytes::Bytes,
    kind: MemoryKind,
}

impl Memory {
    /// Returns `len` zero bytes on the heap.
    ///
    /// # Errors
    /// The operating system has no memory.
    ///
    /// # Panics
    /// If `len` is neither a power of two nor 0.
    pub fn heap(len: usize) -> io::Result<Memory> {
        assert!(is_ring_len(len), "a ring's length is a power of two");
        Ok(Memory { bytes: bytes::Bytes::heap(len)?, kind: MemoryKind::Heap })
    }

    /// Returns `len` bytes of `map` from `offset` on; `None` if the mapping is shorter, or `len` is
    /// neither a power of two nor 0.
    ///
    /// # Safety
    /// As long as the mapping lives,
    /// - the bytes can be read and written: the file is as long as the mapping, and its file system
    ///   neither lacks space for them nor drops them (otherwise an access ends the process with
    ///   SIGBUS);
    /// - they are reached through this memory and its clones only.
    #[must_use]
    #[expect(unsafe_code, reason = "the caller knows what the file lies on, and who else has it")]
    pub unsafe fn mapped(map: MmapRaw, offset: usize, len: usize) -> Option<Memory> {
        if !is_ring_len(len) {
            return None;
        }
        let bytes = bytes::Bytes::mapped(Arc::new(map), offset, len)?;
        Some(Memory { bytes, kind: MemoryKind::Mapped })
    }

    #[doc(hidden)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[doc(hidden)]
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Copies `from` to the bytes from `position % len` on, wrapping at the end.
    ///
    /// # Safety
    /// - `from` is no longer than the memory.
    /// - No other thread reads or writes the range during the call.
    #[doc(hidden)]
    #[expect(unsafe_code, reason = "the ring's bytes have many owners, one per range")]
    pub unsafe fn write(&self, position: u64, from: &[u8]) {
        let (offset, before_end) = self.split(position, from.len());
        let (head, wrapped) = from.split_at(before_end);
        // SAFETY: `split` keeps `offset + before_end` within the memory; the caller owns it.
        unsafe { self.bytes.write(offset, head) };
        if !wrapped.is_empty() {
            // SAFETY: `wrapped` is shorter than the memory; the caller owns the range.
            unsafe { self.bytes.write(0, wrapped) };
        }
    }

    /// Copies a whole frame to the bytes from `position % len()` on: the little-endian words of
    /// `head`, then `body`, and zeros up to `len` bytes.
    ///
    /// # Safety
    /// - `len` is no more than the memory's length; `head` and `body` leave less than 8 bytes of
    ///   it.
    /// - No other thread reads or writes the `len` bytes during the call.
    #[doc(hidden)]
    #[inline]
    #[expect(unsafe_code, reason = "the ring's bytes have many owners, one per range")]
    pub unsafe fn place(&self, position: u64, head: [u64; 3], body: &[u8], len: usize) {
        let (offset, before_end) = self.split(position, len);
        if before_end == len {
            // SAFETY: the range does not wrap, so it lies in the memory; the caller owns it and
            // vouches for the length.
            unsafe { self.bytes.place(offset, head, body, len) };
            return;
        }
        for (index, word) in head.iter().enumerate() {
            // SAFETY: a part of the caller's range.
            unsafe { self.write(position + 8 * index as u64, &word.to_le_bytes()) };
        }
        let body_at = position + HEAD_BYTES as u64;
        // SAFETY: a part of the caller's range.
        unsafe { self.write(body_at, body) };
        let rest = len - HEAD_BYTES - body.len();
        // SAFETY: a part of the caller's range; frames are padded by less than 8 bytes.
        unsafe { self.write(body_at + body.len() as u64, &[0; 8][..rest]) };
    }

    /// Hints that the `len` bytes from `position % len()` on are written soon.
    #[doc(hidden)]
    #[inline]
    pub fn fetch_ahead(&self, position: u64, len: usize) {
        // Where the range wraps, this prefetches bytes above the memory's end, which does nothing.
        let (offset, _) = self.split(position, 0);
        for line in 0..len.div_ceil(LINE_BYTES) {
            self.bytes.fetch_ahead(offset.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Calls `read` with the `len` bytes from `position % len()` on, in two pieces if they wrap;
    /// otherwise the second is empty.
    ///
    /// # Safety
    /// - `len` is no more than the memory's length.
    /// - No thread writes the range during the call, and every earlier write to it happened before.
    #[doc(hidden)]
    #[expect(unsafe_code, reason = "the ring's bytes have many owners, one per range")]
    pub unsafe fn read<R>(
        &self,
        position: u64,
        len: usize,
        read: impl FnOnce(&[IoSlice<'_>; 2]) -> R,
    ) -> R {
        let (offset, before_end) = self.split(position, len);
        // SAFETY: `split` keeps the first piece within the memory, and the second, which begins
        // at 0, is shorter than it; the caller vouches that nobody writes them.
        unsafe { self.bytes.read([(offset, before_end), (0, len - before_end)], read) }
    }

    /// Calls `fill` with the `len` bytes from `position % len()` on, zeroed; returns `None` if they
    /// wrap.
    ///
    /// # Safety
    /// - `len` is no more than the memory's length.
    /// - No other thread reads or writes the range during the call.
    #[doc(hidden)]
    #[expect(unsafe_code, reason = "the ring's bytes have many owners, one per range")]
    pub unsafe fn fill<R>(
        &self,
        position: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let (offset, before_end) = self.split(position, len);
        if before_end < len {
            return None;
        }
        // SAFETY: `split` keeps the range within the memory; the caller owns it.
        unsafe { self.bytes.fill(offset, len, fill) }
    }

    fn split(&self, position: u64, len: usize) -> (usize, usize) {
        let ring_bytes = self.bytes.len();
        assert!(len <= ring_bytes, "a range is no longer than the memory");
        // The length is a power of two: a mask, where a division would cost as much as a copy.
        let offset = if ring_bytes == 0 { 0 } else { position as usize & (ring_bytes - 1) };
        (offset, len.min(ring_bytes - offset))
    }
}

fn is_ring_len(len: usize) -> bool {
    len == 0 || len.is_power_of_two()
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.len()).field("kind", &self.kind).finish()
    }
}

#[cfg(not(loom))]
mod bytes {
    #![expect(unsafe_code, reason = "raw bytes shared by threads that own disjoint ranges")]

    use std::io::{self, IoSlice};
    use std::ptr::NonNull;
    use std::sync::Arc;

    use memmap2::{MmapMut, MmapRaw};

    use super::HEAD_BYTES;

    #[derive(Clone)]
    pub(super) struct Bytes {
        // Cached: the append path must not chase the pointers of `_map`.
        base: NonNull<u8>,
        len: usize,
        // Owns the bytes that `base` points to.
        _map: Arc<MmapRaw>,
    }

    // SAFETY:
    // - `base` points into `_map`, which is shared by reference count and moves with it.
    // - Accesses are raw copies; their callers vouch for the absence of races.
    unsafe impl Send for Bytes {}
    // SAFETY: as for `Send`: a shared reference gives access only through `unsafe` calls.
    unsafe impl Sync for Bytes {}

    impl Bytes {
        pub(super) fn heap(len: usize) -> io::Result<Bytes> {
            let map = MmapMut::map_anon(len)?;
            let bytes = Bytes::mapped(Arc::new(map.into()), 0, len);
            Ok(bytes.expect("the mapping is as long as asked"))
        }

        pub(super) fn mapped(map: Arc<MmapRaw>, offset: usize, len: usize) -> Option<Bytes> {
            if offset.checked_add(len)? > map.len() {
                return None;
            }
            let base = NonNull::new(map.as_mut_ptr().wrapping_add(offset))?;
            Some(Bytes { base, len, _map: map })
        }

        pub(super) fn len(&self) -> usize {
            self.len
        }

        #[inline]
        pub(super) fn fetch_ahead(&self, offset: usize) {
            super::will_touch(self.at(offset));
        }

        fn at(&self, offset: usize) -> *mut u8 {
            self.base.as_ptr().wrapping_add(offset)
        }

        /// # Safety
        /// `[offset, offset + from.len())` lies in the memory and is the caller's alone.
        pub(super) unsafe fn write(&self, offset: usize, from: &[u8]) {
            // SAFETY:
            // - source: a live slice of `from.len()` bytes.
            // - destination: within the backing, which `self` keeps alive.
            // - no overlap: the range is the caller's alone, so `from` does not lie in it.
            // - no race: likewise.
            unsafe { self.at(offset).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        }

        /// As [`Memory::place`], without wrapping.
        ///
        /// # Safety
        /// `[offset, offset + len)` lies in the memory, is the caller's alone, and is no shorter
        /// than `head` and `body` together.
        #[inline]
        pub(super) unsafe fn place(&self, offset: usize, head: [u64; 3], body: &[u8], len: usize) {
            // SAFETY:
            // - non-null, aligned (u8), within one live allocation, initialised.
            // - exclusive: the caller vouches that nobody else touches the range.
            let range = unsafe { std::slice::from_raw_parts_mut(self.at(offset), len) };
            // The padding lies within the last word; the body then covers the rest of it.
            range[len - 8..].fill(0);
            let (to_head, to_body) = range.split_at_mut(HEAD_BYTES);
            to_head[..8].copy_from_slice(&head[0].to_le_bytes());
            to_head[8..16].copy_from_slice(&head[1].to_le_bytes());
            to_head[16..].copy_from_slice(&head[2].to_le_bytes());
            to_body[..body.len()].copy_from_slice(body);
        }

        /// # Safety
        /// Both pieces, (offset, length), lie in the memory, and nobody writes them meanwhile.
        pub(super) unsafe fn read<R>(
            &self,
            pieces: [(usize, usize); 2],
            read: impl FnOnce(&[IoSlice<'_>; 2]) -> R,
        ) -> R {
            let slice = |(offset, len): (usize, usize)| -> &[u8] {
                // SAFETY:
                // - non-null, aligned (u8), within one live allocation, initialised (zeroed at
                //   birth or part of a file).
                // - not written while the slice lives: the caller vouches.
                unsafe { std::slice::from_raw_parts(self.at(offset), len) }
            };
            read(&pieces.map(|piece| IoSlice::new(slice(piece))))
        }

        /// # Safety
        /// `[offset, offset + len)` lies in the memory and is the caller's alone.
        #[expect(clippy::unnecessary_wraps, reason = "the model checker's form can fail")]
        pub(super) unsafe fn fill<R>(
            &self,
            offset: usize,
            len: usize,
            fill: impl FnOnce(&mut [u8]) -> R,
        ) -> Option<R> {
            // SAFETY:
            // - non-null, aligned (u8), within one live allocation, initialised.
            // - exclusive: the caller vouches that nobody else touches the range.
            let slice = unsafe { std::slice::from_raw_parts_mut(self.at(offset), len) };
            slice.fill(0);
            Some(fill(slice))
        }
    }
}

#[cfg(loom)]
mod bytes {
    #![expect(unsafe_code, reason = "same contract as the real form, checked by the model")]

    use std::io::{self, IoSlice};
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use memmap2::MmapRaw;

    const WORD_BYTES: usize = 8;

    struct Words(Vec<UnsafeCell<[u8; WORD_BYTES]>>);

    // SAFETY: a shared reference gives access only through `unsafe` calls, each of which the
    // model checker watches.
    unsafe impl Sync for Words {}

    #[derive(Clone)]
    pub(super) struct Bytes {
        words: Arc<Words>,
    }

    impl Bytes {
        pub(super) fn heap(len: usize) -> io::Result<Bytes> {
            assert!(len.is_multiple_of(WORD_BYTES));
            let words = (0..len / WORD_BYTES).map(|_| UnsafeCell::new([0; WORD_BYTES]));
            Ok(Bytes { words: Arc::new(Words(words.collect())) })
        }

        pub(super) fn mapped(_: Arc<MmapRaw>, _: usize, _: usize) -> Option<Bytes> {
            None
        }

        pub(super) fn fetch_ahead(&self, _offset: usize) {}

        pub(super) fn len(&self) -> usize {
            self.words.0.len() * WORD_BYTES
        }

        pub(super) unsafe fn write(&self, offset: usize, from: &[u8]) {
            let mut done = 0;
            while done < from.len() {
                let (word, within) = ((offset + done) / WORD_BYTES, (offset + done) % WORD_BYTES);
                let n = (WORD_BYTES - within).min(from.len() - done);
                self.words.0[word].with_mut(|cell| {
                    // SAFETY: the model checker has just shown that the access is exclusive.
                    let cell = unsafe { &mut *cell };
                    cell[within..within + n].copy_from_slice(&from[done..done + n]);
                });
                done += n;
            }
        }

        pub(super) unsafe fn place(&self, offset: usize, head: [u64; 3], body: &[u8], len: usize) {
            let mut frame = head.map(u64::to_le_bytes).concat();
            frame.extend_from_slice(body);
            frame.resize(len, 0);
            // SAFETY: the caller's promise is the same as `write`'s.
            unsafe { self.write(offset, &frame) };
        }

        fn copy_out(&self, (offset, len): (usize, usize)) -> Vec<u8> {
            let mut out = Vec::with_capacity(len);
            for index in offset..offset + len {
                self.words.0[index / WORD_BYTES].with(|cell| {
                    // SAFETY: the model checker has just shown that nobody writes it.
                    let cell = unsafe { &*cell };
                    out.push(cell[index % WORD_BYTES]);
                });
            }
            out
        }

        pub(super) unsafe fn read<R>(
            &self,
            pieces: [(usize, usize); 2],
            read: impl FnOnce(&[IoSlice<'_>; 2]) -> R,
        ) -> R {
            let copies = pieces.map(|piece| self.copy_out(piece));
            read(&[IoSlice::new(&copies[0]), IoSlice::new(&copies[1])])
        }

        pub(super) unsafe fn fill<R>(
            &self,
            offset: usize,
            len: usize,
            fill: impl FnOnce(&mut [u8]) -> R,
        ) -> Option<R> {
            let mut scratch = vec![0; len];
            let result = fill(&mut scratch);
            // SAFETY: the caller's promise is the same as `write`'s.
            unsafe { self.write(offset, &scratch) };
            Some(result)
        }
    }
}

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Requests the line at any `address`, which is accessed soon.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline(always)]
#[expect(unsafe_code, reason = "the processor's hint has no safe form")]
pub fn will_touch(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint accesses nothing; the processor drops it where the address is not mapped.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// Does nothing.
#[cfg(not(all(target_arch = "x86_64", not(loom))))]
pub fn will_touch(_address: *const u8) {}

//! The stages of a reservation: claim, reserved range, published range.

use palisade_store::sync::Ordering;

use super::Buffer;
use crate::Lsn;
use crate::frame;

/// A range that this thread has reserved, whose bytes in the ring may still be unread.
///
/// Unless the log is poisoned, the owner must call [`occupy`](Claim::occupy), or the log has a
/// hole. Stores only the start, so that a `Result` of it fits in two registers.
#[derive(Debug)]
#[must_use = "a claim that is let go of leaves a hole"]
pub(crate) struct Claim {
    pub(super) at: u64,
}

impl Claim {
    #[inline]
    pub(crate) fn end(&self, bytes: u64) -> Lsn {
        Lsn::new(self.at + bytes)
    }

    /// Returns the range to write, or `None` if it ends above `limit`.
    #[inline(always)]
    pub(crate) fn occupy<'a>(
        &self,
        buffer: &'a Buffer,
        bytes: u64,
        limit: Lsn,
        durable: Lsn,
    ) -> Option<Reserved<'a>> {
        let end = self.end(bytes);
        if end > limit {
            return None;
        }
        let durable_lag = self.at.saturating_sub(durable.as_u64());
        Some(Reserved { buffer, at: self.at, end: end.as_u64(), durable_lag })
    }
}

/// A claim to the rest of a block.
#[derive(Debug)]
#[must_use = "a rest that is let go of leaves a hole"]
pub(crate) struct Rest {
    pub(crate) claim: Claim,
    pub(crate) bytes: u64,
}

/// A range that this thread may write until it publishes it. Its drop pads it.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    buffer: &'a Buffer,
    at: u64,
    end: u64,
    /// How far the durable watermark was below the range.
    pub(crate) durable_lag: u64,
}

impl Reserved<'_> {
    pub(crate) fn lsn(&self) -> Lsn {
        Lsn::new(self.at)
    }

    pub(crate) fn end(&self) -> Lsn {
        Lsn::new(self.end)
    }

    #[inline]
    #[expect(unsafe_code, reason = "the reservation is what makes the range exclusive")]
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.end - self.at);
        // SAFETY:
        // - length: a reservation is at most half the ring.
        // - exclusive: the range is in `[at, end)`, which one change of the tail (`fetch_add` or
        //   compare-exchange) gave to this claim alone; it is below `limit`, so the lap before has
        //   been read (P2); it is not published, so the holder of the write lock does not read it.
        unsafe { self.buffer.memory.write(self.at + offset, bytes) };
    }

    /// Copies a frame of `head` and `body`, padded with zeros to `len`.
    #[inline]
    #[expect(unsafe_code, reason = "the reservation is what makes the range exclusive")]
    pub(crate) fn place(
        &mut self,
        offset: u64,
        head: [u64; frame::HEADER_BYTES / 8],
        body: &[u8],
        len: u64,
    ) {
        let is_inside = offset + len <= self.end - self.at;
        assert!(is_inside && frame::framed_bytes(body.len()) == len);
        // SAFETY:
        // - length: asserted; a reservation is at most half the ring; a frame is padded to the
        //   next multiple of 8.
        // - exclusive: as in `write`.
        unsafe { self.buffer.memory.place(self.at + offset, head, body, len as usize) };
    }

    /// Calls `fill` with `len` zeroed bytes, or returns `None` if they wrap around the ring.
    #[expect(unsafe_code, reason = "the reservation is what makes the range exclusive")]
    pub(crate) fn fill<R>(
        &mut self,
        offset: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        assert!(offset + len as u64 <= self.end - self.at);
        // SAFETY: as in `write`; `&mut self` keeps this thread from a second access.
        unsafe { self.buffer.memory.fill(self.at + offset, len, fill) }
    }

    /// Makes the range readable for the holder of the write lock.
    #[inline]
    pub(crate) fn publish(self) {
        self.set_slot();
        std::mem::forget(self);
    }

    /// Publishes padding, one frame per segment that the range touches.
    pub(crate) fn pad(mut self) {
        self.write_padding();
        self.publish();
    }

    fn set_slot(&self) {
        // Release: publishes the bytes copied above; pairs with the Acquire in
        // `Buffer::published_end` [P1].
        self.buffer.slot(self.at).store(self.end, Ordering::Release);
    }

    fn write_padding(&mut self) {
        let segment_bytes = self.buffer.segment_bytes;
        let mut from = self.at;
        while from < self.end {
            let to = self.end.min((from / segment_bytes + 1) * segment_bytes);
            // A lag counts back from the start of its own frame. With the lag of the first frame, a
            // later one would claim that more is durable than is.
            let offset = from - self.at;
            let lag = self.durable_lag + offset;
            let (head, used) = frame::padding(self.buffer.seed(), Lsn::new(from), to - from, lag);
            self.write(offset, &head[..used]);
            from = to;
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.buffer.process.is_own() {
            // This is a forked child. The thread that owns the range publishes it in the parent.
            return;
        }
        self.write_padding();
        self.set_slot();
    }
}

//! The log buffer that an earlier process run left.
//!
//! The buffer holds the last frames of that run. Some of them never reached the segments.

use crate::Lsn;
use crate::format::in_memory;
use crate::frame::{ALIGN_BYTES, EpochSeed, HEADER_BYTES, Header, Kind};
use crate::reader::headless_bytes;

/// Bytes of the buffer that a search reads at a time.
const WINDOW_BYTES: usize = 64 << 10;

/// The old log buffer of the newest epoch, a ring.
#[derive(Debug)]
pub(crate) struct OldLogBuffer {
    ring: Vec<u8>,
    segment_bytes: u64,
    scratch: Vec<u8>,
    /// Counts the bytes that were asked for.
    #[cfg(test)]
    pub(super) asked: u64,
}

impl OldLogBuffer {
    pub(crate) fn new(ring: Vec<u8>, segment_bytes: u64) -> OldLogBuffer {
        OldLogBuffer {
            ring,
            segment_bytes,
            scratch: Vec::new(),
            #[cfg(test)]
            asked: 0,
        }
    }

    pub(crate) fn ring_bytes(&self) -> u64 {
        self.ring.len() as u64
    }

    /// Returns the header of a whole frame at `at`, if the ring still holds one. Padding has no
    /// payload checksum, so its header alone makes it whole.
    pub(crate) fn whole_frame(&mut self, at: Lsn, seed: EpochSeed) -> Option<Header> {
        if self.ring.is_empty() {
            return None;
        }
        let room = self.room(at);
        let header = Header::decode(self.bytes(at, HEADER_BYTES), seed, at, room)?;
        if header.kind == Kind::Padding {
            return Some(header);
        }
        let payload_at = at.plus(HEADER_BYTES as u64);
        let payload = self.bytes(payload_at, header.payload_bytes as usize);
        header.matches(payload).then_some(header)
    }

    /// Returns the first whole frame above `at` that is not a member of a batch.
    ///
    /// The search ends one ring length above `at`, because the ring holds no frame above that. If a
    /// header validates but its frame is not whole or is a member, the search continues at the end
    /// of that frame, as in [`FrameReader::find`](crate::reader::FrameReader::find).
    pub(crate) fn find_after(&mut self, at: Lsn, seed: EpochSeed) -> Option<(Lsn, Header)> {
        let end = at.plus(self.ring_bytes());
        let longest = WINDOW_BYTES.min(self.ring.len().saturating_sub(HEADER_BYTES));
        let mut window = Vec::new();
        let mut from = at.plus(ALIGN_BYTES);
        while from < end && longest > 0 {
            let len = longest.min(in_memory(end.bytes_since(from)));
            window.clear();
            window.extend_from_slice(self.bytes(from, len + HEADER_BYTES));
            let mut offset = 0;
            while let Some((next, header)) = self.header_within(
                &window[offset.min(window.len())..],
                from.plus(offset as u64),
                seed,
            ) {
                let here = from.plus((offset + next) as u64);
                if !header.is_member() && self.whole_frame(here, seed).is_some() {
                    return Some((here, header));
                }
                offset += next.saturating_add(in_memory(header.frame_bytes));
            }
            from = from.plus(len.max(offset) as u64);
        }
        None
    }

    /// Returns the first header that validates in `window`, with its offset. `from` is the LSN of
    /// the window's first byte. No header begins in the window's last bytes: they only complete a
    /// header that begins before them.
    fn header_within(&self, window: &[u8], from: Lsn, seed: EpochSeed) -> Option<(usize, Header)> {
        let len = window.len().checked_sub(HEADER_BYTES)?;
        let mut offset = 0;
        while offset < len {
            let room = self.room(from.plus(offset as u64));
            offset += headless_bytes(&window[offset..], room).min(len - offset);
            let here = from.plus(offset as u64);
            let bytes = &window[offset..];
            let header =
                Header::decode(bytes, seed, here, self.room(here)).filter(|_| offset < len);
            if let Some(header) = header.filter(|header| header.fits_at(here)) {
                return Some((offset, header));
            }
            offset += ALIGN_BYTES as usize;
        }
        None
    }

    /// Returns the greatest length that a frame at `at` can have.
    fn room(&self, at: Lsn) -> u64 {
        let room = self.segment_bytes - at.as_u64() % self.segment_bytes;
        room.min(self.ring_bytes())
    }

    /// Returns the `len` bytes at `at`, or the whole ring if `len` is greater.
    pub(crate) fn bytes(&mut self, at: Lsn, len: usize) -> &[u8] {
        let len = len.min(self.ring.len());
        #[cfg(test)]
        {
            self.asked += len as u64;
        }
        let offset = in_memory(at.as_u64() % self.ring_bytes().max(1));
        let end = offset + len;
        if end <= self.ring.len() {
            return &self.ring[offset..end];
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.ring[offset..]);
        self.scratch.extend_from_slice(&self.ring[..end - self.ring.len()]);
        &self.scratch
    }
}

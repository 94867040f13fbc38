//! The log buffer that an earlier life left behind: frames that never reached the segments.

use crate::frame::{EpochSeed, HEADER_BYTES, Header, Kind};
use crate::{Lsn, Memory};

/// The old buffer of the newest epoch.
#[derive(Debug)]
pub(crate) struct OldRing {
    memory: Memory,
    segment_bytes: u64,
    scratch: Vec<u8>,
}

impl OldRing {
    pub(crate) fn new(memory: Memory, segment_bytes: u64) -> OldRing {
        OldRing { memory, segment_bytes, scratch: Vec::new() }
    }

    pub(crate) fn ring_bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// The header of a whole frame at `at`, if the ring still holds one.
    pub(crate) fn frame(&mut self, at: Lsn, seed: EpochSeed) -> Option<Header> {
        if self.memory.is_empty() {
            return None;
        }
        let room = self.segment_bytes - at.as_u64() % self.segment_bytes;
        let room = room.min(self.ring_bytes());
        let header = Header::decode(self.bytes(at, HEADER_BYTES), seed, at, room)?;
        if header.kind == Kind::Padding {
            return Some(header);
        }
        let payload_at = at.plus(HEADER_BYTES as u64);
        let payload = self.bytes(payload_at, header.payload_bytes as usize);
        header.matches(payload).then_some(header)
    }

    /// The first whole frame above `at` that is not a member of a batch.
    ///
    /// The bytes that were never written to a segment lie within one lap of `at`.
    pub(crate) fn find_after(&mut self, at: Lsn, seed: EpochSeed) -> Option<(Lsn, Header)> {
        let end = at.plus(self.ring_bytes());
        let mut candidate = at.plus(8);
        while candidate < end {
            if let Some(header) = self.frame(candidate, seed)
                && !header.is_member
            {
                return Some((candidate, header));
            }
            candidate = candidate.plus(8);
        }
        None
    }

    /// The `len` bytes at `at`, copied into a scratch buffer.
    #[expect(unsafe_code, reason = "reads the shared bytes of a buffer that nobody uses")]
    pub(crate) fn bytes(&mut self, at: Lsn, len: usize) -> &[u8] {
        self.scratch.clear();
        let len = len.min(self.memory.len());
        let scratch = &mut self.scratch;
        // SAFETY:
        // - length: cut to the memory's above.
        // - no writer: the store hands an old buffer out to one recovery, before any thread has
        //   a buffer to append to; it came into being with the process or before it.
        unsafe {
            self.memory.read(at.as_u64(), len, |pieces| {
                pieces.iter().for_each(|piece| scratch.extend_from_slice(piece));
            });
        }
        &self.scratch
    }
}

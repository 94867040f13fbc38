//! The log buffer that an earlier process run left.
//!
//! The buffer holds the last frames of that run. Some of them never reached the segments.

use std::sync::Arc;

use palisade_store::{ReadStore, Segment, State};

use crate::format::in_memory;
use crate::frame::{ALIGN_BYTES, EpochSeed, Header};
use crate::reader::FrameReader;
use crate::{Error, ErrorKind, Lsn, Result};

/// The old log buffer of the newest epoch, a ring. A reader of frames reads it as it reads
/// segments.
#[derive(Debug)]
pub(crate) struct OldLogBuffer {
    pub(super) reader: FrameReader,
    pub(super) ring_bytes: u64,
    pub(super) segment_bytes: u64,
    /// The durable watermark of the process run that left the buffer.
    pub(super) durable: Lsn,
    /// Everything below this LSN was written to the segments. The hole of a killed thread is above.
    pub(super) written: Lsn,
}

/// The bytes of the ring, as a store of which only `read` is called.
#[derive(Debug)]
struct Ring(Vec<u8>);

impl ReadStore for Ring {
    fn state(&self) -> Result<State> {
        Err(Error::bare(ErrorKind::NotFound))
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        Ok(Vec::new())
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let Some(from) = at.as_u64().checked_rem(self.0.len() as u64) else { return Ok(0) };
        let bytes = &self.0[in_memory(from)..];
        let len = bytes.len().min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn place(&self) -> String {
        "the log buffer".into()
    }
}

impl OldLogBuffer {
    pub(super) fn new(
        ring: Vec<u8>,
        (durable, written): (Lsn, Lsn),
        segment_bytes: u64,
        read_ahead_bytes: usize,
    ) -> OldLogBuffer {
        let ring_bytes = ring.len() as u64;
        let reader = FrameReader::new(Arc::new(Ring(ring)), segment_bytes, read_ahead_bytes);
        OldLogBuffer { reader, ring_bytes, segment_bytes, durable, written }
    }

    /// Returns the header of a whole frame at `at`, if the ring still holds one.
    pub(super) fn whole_frame(&mut self, at: Lsn, seed: EpochSeed) -> Result<Option<Header>> {
        let found = self.reader.frame(at, seed)?;
        Ok(found.filter(|header| header.frame_bytes <= self.ring_bytes))
    }

    /// Returns where the first whole frame above `at` begins that is not a member of a batch.
    ///
    /// The search ends one ring length above `at`, because the ring holds no frame above that.
    pub(super) fn find_after(&mut self, at: Lsn, seed: EpochSeed) -> Result<Option<Lsn>> {
        let end = at.plus(self.ring_bytes);
        let mut from = at.plus(ALIGN_BYTES);
        while from < end {
            let segment_end = from.segment_start(self.segment_bytes).plus(self.segment_bytes);
            from = match self.reader.find(from, segment_end.min(end), &[seed])? {
                Some((found, header)) if header.frame_bytes <= self.ring_bytes => {
                    return Ok(Some(found));
                }
                Some((found, header)) => found.plus(header.frame_bytes),
                None => segment_end,
            };
        }
        Ok(None)
    }
}

//! A walk over the frames of a log, which reads around blocks that the medium cannot read.

use std::sync::Arc;

use super::PIECE_BYTES;
use crate::format::in_memory;
use crate::frame::{HEADER_BYTES, Header, Kind};
use crate::reader::{EpochSpan, FrameReader, Payload};
use crate::store::ReadStore;
use crate::{ErrorKind, Lsn, Result};

const READ_AHEAD_BYTES: usize = 1 << 20;

/// Reads frames in sequence.
#[derive(Debug)]
pub(super) struct Walk {
    reader: FrameReader,
    segment_bytes: u64,
    /// Read-ahead has met a bad block: up to here, a read covers only one frame.
    careful_to: Option<Lsn>,
}

impl Walk {
    pub(super) fn new(store: &Arc<dyn ReadStore>, segment_bytes: u64) -> Walk {
        let reader = FrameReader::new(Arc::clone(store), segment_bytes, READ_AHEAD_BYTES);
        Walk { reader, segment_bytes, careful_to: None }
    }

    /// Returns the whole frame at `at`, within its epoch, and the number of its records. Returns
    /// `None` if there is none, or if it cannot be read.
    pub(super) fn frame(&mut self, at: Lsn, span: &EpochSpan) -> Result<Option<(Header, u64)>> {
        if self.careful_to.take_if(|end| at >= *end).is_some() {
            self.reader.read_ahead(READ_AHEAD_BYTES);
        }
        let found = match self.reader.frame_with_payload(at, span.seed, Payload::Verify) {
            Err(error) if error.kind() == ErrorKind::Io => self.read_carefully(at, span)?,
            found => found?,
        };
        let Some(header) = found.filter(|header| at.plus(header.frame_bytes) <= span.end) else {
            return Ok(None);
        };
        header.check_known(at)?;
        let records = self.reader.records_in(at, &header, span.seed)?;
        Ok(Some((header, records)))
    }

    /// Reads a whole frame without read-ahead.
    fn read_carefully(&mut self, at: Lsn, span: &EpochSpan) -> Result<Option<Header>> {
        let segment_end = at.segment_start(self.segment_bytes).plus(self.segment_bytes);
        self.careful_to = Some(segment_end);
        self.reader.read_ahead(HEADER_BYTES);
        match self.reader.frame_with_payload(at, span.seed, Payload::Verify) {
            Err(error) if error.kind() == ErrorKind::Io => Ok(None),
            found => found,
        }
    }

    /// Returns the bytes of the frame that was just found; of a padding, its header.
    pub(super) fn bytes(&mut self, at: Lsn, header: &Header) -> Result<&[u8]> {
        let len = match header.kind {
            Kind::Padding => in_memory(header.frame_bytes).min(HEADER_BYTES),
            _ => HEADER_BYTES + header.payload_bytes as usize,
        };
        self.reader.raw(at, len)
    }

    /// Copies `[from, to)` as far as it can be read.
    pub(super) fn copy_raw(
        &mut self,
        from: Lsn,
        to: Lsn,
        write: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut at = from;
        while at < to {
            let len = to.bytes_since(at).min(PIECE_BYTES as u64) as usize;
            match self.reader.raw(at, len) {
                Ok(bytes) => write(at, bytes)?,
                Err(error) if error.kind() == ErrorKind::Io => {}
                Err(error) => return Err(error),
            }
            at = at.plus(len as u64);
        }
        Ok(())
    }
}

//! A walk over the frames of a log, which reads around blocks that the medium cannot read.

use std::sync::Arc;

use palisade_store::ReadStore;

use super::PIECE_BYTES;
use crate::frame::in_memory;
use crate::frame::{HEADER_BYTES, Header, Kind};
use crate::reader::{EpochSpan, FrameReader, Payload};
use crate::{Error, ErrorKind, Lsn, Result};

const READ_AHEAD_BYTES: usize = 1 << 20;

/// Reads frames in sequence.
#[derive(Debug)]
pub(super) struct Walk {
    reader: FrameReader,
}

impl Walk {
    pub(super) fn new(store: &Arc<dyn ReadStore>, segment_bytes: u64) -> Walk {
        let reader = FrameReader::new(Arc::clone(store), segment_bytes, READ_AHEAD_BYTES);
        Walk { reader }
    }

    /// Returns the whole frame at `at`, within its epoch, and the number of its records. Returns
    /// `None` if there is none, or if it cannot be read.
    pub(super) fn frame(&mut self, at: Lsn, span: &EpochSpan) -> Result<Option<(Header, u64)>> {
        let found = match self.reader.frame_with_payload(at, span.seed, Payload::Verify) {
            Err(error) if error.kind() == ErrorKind::Io => None,
            found => found?,
        };
        let Some(header) = found.filter(|header| at.plus(header.frame_bytes) <= span.end) else {
            return Ok(None);
        };
        header.check_known(at)?;
        let records = self.reader.records_in(at, &header, span.seed)?;
        Ok(Some((header, records)))
    }

    /// Returns the bytes of the frame that was just found, as they were checked; of a padding, its
    /// header. The buffer holds them until another frame is read.
    pub(super) fn bytes(&self, at: Lsn, header: &Header) -> Result<&[u8]> {
        let len = match header.kind {
            Kind::Padding => in_memory(header.frame_bytes).min(HEADER_BYTES),
            _ => HEADER_BYTES + header.payload_bytes as usize,
        };
        let gone = || Error::new(ErrorKind::Io, "the frame is not in the read buffer").at_lsn(at);
        self.reader.buffered(at, len).ok_or_else(gone)
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

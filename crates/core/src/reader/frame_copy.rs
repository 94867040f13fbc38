//! Copies frames, and checks them in the bytes that it copies.
//!
//! A frame that the read buffer does not hold as a whole was checked by an earlier read, and the
//! system may drop pages that it could not write back between two reads. So the copy sums up the
//! payload again, piece by piece, and needs no more memory than a read buffer and a piece.

use palisade_store::checksum::crc32c_append;

use super::frame_reader::FrameReader;
use crate::frame::{BLOCK_BYTES, EpochSeed, HEADER_BYTES, Header, Kind, LAG_UNKNOWN, padding};
use crate::{Error, Lsn, Result};

/// The most bytes that one call of [`FrameCopy::copy`] copies.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// The frames of one epoch, as a copy finds them.
pub(crate) trait CopiedFrames {
    /// Returns the whole frame at `at`, and where it is.
    fn frame_at(&mut self, at: Lsn) -> Result<Option<(Header, FrameSource)>>;

    /// Returns the reader of `source`.
    fn reader_of(&mut self, source: FrameSource) -> &mut FrameReader;

    /// Returns the error for a frame that is missing, or not what was read before.
    fn has_changed(&mut self, at: Lsn) -> Error;
}

/// Where a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameSource {
    Segment,
    LogBuffer,
}

/// A copy of the frames below `end`.
pub(crate) struct FrameCopy<'a, S> {
    frames: &'a mut S,
    seed: EpochSeed,
    /// Ranges that become padding, ascending.
    holes: &'a [(Lsn, Lsn)],
    end: Lsn,
    skips_padding: bool,
    /// The frame that the copy is in.
    frame: Option<CopiedFrame>,
}

/// A frame whose header was copied.
struct CopiedFrame {
    source: FrameSource,
    at: Lsn,
    /// Exclusive end of the bytes that a checksum covers. Zeros follow up to `to`.
    payload_to: Lsn,
    to: Lsn,
    /// The checksum of the payload that was copied so far, and the one in the header.
    checksum: u32,
    expected: u32,
}

impl CopiedFrame {
    /// Returns whether only zeros follow, which would take a block or more.
    fn is_padding_from(&self, at: Lsn) -> bool {
        self.payload_to <= at && self.to.bytes_since(at) >= BLOCK_BYTES
    }
}

impl<'a, S: CopiedFrames> FrameCopy<'a, S> {
    pub(crate) fn new(
        frames: &'a mut S,
        seed: EpochSeed,
        holes: &'a [(Lsn, Lsn)],
        end: Lsn,
    ) -> FrameCopy<'a, S> {
        FrameCopy { frames, seed, holes, end, skips_padding: false, frame: None }
    }

    /// Leaves out the zeros of long paddings: the bytes go into an empty file.
    pub(crate) fn skipping_padding(self) -> FrameCopy<'a, S> {
        FrameCopy { skips_padding: true, ..self }
    }

    /// Appends the bytes of `[from, until)` to `out`, and holes as padding. Stops at `until`, at
    /// the end of the copy or after [`PIECE_BYTES`], whichever comes first, or behind zeros that it
    /// leaves out. Returns where it ended. `until` must be the end of a segment or above the end of
    /// the copy.
    ///
    /// # Errors
    /// [`CopiedFrames::has_changed`]: a frame that was copied, now or by the calls before, is not
    /// what was read before. `Io`: it cannot be read.
    pub(crate) fn copy(&mut self, from: Lsn, until: Lsn, out: &mut Vec<u8>) -> Result<Lsn> {
        let (mut at, until) = (from, until.min(self.end));
        while at < until && out.len() < PIECE_BYTES {
            at = match self.frame.take() {
                Some(frame) if self.skips_padding && frame.is_padding_from(at) => {
                    return Ok(frame.to);
                }
                Some(frame) => self.go_on(frame, at, out)?,
                None => self.begin(at, until, out)?,
            };
        }
        Ok(at)
    }

    /// Copies the frame at `at`, or the header of one that the read buffer does not hold, or begins
    /// the padding of a hole there.
    fn begin(&mut self, at: Lsn, until: Lsn, out: &mut Vec<u8>) -> Result<Lsn> {
        // A hole may have begun below, in the segment before.
        let below = self.holes.partition_point(|(hole, _)| *hole <= at);
        let hole = below.checked_sub(1).map(|index| self.holes[index]);
        if let Some((_, to)) = hole.filter(|(_, to)| at < *to) {
            return Ok(self.begin_padding(at, until.min(to), out));
        }
        let Some((header, source)) = self.frames.frame_at(at)? else {
            return Err(self.frames.has_changed(at));
        };
        let reader = self.frames.reader_of(source);
        let payload_bytes = if header.kind == Kind::Padding { 0 } else { header.payload_bytes };
        let next = at.plus(header.frame_bytes);
        // What the buffer still holds are the bytes that were checked.
        if header.kind != Kind::Padding
            && let Some(bytes) = reader.buffered(at, HEADER_BYTES + payload_bytes as usize)
        {
            let padded = out.len() + header.frame_bytes as usize;
            out.extend_from_slice(bytes);
            out.resize(padded, 0);
            return Ok(next);
        }
        // A long frame was checked piece by piece, so the buffer has lost its header.
        if reader.header(at, self.seed)? != Some(header) {
            return Err(self.frames.has_changed(at));
        }
        let header_bytes = header.frame_bytes.min(HEADER_BYTES as u64);
        out.extend_from_slice(reader.raw(at, header_bytes as usize)?);
        let from = at.plus(header_bytes);
        let payload_to = from.plus(u64::from(payload_bytes));
        let expected = if header.kind == Kind::Padding { 0 } else { header.payload_checksum };
        self.frame = Some(CopiedFrame { source, at, payload_to, to: next, checksum: 0, expected });
        Ok(from)
    }

    /// Begins the padding of the part of a hole that ends at `to`, or with the segment.
    fn begin_padding(&mut self, at: Lsn, to: Lsn, out: &mut Vec<u8>) -> Lsn {
        let source = FrameSource::Segment;
        let room = self.frames.reader_of(source).room(at);
        let to = to.min(at.plus(room));
        let (head, used) = padding(self.seed, at, to.bytes_since(at), LAG_UNKNOWN);
        out.extend_from_slice(&head[..used]);
        let payload_to = at.plus(used as u64);
        self.frame = Some(CopiedFrame { source, at, payload_to, to, checksum: 0, expected: 0 });
        payload_to
    }

    /// Copies a piece of the rest of `frame`, which is copied up to `at`.
    fn go_on(&mut self, mut frame: CopiedFrame, at: Lsn, out: &mut Vec<u8>) -> Result<Lsn> {
        let room = (PIECE_BYTES - out.len()) as u64;
        let next = if at < frame.payload_to {
            let len = frame.payload_to.bytes_since(at).min(room) as usize;
            let reader = self.frames.reader_of(frame.source);
            let bytes = match reader.piece(at, len) {
                Err(error) => return Err(reader.located(error, at)),
                bytes => bytes?,
            };
            if bytes.is_empty() {
                return Err(self.frames.has_changed(frame.at));
            }
            frame.checksum = crc32c_append(frame.checksum, bytes);
            out.extend_from_slice(bytes);
            at.plus(bytes.len() as u64)
        } else {
            let len = frame.to.bytes_since(at).min(room);
            out.resize(out.len() + len as usize, 0);
            at.plus(len)
        };
        if next >= frame.payload_to && frame.checksum != frame.expected {
            return Err(self.frames.has_changed(frame.at));
        }
        self.frame = (next < frame.to).then_some(frame);
        Ok(next)
    }
}

//! Redo, step 2 of an open: makes the bytes that analysis found durable in new files.
//!
//! Analysis has read these bytes before, but the system may drop pages that it could not write back
//! between any two reads. So the copy checks each frame again, in the bytes that it copies. It sums
//! up the payload piece by piece and needs no more memory than a read buffer and a piece. The store
//! gives a new file its name only after the last piece, so a frame that has changed reaches no log.

use std::sync::Arc;

use palisade_store::Epoch;
use palisade_store::checksum::crc32c_append;

use super::analysis::Analysis;
use super::scan::{FrameSource, Scan, Scanner};
use crate::frame::{HEADER_BYTES, Kind, LAG_UNKNOWN, padding};
use crate::{Error, ErrorKind, Lsn, Result, Store};

/// The most bytes that one call of `copy` copies.
const PIECE_BYTES: usize = 1 << 20;

/// Makes the records that the scan found survive power loss before any caller learns of them.
///
/// After a failed write or sync the operating system may show bytes that never reach the medium,
/// and a rewrite of them may have no effect (docs/durability.md, "Failed writes"). Recovery cannot
/// know which syncs failed since the system booted. It cannot even know for certain when the system
/// booted: a container may have a boot id of its own. So each open moves all bytes that were not
/// certainly durable into new files.
pub(super) fn make_durable(store: &Arc<Store>, analysis: &mut Analysis) -> Result<()> {
    let layout = Arc::clone(&analysis.layout);
    let Some((scanner, scan)) = analysis.scanned.as_mut() else { return Ok(()) };
    if scan.floor >= scan.end {
        return Ok(());
    }
    let newest = layout.newest().expect("a scan has an epoch");
    let epoch = Epoch {
        number: newest.epoch,
        salt: newest.salt,
        base: newest.base,
        predecessor: layout.predecessor,
    };
    // From the start of the floor's segment, so that the copy checks all frames of the segment.
    let from = scan.start.max(scan.floor.segment_start(layout.state.segment_bytes));
    let mut copier = Copier { scanner, scan, frame: None };
    let moved =
        store.move_tail(&epoch, from, scan.end, &mut |at, until, out| copier.copy(at, until, out));
    scanner.reader.forget();
    moved
}

/// Copies the bytes that a scan found, and checks them.
struct Copier<'a> {
    scanner: &'a mut Scanner,
    scan: &'a Scan,
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

impl Copier<'_> {
    /// Appends the bytes of `[from, until)`, as the scan found them, to `out`, and holes as
    /// padding. Stops at `until`, at the end of the log or after [`PIECE_BYTES`], whichever comes
    /// first. Returns where the copy ended. `until` must be the end of a segment or above the end
    /// of the log.
    ///
    /// # Errors
    /// `Io`: a frame that was copied, now or by the calls before, is not what the scan found.
    fn copy(&mut self, from: Lsn, until: Lsn, out: &mut Vec<u8>) -> Result<Lsn> {
        let (mut at, until) = (from, until.min(self.scan.end));
        while at < until && out.len() < PIECE_BYTES {
            at = match self.frame.take() {
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
        let below = self.scan.holes.partition_point(|(hole, _)| *hole <= at);
        let hole = below.checked_sub(1).map(|index| self.scan.holes[index]);
        if let Some((_, to)) = hole.filter(|(_, to)| at < *to) {
            return Ok(self.begin_padding(at, until.min(to), out));
        }
        let seed = self.scanner.newest.seed;
        let Some((header, source)) = self.scanner.frame_at(at)? else {
            return Err(self.has_changed(at));
        };
        let reader = self.scanner.reader_of(source);
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
        if reader.header(at, seed)? != Some(header) {
            return Err(self.has_changed(at));
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
        let segment_bytes = self.scanner.layout.state.segment_bytes;
        let to = to.min(at.segment_start(segment_bytes).plus(segment_bytes));
        let seed = self.scanner.newest.seed;
        let (head, used) = padding(seed, at, to.bytes_since(at), LAG_UNKNOWN);
        out.extend_from_slice(&head[..used]);
        let payload_to = at.plus(used as u64);
        let source = FrameSource::Segment;
        self.frame = Some(CopiedFrame { source, at, payload_to, to, checksum: 0, expected: 0 });
        payload_to
    }

    /// Copies a piece of the rest of `frame`, which is copied up to `at`.
    fn go_on(&mut self, mut frame: CopiedFrame, at: Lsn, out: &mut Vec<u8>) -> Result<Lsn> {
        let room = (PIECE_BYTES - out.len()) as u64;
        let next = if at < frame.payload_to {
            let len = frame.payload_to.bytes_since(at).min(room) as usize;
            let bytes = self.scanner.reader_of(frame.source).piece(at, len)?;
            if bytes.is_empty() {
                return Err(self.has_changed(frame.at));
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
            return Err(self.has_changed(frame.at));
        }
        self.frame = (next < frame.to).then_some(frame);
        Ok(next)
    }

    fn has_changed(&mut self, at: Lsn) -> Error {
        self.scanner.has_changed = true;
        let text = "a record that was read a moment ago does not validate";
        Error::new(ErrorKind::Io, text).at_path(&self.scanner.place).at_lsn(at)
    }
}

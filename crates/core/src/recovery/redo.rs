//! Redo, step 2 of an open: makes the bytes that analysis found durable in new files.

use std::sync::Arc;

use super::analysis::Analysis;
use super::scan::{Scan, Scanner};
use crate::frame::padding;
use crate::store::{Epoch, Store};
use crate::{Error, ErrorKind, Lsn, Result};

/// The most bytes that one call of `copy` copies, if no frame is longer.
const PIECE_BYTES: usize = 1 << 20;

/// Makes the records that the scan found survive power loss before any caller learns of them.
///
/// After a failed write or sync the operating system may show bytes that never reach the medium,
/// and a rewrite of them may have no effect (docs/durability.md, "Failed writes"). Recovery cannot
/// know which syncs failed since the system booted. It cannot even know for certain when the system
/// booted: a container may have a boot id of its own. So each open moves all bytes that were not
/// certainly durable into new files.
pub(super) fn make_durable(store: &Arc<dyn Store>, analysis: &mut Analysis) -> Result<()> {
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
    let moved = store.move_tail(&epoch, scan.redo_from, scan.end, &mut |at, until, out| {
        scanner.copy(scan, at, until, out)
    });
    scanner.reader.forget();
    moved
}

impl Scanner {
    /// Appends the bytes of `[from, until)`, as the scan found them, to `out`, and holes as
    /// padding. Stops at `until`, at the end of the log or after about [`PIECE_BYTES`], whichever
    /// comes first. Returns where the copy ended. `until` must be the end of a segment or above the
    /// end of the log.
    fn copy(&mut self, scan: &Scan, from: Lsn, until: Lsn, out: &mut Vec<u8>) -> Result<Lsn> {
        let (mut at, until) = (from, until.min(scan.end));
        while at < until && out.len() < PIECE_BYTES {
            // A hole may have begun below `from`, in the segment before.
            let below = scan.holes.partition_point(|(hole, _)| *hole <= at);
            let hole = below.checked_sub(1).map(|index| scan.holes[index]);
            if let Some((_, to)) = hole.filter(|(_, to)| at < *to) {
                let to = until.min(to);
                self.copy_hole(at, to, out);
                at = to;
                continue;
            }
            let Some((header, source)) = self.frame_at(at)? else {
                self.has_changed = true;
                let text = "a record that was read a moment ago does not validate";
                return Err(Error::new(ErrorKind::Io, text).at_path(&self.place).at_lsn(at));
            };
            let len = header.frame_bytes as usize;
            let padded = out.len() + len;
            out.extend_from_slice(self.reader_of(source).raw(at, len)?);
            out.resize(padded, 0);
            at = at.plus(header.frame_bytes);
        }
        Ok(at)
    }

    fn copy_hole(&self, from: Lsn, to: Lsn, out: &mut Vec<u8>) {
        let segment_bytes = self.layout.state.segment_bytes;
        let mut at = from;
        while at < to {
            let segment_end = Lsn::new((at.segment(segment_bytes) + 1) * segment_bytes);
            let piece = to.min(segment_end).bytes_since(at);
            let lag = crate::frame::LAG_UNKNOWN;
            let (head, used) = padding(self.newest.seed, at, piece, lag);
            let padded = out.len() + piece as usize;
            out.extend_from_slice(&head[..used]);
            out.resize(padded, 0);
            at = at.plus(piece);
        }
    }
}

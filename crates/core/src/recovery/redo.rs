//! Redo, step 2 of an open: makes the bytes that analysis found durable in new files.
//!
//! The store gives a new file its name only after the last piece of the copy, so a frame that has
//! changed since analysis read it reaches no log.

use std::sync::Arc;

use palisade_store::Epoch;

use super::analysis::Analysis;
use crate::reader::FrameCopy;
use crate::{Result, Store};

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
    let mut copy = FrameCopy::new(scanner, newest.seed, &scan.holes, scan.end);
    let moved =
        store.move_tail(&epoch, from, scan.end, &mut |at, until, out| copy.copy(at, until, out));
    scanner.reader.forget();
    moved
}

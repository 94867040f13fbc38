//! Files that have a segment's name and cannot be the log's.

use crate::store::{Segment, State};
use crate::{Lsn, MAX_BUFFER_BYTES};

/// No store makes more segments ahead of the tail.
const MOST_AHEAD: u64 = 8;

/// Where among the segments `found` the strays begin: each of them lies out of reach of all that is
/// known to be the log's, and of each segment below it, and its header does not validate.
///
/// A segment gets its name when its header is durable, so a file without one is no segment, or one
/// whose header has rotted. The log makes no segment further above the one below it than an epoch's
/// base: a log buffer, and what is made ahead. So what is out of reach has not rotted; it was never
/// the log's, and must not move the base of the next epoch.
pub(super) fn first_stray(state: &State, found: &[Segment]) -> usize {
    let segment_bytes = state.segment_bytes;
    let end_of = |number: u64| Lsn::new((number + 1) * segment_bytes);
    let has_header = |segment: &&Segment| segment.header.is_ok();
    let highest = found.iter().rfind(has_header).map_or(Lsn::ZERO, |last| end_of(last.number));
    let known =
        [state.epoch_base.plus(segment_bytes), state.head, state.checkpoint, state.clean_end];
    let mut known = known.into_iter().fold(highest, Lsn::max);
    let stray = found.iter().position(|segment| {
        let reach = known.plus(MAX_BUFFER_BYTES as u64 + MOST_AHEAD * segment_bytes);
        // What is within reach brings the next one nearer.
        known = known.max(end_of(segment.number));
        reach < Lsn::new(segment.number * segment_bytes)
    });
    stray.unwrap_or(found.len())
}

//! A closed log: the list of epochs in its state takes the place of most segment headers.
//!
//! A close saves the list together with the flag `clean` and the clean end, in the same block. An
//! open of such a log lists the segments' names and reads the headers of those at and behind the
//! clean end, where appends go on. It takes what the list says for the headers of the others, and
//! judges them as if it had read them: a segment that is missing is refused.
//!
//! Those other headers need no check of their own. The checksum of a frame goes on from the log's
//! UUID and the epoch's number and salt, and covers the frame's LSN: bytes of another segment,
//! epoch or log do not validate where they are read.

use super::survey::{Found, check_state, distrust};
use crate::store::{Predecessor, ReadStore, Segment, SegmentHeader, State};
use crate::{Lsn, Result};

impl Found {
    /// What the state's list and the headers at and behind the clean end tell. `None`: the log was
    /// not closed, or there is no list that fits the state.
    pub(super) fn by_list(store: &dyn ReadStore) -> Result<Option<Found>> {
        let state = store.state()?;
        if check_state(&state, &store.place()).is_err() || !has_list(&state) {
            return Ok(None);
        }
        let end = state.clean_end.segment(state.segment_bytes);
        let (numbers, mut at_the_end) = store.segments_from(end)?;
        at_the_end.iter_mut().for_each(distrust);
        let below = numbers.into_iter().filter(|number| *number < end);
        let mut segments: Vec<Segment> =
            below.filter_map(|number| segment_by_list(&state, number)).collect();
        segments.append(&mut at_the_end);
        Ok(Some(Found { state, segments }))
    }
}

/// Whether the log was closed with a list of epochs, and that list can be one of this state.
pub(crate) fn has_list(state: &State) -> bool {
    let Some(running) = state.epochs.last() else { return false };
    let is_running = running.number == state.epoch
        && running.salt == state.epoch_salt
        && running.base == state.epoch_base
        && running.end == state.clean_end;
    let is_whole = state.epochs.iter().all(|epoch| {
        epoch.base.as_u64().is_multiple_of(state.segment_bytes) && epoch.base <= epoch.end
    });
    let ascends = state
        .epochs
        .windows(2)
        .all(|pair| pair[0].number < pair[1].number && pair[0].end <= pair[1].base);
    state.clean && is_running && is_whole && ascends
}

/// Segment `number` with the header that the list gives it. `None`: no record of a listed epoch
/// lies in it.
fn segment_by_list(state: &State, number: u64) -> Option<Segment> {
    let base = Lsn::new(number * state.segment_bytes);
    let index = state.epochs.iter().position(|epoch| epoch.base <= base && base < epoch.end)?;
    let epoch = state.epochs[index];
    // What lies below the first listed epoch was given up: its number is of no interest.
    let before = match index.checked_sub(1).map(|before| state.epochs[before]) {
        Some(before) => Predecessor { epoch: before.number, end: before.end },
        None => Predecessor { epoch: 0, end: state.head.min(base) },
    };
    let predecessor = (base == epoch.base).then_some(before);
    let header = SegmentHeader { number, base, epoch: epoch.number, salt: epoch.salt, predecessor };
    Some(Segment { number, header: Ok(header) })
}

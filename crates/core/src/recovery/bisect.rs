//! The headers that a clean open looks at: as few as tell where the epochs lie.
//!
//! Epoch numbers ascend with segment numbers, and only an epoch's first segment names the epoch
//! before. So all that lies between two segments of one epoch belongs to it, too, and a bisection
//! over the segment numbers finds where an epoch begins: with n segments and e epochs it looks at
//! O(e log n) headers.
//!
//! | looked at in any case | because |
//! |---|---|
//! | the lowest and the highest segment present | the bisection begins with them |
//! | the head's, or the first above it | reading begins there |
//! | the running epoch's first | the state names it |
//! | the clean end's and all above it | appends go on there |
//!
//! The other headers are taken to say what they must. Each is compared with that before the first
//! byte of its segment is handed to a reader ([`Unread`](crate::reader::Unread)). Where a header that
//! was looked at is not as expected, nothing is concluded from it: the caller reads all of them, and
//! judges then.

use std::collections::BTreeMap;

use super::survey::{Found, check_state, distrust};
use crate::store::{ReadStore, Segment, SegmentHeader, State};
use crate::{Lsn, Result};

/// A log whose headers were not all looked at.
#[derive(Debug)]
pub(crate) struct Glance {
    /// Every segment present. The headers that were not looked at say what they must.
    pub(crate) found: Found,
    /// Those headers, ascending.
    pub(crate) unread: Vec<SegmentHeader>,
}

impl Glance {
    /// Looks at the log in `store`. `None`: the store has no use for it, the log was not closed, or
    /// something is not as expected.
    pub(crate) fn take(store: &dyn ReadStore) -> Result<Option<Glance>> {
        let state = store.state()?;
        if !state.clean || state.epoch == 0 || check_state(&state, &store.place()).is_err() {
            return Ok(None);
        }
        let Some(numbers) = store.segment_numbers()? else { return Ok(None) };
        let mut looks = Looks { store, numbers, seen: BTreeMap::new() };
        let is_sound = looks.look_where_it_matters(&state)? && looks.bisect()?;
        Ok(is_sound.then(|| looks.into_glance(state)))
    }
}

/// What was looked at so far.
#[derive(Debug)]
struct Looks<'a> {
    store: &'a dyn ReadStore,
    /// All segments, ascending.
    numbers: Vec<u64>,
    /// By index in `numbers`.
    seen: BTreeMap<usize, SegmentHeader>,
}

impl Looks<'_> {
    /// False if a header is not to be relied on.
    fn look_where_it_matters(&mut self, state: &State) -> Result<bool> {
        let segment_bytes = state.segment_bytes;
        let count = self.numbers.len();
        let at_or_above =
            |lsn: Lsn| self.numbers.partition_point(|number| *number < lsn.segment(segment_bytes));
        let first = [0, at_or_above(state.head), at_or_above(state.epoch_base)];
        let behind_the_end = at_or_above(state.clean_end)..count;
        let last = count.saturating_sub(1);
        for index in first.into_iter().chain(behind_the_end).chain([last]) {
            if index < count && !self.look(index)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Looks between any two neighbours that are of different epochs. False where what was found
    /// contradicts itself.
    fn bisect(&mut self) -> Result<bool> {
        let seen: Vec<usize> = self.seen.keys().copied().collect();
        let mut pairs: Vec<(usize, usize)> =
            seen.windows(2).map(|pair| (pair[0], pair[1])).collect();
        while let Some((low, high)) = pairs.pop() {
            let (below, above) = (self.seen[&low], self.seen[&high]);
            if !fit(&below, &above) {
                return Ok(false);
            }
            if below.epoch == above.epoch || low + 1 == high {
                continue;
            }
            let middle = usize::midpoint(low, high);
            if !self.look(middle)? {
                return Ok(false);
            }
            pairs.extend([(low, middle), (middle, high)]);
        }
        Ok(true)
    }

    /// Looks at one header, unless that was done; false if it is not to be relied on.
    fn look(&mut self, index: usize) -> Result<bool> {
        if self.seen.contains_key(&index) {
            return Ok(true);
        }
        let Some(mut segment) = self.store.segment(self.numbers[index])? else {
            return Ok(false);
        };
        distrust(&mut segment);
        let Ok(header) = segment.header else { return Ok(false) };
        self.seen.insert(index, header);
        Ok(true)
    }

    fn into_glance(self, state: State) -> Glance {
        let mut unread = Vec::new();
        let mut segments = Vec::with_capacity(self.numbers.len());
        let mut last: Option<SegmentHeader> = None;
        for (index, &number) in self.numbers.iter().enumerate() {
            let header = match (self.seen.get(&index), last) {
                (Some(header), _) => *header,
                (None, Some(before)) => {
                    let base = Lsn::new(number * state.segment_bytes);
                    let header = SegmentHeader { number, base, predecessor: None, ..before };
                    unread.push(header);
                    header
                }
                (None, None) => unreachable!("the lowest segment was looked at"),
            };
            last = Some(header);
            segments.push(Segment { number, header: Ok(header) });
        }
        Glance { found: Found { state, segments }, unread }
    }
}

/// Whether a log may have `above` somewhere above `below`.
fn fit(below: &SegmentHeader, above: &SegmentHeader) -> bool {
    if below.epoch == above.epoch {
        return below.salt == above.salt && above.predecessor.is_none();
    }
    below.epoch < above.epoch
}

#[cfg(all(test, not(loom)))]
#[path = "bisect_tests.rs"]
mod tests;

//! Discarded ranges: from the end of one epoch to the base of the next.
//!
//! Headers are untrusted: there can be as many ranges as segments, and ranges may overlap. The list
//! merges ranges that overlap or touch. Each range ends at a segment start, so if several ranges
//! together cover a part of a segment, one of them does. Each question is answered by a binary
//! search, so n segments and n ranges cost O(n log n).

use palisade_store::SegmentHeader;

use crate::Lsn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LsnRange {
    pub(crate) from: Lsn,
    pub(crate) to: Lsn,
}

/// Discarded ranges of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiscardedRanges {
    /// Ascending. No two touch.
    ranges: Vec<LsnRange>,
}

impl DiscardedRanges {
    /// Lists the ranges that headers name.
    pub(crate) fn of<'a>(headers: impl Iterator<Item = &'a SegmentHeader>) -> DiscardedRanges {
        let discarded = |header: &SegmentHeader| Some((header.predecessor?.end, header.base));
        DiscardedRanges::new(headers.filter_map(discarded).collect())
    }

    fn new(mut ranges: Vec<(Lsn, Lsn)>) -> DiscardedRanges {
        ranges.sort_unstable();
        let mut discarded = DiscardedRanges::default();
        ranges.into_iter().for_each(|(from, to)| discarded.add(from, to));
        discarded
    }

    /// Adds a range. It must not begin below the start of another one, unless it ends above all.
    pub(crate) fn add(&mut self, from: Lsn, to: Lsn) {
        let mut added = LsnRange { from, to };
        while let Some(last) = self.ranges.pop_if(|last| last.to >= from) {
            added = LsnRange { from: added.from.min(last.from), to: added.to.max(last.to) };
        }
        self.ranges.push(added);
    }

    /// Returns the ranges that begin at or below `lsn`, and those that begin above.
    fn split(&self, lsn: Lsn) -> (&[LsnRange], &[LsnRange]) {
        self.ranges.split_at(self.ranges.partition_point(|range| seen(range).from <= lsn))
    }

    /// Returns the range that holds `lsn`.
    pub(crate) fn around(&self, lsn: Lsn) -> Option<LsnRange> {
        self.split(lsn).0.last().copied().filter(|range| lsn < range.to)
    }

    /// Returns whether a range covers all of `[from, to)`.
    pub(crate) fn cover(&self, from: Lsn, to: Lsn) -> bool {
        self.split(from).0.last().is_some_and(|range| to <= range.to)
    }

    /// Returns where the log ends within a segment that ends at `to`: at the start of the range
    /// that reaches to the segment's end, or at `to`.
    pub(crate) fn end_below(&self, to: Lsn) -> Lsn {
        let first = self.ranges.partition_point(|range| seen(range).to < to);
        self.ranges.get(first).map_or(to, |range| range.from.min(to))
    }

    /// Returns the first place at or above `from` that is in no range, and the start of the next
    /// range.
    pub(crate) fn kept_from(&self, from: Lsn) -> (Lsn, Option<Lsn>) {
        let (begun, above) = self.split(from);
        let kept = begun.last().map_or(from, |range| range.to.max(from));
        (kept, above.first().map(|range| range.from))
    }

    /// Returns how many bytes of `[from, to)` are in no range.
    pub(crate) fn kept_bytes(&self, from: Lsn, to: Lsn) -> u64 {
        let discarded = |range: &LsnRange| range.to.min(to).bytes_since(range.from.max(from));
        to.bytes_since(from) - self.ranges.iter().map(discarded).sum::<u64>()
    }
}

/// Returns `range`. Tests count the calls.
fn seen<T>(range: &T) -> &T {
    #[cfg(all(test, not(loom)))]
    LOOKS.with(|looks| looks.set(looks.get() + 1));
    range
}

#[cfg(all(test, not(loom)))]
thread_local! {
    /// The number of ranges that this thread has looked at.
    pub(super) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lsn(at: u64) -> Lsn {
        Lsn::new(at)
    }

    proptest! {
        /// Checks that a binary search returns what a walk over all bytes returns.
        #[test]
        fn a_bisection_answers_as_a_walk_over_all_bytes(
            ranges in prop::collection::vec((0_u64..60, 1_u64..20), 0..12),
            from in 0_u64..80,
            len in 1_u64..20,
        ) {
            let mut ranges: Vec<(Lsn, Lsn)> =
                ranges.into_iter().map(|(from, len)| (lsn(from), lsn(from + len))).collect();
            let discarded = DiscardedRanges::new(ranges.clone());
            let to = from + len;
            let is_discarded =
                |at: u64| ranges.iter().any(|range| range.0 <= lsn(at) && lsn(at) < range.1);
            let kept = (from..to).filter(|&at| !is_discarded(at)).count() as u64;
            prop_assert_eq!(discarded.kept_bytes(lsn(from), lsn(to)), kept);
            prop_assert_eq!(discarded.cover(lsn(from), lsn(to)), kept == 0);
            prop_assert_eq!(discarded.around(lsn(from)).is_some(), is_discarded(from));
            let last_kept = (0..to).rfind(|&at| !is_discarded(at));
            prop_assert_eq!(discarded.end_below(lsn(to)), lsn(last_kept.map_or(0, |at| at + 1)));
            let first_kept = (from..).find(|&at| !is_discarded(at)).unwrap();
            let next = (first_kept..80).find(|&at| is_discarded(at));
            prop_assert_eq!(discarded.kept_from(lsn(from)), (lsn(first_kept), next.map(lsn)));
            ranges.sort_unstable_by_key(|range| range.1);
            let mut by_end = DiscardedRanges::default();
            ranges.into_iter().for_each(|(from, to)| by_end.add(from, to));
            prop_assert_eq!(by_end.ranges, discarded.ranges);
        }
    }

    /// Checks that each question looks at few ranges. A folder may have as many discarded ranges as
    /// segments.
    #[test]
    fn questions_about_many_ranges_look_at_few_of_them() {
        const RANGES: u64 = 1 << 16;
        let discarded =
            DiscardedRanges::new((0..RANGES).map(|n| (lsn(n * 8), lsn(n * 8 + 4))).collect());
        LOOKS.set(0);
        for n in 0..RANGES {
            let at = lsn(n * 8 + 2);
            assert!(discarded.cover(at, at.plus(2)));
            assert_eq!(discarded.end_below(at.plus(2)), lsn(n * 8));
            assert_eq!(discarded.kept_from(at).0, lsn(n * 8 + 4));
        }
        let looks = LOOKS.get() / RANGES;
        assert!(looks <= 4 * 18, "{looks} looks for each of {RANGES} ranges");
    }
}

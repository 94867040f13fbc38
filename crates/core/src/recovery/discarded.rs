//! Discarded ranges: from the end of one epoch to the base of the next, as headers name them.
//!
//! Headers are untrusted: there can be as many ranges as segments, and ranges may overlap. Each
//! question is answered by a binary search, so n segments and n ranges cost O(n log n).

use palisade_store::SegmentHeader;

use crate::Lsn;

/// The start of one range, and the greatest end of it and of all ranges below.
#[derive(Clone, Copy, Debug)]
struct Range {
    from: Lsn,
    reach: Lsn,
}

/// The discarded ranges of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiscardedRanges {
    /// Ascending by start. `reach` never decreases, so it can be searched, too.
    ranges: Vec<Range>,
    /// The same ranges, merged where they overlap or touch.
    merged: Vec<(Lsn, Lsn)>,
}

impl DiscardedRanges {
    pub(crate) fn of<'a>(headers: impl Iterator<Item = &'a SegmentHeader>) -> DiscardedRanges {
        let discarded = |header: &SegmentHeader| Some((header.predecessor?.end, header.base));
        DiscardedRanges::new(headers.filter_map(discarded).collect())
    }

    fn new(mut ranges: Vec<(Lsn, Lsn)>) -> DiscardedRanges {
        ranges.sort_unstable();
        let mut discarded = DiscardedRanges::default();
        let mut reach = Lsn::ZERO;
        for (from, to) in ranges {
            reach = reach.max(to);
            discarded.ranges.push(Range { from, reach });
            match discarded.merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => discarded.merged.push((from, to)),
            }
        }
        discarded
    }

    /// Returns whether one range covers all of `[from, to)`.
    pub(crate) fn cover(&self, from: Lsn, to: Lsn) -> bool {
        let below = self.ranges.partition_point(|range| seen(range).from <= from);
        below > 0 && to <= self.ranges[below - 1].reach
    }

    /// Returns where the log ends within a segment that ends at `to`: at the start of the lowest
    /// range that reaches to the segment's end, or at `to`.
    pub(crate) fn end_below(&self, to: Lsn) -> Lsn {
        let first = self.ranges.partition_point(|range| seen(range).reach < to);
        self.ranges.get(first).map_or(to, |range| range.from.min(to))
    }

    /// Returns the first place at or above `from` that is in no range, and the start of the next
    /// range.
    pub(crate) fn kept_from(&self, from: Lsn) -> (Lsn, Option<Lsn>) {
        let behind = self.merged.partition_point(|range| seen(range).0 <= from);
        let around = behind.checked_sub(1).map(|index| self.merged[index].1);
        let next = self.merged.get(behind).map(|range| range.0);
        (around.map_or(from, |end| end.max(from)), next)
    }

    /// Returns how many bytes of `[from, to)` are in no range.
    pub(crate) fn kept_bytes(&self, from: Lsn, to: Lsn) -> u64 {
        let discarded = |range: &(Lsn, Lsn)| range.1.min(to).bytes_since(range.0.max(from));
        to.bytes_since(from) - self.merged.iter().map(discarded).sum::<u64>()
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
        /// Checks that a binary search returns what a walk over all ranges returns.
        #[test]
        fn a_bisection_answers_as_a_walk_over_all_ranges(
            ranges in prop::collection::vec((0_u64..60, 0_u64..20), 0..12),
            from in 0_u64..80,
            len in 0_u64..20,
        ) {
            let mut ranges: Vec<(Lsn, Lsn)> =
                ranges.into_iter().map(|(from, len)| (lsn(from), lsn(from + len))).collect();
            ranges.sort_unstable();
            let discarded = DiscardedRanges::new(ranges.clone());
            let (from, to) = (lsn(from), lsn(from + len));
            let covers = ranges.iter().any(|range| range.0 <= from && to <= range.1);
            prop_assert_eq!(discarded.cover(from, to), covers);
            let is_discarded =
                |at: u64| ranges.iter().any(|range| range.0 <= lsn(at) && lsn(at) < range.1);
            let kept = (from.as_u64()..to.as_u64()).filter(|&at| !is_discarded(at)).count() as u64;
            prop_assert_eq!(discarded.kept_bytes(from, to), kept);
            let mut end = to;
            let mut alive = from;
            let mut next = None;
            for range in &ranges {
                if range.0 < end && end <= range.1 {
                    end = range.0;
                }
                if alive >= range.0 {
                    alive = alive.max(range.1);
                } else if next.is_none() {
                    next = Some(range.0);
                }
            }
            prop_assert_eq!(discarded.end_below(to), end);
            prop_assert_eq!(discarded.kept_from(from), (alive, next));
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

//! The ranges between one epoch's end and the next one's base, as headers tell of them.
//!
//! Headers may say anything: there can be as many ranges as segments, and they may overlap. Each
//! question is answered by a bisection, so that n segments and n ranges cost O(n log n).

use crate::Lsn;
use crate::store::SegmentHeader;

/// Where one range begins, and the greatest end of it and of all below.
#[derive(Clone, Copy, Debug)]
struct Range {
    from: Lsn,
    reach: Lsn,
}

/// The dead ranges of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeadRanges {
    /// Ascending by their starts. `reach` never falls, so it can be bisected, too.
    ranges: Vec<Range>,
    /// The same, those that overlap or touch made one.
    merged: Vec<(Lsn, Lsn)>,
}

impl DeadRanges {
    pub(crate) fn of<'a>(headers: impl Iterator<Item = &'a SegmentHeader>) -> DeadRanges {
        let dead = |header: &SegmentHeader| Some((header.predecessor?.end, header.base));
        DeadRanges::new(headers.filter_map(dead).collect())
    }

    fn new(mut ranges: Vec<(Lsn, Lsn)>) -> DeadRanges {
        ranges.sort_unstable();
        let mut dead = DeadRanges::default();
        let mut reach = Lsn::ZERO;
        for (from, to) in ranges {
            reach = reach.max(to);
            dead.ranges.push(Range { from, reach });
            match dead.merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => dead.merged.push((from, to)),
            }
        }
        dead
    }

    /// Whether one range covers all of `[from, to)`.
    pub(crate) fn cover(&self, from: Lsn, to: Lsn) -> bool {
        let below = self.ranges.partition_point(|range| seen(range).from <= from);
        below > 0 && to <= self.ranges[below - 1].reach
    }

    /// What of a segment that ends at `to` is no part of the log because an epoch ended in it: the
    /// place where the lowest range begins that reaches to its end.
    pub(crate) fn end_below(&self, to: Lsn) -> Lsn {
        let first = self.ranges.partition_point(|range| seen(range).reach < to);
        self.ranges.get(first).map_or(to, |range| range.from.min(to))
    }

    /// The first place at or above `from` that is in no range, and where the next range begins.
    pub(crate) fn alive_from(&self, from: Lsn) -> (Lsn, Option<Lsn>) {
        let behind = self.merged.partition_point(|range| seen(range).0 <= from);
        let around = behind.checked_sub(1).map(|index| self.merged[index].1);
        let next = self.merged.get(behind).map(|range| range.0);
        (around.map_or(from, |end| end.max(from)), next)
    }
}

/// A range that is looked at, which tests count.
fn seen<T>(range: &T) -> &T {
    #[cfg(all(test, not(loom)))]
    LOOKS.with(|looks| looks.set(looks.get() + 1));
    range
}

#[cfg(all(test, not(loom)))]
thread_local! {
    /// How many ranges this thread has looked at.
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
        /// As a walk over all ranges answers.
        #[test]
        fn a_bisection_answers_as_a_walk_over_all_ranges(
            ranges in prop::collection::vec((0_u64..60, 0_u64..20), 0..12),
            from in 0_u64..80,
            len in 0_u64..20,
        ) {
            let mut ranges: Vec<(Lsn, Lsn)> =
                ranges.into_iter().map(|(from, len)| (lsn(from), lsn(from + len))).collect();
            ranges.sort_unstable();
            let dead = DeadRanges::new(ranges.clone());
            let (from, to) = (lsn(from), lsn(from + len));
            let covers = ranges.iter().any(|range| range.0 <= from && to <= range.1);
            prop_assert_eq!(dead.cover(from, to), covers);
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
            prop_assert_eq!(dead.end_below(to), end);
            prop_assert_eq!(dead.alive_from(from), (alive, next));
        }
    }

    /// Attacks: a folder may have as many dead ranges as segments.
    #[test]
    fn questions_about_many_ranges_look_at_few_of_them() {
        const RANGES: u64 = 1 << 16;
        let dead = DeadRanges::new((0..RANGES).map(|n| (lsn(n * 8), lsn(n * 8 + 4))).collect());
        LOOKS.set(0);
        for n in 0..RANGES {
            let at = lsn(n * 8 + 2);
            assert!(dead.cover(at, at.plus(2)));
            assert_eq!(dead.end_below(at.plus(2)), lsn(n * 8));
            assert_eq!(dead.alive_from(at).0, lsn(n * 8 + 4));
        }
        let looks = LOOKS.get() / RANGES;
        assert!(looks <= 4 * 18, "{looks} looks for each of {RANGES} ranges");
    }
}

//! Histograms. Values below 8 have a bucket each. Above, each doubling has 8 buckets of equal
//! width.

use std::fmt;
use std::ops::RangeInclusive;

use palisade_store::sync::{Ordering, StatCell};

const STEPS: usize = 8;
const STEPS_LOG2: u32 = STEPS.ilog2();
/// Models have small stacks.
const LARGEST_LOG2: u32 = if cfg!(loom) { 4 } else { 36 };
const BUCKETS: usize = STEPS * (1 + (LARGEST_LOG2 - STEPS_LOG2) as usize) + 1;

/// How many values of each size there were since the log was opened. A bucket is at most an eighth
/// as wide as its smallest value. Values from 2^36 on (69 seconds in nanoseconds) share one.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns their sum.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the largest value, 0 if there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the average, 0 if there is no value.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Returns a value that the share `share` (0 to 1) of the values does not exceed, at most an
    /// eighth too large, and at most [`max`](Histogram::max). 0 if there is no value.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        // Of a NaN the cast makes 0.
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil() as u64;
        let mut below = 0;
        let reached = self.counts.iter().position(|count| {
            below += count;
            below >= rank.max(1)
        });
        reached.map_or(0, |bucket| last_of(bucket).min(self.max))
    }

    /// Returns the buckets that have values, ascending, each with their number.
    pub fn buckets(&self) -> impl Iterator<Item = (RangeInclusive<u64>, u64)> {
        let counts = self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0);
        counts.map(|(bucket, count)| (first_of(bucket)..=last_of(bucket), count))
    }

    /// Returns the values that came after `earlier`, an older snapshot. [`max`](Histogram::max)
    /// stays that of all values.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut counts = self.counts;
        for (count, before) in counts.iter_mut().zip(earlier.counts) {
            *count = count.saturating_sub(before);
        }
        Histogram {
            count: counts.iter().sum(),
            counts,
            sum: self.sum.saturating_sub(earlier.sum),
            max: self.max,
        }
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS], count: 0, sum: 0, max: 0 }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("sum", &self.sum)
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max)
            .finish()
    }
}

fn bucket_of(value: u64) -> usize {
    let Some(octave) = value.max(1).ilog2().checked_sub(STEPS_LOG2) else {
        return value as usize;
    };
    // `value >> octave` lies in STEPS..2 * STEPS.
    let bucket = octave as usize * STEPS + (value >> octave) as usize;
    bucket.min(BUCKETS - 1)
}

fn first_of(bucket: usize) -> u64 {
    let Some(octave) = (bucket / STEPS).checked_sub(1) else { return bucket as u64 };
    ((STEPS + bucket % STEPS) as u64) << octave
}

fn last_of(bucket: usize) -> u64 {
    if bucket + 1 == BUCKETS { u64::MAX } else { first_of(bucket + 1) - 1 }
}

/// Sum and maximum share a cache line with what is before them in memory.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LiveHistogram {
    sum: StatCell,
    max: StatCell,
    counts: [StatCell; BUCKETS],
}

impl Default for LiveHistogram {
    fn default() -> LiveHistogram {
        LiveHistogram {
            sum: StatCell::new(0),
            max: StatCell::new(0),
            counts: std::array::from_fn(|_| StatCell::new(0)),
        }
    }
}

impl LiveHistogram {
    /// Adds a value, on any thread. The bucket comes last, so the sum and the maximum of a snapshot
    /// cover at least what its buckets count.
    pub(super) fn record(&self, value: u64) {
        // Relaxed: the bucket below publishes both.
        self.sum.fetch_add(value, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
        // Release: pairs with the Acquire in `snapshot` [P11].
        self.counts[bucket_of(value)].fetch_add(1, Ordering::Release);
    }

    /// Adds a value, on the only thread that does, in a [`Change`](super::counters::Change).
    pub(super) fn record_alone(&self, value: u64) {
        add_alone(&self.sum, value);
        let max = self.max.load(Ordering::Relaxed).max(value);
        // Relaxed above: only this thread stores. Release: as in `add_alone`.
        self.max.store(max, Ordering::Release);
        add_alone(&self.counts[bucket_of(value)], 1);
    }

    pub(super) fn sum(&self) -> u64 {
        // Acquire: pairs with the Release in `add_alone` [P11].
        self.sum.load(Ordering::Acquire)
    }

    pub(super) fn snapshot(&self) -> Histogram {
        // Acquire, all of them: pair with the Releases in `record` and `record_alone` [P11]. The
        // buckets come first: see `record`.
        let counts: [u64; BUCKETS] =
            std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Acquire));
        let max = self.max.load(Ordering::Acquire);
        Histogram { count: counts.iter().sum(), counts, sum: self.sum(), max }
    }
}

/// Adds to a cell that only this thread changes, in a [`Change`](super::counters::Change).
pub(super) fn add_alone(cell: &StatCell, value: u64) {
    // Relaxed: only this thread stores.
    let before = cell.load(Ordering::Relaxed);
    // Release: a snapshot that sees the value sees that the change has begun [P11].
    cell.store(before.wrapping_add(value), Ordering::Release);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn values() -> impl Iterator<Item = u64> {
        let around = |power: u32| {
            let at = 1_u64 << power;
            [at - 1, at, at + 1, at + at / 3]
        };
        (0..63).flat_map(around)
    }

    #[test]
    fn a_value_lies_in_its_bucket_and_buckets_have_no_gap() {
        for value in values() {
            let bucket = bucket_of(value);
            assert!((first_of(bucket)..=last_of(bucket)).contains(&value), "{value}");
        }
        for bucket in 1..BUCKETS {
            assert_eq!(first_of(bucket), last_of(bucket - 1) + 1);
            assert_eq!(bucket_of(first_of(bucket)), bucket);
        }
        assert_eq!((first_of(0), first_of(BUCKETS - 1)), (0, 1 << LARGEST_LOG2));
    }

    #[test]
    fn a_bucket_is_at_most_an_eighth_as_wide_as_its_first_value() {
        for bucket in STEPS..BUCKETS - 1 {
            let width = last_of(bucket) - first_of(bucket);
            assert!(width <= first_of(bucket) / STEPS as u64, "bucket {bucket}");
        }
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_above_the_true_values() {
        let live = LiveHistogram::default();
        (1..=1000).for_each(|value| live.record(value * 1000));
        let seen = live.snapshot();
        assert_eq!((seen.count(), seen.sum(), seen.max()), (1000, 500_500_000, 1_000_000));
        for (share, exact) in [(0.0, 1000), (0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let quantile = seen.quantile(share);
            assert!((exact..=exact + exact / 8).contains(&quantile), "{share}: {quantile}");
        }
        assert_eq!((seen.quantile(7.0), seen.quantile(-1.0)), (1_000_000, seen.quantile(0.0)));
        assert_eq!(Histogram::default().quantile(0.5), 0);
        assert_eq!(seen.mean(), 500_500.0);
    }

    #[test]
    fn values_since_a_snapshot_are_those_recorded_after_it() {
        let live = LiveHistogram::default();
        live.record(7);
        let earlier = live.snapshot();
        live.record(7);
        live.record(u64::MAX / 2);
        let late = live.snapshot().since(&earlier);
        assert_eq!((late.count(), late.sum()), (2, 7 + u64::MAX / 2));
        let buckets: Vec<_> = late.buckets().collect();
        assert_eq!(buckets, [(7..=7, 1), (first_of(BUCKETS - 1)..=u64::MAX, 1)]);
    }

    #[test]
    fn sum_and_maximum_cover_all_values_that_the_buckets_count() {
        let live = LiveHistogram::default();
        std::thread::scope(|scope| {
            for writer in 1..=2_u64 {
                let live = &live;
                scope.spawn(move || (0..50_000).for_each(|n| live.record(writer + n % 6)));
            }
            for _ in 0..5_000 {
                let seen = live.snapshot();
                let least = seen.buckets().map(|(values, count)| values.start() * count);
                assert!(seen.sum() >= least.sum::<u64>());
                let top = seen.buckets().last().map_or(0, |(values, _)| *values.start());
                assert!(seen.max() >= top);
            }
        });
        assert_eq!(live.snapshot().count(), 100_000);
    }
}

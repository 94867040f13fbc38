//! A histogram of latencies that one thread writes and another reads while it is written.

use std::sync::atomic::{AtomicU64, Ordering};

/// Each power of two is divided into this many buckets: values are off by at most 3 %.
const BUCKETS_PER_DOUBLING: u64 = 32;
const BUCKET_BITS: u32 = BUCKETS_PER_DOUBLING.trailing_zeros();
const BUCKETS: usize = (64 - BUCKET_BITS as usize + 1) * BUCKETS_PER_DOUBLING as usize;

/// Counts of latencies by size. Only one thread calls `record`; any thread may read.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Box<[AtomicU64]>,
}

impl Histogram {
    /// An empty histogram.
    pub(crate) fn new() -> Histogram {
        Histogram { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts one latency.
    pub(crate) fn record(&self, latency_ns: u64) {
        let count = &self.counts[bucket(latency_ns)];
        // Relaxed, a load and a store: one thread writes, and a reader may miss the latest.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// The latencies below which each of `shares` (from 0 to 1, ascending) of all calls stayed.
pub(crate) fn quantiles<const N: usize>(all: &[Histogram], shares: [f64; N]) -> [u64; N] {
    let mut counts = vec![0; BUCKETS];
    for histogram in all {
        for (sum, count) in counts.iter_mut().zip(&histogram.counts) {
            // Relaxed: the figures need no order among each other.
            *sum += count.load(Ordering::Relaxed);
        }
    }
    let total: u64 = counts.iter().sum();
    shares.map(|share| {
        let rank = ((total as f64 * share) as u64).min(total.saturating_sub(1));
        let mut seen = 0;
        let reaches = |count: &u64| {
            seen += count;
            seen > rank
        };
        counts.iter().position(reaches).map_or(0, lower_bound)
    })
}

fn bucket(value: u64) -> usize {
    if value < BUCKETS_PER_DOUBLING {
        return value as usize;
    }
    let shift = value.ilog2() - BUCKET_BITS;
    let within = (value >> shift) - BUCKETS_PER_DOUBLING;
    ((u64::from(shift) + 1) * BUCKETS_PER_DOUBLING + within) as usize
}

fn lower_bound(bucket: usize) -> u64 {
    let (doubling, within) =
        (bucket as u64 / BUCKETS_PER_DOUBLING, bucket as u64 % BUCKETS_PER_DOUBLING);
    match doubling.checked_sub(1) {
        None => within,
        Some(shift) => (BUCKETS_PER_DOUBLING + within) << shift,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_off_by_at_most_three_percent() {
        for value in (0..64).flat_map(|bit| [1 << bit, (1 << bit) + (1 << bit) / 3, u64::MAX]) {
            let low = lower_bound(bucket(value));
            assert!(low <= value && value - low <= value / 31, "{value} {low}");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles_span_all_threads() {
        let (fast, slow) = (Histogram::new(), Histogram::new());
        (0..99).for_each(|_| fast.record(10));
        slow.record(1 << 20);
        assert_eq!(quantiles(&[fast, slow], [0.5, 0.99]), [10, 1 << 20]);
        assert_eq!(quantiles(&[], [0.5]), [0]);
    }
}

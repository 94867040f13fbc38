//! How long single calls take.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Longer calls count as this long.
const LONGEST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// The shares of calls whose longest latency is in a result.
const SHARES: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];

/// The latencies of one thread's calls, or of several threads' when merged.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    /// Makes a histogram of no calls. All memory is allocated here, and none while recording.
    fn default() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS);
        Latencies(histogram.expect("the bounds are valid"))
    }
}

impl Latencies {
    /// Makes the call and records how long it took.
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = call();
        self.record(begin.elapsed());
        result
    }

    /// Records how long a call took.
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(time.as_nanos() as u64);
    }

    /// Takes the calls of `other` in.
    ///
    /// # Panics
    /// Never: all have the same bounds.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// Returns how many calls were recorded.
    pub fn calls(&self) -> u64 {
        self.0.len()
    }

    /// Returns the median and the 99th, 99.9th and 99.99th percentile in microseconds; `None` if no
    /// call was recorded.
    pub fn quantiles_us(&self) -> Option<[f64; 4]> {
        let us = |share| self.0.value_at_quantile(share) as f64 / 1e3;
        (!self.0.is_empty()).then(|| SHARES.map(us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_all_merged_calls() {
        let (mut all, mut one) = (Latencies::default(), Latencies::default());
        assert_eq!(all.quantiles_us(), None);
        (1..=100).for_each(|micros| one.record(Duration::from_micros(micros)));
        all.merge(&one);
        let [median, p99, ..] = all.quantiles_us().unwrap();
        assert!((median - 50.0).abs() < 0.1 && (p99 - 99.0).abs() < 0.1, "{median} {p99}");
    }
}

//! How long single calls take.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Longer calls count as this long.
const LONGEST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// The shares of calls whose longest latency is in a figure.
pub const SHARES: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];

/// The latencies of one thread's calls, or of several threads' when merged.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// No call yet. Everything is allocated here, nothing while recording.
    ///
    /// # Panics
    /// Never: the bounds are valid.
    #[must_use]
    pub fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS);
        Latencies(histogram.expect("the bounds are valid"))
    }

    /// Makes the call and records how long it took.
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = call();
        self.record(begin.elapsed());
        result
    }

    /// Records a call that took so long.
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

    /// How long a call took on average; `None` without a call.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_nanos(self.0.mean() as u64))
    }

    /// The percentiles that figures have, [`SHARES`], in microseconds; `None` without a call.
    #[must_use]
    pub fn quantiles_us(&self) -> Option<[f64; 4]> {
        let us = |share| Some(self.quantile(share)?.as_nanos() as f64 / 1e3);
        let [p50, p99, p999, p9999] = SHARES;
        Some([us(p50)?, us(p99)?, us(p999)?, us(p9999)?])
    }

    /// Which latency this share of the calls did not exceed; `None` without a call.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_nanos(self.0.value_at_quantile(share)))
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_all_merged_calls() {
        let mut all = Latencies::new();
        assert_eq!(all.quantile(0.5), None);
        let mut one = Latencies::new();
        for micros in 1..=100_u64 {
            one.0.saturating_record(micros * 1000);
        }
        all.merge(&one);
        let median = all.quantile(0.5).unwrap().as_secs_f64() * 1e6;
        assert!((median - 50.0).abs() < 0.1, "{median}");
    }
}

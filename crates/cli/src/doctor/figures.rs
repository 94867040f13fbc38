//! The workloads of `palisade doctor`, and the medians of what they did.

use std::cmp::Ordering;
use std::time::Duration;

/// How many rounds count.
pub(super) const ROUNDS: u32 = 15;

/// What one log, or the disk alone, does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// One thread overwrites a record in a file and syncs it. No log has a part in it.
    RawSync,
    /// So many threads commit one record after the other.
    Commit(usize),
    /// One thread appends records and commits none.
    Append,
    /// One thread reads what `Append` has just written.
    Scan,
}

impl Workload {
    /// All workloads, in the order of a round and of the table.
    pub(super) const ALL: [Workload; 6] = [
        Workload::RawSync,
        Workload::Commit(1),
        Workload::Commit(8),
        Workload::Commit(64),
        Workload::Append,
        Workload::Scan,
    ];

    /// Returns how many workloads last for a given time.
    pub(super) fn timed() -> u32 {
        Workload::ALL.into_iter().map(|workload| u32::from(workload.is_timed())).sum()
    }

    /// Returns the name of the workload's line in the table.
    pub(super) fn name(self) -> String {
        match self {
            Workload::RawSync => "raw sync, 1 thread".into(),
            Workload::Commit(1) => "commit, 1 thread".into(),
            Workload::Commit(threads) => format!("commit, {threads} threads"),
            Workload::Append => "append without a commit, 1 thread".into(),
            Workload::Scan => "scan, 1 thread".into(),
        }
    }

    /// Returns the workload's name for programs.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Workload::RawSync => "raw_sync",
            Workload::Commit(_) => "commit",
            Workload::Append => "append",
            Workload::Scan => "scan",
        }
    }

    pub(super) const fn threads(self) -> usize {
        match self {
            Workload::Commit(threads) => threads,
            _ => 1,
        }
    }

    /// Returns whether the workload lasts for a given time. A scan ends where the records end.
    pub(super) fn is_timed(self) -> bool {
        self != Workload::Scan
    }
}

/// What a workload did in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Syncs or records in a second.
    pub(super) per_s: f64,
    /// The median and the 99th percentile of a call, where calls are timed.
    pub(super) p50: Option<Duration>,
    pub(super) p99: Option<Duration>,
    pub(super) records_per_sync: Option<f64>,
}

/// The samples of all workloads in one round, in the order of [`Workload::ALL`].
pub(super) type RoundSamples = [Sample; Workload::ALL.len()];

/// What a workload did in all rounds: medians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) workload: Workload,
    pub(super) per_s: f64,
    /// The rate divided by that of raw syncs in the same round.
    pub(super) ratio: f64,
    pub(super) p50: Option<Duration>,
    pub(super) p99: Option<Duration>,
    pub(super) records_per_sync: Option<f64>,
    /// The rate that a quarter of the rounds exceed, divided by the one that a quarter miss.
    pub(super) spread: f64,
}

/// Takes the medians. The ratios are those of each round: the disk may change between two rounds.
pub(super) fn of(rounds: &[RoundSamples]) -> Vec<Figure> {
    let figure = |(index, workload): (usize, Workload)| {
        let samples = || rounds.iter().map(|round| round[index]);
        let rates: Vec<f64> = samples().map(|sample| sample.per_s).collect();
        let ratios = rounds.iter().map(|round| round[index].per_s / round[0].per_s).collect();
        let rate = |share| quantile(rates.clone(), share, f64::total_cmp).unwrap_or(1.0);
        Figure {
            workload,
            per_s: rate(0.5),
            ratio: median(ratios, f64::total_cmp).unwrap_or(1.0),
            p50: median(samples().filter_map(|sample| sample.p50).collect(), Ord::cmp),
            p99: median(samples().filter_map(|sample| sample.p99).collect(), Ord::cmp),
            records_per_sync: median(
                samples().filter_map(|sample| sample.records_per_sync).collect(),
                f64::total_cmp,
            ),
            spread: rate(0.75) / rate(0.25),
        }
    };
    Workload::ALL.into_iter().enumerate().map(figure).collect()
}

/// Returns the middle value: the upper one of two.
fn median<T: Copy>(values: Vec<T>, order: impl Fn(&T, &T) -> Ordering) -> Option<T> {
    quantile(values, 0.5, order)
}

/// Returns the value that `share` of the others do not exceed.
fn quantile<T: Copy>(
    mut values: Vec<T>,
    share: f64,
    order: impl Fn(&T, &T) -> Ordering,
) -> Option<T> {
    values.sort_by(order);
    values.get((values.len() as f64 * share) as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(raw: f64, commits: f64, p50_us: u64) -> RoundSamples {
        let mut round = [Sample { per_s: 1.0, ..Sample::default() }; 6];
        round[0] = Sample { per_s: raw, ..Sample::default() };
        let p50 = Some(Duration::from_micros(p50_us));
        round[3] = Sample { per_s: commits, p50, records_per_sync: Some(9.0), ..round[0] };
        round
    }

    #[test]
    fn a_ratio_is_the_median_of_the_ratios_of_each_round() {
        // A slow disk in the last round takes both down: 10, 12, and 11 times.
        let rounds = [round(100.0, 1000.0, 5), round(100.0, 1200.0, 7), round(10.0, 110.0, 90)];
        let figures = of(&rounds);
        assert_eq!(figures.len(), Workload::ALL.len());
        let (raw, commits) = (figures[0], figures[3]);
        assert_eq!((raw.per_s, raw.ratio, raw.spread, raw.p50), (100.0, 1.0, 10.0, None));
        assert_eq!((commits.workload, commits.per_s), (Workload::Commit(64), 1000.0));
        assert_eq!((commits.ratio, commits.p50), (11.0, Some(Duration::from_micros(7))));
        assert_eq!((commits.records_per_sync, figures[4].records_per_sync), (Some(9.0), None));
    }
}

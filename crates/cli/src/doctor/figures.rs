//! The workloads of `palisade doctor`, and the medians of what they did.

use super::probe::{Cost, quantile};

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
}

/// What a workload did in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Syncs or records in a second.
    pub(super) per_s: f64,
    /// The cost of a call, where calls are timed.
    pub(super) cost: Option<Cost>,
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
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) records_per_sync: Option<f64>,
    /// The rate that a quarter of the rounds exceed, divided by the one that a quarter miss.
    pub(super) spread: f64,
}

/// Takes the medians. The ratios are those of each round: the disk may change between two rounds.
pub(super) fn of(rounds: &[RoundSamples]) -> Vec<Figure> {
    let figure = |(index, workload): (usize, Workload)| {
        let of_rounds = |share, value: fn(&Sample, &Sample) -> Option<f64>| {
            let values = rounds.iter().filter_map(|round| value(&round[index], &round[0]));
            quantile(values.collect(), share)
        };
        let rate = |share| of_rounds(share, |sample, _| Some(sample.per_s)).unwrap_or(1.0);
        let ratio = of_rounds(0.5, |sample, raw| Some(sample.per_s / raw.per_s));
        Figure {
            workload,
            per_s: rate(0.5),
            ratio: ratio.unwrap_or(1.0),
            p50_us: of_rounds(0.5, |sample, _| Some(sample.cost?.p50_us)),
            p99_us: of_rounds(0.5, |sample, _| Some(sample.cost?.p99_us)),
            records_per_sync: of_rounds(0.5, |sample, _| sample.records_per_sync),
            spread: rate(0.75) / rate(0.25),
        }
    };
    Workload::ALL.into_iter().enumerate().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn round(raw: f64, commits: f64, p50_us: f64) -> RoundSamples {
        let mut round = [Sample { per_s: 1.0, ..Sample::default() }; 6];
        round[0] = Sample { per_s: raw, ..Sample::default() };
        let cost = Cost::of(vec![p50_us], Duration::from_secs(1));
        round[3] = Sample { per_s: commits, cost: Some(cost), records_per_sync: Some(9.0) };
        round
    }

    #[test]
    fn a_ratio_is_the_median_of_the_ratios_of_each_round() {
        // A slow disk in the last round takes both down: 10, 12, and 11 times.
        let rounds =
            [round(100.0, 1000.0, 5.0), round(100.0, 1200.0, 7.0), round(10.0, 110.0, 90.0)];
        let figures = of(&rounds);
        assert_eq!(figures.len(), Workload::ALL.len());
        let (raw, commits) = (figures[0], figures[3]);
        assert_eq!((raw.per_s, raw.ratio, raw.spread, raw.p50_us), (100.0, 1.0, 10.0, None));
        assert_eq!((commits.workload, commits.per_s), (Workload::Commit(64), 1000.0));
        assert_eq!((commits.ratio, commits.p50_us), (11.0, Some(7.0)));
        assert_eq!((commits.records_per_sync, figures[4].records_per_sync), (Some(9.0), None));
    }
}

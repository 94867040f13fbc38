//! What is compared: which field of a figure counts, and which way is better.

use crate::report::{Figure, rate};

const BYTES_PER_GIB: f64 = (1 << 30) as f64;
/// Offered rates that differ by less than this part are the same load.
const SAME_LOAD: f64 = 0.05;

/// A field of a figure, or what follows from several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Records a second.
    Rate,
    /// GiB of the log that an open went through a second.
    LogGib,
    /// Milliseconds of an open.
    OpenMs,
    /// Median latency in microseconds.
    P50Us,
    /// 99th percentile of the latency in microseconds.
    P99Us,
    /// 99.9th percentile of the latency in microseconds.
    P999Us,
    /// Instructions of a record.
    Instructions,
}

impl Quantity {
    /// What counts in a workload.
    pub(super) fn of(workload: &str) -> Quantity {
        match workload {
            "recover" | "reopen" => Quantity::OpenMs,
            "sync" => Quantity::P50Us,
            "open-loop" => Quantity::P99Us,
            _ => Quantity::Rate,
        }
    }

    /// Its value; `None` where it was not measured.
    pub(super) fn value(self, figure: &Figure) -> Option<f64> {
        let value = match self {
            Quantity::Rate => Some(figure.records_per_s),
            Quantity::LogGib => {
                let bytes = figure.log_bytes? as f64;
                figure.open_ms.map(|ms| bytes / BYTES_PER_GIB / (ms / 1e3))
            }
            Quantity::OpenMs => figure.open_ms,
            Quantity::P50Us => figure.p50_us,
            Quantity::P99Us => figure.p99_us,
            Quantity::P999Us => figure.p999_us,
            Quantity::Instructions => figure.instructions,
        };
        value.filter(|value| value.is_finite() && *value > 0.0)
    }

    /// Whether less of it is better.
    pub(super) fn is_a_cost(self) -> bool {
        !matches!(self, Quantity::Rate | Quantity::LogGib)
    }

    /// How many times better `ours` is than `theirs`: above 1 is in favour of `ours`.
    pub(super) fn advantage(self, ours: &Figure, theirs: &Figure) -> Option<f64> {
        if let (Some(one), Some(other)) = (ours.offered_per_s, theirs.offered_per_s)
            && (one - other).abs() > one.max(other) * SAME_LOAD
        {
            return None;
        }
        let (ours, theirs) = (self.value(ours)?, self.value(theirs)?);
        Some(if self.is_a_cost() { theirs / ours } else { ours / theirs })
    }

    /// A value with its unit.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Quantity::Rate => format!("{}/s", rate(value)),
            Quantity::LogGib => format!("{value:.1} GiB/s"),
            Quantity::OpenMs => format!("{} ms", short(value)),
            Quantity::P50Us | Quantity::P99Us | Quantity::P999Us => {
                format!("{} us", short(value))
            }
            Quantity::Instructions => format!("{value:.0}"),
        }
    }

    /// Its name in a heading.
    pub(super) fn name(self) -> &'static str {
        match self {
            Quantity::Rate => "records/s",
            Quantity::LogGib => "log checked",
            Quantity::OpenMs => "time to open",
            Quantity::P50Us => "p50",
            Quantity::P99Us => "p99",
            Quantity::P999Us => "p99.9",
            Quantity::Instructions => "instructions",
        }
    }
}

/// Three digits or so.
pub(super) fn short(value: f64) -> String {
    match value {
        value if value >= 1e5 => rate(value),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// A ratio, cut off and not rounded up, so that 0.949 does not read as 0.95.
pub(super) fn times(ratio: f64) -> String {
    if ratio >= 10.0 {
        format!("{:.1}x", (ratio * 10.0).floor() / 10.0)
    } else {
        // The least part of a step makes up for what a division of equals may lack.
        format!("{:.2}x", (ratio * 100.0 + 1e-9).floor() / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::figure;

    #[test]
    fn an_advantage_is_above_one_whichever_way_is_better() {
        let mut ours = figure("palisade", 1, &[20.0]);
        let mut theirs = figure("naive", 1, &[10.0]);
        ours.open_ms = Some(5.0);
        theirs.open_ms = Some(20.0);
        assert_eq!(Quantity::Rate.advantage(&ours, &theirs), Some(2.0));
        assert_eq!(Quantity::OpenMs.advantage(&ours, &theirs), Some(4.0));
        assert_eq!(Quantity::P99Us.advantage(&ours, &theirs), None);
    }

    #[test]
    fn latencies_under_different_loads_are_not_compared() {
        let mut ours = figure("palisade", 8, &[20.0]);
        ours.p99_us = Some(1.0);
        let mut theirs = ours.clone();
        ours.offered_per_s = Some(1000.0);
        theirs.offered_per_s = Some(980.0);
        assert_eq!(Quantity::P99Us.advantage(&ours, &theirs), Some(1.0));
        theirs.offered_per_s = Some(500.0);
        assert_eq!(Quantity::P99Us.advantage(&ours, &theirs), None);
    }

    #[test]
    fn a_ratio_is_not_rounded_up() {
        assert_eq!(times(0.9499), "0.94x");
        assert_eq!(times(0.95), "0.95x");
        assert_eq!(times(1.0), "1.00x");
        assert_eq!(times(23.78), "23.7x");
    }
}

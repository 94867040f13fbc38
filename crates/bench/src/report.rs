//! Figures: medians over the rounds, as JSON lines, as comma-separated values, as a table.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::workload::{Moment, Opened, Outcome};

const BYTES_PER_MIB: f64 = (1 << 20) as f64;

/// One figure: a contender under one workload with one set of parameters.
///
/// Scripts read these names. Fields are added, never renamed; a reader takes what a line lacks as
/// not measured and passes over what it does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figure {
    /// What was measured.
    pub workload: String,
    /// Who was measured.
    pub contender: String,
    /// Version of the library that was measured.
    pub version: Option<String>,
    /// Threads that worked at the same time.
    pub threads: usize,
    /// Bytes of a record.
    pub record_bytes: usize,
    /// Records between two syncs, in `batch`.
    pub batch: Option<u32>,
    /// Records a second, of all threads.
    pub records_per_s: f64,
    /// Bytes of records a second, in MiB.
    pub mib_per_s: f64,
    /// Median latency.
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency.
    pub p99_us: Option<f64>,
    /// 99.9th percentile of the latency.
    pub p999_us: Option<f64>,
    /// Device syncs a second.
    pub syncs_per_s: Option<f64>,
    /// Records that one device sync covered on average.
    pub records_per_sync: Option<f64>,
    /// Seconds that each round was timed for.
    pub seconds: f64,
    /// Rounds that were measured.
    pub rounds: u32,
    /// File system of the folder.
    pub dir_fs: Option<String>,
    /// The processor.
    pub cpu: Option<String>,
    /// Processors that the run could use.
    pub cores: usize,
    /// The commit that was measured.
    pub commit: Option<String>,
    /// Records a second in the slowest round.
    pub records_per_s_min: f64,
    /// Records a second in the fastest round.
    pub records_per_s_max: f64,
    /// Milliseconds that the open took, in `recover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_ms: Option<f64>,
    /// Bytes of the log, in `recover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// Segments of the log, in `recover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
    /// 99.99th percentile of the latency.
    pub p9999_us: Option<f64>,
    /// The form of the workload, where it has several.
    pub variant: Option<String>,
    /// Futures that commit, in `commit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<usize>,
    /// Records that were due a second, in `open-loop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_per_s: Option<f64>,
    /// Microseconds of an append that came first in its segment, in `rotation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation_us: Option<f64>,
    /// Records in the log, where it was filled before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// When the run began, in seconds since 1970: figures of one run were measured in turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<u64>,
    /// Instructions of a record; counted by another tool, the driver leaves it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
    /// What happened when in the last round, in `rotation`: triples of milliseconds, the longest
    /// latency in microseconds, and appends that came first in their segment.
    #[serde(with = "timeline", skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Moment>,
}

/// A timeline as short triples.
mod timeline {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::workload::Moment;

    pub(super) fn serialize<S: Serializer>(
        moments: &[Moment],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let to_tenths = |value: f64| (value * 10.0).round() / 10.0;
        let triple = |moment: &Moment| {
            (to_tenths(moment.at_ms), to_tenths(moment.worst_us), moment.rotations)
        };
        serializer.collect_seq(moments.iter().map(triple))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Moment>, D::Error> {
        let triples = Vec::<(f64, f64, u32)>::deserialize(deserializer)?;
        let moment = |(at_ms, worst_us, rotations)| Moment { at_ms, worst_us, rotations };
        Ok(triples.into_iter().map(moment).collect())
    }
}

impl Figure {
    /// Puts the medians of these rounds into the figure.
    #[must_use]
    pub fn with_medians_of(mut self, rounds: &[Outcome]) -> Figure {
        let rates = sorted(rounds.iter().map(|round| round.records_per_s));
        self.records_per_s = median(rates.clone()).unwrap_or_default();
        self.mib_per_s = self.records_per_s * self.record_bytes as f64 / BYTES_PER_MIB;
        self.records_per_s_min = rates.first().copied().unwrap_or_default();
        self.records_per_s_max = rates.last().copied().unwrap_or_default();
        let quantile =
            |i: usize| median(rounds.iter().filter_map(|round| Some(round.quantiles_us?[i])));
        self.p50_us = quantile(0);
        self.p99_us = quantile(1);
        self.p999_us = quantile(2);
        self.p9999_us = quantile(3);
        self.syncs_per_s = median(rounds.iter().filter_map(|round| round.syncs_per_s));
        self.records_per_sync = median(rounds.iter().filter_map(|round| round.records_per_sync));
        let opened = || rounds.iter().filter_map(|round| round.opened);
        self.open_ms = median(opened().map(|opened: Opened| opened.open_ms));
        self.log_bytes = opened().next_back().map(|opened| opened.log_bytes);
        self.segments = opened().next_back().map(|opened| opened.segments);
        self.offered_per_s = median(rounds.iter().filter_map(|round| round.offered_per_s));
        self.rotation_us = median(rounds.iter().filter_map(|round| round.rotation_us));
        self.timeline = rounds.last().map(|round| round.timeline.clone()).unwrap_or_default();
        self
    }
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values = sorted(values);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// Appends figures to a file of comma-separated values, which it begins with the names.
#[derive(Debug)]
pub struct Csv(File);

const COLUMNS: [&str; 32] = [
    "workload",
    "contender",
    "version",
    "threads",
    "record_bytes",
    "batch",
    "records_per_s",
    "mib_per_s",
    "p50_us",
    "p99_us",
    "p999_us",
    "syncs_per_s",
    "records_per_sync",
    "seconds",
    "rounds",
    "dir_fs",
    "cpu",
    "cores",
    "commit",
    "records_per_s_min",
    "records_per_s_max",
    "open_ms",
    "log_bytes",
    "segments",
    "p9999_us",
    "variant",
    "tasks",
    "offered_per_s",
    "rotation_us",
    "records",
    "began",
    "instructions",
];

impl Csv {
    /// Begins the file anew.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path) -> Result<Csv> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let mut file = file.with_context(|| format!("creating {}", path.display()))?;
        writeln!(file, "{}", COLUMNS.join(","))?;
        Ok(Csv(file))
    }

    /// Writes one figure.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, figure: &Figure) -> Result<()> {
        let values = serde_json::to_value(figure)?;
        let cells: Vec<String> = COLUMNS.iter().map(|name| cell(values.get(name))).collect();
        Ok(writeln!(self.0, "{}", cells.join(","))?)
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) if text.contains([',', '"', '\n']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The figures of one workload as an aligned table, with ratios against the first contender.
#[must_use]
pub fn table(figures: &[Figure]) -> String {
    let mut rows = vec![header(figures)];
    rows.extend(figures.iter().map(|figure| row(figure, ratio(figure, figures))));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

fn header(figures: &[Figure]) -> Vec<String> {
    let workload = figures.first().map_or("", |figure| &figure.workload);
    let names = [
        workload,
        "form",
        "threads",
        "bytes",
        "records/s",
        "min",
        "max",
        "MiB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "p99.99 us",
        "syncs/s",
        "rec/sync",
        "open ms",
        "ratio",
    ];
    names.map(String::from).to_vec()
}

fn row(figure: &Figure, ratio: Option<f64>) -> Vec<String> {
    let optional =
        |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"));
    vec![
        figure.contender.clone(),
        figure.variant.clone().unwrap_or_else(|| "-".into()),
        figure.threads.to_string(),
        figure.record_bytes.to_string(),
        rate(figure.records_per_s),
        rate(figure.records_per_s_min),
        rate(figure.records_per_s_max),
        format!("{:.1}", figure.mib_per_s),
        optional(figure.p50_us),
        optional(figure.p99_us),
        optional(figure.p999_us),
        optional(figure.p9999_us),
        figure.syncs_per_s.map_or_else(|| "-".into(), rate),
        optional(figure.records_per_sync),
        optional(figure.open_ms),
        ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}x")),
    ]
}

/// A number as short as a table needs it.
#[must_use]
pub(crate) fn rate(value: f64) -> String {
    match value {
        value if value >= 1e7 => format!("{:.1} M", value / 1e6),
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e4 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

/// Against the first contender with as many threads, or with those that it has, and otherwise the
/// same parameters.
fn ratio(figure: &Figure, figures: &[Figure]) -> Option<f64> {
    let first = &figures.first()?.contender;
    let is_alike = |base: &&Figure| {
        base.contender == *first
            && base.record_bytes == figure.record_bytes
            && base.variant == figure.variant
            && base.batch == figure.batch
            && base.records == figure.records
    };
    let of_first = || figures.iter().filter(is_alike);
    let base = of_first().find(|base| base.threads == figure.threads).or(of_first().next())?;
    (base.records_per_s > 0.0).then(|| figure.records_per_s / base.records_per_s)
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(crate) mod tests;

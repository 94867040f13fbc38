//! The result of a measurement: of one round, or medians over the rounds.

use std::process::Command;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use palisade::file_system;
use serde::{Deserialize, Serialize};

use crate::Latencies;
use crate::cli::Args;

const BYTES_PER_MIB: f64 = (1 << 20) as f64;

/// Milliseconds since the round began, the longest latency in microseconds, and appends that came
/// first in their segment: a piece of a round's time.
pub type Moment = (f64, f64, u32);

/// The check of each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Records whose call returned success.
    pub acknowledged: u64,
    /// Records that were there after the log was opened again.
    pub read_back: u64,
}

impl Kept {
    /// Returns whether records that were acknowledged are missing.
    pub fn is_short(self) -> bool {
        self.read_back < self.acknowledged
    }
}

/// The result of one contender under one workload with one set of parameters.
///
/// Scripts read these names. Fields are added, never renamed. A reader takes a missing field as
/// not measured and ignores an unknown one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measurement {
    /// The workload's name.
    pub workload: String,
    /// The contender's name.
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
    /// MiB of records a second.
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
    /// Milliseconds that the open took, in workloads that open a log.
    pub open_ms: Option<f64>,
    /// Bytes of Palisade's log, in workloads that open one; the most of them in `streams-slow`.
    pub log_bytes: Option<u64>,
    /// Segments of Palisade's log, in workloads that open one; those at the end in `streams-slow`.
    pub segments: Option<u64>,
    /// 99.99th percentile of the latency.
    pub p9999_us: Option<f64>,
    /// The form of the workload, if it has several.
    pub variant: Option<String>,
    /// Futures that commit, in `commit`.
    pub tasks: Option<usize>,
    /// Records that were due a second, in `open-loop`.
    pub offered_per_s: Option<f64>,
    /// Microseconds of an append that came first in its segment, in `rotation`.
    pub rotation_us: Option<f64>,
    /// Records in the log, if it was filled before.
    pub records: Option<u64>,
    /// When the run began, in seconds since 1970. Contenders of one run took turns.
    pub began: Option<u64>,
    /// Records a second that a scan read, in `codec`, where `records_per_s` are appends.
    pub scan_records_per_s: Option<f64>,
    /// Bytes that the log stores for each byte of a record, framing included, in `codec`.
    pub stored_ratio: Option<f64>,
    /// The median latency in multiples of an overwrite and a sync of the same disk, in `opens` and
    /// `suffix`.
    pub in_raw_syncs: Option<f64>,
    /// Bytes that a new log takes on the device, in `opens`.
    pub disk_bytes: Option<u64>,
    /// Streams of the log, if the case has a number.
    pub streams: Option<usize>,
    /// Shards of the set, in workloads of shards.
    pub shards: Option<usize>,
    /// Bytes that the log has moved for 100 bytes that it has released, in `streams-slow`.
    pub moved_percent: Option<f64>,
    /// Instructions of a record. Another tool fills this in; the driver leaves it empty.
    pub instructions: Option<f64>,
    /// What happened when in the last round, in `rotation`.
    pub timeline: Vec<Moment>,
    /// What was acknowledged in a round and could be read back, if the contender keeps records.
    #[serde(skip)]
    pub kept: Option<Kept>,
}

impl Measurement {
    /// Makes the part of a result that all results of a run share which begins now.
    pub fn of_run(args: &Args) -> Measurement {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Measurement {
            seconds: args.seconds,
            rounds: args.rounds,
            began: since_1970.ok().map(|since| since.as_secs()),
            dir_fs: file_system(&args.dir),
            cpu: processor(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            commit: commit(),
            ..Measurement::default()
        }
    }

    /// Makes a result from the rate and the latencies of one round.
    pub fn of_round(records_per_s: f64, latencies: &Latencies) -> Measurement {
        let quantiles = latencies.quantiles_us().map_or([None; 4], |us| us.map(Some));
        let [p50_us, p99_us, p999_us, p9999_us] = quantiles;
        Measurement { records_per_s, p50_us, p99_us, p999_us, p9999_us, ..Measurement::default() }
    }

    /// Puts the medians of these rounds into the result. All other fields come from the last round.
    pub fn with_medians_of(mut self, rounds: &[Measurement]) -> Measurement {
        let rates = || rounds.iter().map(|round| round.records_per_s);
        self.records_per_s = median(rates()).unwrap_or_default();
        self.mib_per_s = self.records_per_s * self.record_bytes as f64 / BYTES_PER_MIB;
        self.records_per_s_min = rates().reduce(f64::min).unwrap_or_default();
        self.records_per_s_max = rates().reduce(f64::max).unwrap_or_default();
        let middle =
            |field: fn(&Measurement) -> Option<f64>| median(rounds.iter().filter_map(field));
        self.p50_us = middle(|round| round.p50_us);
        self.p99_us = middle(|round| round.p99_us);
        self.p999_us = middle(|round| round.p999_us);
        self.p9999_us = middle(|round| round.p9999_us);
        self.syncs_per_s = middle(|round| round.syncs_per_s);
        self.records_per_sync = middle(|round| round.records_per_sync);
        self.open_ms = middle(|round| round.open_ms);
        self.offered_per_s = middle(|round| round.offered_per_s);
        self.rotation_us = middle(|round| round.rotation_us);
        self.scan_records_per_s = middle(|round| round.scan_records_per_s);
        self.stored_ratio = middle(|round| round.stored_ratio);
        self.in_raw_syncs = middle(|round| round.in_raw_syncs);
        self.moved_percent = middle(|round| round.moved_percent);
        if let Some(last) = rounds.last() {
            (self.log_bytes, self.segments) = (last.log_bytes, last.segments);
            self.disk_bytes = last.disk_bytes;
            self.timeline.clone_from(&last.timeline);
        }
        self
    }
}

fn processor() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().into())
}

fn commit() -> Option<String> {
    let git = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()?;
    let name = String::from_utf8(git.stdout).ok()?;
    git.status.success().then(|| name.trim().into())
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn result(contender: &str, threads: usize, rates: &[f64]) -> Measurement {
        let blank = Measurement {
            workload: "commit".into(),
            contender: contender.into(),
            threads,
            record_bytes: 256,
            seconds: 1.0,
            rounds: rates.len() as u32,
            dir_fs: Some("ext4".into()),
            cpu: Some("a, \"b\"".into()),
            cores: 2,
            ..Measurement::default()
        };
        let round = |&rate| Measurement { records_per_s: rate, ..Measurement::default() };
        blank.with_medians_of(&rates.iter().map(round).collect::<Vec<_>>())
    }

    #[test]
    fn the_median_counts_and_the_extremes_are_kept() {
        let result = result("naive", 1, &[4096.0, 1.0, 9000.0]);
        assert_eq!(result.records_per_s, 4096.0);
        assert_eq!(result.records_per_s_min, 1.0);
        assert_eq!(result.records_per_s_max, 9000.0);
        assert_eq!(result.mib_per_s, 1.0);
        assert_eq!(median([1.0, 2.0]), Some(1.5));
        assert_eq!(median([]), None);
    }

    #[test]
    fn json_has_the_published_fields_and_null_where_none_applies() {
        let line = serde_json::to_string(&result("naive", 1, &[1.0])).unwrap();
        for name in "workload contender version threads record_bytes batch records_per_s mib_per_s \
                     p50_us p99_us p999_us syncs_per_s records_per_sync seconds rounds dir_fs cpu \
                     cores commit records_per_s_min records_per_s_max p9999_us variant \
                     scan_records_per_s stored_ratio in_raw_syncs disk_bytes streams moved_percent \
                     shards"
            .split_whitespace()
        {
            assert!(line.contains(&format!("\"{name}\":")), "{name}: {line}");
        }
        assert!(line.contains("\"p50_us\":null"), "{line}");
    }

    #[test]
    fn a_result_is_read_back_as_it_was_printed() {
        let mut result = result("palisade", 1, &[1.0]);
        result.records = Some(10);
        result.timeline = vec![(10.0, 2.5, 1)];
        let line = serde_json::to_string(&result).unwrap();
        assert!(line.contains("\"timeline\":[[10.0,2.5,1]]"), "{line}");
        assert_eq!(serde_json::from_str::<Measurement>(&line).unwrap(), result);
        let sparse = r#"{"workload":"get","a field of tomorrow":[1]}"#;
        assert_eq!(serde_json::from_str::<Measurement>(sparse).unwrap().workload, "get");
    }
}

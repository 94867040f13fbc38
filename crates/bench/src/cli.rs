//! The command line.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Parser;
use clap::builder::RangedU64ValueParser as Counts;

use crate::Contender;
use crate::contenders;
use crate::workload::Workload;

const EXAMPLES: &str = "\
Examples:
  palisade-bench list
  palisade-bench commit --contenders naive,raw,palisade --threads 1,8,64
  palisade-bench batch --batch 10,100,1000,10000 --record-bytes 1024
  palisade-bench recover --forms plain,1024-KiB-torn --records 1000,10000
  palisade-bench streams-append --contenders palisade,palisade-streams --streams 1,1000000
  palisade-bench streams-commit --contenders palisade,palisade-streams --threads 64
  palisade-bench shards-append --streams 1000 --shards 4,16,64
  palisade-bench commit --dir /mnt/disk/bench --json > results.jsonl";

/// Measures Palisade beside other ways to make records durable.
///
/// Contenders take turns round by round; each result is the median of the rounds.
#[derive(Clone, Debug, Parser)]
#[command(name = "palisade-bench", version, after_help = EXAMPLES)]
pub struct Args {
    /// What to measure, or `all`; `list` prints all workloads with their parameters
    #[arg(value_parser = Workload::parser(), hide_possible_values = true)]
    pub workload: String,
    /// Contenders, as `list` names them; ratios are against the first one [default: all that can]
    #[arg(long, value_delimiter = ',', value_parser = contenders::find)]
    pub contenders: Vec<Contender>,
    /// Thread counts, each measured on its own [default: see `list`]
    #[arg(long, value_delimiter = ',', value_parser = Counts::<usize>::new().range(1..=1024))]
    pub threads: Vec<usize>,
    /// Bytes of a record, each size measured on its own [default: see `list`]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4 << 20))]
    pub record_bytes: Vec<u32>,
    /// Records between two syncs in `batch`, of a batch in `atomic`, each number measured on its
    /// own [default: 1000, 100]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Vec<u32>,
    /// Records in a log that is read, opened or released, each count measured on its own
    /// [default: see `list`]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Vec<u64>,
    /// Streams of the log in workloads of streams, each number measured on its own
    /// [default: see `list`]
    #[arg(long, value_delimiter = ',', value_parser = Counts::<usize>::new().range(1..=1 << 24))]
    pub streams: Vec<usize>,
    /// Shards of the set in workloads of shards, each number measured on its own
    /// [default: see `list`]
    #[arg(long, value_delimiter = ',', value_parser = Counts::<usize>::new().range(1..=256))]
    pub shards: Vec<usize>,
    /// Commits a second that are due in `open-loop`
    /// [default: 20, 50 and 80 % of what the contender reaches in a closed loop]
    #[arg(long, value_parser = |text: &str| within(1.0..=1e9, text))]
    pub rate: Option<f64>,
    /// `commit` by this many futures on the threads
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub tasks: Option<u32>,
    /// Forms of the workload, as `list` names them [default: all of them]
    #[arg(long, value_delimiter = ',', value_name = "FORM")]
    pub forms: Vec<String>,
    /// Seconds that each contender is timed for in each round
    #[arg(long, default_value_t = 2.0, value_parser = |text: &str| within(0.01..=3600.0, text))]
    pub seconds: f64,
    /// Rounds; a result is their median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Folder for the logs: on a real disk
    #[arg(long, default_value = "target/bench-data")]
    pub dir: PathBuf,
    /// Measure durability on tmpfs, which has none
    #[arg(long)]
    pub allow_tmpfs: bool,
    /// Print one JSON object a line on stdout, and only notes and errors on stderr
    #[arg(long)]
    pub json: bool,
    /// Write the results to this file, too, as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw the results into this folder, too, as SVG
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

fn within(range: RangeInclusive<f64>, text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn unknown_contenders_are_refused_with_the_known_ones() {
        let error = Args::try_parse_from(["x", "commit", "--contenders", "sqlite"]).unwrap_err();
        let text = error.to_string();
        for known in ["palisade", "palisade-mem", "palisade-heap", "naive", "raw", "wake"] {
            assert!(text.contains(known), "{text}");
        }
    }

    #[test]
    fn an_unknown_workload_is_refused_with_the_known_ones() {
        let error = Args::try_parse_from(["x", "sort"]).unwrap_err().to_string();
        assert!(error.contains("list, all, append, commit, batch"), "{error}");
    }

    #[test]
    fn the_help_has_examples_and_each_is_understood() {
        let help = Args::command().render_help().to_string();
        assert!(help.contains("Examples:\n  palisade-bench list"), "{help}");
        for line in EXAMPLES.lines().skip(1) {
            let words = line.split_whitespace().take_while(|word| *word != ">");
            Args::try_parse_from(words).unwrap();
        }
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let args =
            Args::parse_from(["x", "append", "--contenders", "naive,raw", "--threads", "1,8"]);
        let sweep = Args::parse_from(["x", "append", "--record-bytes", "100,256,1024"]);
        assert_eq!(sweep.record_bytes, [100, 256, 1024]);
        let names: Vec<_> = args.contenders.iter().map(|contender| contender.name).collect();
        assert_eq!(names, ["naive", "raw"]);
        assert_eq!(args.threads, [1, 8]);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for bad in [["--threads", "0"], ["--seconds", "nan"], ["--rounds", "0"], ["--rate", "0"]] {
            assert!(Args::try_parse_from(["x", "commit", bad[0], bad[1]]).is_err(), "{bad:?}");
        }
    }
}

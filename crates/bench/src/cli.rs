//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::contender::Contender;
use crate::workload::Choice;

const EXAMPLES: &str = "\
Examples:
  palisade-bench list
  palisade-bench commit --contenders naive,raw,palisade --threads 1,8,64
  palisade-bench append --contenders naive,palisade --threads 1 --record-bytes 1024
  palisade-bench batch --batch 10,100,1000,10000 --record-bytes 1024
  palisade-bench recover --forms plain,1024-KiB-torn --records 1000,10000
  palisade-bench commit --dir /mnt/disk/bench --json > figures.jsonl";

/// Measures Palisade beside other ways to make records durable.
///
/// Contenders take turns round by round; each figure is the median of the rounds.
#[derive(Clone, Debug, Parser)]
#[command(name = "palisade-bench", version, after_help = EXAMPLES)]
pub struct Args {
    /// What to measure; `list` prints all with their parameters
    pub workload: Choice,
    /// Who takes part; the first one is what the ratios refer to [default: all that can]
    #[arg(long, value_delimiter = ',')]
    pub contenders: Vec<Contender>,
    /// Thread counts, each measured on its own [default: see `list`]
    #[arg(long, value_delimiter = ',', value_parser = thread_count)]
    pub threads: Vec<usize>,
    /// Bytes of a record, each size measured on its own [default: see `list`]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4 << 20))]
    pub record_bytes: Vec<u32>,
    /// Records between two syncs in `batch`, of a batch in `atomic`, each number measured on its
    /// own [default: 1000, 100]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Vec<u32>,
    /// Records in a log that is read or opened, each count measured on its own
    /// [default: see `list`]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Vec<u64>,
    /// Commits a second that are due in `open-loop`
    /// [default: 20, 50 and 80 % of what the contender reaches in a closed loop]
    #[arg(long, value_parser = rate)]
    pub rate: Option<f64>,
    /// `commit` by so many futures on the threads
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub tasks: Option<u32>,
    /// Forms of the workload that are measured, as `full-check`; `list` names them
    /// [default: all of them]
    #[arg(long, value_delimiter = ',', value_name = "FORM")]
    pub forms: Vec<String>,
    /// Seconds that each contender is timed for in each round
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Rounds of which the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Folder for the logs: on a real disk
    #[arg(long, default_value = "target/bench-data")]
    pub dir: PathBuf,
    /// Measure durability on tmpfs, which has none
    #[arg(long)]
    pub allow_tmpfs: bool,
    /// One JSON object a line on stdout, nothing on stderr but notes and errors
    #[arg(long)]
    pub json: bool,
    /// Write the figures to this file, too, as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw the figures into this folder, too, as SVG
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (1.0..=1e9).contains(&rate) => Ok(rate),
        _ => Err("expected commits a second from 1 to 1000000000".into()),
    }
}

fn thread_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1024) => Ok(count),
        _ => Err("expected a number of threads from 1 to 1024".into()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.01 to 3600".into()),
    }
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
        assert_eq!(args.contenders, [Contender::Naive, Contender::Raw]);
        assert_eq!(args.threads, [1, 8]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [["--threads", "0"], ["--seconds", "nan"], ["--rounds", "0"], ["--rate", "0"]] {
            assert!(Args::try_parse_from(["x", "commit", bad[0], bad[1]]).is_err(), "{bad:?}");
        }
    }
}

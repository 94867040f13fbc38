//! `palisade-bench-report`: writes BENCHMARKS.md and its pictures from the committed results.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use palisade_bench::document::Document;
use palisade_bench::samples;
use palisade_bench::session::tell;

/// Writes BENCHMARKS.md and benches/results/plots from benches/BENCHMARKS.in.md and
/// benches/results/*.jsonl.
#[derive(Debug, Parser)]
#[command(name = "palisade-bench-report", version)]
struct Args {
    /// The checkout
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// Write nothing; fail, naming the first line that differs, if the files are not what the
    /// results give
    #[arg(long)]
    check: bool,
    /// Write nothing; print what `cargo bench --bench compare` left in this folder (target/criterion) as
    /// lines of a result file
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    samples: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(difference)) => {
            tell(&format!("{difference}\nnot what the results give: run palisade-bench-report"));
            ExitCode::FAILURE
        }
        Err(error) => {
            tell(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<Option<String>> {
    if let Some(dir) = &args.samples {
        for figure in samples::figures(dir)? {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&figure)?)?;
        }
        return Ok(None);
    }
    let document = Document::generate(&args.root)?;
    if args.check {
        return document.difference(&args.root);
    }
    document.write(&args.root).map(|()| None)
}

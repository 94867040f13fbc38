//! `palisade-bench`: measures Palisade beside other ways to make records durable.

use std::process::ExitCode;

use clap::Parser;
use palisade_bench::cli::Args;
#[cfg(feature = "peers")]
use palisade_bench::contenders::peers::walrus;
use palisade_bench::session::{self, print_note};

fn main() -> ExitCode {
    let args = Args::parse();
    run(&args).unwrap_or_else(|error| {
        print_note(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // The contender `walrus` needs environment variables.
    #[cfg(feature = "peers")]
    if args.contenders.is_empty() || args.contenders.iter().any(|one| one.name == walrus::NAME) {
        walrus::begin_again(&args.dir)?;
    }
    session::run(args)
}

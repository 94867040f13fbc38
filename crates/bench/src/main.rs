//! `palisade-bench`: measures Palisade beside other ways to make records durable.

use std::process::ExitCode;

use clap::Parser;
use palisade_bench::cli::Args;
use palisade_bench::session::{self, Verdict, print_note};

/// A contender acknowledged more records than it could read back: its results are worth nothing.
const EXIT_LOST: u8 = 3;

fn main() -> ExitCode {
    let args = Args::parse();
    match prepare(&args).and_then(|()| session::run(&args)) {
        Ok(Verdict::AllReadBack) => ExitCode::SUCCESS,
        Ok(Verdict::Lost) => ExitCode::from(EXIT_LOST),
        Err(error) => {
            print_note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts this program again with the environment variables that the contender `walrus` needs, if
/// `walrus` may take part and they are not set.
#[cfg(feature = "peers")]
fn prepare(args: &Args) -> anyhow::Result<()> {
    use palisade_bench::contenders::peers::walrus;
    let is_asked = args.contenders.iter().any(|contender| contender.name == walrus::NAME);
    let is_default = args.contenders.is_empty();
    if is_asked || is_default { walrus::begin_again(&args.dir) } else { Ok(()) }
}

/// Does nothing: without the feature `peers` no contender needs an environment variable.
#[cfg(not(feature = "peers"))]
fn prepare(_args: &Args) -> anyhow::Result<()> {
    Ok(())
}

//! `palisade-bench`: measures Palisade beside other ways to make records durable.

use std::process::ExitCode;

use clap::Parser;
use palisade_bench::cli::Args;
use palisade_bench::session::{self, print_note};

fn main() -> ExitCode {
    let args = Args::parse();
    prepare(&args).and_then(|()| session::run(&args)).unwrap_or_else(|error| {
        print_note(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
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

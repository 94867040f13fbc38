//! `palisade-bench`: measures Palisade beside other ways to make records durable.

use std::process::ExitCode;

use clap::Parser;
use palisade_bench::cli::Args;
use palisade_bench::session;

/// A contender acknowledged more than it could read back: its figures are worth nothing.
const EXIT_LOST: u8 = 3;

fn main() -> ExitCode {
    let args = Args::parse();
    match prepare(&args).and_then(|()| session::run(&args)) {
        Ok(session::Verdict::AllReadBack) => ExitCode::SUCCESS,
        Ok(session::Verdict::Lost) => ExitCode::from(EXIT_LOST),
        Err(error) => {
            session::tell(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Whatever has to be so before the process begins.
#[cfg(feature = "peers")]
fn prepare(args: &Args) -> anyhow::Result<()> {
    use palisade_bench::contender::{Contender, walrus};
    let takes_part = args.contenders.is_empty() || args.contenders.contains(&Contender::Walrus);
    if takes_part { walrus::begin_again(&args.dir) } else { Ok(()) }
}

/// Nothing has to be prepared for the contenders without a library.
#[cfg(not(feature = "peers"))]
fn prepare(_args: &Args) -> anyhow::Result<()> {
    Ok(())
}

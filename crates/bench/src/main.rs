//! `palisade-bench`: measures Palisade beside other ways to make records durable.

use std::process::ExitCode;

use clap::Parser;
use palisade_bench::cli::Args;
use palisade_bench::session;

/// A contender acknowledged more than it could read back: its figures are worth nothing.
const EXIT_LOST: u8 = 3;

fn main() -> ExitCode {
    let args = Args::parse();
    match session::run(&args) {
        Ok(session::Verdict::AllReadBack) => ExitCode::SUCCESS,
        Ok(session::Verdict::Lost) => ExitCode::from(EXIT_LOST),
        Err(error) => {
            session::tell(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

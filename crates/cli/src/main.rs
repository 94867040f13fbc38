//! The `palisade` command: shows that the log keeps its promise, and looks into logs.
//!
//! `demo` kills a writing process and checks what comes back; `info`, `map`, `stat`, `dump`,
//! `verify` and `salvage` read a log without changing it, also while a writer runs; `repair` copies
//! the records below the damage into a new log; `restore` makes a log of an archive and of what is
//! left of the log; `backup` copies a log; `streams` reads the streams of a log that has some;
//! `doctor` measures the cost of a sync in a folder, and what a log there does. `completions` and
//! `man` print what a shell and `man` read. `docs/architecture.md` shows how the log works.

mod args;
mod command;
mod demo;
mod doctor;
mod dump;
mod exit;
mod follow;
mod info;
mod layout;
mod manual;
mod map;
mod output;
mod progress;
mod repair;
mod restore;
mod salvage;
mod stat;
mod streams;
mod units;
mod verify;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::command::{Cli, Command};
use crate::exit::{Exit, Failure};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    match run(&cli.command) {
        Ok(exit) => exit.into(),
        Err(failure) => report(&failure).into(),
    }
}

fn run(command: &Command) -> Result<Exit, Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let exit = match command {
        Command::Demo(args) => demo::run(args, &mut out).map(|()| Exit::Success),
        Command::DemoChild(args) => {
            // The child writes frames, not text, and from many threads.
            drop(out);
            let Err(failure) = demo::child::run(args);
            return Err(failure);
        }
        Command::Info(args) => info::run(args, &mut out).map(|()| Exit::Success),
        Command::Dump(args) if args.follow => follow::run(args, &mut out).map(|()| Exit::Success),
        Command::Dump(args) => dump::run(args, &mut out).map(|()| Exit::Success),
        Command::Map(args) => map::run(args, &mut out).map(|()| Exit::Success),
        Command::Stat(args) => stat::run(args, &mut out).map(|()| Exit::Success),
        Command::Verify(args) => verify::run(args, &mut out),
        Command::Streams(args) => streams::run(args, &mut out),
        Command::Salvage(args) => salvage::run(args, &mut out),
        Command::Repair(args) => repair::run(args, &mut out).map(|()| Exit::Success),
        Command::Restore(args) => restore::restore(args, &mut out).map(|()| Exit::Success),
        Command::Backup(args) => restore::backup(args, &mut out).map(|()| Exit::Success),
        Command::Doctor(args) => doctor::run(args, &mut out).map(|()| Exit::Success),
        Command::DoctorGuard(args) => doctor::place::guard(args).map(|()| Exit::Success),
        Command::Completions(args) => {
            manual::completions(args, &Cli::command(), &mut out).map(|()| Exit::Success)
        }
        Command::Man(args) => manual::man(args, &Cli::command(), &mut out).map(|()| Exit::Success),
    }?;
    out.flush().map_err(Failure::output)?;
    Ok(exit)
}

/// Says what is wrong with the command line, or prints the help that it asks for.
fn misused(error: &clap::Error) -> ExitCode {
    if error.use_stderr()
        && io::stderr().is_terminal()
        && let Some(text) = exit::usage_for_terminal(error)
    {
        output::complain(text);
        return Exit::Usage.into();
    }
    error.exit()
}

/// Says what went wrong and decides the exit code.
fn report(failure: &Failure) -> Exit {
    let exit = failure.exit();
    if exit != Exit::Success {
        output::complain(failure.text(io::stderr().is_terminal()));
    }
    exit
}

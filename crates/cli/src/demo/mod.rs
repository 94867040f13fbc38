//! `palisade demo`: writes, is killed, opens again and checks.
//!
//! 1. The parent makes the log. It starts this program again as the writing process (`child`),
//!    which reports its records: each commit, or groups of `APPENDS_PER_WRITE` appends.
//! 2. The parent notes the reports and kills the process (`process`).
//! 3. The parent opens the log and compares every record with the reports (`content`, `check`).
//! 4. The next round continues with the same log.
//!
//! `fill` is another demonstration: a full disk.

mod check;
pub(crate) mod child;
pub(crate) mod content;
pub(crate) mod fill;
mod process;

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use palisade::{ErrorKind, OpenMode, Options, RecoveryReport, Wal};
use serde::Serialize;
use serde_json::json;

use self::check::{Check, Round};
use crate::args::{DemoArgs, Promise, log_options};
use crate::exit::Failure;
use crate::json;
use crate::progress::measuring;
use crate::units::{time, us};

/// The most violations that an error text names.
const NAMED_VIOLATIONS: usize = 16;

/// Runs all rounds and prints a line for each.
///
/// # Errors
/// `Check`: a reported record is missing or has moved, the log has a foreign record, or the open
/// refuses the log. Also `Check`: the writing process ended by itself. `Usage`: the folder is not
/// empty, the records are too large, or appends do not survive a kill. `Io`, `Log`: a file or the
/// log failed. `OutputClosed`: the output was closed.
pub(crate) fn run(args: &DemoArgs, out: &mut impl Write) -> Result<(), Failure> {
    let dir = folder(args.dir.as_deref())?;
    let bar = measuring((args.seconds * args.rounds).as_millis() as u64);
    let outcome = Demo { args, dir: &dir, seed: random(), rounds: Vec::new(), bar }.run(out);
    match outcome {
        Err(Failure::Check(text)) => {
            Err(Failure::Check(format!("{text}\nthe log stays in {}", dir.display())))
        }
        outcome if args.dir.is_some() => outcome,
        outcome => remove(&dir).and(outcome),
    }
}

/// Returns the folder that the user named, or one below `./target`. Makes it if it is missing, and
/// refuses it if it is not empty.
fn folder(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let own = || PathBuf::from(format!("target/palisade-demo/{}", std::process::id()));
    let path = named.map_or_else(own, Path::to_path_buf);
    let names = fs::create_dir_all(&path).and_then(|()| fs::read_dir(&path));
    if names.map_err(Failure::at("use", &path))?.next().is_none() {
        return Ok(path);
    }
    let text = "is not empty; the demo needs an empty folder or one that does not exist yet";
    Err(Failure::Usage(format!("{} {text}", path.display())))
}

/// Removes the folder below `./target`, and those above it if nothing else is in them.
fn remove(path: &Path) -> Result<(), Failure> {
    fs::remove_dir_all(path).map_err(Failure::at("remove", path))?;
    for folder in path.ancestors().skip(1) {
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

/// The state that all rounds share.
struct Demo<'a> {
    args: &'a DemoArgs,
    dir: &'a Path,
    seed: u64,
    /// The rounds that still have records in the log, oldest first.
    rounds: Vec<Round>,
    /// On standard error, if that is a terminal.
    bar: ProgressBar,
}

impl Demo<'_> {
    fn run(mut self, out: &mut impl Write) -> Result<(), Failure> {
        self.make()?;
        if !self.args.json {
            self.print_head(out).map_err(Failure::output)?;
        }
        let mut results = Vec::new();
        for number in 1..=self.args.rounds {
            let (acknowledged, ran) = self.write(number)?;
            let (recovered, report, elapsed) = self.recover(number)?;
            let result = RoundResult {
                round: number,
                acknowledged,
                per_s: (acknowledged as f64 / ran.as_secs_f64()).round(),
                recovered,
                from_buffer: report.records_from_buffer,
                torn_bytes: report.torn_bytes,
                holes: report.holes_padded,
                recovery_us: us(elapsed),
            };
            if !self.args.json {
                let printed = self.bar.suspend(|| result.print(elapsed, out));
                printed.map_err(Failure::output)?;
            }
            results.push(result);
        }
        self.conclude(results, out).map_err(Failure::output)
    }

    fn print_head(&self, out: &mut impl Write) -> io::Result<()> {
        let DemoArgs { threads, record_bytes, seconds, promise, .. } = *self.args;
        let rate = match promise {
            Promise::Commit => "commits/s",
            Promise::Append => "appends/s",
        };
        let heads = ["round", rate, "recovered", "from buffer", "torn bytes", "holes", "recovery"];
        let after = time(seconds);
        writeln!(
            out,
            "{threads} threads, records of {record_bytes} bytes, killed after {after}\n"
        )?;
        print_row(out, heads)
    }

    fn conclude(&self, rounds: Vec<RoundResult>, out: &mut impl Write) -> io::Result<()> {
        let DemoArgs { threads, record_bytes, promise, .. } = *self.args;
        let acknowledged: u64 = rounds.iter().map(|round| round.acknowledged).sum();
        let recovered: u64 = rounds.iter().map(|round| round.recovered).sum();
        let promise = promise.word();
        if self.args.json {
            // The help documents the names: they stay.
            let report = json!({
                "threads": threads,
                "record_bytes": record_bytes,
                "promise": promise,
                "acknowledged": acknowledged,
                "recovered": recovered,
                "rounds": rounds,
            });
            return json::print(out, &report);
        }
        writeln!(
            out,
            "\ncheck held: {} kills, {acknowledged} records reported after {promise}, none \
             missing; {} more came back; nothing foreign",
            rounds.len(),
            recovered - acknowledged,
        )
    }

    fn options(&self) -> Options {
        log_options(self.args.segment_bytes, self.args.buffer_bytes)
    }

    /// Makes the log, and refuses arguments with which the writer could not do its work.
    fn make(&self) -> Result<(), Failure> {
        let wal = self.options().open_mode(OpenMode::CreateNew).open(self.dir)?;
        let (bytes, most) = (self.args.record_bytes, wal.max_record_bytes());
        if bytes > most {
            let text = format!("a record of {bytes} bytes; at most {most} fit into this log");
            return Err(Failure::Usage(text));
        }
        if self.args.promise == Promise::Append && !wal.stats().appends_survive_kill {
            let text = "appends do not survive a kill, because there is no tmpfs at /dev/shm with \
                        room for a shared log buffer; use --promise commit";
            return Err(Failure::Usage(text.into()));
        }
        Ok(wal.close()?)
    }

    /// Runs the writing process and kills it. Returns how many records it reported, and for how
    /// long it wrote.
    fn write(&mut self, number: u32) -> Result<(u64, Duration), Failure> {
        let before = self.args.seconds * (number - 1);
        let tick = |records, ran| {
            self.bar.set_position((before + ran).as_millis() as u64);
            self.bar.set_message(format!("round {number}: {records} records reported"));
        };
        let seed = content::mix(self.seed.wrapping_add(u64::from(number)));
        let round = Round::new(number, seed, self.args.threads as usize);
        let (round, ran) = process::run(self.args, self.dir, round, tick)?;
        let records = round.records();
        self.bar.set_message(format!("round {number}: killed; checking {records} records"));
        self.rounds.push(round);
        Ok((records, ran))
    }

    /// Opens the log after a kill, checks every record and truncates old rounds. Returns how many
    /// records of this round came back, the report of the open, and its duration.
    fn recover(&mut self, number: u32) -> Result<(u64, RecoveryReport, Duration), Failure> {
        let start = Instant::now();
        let opened = self.options().open_mode(OpenMode::MustExist).open(self.dir);
        let wal = opened.map_err(|error| refused(number, error))?;
        let elapsed = start.elapsed();
        let mut check = Check::new(&self.rounds, self.args.record_bytes);
        let mut records = wal.records()?;
        while let Some(record) = records.next().map_err(|error| refused(number, error))? {
            let checked = check.record(record.lsn(), record.data());
            checked.map_err(|violation| broken(number, &[violation]))?;
        }
        self.rounds = check.finish().map_err(|violations| broken(number, &violations))?;
        let found = self.rounds.last().map_or(0, Round::records);
        let report = wal.recovery_report().clone();
        self.forget(&wal)?;
        wal.close()?;
        Ok((found, report, elapsed))
    }

    /// Truncates the log so that it keeps the last two rounds. Else a demo of many rounds would
    /// fill the disk.
    fn forget(&mut self, wal: &Wal) -> Result<(), Failure> {
        let old = self.rounds.len().saturating_sub(2);
        self.rounds.drain(..old);
        match self.rounds.iter().find_map(|round| round.first) {
            Some(first) if old > 0 => Ok(wal.truncate_before(first)?),
            _ => Ok(()),
        }
    }
}

/// An object of `rounds` in the output of `--json`. The help documents the names: they stay.
#[derive(Serialize)]
struct RoundResult {
    round: u32,
    acknowledged: u64,
    per_s: f64,
    recovered: u64,
    from_buffer: u64,
    torn_bytes: u64,
    holes: u64,
    recovery_us: f64,
}

impl RoundResult {
    fn print(&self, elapsed: Duration, out: &mut impl Write) -> io::Result<()> {
        let cells: [&dyn Display; 7] = [
            &self.round,
            &self.per_s,
            &self.recovered,
            &self.from_buffer,
            &self.torn_bytes,
            &self.holes,
            &time(elapsed),
        ];
        print_row(out, cells.map(|cell| cell.to_string()))
    }
}

fn print_row(out: &mut impl Write, cells: [impl Display; 7]) -> io::Result<()> {
    for (cell, width) in cells.iter().zip([5, 11, 11, 13, 12, 7, 11]) {
        write!(out, "{cell:>width$}")?;
    }
    writeln!(out)?;
    out.flush()
}

/// Returns the failure for `error`, with which an open or a read after a kill failed.
fn refused(number: u32, error: palisade::Error) -> Failure {
    use ErrorKind::{Corrupt, Foreign, Mismatch, NotFound, Unsupported};
    let is_violation =
        matches!(error.kind(), Corrupt | Foreign | Mismatch | NotFound | Unsupported);
    match Failure::Log(error) {
        error if is_violation => {
            let text = "after the kill the log cannot be opened or read";
            Failure::Check(format!("round {number}: {text}: {error}"))
        }
        error => error,
    }
}

fn broken(number: u32, violations: &[String]) -> Failure {
    let named = violations[..violations.len().min(NAMED_VIOLATIONS)].join("\n  ");
    let text = format!("the check after the kill of round {number} does not hold");
    Failure::Check(format!("{text}; violations: {}\n  {named}", violations.len()))
}

/// Returns 64 bits that differ from run to run.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

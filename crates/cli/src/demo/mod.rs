//! `palisade demo`: writes, is killed, opens again and checks.
//!
//! 1. The parent makes the log. It starts this program again as the writing process (`child`),
//!    which reports its records: each commit, or groups of `APPENDS_PER_WRITE` appends.
//! 2. The parent notes the reports and kills the process (`process`).
//! 3. The parent opens the log and compares every record with the reports (`content`, `check`).
//! 4. The next round continues with the same log.

mod check;
pub(crate) mod child;
pub(crate) mod content;
mod process;

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use palisade::{ErrorKind, OpenMode, Options, RecoveryReport, Wal};

use self::check::{Check, Round};
use crate::args::{DemoArgs, DemoLoad, Promise};
use crate::exit::Failure;
use crate::units::{text_of, us};

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
    let outcome = Demo { args, dir: &dir, seed: random(), rounds: Vec::new() }.run(out);
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
    Err(Failure::usage(format!("{} {text}", path.display())))
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
}

impl Demo<'_> {
    fn run(mut self, out: &mut impl Write) -> Result<(), Failure> {
        self.make()?;
        self.print_head(out).map_err(Failure::output)?;
        let (mut all_reported, mut all_found) = (0, 0);
        for number in 1..=self.args.rounds {
            let (reported, ran) = self.write(number)?;
            let (found, report, elapsed) = self.recover(number)?;
            all_reported += reported;
            all_found += found;
            let cells: [&dyn Display; 7] = [
                &number,
                &(reported as f64 / ran.as_secs_f64()).round(),
                &found,
                &report.records_from_buffer,
                &report.torn_bytes,
                &report.holes_padded,
                &text_of(us(elapsed)),
            ];
            print_row(out, cells).map_err(Failure::output)?;
        }
        let (kills, promise) = (self.args.rounds, self.args.load.promise.word());
        let concluded = writeln!(
            out,
            "\ncheck held: {kills} kills, {all_reported} records reported after {promise}, none \
             missing; {} more came back; nothing foreign",
            all_found - all_reported,
        );
        concluded.map_err(Failure::output)
    }

    fn print_head(&self, out: &mut impl Write) -> io::Result<()> {
        let DemoLoad { threads, record_bytes, promise, .. } = self.args.load;
        let after = text_of(us(self.args.seconds));
        writeln!(
            out,
            "{threads} threads, records of {record_bytes} bytes, killed after {after}\n"
        )?;
        let rate = format!("{}s/s", promise.word());
        let cells: [&dyn Display; 7] =
            [&"round", &rate, &"recovered", &"from buffer", &"torn bytes", &"holes", &"recovery"];
        print_row(out, cells)
    }

    fn options(&self) -> Options {
        let DemoArgs { segment_bytes, load: DemoLoad { buffer_bytes, .. }, .. } = *self.args;
        Options::new().segment_bytes(segment_bytes).buffer_bytes(buffer_bytes)
    }

    /// Makes the log, and refuses arguments with which the writer could not do its work.
    fn make(&self) -> Result<(), Failure> {
        let wal = self.options().open_mode(OpenMode::CreateNew).open(self.dir)?;
        let (bytes, most) = (self.args.load.record_bytes, wal.max_record_bytes());
        if bytes > most {
            let text = format!("a record of {bytes} bytes; at most {most} fit into this log");
            return Err(Failure::usage(text));
        }
        if self.args.load.promise == Promise::Append && !wal.stats().appends_survive_kill {
            let text = "appends do not survive a kill, because there is no tmpfs at /dev/shm with \
                        room for a shared log buffer; use --promise commit";
            return Err(Failure::usage(text));
        }
        Ok(wal.close()?)
    }

    /// Runs the writing process and kills it. Returns how many records it reported, and for how
    /// long it wrote.
    fn write(&mut self, number: u32) -> Result<(u64, Duration), Failure> {
        let seed = content::mix(self.seed.wrapping_add(u64::from(number)));
        let round = Round::new(number, seed, self.args.load.threads as usize);
        let (round, ran) = process::run(self.args, self.dir, round)?;
        let records = round.records();
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
        let mut check = Check::new(&self.rounds, self.args.load.record_bytes);
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

fn print_row(out: &mut impl Write, cells: [&dyn Display; 7]) -> io::Result<()> {
    for (cell, width) in cells.iter().zip([5, 11, 11, 13, 12, 7, 11]) {
        write!(out, "{:>width$}", cell.to_string())?;
    }
    writeln!(out)?;
    out.flush()
}

/// Returns the failure for `error`, with which an open or a read after a kill failed.
fn refused(number: u32, error: palisade::Error) -> Failure {
    use ErrorKind::{Corrupt, Foreign, Mismatch, NotFound, Unsupported};
    match error.kind() {
        Corrupt | Foreign | Mismatch | NotFound | Unsupported => {
            broken(number, &[format!("the log cannot be opened or read: {}", error.finding())])
        }
        _ => error.into(),
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

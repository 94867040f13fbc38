//! `palisade demo`: writes, is killed, opens again and checks.
//!
//! The parent starts this program again as the writing process (`child`), listens to what it
//! reports as acknowledged (`frames`, `ledger`), kills it (`life`), opens the log and compares
//! every record (`content`, `check`). `fill` is another demonstration: a full disk. Each round goes on with the log of the one before.

mod check;
pub(crate) mod child;
pub(crate) mod content;
pub(crate) mod fill;
mod floor;
mod folder;
mod frames;
mod latency;
mod ledger;
mod life;
mod table;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use palisade::{ErrorKind, Wal};

use self::check::{Check, Found, Violation};
use self::folder::Folder;
use self::ledger::Round;
use self::life::Life;
use self::table::{Figures, Recovery};
use crate::args::{DemoArgs, log_options};
use crate::exit::Failure;

/// How many violations are named before it is enough.
const NAMED_VIOLATIONS: usize = 16;

/// Runs all rounds and prints the table.
///
/// # Errors
/// `Check` if anything acknowledged is missing or anything foreign is there.
pub(crate) fn run(args: &DemoArgs, out: &mut impl Write) -> Result<(), Failure> {
    let folder = Folder::choose(args.dir.as_deref())?;
    let outcome = run_in(args, folder.path(), out);
    if let Err(Failure::Check(text)) = outcome {
        let path = folder.path().display();
        return Err(Failure::Check(format!("{text}\nthe log stays in {path}")));
    }
    folder.remove()?;
    outcome
}

fn run_in(args: &DemoArgs, dir: &Path, out: &mut impl Write) -> Result<(), Failure> {
    let floor = floor::measure(dir, args.record_bytes)?;
    let progress = Progress::new(args);
    let mut demo = Demo { args, dir, seed: random(), rounds: Vec::new() };
    let mut all = Vec::new();
    for number in 1..=args.rounds {
        all.push(demo.round(number, &progress)?);
    }
    drop(progress);
    table::print(out, args, floor, &all).map_err(Failure::output)
}

/// What goes on from round to round.
struct Demo<'a> {
    args: &'a DemoArgs,
    dir: &'a Path,
    seed: u64,
    // Those of which records are still in the log.
    rounds: Vec<Round>,
}

impl Demo<'_> {
    fn round(&mut self, number: u32, progress: &Progress) -> Result<Figures, Failure> {
        let seed = content::mix(self.seed.wrapping_add(u64::from(number)));
        let fresh = Round::new(number, seed, self.args.threads);
        let Life { round, lived, measured } =
            life::live(self.args, self.dir, fresh, |lived, acknowledged| {
                progress.living(number, lived, acknowledged);
            })?;
        let acknowledged = round.acknowledged();
        progress.checking(number, acknowledged);
        self.rounds.push(round);
        let recovery = self.recover(number)?;
        Ok(Figures::new(number, acknowledged, lived, measured, recovery))
    }

    /// Opens the log after a kill, checks all that is in it and drops what is old.
    fn recover(&mut self, number: u32) -> Result<Recovery, Failure> {
        let start = Instant::now();
        let options = log_options(self.args.segment_bytes, self.args.buffer_bytes);
        let opened = options.must_exist(true).open(self.dir);
        let wal = opened.map_err(|error| refused(number, error))?;
        let elapsed = start.elapsed();
        let found = self.check(number, &wal)?;
        let report = wal.recovery_report();
        let recovery = Recovery {
            records: found.last().map_or(0, Found::records),
            records_from_buffer: report.records_from_buffer,
            torn_bytes: report.torn_bytes,
            holes_padded: report.holes_padded,
            elapsed,
        };
        if let (Some(round), Some(found)) = (self.rounds.last_mut(), found.last()) {
            round.settle(found);
        }
        self.forget(&wal)?;
        wal.close()?;
        Ok(recovery)
    }

    fn check(&self, number: u32, wal: &Wal) -> Result<Vec<Found>, Failure> {
        let mut check = Check::new(&self.rounds, self.args.record_bytes);
        let mut records = wal.iter()?;
        while let Some(record) = records.next().map_err(|error| refused(number, error))? {
            check.record(&record).map_err(|violation| broken(number, &[violation]))?;
        }
        check.finish().map_err(|violations| broken(number, &violations))
    }

    /// Truncates the log so that it keeps the last two rounds and a day of rounds fits the disk.
    fn forget(&mut self, wal: &Wal) -> Result<(), Failure> {
        let old = self.rounds.len().saturating_sub(2);
        if old == 0 {
            return Ok(());
        }
        self.rounds.drain(..old);
        match self.rounds.iter().find_map(|round| round.first) {
            Some(first) => Ok(wal.truncate_before(first)?),
            None => Ok(()),
        }
    }
}

/// The failure that it is when the log cannot be opened or read after a kill.
fn refused(number: u32, error: palisade::Error) -> Failure {
    match error.kind() {
        ErrorKind::Corrupt
        | ErrorKind::NotFound
        | ErrorKind::Foreign
        | ErrorKind::Unsupported
        | ErrorKind::Mismatch => {
            let error = Failure::Log(error);
            Failure::Check(format!("round {number}: after the kill the log is refused: {error}"))
        }
        _ => Failure::Log(error),
    }
}

fn broken(number: u32, violations: &[Violation]) -> Failure {
    let mut text = format!("the check after the kill of round {number} does not hold:");
    for violation in violations.iter().take(NAMED_VIOLATIONS) {
        text.push_str(&format!("\n  {violation}"));
    }
    if let Some(more) = violations.len().checked_sub(NAMED_VIOLATIONS).filter(|more| *more > 0) {
        text.push_str(&format!("\n  and {more} more"));
    }
    Failure::Check(text)
}

/// 64 bits that differ from run to run.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A bar on standard error, if that is a terminal.
struct Progress {
    bar: ProgressBar,
    life: Duration,
}

impl Progress {
    fn new(args: &DemoArgs) -> Progress {
        let total = args.seconds * args.rounds;
        let bar = ProgressBar::new(total.as_millis() as u64);
        let style = ProgressStyle::with_template("{bar:30} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Progress { bar, life: args.seconds }
    }

    fn living(&self, number: u32, lived: Duration, acknowledged: u64) {
        let before = self.life * (number - 1);
        self.bar.set_position((before + lived).as_millis() as u64);
        self.bar.set_message(format!("round {number}: {acknowledged} records acknowledged"));
    }

    fn checking(&self, number: u32, acknowledged: u64) {
        self.bar.set_position((self.life * number).as_millis() as u64);
        self.bar.set_message(format!("round {number}: killed; checking {acknowledged} records"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

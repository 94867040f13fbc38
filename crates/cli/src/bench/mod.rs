//! `palisade bench`: what a log in a folder does, against a raw sync of the same disk.
//!
//! 1. `place` refuses a folder that does not fit, and makes the folder `palisade-bench` in it.
//! 2. `load` runs all workloads in turns, for several rounds, on one log with default options.
//! 3. `figures` takes the medians, and `verdict` says what they mean.
//! 4. `place` removes the folder. If this process is killed, a process of its own does it.

mod figures;
mod load;
pub(crate) mod place;
mod verdict;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use palisade::file_system;
use serde_json::{Value, json};

use self::figures::{Figure, Workload};
use self::load::Load;
use self::place::Place;
use crate::args;
use crate::doctor::probe::RECORD_BYTES;
use crate::exit::Failure;
use crate::json;
use crate::progress::measuring;
use crate::units::{print_measured, time, us};

pub(crate) const EXAMPLES: &str = "\
Examples:
  palisade bench /var/lib/db
  palisade bench --seconds 10 /mnt/disk
  palisade bench --json /mnt/disk | jq '.workloads[] | select(.threads == 64).ratio'

Runs a log with default options in the folder `palisade-bench`, which it makes in DIR and removes at
the end, also after Ctrl-C. Says how fast 1, 8 and 64 threads commit, how fast one thread appends
without a commit, and how fast it reads the records back from the page cache. All workloads take
turns, in 15 rounds after one to warm up; the figures are medians. The column `x raw` compares a
rate with that of raw syncs in the same round: a write of a record and `fdatasync`, as
`palisade doctor` measures it. Take the figures on an idle machine.

Refuses a folder with less than 1 GiB of free space, the folder of a log that a process has open,
and a folder in which another bench runs.

Fields of --json; all but dir, file_system, workload and verdict are numbers, or null:
  dir, file_system       text; file_system is null if it is not known
  seconds, rounds, record_bytes
                         how the figures were taken
  workloads              an object for each, with workload (`raw_sync`, `commit`, `append` or
                         `scan`), threads, per_s (syncs or records), ratio (to raw_sync), p50_us and
                         p99_us (of raw_sync and commit), records_per_sync (of commit)
  verdict                a list of lines

Exit codes: 0 measured, 2 wrong usage, 3 the folder is in use or lacks space, or input or output
failed.";

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// A folder on the disk in question.
    dir: PathBuf,
    /// How long to measure, all rounds together; preparations come on top.
    #[arg(long, default_value = "45", value_parser = args::seconds)]
    seconds: Duration,
    /// One JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Measures all workloads and prints them with the verdict.
///
/// # Errors
/// Those of `Place::make`. `Io`, `Log`: a file or the log failed. Those of `out`.
pub(crate) fn run(args: &BenchArgs, out: &mut impl Write) -> Result<(), Failure> {
    let place = Place::make(&args.dir)?;
    let rounds = measure(&place, args.seconds)?;
    place.remove()?;
    let figures = figures::of(&rounds);
    let file_system = file_system(&args.dir);
    let verdict = verdict::of(file_system.as_deref(), &figures);
    let printed = if args.json {
        // The help documents the names: they stay.
        let report = json!({
            "dir": args.dir.display().to_string(),
            "file_system": file_system,
            "seconds": args.seconds.as_secs_f64(),
            "rounds": figures::ROUNDS,
            "record_bytes": RECORD_BYTES,
            "workloads": figures.iter().map(object).collect::<Value>(),
            "verdict": verdict,
        });
        json::print(out, &report)
    } else {
        let table = |out: &mut _| print_table(out, &figures);
        print_measured(out, &args.dir, file_system.as_deref(), table, &verdict)
    };
    printed.map_err(Failure::output)
}

/// Runs all rounds. The first warms up: its results are not returned.
fn measure(place: &Place, seconds: Duration) -> Result<Vec<figures::RoundSamples>, Failure> {
    let all = (figures::ROUNDS + 1) * Workload::timed();
    let bar = measuring(all.into());
    let mut rounds = Vec::new();
    let mut load = Load::new(place.path(), &place.log(), seconds / all)?;
    for round in 0..=figures::ROUNDS {
        let name = match round {
            0 => "warming up".into(),
            round => format!("round {round} of {}", figures::ROUNDS),
        };
        rounds.push(load.round(|workload| {
            bar.set_message(format!("{name}: {}", workload.name()));
            bar.inc(u64::from(workload.is_timed()));
        })?);
    }
    load.close()?;
    rounds.remove(0);
    Ok(rounds)
}

fn print_table(out: &mut impl Write, figures: &[Figure]) -> io::Result<()> {
    let title = format!("records of {RECORD_BYTES} bytes");
    writeln!(out, "{title:32} {:>12} {:>10} {:>10} {:>10}", "per second", "x raw", "p50", "p99")?;
    for Figure { workload, per_s, ratio, p50, p99, .. } in figures {
        let digits = if *ratio < 100.0 { 2 } else { 0 };
        let or_dash = |wait: &Option<Duration>| wait.map_or("-".into(), time);
        let (p50, p99) = (or_dash(p50), or_dash(p99));
        writeln!(
            out,
            "{:32} {per_s:>12.0} {ratio:>10.digits$} {p50:>10} {p99:>10}",
            workload.name()
        )?;
    }
    Ok(())
}

fn object(figure: &Figure) -> Value {
    json!({
        "workload": figure.workload.word(),
        "threads": figure.workload.threads(),
        "per_s": figure.per_s,
        "ratio": figure.ratio,
        "p50_us": figure.p50.map(us),
        "p99_us": figure.p99.map(us),
        "records_per_sync": figure.records_per_sync,
    })
}

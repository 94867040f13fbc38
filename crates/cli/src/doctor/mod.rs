//! `palisade doctor`: what a sync costs in a folder, and what a log does there.
//!
//! 1. `place` refuses a folder that does not fit, and makes the folder `palisade-doctor` in it.
//! 2. `load` runs all workloads in turns, for several rounds, on one log with default options.
//! 3. `probe` measures each way of making one write durable.
//! 4. `figures` takes the medians, and `verdict` explains what all of it means.
//! 5. `place` removes the folder. If this process is killed, a process of its own does it.

mod figures;
mod load;
pub(crate) mod place;
mod probe;
mod verdict;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use palisade::file_system;
use serde_json::{Value, json};

use self::figures::{Figure, RoundSamples, Workload};
use self::load::Load;
use self::place::Place;
use self::probe::{Cost, RECORD_BYTES, WAYS, Way};
use self::verdict::Costs;
use crate::args;
use crate::exit::Failure;
use crate::json;
use crate::progress::measuring;
use crate::units::{print_measured, time, us};

pub(crate) const EXAMPLES: &str = "\
Examples:
  palisade doctor /var/lib/db
  palisade doctor --seconds 10 /mnt/disk
  palisade doctor --json /mnt/disk | jq '.workloads[] | select(.threads == 64).ratio'

Works in the folder `palisade-doctor`, which it makes in DIR and removes at the end, also after
Ctrl-C. Measures each way of making one write durable, and a log with default options: how fast 1, 8
and 64 threads commit, how fast one thread appends without a commit, and how fast it reads the
records back from the page cache. These workloads take turns, in 15 rounds after one to warm up; the
figures are medians. The column `x raw` compares a rate with that of raw syncs in the same round: a
write of a record and `fdatasync`. Take the figures on an idle machine.

Refuses a folder with less than 1 GiB of free space, the folder of a log that a process has open,
and a folder in which another doctor runs.

Fields of --json; all but dir, file_system, way, workload and verdict are numbers, or null:
  dir, file_system       text; file_system is null if it is not known
  seconds, rounds, record_bytes
                         how the figures were taken
  ways                   an object for each way, with way, writes, per_s, p50_us and p99_us: null if
                         this system lacks the way
  workloads              an object for each, with workload (`raw_sync`, `commit`, `append` or
                         `scan`), threads, per_s (syncs or records), ratio (to raw_sync), p50_us and
                         p99_us (of raw_sync and commit), records_per_sync (of commit)
  verdict                a list of lines

Exit codes: 0 measured, 2 wrong usage, 3 the folder is in use or lacks space, or input or output
failed.";

/// The share of the time that the ways take.
const SHARE_OF_WAYS: u32 = 10;

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// A folder on the disk in question.
    dir: PathBuf,
    /// How long to measure, all together; preparations come on top.
    #[arg(long, default_value = "45", value_parser = args::seconds)]
    seconds: Duration,
    /// One JSON object instead of the tables.
    #[arg(long)]
    json: bool,
}

/// Measures the disk and a log on it, and prints both with the verdict.
///
/// # Errors
/// Those of `Place::make`. `Io`, `Log`: a file or the log failed. Those of `out`.
pub(crate) fn run<W: Write>(args: &DoctorArgs, out: &mut W) -> Result<(), Failure> {
    let place = Place::make(&args.dir)?;
    let for_ways = args.seconds / SHARE_OF_WAYS;
    let rounds = measure_log(&place, args.seconds - for_ways)?;
    let costs = measure_ways(place.path(), for_ways)?;
    place.remove()?;
    let figures = figures::of(&rounds);
    let file_system = file_system(&args.dir);
    let verdict = verdict::of(file_system.as_deref(), &costs, &figures);
    let printed = if args.json {
        // The help documents the names: they stay.
        let report = json!({
            "dir": args.dir.display().to_string(),
            "file_system": file_system,
            "seconds": args.seconds.as_secs_f64(),
            "rounds": figures::ROUNDS,
            "record_bytes": RECORD_BYTES,
            "ways": costs.iter().map(way_object).collect::<Value>(),
            "workloads": figures.iter().map(workload_object).collect::<Value>(),
            "verdict": verdict,
        });
        json::print(out, &report)
    } else {
        let tables = |out: &mut W| {
            print_ways(out, &costs)?;
            writeln!(out)?;
            print_workloads(out, &figures)
        };
        print_measured(out, &args.dir, file_system.as_deref(), tables, &verdict)
    };
    printed.map_err(Failure::output)
}

fn measure_ways(folder: &Path, time: Duration) -> Result<Vec<(Way, Option<Cost>)>, Failure> {
    let bar = measuring(WAYS.len() as u64);
    let each = time / WAYS.len() as u32;
    let mut costs = Vec::new();
    for way in WAYS {
        bar.set_message(way.name());
        let cost = match way.measure(folder, each) {
            Ok(cost) => Some(cost),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => {
                let what = format!("measure \"{}\" in", way.name());
                return Err(Failure::at(&what, folder)(error));
            }
        };
        costs.push((way, cost));
        bar.inc(1);
    }
    Ok(costs)
}

/// Runs all rounds. The first warms up: its results are not returned.
fn measure_log(place: &Place, seconds: Duration) -> Result<Vec<RoundSamples>, Failure> {
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

fn print_ways(out: &mut impl Write, costs: &Costs) -> io::Result<()> {
    writeln!(out, "{:44} {:>10} {:>10} {:>10}", "each write durable", "per second", "p50", "p99")?;
    for (way, cost) in costs {
        write!(out, "{:44} ", way.name())?;
        match cost {
            Some(Cost { per_s, p50, p99, .. }) => {
                writeln!(out, "{per_s:>10.0} {:>10} {:>10}", time(*p50), time(*p99))?;
            }
            None => writeln!(out, "{:>10}", "not here")?,
        }
    }
    Ok(())
}

fn print_workloads(out: &mut impl Write, figures: &[Figure]) -> io::Result<()> {
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

fn way_object((way, cost): &(Way, Option<Cost>)) -> Value {
    json!({
        "way": way.name(),
        "writes": cost.map(|cost| cost.writes),
        "per_s": cost.map(|cost| cost.per_s),
        "p50_us": cost.map(|cost| us(cost.p50)),
        "p99_us": cost.map(|cost| us(cost.p99)),
    })
}

fn workload_object(figure: &Figure) -> Value {
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

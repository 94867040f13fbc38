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
use self::probe::{Cost, RECORD_BYTES, WAYS};
use crate::args;
use crate::exit::Failure;
use crate::output;
use crate::progress::measuring;
use crate::units::text_of;

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
pub(crate) fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<(), Failure> {
    let place = Place::make(&args.dir)?;
    let for_ways = args.seconds / SHARE_OF_WAYS;
    let rounds = measure_log(&place, args.seconds - for_ways)?;
    let costs = measure_ways(&place.path, for_ways)?;
    place.remove()?;
    let figures = figures::of(&rounds);
    let file_system = file_system(&args.dir);
    let verdict = verdict::of(file_system.as_deref(), &costs, &figures);
    // The help documents the names: they stay.
    let object = args.json.then(|| {
        json!({
            "dir": args.dir.display().to_string(),
            "file_system": file_system,
            "seconds": args.seconds.as_secs_f64(),
            "rounds": figures::ROUNDS,
            "record_bytes": RECORD_BYTES,
            "ways": WAYS.iter().zip(&costs).map(|(way, cost)| way_object(way.name, *cost))
                .collect::<Value>(),
            "workloads": figures.iter().map(workload_object).collect::<Value>(),
            "verdict": verdict,
        })
    });
    output::print(out, object, |out| {
        let file_system = file_system.as_deref().unwrap_or("file system not known");
        writeln!(out, "{} ({file_system})\n", args.dir.display())?;
        print_ways(out, &costs)?;
        writeln!(out)?;
        print_workloads(out, &figures)?;
        writeln!(out)?;
        verdict.iter().try_for_each(|line| writeln!(out, "- {line}"))
    })
}

/// Measures all ways. The cost of a way that this system lacks is `None`.
fn measure_ways(folder: &Path, time: Duration) -> Result<Vec<Option<Cost>>, Failure> {
    let bar = measuring(WAYS.len() as u64);
    let mut costs = Vec::new();
    for way in WAYS {
        bar.set_message(way.name);
        let cost = match way.measure(folder, time / WAYS.len() as u32) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            cost => Some(cost.map_err(Failure::at(&format!("measure {} in", way.name), folder))?),
        };
        costs.push(cost);
        bar.inc(1);
    }
    Ok(costs)
}

/// Runs all rounds. The first warms up: its results are not returned.
fn measure_log(place: &Place, seconds: Duration) -> Result<Vec<RoundSamples>, Failure> {
    let all = (figures::ROUNDS + 1) * Workload::ALL.len() as u32;
    // A scan lasts until the records end, the others for a given time.
    let timed = all - (figures::ROUNDS + 1);
    let bar = measuring(all.into());
    let mut rounds = Vec::new();
    let mut load = Load::new(&place.path, seconds / timed)?;
    for round in 0..=figures::ROUNDS {
        let name = match round {
            0 => "warming up".into(),
            round => format!("round {round} of {}", figures::ROUNDS),
        };
        rounds.push(load.round(|workload| {
            bar.set_message(format!("{name}: {}", workload.name()));
            bar.inc(1);
        })?);
    }
    rounds.remove(0);
    Ok(rounds)
}

fn print_ways(out: &mut impl Write, costs: &[Option<Cost>]) -> io::Result<()> {
    writeln!(out, "{:44} {:>10} {:>10} {:>10}", "each write durable", "per second", "p50", "p99")?;
    for (way, cost) in WAYS.iter().zip(costs) {
        let Some(Cost { per_s, p50_us, p99_us, .. }) = *cost else {
            writeln!(out, "{:44} {:>10}", way.name, "not here")?;
            continue;
        };
        let (p50, p99) = (text_of(p50_us), text_of(p99_us));
        writeln!(out, "{:44} {per_s:>10.0} {p50:>10} {p99:>10}", way.name)?;
    }
    Ok(())
}

fn print_workloads(out: &mut impl Write, figures: &[Figure]) -> io::Result<()> {
    let title = format!("records of {RECORD_BYTES} bytes");
    writeln!(out, "{title:32} {:>12} {:>10} {:>10} {:>10}", "per second", "x raw", "p50", "p99")?;
    for Figure { workload, per_s, ratio, p50_us, p99_us, .. } in figures {
        let name = workload.name();
        let digits = if *ratio < 100.0 { 2 } else { 0 };
        let [p50, p99] = [p50_us, p99_us].map(|time| time.map_or("-".into(), text_of));
        writeln!(out, "{name:32} {per_s:>12.0} {ratio:>10.digits$} {p50:>10} {p99:>10}")?;
    }
    Ok(())
}

fn way_object(way: &str, cost: Option<Cost>) -> Value {
    json!({
        "way": way,
        "writes": cost.map(|cost| cost.calls),
        "per_s": cost.map(|cost| cost.per_s),
        "p50_us": cost.map(|cost| cost.p50_us),
        "p99_us": cost.map(|cost| cost.p99_us),
    })
}

fn workload_object(figure: &Figure) -> Value {
    json!({
        "workload": figure.workload.word(),
        "threads": figure.workload.threads(),
        "per_s": figure.per_s,
        "ratio": figure.ratio,
        "p50_us": figure.p50_us,
        "p99_us": figure.p99_us,
        "records_per_sync": figure.records_per_sync,
    })
}

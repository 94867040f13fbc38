//! `palisade doctor`: what a sync costs in a folder, and what that means for a log there.

pub(crate) mod probe;
pub(crate) mod verdict;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use palisade::file_system;
use serde_json::{Value, json};

use self::probe::{Cost, WAYS, Way};
use self::verdict::Costs;
use crate::args;
use crate::exit::Failure;
use crate::json;
use crate::progress::measuring;
use crate::units::{print_measured, time, us};

pub(crate) const EXAMPLES: &str = "\
Examples:
  palisade doctor /var/lib/db
  palisade doctor --seconds 30 --json /mnt/disk

Writes and syncs files of 16 MiB in the folder, one after the other, by each way of making a write
durable, and says what a log there can expect. Take the figures on an idle machine: whatever else
uses the device slows them. The files lose their names at once; a log in the folder is not touched.

Fields of --json:
  dir, file_system       text; file_system is null if it is not known
  ways                   an object for each way, with way (text), writes, per_s, p50_us and p99_us:
                         numbers, or null if this system lacks the way
  verdict                a list of lines

Exit codes: 0 measured, 2 wrong usage, 3 input or output failed.";

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// A folder on the disk in question.
    dir: PathBuf,
    /// How long to measure, all ways together.
    #[arg(long, default_value = "4", value_parser = args::seconds)]
    seconds: Duration,
    /// One JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Measures all ways in turn and prints them with the verdict.
///
/// # Errors
/// `Usage` if there is no such folder. `Io` if files cannot be made, written or synced there; all
/// probe files are gone in any case. Those of `out`.
pub(crate) fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<(), Failure> {
    if !args.dir.is_dir() {
        return Err(Failure::no_folder(&args.dir));
    }
    let costs = measure(args)?;
    let file_system = file_system(&args.dir);
    let verdict = verdict::of(file_system.as_deref(), &costs);
    let printed = if args.json {
        // The help documents the names: they stay.
        let report = json!({
            "dir": args.dir.display().to_string(),
            "file_system": file_system,
            "ways": costs.iter().map(object).collect::<Value>(),
            "verdict": verdict,
        });
        json::print(out, &report)
    } else {
        let table = |out: &mut _| print_table(out, &costs);
        print_measured(out, &args.dir, file_system.as_deref(), table, &verdict)
    };
    printed.map_err(Failure::output)
}

fn measure(args: &DoctorArgs) -> Result<Vec<(Way, Option<Cost>)>, Failure> {
    let bar = measuring(WAYS.len() as u64);
    let each = args.seconds / WAYS.len() as u32;
    let mut costs = Vec::new();
    for way in WAYS {
        bar.set_message(way.name());
        let cost = match way.measure(&args.dir, each) {
            Ok(cost) => Some(cost),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => {
                let what = format!("measure \"{}\" in", way.name());
                return Err(Failure::at(&what, &args.dir)(error));
            }
        };
        costs.push((way, cost));
        bar.inc(1);
    }
    Ok(costs)
}

fn print_table(out: &mut impl Write, costs: &Costs) -> io::Result<()> {
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

fn object((way, cost): &(Way, Option<Cost>)) -> Value {
    json!({
        "way": way.name(),
        "writes": cost.map(|cost| cost.writes),
        "per_s": cost.map(|cost| cost.per_s),
        "p50_us": cost.map(|cost| us(cost.p50)),
        "p99_us": cost.map(|cost| us(cost.p99)),
    })
}

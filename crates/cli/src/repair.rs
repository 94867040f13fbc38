//! `palisade repair`: copies what lies below the damage into a new log.

use std::io::{self, Write};

use palisade::{Repair, RepairReport};

use crate::args::RepairArgs;
use crate::exit::Failure;
use crate::progress::{Progress, check_empty};

/// Copies the records below the LSN that the arguments name; the damaged log is not changed.
///
/// # Errors
/// Those of reading the log, of writing the copy, and of `out`.
pub(crate) fn run(args: &RepairArgs, out: &mut impl Write) -> Result<(), Failure> {
    if let Some(into) = args.into.as_deref().filter(|_| !args.dry_run) {
        check_empty(into)?;
    }
    let progress = Progress::new();
    let repair = Repair::plan(&args.dir, args.from, &mut |step| progress.show(step));
    drop(progress);
    let repair = repair?;
    announce(out, args, repair.report()).map_err(Failure::output)?;
    let Some(into) = args.into.as_deref().filter(|_| !args.dry_run) else {
        return writeln!(out, "nothing was written: this was a dry run").map_err(Failure::output);
    };
    let progress = Progress::new();
    let report = repair.write(into, &mut |step| progress.show(step));
    drop(progress);
    let report = report?;
    writeln!(
        out,
        "repaired   {}: the log ends at LSN {}; appends go on at LSN {}",
        into.display(),
        report.end,
        report.base
    )
    .map_err(Failure::output)
}

fn announce(out: &mut impl Write, args: &RepairArgs, report: &RepairReport) -> io::Result<()> {
    let RepairReport { end, from, given_up_to, records, given_up_records, .. } = *report;
    writeln!(out, "log        {}", args.dir.display())?;
    writeln!(out, "kept       {records} records, up to LSN {end}")?;
    writeln!(out, "given up   LSN {from} to {given_up_to}")?;
    writeln!(
        out,
        "of these   {given_up_records} records still validate: `palisade salvage {} --from {from}` \
         prints them",
        args.dir.display()
    )?;
    out.flush()
}

//! `palisade repair`: copies what lies below the damage into a new log.

use std::io::{self, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use palisade::{Error, ErrorKind, Repair, RepairProgress, RepairReport, RepairStep};

use crate::args::RepairArgs;
use crate::exit::Failure;

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

/// Refuses a folder for the copy that is not empty, before the log is read. The copy looks again.
fn check_empty(into: &Path) -> Result<(), Failure> {
    match into.read_dir().map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            let text = "the folder for the copy (--into) is not empty";
            let error = Error::new(ErrorKind::InvalidArgument, text).at_path(into);
            Err(error.with_advice("name one that is missing or empty").into())
        }
        // What is wrong with the path, if anything is, the copy says.
        _ => Ok(()),
    }
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

/// A bar on standard error, if that is a terminal. It goes away with the step.
#[derive(Debug)]
struct Progress(ProgressBar);

impl Progress {
    fn new() -> Progress {
        let style = ProgressStyle::with_template("{msg} {bar:30} {bytes} of {total_bytes}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Progress(ProgressBar::no_length().with_style(style))
    }

    fn show(&self, progress: RepairProgress) {
        self.0.set_message(match progress.step {
            RepairStep::Check => "checking",
            RepairStep::Count => "counting",
            _ => "copying",
        });
        self.0.set_length(progress.total);
        self.0.set_position(progress.done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

//! `palisade repair`: copies what lies below the damage into a new log.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use palisade::inspect::{BufferPlace, Inspector};
use palisade::{CopyReport, Error, ErrorKind, Lsn, Repair, check_apart};
use serde_json::{Value, json};

use crate::args::LogArgs;
use crate::exit::Failure;
use crate::output::{self, complain};
use crate::progress::in_steps;

pub(crate) const EXAMPLES: &str = "\
Examples:
  palisade repair ./log --from 65536 --dry-run
  palisade repair ./log --into ./repaired --from 65536

Copies the records of a damaged log that lie below an LSN into a new log. LSN is the first place
without a whole record, which `palisade verify --deep` prints as `end` and in `next`, or the LSN of
a record below it. The error after a higher LSN names that place. It can be above a `bad` place: if
only a segment's header is damaged, its records are whole. Everything from LSN on is given up, with
records that only the log buffer holds: a note on standard error names its file.

Stop the process that writes the log first. A log that a process has open for writing is refused,
also with --dry-run; and as long as the repair runs, no process can open the damaged log. Nothing is
written to it.

The folder of --into must be missing or empty and lie outside of the log. Every record is checked
before it is copied.
The new log has the LSNs and the identity of the old one, and never uses an LSN again: move it to
where the old one lay, and open it. A killed repair leaves a folder without `meta`, which cannot be
opened: remove it, and repair again.

Fields of --json; all but log, into and buffer_file are numbers:
  log, into              paths; into is null with --dry-run
  head, end              where the kept records begin and end
  records, bytes         how many are kept, and their bytes with headers and padding
  from, given_up_to      the LSNs that are given up
  given_up_records       records among them that still validate
  base, epoch            the LSN and the epoch in which appends continue
  buffer_file            the path of the log buffer of a killed process, or null

Exit codes: 0 repaired (or, with --dry-run, could be), 2 the LSN or the folder does not fit (or
other wrong usage), 3 the log is in use, or input or output failed, 4 the state or headers of the
log are damaged beyond repair.";

#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Folder for the new log: missing, or empty.
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    into: Option<PathBuf>,
    /// The first LSN that is given up (decimal, or hexadecimal after 0x).
    #[arg(long, value_name = "LSN")]
    from: Lsn,
    /// Say what would be kept and given up, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Copies the records below the LSN that the arguments name; the damaged log is not changed.
///
/// # Errors
/// Those of reading the log, of writing the copy, and of `out`.
pub(crate) fn run(args: &RepairArgs, out: &mut impl Write) -> Result<(), Failure> {
    let into = args.into.as_deref().filter(|_| !args.dry_run);
    into.map_or(Ok(()), |into| check_into(into, [&args.log.dir]))?;
    // Before the plan: the plan reports what is wrong with the log.
    let buffer_file = Inspector::open(&args.log.dir).ok().and_then(|log| buffer_of(&log));
    let repair = in_steps(|show| Repair::plan(&args.log.dir, args.from, show))?;
    if !args.log.json {
        announce(out, args, repair.report()).map_err(Failure::output)?;
    }
    let report = match into {
        Some(into) => in_steps(|show| repair.write(into, show))?,
        None => repair.report().clone(),
    };
    let object = args.log.json.then(|| object(args, into, &report, buffer_file.as_deref()));
    output::print(out, object, |out| conclude(out, into, &report))?;
    note_buffer(buffer_file.as_deref());
    Ok(())
}

/// Returns the file of the log buffer that a killed process left.
pub(crate) fn buffer_of(log: &Inspector) -> Option<PathBuf> {
    match log.buffer() {
        Ok(BufferPlace::Memory(path)) => Some(path),
        _ => None,
    }
}

/// Prints a note to standard error if the copied log has a log buffer.
pub(crate) fn note_buffer(file: Option<&Path>) {
    let Some(file) = file else { return };
    let note = "note: the log was not closed; records that only its log buffer has are not in the \
                copy";
    complain(format_args!("{note}: {}", file.display()));
}

/// Refuses a path for the copy that does not fit, before a source is read. The copy looks again.
pub(crate) fn check_into<'a>(
    into: &Path,
    sources: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let refused = match into.read_dir().map(|mut entries| entries.next().is_some()) {
        Ok(true) => "the folder for the copy (--into) is not empty",
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            "the path for the copy (--into) is no folder"
        }
        // The copy reports what else is wrong with the path.
        _ => return Ok(sources.into_iter().try_for_each(|source| check_apart(source, into))?),
    };
    let error = Error::new(ErrorKind::InvalidArgument, refused).at_path(into);
    Err(error.with_advice("name one that is missing or empty").into())
}

/// Prints what is kept and given up, before anything is written.
fn announce(out: &mut impl Write, args: &RepairArgs, report: &CopyReport) -> io::Result<()> {
    let CopyReport { end, given_up_to, records, given_up_records, .. } = report;
    let (log, from) = (args.log.dir.display(), args.from);
    writeln!(out, "log        {log}")?;
    writeln!(out, "kept       {records} records, up to LSN {end}")?;
    writeln!(out, "given up   LSN {from} to {given_up_to}")?;
    writeln!(
        out,
        "of these   {given_up_records} records still validate: `palisade salvage {log} --from \
         {from}` prints them"
    )?;
    out.flush()
}

fn conclude(out: &mut impl Write, into: Option<&Path>, report: &CopyReport) -> io::Result<()> {
    let Some(into) = into.map(Path::display) else {
        return writeln!(out, "nothing was written: this was a dry run");
    };
    let CopyReport { end, base, .. } = report;
    writeln!(out, "repaired   {into}: the log ends at LSN {end}; appends go on at LSN {base}")
}

/// Returns the object of `--json`. The help documents its names, so they must not change.
fn object(
    args: &RepairArgs,
    into: Option<&Path>,
    report: &CopyReport,
    buffer_file: Option<&Path>,
) -> Value {
    json!({
        "log": args.log.dir.display().to_string(),
        "into": into.map(|into| into.display().to_string()),
        "head": report.head.as_u64(),
        "end": report.end.as_u64(),
        "records": report.records,
        "bytes": report.bytes,
        "from": args.from.as_u64(),
        "given_up_to": report.given_up_to.as_u64(),
        "given_up_records": report.given_up_records,
        "base": report.base.as_u64(),
        "epoch": report.epoch,
        "buffer_file": buffer_file.map(|file| file.display().to_string()),
    })
}

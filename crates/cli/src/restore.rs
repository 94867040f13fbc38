//! `palisade restore` and `palisade backup`: copy a log, or its archive and what is left of it,
//! into a new log with the same LSNs.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use palisade::inspect::Inspector;
use palisade::{CopyReport, ErrorKind, Lsn, Restore, RestoreFrom};
use serde_json::{Value, json};

use crate::args::LogArgs;
use crate::exit::Failure;
use crate::output;
use crate::progress::in_steps;
use crate::repair::{buffer_of, check_into, note_buffer};

pub(crate) const EXAMPLES: &str = "\
Examples:
  palisade restore --archive ./archive --log ./log --into ./restored
  palisade restore --archive ./archive --into ./restored --to 65536
  palisade restore --archive ./archive --log ./backup --dry-run --json | jq .records

Copies the records of an archive (a folder that `Archive` wrote), of a log's folder, or of both into
a new log. The log's folder can be a backup, or what a crash has left. Each record keeps its LSN.
Every record is checked before it is copied, and again while it is copied. The sources are not
changed.

--to is the first LSN that is not restored: that of a record, or the end of one. Without it, all
records are restored. If a record is damaged or a segment is missing, the error names the LSN up to
which a restore is possible.

Stop the process that writes the log first. Records that only the log buffer of a killed process
holds are not restored, and a note on standard error names the buffer's file. To keep them, open and
close the log before.

The restored log has the identity of the original. Appends begin above every LSN that the sources
name. If the lost part of the log may have used higher ones, name the greatest that the engine knows
with --above. A restore that was killed leaves a folder without a file `meta`, which opens as no
log: remove it, and restore again.

Fields of --json; LSNs and sizes are numbers:
  archive, log, into     paths, or null
  uuid                   text
  head, end              where the records begin and end
  records, bytes         how many there are, and their bytes with headers and padding
  base, epoch            the LSN and the epoch in which appends begin
  strays                 list of the paths of files with a segment's name that are not read, because
                         they are of another log or segment, damaged, or far above the log
  buffer_file            the path of the log buffer of a killed process, or null

Exit codes: 0 restored (or, with --dry-run, could be), 2 the LSN or the folder does not fit (or
other wrong usage), 3 the log is in use, a source is missing, or input or output failed, 4 a record
that is to be restored is damaged or missing.";

pub(crate) const BACKUP_EXAMPLES: &str = "\
Examples:
  palisade backup ./log --into ./backup
  palisade backup ./log --into ./backup --json | jq .end

Copies a log that no process has open, closed or crashed, as far as its records are whole: up to the
end that the next open would find. The log is not changed. Every record is checked. The backup is a
closed log with the same identity and LSNs. To use it, open it, or name it as --log of `palisade
restore`.

A log that a process has open for writing is refused: only that process knows where its records
end. Let it call `Wal::backup_to`.

Records that only the log buffer of a killed process holds are not in the backup, and a note on
standard error names the buffer's file. To keep them, open and close the log first.

Fields of --json: those of `palisade restore`. archive is null.

Exit codes: 0 done, 2 the folder does not fit (or other wrong usage), 3 the log is in use, or input
or output failed, 4 acknowledged records are damaged: see `palisade repair`.";

#[derive(Args, Debug, Default)]
#[group(skip)]
#[command(group = ArgGroup::new("source").required(true).multiple(true).args(["archive", "log"]))]
pub(crate) struct RestoreArgs {
    /// Folder of the archive.
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Folder of the log: a backup, or what is left of the log.
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// Folder for the new log: missing, or empty.
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    into: Option<PathBuf>,
    /// The first LSN that is not restored (decimal, or hexadecimal after 0x). Default: all are.
    #[arg(long, value_name = "LSN")]
    to: Option<Lsn>,
    /// Let appends begin above this LSN.
    #[arg(long, value_name = "LSN")]
    above: Option<Lsn>,
    /// Say what would be restored, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl RestoreArgs {
    /// Returns the folder that is written, if one is.
    fn target(&self) -> Option<&Path> {
        self.into.as_deref().filter(|_| !self.dry_run)
    }
}

#[derive(Args, Debug)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Folder for the backup: missing, or empty.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
}

/// Restores a log.
///
/// # Errors
/// Those of reading the sources, of writing the copy, and of `out`.
pub(crate) fn restore(args: &RestoreArgs, out: &mut impl Write) -> Result<(), Failure> {
    copy(args, out).map_err(|failure| match failure {
        Failure::Error(error) if args.archive.is_none() && has_lost_state(args, error.kind()) => {
            let advice = "nothing was changed; name the log's archive, too (--archive), or put the \
                          file `meta` back as it was saved after the last truncation";
            error.with_advice(advice).into()
        }
        failure => failure,
    })
}

/// Copies a log that no process has open: restores it from its own folder alone.
///
/// # Errors
/// As [`restore`].
pub(crate) fn backup(args: &BackupArgs, out: &mut impl Write) -> Result<(), Failure> {
    Inspector::open(&args.log.dir)?;
    let args = RestoreArgs {
        log: Some(args.log.dir.clone()),
        into: Some(args.into.clone()),
        json: args.log.json,
        ..RestoreArgs::default()
    };
    copy(&args, out).map_err(|failure| match failure {
        Failure::Error(error) if error.kind() == ErrorKind::Corrupt && error.lsn().is_some() => {
            let advice = "nothing was changed; restore from a replica or an older backup, or copy \
                          what lies below this LSN with `palisade repair`";
            error.with_advice(advice).into()
        }
        failure => failure,
    })
}

/// Returns whether an error of this kind comes from a log whose file `meta` is missing or does not
/// validate.
fn has_lost_state(args: &RestoreArgs, kind: ErrorKind) -> bool {
    let log = args.log.as_ref().and_then(|log| Inspector::open(log).ok());
    let is_of_state = matches!(kind, ErrorKind::NotFound | ErrorKind::Corrupt);
    is_of_state && log.is_some_and(|log| log.has_rebuilt_state())
}

fn copy(args: &RestoreArgs, out: &mut impl Write) -> Result<(), Failure> {
    let from = match (&args.archive, &args.log) {
        (Some(archive), Some(log)) => RestoreFrom::archive(archive).with_log(log),
        (Some(archive), None) => RestoreFrom::archive(archive),
        (None, Some(log)) => RestoreFrom::log(log),
        // The group of arguments requires one.
        (None, None) => return Err(Failure::usage("no source was named")),
    };
    let from = args.above.map_or(from.clone(), |lsn| from.above(lsn));
    let into = args.target();
    if let Some(into) = into {
        check_into(into, [&args.archive, &args.log].into_iter().flatten())?;
    }
    let buffer_file = args.log.as_ref().and_then(|log| buffer_of(&Inspector::open(log).ok()?));
    let restore = in_steps(|show| Restore::plan(from, args.to, show))?;
    let strays = restore.strays().to_vec();
    let report = match into {
        Some(into) => in_steps(|show| restore.write(into, show))?,
        None => restore.report().clone(),
    };
    let buffer_file = buffer_file.as_deref();
    let object = args.json.then(|| object(args, &report, &strays, buffer_file));
    output::print(out, object, |out| print(args, &report, &strays, out))?;
    note_buffer(buffer_file);
    Ok(())
}

fn print(
    args: &RestoreArgs,
    report: &CopyReport,
    strays: &[PathBuf],
    out: &mut impl Write,
) -> io::Result<()> {
    let CopyReport { uuid, head, records, bytes, end, base, epoch, .. } = report;
    for (name, path) in [("archive", &args.archive), ("log", &args.log)] {
        if let Some(path) = path {
            writeln!(out, "{name:<10} {}", path.display())?;
        }
    }
    for stray in strays {
        writeln!(out, "not read   {}: no segment of the log", stray.display())?;
    }
    writeln!(out, "identity   {uuid}")?;
    writeln!(out, "records    {records} in {bytes} bytes, from LSN {head} to LSN {end}")?;
    match args.target() {
        Some(into) => {
            let into = into.display();
            writeln!(out, "copied     {into}: appends begin at LSN {base}, in epoch {epoch}")
        }
        None => writeln!(out, "nothing was written: this was a dry run"),
    }
}

/// Returns the object of `--json`. The help documents its names, so they must not change.
fn object(
    args: &RestoreArgs,
    report: &CopyReport,
    strays: &[PathBuf],
    buffer_file: Option<&Path>,
) -> Value {
    let text = |path: &Path| path.display().to_string();
    json!({
        "archive": args.archive.as_deref().map(text),
        "log": args.log.as_deref().map(text),
        "into": args.target().map(text),
        "uuid": report.uuid.to_string(),
        "head": report.head.as_u64(),
        "end": report.end.as_u64(),
        "records": report.records,
        "bytes": report.bytes,
        "base": report.base.as_u64(),
        "epoch": report.epoch,
        "strays": strays.iter().map(|stray| text(stray)).collect::<Value>(),
        "buffer_file": buffer_file.map(text),
    })
}

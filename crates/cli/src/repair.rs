//! `palisade repair`: gives up what lies behind damage, after a copy of everything.

use std::io::{self, Write};
use std::path::Path;

use palisade::inspect::Inspector;
use palisade::{
    Error, FileOptions, FileStore, LostRange, OpenMode, Options, RecoveryPolicy, RecoveryReport,
    Verify, Wal,
};

use crate::args::RepairArgs;
use crate::backup;
use crate::exit::Failure;

/// Ends the log at the LSN that the arguments name, if the first bad place lies there or above.
///
/// # Errors
/// Those of examining the log, of the copy, of opening the log, and of `out`. Before the copy is
/// complete and compared nothing is changed.
pub(crate) fn run(args: &RepairArgs, out: &mut impl Write) -> Result<(), Failure> {
    let options = options(args)?;
    let report = options.foresee(&args.dir).map_err(|error| in_words_of_the_tool(args, error))?;
    let Some(lost) = report.lost else { return Err(nothing_to_do(&args.dir, &report)) };
    announce(out, args, &report, lost).map_err(Failure::output)?;
    let Some(backup) = args.backup.as_deref().filter(|_| !args.dry_run) else {
        return writeln!(out, "nothing was changed: this was a dry run").map_err(Failure::output);
    };
    // Held from before the copy until the log is closed: nobody writes in between.
    let mut files = FileOptions::new();
    files.mode = OpenMode::MustExist;
    let store = FileStore::open(&args.dir, &files)?;
    let copied = backup::make(&args.dir, backup)?;
    writeln!(
        out,
        "backup     {}: {} files, {} bytes, compared",
        backup.display(),
        copied.files,
        copied.bytes
    )
    .and_then(|()| out.flush())
    .map_err(Failure::output)?;
    let wal = Wal::with_store(store, options)?;
    let report = wal.recovery_report().clone();
    wal.close()?;
    writeln!(
        out,
        "repaired   the log ends at LSN {}; appends go on at LSN {}",
        report.end, report.base
    )
    .map_err(Failure::output)
}

fn options(args: &RepairArgs) -> Result<Options, Failure> {
    let options = Options::new()
        .must_exist(true)
        .verify(Verify::Full)
        .recovery(RecoveryPolicy::PointInTime { lose_from: Some(args.truncate_at) });
    let buffer_bytes = Inspector::open(&args.dir)?.state()?.buffer_bytes;
    // As the log had it; a log that was never open for writing has none.
    Ok(match usize::try_from(buffer_bytes) {
        Ok(bytes) if bytes > 0 => options.buffer_bytes(bytes),
        _ => options,
    })
}

/// What is refused because the damage begins below the LSN that was named, told with the names that
/// the command line has for things.
fn in_words_of_the_tool(args: &RepairArgs, error: Error) -> Failure {
    let lost = error.lost_range().filter(|lost| lost.from < args.truncate_at);
    lost.map_or_else(
        || Failure::Log(error),
        |lost| {
            Failure::Usage(format!(
                "the damage begins below LSN {}, which --truncate-at names: it would cost {lost}; \
                 name LSN {} or a record below it; nothing was changed",
                args.truncate_at, lost.from
            ))
        },
    )
}

fn nothing_to_do(dir: &Path, report: &RecoveryReport) -> Failure {
    let more = match report.clean {
        true => "it was closed cleanly",
        false => "the next open cuts its torn tail off",
    };
    Failure::Usage(format!(
        "nothing is damaged in {}, whose records end at LSN {}: {more}; nothing was changed",
        dir.display(),
        report.end
    ))
}

fn announce(
    out: &mut impl Write,
    args: &RepairArgs,
    report: &RecoveryReport,
    lost: LostRange,
) -> io::Result<()> {
    writeln!(out, "log        {}", args.dir.display())?;
    writeln!(out, "kept       {} records, up to LSN {}", report.records, report.end)?;
    writeln!(out, "lost       LSN {} to {}", lost.from, lost.to)?;
    writeln!(
        out,
        "of these   {} records still validate: `palisade salvage` prints them",
        lost.readable_records
    )?;
    out.flush()
}

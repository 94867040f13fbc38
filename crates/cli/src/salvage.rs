//! `palisade salvage`: prints everything that still validates, and what was passed over.

use std::io::Write;

use palisade::ErrorKind;
use palisade::inspect::Salvaged;

use crate::args::SalvageArgs;
use crate::dump;
use crate::exit::{Exit, Failure};
use crate::output::complain;
use crate::progress::while_printing;

/// Prints the records of a damaged log. Gaps and places that cannot be read go to standard error,
/// and to the exit code.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &SalvageArgs, out: &mut impl Write) -> Result<Exit, Failure> {
    let log = dump::open(&args.log.dir)?;
    let mut salvage = log.salvage(args.from)?;
    let mut exit = Exit::Success;
    while_printing(&log, |bar| {
        loop {
            match salvage.next() {
                Ok(Some(Salvaged::Record(record))) => {
                    let print = if args.log.json { dump::print_object } else { dump::print_line };
                    print(out, &record).map_err(Failure::output)?;
                }
                Ok(Some(Salvaged::Gap(gap))) => {
                    exit = Exit::Corrupt;
                    let text = format!("gap: LSN {} to {}", gap.from, gap.to);
                    bar.suspend(|| complain(text));
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(exit),
                // The walk goes on above the place.
                Err(error) if error.kind() == ErrorKind::Io => {
                    exit = Exit::Corrupt;
                    bar.suspend(|| complain(format_args!("unreadable: {error}")));
                }
                Err(error) => return Err(error.into()),
            }
        }
    })
}

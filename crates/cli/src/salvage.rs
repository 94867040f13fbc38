//! `palisade salvage`: prints everything that still validates, and what was passed over.

use std::io::{self, Write};

use palisade::inspect::Salvaged;

use crate::args::SalvageArgs;
use crate::dump;
use crate::exit::{Exit, Failure};

/// Prints the records of a damaged log; gaps go to standard error, and to the exit code.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &SalvageArgs, out: &mut impl Write) -> Result<Exit, Failure> {
    let mut salvage = dump::open(&args.dir)?.salvage(args.from)?;
    let mut exit = Exit::Success;
    while let Some(next) = salvage.next()? {
        match next {
            Salvaged::Record(record) if args.json => dump::print_json(out, &record),
            Salvaged::Record(record) => dump::print_line(out, &record),
            Salvaged::Gap(gap) => {
                exit = Exit::Corrupt;
                // Where standard error is gone, the exit code still says it.
                let _ = writeln!(io::stderr(), "gap: LSN {} to {}", gap.from, gap.to);
                Ok(())
            }
            _ => Ok(()),
        }
        .map_err(Failure::output)?;
    }
    Ok(exit)
}

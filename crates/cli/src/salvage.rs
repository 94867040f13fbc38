//! `palisade salvage`: prints everything that still validates, and what was passed over.

use std::io::{self, Write};

use palisade::ErrorKind;
use palisade::inspect::Salvaged;

use crate::args::SalvageArgs;
use crate::dump;
use crate::exit::{Exit, Failure};
use crate::progress::Walk;

/// Prints the records of a damaged log. Gaps and places that cannot be read go to standard error,
/// and to the exit code.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &SalvageArgs, out: &mut impl Write) -> Result<Exit, Failure> {
    let log = dump::open(&args.dir)?;
    let mut walk = Walk::new(&log, args.from)?;
    let mut salvage = log.salvage(args.from)?;
    let mut exit = Exit::Success;
    loop {
        let next = match salvage.next() {
            Ok(Some(next)) => next,
            Ok(None) => break,
            // The walk goes on above the place.
            Err(error) if error.kind() == ErrorKind::Io => {
                exit = Exit::Corrupt;
                walk.suspend(|| note(&format!("unreadable: {error}")));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match next {
            Salvaged::Record(record) => {
                walk.show(record.lsn());
                let print = if args.json { dump::print_json } else { dump::print_line };
                print(out, &record).map_err(Failure::output)?;
            }
            Salvaged::Gap(gap) => {
                exit = Exit::Corrupt;
                walk.suspend(|| note(&format!("gap: LSN {} to {}", gap.from, gap.to)));
            }
            _ => {}
        }
    }
    Ok(exit)
}

fn note(text: &str) {
    // Where standard error is gone, the exit code still shows it.
    let _ = writeln!(io::stderr(), "{text}");
}

//! `palisade verify`: checks every checksum and says how the log ends.

use std::io::{self, Write};

use palisade::inspect::{Inspector, Outcome, Verdict};

use crate::args::VerifyArgs;
use crate::exit::{Exit, Failure};

/// How many bad places are named.
const NAMED_PLACES: usize = 50;

/// Verifies the log; the exit code is the verdict.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &VerifyArgs, out: &mut impl Write) -> Result<Exit, Failure> {
    let log = Inspector::open(&args.dir)?;
    let verdict =
        if args.deep { log.verify_deep(usize::from(args.threads))? } else { log.verify()? };
    match print(out, &verdict) {
        // The verdict counts, whether anybody reads it or not.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other.map_err(Failure::output)?,
    }
    Ok(exit(&verdict.outcome))
}

fn exit(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Clean | Outcome::Unfinished => Exit::Success,
        Outcome::TornTail => Exit::TornTail,
        Outcome::Corrupt => Exit::Corrupt,
    }
}

fn print(out: &mut impl Write, verdict: &Verdict) -> io::Result<()> {
    let headline = match verdict.outcome {
        Outcome::Clean => "clean",
        Outcome::Unfinished => {
            "clean so far: a writer is running, and its unfinished tail is no fault"
        }
        Outcome::TornTail => "torn tail: a crash left it; the next open cuts it off",
        Outcome::Corrupt => "corrupt: acknowledged data is damaged or missing",
    };
    writeln!(out, "{headline}")?;
    if let Some(why) = &verdict.why {
        writeln!(out, "why        {why}")?;
    }
    writeln!(out, "segments   {}", verdict.segments)?;
    writeln!(out, "records    {} ({} bytes)", verdict.records, verdict.bytes)?;
    writeln!(out, "head       LSN {}", verdict.head)?;
    writeln!(out, "end        LSN {}", verdict.end)?;
    writeln!(out, "floor      LSN {} (below it, everything was durable once)", verdict.floor)?;
    writeln!(out, "torn       {} bytes", verdict.torn_bytes)?;
    for stray in verdict.strays.iter().take(NAMED_PLACES) {
        writeln!(out, "stray      segment {stray}: no part of the log, and not looked at")?;
    }
    for bad in verdict.bad_places.iter().take(NAMED_PLACES) {
        writeln!(out, "bad        LSN {} in segment {}", bad.lsn, bad.segment)?;
    }
    if let Some(more) = verdict.bad_places.len().checked_sub(NAMED_PLACES).filter(|n| *n > 0) {
        writeln!(out, "bad        and in {more} more segments")?;
    }
    out.flush()
}

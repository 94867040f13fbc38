//! `palisade verify`: checks every checksum and says how the log ends.

use std::io::{self, Write};
use std::path::Path;

use palisade::inspect::{BufferPlace, Inspector, Outcome, Verdict};
use serde_json::{Value, json};

use crate::args::VerifyArgs;
use crate::dump;
use crate::exit::{Exit, Failure};
use crate::info::DAMAGED_COPY;
use crate::output::{self, print_some};
use crate::progress::while_reading;

/// How many findings of each sort are named.
pub(crate) const NAMED: usize = 50;

/// Verifies the log; the exit code is the verdict.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &VerifyArgs, out: &mut impl Write) -> Result<Exit, Failure> {
    let log = dump::inspect(&args.log.dir)?;
    let verdict = while_reading(&log, |_| match args.deep {
        true => log.verify_deep(usize::from(args.threads)),
        false => log.verify(),
    })?;
    let has_damaged_copy = !log.has_rebuilt_state() && log.has_damaged_copy()?;
    let object = args.log.json.then(|| object(args, &verdict, has_damaged_copy));
    let printed = output::print(out, object, |out| {
        print(out, &verdict, args.deep)?;
        if has_damaged_copy {
            writeln!(out, "note       {DAMAGED_COPY}")?;
        }
        advise(out, &args.log.dir, &verdict, &log)
    });
    match printed {
        // The verdict counts, whether anybody reads it or not.
        Ok(()) | Err(Failure::OutputClosed) => Ok(exit(&verdict.outcome)),
        Err(failure) => Err(failure),
    }
}

/// Returns the exit code of an outcome.
pub(crate) fn exit(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Clean | Outcome::Unclean | Outcome::Unfinished => Exit::Success,
        Outcome::TornTail => Exit::CheckFailed,
        Outcome::Corrupt => Exit::Corrupt,
    }
}

/// Returns the word that `--json` has for an outcome.
pub(crate) fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Clean => "clean",
        Outcome::Unclean => "unclean",
        Outcome::TornTail => "torn_tail",
        Outcome::Unfinished => "unfinished",
        Outcome::Corrupt => "corrupt",
    }
}

/// Returns the object of `--json`. The help documents its names, so they must not change.
fn object(args: &VerifyArgs, verdict: &Verdict, has_damaged_copy: bool) -> Value {
    let places = verdict.bad_places.iter();
    let places = places.map(|bad| json!({ "lsn": bad.lsn.as_u64(), "segment": bad.segment }));
    json!({
        "dir": args.log.dir.display().to_string(),
        "outcome": word(&verdict.outcome),
        "why": verdict.why,
        "segments": verdict.segments,
        "records": verdict.records,
        "bytes": verdict.bytes,
        "head": verdict.head.as_u64(),
        "end": verdict.end.as_u64(),
        "floor": verdict.floor.as_u64(),
        "torn_bytes": verdict.torn_bytes,
        "bad_places": places.collect::<Value>(),
        "strays": verdict.strays,
        "has_damaged_copy": has_damaged_copy,
    })
}

/// Says the outcome in one line.
fn headline(verdict: &Verdict) -> &'static str {
    match verdict.outcome {
        Outcome::Clean => "clean",
        Outcome::Unclean => "whole, but not closed: nothing is torn",
        Outcome::TornTail if verdict.torn_bytes == 0 => "whole up to its clean end",
        Outcome::TornTail => "torn tail: a crash left it",
        Outcome::Unfinished => {
            "clean so far: a process holds the log, and its unfinished tail is no fault"
        }
        Outcome::Corrupt => "corrupt: acknowledged data is damaged or missing",
    }
}

fn print(out: &mut impl Write, verdict: &Verdict, is_deep: bool) -> io::Result<()> {
    writeln!(out, "{}", headline(verdict))?;
    if let Some(why) = &verdict.why {
        writeln!(out, "why        {why}")?;
    }
    writeln!(out, "segments   {}", verdict.segments)?;
    let Verdict { records, bytes, .. } = verdict;
    match (verdict.outcome, is_deep) {
        (Outcome::Corrupt, true) => {
            writeln!(out, "records    {records} still validate: `palisade salvage` prints them")?
        }
        (Outcome::Corrupt, false) if !verdict.bad_places.is_empty() => {
            writeln!(out, "records    {records} below the first bad place ({bytes} bytes)")?;
        }
        _ => writeln!(out, "records    {records} ({bytes} bytes)")?,
    }
    writeln!(out, "head       LSN {}", verdict.head)?;
    writeln!(out, "end        LSN {}", verdict.end)?;
    let proof = match (verdict.floor > verdict.head, verdict.outcome) {
        (true, _) => "below it, everything was durable once",
        (false, Outcome::Corrupt) => "the head: it is not known how much more was durable",
        (false, _) => "the head: nothing shows that more was durable",
    };
    writeln!(out, "floor      LSN {} ({proof})", verdict.floor)?;
    writeln!(out, "torn       {} bytes", verdict.torn_bytes)?;
    print_some(out, "stray      ", &verdict.strays, NAMED, |stray| {
        format!("segment {stray}: not of this log, and left as it is")
    })?;
    print_some(out, "bad        ", &verdict.bad_places, NAMED, |bad| {
        format!("LSN {} in segment {}", bad.lsn, bad.segment)
    })
}

/// Prints what the next open does, or what to do about a log that is corrupt.
fn advise(out: &mut impl Write, dir: &Path, verdict: &Verdict, log: &Inspector) -> io::Result<()> {
    let dir = dir.display();
    let has_buffer = matches!(log.buffer(), Ok(BufferPlace::Memory(_)));
    let unsynced = log.check_synced().err().and_then(|error| error.advice_of_cause());
    let text = match (verdict.outcome, verdict.bad_places.first()) {
        (Outcome::Clean | Outcome::Unfinished, _) => return Ok(()),
        (Outcome::Unclean, _) if has_buffer => {
            "an open recovers, also records that only the log buffer holds; they are not counted \
             here"
                .into()
        }
        (Outcome::TornTail, _) if has_buffer && verdict.torn_bytes > 0 => {
            "an open completes the torn tail from the log buffer, or removes it".into()
        }
        (Outcome::TornTail, _) if verdict.torn_bytes > 0 => "an open removes the torn tail".into(),
        (Outcome::Unclean | Outcome::TornTail, _) => "an open recovers".into(),
        (Outcome::Corrupt, _) if unsynced.is_some() => unsynced.unwrap_or_default().into(),
        (Outcome::Corrupt, _) if log.has_rebuilt_state() => format!(
            "nothing was changed; put the file `meta` back as it was saved after the last \
             truncation, or read the records with `palisade dump {dir}` or `palisade salvage \
             {dir}` and append them to a new log, which gives them new LSNs; if the folder is an \
             archive, it needs no `meta`: read it with `palisade dump {dir}`"
        ),
        (Outcome::Corrupt, Some(_)) if verdict.end > verdict.head => format!(
            "restore the log from a replica or backup; or see what a repair would keep: `palisade \
             repair {dir} --from {} --dry-run`",
            verdict.end
        ),
        // A repair would keep no record.
        (Outcome::Corrupt, _) => format!(
            "restore the log from a replica or backup; `palisade salvage {dir}` prints what still \
             validates"
        ),
    };
    writeln!(out, "next       {text}")
}

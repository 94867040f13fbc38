//! `palisade streams verify`: checks for missing entries, and compares the footers with the
//! records.

use std::io::{self, Write};
use std::path::Path;

use palisade::inspect::Outcome;
use palisade_streams::{StreamsVerdict, verify};
use serde_json::{Value, json};

use crate::args::LogArgs;
use crate::dump;
use crate::exit::{Exit, Failure};
use crate::output::{self, print_some};
use crate::progress::while_reading;
use crate::verify::{NAMED, exit, word};

/// Checks the streams; the exit code is the verdict.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(super) fn run(args: &LogArgs, out: &mut impl Write) -> Result<Exit, Failure> {
    let log = dump::open(&args.dir)?;
    let verdict = while_reading(&log, |_| verify(&args.dir))?;
    let object = args.json.then(|| object(&args.dir, &verdict));
    match output::print(out, object, |out| print(out, &args.dir, &verdict)) {
        // If nobody reads the pipe any more, the exit code still shows the verdict.
        Ok(()) | Err(Failure::OutputClosed) if !verdict.is_whole() => Ok(Exit::Corrupt),
        Ok(()) | Err(Failure::OutputClosed) => Ok(exit(&verdict.log.outcome)),
        Err(failure) => Err(failure),
    }
}

fn print(out: &mut impl Write, dir: &Path, verdict: &StreamsVerdict) -> io::Result<()> {
    writeln!(out, "{}", if verdict.is_whole() { "whole" } else { "corrupt" })?;
    if let Some(why) = &verdict.log.why {
        writeln!(out, "why        {why}")?;
    }
    writeln!(out, "log        {}", word(&verdict.log.outcome).replace('_', " "))?;
    writeln!(out, "streams    {}", verdict.streams)?;
    writeln!(out, "entries    {}", verdict.entries)?;
    writeln!(out, "records    {}", verdict.records)?;
    writeln!(out, "footers    {} can be used", verdict.footers)?;
    print_findings(out, verdict)?;
    let dir = dir.display();
    if verdict.log.outcome == Outcome::Corrupt {
        writeln!(
            out,
            "next       restore the log from a replica or backup; `palisade verify --deep {dir}` \
             names what is damaged"
        )?;
    } else if !verdict.is_whole() {
        writeln!(
            out,
            "next       keep a copy of {dir} and report a defect of Palisade: all records of the \
             log are whole, but entries are missing or footers are wrong"
        )?;
    }
    Ok(())
}

fn print_findings(out: &mut impl Write, verdict: &StreamsVerdict) -> io::Result<()> {
    print_some(out, "missing    ", &verdict.missing, NAMED, |missing| {
        let (name, first, last) = (missing.name.escape_ascii(), missing.first, missing.last);
        match first == last {
            true => format!("entry {first} of stream {name}"),
            false => format!("entries {first} to {last} of stream {name}"),
        }
    })?;
    print_some(out, "nameless   ", &verdict.without_anchor, NAMED, |id| {
        format!("records of stream number {id}; its anchor, which has the name, is lost")
    })?;
    print_some(out, "different  ", &verdict.different, NAMED, |name| {
        format!("stream {}: the footers and the records differ", name.escape_ascii())
    })?;
    print_some(out, "footer     ", &verdict.bad_footers, NAMED, |bad| {
        let at = bad.lsn.map_or(String::new(), |lsn| format!(" at LSN {lsn}"));
        format!("of segment {}{at}: {}", bad.segment, bad.why)
    })
}

/// Returns the object for `--json`. The help documents its names, so they stay.
fn object(dir: &Path, verdict: &StreamsVerdict) -> Value {
    let bad_footers = verdict.bad_footers.iter().map(|bad| {
        let lsn = bad.lsn.map(|lsn| lsn.as_u64());
        json!({ "segment": bad.segment, "lsn": lsn, "why": bad.why })
    });
    let missing = verdict.missing.iter().map(|missing| {
        let name = missing.name.escape_ascii().to_string();
        json!({ "name": name, "first": missing.first, "last": missing.last })
    });
    let different = verdict.different.iter().map(|name| name.escape_ascii().to_string());
    json!({
        "dir": dir.display().to_string(),
        "outcome": word(&verdict.log.outcome),
        "whole": verdict.is_whole(),
        "streams": verdict.streams,
        "entries": verdict.entries,
        "records": verdict.records,
        "footers": verdict.footers,
        "bad_footers": bad_footers.collect::<Value>(),
        "missing": missing.collect::<Value>(),
        "without_anchor": verdict.without_anchor,
        "different": different.collect::<Value>(),
    })
}

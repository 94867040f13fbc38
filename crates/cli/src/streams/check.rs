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
use crate::json;
use crate::progress::while_reading;
use crate::verify::{exit, word};

/// How many findings of each sort are named.
const NAMED: usize = 50;

/// Checks the streams; the exit code is the verdict.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(super) fn run(args: &LogArgs, out: &mut impl Write) -> Result<Exit, Failure> {
    let log = dump::open(&args.dir)?;
    let verdict = while_reading(&log, || verify(&args.dir))?;
    let printed = match args.json {
        true => json::print(out, &object(&args.dir, &verdict)),
        false => print(out, &args.dir, &verdict),
    };
    match printed.and_then(|()| out.flush()) {
        // If nobody reads the pipe any more, the exit code still shows the verdict.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other.map_err(Failure::output)?,
    }
    Ok(if verdict.is_whole() { exit(&verdict.log.outcome) } else { Exit::Corrupt })
}

/// Returns a line for each finding.
fn findings(verdict: &StreamsVerdict) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |count: usize, line: &dyn Fn(usize) -> String| {
        lines.extend((0..count.min(NAMED)).map(line));
        if count > NAMED {
            lines.push(format!("more       {} more, which --json lists", count - NAMED));
        }
    };
    add(verdict.missing.len(), &|at| {
        let missing = &verdict.missing[at];
        let (name, first, last) = (missing.name.escape_ascii(), missing.first, missing.last);
        match first == last {
            true => format!("missing    entry {first} of stream {name}"),
            false => format!("missing    entries {first} to {last} of stream {name}"),
        }
    });
    add(verdict.without_anchor.len(), &|at| {
        let id = verdict.without_anchor[at];
        format!("nameless   records of stream number {id}; its anchor, which has the name, is lost")
    });
    add(verdict.different.len(), &|at| {
        let name = verdict.different[at].escape_ascii();
        format!("different  stream {name}: the footers and the records differ")
    });
    add(verdict.bad_footers.len(), &|at| {
        let bad = &verdict.bad_footers[at];
        let at = bad.lsn.map_or(String::new(), |lsn| format!(" at LSN {lsn}"));
        format!("footer     of segment {}{at}: {}", bad.segment, bad.why)
    });
    lines
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
    findings(verdict).iter().try_for_each(|line| writeln!(out, "{line}"))?;
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

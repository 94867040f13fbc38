//! `palisade streams dump` and `palisade streams tail`: the entries of one stream.

use std::io::{self, Write};
use std::time::Duration;

use palisade::inspect::{Inspector, State};
use palisade::{Error, ErrorKind};
use palisade_streams::{Entry, Follow, Followed, StreamStatus};
use serde::Serialize;

use super::{Opened, StreamDumpArgs, StreamTailArgs};
use crate::dump::{self, beginning, hex};
use crate::exit::Failure;
use crate::follow::wait;
use crate::output::{note, print_json};

/// Prints the entries that the arguments ask for.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(super) fn dump(args: &StreamDumpArgs, out: &mut impl Write) -> Result<(), Failure> {
    let mut opened = Opened::open(&args.log.dir)?;
    let name = &args.name.0;
    let stream = opened.reader.stream(name)?;
    check_index(&stream, args.from)?;
    let end = args.to.map_or(stream.next, |to| to.saturating_add(1).min(stream.next));
    let begin = args.from.unwrap_or(stream.first);
    let begin = args.last.map_or(begin, |last| begin.max(end.saturating_sub(last)));
    let mut damage = None;
    for entry in opened.reader.entries(name, begin..end)? {
        match entry {
            Ok(entry) => print_as(args.log.json, out, &entry).map_err(Failure::output)?,
            Err(error) if error.kind() == ErrorKind::Truncated => note(out, error.finding())?,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                damage.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    out.flush().map_err(Failure::output)?;
    // The entries may be missing because the log ends at damage, which explains more.
    opened.check_end()?;
    damage.map_or(Ok(()), |error| Err(error.into()))
}

/// Refuses a start that the stream has not: what is printed must be what was asked for.
fn check_index(stream: &StreamStatus, from: Option<u64>) -> Result<(), Failure> {
    let Some(from) = from.filter(|from| !(stream.first..=stream.next).contains(from)) else {
        return Ok(());
    };
    let (first, next) = (stream.first, stream.next);
    let (kind, text) = match from < first {
        true => (ErrorKind::Truncated, format!("was truncated; the first one is {first}")),
        false => (ErrorKind::OutOfRange, format!("is not there yet; the next one is {next}")),
    };
    let advice = "`palisade streams ls` prints the indexes of all streams";
    Err(Error::new(kind, format!("entry {from} {text}")).with_advice(advice).into())
}

/// Prints the entries that the arguments ask for, and those that a writer adds, until the output is
/// closed.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(super) fn tail(args: &StreamTailArgs, out: &mut impl Write) -> Result<(), Failure> {
    let Opened { log, mut state, reader } = Opened::open(&args.log.dir)?;
    let mut follow = reader.follow(&args.name.0, args.from)?;
    // Polls without an entry since the last one with an entry.
    let mut idle = 0_u32;
    loop {
        let found = follow.next();
        if found.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt) {
            check_end(&log, &state, &follow)?;
        }
        let truncated = match found? {
            Some(Followed::Entry(entry)) => {
                print_as(args.log.json, out, &entry).map_err(Failure::output)?;
                idle = 0;
                continue;
            }
            Some(Followed::Truncated { from, to }) => {
                Some((from, to, " before this command could print them"))
            }
            Some(Followed::Replaced { from, to }) => {
                Some((from, to, ", which were printed; the stream continues there"))
            }
            _ => None,
        };
        if let Some((from, to, what)) = truncated {
            note(out, format_args!("the writer truncated entries {from} to {}{what}", to - 1))?;
            continue;
        }
        out.flush().map_err(Failure::output)?;
        idle = idle.saturating_add(1);
        // Less and less often, because each check reads the log.
        if idle.is_power_of_two() {
            check_end(&log, &state, &follow)?;
        }
        wait(Duration::from_millis(args.poll_ms))?;
        state = log.state()?;
    }
}

/// Returns an error if the log is damaged here.
fn check_end(log: &Inspector, before: &State, follow: &Follow) -> Result<(), Failure> {
    if log.has_rebuilt_state() || log.has_writer()? {
        return Ok(());
    }
    dump::may_end_at(follow.end(), log, before)
}

/// An entry as one JSON object.
#[derive(Serialize)]
struct JsonEntry {
    index: u64,
    bytes: usize,
    hex: String,
}

/// Prints an entry in one line, cut short, or as a JSON object.
fn print_as(as_json: bool, out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    let (index, data) = (entry.index(), entry.data());
    if as_json {
        return print_json(out, &JsonEntry { index, bytes: data.len(), hex: hex(data) });
    }
    writeln!(out, "{index:>12}  {:>8} bytes  {}", data.len(), beginning(data))
}

//! `palisade map`: which segment holds which LSNs, and what it is to the log.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::args::LogArgs;
use crate::dump;
use crate::exit::Failure;
use crate::layout::{Break, Layout, Part};
use crate::output;
use crate::progress::while_reading;

pub(crate) const EXAMPLES: &str = "\
Examples:
  palisade map ./log
  palisade map --json ./log | jq '.segment_list[] | select(.state == \"missing\")'

Prints a line for each segment: its number, its LSNs (from, and exclusive to), its epoch, the bytes
in its file, and its state. Reads only headers and the end of the log; works while a writer runs.
`palisade verify` checks the records.

States:
  before the head   truncated; the log no longer needs the file
  live              holds records, or takes the next one
  beyond the end    prepared for later records
  between epochs    without records: the writer truncated them, or a crash left the range
  missing           must be there, and is not
  damaged header    is there, and its header does not validate
  stray             has a segment's name and is not part of the log

A range without records between two epochs has a line of its own. After the state the line names
the cursors that are saved in the segment: `palisade stat` says which of them keep the log.

Fields of --json; all but dir, state and error are numbers or lists:
  dir                    text
  segment_bytes          bytes of log in a segment
  head, end              LSNs; the end of a log that is not closed is that of its last valid record
  segment_list           an object for each line: number, count (of segments; more than 1 for a run
                         of missing ones), from, to, epoch, state, file_bytes, error (null, or why
                         the header does not validate), cursors (names)
  ranges                 an object for each range: from, to, epoch_before, epoch_after

Exit codes: 0 done, also if `meta` is lost and a header of a segment validates, 2 wrong usage,
3 input or output failed, or there is neither a file `meta` nor a valid header, 4 there is a file
`meta`, and neither it nor a header validates.";

/// Prints the segments and the ranges between epochs.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &LogArgs, out: &mut impl Write) -> Result<(), Failure> {
    let log = dump::open(&args.dir)?;
    let layout = while_reading(&log, |_| Layout::of(&log, &args.dir))?;
    let object = args.json.then(|| object(&args.dir, &layout));
    output::print(out, object, |out| print(out, &layout))?;
    layout.note_what_follows();
    Ok(())
}

fn print(out: &mut impl Write, layout: &Layout) -> io::Result<()> {
    writeln!(out, "head  LSN {}", layout.state.head)?;
    writeln!(out, "end   LSN {}\n", layout.end)?;
    row(out, ["segment", "from LSN", "to LSN", "epoch", "file bytes", "state"])?;
    let mut breaks = layout.breaks.iter().peekable();
    for part in &layout.segments {
        let (from, _) = layout.range_of(part);
        while let Some(range) = breaks.next_if(|range| range.from < from) {
            print_break(out, range)?;
        }
        print_part(out, layout, part)?;
    }
    breaks.try_for_each(|range| print_break(out, range))
}

fn print_part(out: &mut impl Write, layout: &Layout, part: &Part) -> io::Result<()> {
    let (from, to) = layout.range_of(part);
    let number = match part.count {
        1 => part.number.to_string(),
        count => format!("{}-{}", part.number, part.number + count - 1),
    };
    let or_dash = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
    let epoch = or_dash(part.header.map(|header| header.epoch));
    let state = match &part.error {
        Some(why) => format!("{}: {why}", part.state),
        None => part.state.into(),
    };
    let state = match &cursors_in(layout, part)[..] {
        [] => state,
        names => format!("{state}; cursors {}", names.join(", ").escape_debug()),
    };
    let (from, to, bytes) = (from.to_string(), to.to_string(), or_dash(part.file_bytes));
    row(out, [&number, &from, &to, &epoch, &bytes, &state])
}

/// Returns the names of the cursors that are saved in a part.
fn cursors_in<'a>(layout: &'a Layout, part: &Part) -> Vec<&'a str> {
    let (from, to) = layout.range_of(part);
    let cursors = layout.state.cursors.iter();
    let within = cursors.filter(|cursor| from <= cursor.position && cursor.position < to);
    within.map(|cursor| &cursor.name[..]).collect()
}

fn print_break(out: &mut impl Write, range: &Break) -> io::Result<()> {
    let (from, to) = (range.from.to_string(), range.to.to_string());
    let epochs = format!("{}-{}", range.epoch_before, range.epoch_after);
    row(out, ["-", &from, &to, &epochs, "-", "no records: truncated, or left by a crash"])
}

fn row(out: &mut impl Write, cells: [&str; 6]) -> io::Result<()> {
    let [number, from, to, epoch, bytes, state] = cells;
    writeln!(out, "{number:>10}  {from:>16}  {to:>16}  {epoch:>7}  {bytes:>12}  {state}")
}

/// Returns the object of `--json`. The help documents its names, so they must not change.
fn object(dir: &Path, layout: &Layout) -> Value {
    let part = |part: &Part| {
        let (from, to) = layout.range_of(part);
        json!({
            "number": part.number,
            "count": part.count,
            "from": from.as_u64(),
            "to": to.as_u64(),
            "epoch": part.header.map(|header| header.epoch),
            "state": part.state,
            "file_bytes": part.file_bytes,
            "error": part.error,
            "cursors": cursors_in(layout, part),
        })
    };
    let range = |range: &Break| {
        json!({
            "from": range.from.as_u64(),
            "to": range.to.as_u64(),
            "epoch_before": range.epoch_before,
            "epoch_after": range.epoch_after,
        })
    };
    json!({
        "dir": dir.display().to_string(),
        "segment_bytes": layout.state.segment_bytes,
        "head": layout.state.head.as_u64(),
        "end": layout.end.as_u64(),
        "segment_list": layout.segments.iter().map(part).collect::<Value>(),
        "ranges": layout.breaks.iter().map(range).collect::<Value>(),
    })
}

//! `palisade dump`: prints records, one a line, as JSON, or with all their bytes.

use std::io::{self, Write};
use std::path::Path;

use palisade::inspect::{Inspector, Outcome, State};
use palisade::{Error, ErrorKind, Lsn, Record};
use serde::Serialize;

use crate::args::DumpArgs;
use crate::exit::Failure;
use crate::output::{complain, print_json};
use crate::progress::{while_printing, while_reading};

/// How much of a record the short form shows.
const SHOWN_BYTES: usize = 48;
const HEX_BYTES_PER_LINE: usize = 16;

/// What to do about a log of which no header validates.
const NOTHING_LEFT: &str = "nothing was changed; no header of a segment validates either: restore \
                            the log from a replica or backup";

/// Prints the records that the arguments ask for.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &DumpArgs, out: &mut impl Write) -> Result<(), Failure> {
    let print = print_as(args);
    let log = open(&args.log.dir)?;
    let state = log.state()?;
    let mut records = log.records(args.from)?;
    let mut wanted = args.from;
    let mut left = args.limit.unwrap_or(u64::MAX);
    while_printing(&log, |_| {
        while left > 0
            && let Some(record) = records.next()?
        {
            begins_at(wanted.take(), Some(record.lsn()))?;
            print(out, &record).map_err(Failure::output)?;
            left -= 1;
        }
        Ok::<_, Failure>(())
    })?;
    if left == 0 {
        return Ok(());
    }
    begins_at(wanted, None)?;
    if log.has_rebuilt_state() {
        // The saved state is lost, so no end is known to check against.
        return Ok(());
    }
    may_end_at(records.position(), &log, &state)
}

/// Prints one record.
pub(crate) type Print<W> = fn(&mut W, &Record<'_>) -> io::Result<()>;

/// Returns the form that the arguments ask for.
pub(crate) fn print_as<W: Write>(args: &DumpArgs) -> Print<W> {
    match (args.log.json, args.hex) {
        (true, _) => print_object,
        (_, true) => print_hex,
        _ => print_line,
    }
}

/// Opens a view of the log in `dir`.
pub(crate) fn inspect(dir: &Path) -> Result<Inspector, Failure> {
    let opened = Inspector::open(dir).map_err(|error| match error.advice_of_cause() {
        // It names the tools that read by the headers. Here no header validates either.
        Some(advice) if advice.contains("`palisade salvage`") => error.with_advice(NOTHING_LEFT),
        _ => error,
    });
    Ok(opened?)
}

/// Opens a view of the log as [`inspect`] does. Prints a note to standard error if the meta file is
/// lost.
pub(crate) fn open(dir: &Path) -> Result<Inspector, Failure> {
    let log = inspect(dir)?;
    if log.has_rebuilt_state() {
        let text = "the file `meta` is missing or damaged; the state comes from segment headers";
        complain(format_args!("note: {text}: {}", log.state()?.uuid));
    }
    Ok(log)
}

/// Returns `Corrupt` if the records end at `end` although later ones were once durable. The saved
/// state proves that. For a log that was not closed, or that goes on above its clean end, valid
/// records above `end` prove it, which `verify` finds. Checks nothing while a writer runs, or if
/// the state has changed since `before`: the writer may have recycled the segments that were read.
pub(crate) fn may_end_at(end: Lsn, log: &Inspector, before: &State) -> Result<(), Failure> {
    let floor = before.head.max(before.checkpoint).max(before.clean_end).max(before.epoch_base);
    let is_clean_end = before.clean && end >= floor && log.end()? <= end;
    if is_clean_end || log.has_writer()? || log.state()? != *before {
        return Ok(());
    }
    let text = if end < floor {
        format!("no valid record here, though the log was durable up to LSN {floor}")
    } else {
        let verdict = while_reading(log, |_| log.verify())?;
        if verdict.outcome != Outcome::Corrupt || verdict.end != end {
            return Ok(());
        }
        "no valid record here, though others prove that one was durable".into()
    };
    Err(Error::new(ErrorKind::Corrupt, text).at_lsn(end).into())
}

/// Refuses an LSN at which no record begins: what is printed must be what was asked for.
pub(crate) fn begins_at(wanted: Option<Lsn>, found: Option<Lsn>) -> Result<(), Failure> {
    match (wanted, found) {
        (Some(wanted), Some(found)) if wanted != found => Err(no_record(format!(
            "no record begins at LSN {wanted}; the next one begins at LSN {found}"
        ))),
        (Some(wanted), None) => Err(no_record(format!("no record begins at LSN {wanted}"))),
        _ => Ok(()),
    }
}

fn no_record(text: String) -> Failure {
    Error::new(ErrorKind::NotARecord, text).into()
}

/// Prints a record in one line, cut short.
pub(crate) fn print_line<W: Write>(out: &mut W, record: &Record<'_>) -> io::Result<()> {
    let data = record.data();
    let (lsn, tag, unit) = (record.lsn(), record.tag(), unit(record));
    writeln!(out, "{lsn:>16}  tag {tag:>5}  {:>8} {unit}  {}", data.len(), beginning(data))
}

/// Returns the first bytes, for a line of the short form.
pub(crate) fn beginning(data: &[u8]) -> String {
    let shown = &data[..data.len().min(SHOWN_BYTES)];
    let more = if shown.len() < data.len() { "..." } else { "" };
    format!("{}{more}", shown.escape_ascii())
}

/// Returns the unit of a record's length: without the codec, an encoded record stays encoded.
fn unit(record: &Record<'_>) -> &'static str {
    if record.is_encoded() { "encoded bytes" } else { "bytes" }
}

/// A record as one JSON object.
#[derive(Serialize)]
struct JsonRecord {
    lsn: u64,
    next_lsn: u64,
    tag: u16,
    bytes: usize,
    encoded: bool,
    hex: String,
}

/// Prints a record as one JSON object in a line.
pub(crate) fn print_object<W: Write>(out: &mut W, record: &Record<'_>) -> io::Result<()> {
    let object = JsonRecord {
        lsn: record.lsn().as_u64(),
        next_lsn: record.next_lsn().as_u64(),
        tag: record.tag(),
        bytes: record.data().len(),
        encoded: record.is_encoded(),
        hex: hex(record.data()),
    };
    print_json(out, &object)
}

fn print_hex<W: Write>(out: &mut W, record: &Record<'_>) -> io::Result<()> {
    let data = record.data();
    let (lsn, tag, unit) = (record.lsn(), record.tag(), unit(record));
    writeln!(out, "LSN {lsn}  tag {tag}  {} {unit}", data.len())?;
    for (index, line) in data.chunks(HEX_BYTES_PER_LINE).enumerate() {
        let at = index * HEX_BYTES_PER_LINE;
        let (left, right) = line.split_at(line.len().min(HEX_BYTES_PER_LINE / 2));
        let [left, right] = [left, right].map(spaced);
        let hex = format!("{left} {right}");
        writeln!(out, "  {at:08x}  {hex:<49} |{}|", printable(line))?;
    }
    Ok(())
}

/// Returns all bytes as hexadecimal digits. A dump spends its time here. A formatter for each byte
/// takes over five times as long.
pub(crate) fn hex(data: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    data.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn spaced(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

fn printable(bytes: &[u8]) -> String {
    let is_shown = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    bytes.iter().map(|byte| if is_shown(*byte) { char::from(*byte) } else { '.' }).collect()
}

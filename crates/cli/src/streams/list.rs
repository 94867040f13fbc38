//! `palisade streams ls` and `palisade streams stat`: which streams there are, and what they take.

use std::io::{self, Write};
use std::path::Path;

use palisade_streams::{ConsumerStatus, Pinned, Reader, ReaderStats, StreamStatus};
use serde_json::{Value, json};

use super::Opened;
use crate::args::LogArgs;
use crate::exit::Failure;
use crate::output::{self, print_json, print_some};

/// How many consumers are named, and how many streams that keep the log.
const NAMED: usize = 12;

/// Prints all streams.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(super) fn ls(args: &LogArgs, out: &mut impl Write) -> Result<(), Failure> {
    let opened = Opened::open(&args.dir)?;
    for stream in opened.reader.streams() {
        let printed = match args.json {
            true => print_json(out, &object_of(&stream)),
            false => print_stream(out, &stream),
        };
        printed.map_err(Failure::output)?;
    }
    out.flush().map_err(Failure::output)?;
    opened.check_end()
}

/// Returns how many entries should be there and are not.
fn missing(stream: &StreamStatus) -> u64 {
    (stream.next - stream.first).saturating_sub(stream.entries)
}

fn print_stream(out: &mut impl Write, stream: &StreamStatus) -> io::Result<()> {
    let StreamStatus { name, first, next, entries, values, bytes, .. } = stream;
    write!(
        out,
        "{first:>12} to {next:<12}  {entries:>10} entries  {bytes:>14} bytes  {values:>3} values  \
         {}",
        name.escape_ascii()
    )?;
    match missing(stream) {
        0 => writeln!(out),
        missing => writeln!(out, "  ({missing} entries are missing)"),
    }
}

/// Returns the object of `ls --json`. The help documents its names, so they must not change.
fn object_of(stream: &StreamStatus) -> Value {
    json!({
        "name": stream.name.escape_ascii().to_string(),
        "first": stream.first,
        "next": stream.next,
        "entries": stream.entries,
        "missing": missing(stream),
        "values": stream.values,
        "bytes": stream.bytes,
    })
}

/// The sums over all streams.
#[derive(Default)]
struct Sums {
    streams: usize,
    entries: u64,
    missing: u64,
    values: u64,
    bytes: u64,
    /// Each consumer, with the name of its stream.
    consumers: Vec<(Vec<u8>, ConsumerStatus)>,
}

impl Sums {
    fn of(reader: &Reader) -> Result<Sums, Failure> {
        let mut sums = Sums::default();
        for stream in reader.streams() {
            sums.streams += 1;
            sums.entries += stream.entries;
            sums.missing += missing(&stream);
            sums.values += stream.values;
            sums.bytes += stream.bytes;
            let consumers = reader.consumers(&stream.name)?.into_iter();
            sums.consumers.extend(consumers.map(|consumer| (stream.name.clone(), consumer)));
        }
        Ok(sums)
    }
}

/// Prints what the streams take, and what keeps the log.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(super) fn stat(args: &LogArgs, out: &mut impl Write) -> Result<(), Failure> {
    let opened = Opened::open(&args.dir)?;
    let (sums, stats) = (Sums::of(&opened.reader)?, opened.reader.stats());
    let object = args.json.then(|| object(&args.dir, &sums, &stats));
    output::print(out, object, |out| print(out, &args.dir, &sums, &stats))?;
    opened.check_end()
}

fn print(out: &mut impl Write, dir: &Path, sums: &Sums, stats: &ReaderStats) -> io::Result<()> {
    writeln!(out, "log       {}", dir.display())?;
    writeln!(out, "streams   {}", sums.streams)?;
    writeln!(out, "entries   {}, {} bytes", sums.entries, sums.bytes)?;
    if sums.missing > 0 {
        writeln!(out, "missing   {} entries", sums.missing)?;
    }
    writeln!(out, "values    {}", sums.values)?;
    let (head, end) = (stats.head, stats.end);
    writeln!(out, "live      about {} bytes of {}", stats.live_bytes, end.bytes_since(head))?;
    writeln!(out, "log       LSN {head} to {end}, segments of {} bytes", stats.segment_bytes)?;
    let (records, moved, footers) = (stats.records, stats.moved, stats.footers);
    writeln!(out, "records   {records}, with {moved} copies of moved entries, {footers} footers")?;
    print_some(out, "consumer  ", &sums.consumers, NAMED, |(stream, consumer)| {
        let (stream, name) = (stream.escape_ascii(), consumer.name.escape_ascii());
        let ConsumerStatus { acked, lag, .. } = consumer;
        let seeks = if consumer.is_truncated { ", truncated: it must seek" } else { "" };
        format!("{name} of {stream}, at {acked}, {lag} entries behind{seeks}")
    })?;
    print_some(
        out,
        "keeps     ",
        &stats.pinned,
        NAMED,
        |Pinned { name, entries, first, .. }| {
            let name = name.escape_ascii();
            match first {
                Some(first) => format!("{name}, {entries} entries from {first} on"),
                None => format!("{name}, by its anchor"),
            }
        },
    )
}

/// Returns the object of `stat --json`. The help documents its names, so they must not change.
fn object(dir: &Path, sums: &Sums, stats: &ReaderStats) -> Value {
    let pinned = stats.pinned.iter().map(|pin| {
        let name = pin.name.escape_ascii().to_string();
        json!({ "name": name, "entries": pin.entries, "first": pin.first, "bytes": pin.bytes })
    });
    let consumers = sums.consumers.iter().map(|(stream, consumer)| {
        json!({
            "stream": stream.escape_ascii().to_string(),
            "consumer": consumer.name.escape_ascii().to_string(),
            "acked": consumer.acked,
            "lag": consumer.lag,
            "truncated": consumer.is_truncated,
        })
    });
    json!({
        "dir": dir.display().to_string(),
        "streams": sums.streams,
        "entries": sums.entries,
        "missing": sums.missing,
        "values": sums.values,
        "bytes": sums.bytes,
        "live_bytes": stats.live_bytes,
        "log_bytes": stats.end.bytes_since(stats.head),
        "head": stats.head.as_u64(),
        "end": stats.end.as_u64(),
        "segment_bytes": stats.segment_bytes,
        "records": stats.records,
        "moved": stats.moved,
        "footers": stats.footers,
        "consumers": consumers.collect::<Value>(),
        "pinned": pinned.collect::<Value>(),
    })
}

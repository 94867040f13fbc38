//! `palisade stat`: the space that a log takes, and what its records are like.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use palisade::inspect::Inspector;
use palisade::{CursorStatus, Error, ErrorKind, Lsn};
use serde_json::{Value, json};

use crate::args::LogArgs;
use crate::dump;
use crate::exit::Failure;
use crate::layout::Layout;
use crate::output::{self, print_some};
use crate::progress::while_reading;

pub(crate) const EXAMPLES: &str = "\
Examples:
  palisade stat ./log
  palisade stat --json ./log | jq '.tags[] | select(.tag == 7).records'

Prints the space that the log takes, how many records it has with each tag, how long they are, and
in how many epochs they lie, and where its cursors were saved. Reads and checks every record that
was there at the start; works while a writer runs. Records that only the log buffer holds are not
counted.

Fields of --json; all but dir are numbers or lists:
  dir                    text
  files, file_bytes      all files of the log
  segments, segment_file_bytes
  spares, spare_bytes    files that are prepared to become segments
  reserve_bytes          space that is kept for an open on a full disk
  head, end, live_bytes  LSNs, and the bytes of log between them, without ranges of no epoch
  records, payload_bytes
  smallest, median, largest
                         bytes of a record without its header, or null; the median is the lower one
  epochs                 the numbers of the epochs with records
  tags                   an object for each tag, with tag, records and payload_bytes
  cursors                an object for each cursor: name (text), position (an LSN), lag and max_lag
                         (bytes), keeps_the_log (true or false)

Exit codes: 0 done, 2 wrong usage, or a writer truncated what was being read (run it again), 3 input
or output failed, or there is no log, 4 durable records are damaged or missing; what was read before
is printed.";

/// How many tags the screen shows: those with the most records.
const SHOWN_TAGS: usize = 12;

/// Prints the log's space and what its records are like.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &LogArgs, out: &mut impl Write) -> Result<(), Failure> {
    let log = dump::open(&args.dir)?;
    let layout = while_reading(&log, |_| Layout::of(&log, &args.dir))?;
    let space = Space::of(&log, &args.dir)?;
    let (records, end, error) = while_reading(&log, |_| Records::count(&log, &layout))?;
    let object = args.json.then(|| records.object(&args.dir, &layout, &space));
    output::print(out, object, |out| print(out, &args.dir, &layout, &space, &records))?;
    layout.note_what_follows();
    if let Some(error) = error {
        return Err(error.into());
    }
    let Some(end) = end else { return Ok(()) };
    if !log.has_rebuilt_state() {
        dump::may_end_at(end, &log, &layout.state)?;
    }
    let why = "the writer truncated what follows, or a crash left a torn tail";
    output::note(out, format_args!("counted up to LSN {end}: {why}"))
}

/// Files, and the bytes in them.
#[derive(Clone, Copy, Default)]
struct Files {
    count: u64,
    bytes: u64,
}

impl Files {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

/// What the log's files take, and the cursors that may keep them.
#[derive(Default)]
struct Space {
    all: Files,
    segments: Files,
    spares: Files,
    reserve: Files,
    cursors: Vec<CursorStatus>,
}

impl Space {
    fn of(log: &Inspector, dir: &Path) -> Result<Space, Failure> {
        let failure = Failure::at("list", dir);
        let mut space = Space { cursors: log.cursors()?, ..Space::default() };
        for entry in fs::read_dir(dir).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            let bytes = match entry.metadata() {
                Ok(file) => file.len(),
                // The writer removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failure(error)),
            };
            let name = entry.file_name();
            let files = match name.to_str().unwrap_or_default() {
                "lock" | "meta" | "meta.tmp" | "meta.unsynced" => None,
                "reserve" => Some(&mut space.reserve),
                name if is_numbered(name, "segment-") => Some(&mut space.segments),
                name if is_numbered(name, "spare-") => Some(&mut space.spares),
                _ => continue,
            };
            if let Some(files) = files {
                files.add(bytes);
            }
            space.all.add(bytes);
        }
        Ok(space)
    }
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|it| it.is_ascii_digit());
    name.strip_prefix(prefix).is_some_and(is_number)
}

/// What the records are like.
#[derive(Default)]
struct Records {
    tags: BTreeMap<u16, Files>,
    /// How many records have each length.
    lengths: BTreeMap<usize, u64>,
    epochs: Vec<u64>,
    count: u64,
    payload_bytes: u64,
}

impl Records {
    /// Reads the records up to the end that `layout` knows. Returns where they end if that is
    /// lower, and the error after them if a segment or its header is missing or damaged.
    fn count(
        log: &Inspector,
        layout: &Layout,
    ) -> Result<(Records, Option<Lsn>, Option<Error>), Failure> {
        let mut counted = Records::default();
        let mut records = log.records(Some(layout.state.head))?;
        let mut bases = layout.epoch_bases().into_iter().peekable();
        loop {
            let record = match records.next() {
                Ok(Some(record)) if record.lsn() < layout.end => record,
                Ok(Some(_)) => return Ok((counted, None, None)),
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    return Ok((counted, None, Some(error)));
                }
                Err(error) => return Err(error.into()),
            };
            let mut epoch = None;
            while let Some((_, number)) = bases.next_if(|(base, _)| *base <= record.lsn()) {
                epoch = Some(number);
            }
            counted.epochs.extend(epoch);
            counted.add(record.tag(), record.data().len());
        }
        Ok((counted, Some(records.position()).filter(|end| *end < layout.end), None))
    }

    fn add(&mut self, tag: u16, bytes: usize) {
        self.tags.entry(tag).or_default().add(bytes as u64);
        *self.lengths.entry(bytes).or_default() += 1;
        self.count += 1;
        self.payload_bytes += bytes as u64;
    }

    /// Returns the smallest, the median and the largest length.
    fn lengths(&self) -> Option<[usize; 3]> {
        let (smallest, largest) = (self.lengths.keys().next()?, self.lengths.keys().next_back()?);
        let mut left = (self.count - 1) / 2;
        let median = self.lengths.iter().find(|(_, count)| {
            let is_here = left < **count;
            left = left.saturating_sub(**count);
            is_here
        })?;
        Some([*smallest, *median.0, *largest])
    }

    /// Returns the object of `--json`. The help documents its names, so they must not change.
    fn object(&self, dir: &Path, layout: &Layout, space: &Space) -> Value {
        let length = |index: usize| self.lengths().map(|lengths| lengths[index]);
        let tags = self.tags.iter().map(|(tag, Files { count, bytes })| {
            json!({ "tag": tag, "records": count, "payload_bytes": bytes })
        });
        let cursors = space.cursors.iter().map(|cursor| {
            json!({
                "name": cursor.name,
                "position": cursor.position.as_u64(),
                "lag": cursor.lag,
                "max_lag": cursor.max_lag,
                "keeps_the_log": cursor.keeps_the_log,
            })
        });
        json!({
            "dir": dir.display().to_string(),
            "files": space.all.count,
            "file_bytes": space.all.bytes,
            "segments": space.segments.count,
            "segment_file_bytes": space.segments.bytes,
            "spares": space.spares.count,
            "spare_bytes": space.spares.bytes,
            "reserve_bytes": space.reserve.bytes,
            "head": layout.state.head.as_u64(),
            "end": layout.end.as_u64(),
            "live_bytes": layout.live_bytes,
            "records": self.count,
            "payload_bytes": self.payload_bytes,
            "smallest": length(0),
            "median": length(1),
            "largest": length(2),
            "epochs": self.epochs,
            "tags": tags.collect::<Value>(),
            "cursors": cursors.collect::<Value>(),
        })
    }
}

fn print(
    out: &mut impl Write,
    dir: &Path,
    layout: &Layout,
    space: &Space,
    records: &Records,
) -> io::Result<()> {
    writeln!(out, "log       {}", dir.display())?;
    let mut files = |name: &str, Files { count, bytes }: Files| {
        writeln!(out, "{name:<9} {count}, {bytes} bytes")
    };
    files("files", space.all)?;
    files("segments", space.segments)?;
    files("spares", space.spares)?;
    writeln!(out, "reserve   {} bytes", space.reserve.bytes)?;
    let (head, end) = (layout.state.head, layout.end);
    writeln!(out, "live      {} bytes, LSN {head} to {end}", layout.live_bytes)?;
    let epochs: Vec<String> = records.epochs.iter().map(u64::to_string).collect();
    match &epochs[..] {
        [] => writeln!(out, "epochs    none with records")?,
        [one] => writeln!(out, "epochs    1, number {one}")?,
        [first, .., last] => {
            writeln!(out, "epochs    {}, numbers {first} to {last}", epochs.len())?;
        }
    }
    for CursorStatus { name, position, lag, keeps_the_log, .. } in &space.cursors {
        let (name, keeps) =
            (name.escape_debug(), if *keeps_the_log { "the log" } else { "nothing" });
        writeln!(out, "cursor    {name}, LSN {position}, lag {lag} bytes, keeps {keeps}")?;
    }
    writeln!(out, "records   {}, {} bytes", records.count, records.payload_bytes)?;
    if let Some([smallest, median, largest]) = records.lengths() {
        writeln!(out, "bytes     smallest {smallest}, median {median}, largest {largest}")?;
    }
    let mut tags: Vec<(&u16, &Files)> = records.tags.iter().collect();
    tags.sort_by_key(|(_, files)| std::cmp::Reverse(files.count));
    print_some(out, "tag ", &tags, SHOWN_TAGS, |(tag, Files { count, bytes })| {
        format!("{tag:<5} {count} records, {bytes} bytes")
    })
}

//! `palisade streams`: looks into a log of streams (crate `palisade-streams`) without opening it.

mod check;
mod entries;
mod list;

use std::io::Write;
use std::path::Path;

use clap::{Args, Subcommand};
use palisade::inspect::{Inspector, State};
use palisade_streams::Reader;

use crate::args::LogArgs;
use crate::dump;
use crate::exit::{Exit, Failure};
use crate::progress::while_reading;

pub(crate) const EXAMPLES: &str = "\
Examples:
  palisade streams ls ./log                  all streams
  palisade streams stat ./log                what they take, and what keeps the log
  palisade streams dump ./log orders         the entries of the stream `orders`
  palisade streams tail ./log orders         the same, and those that a writer adds
  palisade streams verify ./log              check that no entry is missing, and the footers

All of them read only and work while a writer runs. They do not see records that only the log
buffer holds. They read all records of the log, some of them again to find where it ends, and keep
about 60 bytes for each entry. If a writer makes them read the log anew, they keep twice as much
meanwhile.

The name of a stream is any bytes. Quotes, backslashes and all bytes outside of printable ASCII are
printed as \\t, \\r, \\n, \\', \\\", \\\\ and \\x00 to \\xff. A name on the command line can
have the same form.

Exit codes: those of the command, which its `--help` lists: 0 done, 1 a torn tail, 2 wrong usage,
3 input or output failed, or there is no such log or stream, 4 records are damaged or missing.";

const LS_EXAMPLES: &str = "\
Examples:
  palisade streams ls ./log
  palisade streams ls --json ./log | jq -r 'select(.missing > 0).name'

Prints a line for each stream, by name: the index of its first entry and the one that the next entry
gets, how many entries and values it has, and the bytes of the entries.

Fields of the objects of --json, one a line for each stream; all but name are numbers:
  name                   the name, as text with escapes
  first, next            the index of the first entry, and the one that the next entry gets
  entries, missing       entries that were found, and entries that should be there and are not
  values                 how many values the stream has
  bytes                  bytes of the entries

Exit codes: 0 done, 2 wrong usage, 3 input or output failed, or there is no log of streams,
4 durable records are damaged or missing; what was read before is printed.";

const STAT_EXAMPLES: &str = "\
Examples:
  palisade streams stat ./log
  palisade streams stat --json ./log | jq '.pinned[].name'

Prints how many streams, entries and values the log has, what they take, where the consumers are,
and which streams keep the lowest segment. If a stream is named there for long, its engine does not
truncate it.

Fields of --json; all but dir, consumers and pinned are numbers:
  dir                    text
  streams, entries, missing, values
                         of all streams; missing: entries that should be there and are not
  bytes, live_bytes      bytes of the entries, and about what they take with their headers
  log_bytes              bytes of log from the head to the end
  head, end              LSNs
  segment_bytes          bytes of log in a segment
  records, moved, footers
                         records of the log; of these, copies of moved entries, and footers
  consumers              an object for each consumer: stream and consumer (the names), acked (the
                         first entry that it has not acknowledged), lag (how many it has not),
                         truncated (true if it must seek, because entries were truncated)
  pinned                 an object for each stream that keeps the lowest segment: name, entries
                         (how many are there), first (the index of the first one, or null), bytes
                         (what could be released at most)

Exit codes: 0 done, 2 wrong usage, 3 input or output failed, or there is no log of streams,
4 durable records are damaged or missing; what was read before is printed.";

const DUMP_EXAMPLES: &str = "\
Examples:
  palisade streams dump ./log orders
  palisade streams dump ./log orders --from 100 --to 199
  palisade streams dump ./log orders --last 5 --json | jq -r .hex | xxd -r -p
  palisade streams dump ./log 'raft/\\x00\\x07'

Prints index, length and the first bytes, one entry a line. The streams and their ends are those at
the start. If a running writer truncates entries before they are printed, a note on standard error
names them.

Fields of the objects of --json, one a line for each entry; all but hex are numbers:
  index                  the index of the entry in its stream
  bytes, hex             how many bytes were appended, and these bytes in hexadecimal

Exit codes: 0 done, 2 wrong usage, 3 input or output failed, or there is no such stream, 4 durable
records are damaged or missing; what can be read is printed.";

const TAIL_EXAMPLES: &str = "\
Examples:
  palisade streams tail ./log orders
  palisade streams tail ./log orders --from 100 --json

Prints the entries of a stream, then waits for those that a writer adds, and prints each entry after
the writer has handed it to the operating system. It ends on Ctrl-C, at damage, when its output is
closed, and when the stream is deleted. If the writer truncates entries, printed or
not, a note on standard error names their indexes, and the output continues with the next entry of
the stream.

Fields of the objects of --json: those of `palisade streams dump`: index, bytes, hex.

Exit codes: 0 done, 2 wrong usage, 3 input or output failed, or there is no such stream, 4 durable
records are damaged or missing.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  palisade streams verify ./log && echo whole
  palisade streams verify --json ./log | jq .missing

Checks every checksum, as `palisade verify` does, whether each stream has all its entries, and each
footer: what an open makes of the footers must be what all records say. If the log is damaged, it
continues past the damage, and names the entries that are missing. A footer repeats what records
say, so its loss alone loses no entry.

Fields of --json:
  dir                    text
  outcome                of the log below, as `palisade verify` names it: `clean`, `unclean`,
                         `torn_tail`, `unfinished` or `corrupt`
  whole                  true if nothing is damaged, missing or different
  streams, entries, records, footers
                         how many were found; footers: those that an open can use
  bad_footers            an object for each: segment, lsn (or null), why
  missing                an object for each range of entries: name, first, last
  without_anchor         numbers of streams whose name is lost
  different              names of streams for which the footers and the records differ

Exit codes: 0 whole, and outcome `clean`, `unclean` or `unfinished`, 1 whole, and `torn_tail`,
2 wrong usage, 3 input or output failed, or there is no log of streams, 4 not whole.";

#[derive(Args, Debug)]
pub(crate) struct StreamsArgs {
    #[command(subcommand)]
    command: StreamsCommand,
}

#[derive(Debug, Subcommand)]
enum StreamsCommand {
    /// Lists all streams.
    #[command(after_help = LS_EXAMPLES)]
    Ls(LogArgs),
    /// Shows what the streams take, and which of them keep the log.
    #[command(after_help = STAT_EXAMPLES)]
    Stat(LogArgs),
    /// Prints entries of a stream.
    #[command(after_help = DUMP_EXAMPLES)]
    Dump(StreamDumpArgs),
    /// Prints entries of a stream, and those that a writer adds.
    #[command(after_help = TAIL_EXAMPLES)]
    Tail(StreamTailArgs),
    /// Checks that no entry is missing, and the footers.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(LogArgs),
}

#[derive(Args, Debug)]
struct StreamDumpArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Name of the stream, with escapes as `ls` prints them.
    #[arg(value_parser = parse_name)]
    name: Name,
    /// Begin with the entry that has this index.
    #[arg(long, value_name = "INDEX")]
    from: Option<u64>,
    /// End with the entry that has this index.
    #[arg(long, value_name = "INDEX")]
    to: Option<u64>,
    /// Print the last entries of the range only, this many.
    #[arg(long, value_name = "N")]
    last: Option<u64>,
}

#[derive(Args, Debug)]
struct StreamTailArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Name of the stream, with escapes as `ls` prints them.
    #[arg(value_parser = parse_name)]
    name: Name,
    /// Begin with the entry that has this index. Default: the first one.
    #[arg(long, value_name = "INDEX")]
    from: Option<u64>,
    /// Milliseconds that it waits between two polls of the files.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    poll_ms: u64,
}

/// The name of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name(Vec<u8>);

/// Reads what `escape_ascii` prints. Other characters stand for themselves.
fn parse_name(text: &str) -> Result<Name, String> {
    let mut name = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            name.push(byte);
            continue;
        }
        let (byte, len) = match *rest {
            [b't', ..] => (b'\t', 1),
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [byte @ (b'\\' | b'\'' | b'"'), ..] => (byte, 1),
            [b'x', high, low, ..] => (hex_digit(high)? << 4 | hex_digit(low)?, 3),
            _ => {
                return Err("a backslash begins \\t, \\r, \\n, \\', \\\", \\\\ or \\xNN".to_owned());
            }
        };
        name.push(byte);
        rest = &rest[len..];
    }
    Ok(Name(name))
}

fn hex_digit(digit: u8) -> Result<u8, String> {
    let value = char::from(digit).to_digit(16).ok_or("\\x takes two hexadecimal digits")?;
    Ok(value as u8)
}

/// Runs one of the commands.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &StreamsArgs, out: &mut impl Write) -> Result<Exit, Failure> {
    match &args.command {
        StreamsCommand::Ls(args) => list::ls(args, out).map(|()| Exit::Success),
        StreamsCommand::Stat(args) => list::stat(args, out).map(|()| Exit::Success),
        StreamsCommand::Dump(args) => entries::dump(args, out).map(|()| Exit::Success),
        StreamsCommand::Tail(args) => entries::tail(args, out).map(|()| Exit::Success),
        StreamsCommand::Verify(args) => check::run(args, out),
    }
}

/// A log that was read.
struct Opened {
    log: Inspector,
    /// The log's state before it was read.
    state: State,
    reader: Reader,
}

impl Opened {
    fn open(dir: &Path) -> Result<Opened, Failure> {
        let log = dump::open(dir)?;
        let state = log.state()?;
        let reader = while_reading(&log, |_| Reader::open(dir))?;
        Ok(Opened { log, state, reader })
    }

    /// Refuses an end that damage made.
    fn check_end(&self) -> Result<(), Failure> {
        if self.log.has_rebuilt_state() {
            // Nothing says where the log should end.
            return Ok(());
        }
        dump::may_end_at(self.reader.end(), &self.log, &self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_its_escaped_form_says() {
        let all: Vec<u8> = (0..=255).collect();
        for name in [&all[..], b"plain", b"", b"a\\b", b"\\x41"] {
            let escaped = name.escape_ascii().to_string();
            assert_eq!(parse_name(&escaped), Ok(Name(name.to_vec())), "{escaped}");
        }
        assert_eq!(parse_name("gr\u{fc}n"), Ok(Name("gr\u{fc}n".into())));
        for wrong in ["\\", "a\\q", "\\x4", "\\xg0", "\\x+1"] {
            assert!(parse_name(wrong).is_err(), "{wrong}");
        }
    }
}

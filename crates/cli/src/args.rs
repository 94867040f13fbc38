//! Arguments, ranges and help texts of the commands whose arguments are not defined in their own
//! file.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use palisade::Lsn;

use crate::demo::content;

pub(crate) const DEMO_EXAMPLES: &str = "\
Examples:
  palisade demo
  palisade demo --seconds 1 --threads 64
  palisade demo --rounds 20 --promise append
  palisade demo --dir /mnt/disk/demo --record-bytes 4096

A child process writes records from all threads, and reports each record after the call that
--promise names has returned. The parent kills the process, opens the log again and checks that
every reported record is there with its content, that no record is repeated, and that a child wrote
each record of the log. The next round continues with the same log. Without --dir the demo uses a
folder below ./target, and removes it unless the check fails. A folder that --dir names stays.

Exit codes: 0 the check held, 1 it did not, 2 wrong usage, 3 input or output failed.";

pub(crate) const INFO_EXAMPLES: &str = "\
Examples:
  palisade info ./log
  palisade info --segments ./log
  palisade info --json ./log | jq .head

Reads only; works while a writer runs.

Fields of --json; LSNs and sizes are numbers:
  dir, uuid              text
  format_version         number
  state                  `open` (a process holds the log), `closed`, `unclean` (not closed, or
                         records follow the clean end; the next open recovers), `unsynced` (a copy
                         that an open could not sync) or `lost` (the file `meta` is missing or
                         damaged)
  has_damaged_copy       true if one of the two copies of the state in `meta` does not validate
  codec                  the name of the codec that encodes the records, or null
  codec_key              the identifier of its key in hexadecimal digits (zeros: no key), or null
  segment_bytes, buffer_bytes
                         bytes of log in a segment, and bytes of the log buffer (null if `lost`)
  buffer                 where the log buffer is: `memory` (a shared log buffer: appends survive the
                         death of the process), `heap` (under the policies `OnCommit` and
                         `Interval` they do not), `none` (the log was closed), `gone` (its file is
                         missing, or the folder is a copy) or `unknown` (`meta` is lost)
  buffer_file            the path of the shared log buffer, or of the file that notes how far a log
                         with a heap buffer is durable; else null
  epoch, epoch_base      the running epoch and its first LSN (null if `lost`)
  head                   where the log begins; if `lost`, where the first segment begins
  checkpoint             the last checkpoint, or null
  end                    where a closed log ends; else null
  last_end               how far the log was durable when a process last closed it or left it in
                         good order, unless it ends there; else null
  segments, unreadable_segments
                         how many files of segments there are, and how many lack a valid header
  first_segment, last_segment
                         their lowest and highest number, or null
  segment_list           with --segments: an object for each, with number, base (its first LSN),
                         epoch, and error (null, or why its header does not validate)

Exit codes: 0 done, also if `meta` is lost and a header of a segment validates, 2 wrong usage,
3 input or output failed, or there is neither a file `meta` nor a valid header, 4 there is a file
`meta`, and neither it nor a header validates.";

pub(crate) const DUMP_EXAMPLES: &str = "\
Examples:
  palisade dump ./log
  palisade dump ./log --from 65536 --limit 5 --hex
  palisade dump ./log --json | jq -r .hex | xxd -r -p
  palisade dump ./log --follow --json

`encoded` marks records that the log's codec has encoded. Their stored bytes are printed; only a
program with the codec can decode them.

Without --json or --hex: LSN, tag, length and the first bytes, one record a line. Records that a
running writer has not handed to the operating system yet are not shown. Reads only. It ends at the
first place without a valid record. If that place is damaged, or a segment or its header is, the
error names it; `palisade salvage` continues past the damage.

With --follow it waits at the end for the records that a writer adds, and prints each record after
the writer has handed it to the operating system. It ends on Ctrl-C, after --limit records, when
its output is closed, or at damage. While a writer runs, an incomplete write can look like damage:
then it prints a note and waits. If the writer truncates records before they are printed, or a
suffix that was printed, a note on standard error names the range, and the output continues with the
next record of the log.

Fields of the objects of --json, one a line for each record; all but hex and encoded are numbers:
  lsn, next_lsn          where the record begins, and where the next one can begin
  tag                    the tag that the writer gave it
  bytes, hex             how many bytes are stored, and these bytes in hexadecimal
  encoded                true if the log's codec has encoded these bytes

Exit codes: 0 done, 2 wrong usage, or a writer truncated what was being read (run it again), 3 input
or output failed, 4 durable records are damaged or missing.";

pub(crate) const VERIFY_EXAMPLES: &str = "\
Examples:
  palisade verify ./log && echo whole
  palisade verify --deep ./log
  palisade verify --json ./log | jq -r .outcome

Checks every checksum and reports how the log ends. With --deep it reads segments in parallel and
continues past the damage, so that it names a bad place of each damaged segment. Reads only; works
while a writer runs: an unfinished tail of a running writer is not reported as damage. It does not
read the log buffer, so it does not count records that only the log buffer holds. The next open
recovers these from a shared log buffer. The floor is an LSN below which every record was certainly
durable: a bad place below it is damage, and one at or above it is a torn tail. An open completes a
torn tail from a shared log buffer, or removes it.

A folder of archived segments has no file `meta`, so its outcome is `corrupt`: read it with
`palisade dump`.

Fields of --json; LSNs are numbers:
  dir                    text
  outcome                text: `clean`, `unclean` (whole, but not closed), `torn_tail`, `unfinished`
                         (`unclean` or `torn_tail`, while a process holds the log) or `corrupt`
  why                    text, or null
  segments               number of segments at or above the head
  records, bytes         numbers of records and of bytes of log that validate. In a corrupt log
                         only what is below the first bad place, or below `end` if a segment is
                         missing or its header is damaged. With --deep, `records` counts all
                         that `palisade salvage` prints, and `bytes` at most what is below the first
                         bad place of each segment
  head                   LSN where the log begins
  end                    LSN where the valid part ends; in a corrupt log the LSN for
                         `palisade repair --from`
  floor                  LSN: the floor, as above
  torn_bytes             number of bytes from the end to the end of the last valid record above
                         it, or of the record at the end if its header is valid
  bad_places             list of objects, each with the numbers lsn and segment
  strays                 list of the numbers of files that have a segment's name and are not part of
                         the log
  has_damaged_copy       true if one of the two copies of the state in `meta` does not validate. The
                         other one serves, so this changes no outcome

Exit codes: 0 outcome `clean`, `unclean` or `unfinished`, 1 `torn_tail`, 2 wrong usage, 3 input or
output failed, 4 `corrupt`.";

pub(crate) const SALVAGE_EXAMPLES: &str = "\
Examples:
  palisade salvage ./log
  palisade salvage ./log --json > records.json

Prints every record that still validates, also of a log that cannot be opened, and on standard error
the gaps: ranges between records, and above the last one up to the end that the log must have had at
least. Reads only; works while a writer runs. Then a gap can also be a segment that
the writer has just recycled, or a record that is not written yet. Records that only the log buffer
holds are not printed. If --from is within a record, the first gap ends at the next record.

Fields of the objects of --json: those of `palisade dump`: lsn, next_lsn, tag, bytes, hex,
encoded.

Exit codes: 0 no gap was found, 2 wrong usage, or a writer truncated what was being read (run it
again), 3 input or output failed, 4 gaps.";

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Seconds from the first report of the writer to its kill, in each round: 0.05 to 86400.
    #[arg(long, default_value = "3", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Folder of the log: absent or empty. Default: below ./target, kept only if the check fails.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Bytes of log in a segment: a multiple of 4096 from 65536 to 1 TiB.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub(crate) segment_bytes: u64,
    /// How many times the writer is killed.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) load: DemoLoad,
}

/// What the demo's writer does.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoLoad {
    /// How many threads write.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// Size of each record, from 32 bytes to 4 MiB.
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = record_bytes())]
    pub(crate) record_bytes: usize,
    /// Bytes of the log buffer: a power of two from 4096 to 1 GiB.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    pub(crate) buffer_bytes: usize,
    /// The call after which the writer reports a record.
    #[arg(long, value_enum, default_value_t = Promise::Commit)]
    pub(crate) promise: Promise,
}

/// What the demo's writer calls, and so what a reported record must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Promise {
    /// The record survives process kill, operating system crash and power loss.
    Commit,
    /// The record survives process kill.
    Append,
}

impl Promise {
    /// Returns the word for this on the command line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Promise::Commit => "commit",
            Promise::Append => "append",
        }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ChildArgs {
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) load: DemoLoad,
}

/// The arguments of each command that reads a log.
#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// Folder of the log.
    pub(crate) dir: PathBuf,
    /// JSON instead of text, with the fields below.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// List all segments, one a line.
    #[arg(long)]
    pub(crate) segments: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Begin with the record at this LSN (decimal, or hexadecimal after 0x).
    #[arg(long, value_name = "LSN")]
    pub(crate) from: Option<Lsn>,
    /// Print at most this many records.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// All bytes of each record, sixteen a line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) hex: bool,
    /// Wait for the records that a writer adds, and print them, too.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Milliseconds that --follow waits between two polls of the files.
    #[arg(long, value_name = "MS", default_value_t = 100, requires = "follow")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) poll_ms: u64,
}

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Read segments in parallel and continue past the damage.
    #[arg(long)]
    pub(crate) deep: bool,
    /// Threads of --deep; 0: one for each core.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "deep")]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=256))]
    pub(crate) threads: u16,
}

#[derive(Args, Debug)]
pub(crate) struct SalvageArgs {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Begin at this LSN (decimal, or hexadecimal after 0x).
    #[arg(long, value_name = "LSN")]
    pub(crate) from: Option<Lsn>,
}

/// Parses a number of seconds, from 0.05 to 86400.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.05..=86_400.0).contains(&seconds) {
        return Err("must be from 0.05 to 86400".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn record_bytes() -> RangedU64ValueParser<usize> {
    let range = content::MIN_RECORD_BYTES as u64..=content::MAX_RECORD_BYTES as u64;
    RangedU64ValueParser::new().range(range)
}

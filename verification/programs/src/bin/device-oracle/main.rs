//! The writer and checker of `verification/devices.sh`.
//!
//! The script makes a device fail, cuts its power, or shuts its file system down. This process
//! writes a log on that device and a [`ledger`] on a healthy one. It reads commands from standard
//! input, one per line, and answers each with one line:
//!
//! | command | what it does |
//! |---|---|
//! | `open` | opens the log and checks all records; from now on they must be there |
//! | `append N`, `commit N` | writes N records from all threads |
//! | `load append N`, `load commit N`, `halt` | writes at most N records in the background |
//! | `sync`, `close`, `drop` | calls the log, or drops its handle |
//! | `truncate P` | truncates before the record at P percent |
//! | `check` | checks all records of the open log |
//! | `fork drop`, `fork append`, `fork close` | a child process uses its inherited handle |
//! | `forge FILE AT VALUE` | changes a field of a file's first block and its checksum |
//! | `quit` | ends the process, as the end of the input does |
//!
//! | answer begins with | meaning |
//! |---|---|
//! | `ok` | done |
//! | `nospace` | the log lacks space; the same call may succeed later |
//! | `failed` | the log must be opened again |
//! | `refused` | the log could not be opened or read |
//! | `violated` | the log contradicts the ledger, or reports that it is damaged or missing |
//!
//! Exit codes: 0; 1 if anything was violated; 2 if a command or an argument is wrong, or the
//! ledger, the input or the output failed.

mod check;
#[path = "../../../../../crates/cli/src/demo/content.rs"]
#[expect(dead_code, reason = "the demo uses the rest")]
mod content;
mod forge;
mod fork;
mod ledger;
mod log;
mod plain;
mod writer;

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use palisade::ErrorKind;

use self::check::{Broken, Found};
use self::fork::Side;
use self::ledger::Ledger;
use self::log::Log;
use self::writer::{Call, Stop, Writer, Writers, locked};

/// Writes and checks a log on a failing device, by the commands of standard input.
#[derive(Parser, Debug)]
struct OracleArgs {
    /// Folder of the log, on the device that fails.
    #[arg(long)]
    dir: PathBuf,
    /// File of the ledger, on a healthy disk.
    #[arg(long)]
    ledger: PathBuf,
    /// Seed of the content of all records.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    #[arg(long, default_value_t = 200)]
    record_bytes: usize,
    #[arg(long, default_value_t = 64 << 10)]
    segment_bytes: u64,
    #[arg(long, default_value_t = 64 << 10)]
    buffer_bytes: usize,
    /// Write the control log instead of Palisade.
    #[arg(long)]
    control: bool,
}

fn main() -> ExitCode {
    match run(&OracleArgs::parse(), &mut io::stdout()) {
        Ok(is_violated) => ExitCode::from(u8::from(is_violated)),
        Err(error) => {
            let _ = writeln!(io::stderr(), "device-oracle: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the commands of standard input. Returns whether anything was violated.
fn run(args: &OracleArgs, out: &mut impl Write) -> Result<bool> {
    let ledger = Ledger::open(&args.ledger)
        .with_context(|| format!("could not use {}", args.ledger.display()))?;
    let ledger = Arc::new(Mutex::new(ledger));
    let mut oracle = Oracle { args, ledger, writer: None, load: None };
    let mut is_violated = false;
    for line in io::stdin().lock().lines() {
        let line = line.context("could not read a command")?;
        if line == "quit" {
            break;
        }
        let answer = oracle.answer(&line)?;
        is_violated |= answer.0 == Word::Violated;
        answer.say(out)?;
    }
    Ok(is_violated)
}

/// What an answer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Ok,
    NoSpace,
    Failed,
    Refused,
    Violated,
}

/// The answer to a command.
#[derive(Debug)]
struct Answer(Word, String);

impl Answer {
    fn ok(text: impl Into<String>) -> Answer {
        Answer(Word::Ok, text.into())
    }

    fn say(&self, out: &mut impl Write) -> Result<()> {
        let word = format!("{:?}", self.0).to_lowercase();
        writeln!(out, "{word} {}", self.1).and_then(|()| out.flush()).context("could not answer")
    }
}

/// The thread number of records that a forked child commits.
const CHILD: u32 = 1000;

struct Oracle<'a> {
    args: &'a OracleArgs,
    ledger: Arc<Mutex<Ledger>>,
    writer: Option<Writer>,
    load: Option<Writers>,
}

impl Oracle<'_> {
    fn answer(&mut self, line: &str) -> Result<Answer> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words {
            ["open"] => self.open(),
            ["append", count] => self.write(Call::Append, number(count)?),
            ["commit", count] => self.write(Call::Commit, number(count)?),
            ["load", call @ ("append" | "commit"), most] => {
                let call = if call == "append" { Call::Append } else { Call::Commit };
                self.load =
                    Some(Writers::start(self.writer()?, call, number(most)?, self.args.threads));
                Ok(Answer::ok("writing"))
            }
            ["halt"] => self.halt(),
            ["sync"] => answer_to(self.writer()?.sync(), "synced"),
            ["truncate", percent] => self.truncate(number(percent)?),
            ["check"] => {
                let checked = self.check(&self.writer()?.log);
                Ok(checked.map_or_else(broken, |found| Answer::ok(counts(&found))))
            }
            ["close"] => {
                let closed = self.taken()?.log.close().map_err(Stop::Log);
                answer_to(closed, "closed")
            }
            ["drop"] => {
                drop(self.taken()?);
                Ok(Answer::ok("dropped"))
            }
            ["fork", what @ ("drop" | "append" | "close")] => self.fork(what),
            ["forge", name, at, value] => {
                forge::forge(&self.args.dir.join(name), number(at)?, number(value)?)
                    .with_context(|| format!("could not forge {name}"))?;
                Ok(Answer::ok("forged"))
            }
            _ => bail!("no command: {line}"),
        }
    }

    fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or_else(|| anyhow!("the log is not open"))
    }

    /// Takes the only handle of the log.
    fn taken(&mut self) -> Result<Writer> {
        self.writer.take().ok_or_else(|| anyhow!("the log is not open"))
    }

    fn open(&mut self) -> Result<Answer> {
        if self.writer.is_some() {
            bail!("the log is open");
        }
        let args = self.args;
        let is_known = locked(&self.ledger).session() > 0;
        let log = match Log::open(args, is_known) {
            Ok(log) => log,
            Err(error) => return Ok(refused(&error)),
        };
        let found = match self.check(&log) {
            Ok(found) => found,
            Err(error) => return Ok(broken(error)),
        };
        let text = format!("{} {}", counts(&found), log.report());
        let mut ledger = locked(&self.ledger);
        ledger.settle(&found).and_then(|()| ledger.begin_session()).map_err(unledgered)?;
        let session = ledger.session();
        drop(ledger);
        self.writer = Some(Writer {
            log,
            seed: check::seed_of(args.seed, session),
            record_bytes: args.record_bytes,
            ledger: Arc::clone(&self.ledger),
        });
        Ok(Answer::ok(format!("session={session} {text}")))
    }

    fn check(&self, log: &Log) -> std::result::Result<Found, Broken> {
        check::check(log, &locked(&self.ledger), self.args.seed)
    }

    fn write(&self, call: Call, count: u64) -> Result<Answer> {
        let (done, stop) = self.writer()?.write(call, count, self.args.threads);
        answer_to(stop.map_or(Ok(()), Err), &format!("done={done}"))
    }

    fn halt(&mut self) -> Result<Answer> {
        let load = self.load.take().ok_or_else(|| anyhow!("there is no load"))?;
        let (done, lacking, stop) = load.stop();
        answer_to(stop.map_or(Ok(()), Err), &format!("done={done} lacking={lacking}"))
    }

    fn truncate(&self, percent: u64) -> Result<Answer> {
        let writer = self.writer()?;
        let mut ledger = locked(&self.ledger);
        let Some(lsn) = ledger.owed_at(percent, writer.log.head()) else {
            return Ok(Answer::ok("nothing to truncate"));
        };
        ledger.may_truncate(lsn).map_err(unledgered)?;
        drop(ledger);
        answer_to(writer.log.truncate_before(lsn).map_err(Stop::Log), &format!("head={lsn}"))
    }

    /// Forks. The child uses its handle, answers with a line that begins with `child`, and ends.
    fn fork(&mut self, what: &str) -> Result<Answer> {
        let side = fork::fork().context("could not fork")?;
        if side == Side::Parent {
            return Ok(Answer::ok("forked"));
        }
        let writer = self.taken()?;
        let done = match what {
            // Both processes append to the ledger's file: the child's commits are owed, too.
            "append" => writer.write_as(CHILD, 100),
            "close" => writer.log.close().map_err(Stop::Log),
            _ => {
                drop(writer);
                Ok(())
            }
        };
        let text = done.map_or_else(|stop| stop.to_string(), |()| "ok".into());
        let _ = writeln!(io::stdout(), "child {what}: {text}");
        std::process::exit(0)
    }
}

/// Parses a number of a command.
fn number(word: &str) -> Result<u64> {
    word.parse().map_err(|_| anyhow!("not a number: {word}"))
}

fn counts(found: &Found) -> String {
    let records: usize = found.values().map(|records| records.len()).sum();
    format!("records={records} sessions={}", found.len())
}

/// Turns the result of a call of the log into an answer.
fn answer_to(done: std::result::Result<(), Stop>, text: &str) -> Result<Answer> {
    match done {
        Ok(()) => Ok(Answer::ok(text)),
        Err(Stop::Ledger(error)) => Err(unledgered(error)),
        Err(stop) if stop.is_lack_of_space() => Ok(Answer(Word::NoSpace, format!("{text} {stop}"))),
        Err(stop) => Ok(Answer(Word::Failed, format!("{text} {stop}"))),
    }
}

/// Turns a failed open or read into an answer. An open that reports damage is a violation: the
/// device may fail a write, but it keeps what it has confirmed.
fn refused(error: &palisade::Error) -> Answer {
    let word = match error.kind() {
        ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Foreign => Word::Violated,
        ErrorKind::NoSpace => Word::NoSpace,
        _ => Word::Refused,
    };
    Answer(word, format!("{:?}: {error}", error.kind()))
}

fn broken(broken: Broken) -> Answer {
    match broken {
        Broken::Unread(error) => refused(&error),
        Broken::Violated(text) => Answer(Word::Violated, text),
    }
}

fn unledgered(source: io::Error) -> anyhow::Error {
    anyhow::Error::new(source).context("could not write the ledger")
}

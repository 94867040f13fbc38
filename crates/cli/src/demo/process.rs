//! One run of the writing process, seen from the parent: start, listen, kill.

use std::io::{self, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use palisade::{Error, ErrorKind};

use super::check::Round;
use super::child::{ACK_BYTES, Ack};
use crate::args::DemoArgs;
use crate::exit::{Exit, Failure};

/// A child without a report is killed this long after its start.
const FIRST_LIMIT: Duration = Duration::from_secs(60);

/// Starts the child, and kills it `args.seconds` after its first report. Returns the records that
/// it reported, and the time from the first report to the kill.
///
/// # Errors
/// `Check`: the child ended by itself, reported nothing, or its reports are garbled. `Io`: the
/// child could not be started, read or killed, or ended by itself with the exit code of such a
/// failure.
pub(super) fn run(args: &DemoArgs, dir: &Path, round: Round) -> Result<(Round, Duration), Failure> {
    let number = round.number;
    let (mut child, pipe) = start(args, dir, &round)?;
    let (began, events) = mpsc::channel();
    let reader = thread::spawn(move || read(pipe, round, &began));
    let begun = events.recv_timeout(FIRST_LIMIT);
    let first = Instant::now();
    // The reader drops the channel when the child has closed its output.
    let ended = begun.and_then(|()| events.recv_timeout(args.seconds));
    let ran = first.elapsed();
    let failed = Failure::io("kill the writing process");
    child.kill().map_err(failed)?;
    let Output { status, stderr, .. } = child.wait_with_output().map_err(failed)?;
    let failed = || Failure::Check("the thread that reads the reports failed".into());
    let round = reader.join().map_err(|_| failed())??;
    let what = match ended {
        Err(RecvTimeoutError::Timeout) if round.records() > 0 => return Ok((round, ran)),
        Err(RecvTimeoutError::Timeout) => "reported nothing",
        _ => "ended by itself",
    };
    let complaint = String::from_utf8_lossy(&stderr);
    let complaint = complaint.trim().trim_start_matches("palisade: ");
    let text = format!("round {number}: the writing process {what} ({status}): {complaint}");
    match status.code() == Some(Exit::Io as i32) {
        true => Err(Error::new(ErrorKind::Io, text).into()),
        false => Err(Failure::Check(text)),
    }
}

fn start(args: &DemoArgs, dir: &Path, round: &Round) -> Result<(Child, ChildStdout), Failure> {
    let failure = Failure::io("start the writing process");
    let mut command = Command::new(std::env::current_exe().map_err(failure)?);
    command.arg("demo-child").arg("--dir").arg(dir);
    command.args(["--threads", &args.load.threads.to_string()]);
    command.args(["--record-bytes", &args.load.record_bytes.to_string()]);
    command.args(["--buffer-bytes", &args.load.buffer_bytes.to_string()]);
    command.args(["--seed", &round.seed.to_string(), "--promise", args.load.promise.word()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failure)?;
    let pipe = child.stdout.take().ok_or_else(|| failure(io::ErrorKind::BrokenPipe.into()))?;
    Ok((child, pipe))
}

/// Takes the child's reports until the pipe ends. Sends a message for the first one.
fn read(pipe: impl Read, mut round: Round, began: &Sender<()>) -> Result<Round, Failure> {
    let mut pipe = BufReader::with_capacity(1 << 16, pipe);
    let mut bytes = [0; ACK_BYTES];
    let mut is_first = true;
    loop {
        match pipe.read_exact(&mut bytes) {
            // The kill can leave an incomplete report at the end. It does not count.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(round),
            read => read.map_err(Failure::io("read the reports"))?,
        }
        if !round.acknowledge(Ack::decode(&bytes)) {
            return Err(Failure::Check(format!("the reports are garbled: {bytes:?}")));
        }
        if std::mem::take(&mut is_first) {
            // The parent waits for it, unless it has given up.
            let _ = began.send(());
        }
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;

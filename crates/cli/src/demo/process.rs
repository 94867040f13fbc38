//! One run of the writing process, seen from the parent: start, listen, kill.

use std::io::{self, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::check::Round;
use super::child::{ACK_BYTES, Ack};
use crate::args::DemoArgs;
use crate::exit::Failure;

/// How long the child may take to report its first record.
const FIRST_LIMIT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);

/// Starts the child, and kills it some time after its first report. Returns all records that it
/// reported, and for how long it reported. Calls `tick` often, with both so far.
///
/// # Errors
/// `Check` or `Io` if the child ended by itself, with what it wrote to standard error.
pub(super) fn run(
    args: &DemoArgs,
    dir: &Path,
    round: Round,
    tick: impl Fn(u64, Duration),
) -> Result<(Round, Duration), Failure> {
    let number = round.number;
    let (mut child, pipe) = start(args, dir, &round)?;
    let acknowledged = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&acknowledged);
    let reader = thread::spawn(move || read(pipe, round, &count));
    let begun = Instant::now();
    let mut first = begun;
    let ran = loop {
        // Relaxed: a figure for the progress bar, and for when to kill.
        let records = acknowledged.load(Ordering::Relaxed);
        if records == 0 {
            first = Instant::now();
        }
        tick(records, first.elapsed());
        let is_over =
            first.elapsed() >= args.seconds || begun.elapsed() >= FIRST_LIMIT + args.seconds;
        if is_over || reader.is_finished() {
            break first.elapsed();
        }
        thread::sleep(TICK.min(args.seconds));
    };
    let (status, complaint) = child.kill()?;
    let failed = || Failure::Check("the thread that reads the reports failed".into());
    let round = reader.join().map_err(|_| failed())??;
    if was_killed(status) && round.records() > 0 {
        return Ok((round, ran));
    }
    let what = if was_killed(status) { "reported nothing" } else { "ended by itself" };
    let text = format!("round {number}: the writing process {what} ({status}): {complaint}");
    match status.code() {
        Some(3) => Err(Failure::io(text, io::Error::other("its exit code says input or output"))),
        _ => Err(Failure::Check(text)),
    }
}

fn start(args: &DemoArgs, dir: &Path, round: &Round) -> Result<(Killed, ChildStdout), Failure> {
    let failure = |source| Failure::io("could not start the writing process", source);
    let mut command = Command::new(std::env::current_exe().map_err(failure)?);
    command.arg("demo-child").arg("--dir").arg(dir);
    command.args(["--threads", &args.threads.to_string()]);
    command.args(["--record-bytes", &args.record_bytes.to_string()]);
    command.args(["--seed", &round.seed.to_string(), "--promise", args.promise.word()]);
    if let Some(bytes) = args.buffer_bytes {
        command.args(["--buffer-bytes", &bytes.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Killed(command.spawn().map_err(failure)?);
    let pipe = child.0.stdout.take().ok_or_else(|| failure(io::ErrorKind::BrokenPipe.into()))?;
    Ok((child, pipe))
}

/// Takes the child's reports until the pipe ends.
fn read(pipe: impl Read, mut round: Round, count: &AtomicU64) -> Result<Round, Failure> {
    let mut pipe = BufReader::with_capacity(1 << 16, pipe);
    let mut bytes = [0; ACK_BYTES];
    loop {
        match pipe.read_exact(&mut bytes) {
            // A report that the kill tore was not made.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(round),
            read => read.map_err(|source| Failure::io("could not read the reports", source))?,
        }
        if !round.acknowledge(Ack::decode(&bytes)) {
            return Err(Failure::Check(format!("the reports are garbled: {bytes:?}")));
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A process that does not outlive this value.
struct Killed(Child);

impl Killed {
    /// Kills it; returns how it ended and what it had to say.
    fn kill(&mut self) -> Result<(ExitStatus, String), Failure> {
        let failure = |source| Failure::io("could not kill the writing process", source);
        self.0.kill().map_err(failure)?;
        let status = self.0.wait().map_err(failure)?;
        let mut text = Vec::new();
        if let Some(pipe) = &mut self.0.stderr {
            // A text that ends early is still better than none.
            let _ = pipe.read_to_end(&mut text);
        }
        let text = String::from_utf8_lossy(&text);
        Ok((status, text.trim().trim_start_matches("palisade: ").to_owned()))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only where the process has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    const SIGKILL: i32 = 9;
    status.signal() == Some(SIGKILL)
}

#[cfg(not(unix))]
fn was_killed(status: ExitStatus) -> bool {
    // What TerminateProcess leaves.
    status.code() == Some(1)
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;

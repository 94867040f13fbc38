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

/// Without a report, the child is killed this long plus `--seconds` after its start.
const FIRST_LIMIT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);

/// Starts the child, and kills it `args.seconds` after its first report. Returns the records that
/// it reported, and the time from the first report to the kill. Calls `tick` often, with the number
/// of records and the time so far.
///
/// # Errors
/// `Check`: the child ended by itself, reported nothing, or its reports are garbled. `Io`: the
/// child could not be started, read or killed, or ended by itself with the exit code of such a
/// failure.
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
        // Relaxed: a count for the progress bar and for the time of the kill.
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
        Some(3) => Err(Failure::io(text, io::Error::other("exit code 3: input or output failed"))),
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
            // The kill can leave an incomplete report at the end. It does not count.
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
    /// Kills the process. Returns its exit status and what it wrote to standard error.
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
        // A drop cannot report a failure. After `kill` both calls do nothing.
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
    // `Child::kill` ends the process with exit code 1.
    status.code() == Some(1)
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;

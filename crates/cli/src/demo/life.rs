//! One life of the writing process, seen from the parent: start, listen, kill.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::frames::{FRAME_BYTES, Frame};
use super::ledger::Round;
use crate::args::DemoArgs;
use crate::exit::Failure;

/// How long the child may take to open the log.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(50);

/// What is known of a life once it has ended.
#[derive(Debug)]
pub(crate) struct Life {
    /// All that was acknowledged.
    pub(crate) round: Round,
    /// From the first word of the child to its kill.
    pub(crate) lived: Duration,
    /// What the child measured of itself, as last reported.
    pub(crate) measured: Measured,
}

/// The child's own figures. `None` if it did not live long enough to report them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Median and 99th percentile of the latency of acknowledged calls.
    pub(crate) latency_ns: Option<(u64, u64)>,
    /// Records that were made durable, and the syncs that it took.
    pub(crate) syncs: Option<(u64, u64)>,
}

/// Starts the child, lets it live for a while, kills it and takes all that it has reported.
///
/// `tick` is called often, with the time lived and the number of acknowledged records.
///
/// # Errors
/// `Check`, `Usage` or `Io` if the child died by itself, with what it wrote to standard error.
pub(crate) fn live(
    args: &DemoArgs,
    dir: &Path,
    round: Round,
    tick: impl FnMut(Duration, u64),
) -> Result<Life, Failure> {
    let number = round.number;
    let mut child = start(args, dir, &round)?;
    let mut ears = child.listen(round);
    let outcome = ears.wait(args.seconds, tick);
    let status = child.kill()?;
    let complaint = ears.complaint();
    let (round, measured) = ears.reports()?;
    match outcome {
        Ok(lived) if was_killed(status) => Ok(Life { round, lived, measured }),
        Err(Ended::TooSlow) => Err(Failure::Check(format!(
            "round {number}: the writing process did not open the log within {} s; {complaint}",
            OPEN_LIMIT.as_secs()
        ))),
        _ => Err(died(number, status, &complaint)),
    }
}

fn start(args: &DemoArgs, dir: &Path, round: &Round) -> Result<Killed, Failure> {
    let program = std::env::current_exe()
        .map_err(|source| Failure::io("could not find this program's own file", source))?;
    let mut command = Command::new(program);
    command.arg("demo-child").arg("--dir").arg(dir);
    command.args(["--threads", &args.threads.to_string()]);
    command.args(["--record-bytes", &args.record_bytes.to_string()]);
    command.args(["--seed", &round.seed.to_string(), "--promise", args.promise.word()]);
    if let Some(bytes) = args.segment_bytes {
        command.args(["--segment-bytes", &bytes.to_string()]);
    }
    if let Some(bytes) = args.buffer_bytes {
        command.args(["--buffer-bytes", &bytes.to_string()]);
    }
    if round.number == 1 {
        command.arg("--create");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command
        .spawn()
        .map_err(|source| Failure::io("could not start the writing process", source))?;
    Ok(Killed(child))
}

fn died(number: u32, status: ExitStatus, complaint: &str) -> Failure {
    if number == 1 && status.code() == Some(2) {
        return Failure::Usage(complaint.trim_start_matches("palisade: ").to_owned());
    }
    let text =
        format!("round {number}: the writing process died by itself ({status}): {complaint}");
    if status.code() == Some(3) {
        return Failure::io(text, io::Error::other("its exit code says input or output"));
    }
    Failure::Check(text)
}

#[cfg(unix)]
fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    const SIGKILL: i32 = 9;
    status.signal() == Some(SIGKILL)
}

#[cfg(not(unix))]
fn was_killed(status: ExitStatus) -> bool {
    // What TerminateProcess leaves; the child's own failures have code 2 and above.
    status.code() == Some(1)
}

/// A process that does not outlive this value.
struct Killed(Child);

impl Killed {
    fn listen(&mut self, round: Round) -> Ears {
        let (ready, events) = mpsc::channel();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let reports = self.0.stdout.take().map(|pipe| {
            let listener = Listener {
                round,
                measured: Measured::default(),
                acknowledged: acknowledged.clone(),
            };
            thread::spawn(move || listener.run(pipe, &ready))
        });
        let complaint = self.0.stderr.take().map(|pipe| thread::spawn(move || read_text(pipe)));
        Ears { events, acknowledged, reports, complaint }
    }

    fn kill(&mut self) -> Result<ExitStatus, Failure> {
        let failure = |source| Failure::io("could not kill the writing process", source);
        self.0.kill().map_err(failure)?;
        self.0.wait().map_err(failure)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only where the process has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Why the child did not live as long as it should have.
enum Ended {
    Early,
    TooSlow,
}

/// The parent's ends of the child's pipes, each read by a thread.
struct Ears {
    events: Receiver<()>,
    acknowledged: Arc<AtomicU64>,
    reports: Option<JoinHandle<Result<(Round, Measured), Failure>>>,
    complaint: Option<JoinHandle<String>>,
}

impl Ears {
    /// Waits until the child has lived for `life` from its first word on.
    fn wait(
        &mut self,
        life: Duration,
        mut tick: impl FnMut(Duration, u64),
    ) -> Result<Duration, Ended> {
        self.events.recv_timeout(OPEN_LIMIT).map_err(|error| match error {
            RecvTimeoutError::Timeout => Ended::TooSlow,
            RecvTimeoutError::Disconnected => Ended::Early,
        })?;
        let start = Instant::now();
        while let Some(rest) = life.checked_sub(start.elapsed()).filter(|rest| !rest.is_zero()) {
            if self.events.recv_timeout(rest.min(TICK)) == Err(RecvTimeoutError::Disconnected) {
                return Err(Ended::Early);
            }
            // Relaxed: a figure for the progress bar.
            tick(start.elapsed(), self.acknowledged.load(Ordering::Relaxed));
        }
        Ok(start.elapsed())
    }

    fn complaint(&mut self) -> String {
        let text = self.complaint.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        match text.trim() {
            "" => "it wrote nothing to standard error".into(),
            text => text.into(),
        }
    }

    fn reports(self) -> Result<(Round, Measured), Failure> {
        self.reports.and_then(|thread| thread.join().ok()).unwrap_or_else(|| {
            Err(Failure::Check("the thread that listens to the writing process failed".into()))
        })
    }
}

fn read_text(mut pipe: ChildStderr) -> String {
    let mut text = Vec::new();
    // A text that ends early is still better than none.
    let _ = pipe.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads the child's reports until the pipe ends.
struct Listener {
    round: Round,
    measured: Measured,
    acknowledged: Arc<AtomicU64>,
}

impl Listener {
    fn run(
        mut self,
        mut pipe: impl Read,
        ready: &Sender<()>,
    ) -> Result<(Round, Measured), Failure> {
        let mut buffer = vec![0; FRAME_BYTES * 4096];
        let mut held = 0;
        loop {
            let count = match pipe.read(&mut buffer[held..]) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::io("could not read the reports", error)),
            };
            if count == 0 {
                // A frame that the kill cut off was not reported.
                return Ok((self.round, self.measured));
            }
            let (frames, rest) = buffer[..held + count].as_chunks::<FRAME_BYTES>();
            for bytes in frames {
                self.take(bytes, ready)?;
            }
            let (start, end) = (held + count - rest.len(), held + count);
            held = end - start;
            buffer.copy_within(start..end, 0);
            // Relaxed: a figure for the progress bar.
            self.acknowledged.store(self.round.acknowledged(), Ordering::Relaxed);
        }
    }

    fn take(&mut self, bytes: &[u8; FRAME_BYTES], ready: &Sender<()>) -> Result<(), Failure> {
        let garbled = |frame: Option<Frame>| {
            Failure::Check(format!("the reports are garbled: {frame:?} {bytes:?}"))
        };
        let frame = Frame::decode(bytes);
        match frame.ok_or_else(|| garbled(None))? {
            // Nobody waits where the child is being killed already.
            Frame::Ready => drop(ready.send(())),
            Frame::Ack { thread, seq, lsn } => {
                let expected = self.round.threads.get_mut(thread as usize);
                let is_next = expected.is_some_and(|expected| expected.acknowledge(seq, lsn));
                is_next.then_some(()).ok_or_else(|| garbled(frame))?;
            }
            Frame::Latency { p50_ns, p99_ns } => self.measured.latency_ns = Some((p50_ns, p99_ns)),
            Frame::Syncs { records, syncs } => self.measured.syncs = Some((records, syncs)),
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "life_tests.rs"]
mod tests;

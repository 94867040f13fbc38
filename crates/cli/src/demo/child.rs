//! The process that is killed: threads that write and report what was acknowledged.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use palisade::{Lsn, Wal};

use super::content::Origin;
use super::frames::{FRAME_BYTES, FRAMES_PER_WRITE, Frame};
use super::latency::{self, Histogram};
use crate::args::{ChildArgs, Promise, log_options};
use crate::exit::Failure;

const STATS_INTERVAL: Duration = Duration::from_millis(100);

/// Writes until it is killed, or until whoever reads the reports is gone.
pub(crate) fn run(args: &ChildArgs) -> Result<Infallible, Failure> {
    let options = log_options(args.segment_bytes, args.buffer_bytes);
    let wal = options.create_new(args.create).must_exist(!args.create).open(&args.dir)?;
    if args.promise == Promise::Append && !wal.stats().appends_survive_kill {
        return Err(Failure::Usage(format!(
            "appends survive a kill only with the mapped buffer, which the file system of {} does \
             not allow; name a folder on ext4 or XFS with --dir, or use --promise commit",
            args.dir.display()
        )));
    }
    let pipe = Pipe::new()?;
    pipe.write(&Frame::Ready.encode())?;
    let latencies: Arc<[Histogram]> = (0..args.threads).map(|_| Histogram::new()).collect();
    let (failed, failures) = mpsc::channel();
    for thread in 0..args.threads {
        let worker = Worker {
            wal: wal.clone(),
            pipe: pipe.try_clone()?,
            latencies: Arc::clone(&latencies),
            next: Origin { seed: args.seed, thread, seq: 0 },
            record: vec![0; args.record_bytes],
        };
        start(worker, args.promise, failed.clone())?;
    }
    report_until_failure(&wal, &pipe, &latencies, &failures)
}

fn start(worker: Worker, promise: Promise, failed: Sender<Failure>) -> Result<(), Failure> {
    let work = move || {
        let Err(failure) = match promise {
            Promise::Commit => worker.commit(),
            Promise::Append => worker.append(),
        };
        // Nobody listens only where the process is ending already.
        let _ = failed.send(failure);
    };
    thread::Builder::new()
        .spawn(work)
        .map(drop)
        .map_err(|source| Failure::io("could not start a writing thread", source))
}

fn report_until_failure(
    wal: &Wal,
    pipe: &Pipe,
    latencies: &[Histogram],
    failures: &mpsc::Receiver<Failure>,
) -> Result<Infallible, Failure> {
    loop {
        match failures.recv_timeout(STATS_INTERVAL) {
            Ok(failure) => return Err(failure),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Check("all writing threads ended".into()));
            }
        }
        let [p50_ns, p99_ns] = latency::quantiles(latencies, [0.5, 0.99]);
        let stats = wal.stats();
        let frames = [
            Frame::Latency { p50_ns, p99_ns },
            Frame::Syncs { records: stats.synced_appends, syncs: stats.syncs },
        ];
        pipe.write(frames.map(Frame::encode).as_flattened())?;
    }
}

struct Worker {
    wal: Wal,
    pipe: Pipe,
    latencies: Arc<[Histogram]>,
    next: Origin,
    record: Vec<u8>,
}

impl Worker {
    /// Reports each record as soon as its commit returned.
    fn commit(mut self) -> Result<Infallible, Failure> {
        loop {
            let ack = self.acknowledge(|wal, record| wal.commit(record))?;
            self.pipe.write(&ack)?;
        }
    }

    /// Reports records in groups: with a write for each, the pipe would be all that is measured.
    fn append(mut self) -> Result<Infallible, Failure> {
        let mut acks = Vec::with_capacity(FRAMES_PER_WRITE);
        loop {
            while acks.len() < FRAMES_PER_WRITE {
                acks.push(self.acknowledge(|wal, record| Ok(wal.append(record)?.lsn()))?);
            }
            self.pipe.write(acks.as_flattened())?;
            acks.clear();
        }
    }

    fn acknowledge(
        &mut self,
        call: impl FnOnce(&Wal, &[u8]) -> palisade::Result<Lsn>,
    ) -> Result<[u8; FRAME_BYTES], Failure> {
        self.next.fill(&mut self.record);
        let start = Instant::now();
        let lsn = call(&self.wal, &self.record)?;
        let latency_ns = start.elapsed().as_nanos() as u64;
        let Origin { thread, seq, .. } = self.next;
        self.latencies[thread as usize].record(latency_ns);
        self.next.seq += 1;
        Ok(Frame::Ack { thread, seq, lsn }.encode())
    }
}

/// Standard output without a buffer: what was written is with the parent, whatever happens to
/// this process.
struct Pipe(File);

impl Pipe {
    fn new() -> Result<Pipe, Failure> {
        #[cfg(unix)]
        let handle = {
            use std::os::fd::AsFd;
            io::stdout().as_fd().try_clone_to_owned()
        };
        #[cfg(windows)]
        let handle = {
            use std::os::windows::io::AsHandle;
            io::stdout().as_handle().try_clone_to_owned()
        };
        Ok(Pipe(handle.map_err(Failure::output)?.into()))
    }

    fn try_clone(&self) -> Result<Pipe, Failure> {
        self.0.try_clone().map(Pipe).map_err(Failure::output)
    }

    fn write(&self, frames: &[u8]) -> Result<(), Failure> {
        (&self.0).write_all(frames).map_err(Failure::output)
    }
}

//! The process that is killed: threads that write records and report them.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::{Arc, mpsc};
use std::thread;

use palisade::{Lsn, OpenMode, Options, Wal};

use super::content::{Origin, number};
use crate::args::{ChildArgs, Promise};
use crate::exit::Failure;

/// Bytes of a report.
pub(super) const ACK_BYTES: usize = 24;
/// The number of appends that a thread reports with one write to the pipe. If each append had a
/// write of its own, the demo would measure the pipe, not the log.
const APPENDS_PER_WRITE: usize = 170;

/// What the child reports over its standard output: the call for the record number `seq` of
/// `thread` has returned, and the record is at `lsn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) thread: u32,
    pub(super) seq: u64,
    pub(super) lsn: Lsn,
}

impl Ack {
    pub(super) fn encode(self) -> [u8; ACK_BYTES] {
        let mut bytes = [0; ACK_BYTES];
        bytes[..8].copy_from_slice(&u64::from(self.thread).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seq.to_le_bytes());
        bytes[16..].copy_from_slice(&self.lsn.as_u64().to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ACK_BYTES]) -> Ack {
        let [thread, seq, lsn] = [0, 8, 16].map(|at| number(&bytes[at..at + 8]));
        Ack { thread: thread as u32, seq, lsn: Lsn::new(lsn) }
    }
}

/// Writes until it is killed. Ends earlier only if the log fails, a thread cannot be started, or a
/// report cannot be written, for example because the pipe is closed.
pub(crate) fn run(args: &ChildArgs) -> Result<Infallible, Failure> {
    let options = Options::new().buffer_bytes(args.load.buffer_bytes);
    let wal = options.open_mode(OpenMode::MustExist).open(&args.dir)?;
    let args = Arc::new(args.clone());
    let (failed, failures) = mpsc::channel();
    for thread in 0..args.load.threads {
        let (wal, args, failed) = (wal.clone(), Arc::clone(&args), failed.clone());
        let work = move || {
            let Err(failure) = write(&wal, &args, thread);
            // The first failure ends the process: nobody listens to another one.
            let _ = failed.send(failure);
        };
        let started = thread::Builder::new().spawn(work);
        started.map_err(Failure::io("start a writing thread"))?;
    }
    // `recv` returns an error only if no sender is left: all threads have panicked.
    drop(failed);
    let failure = failures.recv();
    Err(failure.unwrap_or_else(|_| Failure::Check("all writing threads ended".into())))
}

fn write(wal: &Wal, args: &ChildArgs, thread: u32) -> Result<Infallible, Failure> {
    let mut record = vec![0; args.load.record_bytes];
    let (mut seq, mut acks) = (0, Vec::new());
    let acks_per_write = match args.load.promise {
        Promise::Commit => 1,
        Promise::Append => APPENDS_PER_WRITE,
    };
    loop {
        Origin { seed: args.seed, thread, seq }.fill(&mut record);
        let lsn = match args.load.promise {
            Promise::Commit => wal.commit(&record)?,
            Promise::Append => wal.append(&record)?.lsn(),
        };
        acks.push(Ack { thread, seq, lsn }.encode());
        if acks.len() == acks_per_write {
            // The lock keeps reports of other threads out; what was flushed outlives the kill.
            let mut pipe = io::stdout().lock();
            let written = pipe.write_all(acks.as_flattened()).and_then(|()| pipe.flush());
            written.map_err(Failure::output)?;
            acks.clear();
        }
        seq += 1;
    }
}

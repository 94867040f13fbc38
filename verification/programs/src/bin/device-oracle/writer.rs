//! Threads that append records and note each one in the ledger before the next.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use palisade::ErrorKind;

use crate::content::Origin;
use crate::ledger::Ledger;
use crate::log::Log;

/// How long a thread of the load waits for space before it tries again.
const PAUSE: Duration = Duration::from_millis(2);

/// Which call a thread makes for each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Append,
    Commit,
}

/// Why a thread stopped early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The log said so.
    Log(palisade::Error),
    /// The ledger could not be written: the run is worth nothing.
    Ledger(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Ledger(error)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Log(error) => write!(f, "{:?}: {error}", error.kind()),
            Stop::Ledger(error) => write!(f, "the ledger could not be written: {error}"),
        }
    }
}

impl Stop {
    pub(crate) fn is_lack_of_space(&self) -> bool {
        matches!(self, Stop::Log(error) if error.kind() == ErrorKind::NoSpace)
    }
}

/// An open log, and what its threads share.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) log: Log,
    /// The seed of this session's records.
    pub(crate) seed: u64,
    pub(crate) record_bytes: usize,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
}

/// Locks the ledger. A panic of a thread ends the process, so the lock is never poisoned.
pub(crate) fn locked(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    /// Writes `count` records from `threads` threads. Returns how many calls returned Ok, and why
    /// the first thread stopped that did not write all of its records.
    pub(crate) fn write(&self, call: Call, count: u64, threads: u32) -> (u64, Option<Stop>) {
        let done = AtomicU64::new(0);
        let share = |thread: u32| {
            count / u64::from(threads) + u64::from(u64::from(thread) < count % u64::from(threads))
        };
        let stop = thread::scope(|scope| {
            let work = |thread: u32| {
                let done = &done;
                scope.spawn(move || {
                    let mut record = vec![0; self.record_bytes];
                    for _ in 0..share(thread) {
                        self.step(call, thread, &mut record)?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            };
            let all: Vec<_> = (0..threads).map(work).collect();
            let ends = all.into_iter().map(|thread| thread.join().expect("a writer panicked"));
            ends.filter_map(Result::err).reduce(worse)
        });
        (done.into_inner(), stop)
    }

    /// Commits `count` records on the calling thread, which is `thread` in the ledger.
    pub(crate) fn write_as(&self, thread: u32, count: u64) -> Result<(), Stop> {
        let mut record = vec![0; self.record_bytes];
        (0..count).try_for_each(|_| self.step(Call::Commit, thread, &mut record))
    }

    /// Syncs, and notes what that acknowledges.
    pub(crate) fn sync(&self) -> Result<(), Stop> {
        let end = self.log.sync().map_err(Stop::Log)?;
        Ok(locked(&self.ledger).durable(end)?)
    }

    /// Appends the next record of `thread`, and notes it.
    fn step(&self, call: Call, thread: u32, record: &mut [u8]) -> Result<(), Stop> {
        let seq = locked(&self.ledger).next(thread);
        Origin { seed: self.seed, thread, seq }.fill(record);
        let done = match call {
            Call::Append => self.log.append(record),
            Call::Commit => self.log.commit(record),
        };
        match done {
            Ok(lsn) => Ok(locked(&self.ledger).note((thread, seq), lsn, call == Call::Commit)?),
            Err(error) => {
                if let Some(lsn) = error.appended_lsn() {
                    locked(&self.ledger).note((thread, seq), lsn, false)?;
                }
                Err(Stop::Log(error))
            }
        }
    }

    /// Writes until the load is stopped. Tries again after a lack of space.
    fn write_until(&self, call: Call, thread: u32, load: &Tally) -> Result<(), Stop> {
        let mut record = vec![0; self.record_bytes];
        // Relaxed, here and below: a flag and counts that guard nothing.
        let is_over = || load.is_over.load(Ordering::Relaxed);
        while !is_over() && load.done.load(Ordering::Relaxed) < load.most {
            match self.step(call, thread, &mut record) {
                Ok(()) => drop(load.done.fetch_add(1, Ordering::Relaxed)),
                Err(stop) if stop.is_lack_of_space() => {
                    load.lacking.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(PAUSE);
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }
}

/// Prefers a failure that ends the log to a lack of space.
fn worse(first: Stop, second: Stop) -> Stop {
    if first.is_lack_of_space() { second } else { first }
}

/// Counts of a load, and the flag that ends it.
#[derive(Debug, Default)]
struct Tally {
    is_over: AtomicBool,
    // The load ends after so many records: appends could fill the disk in an instant.
    most: u64,
    done: AtomicU64,
    lacking: AtomicU64,
}

/// Threads that write in the background.
#[derive(Debug)]
pub(crate) struct Writers {
    tally: Arc<Tally>,
    threads: Vec<JoinHandle<Result<(), Stop>>>,
}

impl Writers {
    pub(crate) fn start(writer: &Writer, call: Call, most: u64, threads: u32) -> Writers {
        let tally = Arc::new(Tally { most, ..Tally::default() });
        let start = |thread| {
            let (writer, tally) = (writer.clone(), Arc::clone(&tally));
            thread::spawn(move || writer.write_until(call, thread, &tally))
        };
        let threads = (0..threads).map(start).collect();
        Writers { tally, threads }
    }

    /// Stops the threads. Returns how many calls returned Ok, how many lacked space, and why a
    /// thread stopped by itself.
    pub(crate) fn stop(self) -> (u64, u64, Option<Stop>) {
        self.tally.is_over.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        let ends = threads.map(|thread| thread.join().expect("a writer panicked"));
        let stop = ends.filter_map(Result::err).reduce(worse);
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.tally.done), count(&self.tally.lacking), stop)
    }
}

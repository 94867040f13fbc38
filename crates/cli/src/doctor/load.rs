//! Runs the workloads of `palisade doctor`.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use palisade::{Lsn, OpenMode, Options, Wal};

use super::figures::{RoundSamples, Sample, Workload};
use super::place::{MAX_BYTES, log_in};
use super::probe::{Cost, LOG, RECORD_BYTES};
use crate::exit::Failure;
use crate::units::us;

/// The clock costs about as much as an append, so it is read after so many of them.
const APPENDS_PER_LOOK: usize = 64;
const DATA: [u8; RECORD_BYTES] = [0x5a; RECORD_BYTES];

/// The log, and what the next workload has to know.
pub(super) struct Load {
    folder: PathBuf,
    wal: Wal,
    /// How long each workload lasts.
    time: Duration,
    /// The records that the last `Append` left.
    appended: Option<Lsn>,
}

impl Load {
    /// Makes the log in `folder`. Raw syncs write to a file beside it.
    ///
    /// # Errors
    /// Those of the open.
    pub(super) fn new(folder: &Path, time: Duration) -> Result<Load, Failure> {
        let wal = Options::new().open_mode(OpenMode::CreateNew).open(log_in(folder))?;
        Ok(Load { folder: folder.to_owned(), wal, time, appended: None })
    }

    /// Runs each workload once. `begin` is called before each.
    ///
    /// # Errors
    /// `Io`, `Log`: a file or the log failed.
    pub(super) fn round(&mut self, begin: impl Fn(Workload)) -> Result<RoundSamples, Failure> {
        let mut round = RoundSamples::default();
        for (sample, workload) in round.iter_mut().zip(Workload::ALL) {
            begin(workload);
            *sample = match workload {
                Workload::RawSync => self.raw_sync()?,
                Workload::Commit(threads) => self.commit(threads)?,
                Workload::Append => self.append()?,
                Workload::Scan => self.scan()?,
            };
            if workload != Workload::Append {
                self.truncate()?;
            }
        }
        Ok(round)
    }

    fn raw_sync(&self) -> Result<Sample, Failure> {
        let cost = LOG.measure(&self.folder, self.time);
        let cost = cost.map_err(Failure::at("measure a raw sync in", &self.folder))?;
        Ok(Sample { per_s: cost.per_s, cost: Some(cost), records_per_sync: None })
    }

    fn commit(&self, threads: usize) -> Result<Sample, Failure> {
        let before = self.wal.stats();
        let start = Instant::now();
        let most = MAX_BYTES / RECORD_BYTES / threads;
        let commits = || -> Result<Vec<f64>, Failure> {
            let mut waits = Vec::new();
            while waits.is_empty() || start.elapsed() < self.time && waits.len() < most {
                let begun = Instant::now();
                self.wal.commit(&DATA)?;
                waits.push(us(begun.elapsed()));
            }
            Ok(waits)
        };
        let waits = on_threads(threads, commits)?;
        let cost = Cost::of(waits, start.elapsed());
        let after = self.wal.stats();
        let syncs = after.syncs - before.syncs;
        let served = after.synced_appends - before.synced_appends;
        let records_per_sync = (syncs > 0).then(|| served as f64 / syncs as f64);
        Ok(Sample { per_s: cost.per_s, cost: Some(cost), records_per_sync })
    }

    fn append(&mut self) -> Result<Sample, Failure> {
        let start = Instant::now();
        let mut appends = 0;
        self.appended = None;
        while appends == 0 || start.elapsed() < self.time && appends * RECORD_BYTES < MAX_BYTES {
            for _ in 0..APPENDS_PER_LOOK {
                let lsn = self.wal.append(&DATA)?.lsn();
                self.appended.get_or_insert(lsn);
            }
            appends += APPENDS_PER_LOOK;
        }
        let per_s = appends as f64 / start.elapsed().as_secs_f64();
        // The scan is to read, and not to wait for the writer.
        self.wal.sync()?;
        Ok(Sample { per_s, ..Sample::default() })
    }

    fn scan(&self) -> Result<Sample, Failure> {
        let start = Instant::now();
        let mut records = match self.appended {
            Some(lsn) => self.wal.records_from(lsn)?,
            None => self.wal.records()?,
        };
        let mut count = 0_u64;
        while records.next()?.is_some() {
            count += 1;
        }
        let per_s = count as f64 / start.elapsed().as_secs_f64();
        Ok(Sample { per_s, ..Sample::default() })
    }

    /// Gives the space back. Otherwise the log would fill a fast disk.
    fn truncate(&self) -> Result<(), Failure> {
        self.wal.sync()?;
        Ok(self.wal.truncate_before(self.wal.durable_lsn())?)
    }
}

/// Runs `work` on so many threads and returns what all of them measured.
fn on_threads(
    threads: usize,
    work: impl Fn() -> Result<Vec<f64>, Failure> + Sync,
) -> Result<Vec<f64>, Failure> {
    let what = format!("start {threads} threads");
    let failed = Failure::io(&what);
    thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, &work).map_err(failed);
        let started: Vec<_> = (0..threads).map(spawn).collect();
        let mut all = Vec::new();
        for thread in started {
            let lost = || Failure::io("measure")(std::io::Error::other("a thread panicked"));
            all.extend(thread?.join().map_err(|_| lost())??);
        }
        Ok(all)
    })
}

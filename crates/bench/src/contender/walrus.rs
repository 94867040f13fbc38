//! Crate walrus-rust.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `append_for_topic`, `FsyncSchedule::NoFsync` | kept: in the page cache | nothing |
//! | `append_for_topic`, `FsyncSchedule::SyncEach` | kept | kept, once it has returned |
//! | `batch_append_for_topic` | kept | kept, once it has returned |
//!
//! One topic is one log with one order, so all threads append to one topic. `batch` is
//! `batch_append_for_topic`, which syncs whatever the schedule is, takes 2 000 records at most, and
//! fails while another one runs: so larger batches are cut, and threads wait for each other here.
//! There is no public sync and no group commit. Records have an FNV-1a checksum.
//!
//! Of the crate's two backends `append` has the mapped one, where a record is a copy into the page
//! cache: about twice as fast as its positioned writes. `commit` and `batch` have the positioned
//! writes: a sync of a mapped file takes longer. An error of the positioned write itself is not seen
//! by the crate, and where the disk is full, the mapped file's next page ends the process.
//!
//! The crate takes its folder from the environment, and prints a line for each record unless a
//! variable forbids it. Variables are for whoever starts a process: [`begin_again`] starts the
//! driver once more with them, and without them this contender refuses. Whether files are opened
//! with `O_SYNC` is decided by the schedule of the process's first log: with it, each commit would
//! be written through and then synced again, which takes longer. So the first log is one that does
//! not sync.
//!
//! A scan is `batch_read_for_topic`, on mapped files: it verifies checksums and allocates each
//! record. Readers of a topic share one position, which only a new log takes back to the first
//! record: so a scan has one thread, and between two passes the log is opened again, outside of the
//! timing. There is no call for a single record. An open reads and verifies every record, so it is
//! its own full check; there is no clean end that it could tell. What lies in a block behind the
//! last record is taken for one without a check of its form (`rkyv::archived_root`), so no torn tail
//! is measured. In place of an image, a log that was killed is left alone and its folder renamed: a
//! copy of its files of 1 GB, most of which are holes, would measure the copy.
//!
//! A log that is dropped keeps its files open and a thread alive until the process ends. So files
//! that are given up are cut to nothing, which frees the disk.

use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, Once, PoisonError, RwLock, RwLockReadGuard};

use anyhow::{Context, Result, bail};
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus, disable_fd_backend, enable_fd_backend};

use super::filled::{End, Filled, Opening, Tally, files_of};
use super::{Log, NO_ATOMIC, NO_SYNC, Profile, lacks_options};
use crate::folder::Folder;
use crate::plan::Plan;
use crate::workload::{Variant, Workload};

pub(super) const PROFILE: Profile = Profile {
    name: "walrus",
    version: Some("0.2.0"),
    lacks: |workload| match workload {
        Workload::Sync => Some(NO_SYNC),
        Workload::Atomic => Some(NO_ATOMIC),
        Workload::Get => Some("it reads records in their order only"),
        other => lacks_options(other),
    },
    lacks_form: |variant| match variant {
        Variant::Unsynced(_) => Some(NO_SYNC),
        Variant::Torn(_) => Some("it takes garbage for a record without a check of its form"),
        Variant::Segments(_) => Some("it has files of 1 GB"),
        _ => None,
    },
    create: |workload, plan| Ok(Box::new(WalrusLog::create(workload, plan)?)),
    fill: |_, plan| fill(plan),
};

const QUIET: &str = "WALRUS_QUIET";
const FOLDER: &str = "WALRUS_DATA_DIR";
const TOPIC: &str = "log";
const LARGEST_BATCH: u32 = 2000;
const READ_BYTES: usize = 16 << 20;
/// A reader's position is kept only after so many reads: never.
const READER: ReadConsistency = ReadConsistency::AtLeastOnce { persist_every: u32::MAX };

/// Starts this program again, in this process, with the variables that walrus needs for logs in
/// the run's folder; returns if they are set.
///
/// # Errors
/// If the program cannot be started again.
pub fn begin_again(dir: &Path) -> Result<()> {
    let folder = absolute(Folder::path_of(dir, PROFILE.name))?;
    if env::var_os(QUIET).is_some() && env::var_os(FOLDER).is_some_and(|set| *folder == *set) {
        return Ok(());
    }
    let program = env::current_exe().context("looking for this program to start it again")?;
    let error = Command::new(program)
        .args(env::args_os().skip(1))
        .env(QUIET, "1")
        .env(FOLDER, folder)
        .exec();
    Err(error).context("starting this program again with the variables that walrus needs")
}

struct WalrusLog {
    current: RwLock<Life>,
    batches: Mutex<()>,
    schedule: FsyncSchedule,
    dir: PathBuf,
}

/// The log from one trim to the next.
struct Life {
    log: Walrus,
    number: u32,
}

impl Life {
    fn begin(number: u32, schedule: FsyncSchedule) -> Result<Life> {
        let key = key(number);
        let log = Walrus::with_consistency_and_schedule_for_key(&key, READER, schedule)?;
        Ok(Life { log, number })
    }
}

fn key(number: u32) -> String {
    format!("life-{number}")
}

/// The folder of logs, if this process was started for it.
fn folder_of(plan: &Plan) -> Result<PathBuf> {
    static FIRST: Once = Once::new();
    let dir = absolute(&plan.dir)?;
    if env::var_os(QUIET).is_none() || env::var_os(FOLDER).is_none_or(|set| *dir != *set) {
        bail!("walrus needs {QUIET}=1 and {FOLDER}={} in the environment", dir.display());
    }
    FIRST.call_once(|| {
        // If it fails, the next one fails as well, and says so.
        let _ = Life::begin(0, FsyncSchedule::NoFsync);
    });
    Ok(dir)
}

impl WalrusLog {
    fn create(workload: Workload, plan: &Plan) -> Result<WalrusLog> {
        let dir = folder_of(plan)?;
        let schedule = if workload == Workload::Append {
            disable_fd_backend();
            FsyncSchedule::NoFsync
        } else {
            enable_fd_backend();
            FsyncSchedule::SyncEach
        };
        let current = RwLock::new(Life::begin(1, schedule)?);
        Ok(WalrusLog { current, batches: Mutex::new(()), schedule, dir })
    }

    fn current(&self) -> RwLockReadGuard<'_, Life> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log for WalrusLog {
    fn append(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        let current = self.current();
        for _ in 0..count {
            current.log.append_for_topic(TOPIC, record)?;
        }
        Ok(())
    }

    fn commit(&self, thread: usize, record: &[u8]) -> Result<()> {
        self.append(thread, record, 1)
    }

    fn batch(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        let current = self.current();
        let records = vec![record; count.min(LARGEST_BATCH) as usize];
        let mut left = count as usize;
        while left > 0 {
            let piece = &records[..left.min(records.len())];
            let _turn = self.turn();
            current.log.batch_append_for_topic(TOPIC, piece)?;
            left -= piece.len();
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        bail!(NO_SYNC)
    }

    fn trim(&self) -> Result<()> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let old = current.number;
        *current = Life::begin(old + 1, self.schedule)?;
        free(&self.dir.join(key(old)))
    }

    fn syncs(&self) -> Option<u64> {
        None
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        let WalrusLog { current, schedule, dir, .. } = *self;
        let Life { log, number } = current.into_inner().unwrap_or_else(PoisonError::into_inner);
        drop(log);
        let reopened = Life::begin(number, schedule)?.log;
        let mut tally = Tally::new();
        scan(&reopened, &mut tally)?;
        drop(reopened);
        free(&dir.join(key(number)))?;
        Ok(Some(tally.records()))
    }
}

fn scan(log: &Walrus, tally: &mut Tally<'_>) -> Result<()> {
    loop {
        let records = log.batch_read_for_topic(TOPIC, READ_BYTES, true)?;
        if records.is_empty() {
            return Ok(());
        }
        records.iter().for_each(|record| tally.take(&record.data));
    }
}

/// What a record takes beside its bytes.
const FRAMING_BYTES: u64 = 64;

/// A log that lies there to be read or opened.
struct FilledWalrus {
    current: RwLock<Option<Life>>,
    files: Files,
    log_bytes: u64,
}

/// The folder of a log's life; its files are given up with it.
struct Files {
    dir: PathBuf,
    number: u32,
}

impl Files {
    fn folder(&self) -> PathBuf {
        self.dir.join(key(self.number))
    }

    fn open(&self) -> Result<Life> {
        Life::begin(self.number, FsyncSchedule::NoFsync)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What cannot be given up here is when the run clears its folder and ends.
        let _ = free(&self.folder());
    }
}

fn fill(plan: &Plan) -> Result<Box<dyn Filled>> {
    let dir = folder_of(plan)?;
    disable_fd_backend();
    let files = Files { dir, number: 1 };
    let life = files.open()?;
    let record = plan.record();
    for _ in 0..plan.records {
        life.log.append_for_topic(TOPIC, &record)?;
    }
    let log_bytes = plan.records * (record.len() as u64 + FRAMING_BYTES);
    Ok(Box::new(FilledWalrus { current: RwLock::new(Some(life)), files, log_bytes }))
}

impl Filled for FilledWalrus {
    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        scan(&current.as_ref().context("the log could not be opened again")?.log, tally)
    }

    fn rewind(&self) -> Result<()> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // There is never more than one log in a folder.
        *current = None;
        *current = Some(self.files.open()?);
        Ok(())
    }

    fn get(&self, _number: u64, _tally: &mut Tally<'_>) -> Result<()> {
        bail!("walrus reads records in their order only")
    }

    fn log_bytes(&self) -> Result<u64> {
        Ok(self.log_bytes)
    }

    fn segments(&self) -> Result<u64> {
        let is_segment = |name: &str| !name.ends_with("_index.db");
        Ok(files_of(&self.files.folder(), is_segment)?.len() as u64)
    }

    /// A drop is the only end there is.
    fn end(self: Box<Self>, _end: End) -> Result<Opening> {
        let FilledWalrus { current, mut files, log_bytes } = *self;
        drop(current);
        let before = files.folder();
        files.number += 1;
        fs::rename(before, files.folder())?;
        Ok(Box::new(move || {
            let current = RwLock::new(Some(files.open()?));
            Ok(Box::new(FilledWalrus { current, files, log_bytes }))
        }))
    }
}

/// Gives the disk back that the files of a dropped log take.
fn free(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(0))
            .with_context(|| format!("cutting {} to nothing", path.display()))?;
    }
    Ok(())
}

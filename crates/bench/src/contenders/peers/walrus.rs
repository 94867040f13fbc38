//! Crate walrus-rust.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `append_for_topic`, `FsyncSchedule::NoFsync` | kept: in the page cache | nothing |
//! | `append_for_topic`, `FsyncSchedule::SyncEach` | kept | kept, once it has returned |
//! | `batch_append_for_topic` | kept | kept, once it has returned |
//!
//! One topic is one log with one order, so all threads append to one topic; in workloads of streams
//! to those that the workload names. `batch` is `batch_append_for_topic`, which syncs under each
//! schedule, takes 2 000 records at most, and fails while another one runs on the topic: so larger
//! batches are split, and threads with the same topic wait for each other here.
//! There is no public sync and no group commit. Records have an FNV-1a checksum.
//!
//! Of the crate's two backends `append` has the mapped one, where a record is a copy into the page
//! cache: about twice as fast as its positioned writes. `commit` and `batch` have the positioned
//! writes: a sync of a mapped file takes longer. The crate does not see an error of the positioned
//! write itself. If the disk is full, the mapped file's next page ends the process.
//!
//! The crate takes its folder from the environment, and prints a line for each record unless a
//! variable forbids it. A safe program cannot set variables of its own process: [`begin_again`]
//! starts the driver once more with them, and without them this contender refuses. The schedule of
//! the process's first log decides if files are opened with `O_SYNC`. With it, each commit would be
//! written through and then synced again, which takes longer. So the first log does not sync.
//!
//! A scan is `batch_read_for_topic`, on mapped files: it verifies checksums and allocates each
//! record. Readers of a topic share one position, which only a new log takes back to the first
//! record: so a scan of one topic has one thread, and between two passes the log is opened again,
//! outside of the timing. There is no call for a single record. An open reads and verifies every
//! record, so it is its own full check; there is no clean end that it could detect. Bytes in a
//! block behind the last record are taken for a record without a check of their form
//! (`rkyv::archived_root`), so no torn tail is measured. A log that was killed is not copied: its
//! folder is renamed, because a copy of its files of 1 GB, most of which are holes, would measure
//! the copy.
//!
//! A log that is dropped keeps its files open and a thread alive until the process ends. So files
//! of a dropped log are truncated to 0, which frees the disk.

use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;
use std::sync::{Mutex, Once};

use anyhow::{Context, Result, bail};
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus, disable_fd_backend, enable_fd_backend};

use super::{FIRST_RECORDS, NO_SYNC, stream_names};
use crate::contender::{NO_ATOMIC, lacks_options};
use crate::folder::Folder;
use crate::{Contender, End, Log, Opening, Plan, Tally, Workload, lock};

pub(super) const WALRUS: Contender = Contender {
    name: NAME,
    version: Some("0.2.0"),
    lacks: |workload| match workload {
        Workload::Sync => Some(NO_SYNC),
        Workload::Atomic => Some(NO_ATOMIC),
        Workload::Get => Some("it reads records in their order only"),
        Workload::StreamsTruncate | Workload::StreamsSlow => Some("it has no truncation"),
        workload if workload.has_streams() => None,
        other => lacks_options(other),
    },
    lacks_form: |form| {
        if form.unsynced_bytes > 0 {
            return Some(NO_SYNC);
        } else if form.torn_bytes > 0 {
            return Some("it takes garbage for a record without a check of its form");
        }
        (form.segments > 0).then_some("it has files of 1 GB")
    },
    lacks_streams: |streams| (streams > MOST_TOPICS).then_some("it has 10 MB for each topic"),
    // Readers of a topic share one position.
    has_one_thread: |workload| workload == Workload::Scan,
    reads_once: true,
    open: |plan| Ok(Box::new(WalrusLog::create(plan)?)),
    ..Contender::BASE
};

/// Its name on the command line.
pub const NAME: &str = "walrus";
const QUIET: &str = "WALRUS_QUIET";
const FOLDER: &str = "WALRUS_DATA_DIR";
const MOST_TOPICS: usize = 1000;
const LARGEST_BATCH: usize = 2000;
const READ_BYTES: usize = 16 << 20;
/// A reader's position is kept only after this many reads: never.
const READER: ReadConsistency = ReadConsistency::AtLeastOnce { persist_every: u32::MAX };

/// Starts this program again, in this process, with the variables that walrus needs for logs in
/// the run's folder; returns if they are set.
///
/// # Errors
/// If the program cannot be started again.
pub fn begin_again(dir: &Path) -> Result<()> {
    let folder = absolute(Folder::path_of(dir, NAME))?;
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
    log: Walrus,
    /// After the log, so that it is dropped later.
    files: Files,
    /// Of its folder: a trim begins the next one.
    number: u32,
    plan: Plan,
    topics: Vec<Topic>,
}

struct Topic {
    name: String,
    batches: Mutex<()>,
}

impl WalrusLog {
    fn create(plan: &Plan) -> Result<WalrusLog> {
        static FIRST: Once = Once::new();
        let dir = absolute(&plan.dir)?;
        if env::var_os(QUIET).is_none() || env::var_os(FOLDER).is_none_or(|set| *dir != *set) {
            bail!("walrus needs {QUIET}=1 and {FOLDER}={} in the environment", dir.display());
        }
        FIRST.call_once(|| {
            // If it fails, the next one fails as well, and reports why.
            let _ = open(0, FsyncSchedule::NoFsync);
        });
        if plan.workload.needs_a_disk() {
            enable_fd_backend()
        } else {
            disable_fd_backend()
        }
        let log = WalrusLog::open(plan, 1)?;
        log.make_topics()?;
        Ok(log)
    }

    /// Opens a log that syncs each append if the workload measures durability, and none otherwise.
    fn open(plan: &Plan, number: u32) -> Result<WalrusLog> {
        let has_syncs = plan.workload.needs_a_disk();
        let schedule = if has_syncs { FsyncSchedule::SyncEach } else { FsyncSchedule::NoFsync };
        let topic = |name| Topic { name, batches: Mutex::new(()) };
        Ok(WalrusLog {
            log: open(number, schedule)?,
            files: Files(plan.dir.join(key(number))),
            number,
            plan: plan.clone(),
            topics: stream_names(plan).into_iter().map(topic).collect(),
        })
    }

    fn make_topics(&self) -> Result<()> {
        (0..self.topics.len()).try_for_each(|stream| self.append(stream, &[1]))
    }

    /// Returns the topic of a stream. A log that is not one of streams has one topic for all.
    fn topic(&self, stream: usize) -> &Topic {
        &self.topics[stream % self.topics.len()]
    }
}

fn key(number: u32) -> String {
    format!("log-{number}")
}

fn open(number: u32, schedule: FsyncSchedule) -> Result<Walrus> {
    Ok(Walrus::with_consistency_and_schedule_for_key(&key(number), READER, schedule)?)
}

/// The folder of a log's files. A drop frees the disk that they take.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        // The run clears its folder at its end: files that cannot be truncated here go then.
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = File::options().write(true).open(entry.path()).map(|file| file.set_len(0));
        }
    }
}

impl Log for WalrusLog {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.appends(stream, record, 1)
    }

    fn appends(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let name = &self.topic(stream).name;
        (0..count).try_for_each(|_| Ok(self.log.append_for_topic(name, record)?))
    }

    fn commit(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.append(stream, record)
    }

    fn batch(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let topic = self.topic(stream);
        for piece in vec![record; count as usize].chunks(LARGEST_BATCH) {
            let _turn = lock(&topic.batches);
            self.log.batch_append_for_topic(&topic.name, piece)?;
        }
        Ok(())
    }

    fn trim(&mut self) -> Result<()> {
        *self = WalrusLog::open(&self.plan, self.number + 1)?;
        self.make_topics()
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        (0..self.topics.len()).try_for_each(|stream| self.scan_stream(stream, tally))
    }

    fn scan_stream(&self, stream: usize, tally: &mut Tally<'_>) -> Result<()> {
        let name = &self.topic(stream).name;
        let mut skipped = FIRST_RECORDS;
        loop {
            let records = self.log.batch_read_for_topic(name, READ_BYTES, true)?;
            if records.is_empty() {
                return Ok(());
            }
            records.iter().skip(skipped).for_each(|record| tally.take(&record.data));
            skipped = skipped.saturating_sub(records.len());
        }
    }

    /// Drops the log: the crate has no other end.
    fn end(self: Box<Self>, plan: &Plan, _end: End) -> Result<Option<Opening>> {
        let WalrusLog { log, files, number, .. } = *self;
        drop(log);
        // So that the drop of `files` does not find them.
        fs::rename(&files.0, files.0.with_file_name(key(number + 1)))?;
        let plan = plan.clone();
        Ok(Some(Box::new(move || Ok(Box::new(WalrusLog::open(&plan, number + 1)?)))))
    }
}

//! Crate wal-db: on a file, and in memory.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `Wal::append` | kept: one positioned write to the file | nothing |
//! | `Wal::append_and_sync` | kept | kept, once it has returned |
//! | `Wal::append`, then `Wal::sync` | kept | kept, once `sync` has returned |
//!
//! `Wal::append` reserves with one atomic step and writes outside of the lock; concurrent
//! `append_and_sync` calls share a `fdatasync`: both are the crate's own fastest paths. The single
//! file is used, not segments: each write to a segment takes a read lock and looks the file up.
//! Records are framed and have a CRC-32C. After a failed sync the crate forgets the failure, and a
//! later sync may succeed. The folder is not synced when the file is made.
//!
//! A trim keeps the log's first record: the crate can only truncate behind a record.
//!
//! A scan is `Wal::iter`, a single record the first of `Wal::iter_from`: both verify the checksum
//! and allocate each record. An open reads and verifies every record, so it is its own full check.
//! Logs that are read or opened have `OpenPolicy::Strict`, which costs nothing on a log that is
//! whole. It looks for records behind a torn tail before it truncates the tail, as Palisade does.
//! An open does not make durable what it reports. There is no clean end that an open could detect.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use wal_db::{FileStore, Lsn, MemStore, OpenPolicy, Wal, WalConfig, WalStore};

use crate::contender::{Contender, NO_ATOMIC, lacks_options};
use crate::form::Form;
use crate::image::killed;
use crate::log::{End, Log, Opening};
use crate::plan::BURST_BYTES;
use crate::tally::Tally;
use crate::workload::Workload;

/// On a file.
pub(super) const FILE: Contender = Contender {
    name: "wal-db",
    version: Some("1.1.0"),
    lacks: |workload| match workload {
        Workload::Atomic => Some(NO_ATOMIC),
        other => lacks_options(other),
    },
    lacks_form: |form| match form {
        Form::Segments(_) => Some("it is measured with one file"),
        _ => None,
    },
    create: |_, plan| {
        let folder = plan.dir.join("log");
        std::fs::create_dir(&folder)?;
        Ok(Box::new(open(folder, 0)?))
    },
    ..Contender::BASE
};

/// In memory.
pub(super) const MEMORY: Contender = Contender {
    name: "wal-db-mem",
    lacks: |workload| match workload {
        Workload::Sync => Some("it has no device"),
        Workload::Recover | Workload::Reopen => Some("it has no files"),
        Workload::Atomic => Some(NO_ATOMIC),
        other => lacks_options(other),
    },
    create: |_, plan| {
        // A store with room for all records, and more than they should take: growing copies it.
        let records = (BURST_BYTES / plan.record_bytes as u64 + 1).max(plan.records);
        let bytes = 2 * records * (plan.record_bytes as u64 + FRAME_BYTES);
        let wal = Wal::with_store(MemStore::with_capacity(bytes as usize))?;
        Ok(Box::new(WalDb::new(wal, None, 0)))
    },
    ..FILE
};

const FILE_NAME: &str = "log.wal";
/// More than a record's header takes.
const FRAME_BYTES: u64 = 16;

struct WalDb<S: WalStore> {
    wal: Wal<S>,
    /// The folder to open again; `None` in memory, which loses its records.
    folder: Option<PathBuf>,
    /// Records that the last trim has left.
    left: AtomicU64,
    /// Where each record is, if they are to be read one by one.
    lsns: Vec<Lsn>,
}

impl<S: WalStore> WalDb<S> {
    fn new(wal: Wal<S>, folder: Option<PathBuf>, left: u64) -> WalDb<S> {
        WalDb { wal, folder, left: AtomicU64::new(left), lsns: Vec::new() }
    }
}

fn open(folder: PathBuf, left: u64) -> Result<WalDb<FileStore>> {
    let config = WalConfig::new().with_open_policy(OpenPolicy::Strict);
    let wal = Wal::open_with(folder.join(FILE_NAME), config)?;
    Ok(WalDb::new(wal, Some(folder), left))
}

impl<S: WalStore + 'static> Log for WalDb<S> {
    fn append(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        for _ in 0..count {
            let _lsn = self.wal.append(record)?;
        }
        Ok(())
    }

    fn commit(&self, _thread: usize, record: &[u8]) -> Result<()> {
        let _lsn = self.wal.append_and_sync(record)?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.wal.sync()?)
    }

    fn trim(&self) -> Result<()> {
        if !self.wal.is_empty() {
            self.wal.truncate_after(Lsn::new(0))?;
            // Relaxed: no other call runs meanwhile, and the number orders nothing.
            self.left.store(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        // Relaxed: no trim runs meanwhile.
        for record in self.wal.iter()?.skip(self.left.load(Ordering::Relaxed) as usize) {
            tally.take(record?.data());
        }
        Ok(())
    }

    fn index(&mut self) -> Result<()> {
        for record in self.wal.iter()? {
            self.lsns.push(record?.lsn());
        }
        Ok(())
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        let lsn = self.lsns.get(number as usize).context("there is no such record")?;
        let record = self.wal.iter_from(*lsn)?.next().context("there is no such record")?;
        tally.take(record?.data());
        Ok(())
    }

    fn end(mut self: Box<Self>, end: End) -> Result<Option<Opening>> {
        let Some(mut folder) = self.folder.take() else {
            // In memory: it loses its records when it ends.
            return Ok(Some(Box::new(move || Ok(self))));
        };
        match end {
            End::Closed => self.wal.sync()?,
            End::Dropped => {}
            End::Killed { torn_bytes } => {
                folder = killed(&folder, |name| name == FILE_NAME, torn_bytes)?;
            }
        }
        let left = self.left.load(Ordering::Relaxed);
        drop(self);
        Ok(Some(Box::new(move || Ok(Box::new(open(folder, left)?)))))
    }
}

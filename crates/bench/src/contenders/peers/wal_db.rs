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
//! The crate can only truncate behind a record, so each log begins with a record that a trim keeps
//! and a scan leaves out.
//!
//! A scan is `Wal::iter`, a single record the first of `Wal::iter_from`: both verify the checksum
//! and allocate each record. An open reads and verifies every record, so it is its own full check.
//! Logs that are read or opened have `OpenPolicy::Strict`, which costs nothing on a log that is
//! whole. It looks for records behind a torn tail before it truncates the tail, as Palisade does.
//! An open does not make durable what it reports. There is no clean end that an open could detect.

use std::fs;

use anyhow::{Context, Result};
use wal_db::{Lsn, MemStore, OpenPolicy, Wal, WalConfig, WalStore};

use super::FIRST_RECORDS;
use crate::contender::{NO_ATOMIC, lacks_options};
use crate::{BURST_BYTES, Contender, End, Log, Opening, Plan, Tally, Workload};

/// On a file.
pub(super) const FILE: Contender = Contender {
    name: "wal-db",
    version: Some("1.1.0"),
    lacks: |workload| match workload {
        Workload::Atomic => Some(NO_ATOMIC),
        other => lacks_options(other),
    },
    lacks_form: |form| (form.segments > 0).then_some("it is measured with one file"),
    open: |plan| {
        fs::create_dir_all(plan.folder())?;
        let config = WalConfig::new().with_open_policy(OpenPolicy::Strict);
        WalDb::start(Wal::open_with(plan.folder().join(FILE_NAME), config)?)
    },
    is_segment: Some(|name| name == FILE_NAME),
    ..Contender::BASE
};

/// In memory.
pub(super) const MEMORY: Contender = Contender {
    name: "wal-db-mem",
    lacks: |workload| match workload {
        Workload::Sync => Some("it has no device"),
        Workload::Recover | Workload::Reopen => Some("it has no files"),
        other => (FILE.lacks)(other),
    },
    open: |plan| {
        // A store with room for all records, and more than they should take: growing copies it.
        let records = (BURST_BYTES / plan.record_bytes as u64 + 1).max(plan.records);
        let bytes = 2 * records * (plan.record_bytes as u64 + FRAME_BYTES);
        WalDb::start(Wal::with_store(MemStore::with_capacity(bytes as usize))?)
    },
    ..FILE
};

const FILE_NAME: &str = "log.wal";
/// More than a record's header takes.
const FRAME_BYTES: u64 = 16;

struct WalDb<S: WalStore> {
    wal: Wal<S>,
    /// Where each record is, if they are to be read one by one.
    lsns: Vec<Lsn>,
}

impl<S: WalStore + 'static> WalDb<S> {
    fn start(wal: Wal<S>) -> Result<Box<dyn Log>> {
        if wal.is_empty() {
            let _lsn = wal.append(&[1])?;
        }
        Ok(Box::new(WalDb { wal, lsns: Vec::new() }))
    }
}

impl<S: WalStore + 'static> Log for WalDb<S> {
    fn append(&self, _thread: usize, record: &[u8]) -> Result<()> {
        let _lsn = self.wal.append(record)?;
        Ok(())
    }

    fn commit(&self, _thread: usize, record: &[u8]) -> Result<()> {
        let _lsn = self.wal.append_and_sync(record)?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.wal.sync()?)
    }

    fn trim(&mut self) -> Result<()> {
        self.wal.truncate_after(Lsn::new(0))?;
        Ok(())
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        for record in self.wal.iter()?.skip(FIRST_RECORDS) {
            tally.take(record?.data());
        }
        Ok(())
    }

    fn index(&mut self) -> Result<()> {
        for record in self.wal.iter()?.skip(FIRST_RECORDS) {
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

    fn end(self: Box<Self>, plan: &Plan, end: End) -> Result<Option<Opening>> {
        if plan.contender.name == MEMORY.name {
            // It loses its records when it ends.
            return Ok(Some(Box::new(move || Ok(self))));
        }
        if end == End::Closed {
            self.wal.sync()?;
        }
        Ok(None)
    }
}

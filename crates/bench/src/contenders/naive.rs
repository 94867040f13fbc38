//! The log of an application without a log library: a mutex, a file, one sync per commit.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use crate::contender::{Contender, NO_ATOMIC, lacks_reading};
use crate::log::{End, Log, Opening};
use crate::plan::Plan;
use crate::tally::Tally;
use crate::team::lock;
use crate::workload::Workload;

/// A mutex and a growing file, one sync per commit.
pub const NAIVE: Contender = Contender {
    name: "naive",
    lacks: |workload| match workload {
        Workload::Atomic => Some(NO_ATOMIC),
        other => lacks_reading(other),
    },
    create: |_, plan| Ok(Box::new(Naive::create(plan)?)),
    ..Contender::BASE
};

/// Appends bare records to a file that grows, under one lock.
///
/// `append` is one `write` and survives a process kill; `commit` is one `write` and one
/// `fdatasync`, both under the lock. There is no framing and no checksum, so a reader could not
/// recognise a torn record.
#[derive(Debug)]
struct Naive {
    file: Mutex<File>,
    path: PathBuf,
    record_bytes: usize,
    syncs: AtomicU64,
}

impl Naive {
    fn create(plan: &Plan) -> Result<Naive> {
        let path = plan.dir.join("log");
        let file = OpenOptions::new().append(true).create_new(true).open(&path)?;
        Ok(Naive {
            file: Mutex::new(file),
            path,
            record_bytes: plan.record_bytes,
            syncs: AtomicU64::new(0),
        })
    }

    fn sync_file(&self, file: &File) -> Result<()> {
        file.sync_data()?;
        // Relaxed: a counter, it orders nothing.
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Log for Naive {
    fn append(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        for _ in 0..count {
            lock(&self.file).write_all(record)?;
        }
        Ok(())
    }

    fn commit(&self, _thread: usize, record: &[u8]) -> Result<()> {
        let mut file = lock(&self.file);
        file.write_all(record)?;
        self.sync_file(&file)
    }

    fn sync(&self) -> Result<()> {
        self.sync_file(&lock(&self.file))
    }

    fn trim(&self) -> Result<()> {
        Ok(lock(&self.file).set_len(0)?)
    }

    fn syncs(&self) -> Option<u64> {
        Some(self.syncs.load(Ordering::Relaxed))
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        let bytes = io::copy(&mut File::open(&self.path)?, &mut io::sink())?;
        tally.count(bytes / self.record_bytes as u64, bytes);
        Ok(())
    }

    fn end(self: Box<Self>, _end: End) -> Result<Option<Opening>> {
        Ok(Some(Box::new(move || Ok(self))))
    }
}

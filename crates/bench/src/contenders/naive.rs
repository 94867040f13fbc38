//! The log of an application without a log library: a mutex, a file, one sync per commit.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::Result;

use crate::contender::{NO_ATOMIC, lacks_reading};
use crate::{Contender, Log, Plan, Tally, Workload, lock};

/// A mutex and a growing file, one sync per commit.
pub const NAIVE: Contender = Contender {
    name: "naive",
    lacks: |workload| match workload {
        Workload::Atomic => Some(NO_ATOMIC),
        other => lacks_reading(other),
    },
    open: |plan| Ok(Box::new(Naive::open(plan)?)),
    ..Contender::BASE
};

/// Appends bare records to a file that grows, under one lock.
///
/// `append` is one `write` and survives a process kill; `commit` is one `write` and one
/// `fdatasync`, both under the lock. There is no framing and no checksum, so a reader could not
/// recognise a torn record.
struct Naive {
    tail: Mutex<Tail>,
    path: PathBuf,
    record_bytes: usize,
}

struct Tail {
    file: File,
    syncs: u64,
}

impl Tail {
    fn sync(&mut self) -> Result<()> {
        self.syncs += 1;
        Ok(self.file.sync_data()?)
    }
}

impl Naive {
    fn open(plan: &Plan) -> Result<Naive> {
        let (path, record_bytes) = (plan.folder(), plan.record_bytes);
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        Ok(Naive { tail: Mutex::new(Tail { file, syncs: 0 }), path, record_bytes })
    }
}

impl Log for Naive {
    fn append(&self, _thread: usize, record: &[u8]) -> Result<()> {
        Ok(lock(&self.tail).file.write_all(record)?)
    }

    fn commit(&self, _thread: usize, record: &[u8]) -> Result<()> {
        let mut tail = lock(&self.tail);
        tail.file.write_all(record)?;
        tail.sync()
    }

    fn sync(&self) -> Result<()> {
        lock(&self.tail).sync()
    }

    fn trim(&mut self) -> Result<()> {
        Ok(lock(&self.tail).file.set_len(0)?)
    }

    fn syncs(&self) -> Option<u64> {
        Some(lock(&self.tail).syncs)
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        let bytes = io::copy(&mut File::open(&self.path)?, &mut io::sink())?;
        tally.count(bytes / self.record_bytes as u64, bytes);
        Ok(())
    }
}

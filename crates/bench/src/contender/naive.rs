//! What an application writes that has no log library: a mutex, a file, one sync per commit.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;

use super::{Log, NO_ATOMIC, Profile, lacks_reading, no_fill};
use crate::plan::Plan;
use crate::workload::Workload;

pub(super) const PROFILE: Profile = Profile {
    name: "naive",
    version: None,
    lacks: |workload| match workload {
        Workload::Atomic => Some(NO_ATOMIC),
        other => lacks_reading(other),
    },
    lacks_form: |_| None,
    create: |_, plan| Ok(Box::new(Naive::create(plan)?)),
    fill: no_fill,
};

/// Appends bare records to a file that grows, under one lock.
///
/// `append` is one `write` and survives a process kill; `commit` is one `write` and one
/// `fdatasync`, both under the lock. There is no framing and no checksum: a reader could not
/// tell a torn record from a whole one.
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

    fn lock(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync_file(&self, file: &File) -> Result<()> {
        file.sync_data()?;
        // Relaxed: a figure, it orders nothing.
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Log for Naive {
    fn append(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        for _ in 0..count {
            self.lock().write_all(record)?;
        }
        Ok(())
    }

    fn commit(&self, _thread: usize, record: &[u8]) -> Result<()> {
        let mut file = self.lock();
        file.write_all(record)?;
        self.sync_file(&file)
    }

    fn sync(&self) -> Result<()> {
        self.sync_file(&self.lock())
    }

    fn trim(&self) -> Result<()> {
        Ok(self.lock().set_len(0)?)
    }

    fn syncs(&self) -> Option<u64> {
        Some(self.syncs.load(Ordering::Relaxed))
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        let Naive { file, path, record_bytes, .. } = *self;
        drop(file);
        let mut file = File::open(path)?;
        let mut buffer = vec![0; 1 << 20];
        let mut bytes = 0;
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(Some(bytes / record_bytes as u64)),
                n => bytes += n as u64,
            }
        }
    }
}

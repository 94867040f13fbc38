//! Palisade: on files, in memory, and with its buffer on the heap.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use palisade::{BufferKind, Lsn, MemStore, Options, RecoveryReport, Wal};

use super::{Contender, Log, Profile};
use crate::workload::Workload;

const SEGMENT_BYTES: u64 = 64 << 20;
const VERSION: Option<&str> = Some(env!("CARGO_PKG_VERSION"));

pub(super) const FILES: Profile = Profile {
    name: "palisade",
    version: VERSION,
    lacks: |_| None,
    create: |_, plan| Ok(Box::new(PalisadeLog::create(Contender::Palisade, &plan.dir)?)),
};

pub(super) const MEMORY: Profile = Profile {
    name: "palisade-mem",
    lacks: |workload| match workload {
        Workload::Reopen | Workload::Rotation | Workload::Policies | Workload::Sync => {
            Some("it has no files")
        }
        _ => None,
    },
    create: |_, plan| Ok(Box::new(PalisadeLog::create(Contender::PalisadeMem, &plan.dir)?)),
    ..FILES
};

pub(super) const HEAP: Profile = Profile {
    name: "palisade-heap",
    create: |_, plan| Ok(Box::new(PalisadeLog::create(Contender::PalisadeHeap, &plan.dir)?)),
    ..FILES
};

/// A log of Palisade with its default options but for the buffer's kind.
///
/// `append` survives a process kill on files with the mapped buffer, `commit` survives power
/// loss on files. Every record has a checksummed header and a checksummed payload.
#[derive(Debug)]
pub struct PalisadeLog {
    wal: Wal,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Folder(PathBuf, Options),
    Memory(MemStore),
}

impl Place {
    fn open(&self) -> Result<Wal> {
        Ok(match self {
            Place::Folder(path, options) => options.open(path)?,
            Place::Memory(store) => Wal::with_store(store.clone(), Options::new())?,
        })
    }

    fn open_timed(self) -> Result<(PalisadeLog, Duration)> {
        let begin = Instant::now();
        let wal = self.open()?;
        Ok((PalisadeLog { wal, place: self }, begin.elapsed()))
    }
}

impl PalisadeLog {
    /// An empty log in a subfolder of `dir`, or in memory.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(contender: Contender, dir: &Path) -> Result<PalisadeLog> {
        PalisadeLog::with(contender, dir, Options::new())
    }

    /// An empty log with these options but for the buffer's kind; in memory, without them.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn with(contender: Contender, dir: &Path, options: Options) -> Result<PalisadeLog> {
        let folder = dir.join("log");
        let place = match contender {
            Contender::PalisadeMem => Place::Memory(MemStore::new(SEGMENT_BYTES)),
            Contender::PalisadeHeap => Place::Folder(folder, options.buffer(BufferKind::Heap)),
            _ => Place::Folder(folder, options),
        };
        Ok(PalisadeLog { wal: place.open()?, place })
    }

    /// A log of so many records, all of them durable.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn filled(
        contender: Contender,
        dir: &Path,
        record: &[u8],
        records: u64,
    ) -> Result<PalisadeLog> {
        let log = PalisadeLog::create(contender, dir)?;
        log.fill(record, records)?;
        Ok(log)
    }

    /// Appends so many records and makes them durable.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn fill(&self, record: &[u8], records: u64) -> Result<()> {
        for _ in 0..records {
            let _ticket = self.wal.append(record)?;
        }
        Ok(self.wal.sync()?)
    }

    /// The log itself.
    #[must_use]
    pub fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Reads all records, their checksums verified, and returns how many there are.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn scan(&self) -> Result<u64> {
        let mut records = self.wal.iter()?;
        let mut count = 0;
        while let Some(record) = records.next()? {
            black_box(record.data());
            count += 1;
        }
        Ok(count)
    }

    /// The LSNs of all records.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn lsns(&self) -> Result<Vec<Lsn>> {
        let mut records = self.wal.iter()?;
        let mut lsns = Vec::new();
        while let Some(record) = records.next()? {
            lsns.push(record.lsn());
        }
        Ok(lsns)
    }

    /// Bytes from the head to the end of the log.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.wal.reserved_lsn().bytes_since(self.wal.head_lsn())
    }

    /// Ends the log without a clean close and opens what is left: on files, an image of the
    /// folder as a killed process leaves it, made in `image`; in memory, the same store.
    ///
    /// Returns the log and how long the open took.
    ///
    /// # Errors
    /// If the image cannot be made or opened.
    pub fn crash_and_open(self, image: &Path) -> Result<(PalisadeLog, Duration)> {
        let place = match &self.place {
            Place::Folder(folder, options) => {
                copy_files(folder, image)?;
                Place::Folder(image.into(), options.clone())
            }
            memory @ Place::Memory(_) => memory.clone(),
        };
        drop(self.wal);
        place.open_timed()
    }

    /// Closes the log and opens it again; returns it and how long the open took.
    ///
    /// # Errors
    /// If it cannot be closed or opened.
    pub fn close_and_open(self) -> Result<(PalisadeLog, Duration)> {
        self.wal.close()?;
        self.place.open_timed()
    }

    /// What the last open found.
    #[must_use]
    pub fn recovery_report(&self) -> &RecoveryReport {
        self.wal.recovery_report()
    }
}

impl Log for PalisadeLog {
    fn wal(&self) -> Option<&Wal> {
        Some(&self.wal)
    }

    fn append(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        for _ in 0..count {
            let _ticket = self.wal.append(record)?;
        }
        Ok(())
    }

    fn commit(&self, _thread: usize, record: &[u8]) -> Result<()> {
        self.wal.commit(record)?;
        Ok(())
    }

    fn batch(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        let Some(before_the_last) = count.checked_sub(1) else { return Ok(()) };
        self.append(thread, record, before_the_last)?;
        self.commit(thread, record)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.wal.sync()?)
    }

    fn trim(&self) -> Result<()> {
        Ok(self.wal.truncate_before(self.wal.reserved_lsn())?)
    }

    fn syncs(&self) -> Option<u64> {
        match self.place {
            Place::Folder(..) => Some(self.wal.stats().syncs),
            Place::Memory(_) => None,
        }
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        let PalisadeLog { wal, place } = *self;
        drop(wal);
        let reopened = PalisadeLog { wal: place.open()?, place };
        reopened.scan().map(Some)
    }
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        fs::copy(entry.path(), &target)
            .with_context(|| format!("copying to {}", target.display()))?;
    }
    Ok(())
}

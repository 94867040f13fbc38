//! Palisade: on files, in memory, and with its buffer on the heap.

mod filled;

use std::path::{Path, PathBuf};

use anyhow::Result;
use palisade::{BufferKind, MemStore, Options, Wal};

use self::filled::fill;
use super::filled::Tally;
use super::{Contender, Log, Profile};
use crate::workload::{Variant, Workload};

const SEGMENT_BYTES: u64 = 64 << 20;
const VERSION: Option<&str> = Some(env!("CARGO_PKG_VERSION"));

pub(super) const FILES: Profile = Profile {
    name: "palisade",
    version: VERSION,
    lacks: |_| None,
    lacks_form: |_| None,
    create: |_, plan| Ok(Box::new(PalisadeLog::create(Contender::Palisade, &plan.dir)?)),
    fill: |workload, plan| fill(Contender::Palisade, workload, plan),
};

pub(super) const MEMORY: Profile = Profile {
    name: "palisade-mem",
    lacks: |workload| match workload {
        Workload::Reopen | Workload::Rotation | Workload::Policies | Workload::Sync => {
            Some("it has no files")
        }
        _ => None,
    },
    lacks_form: |variant| match variant {
        Variant::Torn(_) | Variant::Unsynced(_) => Some("it has no files"),
        _ => None,
    },
    create: |_, plan| Ok(Box::new(PalisadeLog::create(Contender::PalisadeMem, &plan.dir)?)),
    fill: |workload, plan| fill(Contender::PalisadeMem, workload, plan),
    ..FILES
};

pub(super) const HEAP: Profile = Profile {
    name: "palisade-heap",
    lacks_form: |variant| match variant {
        Variant::Unsynced(_) => Some("its appends do not survive a kill"),
        _ => None,
    },
    create: |_, plan| Ok(Box::new(PalisadeLog::create(Contender::PalisadeHeap, &plan.dir)?)),
    fill: |workload, plan| fill(Contender::PalisadeHeap, workload, plan),
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
    Memory(MemStore, Options),
}

impl Place {
    /// Where the contender's log goes; in memory, with segments of so many bytes.
    fn of(contender: Contender, dir: &Path, segment_bytes: u64, options: Options) -> Place {
        let folder = dir.join("log");
        match contender {
            Contender::PalisadeMem => Place::Memory(MemStore::new(segment_bytes), options),
            Contender::PalisadeHeap => Place::Folder(folder, options.buffer(BufferKind::Heap)),
            _ => Place::Folder(folder, options),
        }
    }

    fn open(&self) -> Result<Wal> {
        Ok(match self {
            Place::Folder(path, options) => options.open(path)?,
            Place::Memory(store, options) => Wal::with_store(store.clone(), options.clone())?,
        })
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

    /// An empty log with these options but for the buffer's kind; in memory, without those of
    /// files.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn with(contender: Contender, dir: &Path, options: Options) -> Result<PalisadeLog> {
        PalisadeLog::at(Place::of(contender, dir, SEGMENT_BYTES, options))
    }

    fn at(place: Place) -> Result<PalisadeLog> {
        Ok(PalisadeLog { wal: place.open()?, place })
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

    /// Gives all records to the tally, their checksums verified.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        let mut records = self.wal.iter()?;
        while let Some(record) = records.next()? {
            tally.take(record.data());
        }
        Ok(())
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

    fn atomic(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        self.wal.append_batch(&vec![record; count as usize])?.wait()?;
        Ok(())
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
            Place::Memory(..) => None,
        }
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        let PalisadeLog { wal, place } = *self;
        drop(wal);
        let reopened = PalisadeLog::at(place)?;
        let mut tally = Tally::new();
        reopened.scan(&mut tally)?;
        Ok(Some(tally.records()))
    }
}

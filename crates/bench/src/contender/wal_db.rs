//! Crate wal-db: on a file, and in memory.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `Wal::append` | kept: one positioned write to the file | nothing |
//! | `Wal::append_and_sync` | kept | kept, once it has returned |
//! | `Wal::append`, then `Wal::sync` | kept | kept, once `sync` has returned |
//!
//! `Wal::append` reserves with one atomic step and writes outside of the lock; concurrent
//! `append_and_sync` calls share a `fdatasync`: both are the crate's own fastest paths. The
//! single file is used, not segments: each write to a segment takes a read lock and looks the
//! file up. Records are framed and have a CRC-32C. After a failed sync the crate forgets the
//! failure, and a later sync may succeed. The folder is not synced when the file is made.
//!
//! A trim keeps the log's first record: the crate can cut off only what follows a record.
//!
//! A scan is `Wal::iter`, a single record the first of `Wal::iter_from`: both verify the checksum and
//! allocate each record. An open reads and verifies every record, so it is its own full check.
//! Logs are opened with `OpenPolicy::Strict`, which costs nothing on a log that is whole, and which
//! looks for records behind a torn tail before it cuts the tail off, as Palisade does. What an open
//! reports, it does not make durable. `reopen` and the forms with several segments have the
//! segmented store; there is no clean end that an open could tell.

mod filled;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use wal_db::{FileStore, Lsn, MemStore, Wal, WalStore};

use super::{Log, NO_ATOMIC, Profile, lacks_options};
use crate::plan::{BURST_BYTES, Plan};
use crate::workload::{Variant, Workload};

const VERSION: Option<&str> = Some("1.1.0");
/// More than a record's header takes.
const FRAME_BYTES: u64 = 16;

pub(super) const FILE: Profile = Profile {
    name: "wal-db",
    version: VERSION,
    lacks: |workload| match workload {
        Workload::Atomic => Some(NO_ATOMIC),
        other => lacks_options(other),
    },
    lacks_form: |_| None,
    create: |_, plan| {
        let path = plan.dir.join("log.wal");
        Ok(Box::new(WalDb::new(FileStore::open(&path)?, Some(path))?))
    },
    fill: filled::fill_files,
};

pub(super) const MEMORY: Profile = Profile {
    name: "wal-db-mem",
    version: VERSION,
    lacks: |workload| match workload {
        Workload::Sync => Some("it has no device"),
        Workload::Reopen => Some("it has no files"),
        Workload::Atomic => Some(NO_ATOMIC),
        other => lacks_options(other),
    },
    lacks_form: |variant| match variant {
        Variant::Torn(_) | Variant::Unsynced(_) | Variant::Segments(_) => Some("it has no files"),
        _ => None,
    },
    create: |_, plan| Ok(Box::new(WalDb::new(roomy(plan), None)?)),
    fill: filled::fill_memory,
};

/// A store that a burst does not make grow: growing copies it.
fn roomy(plan: &Plan) -> MemStore {
    let records = BURST_BYTES / plan.record_bytes as u64 + 1;
    MemStore::with_capacity((2 * BURST_BYTES + records * FRAME_BYTES) as usize)
}

struct WalDb<S: WalStore> {
    wal: Wal<Counted<S>>,
    /// The file to open again; `None` in memory, which nothing survives.
    path: Option<PathBuf>,
    syncs: Arc<AtomicU64>,
    /// Records that the last trim has left.
    left: AtomicU64,
}

impl<S: WalStore> WalDb<S> {
    fn new(store: S, path: Option<PathBuf>) -> Result<WalDb<S>> {
        let syncs = Arc::<AtomicU64>::default();
        let wal = Wal::with_store(Counted { store, syncs: Arc::clone(&syncs) })?;
        Ok(WalDb { wal, path, syncs, left: AtomicU64::new(0) })
    }
}

fn count<S: WalStore>(wal: &Wal<S>) -> Result<u64> {
    let mut records = 0;
    for record in wal.iter()? {
        record?;
        records += 1;
    }
    Ok(records)
}

impl<S: WalStore> Log for WalDb<S> {
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
            // Relaxed: nobody else calls meanwhile, and the figure orders nothing.
            self.left.store(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        // Relaxed: a figure, it orders nothing.
        self.path.as_ref().map(|_| self.syncs.load(Ordering::Relaxed))
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        let WalDb { wal, path, left, .. } = *self;
        let there = match path {
            Some(path) => {
                drop(wal);
                count(&Wal::open(path)?)?
            }
            None => count(&wal)?,
        };
        Ok(Some(there.saturating_sub(left.into_inner())))
    }
}

/// Counts the syncs of a store.
struct Counted<S> {
    store: S,
    syncs: Arc<AtomicU64>,
}

impl<S: WalStore> WalStore for Counted<S> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> wal_db::Result<()> {
        self.store.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> wal_db::Result<usize> {
        self.store.read_at(offset, buf)
    }

    fn truncate(&self, len: u64) -> wal_db::Result<()> {
        self.store.truncate(len)
    }

    fn sync(&self) -> wal_db::Result<()> {
        // Relaxed: a figure, it orders nothing.
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.store.sync()
    }

    fn len(&self) -> wal_db::Result<u64> {
        self.store.len()
    }
}

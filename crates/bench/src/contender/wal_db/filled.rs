//! Logs of wal-db that lie there to be read or opened.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use wal_db::{FileStore, Lsn, MemStore, OpenPolicy, SegmentedStore, Wal, WalConfig, WalStore};

use crate::contender::filled::{End, Filled, Opening, Tally, files_of, image_of, write_garbage};
use crate::plan::Plan;
use crate::workload::Workload;

const FILE: &str = "log.wal";
const HEADER_BYTES: u64 = 8;

struct FilledWalDb {
    wal: Wal<Store>,
    place: Place,
    /// Where each record is, if they are to be read one by one.
    lsns: Vec<Lsn>,
}

#[derive(Clone, Debug)]
enum Place {
    File(PathBuf),
    Segments(PathBuf, u64),
    Memory(Arc<MemStore>),
}

impl Place {
    fn open(&self) -> Result<Wal<Store>> {
        let store = match self {
            Place::File(folder) => Store::File(FileStore::open(folder.join(FILE))?),
            Place::Segments(folder, bytes) => {
                Store::Segments(SegmentedStore::open(folder, *bytes)?)
            }
            Place::Memory(store) => Store::Memory(Arc::clone(store)),
        };
        let config = WalConfig::new().with_open_policy(OpenPolicy::Strict);
        Ok(Wal::with_store_and_config(store, config)?)
    }
}

/// A log of the plan's records on files.
pub(super) fn fill_files(workload: Workload, plan: &Plan) -> Result<Box<dyn Filled>> {
    let folder = plan.dir.join("log");
    std::fs::create_dir(&folder)?;
    let place = match plan.segment_bytes(workload, HEADER_BYTES + plan.record_bytes as u64) {
        Some(bytes) => Place::Segments(folder, bytes),
        None => Place::File(folder),
    };
    fill(workload, plan, place)
}

/// The same in memory.
pub(super) fn fill_memory(workload: Workload, plan: &Plan) -> Result<Box<dyn Filled>> {
    let bytes = plan.records * (HEADER_BYTES + plan.record_bytes as u64);
    fill(workload, plan, Place::Memory(Arc::new(MemStore::with_capacity(bytes as usize))))
}

fn fill(workload: Workload, plan: &Plan, place: Place) -> Result<Box<dyn Filled>> {
    let wal = place.open()?;
    let record = plan.record();
    let mut lsns = Vec::new();
    for number in 0..plan.records {
        if number == plan.records - plan.unsynced_records() {
            wal.sync()?;
        }
        let lsn = wal.append(&record)?;
        if workload == Workload::Get {
            lsns.push(lsn);
        }
    }
    if plan.unsynced_records() == 0 {
        wal.sync()?;
    }
    Ok(Box::new(FilledWalDb { wal, place, lsns }))
}

impl Filled for FilledWalDb {
    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        for record in self.wal.iter()? {
            tally.take(record?.data());
        }
        Ok(())
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        let lsn = self.lsns.get(number as usize).context("the log was not filled to be read")?;
        let record = self.wal.iter_from(*lsn)?.next().context("there is no such record")?;
        tally.take(record?.data());
        Ok(())
    }

    fn log_bytes(&self) -> Result<u64> {
        Ok(self.wal.len())
    }

    fn segments(&self) -> Result<u64> {
        match &self.place {
            Place::Segments(folder, _) => Ok(files_of(folder, |_| true)?.len() as u64),
            Place::File(_) | Place::Memory(_) => Ok(1),
        }
    }

    fn end(self: Box<Self>, end: End) -> Result<Opening> {
        let FilledWalDb { wal, mut place, lsns } = *self;
        let bytes = wal.len();
        match end {
            End::Closed => wal.sync()?,
            End::Killed { torn_bytes } => {
                if let Place::File(folder) | Place::Segments(folder, _) = &mut place {
                    *folder = image_of(folder)?;
                    if torn_bytes > 0 {
                        write_garbage(&folder.join(FILE), bytes, torn_bytes)?;
                    }
                }
            }
        }
        drop(wal);
        Ok(Box::new(move || {
            let wal = place.open()?;
            Ok(Box::new(FilledWalDb { wal, place, lsns }))
        }))
    }
}

/// The crate's stores, one of them, as one type.
enum Store {
    File(FileStore),
    Segments(SegmentedStore),
    /// Outlives its log, so that the log can be opened again.
    Memory(Arc<MemStore>),
}

impl Store {
    #[inline]
    fn get(&self) -> &dyn WalStore {
        match self {
            Store::File(store) => store,
            Store::Segments(store) => store,
            Store::Memory(store) => &**store,
        }
    }
}

impl WalStore for Store {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> wal_db::Result<()> {
        self.get().write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> wal_db::Result<usize> {
        self.get().read_at(offset, buf)
    }

    fn truncate(&self, len: u64) -> wal_db::Result<()> {
        self.get().truncate(len)
    }

    fn sync(&self) -> wal_db::Result<()> {
        self.get().sync()
    }

    fn len(&self) -> wal_db::Result<u64> {
        self.get().len()
    }

    fn head(&self) -> wal_db::Result<u64> {
        self.get().head()
    }

    fn truncate_before(&self, offset: u64) -> wal_db::Result<u64> {
        self.get().truncate_before(offset)
    }
}

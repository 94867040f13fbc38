//! Crate ironwal.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `Wal::append`, `SyncMode::Async` | kept: handed to the operating system | nothing |
//! | `Wal::append`, `SyncMode::Strict` | kept | kept, once it has returned |
//! | `Wal::append_batch`, `SyncMode::Strict` | kept | kept, once it has returned |
//!
//! One stream is one log with one order, so all threads append to one stream. The mode is the
//! log's own: `append` is measured with `Async`, `commit` and `batch` with `Strict`. `batch` is one
//! `append_batch`, which writes one frame and syncs once. `BatchOnly` syncs as often and promises
//! less: when a batch fills a segment, that segment is closed without a sync. There is no public
//! sync. Frames have a CRC-32; there is no group commit. The folder is not synced after a segment was
//! made.
//!
//! What is read lies in segments that are mapped (`ReadStrategy::Mmap`), the crate's fastest way. A
//! scan is `Wal::iter`, a single record `Wal::get`: both verify the checksum and allocate each
//! record. In the segment that is written to, `get` walks over all records before the one it is
//! asked for; so for `get` one record more begins another segment, and all that are read lie in
//! sealed ones. Records that are read or opened were appended with `Async` and then synced by the
//! driver. An open repairs the last segment alone.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use ironwal::{ReadStrategy, SyncMode, Wal, WalOptions};

use super::filled::{End, Filled, Opening, Tally, bytes_of, files_of, image_of, write_garbage};
use super::{Log, NO_SYNC, Profile, lacks_full_check, lacks_options};
use crate::plan::Plan;
use crate::workload::{Variant, Workload};

pub(super) const PROFILE: Profile = Profile {
    name: "ironwal",
    version: Some("0.6.9"),
    lacks: |workload| match workload {
        Workload::Sync => Some(NO_SYNC),
        other => lacks_options(other),
    },
    lacks_form: |variant| match variant {
        Variant::Unsynced(_) => Some(NO_SYNC),
        other => lacks_full_check(other),
    },
    create: |workload, plan| Ok(Box::new(IronWal::create(workload, plan)?)),
    fill,
};

const STREAM: &str = "log";

struct IronWal {
    wal: Wal,
    dir: PathBuf,
}

impl IronWal {
    fn create(workload: Workload, plan: &Plan) -> Result<IronWal> {
        let sync_mode =
            if workload == Workload::Append { SyncMode::Async } else { SyncMode::Strict };
        let dir = plan.dir.join("log");
        let wal = Wal::new(WalOptions { sync_mode, ..WalOptions::new(&dir) })?;
        Ok(IronWal { wal, dir })
    }
}

impl Log for IronWal {
    fn append(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        for _ in 0..count {
            self.wal.append(STREAM, record)?;
        }
        Ok(())
    }

    fn commit(&self, thread: usize, record: &[u8]) -> Result<()> {
        self.append(thread, record, 1)
    }

    fn batch(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        self.wal.append_batch(STREAM, &vec![record; count as usize])?;
        Ok(())
    }

    fn atomic(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        self.batch(thread, record, count)
    }

    fn sync(&self) -> Result<()> {
        bail!(NO_SYNC)
    }

    fn trim(&self) -> Result<()> {
        Ok(self.wal.delete_stream(STREAM)?)
    }

    fn syncs(&self) -> Option<u64> {
        None
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        let IronWal { wal, dir } = *self;
        drop(wal);
        let mut records = 0;
        for record in Wal::new(WalOptions::new(dir))?.iter(STREAM, 0)? {
            record?;
            records += 1;
        }
        Ok(Some(records))
    }
}

/// What a record takes in a segment beside its bytes.
const FRAMING_BYTES: u64 = 36;

/// A log that lies there to be read or opened.
struct FilledIronWal {
    wal: Wal,
    options: WalOptions,
    records: u64,
}

fn fill(workload: Workload, plan: &Plan) -> Result<Box<dyn Filled>> {
    let mut options = WalOptions {
        sync_mode: SyncMode::Async,
        read_strategy: ReadStrategy::Mmap,
        ..WalOptions::new(plan.dir.join("log"))
    };
    if let Some(bytes) = plan.segment_bytes(workload, plan.record_bytes as u64 + FRAMING_BYTES) {
        options.max_segment_size = bytes;
    }
    let is_sealed = workload == Workload::Get;
    if is_sealed {
        options.max_entries_per_segment = plan.records;
    }
    let wal = Wal::new(options.clone())?;
    let record = plan.record();
    for _ in 0..plan.records + u64::from(is_sealed) {
        wal.append(STREAM, &record)?;
    }
    Ok(Box::new(FilledIronWal { wal, options, records: plan.records }))
}

impl FilledIronWal {
    fn files(&self) -> Result<Vec<PathBuf>> {
        files_of(&self.options.root_path.join(STREAM), |name| name.ends_with(".wal"))
    }
}

impl Filled for FilledIronWal {
    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        for record in self.wal.iter(STREAM, 0)?.take(self.records as usize) {
            tally.take(&record?);
        }
        Ok(())
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        let record = self.wal.get(STREAM, number)?;
        tally.take(&record.context("there is no such record")?);
        Ok(())
    }

    fn log_bytes(&self) -> Result<u64> {
        bytes_of(&self.files()?)
    }

    fn segments(&self) -> Result<u64> {
        Ok(self.files()?.len() as u64)
    }

    fn end(mut self: Box<Self>, end: End) -> Result<Opening> {
        if let End::Killed { torn_bytes } = end {
            self.options.root_path = image_of(&self.options.root_path)?;
            let files = self.files()?;
            let last = files.last().context("the log has no segment")?;
            write_garbage(last, bytes_of(&files[files.len() - 1..])?, torn_bytes)?;
        }
        let FilledIronWal { wal, options, records } = *self;
        drop(wal);
        Ok(Box::new(move || {
            let wal = Wal::new(options.clone())?;
            Ok(Box::new(FilledIronWal { wal, options, records }))
        }))
    }
}

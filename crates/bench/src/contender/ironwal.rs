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

use std::path::PathBuf;

use anyhow::{Result, bail};
use ironwal::{SyncMode, Wal, WalOptions};

use super::{Log, Profile, lacks_reading};
use crate::plan::Plan;
use crate::workload::Workload;

pub(super) const PROFILE: Profile = Profile {
    name: "ironwal",
    version: Some("0.6.9"),
    lacks: |workload| match workload {
        Workload::Sync => Some("it has no sync of its own"),
        other => lacks_reading(other),
    },
    create: |workload, plan| Ok(Box::new(IronWal::create(workload, plan)?)),
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

    fn sync(&self) -> Result<()> {
        bail!("ironwal has no sync of its own")
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

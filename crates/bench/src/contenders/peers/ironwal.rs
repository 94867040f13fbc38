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
//! sync and no group commit. Frames have a CRC-32. The folder is not synced after a segment was
//! made.
//!
//! Records are read from mapped segments (`ReadStrategy::Mmap`), the crate's fastest way. A scan is
//! `Wal::iter`, a single record `Wal::get`: both verify the checksum and allocate each record. In
//! the segment that is written to, `get` walks over all records before the one it returns. So for
//! `get` the last record begins another segment, and all others lie in a sealed one.
//! Its LZ4 (feature `compression`) is not built in: it needs a second version of `lz4_flex`.
//!
//! Records that are read or opened were appended with `Async` and then synced by the driver. An
//! open repairs the last segment alone.

use anyhow::{Context, Result};
use ironwal::{ReadStrategy, SyncMode, Wal, WalOptions};

use crate::contender::{Contender, NO_SYNC, lacks_full_check, lacks_options};
use crate::form::{Compression, Form};
use crate::image::killed;
use crate::log::{End, Log, Opening};
use crate::plan::Plan;
use crate::tally::Tally;
use crate::workload::Workload;

pub(super) const IRONWAL: Contender = Contender {
    name: "ironwal",
    version: Some("0.6.9"),
    lacks: |workload| match workload {
        Workload::Sync => Some(NO_SYNC),
        Workload::Codec => None,
        other => lacks_options(other),
    },
    lacks_form: |form| match form {
        Form::Unsynced(_) => Some(NO_SYNC),
        Form::Coded(Compression::Lz4 | Compression::Zstd, _) => {
            Some("its compression is not built in")
        }
        other => lacks_full_check(other),
    },
    create: |workload, plan| Ok(Box::new(IronWal::open(options(workload, plan))?)),
    ..Contender::BASE
};

const STREAM: &str = "log";
/// What a record takes in a segment beside its bytes.
const FRAMING_BYTES: u64 = 36;

struct IronWal {
    wal: Wal,
    options: WalOptions,
}

impl IronWal {
    fn open(options: WalOptions) -> Result<IronWal> {
        Ok(IronWal { wal: Wal::new(options.clone())?, options })
    }
}

fn options(workload: Workload, plan: &Plan) -> WalOptions {
    let has_commits = workload != Workload::Append && !workload.reads();
    let mut options = WalOptions {
        sync_mode: if has_commits { SyncMode::Strict } else { SyncMode::Async },
        read_strategy: ReadStrategy::Mmap,
        ..WalOptions::new(plan.dir.join("log"))
    };
    if let Some(bytes) = plan.segment_bytes(workload, plan.record_bytes as u64 + FRAMING_BYTES) {
        options.max_segment_size = bytes;
    }
    if workload == Workload::Get {
        options.max_entries_per_segment = plan.records.saturating_sub(1).max(1);
    }
    options
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

    fn trim(&self) -> Result<()> {
        Ok(self.wal.delete_stream(STREAM)?)
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        for record in self.wal.iter(STREAM, 0)? {
            tally.take(&record?);
        }
        Ok(())
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        let record = self.wal.get(STREAM, number)?;
        tally.take(&record.context("there is no such record")?);
        Ok(())
    }

    fn end(self: Box<Self>, end: End) -> Result<Option<Opening>> {
        let IronWal { wal, mut options } = *self;
        if let End::Killed { torn_bytes } = end {
            options.root_path = killed(&options.root_path, is_segment, torn_bytes)?;
        }
        drop(wal);
        Ok(Some(Box::new(move || Ok(Box::new(IronWal::open(options)?)))))
    }
}

fn is_segment(name: &str) -> bool {
    name.ends_with(".wal")
}

//! Crate ironwal.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `Wal::append`, `SyncMode::Async` | kept: handed to the operating system | nothing |
//! | `Wal::append`, `SyncMode::Strict` | kept | kept, once it has returned |
//! | `Wal::append_batch`, `SyncMode::Strict` | kept | kept, once it has returned |
//!
//! One stream is one log with one order, so all threads append to one stream; in workloads of
//! streams to those that the workload names. A stream is a folder with files of its own, and an
//! append to a file that is not open opens it. So up to 800 files stay open, where the default is
//! 128; a process can usually have 1024. The mode is the
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

use super::{records_that_make_a_stream, stream_names};
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
        Workload::StreamsSlow => Some("it moves nothing"),
        Workload::StreamsTruncate => Some("it removes whole segments only"),
        workload if workload.has_streams() => None,
        other => lacks_options(other),
    },
    lacks_form: |form| match form {
        Form::Unsynced(_) => Some(NO_SYNC),
        Form::Coded(Compression::Lz4 | Compression::Zstd, _) => {
            Some("its compression is not built in")
        }
        other => lacks_full_check(other),
    },
    lacks_streams: |streams| (streams > MOST_STREAMS).then_some("it has a folder for each stream"),
    create: |workload, plan| {
        let names = stream_names(workload, plan);
        let made_by = records_that_make_a_stream(workload);
        let log = IronWal::open(options(workload, plan), names, made_by)?;
        log.make_streams()?;
        Ok(Box::new(log))
    },
    ..Contender::BASE
};

const MOST_STREAMS: usize = 10_000;
const LEAST_OPEN_FILES: usize = 128;
const MOST_OPEN_FILES: usize = 800;
/// What a record takes in a segment beside its bytes.
const FRAMING_BYTES: u64 = 36;

struct IronWal {
    wal: Wal,
    options: WalOptions,
    streams: Vec<String>,
    /// Records at the begin of each stream that have made it.
    made_by: usize,
}

impl IronWal {
    fn open(options: WalOptions, streams: Vec<String>, made_by: usize) -> Result<IronWal> {
        Ok(IronWal { wal: Wal::new(options.clone())?, options, streams, made_by })
    }

    fn make_streams(&self) -> Result<()> {
        (0..self.streams.len())
            .try_for_each(|stream| self.append(stream, &[1], self.made_by as u32))
    }

    /// Returns the name of a stream. A log that is not one of streams has one name for all.
    fn name(&self, stream: usize) -> &str {
        &self.streams[stream % self.streams.len()]
    }
}

fn options(workload: Workload, plan: &Plan) -> WalOptions {
    let has_commits = workload.needs_a_disk();
    let mut options = WalOptions {
        sync_mode: if has_commits { SyncMode::Strict } else { SyncMode::Async },
        read_strategy: ReadStrategy::Mmap,
        max_open_segments: plan.streams.clamp(LEAST_OPEN_FILES, MOST_OPEN_FILES),
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
    fn append(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let name = self.name(stream);
        for _ in 0..count {
            self.wal.append(name, record)?;
        }
        Ok(())
    }

    fn commit(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.append(stream, record, 1)
    }

    fn batch(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        self.wal.append_batch(self.name(stream), &vec![record; count as usize])?;
        Ok(())
    }

    fn atomic(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        self.batch(stream, record, count)
    }

    fn trim(&self) -> Result<()> {
        self.streams.iter().try_for_each(|name| self.wal.delete_stream(name))?;
        self.make_streams()
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        (0..self.streams.len()).try_for_each(|stream| self.scan_stream(stream, tally))
    }

    fn scan_stream(&self, stream: usize, tally: &mut Tally<'_>) -> Result<()> {
        for record in self.wal.iter(self.name(stream), 0)?.skip(self.made_by) {
            tally.take(&record?);
        }
        Ok(())
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        let record = self.wal.get(self.name(0), number)?;
        tally.take(&record.context("there is no such record")?);
        Ok(())
    }

    fn end(self: Box<Self>, end: End) -> Result<Option<Opening>> {
        let IronWal { wal, mut options, streams, made_by } = *self;
        if let End::Killed { torn_bytes } = end {
            options.root_path = killed(&options.root_path, is_segment, torn_bytes)?;
        }
        drop(wal);
        Ok(Some(Box::new(move || Ok(Box::new(IronWal::open(options, streams, made_by)?)))))
    }
}

fn is_segment(name: &str) -> bool {
    name.ends_with(".wal")
}

//! Crate ironwal: its log, and its sharded log (feature `sharded`).
//!
//! # The log
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
//!
//! # The sharded log
//! | call, with `SyncMode::Async` | after a kill | after power loss |
//! |---|---|---|
//! | `append` | kept: handed to the operating system | nothing |
//! | `append_batch_for_key` | kept, whole: one frame, but two at the end of a segment | nothing |
//! | `flush_all`, then `create_checkpoint` | kept | kept, with all records appended before |
//!
//! A shard is a stream of the crate's log. A hash of the key chooses it for each append; the key is
//! not stored, and there are no handles: the forms `by handle` and `by key` are the same call. A
//! checkpoint has the next index of each shard, and not of each key.
//!
//! The mode is `Async`, in which the calls promise what those of Palisade do. A checkpoint has what
//! is known to be durable: with `Async` nothing before `flush_all`, which syncs one shard after the
//! other. The crate's own benchmarks use `BatchOnly` and no `flush_all`, so their checkpoints have
//! none of the records.
//!
//! `flush_all` syncs the segment that each shard writes to. What was appended to a segment that was
//! filled since the last `flush_all` is not synced, nor the folder of a new segment. A round here
//! seldom fills a segment of 64 MiB.
//!
//! The first append to a shard makes its folder, so each shard begins with a record, too.

use anyhow::{Context, Result};
use ironwal::sharded::ShardedWal;
use ironwal::{ReadStrategy, SyncMode, Wal, WalOptions};

use super::super::streams::name;
use super::{FIRST_RECORDS, NO_SYNC, lacks_full_check, stream_names};
use crate::contender::lacks_options;
use crate::{Compression, Contender, Log, Plan, Tally, Workload};

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
    lacks_form: |form| match form.compression {
        Compression::None if form.unsynced_bytes > 0 => Some(NO_SYNC),
        Compression::None => lacks_full_check(form),
        Compression::Lz4 | Compression::Zstd => Some("its compression is not built in"),
    },
    lacks_streams: |streams| (streams > MOST_STREAMS).then_some("it has a folder for each stream"),
    open: |plan| Ok(Box::new(IronWal::open(plan)?)),
    is_segment: Some(|name| name.ends_with(".wal")),
    ..Contender::BASE
};

const MOST_STREAMS: usize = 10_000;
const LEAST_OPEN_FILES: usize = 128;
const MOST_OPEN_FILES: usize = 800;
/// What a record takes in a segment beside its bytes.
const FRAMING_BYTES: u64 = 36;

struct IronWal {
    wal: Wal,
    streams: Vec<String>,
}

impl IronWal {
    fn open(plan: &Plan) -> Result<IronWal> {
        let is_new = !plan.folder().exists();
        IronWal::begin(Wal::new(options(plan))?, stream_names(plan), is_new)
    }

    fn begin(wal: Wal, streams: Vec<String>, is_new: bool) -> Result<IronWal> {
        let log = IronWal { wal, streams };
        if is_new {
            log.make_streams()?;
        }
        Ok(log)
    }

    fn make_streams(&self) -> Result<()> {
        (0..self.streams.len()).try_for_each(|stream| self.append(stream, &[1]))
    }

    /// Returns the name of a stream. A log that is not one of streams has one name for all.
    fn name(&self, stream: usize) -> &str {
        &self.streams[stream % self.streams.len()]
    }
}

fn options(plan: &Plan) -> WalOptions {
    let has_shards = plan.workload.has_shards();
    let has_commits = plan.workload.needs_a_disk() && !has_shards;
    let open_files = match has_shards {
        // What the crate's documentation recommends.
        true => 2 * plan.shards,
        false => plan.streams.min(MOST_OPEN_FILES),
    };
    let mut options = WalOptions {
        sync_mode: if has_commits { SyncMode::Strict } else { SyncMode::Async },
        read_strategy: ReadStrategy::Mmap,
        max_open_segments: open_files.max(LEAST_OPEN_FILES),
        ..WalOptions::new(plan.folder())
    };
    if let Some(bytes) = plan.segment_bytes(plan.record_bytes as u64 + FRAMING_BYTES) {
        options.max_segment_size = bytes;
    }
    if plan.workload == Workload::Get {
        // All records but the last one.
        options.max_entries_per_segment = FIRST_RECORDS as u64 + plan.records.saturating_sub(1);
    }
    options
}

impl Log for IronWal {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.wal.append(self.name(stream), record)?;
        Ok(())
    }

    fn commit(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.append(stream, record)
    }

    fn batch(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        self.wal.append_batch(self.name(stream), &vec![record; count as usize])?;
        Ok(())
    }

    fn trim(&mut self) -> Result<()> {
        self.streams.iter().try_for_each(|name| self.wal.delete_stream(name))?;
        self.make_streams()
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        (0..self.streams.len()).try_for_each(|stream| self.scan_stream(stream, tally))
    }

    fn scan_stream(&self, stream: usize, tally: &mut Tally<'_>) -> Result<()> {
        for record in self.wal.iter(self.name(stream), FIRST_RECORDS as u64)? {
            tally.take(&record?);
        }
        Ok(())
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        let record = self.wal.get(self.name(0), FIRST_RECORDS as u64 + number)?;
        tally.take(&record.context("there is no such record")?);
        Ok(())
    }
}

pub(super) const IRONWAL_SHARDED: Contender = Contender {
    name: "ironwal-sharded",
    version: Some("0.6.9"),
    lacks: |workload| (!workload.has_shards()).then_some("only its shards are measured here"),
    open: |plan| Ok(Box::new(IronSet::open(plan)?)),
    ..Contender::BASE
};

struct IronSet {
    wal: ShardedWal,
    /// The log of the set, whose streams are the shards.
    log: IronWal,
    keys: Vec<String>,
}

impl IronSet {
    fn open(plan: &Plan) -> Result<IronSet> {
        let is_new = !plan.folder().exists();
        let wal = ShardedWal::new(options(plan), plan.shards as u16)?;
        let shards = (0..plan.shards).map(|shard| format!("shard_{shard:02}")).collect();
        let log = IronWal::begin(wal.inner().clone(), shards, is_new)?;
        Ok(IronSet { wal, log, keys: (0..plan.streams).map(name).collect() })
    }
}

impl Log for IronSet {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.wal.append(self.keys[stream].as_bytes(), record)?;
        Ok(())
    }

    fn append_batch(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let key = self.keys[stream].as_bytes();
        self.wal.append_batch_for_key(key, &vec![record; count as usize])?;
        Ok(())
    }

    fn checkpoint(&self, name: &str) -> Result<()> {
        self.wal.flush_all()?;
        Ok(self.wal.create_checkpoint(name.as_bytes())?)
    }

    fn load_checkpoint(&self, name: &str) -> Result<u64> {
        let offsets = self.wal.load_checkpoint(name.as_bytes())?.offsets;
        Ok(offsets.iter().map(|offset| offset.saturating_sub(FIRST_RECORDS as u64)).sum())
    }

    fn prune_checkpoints(&self) -> Result<()> {
        self.wal.compact_checkpoints(1)?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.wal.flush_all()?)
    }

    fn trim(&mut self) -> Result<()> {
        self.log.trim()
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        self.log.scan(tally)
    }
}

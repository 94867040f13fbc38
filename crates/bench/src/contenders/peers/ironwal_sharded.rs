//! Crate ironwal: its sharded log (feature `sharded`).
//!
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
//! other. If nothing was appended since the last one, `create_checkpoint` alone does (the form
//! `create unchanged`). The crate's own benchmarks use `BatchOnly` and no `flush_all`, so their
//! checkpoints have none of the records.
//!
//! `flush_all` syncs the segment that each shard writes to. What was appended to a segment that was
//! filled since the last `flush_all` is not synced, nor the folder of a new segment. A round here
//! seldom fills a segment of 64 MiB.
//!
//! The first append to a shard makes its folder, so each shard gets a record that a scan leaves
//! out.

use anyhow::Result;
use ironwal::sharded::ShardedWal;
use ironwal::{ReadStrategy, SyncMode, WalOptions};

use super::super::streams::name;
use crate::contender::Contender;
use crate::form::Form;
use crate::log::{End, Log, Opening};
use crate::plan::Plan;
use crate::tally::Tally;

pub(super) const IRONWAL_SHARDED: Contender = Contender {
    name: "ironwal-sharded",
    version: Some("0.6.9"),
    lacks: |workload| (!workload.has_shards()).then_some("only its shards are measured here"),
    create: |_, plan| {
        let keys = (0..plan.streams).map(name).collect();
        let set = IronSet::open(options(plan), plan.shards as u16, keys, plan.form)?;
        set.make_shards()?;
        Ok(Box::new(set))
    },
    ..Contender::BASE
};

/// Records at the begin of each shard that have made it.
const MADE_BY: u64 = 1;
const LEAST_OPEN_FILES: usize = 128;

struct IronSet {
    wal: ShardedWal,
    options: WalOptions,
    keys: Vec<String>,
    form: Form,
}

impl IronSet {
    fn open(options: WalOptions, shards: u16, keys: Vec<String>, form: Form) -> Result<IronSet> {
        Ok(IronSet { wal: ShardedWal::new(options.clone(), shards)?, options, keys, form })
    }

    /// Returns the names of the streams that the crate uses as shards.
    fn shard_names(&self) -> impl Iterator<Item = String> {
        (0..self.wal.shard_count()).map(|shard| format!("shard_{shard:02}"))
    }

    fn make_shards(&self) -> Result<()> {
        for name in self.shard_names() {
            self.wal.inner().append(&name, &[1])?;
        }
        Ok(())
    }
}

fn options(plan: &Plan) -> WalOptions {
    WalOptions {
        sync_mode: SyncMode::Async,
        read_strategy: ReadStrategy::Mmap,
        // What its documentation recommends.
        max_open_segments: (2 * plan.shards).max(LEAST_OPEN_FILES),
        ..WalOptions::new(plan.dir.join("log"))
    }
}

impl Log for IronSet {
    fn append(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let key = self.keys[stream].as_bytes();
        for _ in 0..count {
            self.wal.append(key, record)?;
        }
        Ok(())
    }

    fn append_batch(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let key = self.keys[stream].as_bytes();
        self.wal.append_batch_for_key(key, &vec![record; count as usize])?;
        Ok(())
    }

    fn checkpoint(&self, name: &str) -> Result<()> {
        if self.form != Form::Unchanged {
            self.wal.flush_all()?;
        }
        Ok(self.wal.create_checkpoint(name.as_bytes())?)
    }

    fn load_checkpoint(&self, name: &str) -> Result<u64> {
        let offsets = self.wal.load_checkpoint(name.as_bytes())?.offsets;
        Ok(offsets.iter().map(|offset| offset.saturating_sub(MADE_BY)).sum())
    }

    fn prune_checkpoints(&self) -> Result<()> {
        self.wal.compact_checkpoints(1)?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.wal.flush_all()?)
    }

    fn trim(&self) -> Result<()> {
        for name in self.shard_names() {
            self.wal.inner().delete_stream(&name)?;
        }
        self.make_shards()
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        for shard in 0..self.wal.shard_count() {
            for record in self.wal.iter_shard(shard, MADE_BY)? {
                tally.take(&record?);
            }
        }
        Ok(())
    }

    fn end(self: Box<Self>, _end: End) -> Result<Option<Opening>> {
        let IronSet { wal, options, keys, form } = *self;
        let shards = wal.shard_count();
        drop(wal);
        Ok(Some(Box::new(move || Ok(Box::new(IronSet::open(options, shards, keys, form)?)))))
    }
}

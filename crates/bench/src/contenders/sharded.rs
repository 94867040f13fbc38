//! Crate palisade-streams: a set of shards on one disk.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `Stream::append` | kept | nothing |
//! | `Batch::apply` | kept, whole | nothing |
//! | `Sharded::checkpoint` | kept | kept, with all records that were appended before |
//!
//! A key is the name of a stream, and the stream lies in the shard of its name. The form `by key`
//! looks the stream up for each append, `by handle` appends through a handle. A batch has one
//! stream. A checkpoint has the next index of each stream.
//!
//! All shards together have a buffer of 16 MiB and segments of 256 MiB, but at most 64 MiB a
//! segment, as one log has by default. The defaults are for one log on a disk.

use std::path::PathBuf;

use anyhow::{Context, Result};
use palisade_streams::{Options, Sharded, Stream};

use super::streams::name;
use crate::contender::Contender;
use crate::form::Form;
use crate::log::{End, Log, Opening};
use crate::plan::Plan;
use crate::tally::Tally;

/// Streams in a set of shards.
pub const SHARDED: Contender = Contender {
    name: "palisade-sharded",
    version: Some(env!("CARGO_PKG_VERSION")),
    lacks: |workload| (!workload.has_shards()).then_some("only sets of shards are measured"),
    create: |_, plan| Ok(Box::new(Set::create(plan)?)),
    ..Contender::BASE
};

const SEGMENT_BYTES: u64 = 64 << 20;
/// Segments that a set has in the place of one for each shard.
const SEGMENTS: u64 = 4;
const BUFFER_BYTES: usize = 16 << 20;
const LEAST_BUFFER_BYTES: usize = 256 << 10;

#[derive(Debug)]
struct Set {
    sharded: Sharded,
    options: Options,
    folders: Vec<PathBuf>,
    keys: Vec<String>,
    is_by_key: bool,
    /// Handles of all streams, in a set that was made and not opened.
    handles: Vec<Stream>,
}

impl Set {
    fn create(plan: &Plan) -> Result<Set> {
        let shards = plan.shards.next_power_of_two();
        let log = palisade::Options::new()
            .segment_bytes((SEGMENTS * SEGMENT_BYTES / shards as u64).min(SEGMENT_BYTES))
            .buffer_bytes((BUFFER_BYTES / shards).max(LEAST_BUFFER_BYTES));
        let folders = (0..plan.shards).map(|shard| plan.dir.join(format!("shard-{shard}")));
        let keys = (0..plan.streams).map(name).collect();
        let mut set = Set::open(Options::new().log(log), folders.collect(), keys)?;
        set.is_by_key = plan.form == Form::ByKey;
        set.handles = set.sharded.create_many(&set.keys)?;
        Ok(set)
    }

    fn open(options: Options, folders: Vec<PathBuf>, keys: Vec<String>) -> Result<Set> {
        let sharded = Sharded::open(&folders, &options)?;
        Ok(Set { sharded, options, folders, keys, is_by_key: false, handles: Vec::new() })
    }

    fn handle(&self, stream: usize) -> Result<&Stream> {
        self.handles.get(stream).context("there is no such stream")
    }
}

impl Log for Set {
    fn append(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        for _ in 0..count {
            let found;
            let stream = if self.is_by_key {
                found = self.sharded.stream(&self.keys[stream])?;
                &found
            } else {
                self.handle(stream)?
            };
            let _ticket = stream.append(record)?;
        }
        Ok(())
    }

    fn append_batch(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let handle = self.handle(stream)?;
        let batch = self.sharded.batch(&self.keys[stream]);
        (0..count).fold(batch, |batch, _| batch.append(handle, record)).apply()?;
        Ok(())
    }

    fn checkpoint(&self, name: &str) -> Result<()> {
        self.sharded.checkpoint(name)?;
        Ok(())
    }

    fn load_checkpoint(&self, name: &str) -> Result<u64> {
        Ok(self.sharded.load(name)?.iter().map(|(_, next)| next).sum())
    }

    fn prune_checkpoints(&self) -> Result<()> {
        self.sharded.prune(1)?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sharded.sync()?)
    }

    fn trim(&self) -> Result<()> {
        for stream in &self.handles {
            stream.truncate_before(stream.next_index()?)?;
        }
        while self.sharded.maintain()? {}
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        Some(self.sharded.shards().iter().map(|shard| shard.log().stats().syncs).sum())
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        for key in &self.keys {
            for entry in self.sharded.stream(key)?.range(..)? {
                tally.take(entry?.data());
            }
        }
        Ok(())
    }

    fn end(self: Box<Self>, end: End) -> Result<Option<Opening>> {
        let Set { sharded, options, folders, keys, handles, .. } = *self;
        if end == End::Closed {
            sharded.close()?;
        }
        // Each handle keeps its log open.
        drop((handles, sharded));
        Ok(Some(Box::new(move || Ok(Box::new(Set::open(options, folders, keys)?)))))
    }
}

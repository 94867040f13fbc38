//! Crate palisade-streams: many streams in one log of Palisade, and a set of shards on one disk.
//!
//! # Streams in one log
//! The options are those of `palisade`.
//!
//! `append` survives a process kill, `commit` survives power loss. In workloads without streams
//! each thread has a stream of its own, as with raft-engine, so order between threads is not kept.
//! `batch` is appends and a wait for the last one; `atomic` is one batch of the crate. A scan is
//! `range` over each stream, a single record `get`. Before a clean close the keeper ends what it
//! has to do, so that the open finds the footers of all segments but the last one.
//!
//! # A set of shards
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

use anyhow::{Context, Result};
use palisade_streams::{Options, Sharded, Stream, Streams};

use super::palisade::segment_bytes;
use crate::workload::Workload::{Append, Atomic, Batch, Commit, Get, Reopen, Scan};
use crate::workloads::streams::BY_KEY;
use crate::{Contender, End, Log, Opening, Plan, Tally};

/// Streams in one log of Palisade.
pub const STREAMS: Contender = Contender {
    name: "palisade-streams",
    version: Some(env!("CARGO_PKG_VERSION")),
    lacks: |workload| match workload {
        Append | Atomic | Batch | Commit | Get | Reopen | Scan => None,
        workload if workload.has_streams() => None,
        _ => Some("only the log without streams is measured"),
    },
    open: |plan| Ok(Box::new(StreamsLog::open(plan)?)),
    ..Contender::BASE
};

struct StreamsLog {
    streams: Streams,
    /// Streams of the log.
    count: usize,
    /// Handles of all streams, in a log that was made and not opened.
    handles: Vec<Stream>,
}

impl StreamsLog {
    fn open(plan: &Plan) -> Result<StreamsLog> {
        let is_new = !plan.folder().exists();
        let log = palisade::Options::new().segment_bytes(segment_bytes(plan));
        let streams = Options::new().log(log).open(plan.folder())?;
        let names = (0..plan.streams).map(name);
        let handles = if is_new { streams.create_many(names)? } else { Vec::new() };
        Ok(StreamsLog { streams, count: plan.streams, handles })
    }

    fn handle(&self, stream: usize) -> Result<&Stream> {
        self.handles.get(stream).context("there is no such stream")
    }
}

/// Removes all entries of a stream.
fn empty(stream: &Stream) -> Result<()> {
    stream.truncate_before(stream.next_index()?)?;
    Ok(())
}

fn scan(stream: &Stream, tally: &mut Tally<'_>) -> Result<()> {
    for entry in stream.range(..)? {
        tally.take(entry?.data());
    }
    Ok(())
}

/// Returns a name of 8 bytes, for up to ten million streams.
pub(super) fn name(number: usize) -> String {
    format!("s{number:07}")
}

impl Log for StreamsLog {
    fn wal(&self) -> Result<&palisade::Wal> {
        Ok(self.streams.log())
    }

    fn streams(&self) -> Result<&Streams> {
        Ok(&self.streams)
    }

    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        let _ticket = self.handle(stream)?.append(record)?;
        Ok(())
    }

    fn commit(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.handle(stream)?.commit(record)?;
        Ok(())
    }

    fn atomic(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let stream = self.handle(stream)?;
        let batch = (0..count).fold(self.streams.batch(), |batch, _| batch.append(stream, record));
        batch.apply()?.wait()?;
        Ok(())
    }

    fn trim(&mut self) -> Result<()> {
        (0..self.count).try_for_each(|stream| self.truncate(stream))?;
        while self.streams.maintain()? {}
        Ok(())
    }

    fn truncate(&self, stream: usize) -> Result<()> {
        empty(self.handle(stream)?)
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        (0..self.count).try_for_each(|stream| self.scan_stream(stream, tally))
    }

    fn scan_stream(&self, stream: usize, tally: &mut Tally<'_>) -> Result<()> {
        scan(&self.streams.stream(name(stream))?, tally)
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        tally.take(self.handle(0)?.get(number)?.data());
        Ok(())
    }

    fn end(mut self: Box<Self>, _plan: &Plan, end: End) -> Result<Option<Opening>> {
        // Each handle keeps the log open.
        self.handles.clear();
        if end == End::Closed {
            while self.streams.maintain()? {}
            self.streams.close()?;
        }
        Ok(None)
    }
}

/// Streams in a set of shards.
pub const SHARDED: Contender = Contender {
    name: "palisade-sharded",
    version: Some(env!("CARGO_PKG_VERSION")),
    lacks: |workload| (!workload.has_shards()).then_some("only sets of shards are measured"),
    open: |plan| Ok(Box::new(Set::open(plan)?)),
    ..Contender::BASE
};

const SEGMENT_BYTES: u64 = 64 << 20;
/// Segments that a set has in the place of one for each shard.
const SEGMENTS: u64 = 4;
const BUFFER_BYTES: usize = 16 << 20;
const LEAST_BUFFER_BYTES: usize = 256 << 10;

struct Set {
    sharded: Sharded,
    keys: Vec<String>,
    is_by_key: bool,
    /// Handles of all streams, in a set that was made and not opened.
    handles: Vec<Stream>,
}

impl Set {
    fn open(plan: &Plan) -> Result<Set> {
        let shards = plan.shards.next_power_of_two();
        let log = palisade::Options::new()
            .segment_bytes((SEGMENTS * SEGMENT_BYTES / shards as u64).min(SEGMENT_BYTES))
            .buffer_bytes((BUFFER_BYTES / shards).max(LEAST_BUFFER_BYTES));
        let folder_of = |shard| plan.dir.join(format!("shard-{shard}"));
        let folders: Vec<_> = (0..plan.shards).map(folder_of).collect();
        let is_new = !folders[0].exists();
        let sharded = Sharded::open(&folders, &Options::new().log(log))?;
        let keys: Vec<String> = (0..plan.streams).map(name).collect();
        let handles = if is_new { sharded.create_many(&keys)? } else { Vec::new() };
        Ok(Set { sharded, keys, is_by_key: plan.form == BY_KEY, handles })
    }

    fn handle(&self, stream: usize) -> Result<&Stream> {
        self.handles.get(stream).context("there is no such stream")
    }
}

impl Log for Set {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        if self.is_by_key {
            drop(self.sharded.stream(&self.keys[stream])?.append(record)?);
        } else {
            drop(self.handle(stream)?.append(record)?);
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

    fn trim(&mut self) -> Result<()> {
        self.handles.iter().try_for_each(empty)?;
        while self.sharded.maintain()? {}
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        Some(self.sharded.shards().iter().map(|shard| shard.log().stats().syncs).sum())
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        self.keys.iter().try_for_each(|key| scan(&self.sharded.stream(key)?, tally))
    }

    fn end(self: Box<Self>, _plan: &Plan, end: End) -> Result<Option<Opening>> {
        if end == End::Closed {
            self.sharded.close()?;
        }
        Ok(None)
    }
}

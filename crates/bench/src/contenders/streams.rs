//! Crate palisade-streams: many streams in one log of Palisade, with the options of `palisade`.
//!
//! `append` survives a process kill, `commit` survives power loss. In workloads without streams
//! each thread has a stream of its own, as with raft-engine, so order between threads is not kept.
//! `batch` is appends and a wait for the last one; `atomic` is one batch of the crate. A scan is
//! `range` over each stream, a single record `get`. Before a clean close the keeper ends what it
//! has to do, so that the open finds the footers of all segments but the last one.

use std::path::PathBuf;

use anyhow::{Context, Result};
use palisade_streams::{Options, Stream, Streams};

use super::palisade::segment_bytes;
use crate::contender::Contender;
use crate::log::{End, Log, Opening};
use crate::plan::Plan;
use crate::tally::Tally;
use crate::workload::Workload::{self, Append, Atomic, Batch, Commit, Get, Reopen, Scan};

/// Streams in one log of Palisade.
pub const STREAMS: Contender = Contender {
    name: "palisade-streams",
    version: Some(env!("CARGO_PKG_VERSION")),
    lacks: |workload| match workload {
        Append | Atomic | Batch | Commit | Get | Reopen | Scan => None,
        workload if workload.has_streams() => None,
        _ => Some("only the log without streams is measured"),
    },
    create: |workload, plan| Ok(Box::new(StreamsLog::create(workload, plan)?)),
    ..Contender::BASE
};

#[derive(Debug)]
struct StreamsLog {
    streams: Streams,
    options: Options,
    folder: PathBuf,
    /// Streams of the log.
    count: usize,
    /// Handles of all streams, in a log that was made and not opened.
    handles: Vec<Stream>,
}

impl StreamsLog {
    fn create(workload: Workload, plan: &Plan) -> Result<StreamsLog> {
        let log = palisade::Options::new().segment_bytes(segment_bytes(workload, plan));
        let options = Options::new().log(log);
        let mut log = StreamsLog::open(options, plan.dir.join("log"), plan.streams)?;
        log.handles = log.streams.create_many((0..plan.streams).map(name))?;
        Ok(log)
    }

    fn open(options: Options, folder: PathBuf, count: usize) -> Result<StreamsLog> {
        let streams = options.open(&folder)?;
        Ok(StreamsLog { streams, options, folder, count, handles: Vec::new() })
    }

    fn handle(&self, stream: usize) -> Result<&Stream> {
        self.handles.get(stream).context("there is no such stream")
    }

    /// Lets the keeper end what it has to do.
    fn maintain(&self) -> Result<()> {
        while self.streams.maintain()? {}
        Ok(())
    }
}

/// Returns a name of 8 bytes, for up to ten million streams.
pub(super) fn name(number: usize) -> String {
    format!("s{number:07}")
}

impl Log for StreamsLog {
    fn streams(&self) -> Option<&Streams> {
        Some(&self.streams)
    }

    fn append(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let stream = self.handle(stream)?;
        for _ in 0..count {
            let _ticket = stream.append(record)?;
        }
        Ok(())
    }

    fn commit(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.handle(stream)?.commit(record)?;
        Ok(())
    }

    fn batch(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let Some(before_the_last) = count.checked_sub(1) else { return Ok(()) };
        self.append(stream, record, before_the_last)?;
        self.commit(stream, record)
    }

    fn atomic(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        let stream = self.handle(stream)?;
        let batch = (0..count).fold(self.streams.batch(), |batch, _| batch.append(stream, record));
        batch.apply()?.wait()?;
        Ok(())
    }

    fn trim(&self) -> Result<()> {
        (0..self.count).try_for_each(|stream| self.truncate(stream))?;
        self.maintain()
    }

    fn truncate(&self, stream: usize) -> Result<()> {
        let stream = self.handle(stream)?;
        stream.truncate_before(stream.next_index()?)?;
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        Some(self.streams.log().stats().syncs)
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        (0..self.count).try_for_each(|stream| self.scan_stream(stream, tally))
    }

    fn scan_stream(&self, stream: usize, tally: &mut Tally<'_>) -> Result<()> {
        for entry in self.streams.stream(name(stream))?.range(..)? {
            tally.take(entry?.data());
        }
        Ok(())
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        tally.take(self.handle(0)?.get(number)?.data());
        Ok(())
    }

    fn size(&self) -> Option<(u64, u64)> {
        let log = self.streams.log();
        let bytes = log.reserved_lsn().bytes_since(log.head_lsn());
        Some((bytes, log.recovery_report().segments))
    }

    fn end(mut self: Box<Self>, end: End) -> Result<Option<Opening>> {
        // Each handle keeps the log open.
        self.handles.clear();
        if end == End::Closed {
            self.maintain()?;
            self.streams.close()?;
        }
        let StreamsLog { streams, options, folder, count, .. } = *self;
        drop(streams);
        Ok(Some(Box::new(move || Ok(Box::new(StreamsLog::open(options, folder, count)?)))))
    }
}

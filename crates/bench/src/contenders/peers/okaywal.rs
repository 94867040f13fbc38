//! Crate okaywal.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `EntryWriter::commit` | kept | kept, once it has returned |
//!
//! There is no append without a sync: an entry lies in a buffer of the process before its commit,
//! and is rolled back when it is dropped. So `append` is refused. `batch` is one entry
//! of many chunks, atomic, with one commit: the crate's own form of it. Each chunk has a CRC-32C.
//!
//! Concurrent commits share a `fdatasync`. The log's file is written with zeros up to
//! `preallocate_bytes` when it is made, so that syncs touch no metadata; here that is more than a
//! round needs, and nothing is checkpointed by size: a commit never pays for another file.
//!
//! Records are read when a log is opened, all of them, each chunk's checksum verified; there is no
//! other scan. A log keeps one file: further ones are for checkpoints, which release their records.
//! The entries of logs that are opened have up to 1 000 chunks, because each entry costs a sync.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use okaywal::{
    Configuration, Entry, EntryId, LogManager, ReadChunkResult, SegmentReader, WriteAheadLog,
};

use crate::contender::lacks_options;
use crate::{BURST_BYTES, Contender, End, Log, Opening, Plan, Tally, Workload};

pub(super) const OKAYWAL: Contender = Contender {
    name: "okaywal",
    version: Some("0.3.1"),
    lacks: |workload| match workload {
        Workload::Append => Some("it has no append without a sync"),
        Workload::Sync => Some("it has no sync apart from a commit"),
        Workload::Scan | Workload::Get => Some("it returns records when it is opened: see recover"),
        other => lacks_options(other),
    },
    lacks_form: |form| {
        let no_append = (form.unsynced_bytes > 0).then_some("it has no append without a sync");
        no_append.or((form.segments > 0).then_some("it keeps one file"))
    },
    open: |plan| Ok(Box::new(OkayWal::open(plan)?)),
    is_segment: Some(|name| name.starts_with("wal-")),
    ..Contender::BASE
};

const LEAST_FILE_BYTES: u64 = 16 << 20;
/// What a file never reaches: checkpoints happen only when they are asked for.
const NEVER_BYTES: u64 = u64::MAX;
/// Chunks of an entry: each entry costs a sync.
const ENTRY_CHUNKS: u64 = 1000;
/// What a file holds beside the chunks' bytes.
const FRAMING_BYTES: u64 = 16;

struct OkayWal {
    log: WriteAheadLog,
    record_bytes: usize,
    /// Chunks that its open has found and that equal the record.
    found: Arc<AtomicU64>,
}

impl OkayWal {
    fn open(plan: &Plan) -> Result<OkayWal> {
        let file_bytes = u32::try_from(file_bytes(plan));
        let file_bytes = file_bytes.context("okaywal's file would be too large")?;
        let reader = Reader { record: plan.record(), ..Reader::default() };
        let found = Arc::clone(&reader.found);
        let log = Configuration::default_for(plan.folder())
            .preallocate_bytes(file_bytes)
            .checkpoint_after_bytes(NEVER_BYTES)
            .open(reader)?;
        Ok(OkayWal { log, record_bytes: plan.record_bytes, found })
    }
}

/// Returns more bytes than the records take with their framing, so that no commit pays for another
/// file.
fn file_bytes(plan: &Plan) -> u64 {
    if plan.workload.reads() {
        LEAST_FILE_BYTES + plan.records * (plan.record_bytes as u64 + FRAMING_BYTES)
    } else {
        BURST_BYTES + BURST_BYTES / 4
    }
}

impl Log for OkayWal {
    fn commit(&self, thread: usize, record: &[u8]) -> Result<()> {
        self.batch(thread, record, 1)
    }

    fn batch(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        let mut entry = self.log.begin_entry()?;
        for _ in 0..count {
            entry.write_chunk(record)?;
        }
        entry.commit()?;
        Ok(())
    }

    fn fill(&self, _streams: usize, record: &[u8], synced: u64, _unsynced: u64) -> Result<()> {
        let entries = (0..synced).step_by(ENTRY_CHUNKS as usize);
        entries
            .map(|at| (synced - at).min(ENTRY_CHUNKS) as u32)
            .try_for_each(|chunks| self.batch(0, record, chunks))
    }

    fn trim(&mut self) -> Result<()> {
        self.log.checkpoint_active()?;
        // An entry without chunks: it brings the new file's zeros to the device.
        self.log.begin_entry()?.commit()?;
        Ok(())
    }

    /// Counts the records that the open has found: the crate has no other scan.
    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        // Relaxed: the open has counted on this thread.
        let chunks = self.found.load(Ordering::Relaxed);
        tally.count(chunks, chunks * self.record_bytes as u64);
        Ok(())
    }

    fn end(self: Box<Self>, _plan: &Plan, end: End) -> Result<Option<Opening>> {
        if end == End::Closed {
            self.log.shutdown()?;
        }
        Ok(None)
    }
}

/// Counts the chunks that an open finds and that equal `record`; releases checkpointed entries.
#[derive(Debug, Default)]
struct Reader {
    found: Arc<AtomicU64>,
    record: Vec<u8>,
    chunk: Vec<u8>,
}

impl LogManager for Reader {
    fn recover(&mut self, entry: &mut Entry<'_>) -> std::io::Result<()> {
        let mut chunks = 0;
        loop {
            let mut chunk = match entry.read_chunk()? {
                ReadChunkResult::Chunk(chunk) => chunk,
                ReadChunkResult::EndOfEntry => break,
                ReadChunkResult::AbortedEntry => return Ok(()),
            };
            self.chunk.clear();
            chunk.read_to_end(&mut self.chunk)?;
            if !chunk.check_crc()? {
                return Err(std::io::Error::other("a chunk's checksum is wrong"));
            }
            chunks += u64::from(self.record == self.chunk);
        }
        // Relaxed: a counter, it orders nothing.
        self.found.fetch_add(chunks, Ordering::Relaxed);
        Ok(())
    }

    fn checkpoint_to(
        &mut self,
        _last: EntryId,
        _entries: &mut SegmentReader,
        _log: &WriteAheadLog,
    ) -> std::io::Result<()> {
        Ok(())
    }
}

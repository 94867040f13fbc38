//! Crate okaywal.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `EntryWriter::commit` | kept | kept, once it has returned |
//!
//! There is no append without a sync: what an entry holds before its commit lies in a buffer of
//! the process and is rolled back when it is dropped. So `append` is refused. `batch` is one entry
//! of many chunks, atomic, with one commit: the crate's own form of it. Each chunk has a CRC-32C.
//!
//! Concurrent commits share a `fdatasync`. The log's file is written with zeros up to
//! `preallocate_bytes` when it is made, so that syncs touch no metadata; here that is more than a
//! round needs, and nothing is checkpointed by size: a commit never pays for another file.
//!
//! Records are read when a log is opened, all of them, each chunk's checksum verified; there is no
//! other scan. A single chunk is read by `WriteAheadLog::read_at`, which opens the file for it. A log
//! keeps one file: further ones are for checkpoints, which give up what they hold. The entries of
//! logs that are read or opened have up to 1 000 chunks, because each entry costs a sync.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use okaywal::{
    Configuration, Entry, EntryId, LogManager, LogPosition, ReadChunkResult, SegmentReader,
    WriteAheadLog,
};

use super::filled::{End, Filled, Opening, Tally, files_of, image_of, write_garbage};
use super::{Log, Profile, lacks_options};
use crate::plan::{BURST_BYTES, Plan};
use crate::workload::{Variant, Workload};

pub(super) const PROFILE: Profile = Profile {
    name: "okaywal",
    version: Some("0.3.1"),
    lacks: |workload| match workload {
        Workload::Append => Some("it has no append without a sync"),
        Workload::Sync => Some("it has no sync apart from a commit"),
        Workload::Scan => Some("it gives its records out when it is opened only: see `recover`"),
        other => lacks_options(other),
    },
    lacks_form: |variant| match variant {
        Variant::Unsynced(_) => Some("it has no append without a sync"),
        Variant::Segments(_) => Some("it keeps one file"),
        _ => None,
    },
    create: |workload, plan| Ok(Box::new(OkayWal::create(workload, plan)?)),
    fill,
};

/// Bytes of commits that a second of a round is taken to write at most: more than the best
/// reference figure.
const COMMIT_BYTES_A_SECOND: f64 = 48e6;
const LEAST_FILE_BYTES: u64 = 16 << 20;
/// What a file never reaches: checkpoints happen when asked for only.
const NEVER_BYTES: u64 = u64::MAX;

#[derive(Debug)]
struct OkayWal {
    log: WriteAheadLog,
    dir: PathBuf,
    file_bytes: u32,
}

impl OkayWal {
    fn create(workload: Workload, plan: &Plan) -> Result<OkayWal> {
        let file_bytes = match workload {
            // A quarter more than the records: their framing, and what the last steps add.
            Workload::Batch | Workload::Atomic => BURST_BYTES + BURST_BYTES / 4,
            // Whoever calls it in a loop of its own goes on for as long as it likes.
            _ if plan.time.is_zero() => BURST_BYTES,
            _ => (plan.time.as_secs_f64() * COMMIT_BYTES_A_SECOND) as u64,
        };
        let file_bytes = file_bytes.clamp(LEAST_FILE_BYTES, BURST_BYTES * 5 / 4) as u32;
        let dir = plan.dir.join("log");
        let log = open(&dir, file_bytes, Reader::default())?;
        Ok(OkayWal { log, dir, file_bytes })
    }
}

fn open(dir: &Path, file_bytes: u32, reader: Reader) -> Result<WriteAheadLog> {
    let options = Configuration::default_for(dir)
        .preallocate_bytes(file_bytes)
        .checkpoint_after_bytes(NEVER_BYTES);
    Ok(options.open(reader)?)
}

impl Log for OkayWal {
    fn append(&self, _thread: usize, _record: &[u8], _count: u32) -> Result<()> {
        bail!("okaywal has no append without a sync")
    }

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

    fn atomic(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        self.batch(thread, record, count)
    }

    fn sync(&self) -> Result<()> {
        bail!("okaywal has no sync apart from a commit")
    }

    fn trim(&self) -> Result<()> {
        self.log.checkpoint_active()?;
        // An entry without chunks: it brings the new file's zeros to the device.
        self.log.begin_entry()?.commit()?;
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        None
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        let OkayWal { log, dir, file_bytes } = *self;
        drop(log);
        let reader = Reader::default();
        let found = Arc::clone(&reader.found);
        drop(open(&dir, file_bytes, reader)?);
        Ok(Some(found.chunks()))
    }
}

/// Counts the chunks that an open finds and that are like `record`; gives up what is checkpointed.
#[derive(Debug, Default)]
struct Reader {
    found: Arc<Found>,
    /// What each chunk is compared with; nothing, if it is empty.
    record: Vec<u8>,
    chunk: Vec<u8>,
}

/// What an open has given out.
#[derive(Debug, Default)]
struct Found {
    chunks: AtomicU64,
    bytes: AtomicU64,
}

impl Found {
    fn chunks(&self) -> u64 {
        // Relaxed: the open has counted on this thread.
        self.chunks.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        // Relaxed: the open has counted on this thread.
        self.bytes.load(Ordering::Relaxed)
    }
}

impl LogManager for Reader {
    fn recover(&mut self, entry: &mut Entry<'_>) -> std::io::Result<()> {
        let (mut chunks, mut bytes) = (0, 0);
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
            chunks += u64::from(self.record.is_empty() || self.record == self.chunk);
            bytes += self.chunk.len() as u64;
        }
        // Relaxed: figures, they order nothing.
        self.found.chunks.fetch_add(chunks, Ordering::Relaxed);
        self.found.bytes.fetch_add(bytes, Ordering::Relaxed);
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

/// Chunks of an entry: each entry costs a sync.
const ENTRY_CHUNKS: u64 = 1000;
/// What a file holds beside the chunks' bytes.
const FRAMING_BYTES: u64 = 16;
/// A chunk's bytes are followed by their checksum and, behind the entry's last one, by its end.
const BEHIND_CHUNK_BYTES: u64 = 4 + 1;
const BEFORE_CHUNK_BYTES: u64 = 5;

/// A log that lies there to be read or opened.
#[derive(Debug)]
struct FilledOkayWal {
    log: WriteAheadLog,
    dir: PathBuf,
    file_bytes: u32,
    record: Vec<u8>,
    places: Vec<LogPosition>,
    /// What this log's own open has given out.
    found: Option<Arc<Found>>,
}

fn fill(_workload: Workload, plan: &Plan) -> Result<Box<dyn Filled>> {
    let chunk_bytes = plan.record_bytes as u64 + FRAMING_BYTES;
    let file_bytes = LEAST_FILE_BYTES + plan.records * chunk_bytes;
    let file_bytes = u32::try_from(file_bytes).context("okaywal's file would be too large")?;
    let dir = plan.dir.join("log");
    let log = open(&dir, file_bytes, Reader::default())?;
    let record = plan.record();
    let mut places = Vec::new();
    let mut left = plan.records;
    while left > 0 {
        let mut entry = log.begin_entry()?;
        for _ in 0..left.min(ENTRY_CHUNKS) {
            places.push(entry.write_chunk(&record)?.position);
        }
        entry.commit()?;
        left -= left.min(ENTRY_CHUNKS);
    }
    Ok(Box::new(FilledOkayWal { log, dir, file_bytes, record, places, found: None }))
}

impl FilledOkayWal {
    /// Where the last entry ends in its file.
    fn end_of_entries(&self) -> Result<u64> {
        let mut position = Vec::new();
        let last = self.places.last().context("the log has no entry")?;
        last.serialize_to(&mut position)?;
        // The file's number, then the offset.
        let offset = position.last_chunk().context("a position has an offset")?;
        let chunk_bytes = BEFORE_CHUNK_BYTES + self.record.len() as u64 + BEHIND_CHUNK_BYTES;
        Ok(u64::from_le_bytes(*offset) + chunk_bytes)
    }
}

impl Filled for FilledOkayWal {
    /// What the open has given out: the crate has no other scan.
    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        match &self.found {
            Some(found) => tally.count(found.chunks(), found.bytes()),
            // `get` is checked by reading each record.
            None => (0..self.places.len() as u64).try_for_each(|number| self.get(number, tally))?,
        }
        Ok(())
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        let place = self.places.get(number as usize).context("there is no such record")?;
        let mut chunk = self.log.read_at(*place)?;
        let mut bytes = Vec::with_capacity(chunk.chunk_length() as usize);
        chunk.read_to_end(&mut bytes)?;
        if !chunk.crc_is_valid()? {
            bail!("a chunk's checksum is wrong");
        }
        tally.take(&bytes);
        Ok(())
    }

    fn log_bytes(&self) -> Result<u64> {
        self.end_of_entries()
    }

    fn segments(&self) -> Result<u64> {
        Ok(files_of(&self.dir, |name| name.starts_with("wal-"))?.len() as u64)
    }

    fn end(self: Box<Self>, end: End) -> Result<Opening> {
        let end_of_entries = self.end_of_entries()?;
        let FilledOkayWal { log, mut dir, file_bytes, record, places, .. } = *self;
        match end {
            End::Closed => log.shutdown()?,
            End::Killed { torn_bytes } => {
                dir = image_of(&dir)?;
                let files = files_of(&dir, |name| name.starts_with("wal-"))?;
                let last = files.last().context("the log has no file")?;
                write_garbage(last, end_of_entries, torn_bytes)?;
                drop(log);
            }
        }
        Ok(Box::new(move || {
            let reader = Reader { record: record.clone(), ..Reader::default() };
            let found = Some(Arc::clone(&reader.found));
            let log = open(&dir, file_bytes, reader)?;
            Ok(Box::new(FilledOkayWal { log, dir, file_bytes, record, places, found }))
        }))
    }
}

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

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use okaywal::{Configuration, Entry, EntryId, LogManager, SegmentReader, WriteAheadLog};

use super::{Log, Profile, lacks_reading};
use crate::plan::{BURST_BYTES, Plan};
use crate::workload::Workload;

pub(super) const PROFILE: Profile = Profile {
    name: "okaywal",
    version: Some("0.3.1"),
    lacks: |workload| match workload {
        Workload::Append => Some("it has no append without a sync"),
        Workload::Sync => Some("it has no sync apart from a commit"),
        other => lacks_reading(other),
    },
    create: |workload, plan| Ok(Box::new(OkayWal::create(workload, plan)?)),
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
            Workload::Batch => BURST_BYTES + BURST_BYTES / 4,
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
        let chunks = Arc::clone(&reader.chunks);
        drop(open(&dir, file_bytes, reader)?);
        // Relaxed: the open has counted on this thread.
        Ok(Some(chunks.load(Ordering::Relaxed)))
    }
}

/// Counts the chunks that an open finds; gives up what is checkpointed.
#[derive(Debug, Default)]
struct Reader {
    chunks: Arc<AtomicU64>,
}

impl LogManager for Reader {
    fn recover(&mut self, entry: &mut Entry<'_>) -> std::io::Result<()> {
        let chunks = entry.read_all_chunks()?.map_or(0, |chunks| chunks.len());
        // Relaxed: a figure, it orders nothing.
        self.chunks.fetch_add(chunks as u64, Ordering::Relaxed);
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

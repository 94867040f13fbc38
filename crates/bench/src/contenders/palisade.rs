//! Palisade: on files, on files with its buffer on the heap, and in memory.
//!
//! `append` survives a process kill on files with the mapped buffer; `commit` survives power loss
//! on files. Options are the defaults but for what the form of a workload asks for. In workloads of
//! streams it is the measure of what streams cost: all streams are this one log.

use anyhow::{Context, Result, ensure};
use palisade::{BufferKind, Lsn, Lz4, MemStore, Options, Verify, Wal, Zstd, framed_bytes};

use crate::contender::lacks_streams_and_shards;
use crate::folder::write_garbage;
use crate::log::lsns;
use crate::workload::Workload::*;
use crate::{Compression, Contender, End, Log, Opening, Plan, Tally};

/// Palisade on files, with its defaults.
pub const PALISADE: Contender = Contender {
    name: "palisade",
    version: Some(env!("CARGO_PKG_VERSION")),
    lacks: |workload| match workload {
        StreamsAppend | StreamsOwn | StreamsCommit | StreamsBatch | StreamsScan => None,
        other => lacks_streams_and_shards(other),
    },
    open: |plan| on_files(plan, options(plan)),
    ..Contender::BASE
};

/// Palisade in memory: the algorithms without a file system.
pub(super) const MEMORY: Contender = Contender {
    name: "palisade-mem",
    lacks: |workload| match workload {
        Reopen | Rotation | Policies | Sync | Release | Opens | Suffix => Some("it has no files"),
        other => lacks_streams_and_shards(other),
    },
    lacks_form: |form| (form.torn_bytes + form.unsynced_bytes > 0).then_some("it has no files"),
    open: |plan| in_memory(MemStore::new(segment_bytes(plan)), options(plan)),
    ..PALISADE
};

/// Palisade on files, with its buffer on the heap: appends do not survive a kill.
pub const HEAP: Contender = Contender {
    name: "palisade-heap",
    lacks: lacks_streams_and_shards,
    lacks_form: |form| (form.unsynced_bytes > 0).then_some("its appends do not survive a kill"),
    open: |plan| on_files(plan, options(plan).buffer(BufferKind::Heap)),
    ..PALISADE
};

const SEGMENT_BYTES: u64 = 64 << 20;
const LEAST_SEGMENT_BYTES: u64 = 64 << 10;
/// Sizes of segments are multiples of it; a segment's header takes as much (docs/format.md).
const BLOCK_BYTES: u64 = 4096;

struct PalisadeLog {
    wal: Wal,
    /// What opens a log in memory again.
    memory: Option<(MemStore, Options)>,
    /// Where each record is, if they are to be read one by one.
    lsns: Vec<Lsn>,
}

fn on_files(plan: &Plan, options: Options) -> Result<Box<dyn Log>> {
    let wal = options.open(plan.folder())?;
    Ok(Box::new(PalisadeLog { wal, memory: None, lsns: Vec::new() }))
}

fn in_memory(store: MemStore, options: Options) -> Result<Box<dyn Log>> {
    let wal = Wal::with_store(store.clone(), options.clone())?;
    Ok(Box::new(PalisadeLog { wal, memory: Some((store, options)), lsns: Vec::new() }))
}

fn options(plan: &Plan) -> Options {
    let options = Options::new()
        .segment_bytes(segment_bytes(plan))
        .sync_policy(plan.form.policy)
        .zero_fill(plan.form.zero_fill)
        .verify(if plan.form.full_check { Verify::Full } else { Verify::default() });
    match plan.form.compression {
        Compression::None => options,
        Compression::Lz4 => options.codec(Lz4::new()),
        Compression::Zstd => options.codec(Zstd::new()),
    }
}

/// Returns the bytes of a segment: what the workload or its form asks for, or the default.
pub(super) fn segment_bytes(plan: &Plan) -> u64 {
    match plan.segment_bytes(framed_bytes(plan.record_bytes)) {
        Some(bytes) => bytes.next_multiple_of(BLOCK_BYTES).max(LEAST_SEGMENT_BYTES),
        None => SEGMENT_BYTES,
    }
}

impl Log for PalisadeLog {
    fn wal(&self) -> Result<&Wal> {
        Ok(&self.wal)
    }

    fn append(&self, _thread: usize, record: &[u8]) -> Result<()> {
        let _ticket = self.wal.append(record)?;
        Ok(())
    }

    fn commit(&self, _thread: usize, record: &[u8]) -> Result<()> {
        self.wal.commit(record)?;
        Ok(())
    }

    fn atomic(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        self.wal.append_batch(&vec![record; count as usize])?.wait()?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.wal.sync()?)
    }

    fn trim(&mut self) -> Result<()> {
        Ok(self.wal.truncate_before(self.wal.reserved_lsn())?)
    }

    fn syncs(&self) -> Option<u64> {
        self.memory.is_none().then(|| self.wal.stats().syncs)
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        let mut records = self.wal.records()?;
        while let Some(record) = records.next()? {
            tally.take(record.data());
        }
        Ok(())
    }

    fn index(&mut self) -> Result<()> {
        self.lsns = lsns(&self.wal)?;
        Ok(())
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        let lsn = self.lsns.get(number as usize).context("there is no such record")?;
        tally.take(self.wal.get(*lsn)?.data());
        Ok(())
    }

    fn end(self: Box<Self>, plan: &Plan, end: End) -> Result<Option<Opening>> {
        let PalisadeLog { wal, memory, .. } = *self;
        let end_lsn = wal.reserved_lsn();
        match end {
            End::Closed => wal.close()?,
            // A copy of the folder has no log buffer, so a kill is shown by a drop: it leaves the
            // log unclean, the appended records in its segments, and the buffer's marks.
            End::Dropped | End::Killed => drop(wal),
        }
        if end == End::Killed && plan.form.torn_bytes > 0 {
            tear(plan, end_lsn)?;
        }
        Ok(memory.map(|(store, options)| -> Opening { Box::new(|| in_memory(store, options)) }))
    }
}

/// Writes the garbage of the plan's form behind the last record.
fn tear(plan: &Plan, end: Lsn) -> Result<()> {
    let (segment_bytes, bytes) = (segment_bytes(plan), plan.form.torn_bytes);
    let in_segment = end.as_u64() % segment_bytes;
    let fits = in_segment + bytes <= segment_bytes;
    ensure!(fits, "{bytes} bytes of garbage do not fit behind the log: give fewer --records");
    let name = format!("segment-{:020}", end.segment(segment_bytes));
    write_garbage(&plan.folder().join(name), BLOCK_BYTES + in_segment, bytes)
}

//! Palisade: on files, on files with its buffer on the heap, and in memory.
//!
//! `append` survives a process kill on files with the mapped buffer; `commit` survives power loss
//! on files. Options are the defaults but for what the form of a workload asks for. In workloads of
//! streams it is the measure of what streams cost: all streams are this one log.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use palisade::{BufferKind, Lsn, Lz4, MemStore, Options, Verify, Wal, Zstd, framed_bytes};

use crate::contender::{Contender, NO_SHARDS, NO_STREAMS};
use crate::form::{Compression, Form};
use crate::image::write_garbage;
use crate::log::{End, Log, Opening};
use crate::plan::Plan;
use crate::tally::Tally;
use crate::workload::Workload;

/// Palisade on files, with its defaults.
pub const PALISADE: Contender = Contender {
    name: "palisade",
    version: Some(env!("CARGO_PKG_VERSION")),
    lacks: |workload| match workload {
        Workload::StreamsOpen | Workload::StreamsTruncate | Workload::StreamsSlow => {
            Some(NO_STREAMS)
        }
        workload if workload.has_shards() => Some(NO_SHARDS),
        _ => None,
    },
    create: |workload, plan| Ok(Box::new(PalisadeLog::create(Medium::Files, workload, plan)?)),
    ..Contender::BASE
};

/// Palisade in memory: the algorithms without a file system.
pub(super) const MEMORY: Contender = Contender {
    name: "palisade-mem",
    lacks: |workload| match workload {
        Workload::Reopen
        | Workload::Rotation
        | Workload::Policies
        | Workload::Sync
        | Workload::Release
        | Workload::Opens
        | Workload::Suffix => Some("it has no files"),
        workload if workload.has_streams() => Some(NO_STREAMS),
        workload if workload.has_shards() => Some(NO_SHARDS),
        _ => None,
    },
    lacks_form: |form| match form {
        Form::Torn(_) | Form::Unsynced(_) => Some("it has no files"),
        _ => None,
    },
    create: |workload, plan| Ok(Box::new(PalisadeLog::create(Medium::Memory, workload, plan)?)),
    ..PALISADE
};

/// Palisade on files, with its buffer on the heap: appends do not survive a kill.
pub const HEAP: Contender = Contender {
    name: "palisade-heap",
    lacks: |workload| match workload {
        workload if workload.has_streams() => Some(NO_STREAMS),
        workload if workload.has_shards() => Some(NO_SHARDS),
        _ => None,
    },
    lacks_form: |form| match form {
        Form::Unsynced(_) => Some("its appends do not survive a kill"),
        _ => None,
    },
    create: |workload, plan| Ok(Box::new(PalisadeLog::create(Medium::Heap, workload, plan)?)),
    ..PALISADE
};

const SEGMENT_BYTES: u64 = 64 << 20;
const LEAST_SEGMENT_BYTES: u64 = 64 << 10;
/// Sizes of segments are multiples of it; a segment's header takes as much (docs/format.md).
const BLOCK_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug)]
enum Medium {
    Files,
    Heap,
    Memory,
}

#[derive(Debug)]
struct PalisadeLog {
    wal: Wal,
    place: Place,
    segment_bytes: u64,
    /// Where each record is, if they are to be read one by one.
    lsns: Vec<Lsn>,
}

#[derive(Debug)]
enum Place {
    Folder(PathBuf, Options),
    Memory(MemStore, Options),
}

impl PalisadeLog {
    /// Makes an empty log in a subfolder of the plan's folder, or in memory.
    fn create(medium: Medium, workload: Workload, plan: &Plan) -> Result<PalisadeLog> {
        let segment_bytes = segment_bytes(workload, plan);
        let options = Options::new().segment_bytes(segment_bytes);
        let options = match plan.form {
            Form::Policy(policy) => options.sync_policy(policy),
            Form::RawSegment(_) => options.zero_fill(false),
            Form::FullCheck => options.verify(Verify::Full),
            Form::Coded(Compression::Lz4, _) => options.codec(Lz4::new()),
            Form::Coded(Compression::Zstd, _) => options.codec(Zstd::new()),
            _ => options,
        };
        let folder = plan.dir.join("log");
        let place = match medium {
            Medium::Files => Place::Folder(folder, options),
            Medium::Heap => Place::Folder(folder, options.buffer(BufferKind::Heap)),
            Medium::Memory => Place::Memory(MemStore::new(segment_bytes), options),
        };
        PalisadeLog::open(place, segment_bytes)
    }

    fn open(place: Place, segment_bytes: u64) -> Result<PalisadeLog> {
        let wal = match &place {
            Place::Folder(path, options) => options.open(path)?,
            Place::Memory(store, options) => Wal::with_store(store.clone(), options.clone())?,
        };
        Ok(PalisadeLog { wal, place, segment_bytes, lsns: Vec::new() })
    }
}

/// Returns the bytes of a segment: what the workload or its form asks for, or the default.
pub(super) fn segment_bytes(workload: Workload, plan: &Plan) -> u64 {
    if let Form::Segment(bytes) | Form::RawSegment(bytes) = plan.form {
        return bytes;
    }
    match plan.segment_bytes(workload, framed_bytes(plan.record_bytes)) {
        Some(bytes) => bytes.next_multiple_of(BLOCK_BYTES).max(LEAST_SEGMENT_BYTES),
        None => SEGMENT_BYTES,
    }
}

impl Log for PalisadeLog {
    fn wal(&self) -> Option<&Wal> {
        Some(&self.wal)
    }

    fn append(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        for _ in 0..count {
            let _ticket = self.wal.append(record)?;
        }
        Ok(())
    }

    fn commit(&self, _thread: usize, record: &[u8]) -> Result<()> {
        self.wal.commit(record)?;
        Ok(())
    }

    fn batch(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        let Some(before_the_last) = count.checked_sub(1) else { return Ok(()) };
        self.append(thread, record, before_the_last)?;
        self.commit(thread, record)
    }

    fn atomic(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        self.wal.append_batch(&vec![record; count as usize])?.wait()?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.wal.sync()?)
    }

    fn trim(&self) -> Result<()> {
        Ok(self.wal.truncate_before(self.wal.reserved_lsn())?)
    }

    fn syncs(&self) -> Option<u64> {
        match self.place {
            Place::Folder(..) => Some(self.wal.stats().syncs),
            Place::Memory(..) => None,
        }
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

    fn size(&self) -> Option<(u64, u64)> {
        let bytes = self.wal.reserved_lsn().bytes_since(self.wal.head_lsn());
        Some((bytes, self.wal.recovery_report().segments))
    }

    fn end(self: Box<Self>, end: End) -> Result<Option<Opening>> {
        let PalisadeLog { wal, place, segment_bytes, .. } = *self;
        let end_lsn = wal.reserved_lsn();
        match end {
            End::Closed => wal.close()?,
            // A copy of the folder has no log buffer, so a kill is shown by a drop: it leaves the
            // log unclean, the appended records in its segments, and the buffer's marks.
            End::Dropped | End::Killed { .. } => drop(wal),
        }
        if let (Place::Folder(folder, _), End::Killed { torn_bytes: bytes @ 1.. }) = (&place, end) {
            tear(folder, end_lsn, segment_bytes, bytes)?;
        }
        Ok(Some(Box::new(move || Ok(Box::new(PalisadeLog::open(place, segment_bytes)?)))))
    }
}

/// Returns the LSN of each record of the log.
pub(crate) fn lsns(wal: &Wal) -> Result<Vec<Lsn>> {
    let mut lsns = Vec::new();
    let mut records = wal.records()?;
    while let Some(record) = records.next()? {
        lsns.push(record.lsn());
    }
    Ok(lsns)
}

fn tear(folder: &Path, end: Lsn, segment_bytes: u64, bytes: u64) -> Result<()> {
    let in_segment = end.as_u64() % segment_bytes;
    let fits = in_segment + bytes <= segment_bytes;
    ensure!(fits, "{bytes} bytes of garbage do not fit behind the log: give fewer --records");
    let name = format!("segment-{:020}", end.segment(segment_bytes));
    write_garbage(&folder.join(name), BLOCK_BYTES + in_segment, bytes)
}

//! Crate raft-engine.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `Engine::write(batch, false)` | kept: one positioned write to the file | nothing |
//! | `Engine::write(batch, true)` | kept | kept, once it has returned |
//!
//! The engine keeps many Raft groups in one log, and each group's entries have indexes without
//! gaps. So each thread writes to a group of its own, as a store does: a group shared by threads
//! would need a lock around index and write, and with it no two commits could share a sync. Order
//! between threads is therefore not kept. `batch` is one log batch of many entries, written and
//! synced by one call, and atomic. `Engine::sync` is not used: it writes an empty batch, and a
//! write of an empty batch returns before it syncs.
//!
//! Concurrent writes share a `fdatasync`. Files are filled with zeros ahead of their use and
//! recycled; compression is off, because nobody else compresses. Batches have a CRC-32. The entry
//! is the one protobuf message with a number and bytes that needs no compiler.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use protobuf::descriptor::UninterpretedOption;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

use super::{Log, Profile, lacks_reading};
use crate::plan::Plan;
use crate::workload::Workload;

pub(super) const PROFILE: Profile = Profile {
    name: "raft-engine",
    version: Some("0.4.2"),
    lacks: |workload| match workload {
        Workload::Sync => Some("its sync does nothing"),
        other => lacks_reading(other),
    },
    create: |_, plan| Ok(Box::new(RaftEngine::create(plan)?)),
};

const FILE_BYTES: u64 = 64 << 20;
/// Files that are filled ahead: more than a burst takes.
const FILLED_BYTES: u64 = 6 * FILE_BYTES;
/// Entries that are read at a time.
const PIECE_ENTRIES: u64 = 10_000;

struct Record;

impl MessageExt for Record {
    type Entry = UninterpretedOption;

    fn index(entry: &UninterpretedOption) -> u64 {
        entry.get_positive_int_value()
    }
}

struct RaftEngine {
    engine: Engine,
    groups: Vec<Mutex<Group>>,
    dir: PathBuf,
}

/// One thread's Raft group, with what it writes from.
struct Group {
    id: u64,
    next_index: u64,
    entries: Vec<UninterpretedOption>,
    batch: LogBatch,
}

impl Group {
    fn new(id: u64) -> Group {
        Group { id, next_index: 1, entries: Vec::new(), batch: LogBatch::default() }
    }

    fn write(&mut self, engine: &Engine, record: &[u8], count: u32, sync: bool) -> Result<()> {
        self.entries.resize_with(count as usize, UninterpretedOption::default);
        for entry in &mut self.entries {
            entry.set_positive_int_value(self.next_index);
            self.next_index += 1;
            let bytes = entry.mut_string_value();
            bytes.clear();
            bytes.extend_from_slice(record);
        }
        self.batch.add_entries::<Record>(self.id, &self.entries)?;
        engine.write(&mut self.batch, sync)?;
        Ok(())
    }
}

impl RaftEngine {
    fn create(plan: &Plan) -> Result<RaftEngine> {
        let dir = plan.dir.join("log");
        let groups = (1..=plan.threads as u64).map(|id| Mutex::new(Group::new(id))).collect();
        Ok(RaftEngine { engine: open(&dir)?, groups, dir })
    }

    fn group(&self, thread: usize) -> MutexGuard<'_, Group> {
        // Never contended: each thread has its own.
        self.groups[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(dir: &Path) -> Result<Engine> {
    let dir = dir.to_str().context("raft-engine takes a path in UTF-8 only")?;
    Ok(Engine::open(Config {
        dir: dir.into(),
        batch_compression_threshold: ReadableSize(0),
        target_file_size: ReadableSize(FILE_BYTES),
        purge_threshold: ReadableSize(FILLED_BYTES),
        prefill_for_recycle: true,
        prefill_limit: Some(ReadableSize(FILLED_BYTES)),
        ..Config::default()
    })?)
}

impl Log for RaftEngine {
    fn append(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        let mut group = self.group(thread);
        (0..count).try_for_each(|_| group.write(&self.engine, record, 1, false))
    }

    fn commit(&self, thread: usize, record: &[u8]) -> Result<()> {
        self.batch(thread, record, 1)
    }

    fn batch(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        self.group(thread).write(&self.engine, record, count, true)
    }

    fn sync(&self) -> Result<()> {
        bail!("raft-engine's sync does nothing")
    }

    fn trim(&self) -> Result<()> {
        for thread in 0..self.groups.len() {
            let group = self.group(thread);
            self.engine.compact_to(group.id, group.next_index);
        }
        // The one call that frees files at once; `purge_expired_files` waits for a size.
        self.engine.purge_manager().must_purge_all_stale();
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        None
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        let RaftEngine { engine, groups, dir } = *self;
        drop(engine);
        let engine = open(&dir)?;
        // The engine keeps the last block that a thread has read, by its place in the log, whatever
        // log that was: a thread that has read another round's log would read that one's block.
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                (1..=groups.len() as u64).map(|group| count(&engine, group)).sum::<Result<u64>>()
            });
            reader.join().map_err(|_| anyhow!("raft-engine panicked while it read"))?.map(Some)
        })
    }
}

fn count(engine: &Engine, group: u64) -> Result<u64> {
    let Some((first, last)) = engine.first_index(group).zip(engine.last_index(group)) else {
        return Ok(0);
    };
    let mut entries = Vec::new();
    let mut begin = first;
    while begin <= last {
        let end = (begin + PIECE_ENTRIES).min(last + 1);
        entries.clear();
        engine.fetch_entries_to::<Record>(group, begin, end, None, &mut entries)?;
        begin = end;
    }
    Ok(last + 1 - first)
}

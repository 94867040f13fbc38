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
//!
//! A scan is `Engine::fetch_entries_to` in pieces of 10 000 entries, a single record
//! `Engine::get_entry`: both verify the batch's checksum and allocate each entry. Records that are
//! read or opened were written one by one to one group, as `append` does, so each is a batch of its
//! own. An open reads the batches' indexes, not the entries; there is no clean end that it could
//! tell. Files of such logs are not filled ahead.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use protobuf::descriptor::UninterpretedOption;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

use super::filled::{End, Filled, Opening, Tally, files_of, image_of, write_garbage};
use super::{Log, Profile, lacks_full_check, lacks_options};
use crate::plan::Plan;
use crate::workload::Workload;

pub(super) const PROFILE: Profile = Profile {
    name: "raft-engine",
    version: Some("0.4.2"),
    lacks: |workload| match workload {
        Workload::Sync => Some("its sync does nothing"),
        other => lacks_options(other),
    },
    lacks_form: lacks_full_check,
    create: |_, plan| Ok(Box::new(RaftEngine::create(plan)?)),
    fill,
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
    Ok(Engine::open(Config {
        target_file_size: ReadableSize(FILE_BYTES),
        purge_threshold: ReadableSize(FILLED_BYTES),
        prefill_for_recycle: true,
        prefill_limit: Some(ReadableSize(FILLED_BYTES)),
        ..config(dir)?
    })?)
}

fn config(dir: &Path) -> Result<Config> {
    let dir = dir.to_str().context("raft-engine takes a path in UTF-8 only")?;
    let batch_compression_threshold = ReadableSize(0);
    Ok(Config { dir: dir.into(), batch_compression_threshold, ..Config::default() })
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

    fn atomic(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        self.batch(thread, record, count)
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
                let mut tally = Tally::new();
                let mut groups = 1..=groups.len() as u64;
                groups.try_for_each(|group| scan(&engine, group, &mut tally))?;
                anyhow::Ok(tally.records())
            });
            reader.join().map_err(|_| anyhow!("raft-engine panicked while it read"))?.map(Some)
        })
    }
}

fn scan(engine: &Engine, group: u64, tally: &mut Tally<'_>) -> Result<()> {
    let Some((first, last)) = engine.first_index(group).zip(engine.last_index(group)) else {
        return Ok(());
    };
    let mut entries = Vec::new();
    let mut begin = first;
    while begin <= last {
        let end = (begin + PIECE_ENTRIES).min(last + 1);
        entries.clear();
        engine.fetch_entries_to::<Record>(group, begin, end, None, &mut entries)?;
        entries.iter().for_each(|entry| tally.take(entry.get_string_value()));
        begin = end;
    }
    Ok(())
}

/// What a batch of one entry takes beside the record's bytes.
const FRAMING_BYTES: u64 = 62;
/// The one group of logs that lie there to be read or opened.
const GROUP: u64 = 1;

/// A log that lies there to be read or opened.
struct FilledRaftEngine {
    engine: Engine,
    config: Config,
}

fn fill(workload: Workload, plan: &Plan) -> Result<Box<dyn Filled>> {
    let file_bytes = plan.segment_bytes(workload, plan.record_bytes as u64 + FRAMING_BYTES);
    let target_file_size = ReadableSize(file_bytes.unwrap_or(FILE_BYTES));
    let config = Config { target_file_size, ..config(&plan.dir.join("log"))? };
    let engine = Engine::open(config.clone())?;
    let record = plan.record();
    let mut group = Group::new(GROUP);
    let synced = plan.records - plan.unsynced_records();
    for number in 1..=plan.records {
        group.write(&engine, &record, 1, number == synced)?;
    }
    Ok(Box::new(FilledRaftEngine { engine, config }))
}

fn is_segment(name: &str) -> bool {
    name.ends_with(".raftlog")
}

impl Filled for FilledRaftEngine {
    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        scan(&self.engine, GROUP, tally)
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        // The first entry has index 1.
        let entry = self.engine.get_entry::<Record>(GROUP, number + 1)?;
        tally.take(entry.context("there is no such record")?.get_string_value());
        Ok(())
    }

    fn log_bytes(&self) -> Result<u64> {
        Ok(self.engine.get_used_size() as u64)
    }

    fn segments(&self) -> Result<u64> {
        Ok(files_of(self.config.dir.as_ref(), is_segment)?.len() as u64)
    }

    fn end(self: Box<Self>, end: End) -> Result<Opening> {
        let FilledRaftEngine { engine, config } = *self;
        let mut dir = PathBuf::from(&config.dir);
        if let End::Killed { torn_bytes } = end {
            dir = image_of(&dir)?;
            let files = files_of(&dir, is_segment)?;
            let last = files.last().context("the log has no file")?;
            // The file was made longer than its batches, and each of them ends with a checksum.
            let bytes = fs::read(last)?;
            let batches_end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
            write_garbage(last, batches_end as u64, torn_bytes)?;
        }
        drop(engine);
        let dir = dir.to_str().context("raft-engine takes a path in UTF-8 only")?.into();
        let config = Config { dir, ..config };
        Ok(Box::new(move || {
            let engine = Engine::open(config.clone())?;
            Ok(Box::new(FilledRaftEngine { engine, config }))
        }))
    }
}

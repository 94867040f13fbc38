//! Crate raft-engine.
//!
//! | call | after a kill | after power loss |
//! |---|---|---|
//! | `Engine::write(batch, false)` | kept: one positioned write to the file | nothing |
//! | `Engine::write(batch, true)` | kept | kept, once it has returned |
//!
//! The engine keeps many Raft groups in one log, and each group's entries have indexes without
//! gaps. So each thread writes to a group of its own, as a store does: a group shared by threads
//! needs a lock around index and write, and with it no two commits can share a sync. Order between
//! threads is therefore not kept. In workloads of streams a stream is a group, and a truncation is
//! `compact_to`. `batch` is one log batch of many entries, written and
//! synced by one call, and atomic. `Engine::sync` is not used: it writes an empty batch, and a
//! write of an empty batch returns before it syncs.
//!
//! Concurrent writes share a `fdatasync`. Files are filled with zeros ahead of their use and
//! recycled. Compression (LZ4) is off but for a form of `codec`, because most other contenders have
//! none. Batches have a CRC-32. The entry is a protobuf message that the crate has already
//! generated. `codec` counts the up to 2 MiB that the engine allocates ahead in a file.
//!
//! A scan is `Engine::fetch_entries_to` in pieces of 10 000 entries, a single record
//! `Engine::get_entry`: both verify the batch's checksum and allocate each entry. Records that are
//! read or opened were written one by one to one group, as `append` does, so each is a batch of its
//! own. An open reads the batches' indexes, not the entries; there is no clean end that it could
//! detect. Files of such logs are not filled ahead.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard};

use anyhow::{Context, Result};
use protobuf::descriptor::UninterpretedOption;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

use super::lacks_full_check;
use crate::contender::lacks_options;
use crate::{Compression, Contender, Log, Plan, Tally, Workload, lock};

pub(super) const RAFT_ENGINE: Contender = Contender {
    name: "raft-engine",
    version: Some("0.4.2"),
    lacks: |workload| match workload {
        Workload::Sync => Some("its sync does nothing"),
        Workload::Codec => None,
        Workload::StreamsSlow => Some("it does not report what it moves"),
        workload if workload.has_streams() => None,
        other => lacks_options(other),
    },
    lacks_form: |form| match form.compression {
        Compression::Zstd => Some("it compresses with LZ4 alone"),
        _ => lacks_full_check(form),
    },
    open: |plan| Ok(Box::new(RaftEngine::open(plan)?)),
    is_segment: Some(|name| name.ends_with(".raftlog")),
    ..Contender::BASE
};

const FILE_BYTES: u64 = 64 << 20;
/// Files that are filled ahead: more than a burst takes.
const FILLED_BYTES: u64 = 6 * FILE_BYTES;
/// Entries that are read at a time.
const PIECE_ENTRIES: u64 = 10_000;
/// What a batch of one entry takes beside the record's bytes.
const FRAMING_BYTES: u64 = 62;
/// The first group; without streams, logs that are read or opened have no other.
const FIRST_GROUP: u64 = 1;

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
}

struct Group {
    id: u64,
    next_index: u64,
}

/// The memory that a thread writes from: 4 KiB and more, too much for each of a million groups.
#[derive(Default)]
struct Memory {
    entries: Vec<UninterpretedOption>,
    batch: LogBatch,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

impl Group {
    fn new(id: u64) -> Group {
        Group { id, next_index: 1 }
    }

    fn write(&mut self, engine: &Engine, record: &[u8], count: u32, sync: bool) -> Result<()> {
        MEMORY.with_borrow_mut(|Memory { entries, batch }| {
            entries.resize_with(count as usize, UninterpretedOption::default);
            for entry in &mut *entries {
                entry.set_positive_int_value(self.next_index);
                self.next_index += 1;
                let bytes = entry.mut_string_value();
                bytes.clear();
                bytes.extend_from_slice(record);
            }
            batch.add_entries::<Record>(self.id, entries)?;
            engine.write(batch, sync)?;
            Ok(())
        })
    }
}

impl RaftEngine {
    fn open(plan: &Plan) -> Result<RaftEngine> {
        let groups = (FIRST_GROUP..).take(plan.streams).map(|id| Mutex::new(Group::new(id)));
        Ok(RaftEngine { engine: Engine::open(config(plan)?)?, groups: groups.collect() })
    }

    fn group(&self, stream: usize) -> MutexGuard<'_, Group> {
        // Contended only if threads choose their streams at random.
        lock(&self.groups[stream])
    }
}

fn config(plan: &Plan) -> Result<Config> {
    let file_bytes = plan.segment_bytes(plan.record_bytes as u64 + FRAMING_BYTES);
    let folder = plan.folder();
    // From this many bytes of a batch on; 0: never.
    let is_compressed = plan.form.compression == Compression::Lz4;
    let mut config = Config {
        dir: folder.to_str().context("raft-engine takes a path in UTF-8 only")?.into(),
        target_file_size: ReadableSize(file_bytes.unwrap_or(FILE_BYTES)),
        batch_compression_threshold: ReadableSize(u64::from(is_compressed)),
        ..Config::default()
    };
    if !plan.workload.reads() {
        config.purge_threshold = ReadableSize(FILLED_BYTES);
        config.prefill_for_recycle = true;
        config.prefill_limit = Some(ReadableSize(FILLED_BYTES));
    }
    Ok(config)
}

impl Log for RaftEngine {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.group(stream).write(&self.engine, record, 1, false)
    }

    fn commit(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.batch(stream, record, 1)
    }

    fn batch(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        self.group(stream).write(&self.engine, record, count, true)
    }

    fn trim(&mut self) -> Result<()> {
        (0..self.groups.len()).try_for_each(|stream| self.truncate(stream))?;
        // The one call that frees files at once; `purge_expired_files` waits for a size.
        self.engine.purge_manager().must_purge_all_stale();
        Ok(())
    }

    fn truncate(&self, stream: usize) -> Result<()> {
        let group = self.group(stream);
        self.engine.compact_to(group.id, group.next_index);
        Ok(())
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        (0..self.groups.len()).try_for_each(|stream| self.scan_stream(stream, tally))
    }

    fn scan_stream(&self, stream: usize, tally: &mut Tally<'_>) -> Result<()> {
        let (engine, group) = (&self.engine, FIRST_GROUP + stream as u64);
        let ends = engine.first_index(group).zip(engine.last_index(group));
        let Some((first, last)) = ends else { return Ok(()) };
        let mut entries = Vec::new();
        for begin in (first..=last).step_by(PIECE_ENTRIES as usize) {
            let end = (begin + PIECE_ENTRIES).min(last + 1);
            entries.clear();
            engine.fetch_entries_to::<Record>(group, begin, end, None, &mut entries)?;
            entries.iter().for_each(|entry| tally.take(entry.get_string_value()));
        }
        Ok(())
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        // The first entry has index 1.
        let entry = self.engine.get_entry::<Record>(FIRST_GROUP, number + 1)?;
        tally.take(entry.context("there is no such record")?.get_string_value());
        Ok(())
    }
}

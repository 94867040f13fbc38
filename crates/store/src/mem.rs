//! The store in memory: as fast as copying, and real enough to recover from.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use palisade_core::store::{
    Epoch, OldBuffer, Predecessor, ReadStore, Segment, SegmentHeader, State, Store,
};
use palisade_core::{Error, ErrorKind, Lsn, Memory, Result, Uuid};
use parking_lot::RwLock;

/// Allocations of released segments that are kept to be used again.
const MAX_SPARES: usize = 4;

/// A log in memory.
///
/// Clones share their content. So a test drops a log that ran on one clone, which for the store
/// is the death of the process, and opens it again on another. Nothing keeps two logs from
/// running on the same content at one time; that is up to the caller.
///
/// What `write` was given survives the death of the process, as does the log buffer where it is
/// [kept](MemStore::kept_buffer); [`lose_power`](MemStore::lose_power) takes more away.
///
/// ```
/// use palisade_core::store::ReadStore;
/// use palisade_store::MemStore;
/// let store = MemStore::new(1 << 20);
/// assert_eq!(store.clone().state()?.uuid, store.state()?.uuid);
/// # Ok::<(), palisade_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemStore {
    content: Arc<RwLock<Content>>,
}

struct Content {
    state: State,
    segments: BTreeMap<u64, MemSegment>,
    spares: Vec<Vec<u8>>,
    epoch: Option<Epoch>,
    prepared: Lsn,
    buffer: Option<MemBuffer>,
    keeps_buffer: bool,
}

struct MemSegment {
    header: SegmentHeader,
    bytes: Vec<u8>,
    /// Disjoint, ascending ranges of `bytes` that have been synced.
    synced: Vec<Range<usize>>,
}

struct MemBuffer {
    epoch: u64,
    same_boot: bool,
    durable: Option<Lsn>,
    memory: Memory,
}

impl MemStore {
    /// An empty log with segments of `segment_bytes`.
    ///
    /// The size is checked when a log is opened on the store.
    #[must_use]
    pub fn new(segment_bytes: u64) -> MemStore {
        let halves = [random().to_le_bytes(), random().to_le_bytes()];
        let mut uuid = [0; 16];
        uuid.copy_from_slice(halves.as_flattened());
        let content = Content {
            state: State {
                uuid: Uuid(uuid),
                segment_bytes: segment_bytes.max(1),
                buffer_bytes: 0,
                epoch: 0,
                epoch_base: Lsn::ZERO,
                epoch_salt: 0,
                head: Lsn::ZERO,
                checkpoint: Lsn::ZERO,
                clean_end: Lsn::ZERO,
                clean: true,
            },
            segments: BTreeMap::new(),
            spares: Vec::new(),
            epoch: None,
            prepared: Lsn::ZERO,
            buffer: None,
            keeps_buffer: true,
        };
        MemStore { content: Arc::new(RwLock::new(content)) }
    }

    /// Whether the log buffer outlives the log that ran on it, as a file mapping does. Default
    /// true.
    #[must_use]
    pub fn kept_buffer(self, kept: bool) -> MemStore {
        self.content.write().keeps_buffer = kept;
        self
    }

    /// Does what the simplest loss of power does: every byte that no `sync` has covered is
    /// gone, and so are the log buffer's bytes and the durable mark.
    ///
    /// Bytes that were synced and then written again keep their later value. A log that still
    /// runs on the store is to be dropped before.
    pub fn lose_power(&self) {
        let mut content = self.content.write();
        content.segments.values_mut().for_each(MemSegment::lose_unsynced);
        if let Some(buffer) = &mut content.buffer {
            buffer.same_boot = false;
            buffer.durable = None;
            buffer.memory = Memory::heap(buffer.memory.len());
        }
    }
}

impl ReadStore for MemStore {
    fn state(&self) -> Result<State> {
        Ok(self.content.read().state.clone())
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        let content = self.content.read();
        let segments = content.segments.iter();
        let listed =
            segments.map(|(&number, segment)| Segment { number, header: Ok(segment.header) });
        Ok(listed.collect())
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let content = self.content.read();
        let (number, offset) = content.split(at);
        let Some(segment) = content.segments.get(&number) else {
            return Ok(0);
        };
        let Some(bytes) = segment.bytes.get(offset..) else {
            return Ok(0);
        };
        let len = bytes.len().min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn place(&self) -> String {
        "memory".into()
    }
}

impl Store for MemStore {
    fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        let mut content = self.content.write();
        let mut at = at;
        for piece in pieces {
            content.write(at, piece)?;
            at = at.plus(piece.len() as u64);
        }
        Ok(())
    }

    fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        let mut content = self.content.write();
        let segment_bytes = content.state.segment_bytes;
        let last = to.as_u64().div_ceil(segment_bytes);
        let first = from.segment(segment_bytes);
        for (_, segment) in content.segments.range_mut(first..last.max(first)) {
            let base = segment.header.base;
            let start = from.bytes_since(base).min(segment.bytes.len() as u64) as usize;
            let end = to.bytes_since(base).min(segment.bytes.len() as u64) as usize;
            segment.note_synced(start..end);
        }
        Ok(())
    }

    fn mark_durable(&self, durable: Lsn) -> Result<()> {
        if let Some(buffer) = &mut self.content.write().buffer {
            buffer.durable = Some(durable);
        }
        Ok(())
    }

    fn prepared(&self) -> Lsn {
        self.content.read().prepared
    }

    fn prepare(&self, to: Lsn) -> Result<()> {
        let mut content = self.content.write();
        while content.prepared < to {
            let Some(epoch) = content.epoch else {
                return Err(Error::new(ErrorKind::Io, "no epoch has begun"));
            };
            let base = content.prepared;
            content.make(&epoch, base, None)?;
        }
        Ok(())
    }

    fn prepare_ahead(&self, _tail: Lsn) {}

    fn save_state(&self, state: &State) -> Result<()> {
        self.content.write().state = state.clone();
        Ok(())
    }

    fn release(&self, from: Lsn, to: Lsn) -> Result<()> {
        let mut content = self.content.write();
        let segment_bytes = content.state.segment_bytes;
        let first = from.segment_start_at_or_above(segment_bytes).segment(segment_bytes);
        let last = to.segment(segment_bytes);
        let freed = content.segments.range(first..last.max(first));
        let freed: Vec<u64> = freed.map(|(&number, _)| number).collect();
        for number in freed {
            let Some(mut segment) = content.segments.remove(&number) else {
                continue;
            };
            if content.spares.len() < MAX_SPARES {
                segment.bytes.clear();
                content.spares.push(segment.bytes);
            }
        }
        Ok(())
    }

    fn begin_epoch(&self, epoch: &Epoch) -> Result<()> {
        let mut content = self.content.write();
        if epoch.base < content.prepared {
            let text = format!("segments are prepared up to LSN {}", content.prepared);
            return Err(Error::new(ErrorKind::OutOfRange, text).at_lsn(epoch.base));
        }
        content.make(epoch, epoch.base, Some(epoch.predecessor))?;
        content.epoch = Some(*epoch);
        Ok(())
    }

    fn resume_epoch(&self, epoch: &Epoch, from: Lsn) -> Result<()> {
        let mut content = self.content.write();
        let last = content.segments.last_key_value().map(|(_, segment)| segment.header.base);
        let segment_bytes = content.state.segment_bytes;
        let prepared = last.map_or(epoch.base, |base| base.plus(segment_bytes));
        let start = Lsn::new(from.as_u64() - from.as_u64() % segment_bytes);
        content.prepared = prepared.max(start);
        content.epoch = Some(*epoch);
        Ok(())
    }

    fn old_buffer(&self) -> Result<OldBuffer> {
        let content = self.content.read();
        let Some(buffer) = &content.buffer else {
            return Ok(OldBuffer::Missing);
        };
        Ok(OldBuffer::Found {
            epoch: buffer.epoch,
            same_boot: buffer.same_boot,
            other_boot: !buffer.same_boot,
            durable: buffer.durable,
            memory: buffer.memory.clone(),
        })
    }

    fn renew_buffer(&self, epoch: u64, buffer_bytes: usize, durable: Lsn) -> Result<Memory> {
        let mut content = self.content.write();
        let keeps = content.keeps_buffer;
        let memory = if keeps { Memory::kept(buffer_bytes) } else { Memory::heap(buffer_bytes) };
        let left = if keeps { memory.clone() } else { Memory::heap(0) };
        let durable = Some(durable);
        content.buffer = Some(MemBuffer { epoch, same_boot: true, durable, memory: left });
        Ok(memory)
    }

    fn pass_buffer_on(&self, epoch: u64) -> Result<()> {
        if let Some(buffer) = &mut self.content.write().buffer {
            buffer.epoch = epoch;
        }
        Ok(())
    }

    fn random(&self) -> u64 {
        random()
    }

    fn close(&self) {}
}

impl Content {
    fn split(&self, at: Lsn) -> (u64, usize) {
        let bytes = self.state.segment_bytes;
        (at.as_u64() / bytes, (at.as_u64() % bytes) as usize)
    }

    fn write(&mut self, at: Lsn, piece: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (at, piece);
        while !rest.is_empty() {
            let (number, offset) = self.split(at);
            let room = self.state.segment_bytes as usize - offset;
            let (here, behind) = rest.split_at(room.min(rest.len()));
            let Some(segment) = self.segments.get_mut(&number) else {
                let text = "the segment to be written is missing";
                return Err(Error::new(ErrorKind::Io, text).at_segment(number).at_lsn(at));
            };
            segment.write(offset, here);
            at = at.plus(here.len() as u64);
            rest = behind;
        }
        Ok(())
    }

    fn make(&mut self, epoch: &Epoch, base: Lsn, predecessor: Option<Predecessor>) -> Result<()> {
        let (number, _) = self.split(base);
        if self.segments.contains_key(&number) {
            let text = "a segment that is to be made is there already";
            return Err(Error::new(ErrorKind::Io, text).at_segment(number));
        }
        let (epoch, salt) = (epoch.number, epoch.salt);
        let header = SegmentHeader { number, base, epoch, salt, predecessor };
        let bytes = self.spares.pop().unwrap_or_default();
        self.segments.insert(number, MemSegment { header, bytes, synced: Vec::new() });
        self.prepared = base.plus(self.state.segment_bytes);
        Ok(())
    }
}

impl MemSegment {
    /// Overwrites what is there and appends the rest, so that sequential writes zero nothing.
    fn write(&mut self, offset: usize, from: &[u8]) {
        if self.bytes.len() < offset {
            self.bytes.resize(offset, 0);
        }
        let there = from.len().min(self.bytes.len() - offset);
        let (over, behind) = from.split_at(there);
        self.bytes[offset..offset + there].copy_from_slice(over);
        self.bytes.extend_from_slice(behind);
    }

    fn note_synced(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let mut joined = range;
        self.synced.retain(|other| {
            let touches = other.start <= joined.end && joined.start <= other.end;
            if touches {
                joined = joined.start.min(other.start)..joined.end.max(other.end);
            }
            !touches
        });
        let at = self.synced.partition_point(|other| other.start < joined.start);
        self.synced.insert(at, joined);
    }

    fn lose_unsynced(&mut self) {
        let mut kept = 0;
        for range in &self.synced {
            self.bytes[kept..range.start].fill(0);
            kept = range.end;
        }
        self.bytes.truncate(kept);
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content")
            .field("state", &self.state)
            .field("segments", &self.segments.len())
            .field("prepared", &self.prepared)
            .finish_non_exhaustive()
    }
}

/// 64 random bits: std's hash keys come from the operating system.
fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one("palisade"))
}

#[cfg(test)]
#[path = "mem_tests.rs"]
mod tests;

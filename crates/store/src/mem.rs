//! The store in memory: as fast as copying, and real enough to recover from.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use palisade_core::store::{
    Epoch, OldBuffer, Predecessor, ReadStore, Segment, SegmentHeader, State, Store, TailSource,
};
use palisade_core::{Error, ErrorKind, Lsn, Memory, Result, Uuid};
use parking_lot::{RwLock, RwLockWriteGuard};

/// Allocations of released segments that are kept to be used again.
const MAX_SPARES: usize = 4;

/// A log in memory.
///
/// Clones share their content. So a test drops a log that ran on one clone, which for the store
/// is the death of the process, and opens it again on another. A second log beside a running one
/// is refused as [`Locked`](ErrorKind::Locked).
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
#[derive(Debug)]
pub struct MemStore {
    content: Arc<RwLock<Content>>,
    // This clone's number, once a log has run on it; else 0. Changed under the content's lock.
    instance: AtomicU64,
}

impl Clone for MemStore {
    fn clone(&self) -> MemStore {
        MemStore { content: Arc::clone(&self.content), instance: AtomicU64::new(0) }
    }
}

struct Content {
    state: State,
    segments: BTreeMap<u64, MemSegment>,
    spares: Vec<Vec<u8>>,
    epoch: Option<Epoch>,
    prepared: Lsn,
    buffer: Option<MemBuffer>,
    keeps_buffer: bool,
    /// The instance that runs the log, by its number.
    owner: Option<u64>,
    instances: u64,
    /// End of what `write` was given.
    written: Lsn,
}

struct MemSegment {
    header: SegmentHeader,
    bytes: Vec<u8>,
    /// Disjoint, ascending ranges of `bytes` that have been synced.
    synced: Vec<Range<usize>>,
}

struct MemBuffer {
    epoch: u64,
    durable: Lsn,
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
                epochs: Vec::new(),
            },
            segments: BTreeMap::new(),
            spares: Vec::new(),
            epoch: None,
            prepared: Lsn::ZERO,
            buffer: None,
            keeps_buffer: true,
            owner: None,
            instances: 0,
            written: Lsn::ZERO,
        };
        MemStore { content: Arc::new(RwLock::new(content)), instance: AtomicU64::new(0) }
    }

    /// Whether the log buffer outlives the log that ran on it, as a file mapping does. Default
    /// true.
    #[must_use]
    pub fn kept_buffer(self, kept: bool) -> MemStore {
        self.content.write().keeps_buffer = kept;
        self
    }

    /// Does what the death of the process does to the log that runs on the store: another one may
    /// run on it. What the dead one still calls is not kept away from the content.
    pub fn kill(&self) {
        self.content.write().owner = None;
    }

    /// Does what the simplest loss of power does: every byte that no `sync` has covered is
    /// gone, and so are the log buffer's bytes and the durable mark.
    ///
    /// Bytes that were synced and then written again keep their later value. A log that still
    /// runs on the store is to be dropped before.
    pub fn lose_power(&self) {
        let mut content = self.content.write();
        content.segments.values_mut().for_each(MemSegment::lose_unsynced);
        content.buffer = None;
        content.owner = None;
    }
}

impl MemStore {
    /// The content, for the one log that may change it.
    fn locked(&self) -> Result<RwLockWriteGuard<'_, Content>> {
        let mut content = self.content.write();
        // Relaxed: changed under the content's lock.
        let own = self.instance.load(Ordering::Relaxed);
        if content.owner.is_some_and(|owner| owner != own) {
            let text = "another log runs on this store";
            return Err(Error::new(ErrorKind::Locked, text).at_path(self.place()));
        }
        if content.owner.is_none() {
            content.instances += 1;
            content.owner = Some(content.instances);
            // Relaxed: likewise.
            self.instance.store(content.instances, Ordering::Relaxed);
        }
        Ok(content)
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
        content.written = at;
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
            buffer.durable = durable;
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
        let mut content = self.locked()?;
        if epoch.base < content.prepared {
            let text = format!("segments are prepared up to LSN {}", content.prepared);
            return Err(Error::new(ErrorKind::OutOfRange, text).at_lsn(epoch.base));
        }
        content.make(epoch, epoch.base, Some(epoch.predecessor))?;
        content.epoch = Some(*epoch);
        Ok(())
    }

    fn resume_epoch(&self, epoch: &Epoch, from: Lsn) -> Result<()> {
        let mut content = self.locked()?;
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
            durable: buffer.durable,
            written: content.written.max(buffer.durable),
            memory: buffer.memory.clone(),
        })
    }

    fn renew_buffer(&self, epoch: u64, buffer_bytes: usize, durable: Lsn) -> Result<Memory> {
        let mut content = self.locked()?;
        let keeps = content.keeps_buffer;
        let memory = if keeps { Memory::kept(buffer_bytes) } else { Memory::heap(buffer_bytes) };
        let left = if keeps { memory.clone() } else { Memory::heap(0) };
        content.buffer = Some(MemBuffer { epoch, durable, memory: left });
        content.written = durable;
        Ok(memory)
    }

    fn move_tail(
        &self,
        epoch: &Epoch,
        from: Lsn,
        to: Lsn,
        source: &mut TailSource<'_>,
    ) -> Result<()> {
        let segment_bytes = self.locked()?.state.segment_bytes;
        let (mut at, mut piece) = (from, Vec::new());
        while at < to {
            let number = at.as_u64() / segment_bytes;
            let base = Lsn::new(number * segment_bytes);
            piece.clear();
            // Without the lock: the source reads from this store.
            let end = source(at, base.plus(segment_bytes), &mut piece)?;
            let mut content = self.content.write();
            if !content.segments.contains_key(&number) {
                content.make(epoch, base, None)?;
            }
            content.write(at, &piece)?;
            drop(content);
            self.sync(at, end)?;
            at = end;
        }
        Ok(())
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

    fn close(&self) {
        let mut content = self.content.write();
        // Relaxed: changed under the content's lock.
        let own = self.instance.load(Ordering::Relaxed);
        content.owner.take_if(|owner| *owner == own);
    }
}

impl Drop for MemStore {
    fn drop(&mut self) {
        self.close();
    }
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

//! One simulated file.
//!
//! # Words
//! *Shown*: what reads give. *Stable*: the medium after the last completed sync. *Version*: a
//! sector as it was after one unsynced write. *Forgotten*: dirty when its write-back failed; it
//! reads back until the system drops it, and no later sync covers it. *Placed*: a block that was
//! written on the medium. *Stuck*: a block whose first write-back failed.
//!
//! # Failed write-back
//! The next write to a sector of a placed block makes the whole sector dirty again. No write to a
//! stuck block reaches the medium until its pages were dropped, although syncs return `Ok`, as on
//! ext4 (Rebello and others, "Can applications recover from fsync failures?", USENIX ATC 2020).
//!
//! # Mapped memory
//! A mapping lies over a file of the real system's memory. When the simulator looks, its changes
//! become unsynced writes. At a death the mapping is cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::Memory;
use crate::chance::Chance;
use crate::disk::os::OsFile;
use crate::disk::{DiskFile, read_full, write_bytes};

pub(super) const SECTOR: usize = 512;
pub(super) const BLOCK: usize = 4096;
/// Of more, the oldest are left out.
const MAX_VERSIONS: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Version {
    serial: u64,
    pub(super) from: usize,
    pub(super) bytes: [u8; SECTOR],
}

#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    /// In the order of the writes; never empty.
    pub(super) versions: Vec<Version>,
    pub(super) is_forgotten: bool,
}

impl Dirty {
    pub(super) fn from(&self) -> usize {
        self.versions.iter().map(|version| version.from).min().unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SyncPoint {
    serial: u64,
    len: usize,
    cuts: u64,
}

#[derive(Clone, Debug)]
struct Mapping {
    backing: Arc<OsFile>,
    range: Range<usize>,
    backing_len: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) shown: Vec<u8>,
    pub(super) stable: Vec<u8>,
    pub(super) dirty: BTreeMap<usize, Dirty>,
    pub(super) placed: BTreeSet<usize>,
    stuck: BTreeSet<usize>,
    pub(super) has_unreported: bool,
    cuts: u64,
    stable_cuts: u64,
    serial: u64,
    syncing: usize,
    pub(super) is_in_memory: bool,
    /// In memory: how many bytes have blocks. Touching others through a mapping raises SIGBUS when
    /// memory is full.
    allocated: usize,
    mapping: Option<Mapping>,
    pub(super) handles: usize,
    /// Each holder, and whether it shares the lock.
    pub(super) locks: Vec<(u64, bool)>,
}

impl Node {
    pub(super) fn read(&mut self, offset: usize, into: &mut [u8]) -> usize {
        self.absorb_if_met(offset..offset.saturating_add(into.len()));
        let rest = self.shown.get(offset..).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        len
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        self.absorb_if_met(offset..end);
        if self.shown.len() < end {
            self.shown.resize(end, 0);
        }
        self.shown[offset..end].copy_from_slice(bytes);
        self.note_write(offset..end);
        self.show_mapped(offset..end);
    }

    fn show_mapped(&self, range: Range<usize>) {
        let Some(mapping) = &self.mapping else { return };
        let (start, end) = (range.start, range.end.min(mapping.backing_len));
        if start < end {
            let bytes = &self.shown[start..end];
            memory_file(write_bytes(mapping.backing.as_ref(), start as u64, bytes));
        }
    }

    pub(super) fn discard(&mut self, offset: usize, len: usize) {
        let end = self.shown.len().min(offset.saturating_add(len));
        self.write(offset, &vec![0; end.saturating_sub(offset)]);
        self.allocated = self.allocated.min(offset);
    }

    pub(super) fn allocate(&mut self, len: usize) {
        self.grow(len);
        self.allocated = self.allocated.max(len);
    }

    pub(super) fn grow(&mut self, len: usize) {
        if self.shown.len() < len {
            self.shown.resize(len, 0);
        }
    }

    pub(super) fn cut(&mut self) {
        self.mapping = None;
        self.shown.clear();
        self.allocated = 0;
        self.dirty.clear();
        self.placed.clear();
        self.stuck.clear();
        self.cuts += 1;
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cuts != self.stable_cuts
    }

    pub(super) fn begin_sync(&mut self) -> SyncPoint {
        self.absorb();
        self.syncing += 1;
        SyncPoint { serial: self.serial, len: self.shown.len(), cuts: self.cuts }
    }

    /// Completes a sync, unless the file was emptied meanwhile.
    pub(super) fn end_sync(&mut self, point: SyncPoint) {
        self.syncing = self.syncing.saturating_sub(1);
        if point.cuts != self.cuts {
            return;
        }
        if self.is_cut() {
            self.stable.clear();
            self.stable_cuts = self.cuts;
        }
        self.stable.resize(self.stable.len().max(point.len), 0);
        let (stable, placed) = (&mut self.stable, &mut self.placed);
        self.dirty.retain(|&sector, dirty| {
            if dirty.is_forgotten {
                return true;
            }
            let covered = dirty.versions.partition_point(|version| version.serial <= point.serial);
            if let Some(version) = dirty.versions[..covered].last() {
                put(stable, sector * SECTOR, &version.bytes);
                placed.insert(block_of(sector));
            }
            dirty.versions.drain(..covered);
            !dirty.versions.is_empty()
        });
    }

    /// Fails the write-back: it reaches some sectors or none, and the others are forgotten. Blocks
    /// that are not placed are stuck.
    pub(super) fn fail_write_back(&mut self, chance: &mut Chance) {
        self.absorb();
        let reaches_some = chance.is(1, 2);
        let (stable, placed) = (&mut self.stable, &mut self.placed);
        let is_cut = self.cuts != self.stable_cuts;
        let mut missed = BTreeSet::new();
        self.dirty.retain(|&sector, dirty| {
            if dirty.is_forgotten {
                return true;
            }
            let at = sector * SECTOR;
            let is_reached = reaches_some && !is_cut && at < stable.len() && chance.is(1, 2);
            match dirty.versions.last() {
                Some(version) if is_reached => {
                    put(stable, at, &version.bytes);
                    placed.insert(block_of(sector));
                }
                _ => {
                    dirty.is_forgotten = true;
                    missed.insert(block_of(sector));
                }
            }
            !is_reached
        });
        self.stuck.extend(missed.difference(&self.placed));
    }

    pub(super) fn is_dirty(&mut self) -> bool {
        self.absorb();
        self.dirty.values().any(|dirty| !dirty.is_forgotten)
    }

    pub(super) fn has_forgotten(&self) -> bool {
        self.dirty.values().any(|dirty| dirty.is_forgotten)
    }

    /// Shows the medium's bytes in place of forgotten ones.
    pub(super) fn drop_forgotten(&mut self) {
        self.absorb();
        let dirty = std::mem::take(&mut self.dirty).into_iter();
        let (forgotten, dirty): (BTreeMap<_, _>, _) =
            dirty.partition(|(_, dirty)| dirty.is_forgotten);
        self.dirty = dirty;
        let stable = if self.is_cut() { &[][..] } else { &self.stable[..] };
        for at in forgotten.keys().map(|sector| sector * SECTOR) {
            let end = self.shown.len().min(at + SECTOR);
            for (index, byte) in (at..).zip(&mut self.shown[at..end]) {
                *byte = stable.get(index).copied().unwrap_or(0);
            }
            self.show_mapped(at..end);
        }
        self.stuck.clear();
    }

    pub(super) fn is_stuck(&self, sector: usize) -> bool {
        self.stuck.contains(&block_of(sector))
    }

    pub(super) fn map(&mut self, offset: usize, len: usize) -> io::Result<Memory> {
        let end = offset + len;
        if self.shown.len() < end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_safe = !self.is_in_memory || end <= self.allocated;
        assert!(is_safe, "a file with holes in memory is mapped: SIGBUS when memory is full");
        self.absorb();
        let mapping = match self.mapping.take() {
            Some(mapping) => mapping,
            None => {
                let backing = Arc::new(backing()?);
                Mapping { backing, range: offset..end, backing_len: 0 }
            }
        };
        let (from, range) = (mapping.backing_len, &mapping.range);
        let range = range.start.min(offset)..range.end.max(end);
        if let Some(rest) = self.shown.get(from..) {
            write_bytes(mapping.backing.as_ref(), from as u64, rest)?;
        }
        let memory = mapping.backing.map(offset, len)?;
        let backing_len = from.max(self.shown.len());
        self.mapping = Some(Mapping { range, backing_len, ..mapping });
        Ok(memory)
    }

    #[cfg(test)]
    pub(super) fn store_mapped(&self, at: usize, bytes: &[u8]) {
        let mapping = self.mapping.as_ref().expect("the file is mapped");
        memory_file(write_bytes(mapping.backing.as_ref(), at as u64, bytes));
    }

    /// Takes over what was stored in mapped memory.
    pub(super) fn absorb(&mut self) {
        let Some(mapping) = &self.mapping else { return };
        let range = mapping.range.clone();
        let mut bytes = vec![0; range.len()];
        memory_file(read_full(mapping.backing.as_ref(), range.start as u64, &mut bytes));
        let mut at = range.start;
        while at < range.end {
            let end = (at / SECTOR + 1) * SECTOR;
            let end = end.min(range.end);
            let stored = &bytes[at - range.start..end - range.start];
            let changed = self.shown[at..end].iter().zip(stored).position(|(old, new)| old != new);
            if let Some(first) = changed {
                self.shown[at..end].copy_from_slice(stored);
                self.note_write(at + first..end);
            }
            at = end;
        }
    }

    fn absorb_if_met(&mut self, range: Range<usize>) {
        let is_met = self.mapping.as_ref().is_some_and(|mapping| {
            range.start < mapping.range.end && mapping.range.start < range.end
        });
        if is_met {
            self.absorb();
        }
    }

    pub(super) fn end_run(&mut self) {
        self.absorb();
        self.mapping = None;
        self.handles = 0;
        self.locks.clear();
        self.syncing = 0;
    }

    pub(super) fn replace(&mut self, bytes: Vec<u8>) {
        self.dirty.clear();
        self.stable_cuts = self.cuts;
        self.stuck.clear();
        self.has_unreported = false;
        self.placed = (0..bytes.len().div_ceil(BLOCK)).collect();
        self.stable.clone_from(&bytes);
        self.shown = bytes;
        self.show_mapped(0..self.shown.len());
        self.mapping.take_if(|mapping| self.shown.len() < mapping.range.end);
    }

    /// Returns the placed blocks if the sectors `kept` reach the medium.
    pub(super) fn placed_with(&self, kept: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        if self.is_cut() {
            return (0..self.stable.len().div_ceil(BLOCK)).collect();
        }
        self.placed.iter().copied().chain(kept.map(block_of)).collect()
    }

    fn note_write(&mut self, range: Range<usize>) {
        if self.is_in_memory {
            return;
        }
        self.serial += 1;
        let is_syncing = self.syncing > 0;
        for sector in range.start / SECTOR..range.end.div_ceil(SECTOR) {
            let at = sector * SECTOR;
            let mut bytes = [0; SECTOR];
            let shown = &self.shown[at..self.shown.len().min(at + SECTOR)];
            bytes[..shown.len()].copy_from_slice(shown);
            let from = range.start.saturating_sub(at);
            let dirty = self.dirty.entry(sector).or_default();
            dirty.is_forgotten = self.stuck.contains(&block_of(sector));
            dirty.versions.push(Version { serial: self.serial, from, bytes });
            // A sync in progress has to find the version that it began with.
            if dirty.versions.len() > MAX_VERSIONS && !is_syncing {
                let oldest = dirty.versions.remove(0);
                let next = &mut dirty.versions[0];
                next.from = next.from.min(oldest.from);
            }
        }
    }
}

fn block_of(sector: usize) -> usize {
    sector * SECTOR / BLOCK
}

pub(super) fn put(image: &mut [u8], at: usize, sector: &[u8]) {
    if at < image.len() {
        let len = sector.len().min(image.len() - at);
        image[at..at + len].copy_from_slice(&sector[..len]);
    }
}

fn memory_file<T>(done: io::Result<T>) -> T {
    done.expect("a file in memory can be read and written")
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn backing() -> io::Result<OsFile> {
    crate::disk::os::memory_file(0)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn backing() -> io::Result<OsFile> {
    tempfile::tempfile().map(OsFile::new)
}

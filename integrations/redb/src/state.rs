//! What the storage has, in three layers: a read takes each page from the first layer that has it.
//!
//! 1. The change: what was written since the last sync.
//! 2. The synced pages: what was synced since the last checkpoint. The log has it, too.
//! 3. The base file.

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade::Result;

use crate::base::Base;

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;

/// Pages by their number, which is their place in the storage, in pages.
pub(crate) type Pages = BTreeMap<u64, Box<[u8; PAGE_BYTES]>>;

/// What happened between two syncs.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) pages: Pages,
    /// The length of the storage after it.
    pub(crate) len: u64,
    /// The least length of the storage meanwhile: from there on, only `pages` has anything but
    /// zeros.
    pub(crate) cut: u64,
}

/// The layers in memory.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) change: Change,
    /// A running checkpoint shares them: no sync adds pages meanwhile.
    pub(crate) synced: Arc<Pages>,
    /// The length of the storage at the last sync.
    pub(crate) synced_len: u64,
    /// From there on, the bytes of the base file have no meaning.
    pub(crate) base_len: u64,
    /// Whether the log has records since the last checkpoint. Not all need be a whole change.
    pub(crate) has_log: bool,
    /// Whether the base file has pages of the change: it is synced before the change is.
    pub(crate) has_spilled: bool,
}

impl State {
    /// Returns a storage of `len` bytes that the base file has.
    pub(crate) fn in_base(len: u64) -> State {
        State { synced_len: len, base_len: len, ..State::default() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.change.len
    }

    /// Whether anything was written since the last sync.
    pub(crate) fn has_change(&self) -> bool {
        let Change { pages, len, cut } = &self.change;
        !pages.is_empty() || *len != self.synced_len || *cut != self.synced_len
    }

    /// Returns from where on only the pages of the change have anything but zeros, or else the base
    /// file has no bytes.
    pub(crate) fn base_end(&self) -> u64 {
        self.base_len.min(self.change.cut)
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        cut_pages(&mut self.change.pages, len);
        self.change.cut = self.change.cut.min(len);
        self.change.len = len;
    }

    pub(crate) fn read(&self, base: &Base, mut at: u64, mut into: &mut [u8]) -> Result<()> {
        while !into.is_empty() {
            let (number, from) = (at / PAGE, (at % PAGE) as usize);
            let changed = self.change.pages.get(&number);
            let page = changed.or_else(|| self.synced.get(&number));
            let end = if page.is_some() { number + 1 } else { self.next_in_memory(number) } * PAGE;
            let taken = (end - at).min(into.len() as u64);
            let (chunk, rest) = into.split_at_mut(taken as usize);
            let below = |end: u64| end.saturating_sub(at).min(taken) as usize;
            match page {
                Some(page) => {
                    let kept = if changed.is_some() { chunk.len() } else { below(self.change.cut) };
                    chunk[..kept].copy_from_slice(&page[from..from + kept]);
                    chunk[kept..].fill(0);
                }
                None => {
                    let (kept, zeros) = chunk.split_at_mut(below(self.base_end()));
                    base.read(at, kept)?;
                    zeros.fill(0);
                }
            }
            (at, into) = (at + taken, rest);
        }
        Ok(())
    }

    /// Returns the first page as of the last sync.
    pub(crate) fn synced_first_page(&self, base: &Base) -> Result<Box<[u8; PAGE_BYTES]>> {
        if let Some(page) = self.synced.get(&0) {
            return Ok(page.clone());
        }
        let mut page = Box::new([0; PAGE_BYTES]);
        base.read(0, &mut page[..self.base_len.min(PAGE) as usize])?;
        Ok(page)
    }

    /// Returns the number of the next page from `number` on that a layer in memory has.
    fn next_in_memory(&self, number: u64) -> u64 {
        let layers = [&self.change.pages, &*self.synced];
        let next = layers.into_iter().filter_map(|pages| pages.range(number..).next());
        next.map(|(number, _)| *number).min().unwrap_or(u64::MAX / PAGE)
    }

    pub(crate) fn write(&mut self, base: &Base, mut at: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let (number, from) = (at / PAGE, (at % PAGE) as usize);
            let (chunk, rest) = data.split_at(data.len().min(PAGE_BYTES - from));
            if chunk.len() < PAGE_BYTES && !self.change.pages.contains_key(&number) {
                let mut page = Box::new([0; PAGE_BYTES]);
                self.read(base, number * PAGE, &mut page[..])?;
                self.change.pages.insert(number, page);
            }
            let page = self.change.pages.entry(number).or_insert_with(|| Box::new([0; PAGE_BYTES]));
            page[from..from + chunk.len()].copy_from_slice(chunk);
            (at, data) = (at + chunk.len() as u64, rest);
            self.change.len = self.change.len.max(at);
        }
        Ok(())
    }

    /// Takes the change as synced.
    pub(crate) fn apply_change(&mut self) {
        let change = std::mem::take(&mut self.change);
        self.apply(change);
        self.set_unchanged();
    }

    /// Lets the next change begin.
    pub(crate) fn set_unchanged(&mut self) {
        let len = self.synced_len;
        self.change = Change { len, cut: len, ..Change::default() };
    }

    pub(crate) fn apply(&mut self, change: Change) {
        let synced = Arc::make_mut(&mut self.synced);
        cut_pages(synced, change.cut);
        synced.extend(change.pages);
        self.base_len = self.base_len.min(change.cut);
        self.synced_len = change.len;
        self.has_log = true;
    }

    /// Removes the pages of the change that may be in the base file before the change is synced,
    /// and returns them. Page 0 stays: redb's header has the references to all others.
    pub(crate) fn take_spill(&mut self) -> Pages {
        let end = (self.base_end() / PAGE).max(1);
        if self.change.pages.range(1..end).next().is_none() {
            return Pages::new();
        }
        let mut spill = self.change.pages.split_off(&1);
        let mut kept = spill.split_off(&end);
        self.change.pages.append(&mut kept);
        spill
    }

    /// Takes the synced pages as written to the base file.
    pub(crate) fn drop_synced(&mut self) {
        self.synced = Arc::default();
        self.base_len = self.synced_len;
        self.has_log = false;
    }
}

/// Drops what is at or above `len`.
fn cut_pages(pages: &mut Pages, len: u64) {
    pages.split_off(&len.div_ceil(PAGE));
    if let Some(page) = pages.get_mut(&(len / PAGE)) {
        page[(len % PAGE) as usize..].fill(0);
    }
}

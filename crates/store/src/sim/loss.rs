//! Power loss.

use std::collections::BTreeMap;
use std::path::Path;

use super::names::name;
use super::names::{Change, NodeId};
use super::node::BLOCK;
use super::node::{Dirty, Node, SECTOR, put};
use super::world::World;
use crate::chance::Chance;

/// A change that no sync covered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// 512 bytes of a file.
    Sector {
        /// Its name.
        file: String,
        /// Where it begins.
        offset: u64,
        /// How many unsynced contents it had. Of many the disk keeps only some.
        versions: usize,
        /// Its write-back failed (M3): [`lose_power`](super::SimDisk::lose_power) always drops it,
        /// and any loss does if its block was never on the medium.
        has_failed: bool,
    },
    /// The growth of a file, which reads as zeros outside of kept sectors.
    Growth {
        /// Its name.
        file: String,
        /// Its length on the medium.
        from: u64,
        /// Its length for the operating system.
        to: u64,
    },
    /// The emptying of a file that was opened afresh.
    Truncation {
        /// Its name.
        file: String,
    },
    /// The making of a file or folder.
    Create {
        /// The name.
        file: String,
    },
    /// A rename, kept or undone as a whole.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// The removal of a name.
    Remove {
        /// The name.
        file: String,
    },
}

impl Loss {
    /// Returns the name of the file, of a rename the new one.
    #[must_use]
    pub fn file(&self) -> &str {
        match self {
            Loss::Sector { file, .. }
            | Loss::Growth { file, .. }
            | Loss::Truncation { file }
            | Loss::Create { file }
            | Loss::Rename { to: file, .. }
            | Loss::Remove { file } => file,
        }
    }

    /// Returns whether this is a sector. Others are kept or dropped, growth also torn.
    #[must_use]
    pub fn is_sector(&self) -> bool {
        matches!(self, Loss::Sector { .. })
    }
}

/// What becomes of a [`Loss`]. The disk's generator decides the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// The medium has what the operating system showed.
    Keep,
    /// The medium has what was there at the last sync.
    Drop,
    /// Sector: the bytes of an earlier unsynced write, if any, else as `Drop`.
    Stale,
    /// Sector: the written bytes up to some place. Growth: a part of it. Else as `Drop`.
    Tear,
    /// Sector: arbitrary bytes from the first written one to the end of the sector or of its block
    /// of 4096 bytes; without powersafe overwrite, in the whole block. Else as `Drop`.
    Garble,
}

impl World {
    pub(super) fn lose_power(&mut self, choose: &mut dyn FnMut(Loss) -> Fate) {
        self.lose_page_cache(choose);
        self.lose_memory();
        self.collect();
        self.trace.event("power is lost, and comes back");
        self.revive();
    }

    pub(super) fn remount(&mut self, choose: &mut dyn FnMut(Loss) -> Fate) {
        self.lose_page_cache(choose);
        self.trace.event("the file system is mounted again");
        self.revive();
    }

    /// Returns the fates at an orderly end, by chance if the file system has shut down.
    pub(super) fn fates_of_an_orderly_end(&mut self) -> impl FnMut(Loss) -> Fate + use<> {
        self.trace.event("the system ends in good order");
        let mut temper = self.is_shut_down.then(|| Temper::new(self.chance.draw()));
        move |loss| match (&mut temper, &loss) {
            (Some(temper), _) => temper.fate(&loss),
            (None, Loss::Sector { has_failed: true, .. }) => Fate::Drop,
            (None, _) => Fate::Keep,
        }
    }

    pub(super) fn fates_by_chance(&mut self) -> impl FnMut(Loss) -> Fate + use<> {
        let mut temper = Temper::new(self.chance.draw());
        move |loss| temper.fate(&loss)
    }

    fn lose_page_cache(&mut self, choose: &mut dyn FnMut(Loss) -> Fate) {
        self.die();
        let mut keeps = Vec::new();
        let mut fates = BTreeMap::<NodeId, Vec<(Loss, Fate)>>::new();
        for (node, loss) in self.losses() {
            let fate = choose(loss.clone());
            match node {
                None => keeps.push(fate == Fate::Keep),
                Some(id) => fates.entry(id).or_default().push((loss, fate)),
            }
        }
        self.names.lose(&keeps);
        let (garbles_blocks, chance) = (self.medium.garbles_blocks, &mut self.chance);
        for (id, node) in self.nodes.iter_mut().filter(|(_, node)| !node.is_in_memory) {
            node.lose(&fates.remove(id).unwrap_or_default(), garbles_blocks, chance);
        }
        self.is_shut_down = false;
        self.collect();
    }

    pub(super) fn losses(&mut self) -> Vec<(Option<NodeId>, Loss)> {
        self.nodes.values_mut().for_each(Node::absorb);
        let pending = self.names.pending.iter();
        let mut losses: Vec<_> = pending.map(|change| (None, loss_of_name(change))).collect();
        let mut files: Vec<(&Path, NodeId)> = Vec::new();
        for (&id, node) in &self.nodes {
            if !node.is_in_memory
                && self.names.can_reach(id)
                && let Some(path) = self.names.name_of(id)
            {
                files.push((path, id));
            }
        }
        files.sort();
        for (path, id) in files {
            let of_node = self.nodes[&id].losses(name(path));
            losses.extend(of_node.into_iter().map(|loss| (Some(id), loss)));
        }
        losses
    }
}

fn loss_of_name(change: &Change) -> Loss {
    let text = |path: &Path| name(path).to_owned();
    match change {
        Change::Create { path, .. } => Loss::Create { file: text(path) },
        Change::Rename { from, to, .. } => Loss::Rename { from: text(from), to: text(to) },
        Change::Remove { path, .. } => Loss::Remove { file: text(path) },
    }
}

impl Node {
    fn losses(&self, name: &str) -> Vec<Loss> {
        let file = || name.to_owned();
        let mut losses = Vec::new();
        if self.is_cut() {
            losses.push(Loss::Truncation { file: file() });
        }
        let from = if self.is_cut() { 0 } else { self.stable.len() };
        if self.shown.len() > from {
            let (from, to) = (from as u64, self.shown.len() as u64);
            losses.push(Loss::Growth { file: file(), from, to });
        }
        losses.extend(self.dirty.iter().map(|(&sector, dirty)| Loss::Sector {
            file: file(),
            offset: (sector * SECTOR) as u64,
            versions: dirty.versions.len(),
            has_failed: dirty.is_forgotten,
        }));
        losses
    }

    fn lose(&mut self, fates: &[(Loss, Fate)], garbles_blocks: bool, chance: &mut Chance) {
        let sector_of = |loss: &Loss| match loss {
            Loss::Sector { offset, .. } => Some(*offset as usize / SECTOR),
            _ => None,
        };
        let sectors: Vec<(usize, Fate)> = fates
            .iter()
            .filter_map(|(loss, fate)| Some((sector_of(loss)?, *fate)))
            .filter(|(sector, _)| !self.is_stuck(*sector))
            .collect();
        let kept = sectors.iter().filter(|(_, fate)| *fate != Fate::Drop);
        let placed = self.placed_with(kept.map(|(sector, _)| *sector));
        let mut image = std::mem::take(&mut self.stable);
        for (loss, fate) in fates {
            match (loss, fate) {
                (Loss::Truncation { .. }, Fate::Keep) => image.clear(),
                (Loss::Growth { .. }, Fate::Keep) => {
                    image.resize(image.len().max(self.shown.len()), 0);
                }
                (Loss::Growth { .. }, Fate::Tear) => {
                    let growth = self.shown.len().saturating_sub(image.len());
                    image.resize(image.len() + chance.index(growth + 1), 0);
                }
                _ => {}
            }
        }
        let mut garbled = Vec::new();
        for (sector, fate) in sectors {
            let Some(dirty) = self.dirty.get(&sector) else { continue };
            match fate {
                Fate::Garble => garbled.push((sector * SECTOR, dirty.from())),
                _ => settle(&mut image, sector * SECTOR, dirty, fate, chance),
            }
        }
        for (at, from) in garbled {
            garble(&mut image, at, from, garbles_blocks, chance);
        }
        self.replace(image);
        self.placed = placed;
    }
}

fn settle(image: &mut [u8], at: usize, dirty: &Dirty, fate: Fate, chance: &mut Chance) {
    let Some((newest, older)) = dirty.versions.split_last() else { return };
    match fate {
        Fate::Keep => put(image, at, &newest.bytes),
        Fate::Stale if !older.is_empty() => {
            put(image, at, &older[chance.index(older.len())].bytes);
        }
        Fate::Tear => {
            let from = dirty.from();
            let to = from + chance.index(SECTOR - from);
            put(image, at + from, &newest.bytes[from..to]);
        }
        Fate::Stale | Fate::Drop | Fate::Garble => {}
    }
}

/// Writes arbitrary bytes as [`Fate::Garble`].
fn garble(image: &mut [u8], at: usize, from: usize, garbles_block: bool, chance: &mut Chance) {
    let block_end = (at / BLOCK + 1) * BLOCK;
    let (start, end) = match (garbles_block, chance.is(1, 2)) {
        (false, true) => (at + from, at + SECTOR),
        (false, false) => (at + from, block_end),
        (true, _) => (block_end - BLOCK, block_end),
    };
    let end = end.min(image.len());
    if start >= end {
        return;
    }
    match chance.below(4) {
        0 => image[start..end].fill(0),
        1 => {
            // What lies elsewhere in the same file.
            let source = chance.index(image.len() / SECTOR + 1) * SECTOR;
            let source = source.min(image.len() - (end - start));
            image.copy_within(source..source + (end - start), start);
        }
        _ => chance.fill(&mut image[start..end]),
    }
}

#[derive(Debug)]
struct Temper {
    chance: Chance,
    names_kept: u64,
    kept: u64,
    damaged: u64,
    file: String,
}

impl Temper {
    fn new(seed: u64) -> Temper {
        let mut chance = Chance::new(seed);
        let names_kept = [0, 2, 4, 6, 8, 8][chance.index(6)];
        let damaged = [0, 0, 1, 3][chance.index(4)];
        Temper { names_kept, kept: 4, damaged, file: String::new(), chance }
    }

    fn fate(&mut self, loss: &Loss) -> Fate {
        if matches!(loss, Loss::Sector { has_failed: true, .. }) {
            return Fate::Drop;
        }
        if matches!(loss, Loss::Create { .. } | Loss::Rename { .. } | Loss::Remove { .. }) {
            return self.keep_or_drop(self.names_kept);
        }
        if self.file != loss.file() {
            self.file = loss.file().to_owned();
            self.kept = [0, 1, 4, 7, 8][self.chance.index(5)];
        }
        match loss {
            Loss::Sector { .. } if self.chance.is(self.damaged, 8) => {
                [Fate::Stale, Fate::Tear, Fate::Garble][self.chance.index(3)]
            }
            Loss::Growth { .. } if self.chance.is(1, 4) => Fate::Tear,
            Loss::Growth { .. } if self.chance.is(1, 2) => Fate::Keep,
            _ => self.keep_or_drop(self.kept),
        }
    }

    fn keep_or_drop(&mut self, eighths: u64) -> Fate {
        if self.chance.is(eighths, 8) { Fate::Keep } else { Fate::Drop }
    }
}

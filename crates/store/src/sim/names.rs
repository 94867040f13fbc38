//! The names on the simulated disk.
//!
//! Power loss keeps or drops each unsynced change, in any combination. If a kept change needs a
//! name from which another file has moved away since, that move is kept, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Its files outlive the process and no boot.
pub(super) const MEMORY: &str = "/memory";

pub(super) type NodeId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Folder,
    File(NodeId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Create { path: PathBuf, entry: Entry },
    Rename { from: PathBuf, to: PathBuf, node: NodeId, over: Option<NodeId> },
    Remove { path: PathBuf, node: NodeId },
}

impl Change {
    fn path(&self) -> &Path {
        match self {
            Change::Create { path, .. } | Change::Remove { path, .. } => path,
            Change::Rename { to, .. } => to,
        }
    }

    fn node(&self) -> Option<NodeId> {
        match self {
            Change::Create { entry: Entry::Folder, .. } => None,
            Change::Create { entry: Entry::File(node), .. }
            | Change::Rename { node, .. }
            | Change::Remove { node, .. } => Some(*node),
        }
    }

    fn frees(&self, path: &Path, node: NodeId) -> bool {
        match self {
            Change::Create { .. } => false,
            Change::Rename { from, node: moved, .. } => from == path && *moved == node,
            Change::Remove { path: removed, node: gone } => removed == path && *gone == node,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) shown: BTreeMap<PathBuf, Entry>,
    pub(super) stable: BTreeMap<PathBuf, Entry>,
    pub(super) pending: Vec<Change>,
}

impl Names {
    pub(super) fn file(&self, path: &Path) -> Option<NodeId> {
        match self.shown.get(path) {
            Some(Entry::File(node)) => Some(*node),
            _ => None,
        }
    }

    pub(super) fn is_folder(&self, path: &Path) -> bool {
        path.parent().is_none() || self.shown.get(path) == Some(&Entry::Folder)
    }

    pub(super) fn create(&mut self, path: &Path, entry: Entry) {
        self.shown.insert(path.to_path_buf(), entry);
        self.pending.push(Change::Create { path: path.to_path_buf(), entry });
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, node: NodeId) {
        let over = self.file(to);
        self.shown.remove(from);
        self.shown.insert(to.to_path_buf(), Entry::File(node));
        let (from, to) = (from.to_path_buf(), to.to_path_buf());
        self.pending.push(Change::Rename { from, to, node, over });
    }

    pub(super) fn remove(&mut self, path: &Path, node: NodeId) {
        self.shown.remove(path);
        self.pending.push(Change::Remove { path: path.to_path_buf(), node });
    }

    /// Makes the names in `folder` stable. A rename between folders goes with its new one.
    pub(super) fn sync(&mut self, folder: &Path) {
        let is_inside = |path: &Path| path.parent() == Some(folder);
        let (synced, others): (Vec<Change>, Vec<Change>) =
            self.pending.drain(..).partition(|change| is_inside(change.path()));
        self.pending = others;
        for change in synced {
            if let Change::Rename { from, node, .. } = change
                && self.stable.get(&from) == Some(&Entry::File(node))
            {
                self.stable.remove(&from);
            }
        }
        self.stable.retain(|path, _| !is_inside(path));
        let shown = self.shown.iter().filter(|(path, _)| is_inside(path));
        self.stable.extend(shown.map(|(path, entry)| (path.clone(), *entry)));
    }

    pub(super) fn settle(&mut self, path: &Path, node: NodeId) {
        self.pending.retain(|change| change.node() != Some(node));
        for names in [&mut self.shown, &mut self.stable] {
            names.retain(|_, entry| *entry != Entry::File(node));
            names.insert(path.to_path_buf(), Entry::File(node));
        }
    }

    pub(super) fn forget(&mut self, path: &Path) {
        if let Some(node) = self.file(path) {
            self.pending.retain(|change| change.node() != Some(node));
            self.stable.retain(|_, entry| *entry != Entry::File(node));
        }
        self.shown.remove(path);
        self.stable.remove(path);
    }

    pub(super) fn can_reach(&self, node: NodeId) -> bool {
        let file = Entry::File(node);
        self.shown.values().any(|entry| *entry == file)
            || self.stable.values().any(|entry| *entry == file)
            || self.pending.iter().any(|change| change.node() == Some(node))
    }

    pub(super) fn name_of(&self, node: NodeId) -> Option<&Path> {
        let last = self.pending.iter().rev().find(|change| change.node() == Some(node));
        key_of(&self.shown, node)
            .or_else(|| key_of(&self.stable, node))
            .or_else(|| last.map(Change::path))
    }

    pub(super) fn text(&self, node: NodeId) -> String {
        self.name_of(node).map_or_else(|| "a file without a name".into(), |path| name(path).into())
    }

    /// Keeps the changes that `keeps` marks, and those that they need.
    pub(super) fn lose(&mut self, keeps: &[bool]) {
        let changes = std::mem::take(&mut self.pending);
        let mut is_done = vec![false; changes.len()];
        for (index, _) in keeps.iter().enumerate().filter(|(_, keeps)| **keeps) {
            self.apply(&changes, &mut is_done, index);
        }
        self.drop_orphans();
        self.shown.clone_from(&self.stable);
    }

    fn apply(&mut self, changes: &[Change], is_done: &mut [bool], index: usize) {
        if std::mem::replace(&mut is_done[index], true) {
            return;
        }
        match &changes[index] {
            Change::Create { path, entry } => {
                self.make_way(changes, is_done, path, None);
                self.stable.insert(path.clone(), *entry);
            }
            Change::Rename { to, node, over, .. } => {
                self.make_way(changes, is_done, to, *over);
                self.stable.retain(|_, entry| *entry != Entry::File(*node));
                self.stable.insert(to.clone(), Entry::File(*node));
            }
            Change::Remove { path, node } => {
                if self.stable.get(path) == Some(&Entry::File(*node)) {
                    self.stable.remove(path);
                }
            }
        }
    }

    /// Applies the change that frees the name `path` on the medium, unless the rename replaces that
    /// file.
    fn make_way(
        &mut self,
        changes: &[Change],
        is_done: &mut [bool],
        path: &Path,
        over: Option<NodeId>,
    ) {
        let Some(Entry::File(holder)) = self.stable.get(path).copied() else { return };
        let next = changes.iter().position(|change| change.frees(path, holder));
        if let Some(next) = next
            && over != Some(holder)
        {
            self.apply(changes, is_done, next);
        }
    }

    /// Drops what lies in a folder that is gone, except in the memory file system.
    fn drop_orphans(&mut self) {
        let mut kept = BTreeMap::new();
        // Folders come before what lies in them.
        for (path, entry) in std::mem::take(&mut self.stable) {
            let parent = path.parent();
            let has_folder = parent.is_none_or(|parent| {
                parent.parent().is_none()
                    || parent == Path::new(MEMORY)
                    || kept.get(parent) == Some(&Entry::Folder)
            });
            if has_folder {
                kept.insert(path, entry);
            }
        }
        self.stable = kept;
    }
}

fn key_of(names: &BTreeMap<PathBuf, Entry>, node: NodeId) -> Option<&Path> {
    let mut found = names.iter().filter(|(_, entry)| **entry == Entry::File(node));
    found.next().map(|(path, _)| path.as_path())
}

pub(super) fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("/")
}

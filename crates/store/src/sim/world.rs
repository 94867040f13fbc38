//! The simulated disk itself, under one lock. Handles of an earlier *run* (process), or of one that
//! has died, get an error from every call and change nothing.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::fault::{CallKind, Fault, FaultKind, WriteBackFailure};
use super::names::{Entry, MEMORY, Names, NodeId, name};
use super::node::{BLOCK, Node};
use super::trace::Trace;
use crate::chance::Chance;
use crate::disk::Access;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Medium {
    pub(super) garbles_blocks: bool,
    pub(super) copies_on_write: bool,
    pub(super) lacks_memory: bool,
    pub(super) failure: WriteBackFailure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStep {
    Go,
    Meet(FaultKind),
    Die,
}

#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) medium: Medium,
    pub(super) names: Names,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    next_node: NodeId,
    pub(super) run: u64,
    pub(super) is_dead: bool,
    pub(super) is_shut_down: bool,
    pub(super) write_back_failures: u64,
    pub(super) pages_dropped_at_reads: u64,
    pub(super) calls: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) faults: Vec<Fault>,
    pub(super) capacity: Option<u64>,
    was_interrupted: bool,
    /// Fates and faults.
    pub(super) chance: Chance,
    /// What the process draws: identities, salts.
    pub(super) entropy: Chance,
    /// When background work runs.
    pub(super) schedule: Chance,
    /// When pages are dropped.
    pub(super) memory: Chance,
    next_handle: u64,
    pub(super) trace: Trace,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let root = Chance::new(seed);
        World {
            chance: root.branch(1),
            entropy: root.branch(2),
            schedule: root.branch(3),
            memory: root.branch(4),
            ..World::default()
        }
    }

    /// Returns a copy without a living process, with other chances.
    pub(super) fn fork(&self, seed: u64) -> World {
        let mut fork = World {
            crash_at: None,
            faults: Vec::new(),
            was_interrupted: false,
            chance: self.chance.branch(seed),
            entropy: self.entropy.branch(seed),
            schedule: self.schedule.branch(seed),
            memory: self.memory.branch(seed),
            ..self.clone()
        };
        fork.die();
        fork
    }

    pub(super) fn die(&mut self) {
        if self.is_dead {
            return;
        }
        self.is_dead = true;
        self.nodes.values_mut().for_each(Node::end_run);
        self.collect();
        self.trace.event("the process dies");
    }

    pub(super) fn revive(&mut self) {
        self.die();
        self.run += 1;
        self.is_dead = false;
        self.crash_at = None;
    }

    /// Counts a call, and returns how it is to go on.
    pub(super) fn begin(
        &mut self,
        kind: CallKind,
        what: impl FnOnce(&Names) -> String,
    ) -> io::Result<CallStep> {
        let index = kind.is_counted().then_some(self.calls);
        self.calls += u64::from(index.is_some());
        let dies = index.is_some() && index == self.crash_at;
        let fault = if dies { None } else { self.draw_fault(kind, index) };
        let (step, outcome) = match fault {
            None if dies => (CallStep::Die, " -> the process dies"),
            None => (CallStep::Go, ""),
            Some(fault) => (CallStep::Meet(fault), fault.outcome()),
        };
        if index.is_some() || fault.is_some() {
            self.trace.call(index.unwrap_or(self.calls), kind, &what(&self.names), outcome);
        }
        if fault == Some(FaultKind::Interrupted) {
            return Err(FaultKind::Interrupted.error());
        }
        if fault == Some(FaultKind::WriteBack) {
            self.fail_some_write_back();
        }
        if self.is_shut_down && step != CallStep::Die {
            return Err(FaultKind::Eio.error());
        }
        if fault == Some(FaultKind::DropPages) {
            let has_forgotten = self.nodes.values().any(Node::has_forgotten);
            self.pages_dropped_at_reads += u64::from(has_forgotten && kind == CallKind::Read);
            self.drop_pages();
        } else if index.is_some() {
            self.drop_some_pages();
        }
        Ok(step)
    }

    /// Makes a call that does all of `act` or nothing.
    pub(super) fn change<T>(
        &mut self,
        kind: CallKind,
        what: impl FnOnce(&Names) -> String,
        act: impl FnOnce(&mut World) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.begin(kind, what)? {
            CallStep::Meet(fault @ (FaultKind::Eio | FaultKind::NoSpace)) => Err(fault.error()),
            CallStep::Go | CallStep::Meet(_) => act(self),
            CallStep::Die => {
                if self.chance.is(1, 2) {
                    // Whether it would have failed is known to nobody.
                    let _ = act(self);
                }
                self.die();
                Err(dead())
            }
        }
    }

    /// Opens a file, and returns its node and handle. One in memory is opened as it is, or made.
    pub(super) fn open(&mut self, path: &Path, access: Access) -> io::Result<(NodeId, u64)> {
        if self.names.is_folder(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let is_memory = is_in_memory(path);
        let what = |_: &Names| name(path).to_owned();
        let node = match (self.names.file(path), access) {
            (None, Access::Read | Access::Write) => return Err(io::ErrorKind::NotFound.into()),
            (Some(_), Access::New) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(node), Access::Read | Access::Write) if is_memory => node,
            // The log opens memory files in no other way.
            (Some(_), _) if is_memory => return Err(io::ErrorKind::Unsupported.into()),
            (None, Access::WriteOrCreate | Access::Fresh) if is_memory => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            (None, _) if is_memory => {
                let node = self.new_node();
                self.node(node).is_in_memory = true;
                self.names.settle(path, node);
                node
            }
            (Some(node), Access::Fresh) => {
                let what = |_: &Names| format!("{}, emptied", name(path));
                self.change(CallKind::Create, what, |world| {
                    world.node(node).cut();
                    Ok(node)
                })?
            }
            (Some(node), _) => self.change(CallKind::Open, what, |_| Ok(node))?,
            (None, _) => self.change(CallKind::Create, what, |world| world.create(path))?,
        };
        self.node(node).handles += 1;
        self.next_handle += 1;
        Ok((node, self.next_handle))
    }

    pub(super) fn lose_memory(&mut self) {
        let paths: Vec<_> =
            self.names.shown.keys().filter(|path| is_in_memory(path)).cloned().collect();
        paths.iter().for_each(|path| self.names.forget(path));
    }

    pub(super) fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        let what = |_: &Names| path.display().to_string();
        self.change(CallKind::CreateFolder, what, |world| {
            if !world.names.shown.contains_key(path) {
                world.names.create(path, Entry::Folder);
            }
            Ok(())
        })
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let what = |_: &Names| format!("{} to {}", name(from), name(to));
        self.change(CallKind::Rename, what, |world| {
            let node = world.names.file(from).ok_or(io::ErrorKind::NotFound)?;
            world.check_parent(to)?;
            world.names.rename(from, to, node);
            Ok(())
        })
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        if is_in_memory(path) {
            self.names.file(path).ok_or(io::ErrorKind::NotFound)?;
            self.names.forget(path);
            self.collect();
            return Ok(());
        }
        let what = |_: &Names| name(path).to_owned();
        self.change(CallKind::Remove, what, |world| {
            let node = world.names.file(path).ok_or(io::ErrorKind::NotFound)?;
            world.names.remove(path, node);
            Ok(())
        })
    }

    pub(super) fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        let what = |_: &Names| folder.display().to_string();
        self.change(CallKind::SyncFolder, what, |world| {
            world.names.sync(folder);
            world.collect();
            Ok(())
        })
    }

    pub(super) fn write(&mut self, id: NodeId, offset: usize, bytes: &[u8]) -> io::Result<usize> {
        if self.node(id).is_in_memory {
            self.node(id).write(offset, bytes);
            return Ok(bytes.len());
        }
        let end = offset + bytes.len();
        let what = |names: &Names| format!("{} [{offset}, {end})", names.text(id));
        let step = self.begin(CallKind::Write, what)?;
        let asked = bytes.len() as u64;
        let len = match step {
            CallStep::Meet(FaultKind::ShortWrite) => 1 + self.chance.below(asked.max(1)) as usize,
            CallStep::Meet(FaultKind::Eio) | CallStep::Die => self.chance.below(asked + 1) as usize,
            CallStep::Meet(FaultKind::NoSpace) => return Err(FaultKind::NoSpace.error()),
            CallStep::Go | CallStep::Meet(_) => bytes.len(),
        };
        let fitting = self.fitting(id, offset, len.min(bytes.len()));
        self.node(id).write(offset, &bytes[..fitting]);
        match step {
            CallStep::Meet(FaultKind::Eio) => Err(FaultKind::Eio.error()),
            CallStep::Die => {
                self.die();
                Err(dead())
            }
            _ if fitting == 0 && !bytes.is_empty() => Err(FaultKind::NoSpace.error()),
            _ => Ok(fitting),
        }
    }

    pub(super) fn allocate(&mut self, id: NodeId, len: usize) -> io::Result<()> {
        if self.node(id).is_in_memory {
            self.node(id).allocate(len);
            return Ok(());
        }
        let what = |names: &Names| format!("{}, {len} bytes", names.text(id));
        self.change(CallKind::Allocate, what, |world| {
            let old_len = world.node(id).shown.len();
            if len > old_len && world.fitting(id, old_len, len - old_len) < len - old_len {
                return Err(FaultKind::NoSpace.error());
            }
            world.node(id).grow(len);
            Ok(())
        })
    }

    /// Returns whether no call to the file can fail.
    pub(super) fn is_safe(&mut self, id: NodeId) -> bool {
        self.faults.is_empty() && self.node(id).is_in_memory
    }

    pub(super) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.entry(id).or_default()
    }

    pub(super) fn new_node(&mut self) -> NodeId {
        self.next_node += 1;
        self.nodes.insert(self.next_node, Node::default());
        self.next_node
    }

    /// Drops files that no handle and no name reaches.
    pub(super) fn collect(&mut self) {
        let names = &self.names;
        self.nodes.retain(|id, node| node.handles > 0 || names.can_reach(*id));
    }

    fn create(&mut self, path: &Path) -> io::Result<NodeId> {
        self.check_parent(path)?;
        if self.free() == Some(0) {
            return Err(FaultKind::NoSpace.error());
        }
        let node = self.new_node();
        self.names.create(path, Entry::File(node));
        Ok(node)
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        let is_there = path.parent().is_some_and(|parent| self.names.is_folder(parent));
        if is_there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn draw_fault(&mut self, kind: CallKind, index: Option<u64>) -> Option<FaultKind> {
        let mut hit = None;
        for fault in &mut self.faults {
            if hit.is_none() {
                hit = fault.hits(kind, index, &mut self.chance);
            }
        }
        self.faults.retain(|fault| !fault.is_spent());
        let is_interrupted = hit == Some(FaultKind::Interrupted);
        if is_interrupted && self.was_interrupted {
            hit = None;
        }
        if matches!(kind, CallKind::Read | CallKind::Write) {
            self.was_interrupted = hit == Some(FaultKind::Interrupted);
        }
        hit
    }

    fn fitting(&mut self, id: NodeId, offset: usize, len: usize) -> usize {
        let Some(free) = self.free() else { return len };
        let room = (free / BLOCK as u64 * BLOCK as u64) as usize;
        if self.medium.copies_on_write {
            // Each write goes to a place of its own.
            return len.min(room);
        }
        let blocks_end = self.node(id).shown.len().next_multiple_of(BLOCK);
        let limit = blocks_end.saturating_add(room);
        (offset + len).min(limit).saturating_sub(offset)
    }

    fn free(&self) -> Option<u64> {
        Some(self.capacity?.saturating_sub(self.used()))
    }

    /// Returns the bytes of the blocks of files with a name or an open handle, none for files in
    /// memory.
    pub(super) fn used(&self) -> u64 {
        let takes_space = |id: &NodeId, node: &Node| {
            let file = Entry::File(*id);
            let is_there =
                node.handles > 0 || self.names.shown.values().any(|entry| *entry == file);
            is_there && !node.is_in_memory
        };
        let used = self.nodes.iter().filter(|(id, node)| takes_space(id, node));
        used.map(|(_, node)| node.shown.len().next_multiple_of(BLOCK) as u64).sum()
    }
}

fn is_in_memory(path: &Path) -> bool {
    path.parent() == Some(Path::new(MEMORY))
}

pub(super) fn dead() -> io::Error {
    io::Error::other("the simulated process is dead")
}

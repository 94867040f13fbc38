//! A file of a [`FaultDisk`](super::FaultDisk): each call passes the gate first.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::CallKind;
use super::fault_gate::{Call, Gate, Target, call, target};
use crate::Memory;
use crate::disk::{DiskFile, FileIdentity};
use crate::sync::Mutex;

#[derive(Debug)]
pub(super) struct FaultFile {
    pub(super) below: Box<dyn DiskFile>,
    pub(super) is_memory: bool,
    pub(super) name: Arc<Mutex<String>>,
    pub(super) gate: Arc<Gate>,
}

impl FaultFile {
    fn begin(
        &self,
        kind: CallKind,
        offset: u64,
        len: u64,
        pieces: &[IoSlice<'_>],
    ) -> io::Result<()> {
        let name = self.name.lock().clone();
        let is_mark = self.is_memory && kind == CallKind::Write && offset > 0;
        let target = if is_mark { Target::Marks } else { target(self.is_memory, &name) };
        let can_grow = matches!(kind, CallKind::Write | CallKind::Allocate);
        let grows = can_grow && offset + len > self.below.len()?;
        self.gate.begin(&Call { offset, len, pieces, grows, ..call(kind, target, &name) }).map(drop)
    }

    fn look(&self) -> io::Result<()> {
        self.begin(CallKind::Look, 0, 0, &[])
    }
}

impl DiskFile for FaultFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.begin(CallKind::Read, offset, into.len() as u64, &[])?;
        self.below.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.begin(CallKind::Write, offset, len as u64, pieces)?;
        self.below.write_at(offset, pieces)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.begin(CallKind::Sync, 0, 0, &[])?;
        self.below.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.look()?;
        self.below.len()
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        self.begin(CallKind::Lock, 0, 0, &[])?;
        self.below.try_lock(shared)
    }

    fn unlock(&self) -> io::Result<()> {
        self.begin(CallKind::Lock, 0, 0, &[])?;
        self.below.unlock()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.begin(CallKind::Allocate, 0, len, &[])?;
        self.below.allocate(len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.begin(CallKind::Discard, offset, len, &[])?;
        self.below.discard(offset, len)
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.look()?;
        self.below.identity()
    }

    fn is_own(&self) -> io::Result<bool> {
        self.look()?;
        let is_disowned = self.is_memory && self.gate.is_disowned();
        Ok(!is_disowned && self.below.is_own()?)
    }

    fn has_other_names(&self) -> io::Result<bool> {
        self.look()?;
        self.below.has_other_names()
    }

    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        self.begin(CallKind::Map, 0, 0, &[])?;
        self.below.map(offset, len)
    }
}

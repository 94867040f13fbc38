//! The store on a simulated disk.

use std::io::IoSlice;

use palisade_core::store::{Epoch, OldBuffer, ReadStore, Segment, State, Store, TailSource};
use palisade_core::{Lsn, Memory, Result};

use crate::FileStore;

/// A [`FileStore`] over a [`SimDisk`](super::SimDisk): the same segments, spares, names and
/// recovery's view, on a disk that can lose power.
///
/// Its background work has no thread: the disk's generator decides at each occasion whether it
/// is done at once, by the calling thread, or later.
#[derive(Debug)]
pub struct SimStore {
    files: FileStore,
}

impl SimStore {
    pub(super) fn new(files: FileStore) -> SimStore {
        SimStore { files }
    }
}

impl ReadStore for SimStore {
    fn state(&self) -> Result<State> {
        self.files.state()
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        self.files.segments()
    }

    fn segments_from(&self, from: u64) -> Result<(Vec<u64>, Vec<Segment>)> {
        self.files.segments_from(from)
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        self.files.read(at, into)
    }

    fn place(&self) -> String {
        self.files.place()
    }
}

impl Store for SimStore {
    fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.files.write(at, pieces)
    }

    fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.files.sync(from, to)
    }

    fn mark_durable(&self, durable: Lsn) -> Result<()> {
        self.files.mark_durable(durable)
    }

    fn prepared(&self) -> Lsn {
        self.files.prepared()
    }

    fn prepare(&self, to: Lsn) -> Result<()> {
        self.files.prepare(to)
    }

    fn prepare_ahead(&self, tail: Lsn) {
        self.files.prepare_ahead(tail);
    }

    fn save_state(&self, state: &State) -> Result<()> {
        self.files.save_state(state)
    }

    fn release(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.files.release(from, to)
    }

    fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.files.discard(from, to)
    }

    fn begin_epoch(&self, epoch: &Epoch) -> Result<()> {
        self.files.begin_epoch(epoch)
    }

    fn resume_epoch(&self, epoch: &Epoch, from: Lsn) -> Result<()> {
        self.files.resume_epoch(epoch, from)
    }

    fn old_buffer(&self) -> Result<OldBuffer> {
        self.files.old_buffer()
    }

    fn renew_buffer(&self, epoch: u64, buffer_bytes: usize, durable: Lsn) -> Result<Memory> {
        self.files.renew_buffer(epoch, buffer_bytes, durable)
    }

    fn move_tail(
        &self,
        epoch: &Epoch,
        from: Lsn,
        to: Lsn,
        source: &mut TailSource<'_>,
    ) -> Result<()> {
        self.files.move_tail(epoch, from, to, source)
    }

    fn empty_buffer(&self) {
        self.files.empty_buffer();
    }

    fn pass_buffer_on(&self, epoch: u64) -> Result<()> {
        self.files.pass_buffer_on(epoch)
    }

    fn random(&self) -> u64 {
        self.files.random()
    }

    fn writes_behind(&self) -> bool {
        // When that thread comes to it is the system's to say.
        false
    }

    fn close(&self) {
        self.files.close();
    }
}

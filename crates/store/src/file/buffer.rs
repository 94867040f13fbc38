//! The log buffer of a store.

use super::FileStore;
use crate::buffer_file::{self, BufferFile, BufferName, RingHeader};
use crate::meta::BufferRef;
use crate::options::BufferKind;
use crate::{Error, ErrorKind, Lsn, Memory, OldBuffer, Result};

impl FileStore {
    /// Returns what an earlier process run left in the log buffer.
    ///
    /// # Errors
    /// `NoFiles`, `Io`. `PermissionDenied`: another user owns it.
    pub fn old_buffer(&self) -> Result<OldBuffer> {
        let meta = self.meta.lock();
        let (saved, most_bytes) = (*meta.saved_origin(), meta.state().buffer_bytes);
        drop(meta);
        match (&self.memory, saved.buffer) {
            (Some(memory), Some(buffer)) => {
                buffer_file::read_old(memory, self.uuid, self.home, buffer.name, most_bytes)
            }
            _ => Ok(OldBuffer::Missing),
        }
    }

    /// Replaces the old buffer by one for `epoch`, with the mark `durable`. It is zeroed, or has
    /// what an earlier process run of the same epoch left, which ended at `durable`.
    ///
    /// # Errors
    /// `NoSpace`, `NoFiles`, `Io`.
    pub fn renew_buffer(&self, epoch: u64, buffer_bytes: usize, durable: Lsn) -> Result<Memory> {
        self.own()?;
        let (uuid, home) = (self.uuid, self.home);
        let path = std::path::absolute(self.folder.path()).unwrap_or_default();
        let header = RingHeader { uuid, epoch, ring_bytes: buffer_bytes, home, path };
        let made = self.make_buffer(header, durable)?;
        let (buffer, ring) = made.unzip();
        let named = |buffer: &BufferFile| BufferRef {
            name: buffer.name(),
            has_ring: ring.as_ref().is_some_and(|ring| !ring.is_empty()),
        };
        self.meta.lock().set_buffer(buffer.as_ref().map(named));
        *self.buffer.lock() = buffer;
        *self.begins_at.lock() = Some(durable);
        let ring = ring.filter(|ring| !ring.is_empty());
        let heap = || Memory::heap(buffer_bytes);
        ring.map_or_else(heap, Ok)
            .map_err(|error| Error::io("get memory for the log buffer", error))
    }

    /// Makes the log buffer of the options, or the nearest possible.
    fn make_buffer(
        &self,
        header: RingHeader,
        durable: Lsn,
    ) -> Result<Option<(BufferFile, Memory)>> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let name = BufferName(u128::from(self.random()?) << 64 | u128::from(self.random()?));
        let make = |ring_bytes| {
            let header = RingHeader { ring_bytes, ..header.clone() };
            BufferFile::create(memory, header, name, durable)
        };
        // By now a synced segment has all that an old buffer holds.
        let make = |ring_bytes| match make(ring_bytes) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                buffer_file::remove_all(memory, header.uuid, header.home)?;
                make(ring_bytes)
            }
            made => made,
        };
        // A lack of file descriptors passes soon: it must not decide how this process run ends.
        let unless_impossible = |made: Result<_>| match made {
            Err(error) if error.kind() != ErrorKind::NoFiles => Ok(None),
            made => made.map(Some),
        };
        let with_ring = match self.buffer_kind {
            BufferKind::Heap => None,
            BufferKind::Mapped => return make(header.ring_bytes).map(Some),
            BufferKind::Auto => unless_impossible(make(header.ring_bytes))?,
        };
        if with_ring.is_some() {
            return Ok(with_ring);
        }
        // The marks alone take a page or two. Without them an open has more to copy.
        unless_impossible(make(0))
    }

    /// Removes earlier buffers. One that stays only takes memory.
    pub(super) fn remove_old_buffers(&self) {
        if let (Some(memory), Some(buffer)) = (&self.memory, self.buffer.lock().as_ref()) {
            let _ = buffer_file::remove_others(memory, buffer);
        }
    }

    /// Passes the buffer and its bytes to the begun `epoch`, whose base is its durable mark.
    ///
    /// # Errors
    /// Every error poisons the log.
    pub fn pass_buffer_on(&self, epoch: u64) -> Result<()> {
        self.own()?;
        self.buffer.lock().as_mut().map_or(Ok(()), |buffer| buffer.pass_on(epoch))
    }

    /// Frees the ring, but not the marks, after all records were written and the last append has
    /// ended.
    pub fn empty_buffer(&self) {
        // A sync of the preparer that failed may have taken what the leader wrote: the ring has it.
        if self.segments.is_own()
            && self.end_background_work().is_ok()
            && let Some(buffer) = self.buffer.lock().as_mut()
        {
            buffer.empty();
        }
    }
}

pub(super) fn no_memory_folder() -> Error {
    let text = "there is no memory file system for a log buffer that outlives the process; \
                expected a tmpfs at /dev/shm: mount one, or use BufferKind::Auto";
    Error::new(ErrorKind::Unsupported, text)
}

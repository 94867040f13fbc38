//! The store on files.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use palisade_core::store::{
    Epoch, FilesTaken, OldBuffer, ReadStore, Segment, State, Store, TailSource,
};
use palisade_core::sync::Mutex;
use palisade_core::{Error, ErrorKind, Lsn, Memory, Result, Uuid};

use crate::buffer_file::{self, BufferFile, BufferName, RingHeader};
use crate::disk::OsDisk;
use crate::disk::{Disk, FolderIdentity, guarded};
use crate::folder::{Folder, segment_name};
use crate::meta::{BufferRef, MetaFile};
use crate::open::{self, Lock, Opened};
use crate::options::{BufferKind, FileOptions, MIN_FILE_BYTES};
use crate::segment::preparer::Preparer;
use crate::segment::{Segments, Shape};

/// A log in a folder of its own.
///
/// The folder is opened once: links in its path are followed then, links in the folder never. A
/// folder that is moved, removed or replaced while the log is open is noticed before the next
/// segment is made or the state is saved; the log is poisoned then, and what took its place is left
/// alone.
///
/// | file | what it is |
/// |---|---|
/// | `lock` | empty; locked as long as the log is open for writing, as the folder is |
/// | `meta` | the log's [`State`], in two checksummed copies |
/// | `meta.unsynced` | the meta file of a copy that could not be synced: opens refuse the folder |
/// | `segment-<number>` | a header block of 4096 bytes, then the log's bytes |
/// | `spare-<number>` | a file that becomes a segment; what it holds is never read |
///
/// Files are zeroed ahead of the tail and recycled when they are released, because overwriting
/// written blocks syncs faster than growing a file. On file systems that are not known to
/// overwrite in place the store does neither. The log buffer is a shared one if possible
/// ([`BufferKind`]).
///
/// Dropping the store does what [`close`](Store::close) does. In a forked child both only close the
/// descriptors of the locks, and calls that change the log give [`Forked`](ErrorKind::Forked).
///
/// ```
/// use palisade_core::store::ReadStore;
/// use palisade_store::{FileOptions, FileStore};
/// # let temp = tempfile::tempdir().unwrap();
/// # let folder = temp.path().join("log");
/// let store = FileStore::open(&folder, &FileOptions::default())?;
/// assert!(store.state()?.clean);
/// # Ok::<(), palisade_core::Error>(())
/// ```
#[derive(Debug)]
pub struct FileStore {
    folder: Folder,
    uuid: Uuid,
    /// Until the store is closed.
    lock: Mutex<Option<Lock>>,
    meta: Mutex<MetaFile>,
    /// The folder for log buffers; none where there is no memory file system.
    memory: Option<Folder>,
    buffer: Mutex<Option<BufferFile>>,
    buffer_kind: BufferKind,
    home: FolderIdentity,
    /// Whether the log was written last in another folder, so that this one is a copy.
    is_copy: bool,
    /// Where the preparer is to begin, once the state is saved.
    begins_at: Mutex<Option<Lsn>>,
    segments: Arc<Segments>,
    preparer: Preparer,
}

impl FileStore {
    /// Opens the log in the folder `path`, or makes it, as `options` say.
    ///
    /// What is refused is left as it is, byte for byte.
    ///
    /// # Errors
    /// - `InvalidArgument`: the path is empty, or an option is out of its range.
    /// - `NotFound`: the folder or, with [`MustExist`](crate::OpenMode::MustExist), the log is
    ///   missing; or there is no folder to make the folder in. Calls of the store return it, too,
    ///   once the folder was moved, removed or replaced.
    /// - `AlreadyExists`: there is a log, and
    ///   [`CreateNew`](crate::OpenMode::CreateNew) was asked for.
    /// - `Foreign`: the path is a file, the folder holds something else, or a name in it stands for
    ///   a link, a FIFO or a folder where the log has a file.
    /// - `Unsupported`: a later version of Palisade wrote the log; or [`BufferKind::Mapped`] was
    ///   asked for, and there is no memory file system.
    /// - `Mismatch`: the log has segments of another size, or another codec or key.
    /// - `Corrupt`: neither copy of the state validates.
    /// - `Locked`: the log is open already.
    /// - `PermissionDenied`, `NoSpace`, `NoFiles`, `Io`: what the operating system said.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<FileStore> {
        FileStore::open_on(Arc::new(OsDisk), path.as_ref(), options)
    }

    /// Opens the log as [`open`](FileStore::open) does, on another disk.
    ///
    /// # Errors
    /// As [`open`](FileStore::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: &Path, options: &FileOptions) -> Result<FileStore> {
        options.validate(MIN_FILE_BYTES)?;
        FileStore::open_on_any(guarded(disk), path, options)
    }

    /// Opens the log as `open_on` does, but validates no option and does not guard the disk:
    /// segments may have any size that a log can have.
    pub(crate) fn open_on_any(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: &FileOptions,
    ) -> Result<FileStore> {
        let memory = Folder::memory(&disk)?;
        if memory.is_none() && options.buffer == BufferKind::Mapped {
            return Err(no_memory_folder());
        }
        let Opened { folder, lock, meta } = open::open(disk, path, options)?;
        let in_place = folder.handle().overwrites_in_place();
        let State { uuid, segment_bytes, codec, .. } = *meta.state();
        let shape = Shape {
            uuid,
            segment_bytes,
            codec,
            in_place,
            zero_fill: options.zero_fill,
            spare_segments: options.spare_segments,
            zero_steps: folder.disk().host().zero_steps(),
            max_bytes: options.max_bytes,
        };
        let segments = Arc::new(Segments::open(folder.clone(), shape, options.on_release.clone())?);
        let home = folder.handle().identity();
        let is_copy = meta.saved_origin().home != home || meta.is_copy();
        Ok(FileStore {
            memory,
            buffer: Mutex::new(None),
            buffer_kind: options.buffer,
            home,
            is_copy,
            begins_at: Mutex::new(None),
            folder,
            uuid,
            lock: Mutex::new(Some(lock)),
            meta: Mutex::new(meta),
            preparer: Preparer::new(Arc::clone(&segments)),
            segments,
        })
    }

    /// Returns the absolute path of the log's folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the segments. Refuses a forked child.
    fn own(&self) -> Result<&Segments> {
        self.segments.check_process().map(|()| self.segments.as_ref())
    }

    /// Makes the log buffer that the options ask for, or what comes next to it.
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

    /// Removes the buffers of earlier process runs. What stays takes memory, and nothing else.
    fn remove_old_buffers(&self) {
        if let (Some(memory), Some(buffer)) = (&self.memory, self.buffer.lock().as_ref()) {
            let _ = buffer_file::remove_others(memory, buffer);
        }
    }

    /// Closes the inherited descriptors of the locks in a forked child: the log stays locked for as
    /// long as any process has them. To unlock them would unlock the parent's log. Waits for no
    /// mutex, because a thread of the parent may have held it at the fork. The mapping keeps the
    /// lock of the log buffer's file, which costs memory until the child ends.
    fn leave_to_parent(&self) {
        drop(self.lock.try_lock().and_then(|mut lock| lock.take()));
    }

    /// Ends the preparer. From here on no write or sync of a segment can fail unseen.
    ///
    /// # Errors
    /// The first one that has failed.
    fn end_background_work(&self) -> Result<()> {
        self.preparer.stop();
        self.segments.check()
    }

    /// Syncs the segments and the names of a log in a folder that is a copy, because the copy may
    /// not have been synced. This comes after recovery has decided where the process run begins,
    /// and before the open reports anything.
    fn arrive(&self) -> Result<()> {
        if self.is_copy {
            self.segments.sync_all()?;
            open::sync_parent(&self.folder)?;
        }
        Ok(())
    }
}

fn no_memory_folder() -> Error {
    let text = "there is no memory file system for a log buffer that outlives the process; \
                expected a tmpfs at /dev/shm: mount one, or use BufferKind::Auto";
    Error::new(ErrorKind::Unsupported, text)
}

impl ReadStore for FileStore {
    fn state(&self) -> Result<State> {
        Ok(self.meta.lock().state().clone())
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        self.segments.list()
    }

    fn segments_from(&self, from: u64) -> Result<(Vec<u64>, Vec<Segment>)> {
        self.segments.list_from(from)
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        self.segments.read(at, into)
    }

    fn place(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn segment_place(&self, number: u64) -> String {
        self.folder.path().join(segment_name(number)).display().to_string()
    }
}

impl Store for FileStore {
    fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.own()?.write(at, pieces)?;
        // Before the call returns: then appends overwrite the ring's bytes. Until then the ring has
        // what was written, so a note before the write would do as well.
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut buffer = self.buffer.lock();
        buffer.as_mut().map_or(Ok(()), |buffer| buffer.note_written(at.plus(bytes as u64)))
    }

    fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.own()?.sync(from, to)
    }

    fn mark_durable(&self, durable: Lsn) -> Result<()> {
        self.own()?;
        let mut buffer = self.buffer.lock();
        buffer.as_mut().map_or(Ok(()), |buffer| buffer.note_durable(durable))
    }

    fn prepared(&self) -> Lsn {
        self.segments.prepared()
    }

    fn prepare(&self, to: Lsn) -> Result<()> {
        if self.own()?.prepare(to)? {
            self.preparer.was_late();
        }
        Ok(())
    }

    fn files_taken(&self) -> Result<FilesTaken> {
        self.own()?.files_taken()
    }

    fn exceed_limit_below(&self, to: Lsn) {
        self.segments.exceed_limit_below(to);
    }

    fn prepare_ahead(&self, tail: Lsn) {
        if self.segments.is_own() {
            self.preparer.follow(tail);
        }
    }

    fn save_state(&self, state: &State) -> Result<()> {
        self.own()?.check_in_place()?;
        if state.clean {
            self.end_background_work()?;
            self.segments.remove_failed_spares()?;
        }
        let mut meta = self.meta.lock();
        match meta.save(state) {
            // Without the state nothing can be freed.
            Err(error) if error.kind() == ErrorKind::NoSpace && self.segments.give_up_reserve() => {
                meta.save(state)?;
            }
            saved => saved?,
        }
        drop(meta);
        if let Some(tail) = self.begins_at.lock().take() {
            // Not before: the state says now that a write or sync of this process may fail.
            self.preparer.start(tail);
            self.remove_old_buffers();
        }
        Ok(())
    }

    fn release(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.own()?.release(from, to)
    }

    fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.own()?.discard(from, to)
    }

    fn begin_epoch(&self, epoch: &Epoch, first: &[u8]) -> Result<()> {
        let is_running = self.own()?.has_epoch();
        if !is_running {
            self.arrive()?;
        }
        self.segments.begin(epoch, first, is_running)
    }

    fn resume_epoch(&self, epoch: &Epoch, from: Lsn) -> Result<()> {
        self.own()?;
        self.arrive()?;
        self.segments.resume(epoch, from)
    }

    fn old_buffer(&self) -> Result<OldBuffer> {
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

    fn renew_buffer(&self, epoch: u64, buffer_bytes: usize, durable: Lsn) -> Result<Memory> {
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

    fn move_tail(
        &self,
        epoch: &Epoch,
        from: Lsn,
        to: Lsn,
        source: &mut TailSource<'_>,
    ) -> Result<()> {
        self.own()?.move_tail(epoch, from, to, source)
    }

    fn pass_buffer_on(&self, epoch: u64) -> Result<()> {
        self.own()?;
        self.buffer.lock().as_mut().map_or(Ok(()), |buffer| buffer.pass_on(epoch))
    }

    fn empty_buffer(&self) {
        // A sync of the preparer that failed may have taken what the leader wrote: the ring has it.
        if self.segments.is_own()
            && self.end_background_work().is_ok()
            && let Some(buffer) = self.buffer.lock().as_mut()
        {
            buffer.empty();
        }
    }

    fn random(&self) -> Result<u64> {
        let drawn = self.folder.disk().host().random();
        drawn.map_err(|error| Error::io("draw a random number", error).at_path(self.path()))
    }

    fn writes_behind(&self) -> bool {
        self.folder.disk().host().writes_behind()
    }

    fn close(&self) {
        if !self.segments.is_own() {
            return self.leave_to_parent();
        }
        self.preparer.stop();
        // A log that was closed needs none, and one whose open failed has put nothing into it.
        let is_unneeded = self.meta.lock().state().clean || self.begins_at.lock().is_some();
        if is_unneeded && let Some(buffer) = self.buffer.lock().as_ref() {
            // One that stays takes memory until the next open.
            let _ = buffer.remove();
        }
        if let Some(lock) = self.lock.lock().take() {
            lock.unlock();
        }
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.close();
    }
}

//! The store on files.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use palisade_core::store::{Epoch, OldBuffer, ReadStore, Segment, State, Store};
use palisade_core::{Error, ErrorKind, Lsn, Memory, Result, Uuid};
use parking_lot::Mutex;

use crate::boot::BootId;
use crate::buffer_file::{self, RingHeader, SyncLine};
use crate::folder::{BUFFER, Folder, LOCK, META};
use crate::fs::{Access, Disk, DiskFile};
use crate::fs_os::OsDisk;
use crate::meta::MetaFile;
use crate::open::{self, Opened};
use crate::options::{BufferKind, FileOptions, MIN_FILE_BYTES, SyncMethod};
use crate::prepare::Preparer;
use crate::segments::{Segments, Shape};

/// Direct writes that run at the same time at most: a device takes more, but by then a commit has
/// company enough (docs/decisions/0017-direct-flushing.md).
const MOST_IN_FLIGHT: usize = 4;

/// A log in a folder of its own.
///
/// | file | what it is |
/// |---|---|
/// | `lock` | empty; locked as long as the log is open for writing |
/// | `meta` | the log's [`State`], in two checksummed copies |
/// | `buffer` | the log buffer, where it is mapped, and the sync line |
/// | `segment-<number>` | a header block of 4096 bytes, then the log's bytes |
/// | `spare-<number>` | a file that becomes a segment; what it holds is never read |
///
/// Files are zeroed ahead of the tail and recycled when they are released, because overwriting
/// written blocks syncs faster than growing a file. On file systems that are not known to
/// overwrite in place the store does neither, keeps the log buffer on the heap, and has no sync
/// line.
///
/// Dropping the store does what [`close`](Store::close) does.
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
    lock: Box<dyn DiskFile>,
    meta: Mutex<MetaFile>,
    line: Mutex<Option<SyncLine>>,
    // The buffer file's first block, once an epoch runs.
    ring: Mutex<Option<RingHeader>>,
    buffer: BufferKind,
    in_place: bool,
    writes_in_flight: usize,
    boot: Option<BootId>,
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
    ///   missing; or there is no folder to make the folder in.
    /// - `AlreadyExists`: there is a log, and
    ///   [`CreateNew`](crate::OpenMode::CreateNew) was asked for.
    /// - `Foreign`: the path is a file, or the folder holds something else.
    /// - `Unsupported`: a later version of Palisade wrote the log.
    /// - `Mismatch`: the log has segments of another size, or the archive is another log's.
    /// - `Corrupt`: neither copy of the state validates.
    /// - `Locked`: the log is open already.
    /// - `PermissionDenied`, `NoSpace`, `Io`: what the operating system said.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<FileStore> {
        options.validate(MIN_FILE_BYTES)?;
        FileStore::open_on(Arc::new(OsDisk), path.as_ref(), options)
    }

    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: &FileOptions,
    ) -> Result<FileStore> {
        let Opened { folder, lock, meta, archive } = open::open(disk, path, options)?;
        let in_place = folder.disk().overwrites_in_place(path);
        let State { uuid, segment_bytes, .. } = *meta.state();
        let shape = Shape {
            uuid,
            segment_bytes,
            in_place,
            zero_fill: options.zero_fill,
            spare_segments: options.spare_segments,
            zero_steps: folder.disk().zero_steps(),
        };
        let segments = Arc::new(Segments::open(folder.clone(), shape, archive)?);
        let is_direct = in_place
            && meta.method() == SyncMethod::Direct
            && folder.open(META, Access::Direct).is_ok();
        Ok(FileStore {
            // Without the sync line, a boot id has nothing to vouch for.
            boot: folder.disk().boot_id().filter(|_| in_place),
            folder,
            uuid,
            lock,
            meta: Mutex::new(meta),
            line: Mutex::new(None),
            ring: Mutex::new(None),
            buffer: options.buffer,
            in_place,
            writes_in_flight: if is_direct { MOST_IN_FLIGHT } else { 1 },
            preparer: Preparer::new(Arc::clone(&segments)),
            segments,
        })
    }

    /// The log's folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// How the log's commits reach the medium; never [`Auto`](SyncMethod::Auto). Where
    /// [`Direct`](SyncMethod::Direct) is not possible the log has it, and does as with
    /// [`DataSync`](SyncMethod::DataSync).
    #[must_use]
    pub fn sync_method(&self) -> SyncMethod {
        self.meta.lock().method()
    }

    fn is_mapped(&self) -> bool {
        match self.buffer {
            BufferKind::Auto => self.in_place,
            BufferKind::Heap => false,
            BufferKind::Mapped => true,
        }
    }
}

impl ReadStore for FileStore {
    fn state(&self) -> Result<State> {
        Ok(self.meta.lock().state().clone())
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        self.segments.list()
    }

    fn segment_numbers(&self) -> Result<Option<Vec<u64>>> {
        self.segments.numbers().map(Some)
    }

    fn segment(&self, number: u64) -> Result<Option<Segment>> {
        self.segments.look(number)
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        self.segments.read(at, into)
    }

    fn place(&self) -> String {
        self.folder.path().display().to_string()
    }
}

impl Store for FileStore {
    fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.segments.write(at, pieces)
    }

    fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        // G6: lack of space that shows this late has lost bytes of the page cache.
        let poisoning = |error: Error| match error.kind() {
            ErrorKind::NoSpace => error.with_kind(ErrorKind::Io),
            _ => error,
        };
        self.segments.sync(from, to).map_err(poisoning)
    }

    fn writes_in_flight(&self) -> usize {
        self.writes_in_flight
    }

    fn write_durable(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.segments.write_durable(at, pieces)
    }

    fn mark_durable(&self, durable: Lsn) -> Result<()> {
        self.segments.close_below(durable);
        let mut line = self.line.lock();
        let marked = line.as_mut().map_or(Ok(()), |line| line.mark(durable));
        marked.map_err(|error| self.folder.error("note the durable LSN", BUFFER, error))
    }

    fn prepared(&self) -> Lsn {
        self.segments.prepared()
    }

    fn prepare(&self, to: Lsn) -> Result<()> {
        if self.segments.prepare(to)? {
            self.preparer.was_late();
        }
        Ok(())
    }

    fn prepare_ahead(&self, tail: Lsn) {
        self.preparer.follow(tail);
    }

    fn save_state(&self, state: &State) -> Result<()> {
        self.meta.lock().save(state)
    }

    fn release(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.segments.release(from, to)?
    }

    fn archives(&self) -> bool {
        self.segments.archives()
    }

    fn release_at_open(&self, from: Lsn, to: Lsn) -> Result<()> {
        // What the archive said is told by the next truncation: the segments are still there.
        self.segments.release(from, to).map(drop)
    }

    fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.segments.discard(from, to)
    }

    fn begin_epoch(&self, epoch: &Epoch) -> Result<()> {
        let is_running = self.ring.lock().is_some();
        if !is_running {
            self.segments.make_archive()?;
        }
        self.segments.begin(epoch, is_running)
    }

    fn resume_epoch(&self, epoch: &Epoch, from: Lsn) -> Result<()> {
        self.segments.make_archive()?;
        self.segments.resume(epoch, from)
    }

    fn old_buffer(&self) -> Result<OldBuffer> {
        buffer_file::read_old(&self.folder, self.uuid, self.boot)
    }

    fn renew_buffer(&self, epoch: u64, buffer_bytes: usize, durable: Lsn) -> Result<Memory> {
        let ring_bytes = if self.is_mapped() { buffer_bytes } else { 0 };
        let header = RingHeader { uuid: self.uuid, epoch, ring_bytes, boot: self.boot };
        let (memory, line) = buffer_file::renew(&self.folder, &header, durable)?;
        *self.line.lock() = line;
        *self.ring.lock() = Some(header);
        // Not before: while an open makes an epoch, it alone takes space and the spare.
        self.preparer.start(durable);
        Ok(if ring_bytes == 0 { Memory::heap(buffer_bytes) } else { memory })
    }

    fn move_to_fresh_blocks(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.segments.move_to_fresh_blocks(from, to)
    }

    fn pass_buffer_on(&self, epoch: u64) -> Result<()> {
        let mut ring = self.ring.lock();
        let Some(header) = ring.as_mut() else {
            return Err(Error::new(ErrorKind::Io, "there is no buffer to be passed on"));
        };
        header.epoch = epoch;
        buffer_file::relabel(&self.folder, header)
    }

    fn random(&self) -> u64 {
        // Salts need to differ, not to be secret: std's keys come from the system, too.
        self.folder.disk().random().unwrap_or_else(|_| RandomState::new().hash_one(LOCK))
    }

    fn close(&self) {
        self.preparer.stop();
        // Closing the file gives the lock back in any case.
        let _ = self.lock.unlock();
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.close();
    }
}

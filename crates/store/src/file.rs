//! The store on files.

mod buffer;

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use self::buffer::no_memory_folder;
use crate::buffer_file::BufferFile;
use crate::disk::OsDisk;
use crate::disk::{Disk, FolderIdentity, guarded};
use crate::folder::{Folder, segment_name};
use crate::meta::MetaFile;
use crate::open::{self, Lock, Opened};
use crate::options::{BufferKind, FileOptions, MIN_FILE_BYTES};
use crate::segment::preparer::Preparer;
use crate::segment::{Segments, Shape};
use crate::sync::Mutex;
use crate::{Epoch, FilesTaken, ReadStore, Segment, State, TailSource};
use crate::{Error, ErrorKind, Lsn, Result, Uuid};

/// A log in a folder of its own, whose files `docs/format.md` lists.
///
/// The open follows links in the folder's path, but never one in the folder. If the folder is
/// moved, removed or replaced meanwhile, the log is poisoned, and leaves the other folder alone.
///
/// The drop calls [`close`](FileStore::close). In a forked child, calls that change the log return
/// [`Forked`](ErrorKind::Forked).
#[derive(Debug)]
pub struct FileStore {
    folder: Folder,
    uuid: Uuid,
    /// `None` after a close.
    lock: Mutex<Option<Lock>>,
    meta: Mutex<MetaFile>,
    /// For log buffers; `None` without a memory file system.
    memory: Option<Folder>,
    buffer: Mutex<Option<BufferFile>>,
    buffer_kind: BufferKind,
    home: FolderIdentity,
    /// Whether another folder had the log before.
    is_copy: bool,
    /// Where the preparer begins after the first save.
    begins_at: Mutex<Option<Lsn>>,
    segments: Arc<Segments>,
    preparer: Preparer,
}

impl FileStore {
    /// Opens the log in the folder `path`, or makes it. A refused folder stays unchanged.
    ///
    /// # Errors
    /// Those of `Options::open`, except `OutOfRange`.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<FileStore> {
        FileStore::open_on(Arc::new(OsDisk), path.as_ref(), options)
    }

    /// As [`open`](FileStore::open), on another disk.
    ///
    /// # Errors
    /// As [`open`](FileStore::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: &Path, options: &FileOptions) -> Result<FileStore> {
        options.validate(MIN_FILE_BYTES)?;
        FileStore::open_on_any(guarded(disk), path, options)
    }

    /// As `open_on`, but without a guard of the disk or a check of the options: segments may have
    /// any size of a log.
    ///
    /// # Errors
    /// As [`open`](FileStore::open).
    pub fn open_on_any(
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

    /// Returns the folder's absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Refuses a forked child.
    fn own(&self) -> Result<&Segments> {
        self.segments.check_process().map(|()| self.segments.as_ref())
    }

    /// Closes a forked child's descriptors of the locks. Does not unlock the parent's log, and
    /// waits for no mutex, because a thread of the parent may have held it at the fork. The mapping
    /// keeps the lock of the log buffer's file, which costs memory until the child ends.
    fn leave_to_parent(&self) {
        drop(self.lock.try_lock().and_then(|mut lock| lock.take()));
    }

    /// Ends the preparer, so that no later write or sync of a segment fails unseen.
    fn end_background_work(&self) -> Result<()> {
        self.preparer.stop();
        self.segments.check()
    }

    /// Syncs a copied folder.
    fn arrive(&self) -> Result<()> {
        if self.is_copy {
            self.segments.sync_all()?;
            open::sync_parent(&self.folder)?;
        }
        Ok(())
    }
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

/// What a log asks of its store. `write` may run beside `sync`, `read`, `save_state` and `release`.
/// Calls block on the device unless this list says otherwise:
///
/// - The thread with the write lock calls `write` and `prepare`, which may block, and
///   `prepare_ahead`, which blocks only on a simulated disk.
/// - The leader calls `sync` and `mark_durable`, one at a time.
/// - Truncations, `checkpoint`, `close` and `open` call `save_state` and `release`, one at a time.
/// - `open` calls `begin_epoch`, `old_buffer`, `renew_buffer` and `move_tail` before any append.
/// - A truncation of the suffix calls `begin_epoch` while appends wait, `pass_buffer_on` while no
///   write runs, `discard`, and `exceed_limit_below`, which never blocks.
impl FileStore {
    /// Writes `pieces`, in order, at `at`, below [`prepared`](FileStore::prepared); may cross
    /// segment ends. After `Ok` the bytes survive a kill, but not power loss.
    ///
    /// # Errors
    /// After `NoSpace` and `NoFiles` the log writes the range again. Other kinds poison it.
    pub fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.own()?.write(at, pieces)?;
        // Before the call returns: then appends overwrite the ring's bytes.
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut buffer = self.buffer.lock();
        buffer.as_mut().map_or(Ok(()), |buffer| buffer.note_written(at.plus(bytes as u64)))
    }

    /// Makes `[from, to)` survive power loss, oldest segment first.
    ///
    /// # Errors
    /// `NoFiles`: no sync has failed, so call again. Other kinds poison the log.
    pub fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.own()?.sync(from, to)
    }

    /// Notes in the log buffer's file that all below `durable` was synced. The leader publishes the
    /// watermark afterwards.
    ///
    /// # Errors
    /// After `NoSpace` a later call notes as much or more, but a truncation poisons the log. Other
    /// kinds always do.
    pub fn mark_durable(&self, durable: Lsn) -> Result<()> {
        self.own()?;
        let mut buffer = self.buffer.lock();
        buffer.as_mut().map_or(Ok(()), |buffer| buffer.note_durable(durable))
    }

    /// Returns up to where `write` needs no [`prepare`](FileStore::prepare).
    pub fn prepared(&self) -> Lsn {
        self.segments.prepared()
    }

    /// Makes segments of the running epoch until `prepared() >= to`. A segment's header is durable
    /// before it has its number.
    ///
    /// # Errors
    /// `NoSpace`, `NoFiles`: call again. Other kinds poison the log.
    pub fn prepare(&self, to: Lsn) -> Result<()> {
        if self.own()?.prepare(to)? {
            self.preparer.was_late();
        }
        Ok(())
    }

    /// Counts the files.
    ///
    /// # Errors
    /// `Io`.
    pub fn files_taken(&self) -> Result<FilesTaken> {
        self.own()?.files_taken()
    }

    /// Lets `prepare` exceed `max_bytes` below `to`: a truncation of the suffix waits for these
    /// bytes, and frees space afterwards.
    pub fn exceed_limit_below(&self, to: Lsn) {
        self.segments.exceed_limit_below(to);
    }

    /// Hints that the tail is at `tail`, so that the store prepares space in the background, at
    /// most eight segments ahead. `prepare` returns the failures.
    pub fn prepare_ahead(&self, tail: Lsn) {
        if self.own().is_ok() {
            self.preparer.follow(tail);
        }
    }

    /// Saves the state durably.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: a later open finds the old or the new state.
    pub fn save_state(&self, state: &State) -> Result<()> {
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

    /// Recycles or removes each segment wholly in `[from, to)`, which is below the head, or between
    /// an epoch's end and the next base.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, those of `on_release`. A later call frees the segments that stay.
    pub fn release(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.own()?.release(from, to)
    }

    /// Removes each segment wholly in `[from, to)`, whose records were truncated.
    ///
    /// # Errors
    /// As [`release`](FileStore::release).
    pub fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.own()?.discard(from, to)
    }

    /// Begins an epoch: makes its first segment durable, with the log's bytes `first`, then names
    /// it.
    ///
    /// # Errors
    /// - `NoSpace`, `NoFiles`, or `OutOfRange` if the base is below
    ///   [`prepared`](FileStore::prepared): the epoch has not begun, also for the next open.
    /// - Other kinds: only the next open shows whether it has begun.
    pub fn begin_epoch(&self, epoch: &Epoch, first: &[u8]) -> Result<()> {
        let is_running = self.own()?.has_epoch();
        if !is_running {
            self.arrive()?;
        }
        self.segments.begin(epoch, first, is_running)
    }

    /// Continues `epoch` from `from` on. `prepared()` becomes the end of the consecutive segments
    /// from `from` on, or the start of its segment if that is missing.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: nothing was changed.
    pub fn resume_epoch(&self, epoch: &Epoch, from: Lsn) -> Result<()> {
        self.own()?;
        self.arrive()?;
        self.segments.resume(epoch, from)
    }

    /// Copies `[from, to)` into new files, oldest segment first. The file of each segment of
    /// `epoch` with bytes in the range gets the old file's bytes below `from`, then what `source`
    /// gives, and is synced before it takes the segment's name. After `Ok` all is durable.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, those of `source`. The bytes read as before.
    pub fn move_tail(
        &self,
        epoch: &Epoch,
        from: Lsn,
        to: Lsn,
        source: &mut TailSource<'_>,
    ) -> Result<()> {
        self.own()?.move_tail(epoch, from, to, source)
    }

    /// Returns 64 random bits, for salts.
    ///
    /// # Errors
    /// `Io`.
    pub fn random(&self) -> Result<u64> {
        let drawn = self.folder.disk().host().random();
        drawn.map_err(|error| Error::io("draw a random number", error).at_path(self.path()))
    }

    /// As `Host::writes_behind`.
    pub fn writes_behind(&self) -> bool {
        self.folder.disk().host().writes_behind()
    }

    /// Ends background work and unlocks the log. Afterwards only reads, `place`, `prepare_ahead`
    /// and this call are made.
    ///
    /// A forked child calls it in each call and drop. It then only closes the descriptors that
    /// would keep the log locked after the parent's death.
    pub fn close(&self) {
        if !self.segments.is_own() {
            return self.leave_to_parent();
        }
        self.preparer.stop();
        // A closed log needs none, and one whose open failed has put nothing into it.
        let is_unneeded = self.meta.lock().state().clean || self.begins_at.lock().is_some();
        if is_unneeded && let Some(buffer) = self.buffer.lock().as_ref() {
            // Otherwise it takes memory until the next open.
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

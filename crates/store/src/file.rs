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
/// Dropping the store does what [`close`](FileStore::close) does. In a forked child both only close
/// the descriptors of the locks, and calls that change the log give [`Forked`](ErrorKind::Forked).
///
/// ```
/// use palisade_store::ReadStore;
/// use palisade_store::{FileOptions, FileStore};
/// # let temp = tempfile::tempdir().unwrap();
/// # let folder = temp.path().join("log");
/// let store = FileStore::open(&folder, &FileOptions::default())?;
/// assert!(store.state()?.clean);
/// # Ok::<(), palisade_store::Error>(())
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

    /// Returns the absolute path of the log's folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the segments. Refuses a forked child.
    fn own(&self) -> Result<&Segments> {
        self.segments.check_process().map(|()| self.segments.as_ref())
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
///
/// | call | who calls it | blocks on the device |
/// |---|---|---|
/// | `write`, `prepare` | the thread that holds the write lock | may |
/// | `prepare_ahead` | the same, after each write | never |
/// | `sync`, `mark_durable` | the leader, one at a time | yes |
/// | `save_state`, `release` | truncation, `checkpoint`, `close`, `open`, one at a time | yes |
/// | `begin_epoch` | `open`, before any append; truncation of the suffix, appends wait | yes |
/// | `old_buffer`, `renew_buffer`, `move_tail` | `open`, before any append | yes |
/// | `exceed_limit_below` | truncation of the suffix | never |
/// | `pass_buffer_on`, `discard` | truncation of the suffix; no write beside the first | yes |
impl FileStore {
    /// Writes `pieces`, one after the other, at `at`. The range may cross segment ends; all of
    /// it lies below [`prepared`](FileStore::prepared).
    ///
    /// After `Ok` the bytes survive the death of the process, but not of the operating system.
    ///
    /// # Errors
    /// `NoSpace` if space is lacking, `NoFiles` if a file descriptor is: the log keeps the bytes
    /// and writes the same range again later. Any other kind poisons the log.
    pub fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.own()?.write(at, pieces)?;
        // Before the call returns: then appends overwrite the ring's bytes. Until then the ring has
        // what was written, so a note before the write would do as well.
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut buffer = self.buffer.lock();
        buffer.as_mut().map_or(Ok(()), |buffer| buffer.note_written(at.plus(bytes as u64)))
    }

    /// Makes `[from, to)` survive power loss: syncs every segment in the range, oldest
    /// first.
    ///
    /// # Errors
    /// `NoFiles`: no sync has failed, because one could not be tried; the call can be made again.
    /// Every other error poisons the log.
    pub fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.own()?.sync(from, to)
    }

    /// Notes in memory that survives the process, not the operating system, that everything
    /// below `durable` has been synced. Called before the watermark is published.
    ///
    /// # Errors
    /// After a `NoSpace` a later call notes as much or more. Every other error poisons the log, and
    /// in a truncation `NoSpace`, too.
    pub fn mark_durable(&self, durable: Lsn) -> Result<()> {
        self.own()?;
        let mut buffer = self.buffer.lock();
        buffer.as_mut().map_or(Ok(()), |buffer| buffer.note_durable(durable))
    }

    /// Returns the exclusive end of the addresses that can be written without
    /// [`prepare`](FileStore::prepare).
    pub fn prepared(&self) -> Lsn {
        self.segments.prepared()
    }

    /// Makes segments of the running epoch ready, in order, until `prepared() >= to`. A segment
    /// gets its number only when its header is durable.
    ///
    /// # Errors
    /// `NoSpace` if space is lacking, `NoFiles` if a file descriptor is; nothing is lost and the
    /// call can be made again. Any other kind poisons the log.
    pub fn prepare(&self, to: Lsn) -> Result<()> {
        if self.own()?.prepare(to)? {
            self.preparer.was_late();
        }
        Ok(())
    }

    /// Returns the files that segments and spares take. The default has none.
    ///
    /// # Errors
    /// `Io` if they cannot be listed.
    pub fn files_taken(&self) -> Result<FilesTaken> {
        self.own()?.files_taken()
    }

    /// Lets `prepare` make the segments that begin below `to` although they pass a limit to the
    /// space: a truncation of the suffix waits for the bytes below `to`, and frees space
    /// afterwards. The default has no limit.
    pub fn exceed_limit_below(&self, to: Lsn) {
        self.segments.exceed_limit_below(to);
    }

    /// Hints that the tail has come to `tail`: the store may prepare space in the background, at
    /// most eight segments ahead. Never fails: `prepare` returns what went wrong. Does not block,
    /// except on a simulated disk, which may do the work at once.
    pub fn prepare_ahead(&self, tail: Lsn) {
        if self.segments.is_own() {
            self.preparer.follow(tail);
        }
    }

    /// Saves the state: when this returns, the new one survives power loss; if it is
    /// interrupted, the old or the new one does.
    ///
    /// # Errors
    /// `NoSpace` or `Io`: a later open finds the old or the new state.
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

    /// Frees every segment that lies wholly in `[from, to)`: recycled or deleted. All of the range
    /// lies below the head, or between the end of one epoch and the base of the next.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, and what a callback for released segments gives. Segments that could not be
    /// freed stay and are freed by a later call.
    pub fn release(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.own()?.release(from, to)
    }

    /// Frees every segment that lies wholly in `[from, to)`, whose records were truncated: they are
    /// never read again. A thread of the store may have been at work in them.
    ///
    /// # Errors
    /// As [`release`](FileStore::release).
    pub fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.own()?.discard(from, to)
    }

    /// Begins an epoch: makes its first segment durable, first the header and the bytes `first`,
    /// then the name. The log's bytes of the segment begin with `first`. The segments that
    /// `prepare` makes later belong to this epoch.
    ///
    /// # Errors
    /// `NoSpace`, `NoFiles`: the epoch has not begun, and will not have at the next open.
    /// `OutOfRange`: as `NoSpace`; the base lies below [`prepared`](FileStore::prepared). Any other
    /// kind: only the next open shows whether it has begun.
    pub fn begin_epoch(&self, epoch: &Epoch, first: &[u8]) -> Result<()> {
        let is_running = self.own()?.has_epoch();
        if !is_running {
            self.arrive()?;
        }
        self.segments.begin(epoch, first, is_running)
    }

    /// Goes on in the epoch that `epoch` names, from `from` on: `prepared()` becomes the end of
    /// the run of segments that begins with `from`'s, or the start of that segment if it is
    /// missing, and `prepare` makes segments of this epoch.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; nothing was changed.
    pub fn resume_epoch(&self, epoch: &Epoch, from: Lsn) -> Result<()> {
        self.own()?;
        self.arrive()?;
        self.segments.resume(epoch, from)
    }

    /// Puts the log's bytes in `[from, to)` into files in which no write or sync has failed.
    ///
    /// Each segment of `epoch` with bytes in the range becomes a new file: the old one's bytes
    /// below `from`, then what `source` gives. The new file is synced before it takes the segment's
    /// name, oldest segment first, and everything survives power loss when this returns. Recovery
    /// calls it where a write or sync of these bytes may have failed since the operating system was
    /// started: they read right then, and neither they nor a later write to the same file need be
    /// on the medium.
    ///
    /// # Errors
    /// `NoSpace` or `Io`, and those of `source`. The bytes read as before.
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
    /// `Io`: the source has none.
    pub fn random(&self) -> Result<u64> {
        let drawn = self.folder.disk().host().random();
        drawn.map_err(|error| Error::io("draw a random number", error).at_path(self.path()))
    }

    /// Returns whether a background thread of the log may write complete pieces. If not, the append
    /// that completes a piece writes it, so that runs can be repeated.
    pub fn writes_behind(&self) -> bool {
        self.folder.disk().host().writes_behind()
    }

    /// Ends background work and lets another open have the log. Afterwards only reads, `place`,
    /// `prepare_ahead` and this call are made.
    ///
    /// A forked child calls it in each call and drop of its own. There it closes the descriptors
    /// that would keep the log locked after the death of the parent, and does nothing else. It must
    /// not wait.
    pub fn close(&self) {
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

//! Reading a log beside the process that writes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::buffer_file;
use crate::disk::OsDisk;
use crate::disk::{Access, Disk, DiskFile, guarded};
use crate::folder::{Folder, LOCK, segment_name};
use crate::meta::rebuilt;
use crate::meta::{self, Meta};
use crate::open;
use crate::segment::list::{check_header, listed};
use crate::segment::segment_file::SegmentFile;
use crate::{Error, ErrorKind, Lsn, Result, Uuid};
use crate::{ReadStore, Segment, State};

/// Where a log's buffer lies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferPlace {
    /// Nowhere: the log was closed.
    None,
    /// On the heap of the process that writes the log.
    Heap,
    /// On the heap, too. This file in a tmpfs notes how far the log is durable.
    Marks(PathBuf),
    /// In this file in a tmpfs, a shared log buffer: an append survives the death of the process.
    Memory(PathBuf),
    /// Nowhere: the file that the meta file names is gone, or belongs to a log in another folder,
    /// of which this one is a copy.
    Gone,
}

/// A log in a folder, for reading only: takes no lock that a writer would notice, never writes,
/// and reads of the log buffer only its mark of what is durable.
///
/// Each call looks at the folder anew, because a writer may be at work in it. A segment that is
/// freed while it is read gives other bytes, which no checksum of its records matches.
#[derive(Debug)]
pub struct FileReader {
    folder: Folder,
    uuid: Uuid,
    segment_bytes: u64,
    is_rebuilt: bool,
}

impl FileReader {
    /// Finds the log in the folder `path`. If its meta file is missing, or has no copy that
    /// validates, the headers of the segments give the state: see
    /// [`has_rebuilt_state`](FileReader::has_rebuilt_state).
    ///
    /// # Errors
    /// `InvalidArgument` if the path is empty, `NotFound` if there is nothing, `Foreign` if
    /// there is something else, `Unsupported` if a later version of Palisade wrote it, `Corrupt`
    /// if neither copy of the state nor any segment's header validates, `PermissionDenied`,
    /// `NoFiles` and `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<FileReader> {
        FileReader::open_on(Arc::new(OsDisk), path.as_ref())
    }

    /// Finds the log as [`open`](FileReader::open) does, on another disk.
    ///
    /// # Errors
    /// As [`open`](FileReader::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: &Path) -> Result<FileReader> {
        let (folder, state, is_rebuilt) = open::find_log(guarded(disk), path)?;
        let State { uuid, segment_bytes, .. } = state;
        Ok(FileReader { folder, uuid, segment_bytes, is_rebuilt })
    }

    /// Returns whether the state comes from the segments' headers, because the meta file is missing
    /// or has no copy that validates. Such a state has the start of the lowest segment as its head,
    /// no checkpoint and no clean end. [`FileStore::open`](crate::FileStore::open) refuses such a
    /// log.
    #[must_use]
    pub fn has_rebuilt_state(&self) -> bool {
        self.is_rebuilt
    }

    /// Returns whether one of the two copies of the state in the meta file does not validate or
    /// cannot be read.
    ///
    /// # Errors
    /// `PermissionDenied`, `NoFiles`, `Io`: the file cannot be opened.
    pub fn has_damaged_copy(&self) -> Result<bool> {
        meta::has_damaged_copy(&self.folder)
    }

    /// Refuses a copy of a log that an open could not sync. Opens refuse it, too.
    ///
    /// # Errors
    /// `Foreign`: it is such a copy. `PermissionDenied`, `NoFiles`, `Io`.
    pub fn check_synced(&self) -> Result<()> {
        open::check_synced(&self.folder)
    }

    /// Returns whether a process has the log open for writing right now.
    ///
    /// # Errors
    /// `Foreign`: the file `lock` is a link, a FIFO or a folder. `PermissionDenied`, `NoFiles`,
    /// `Io`.
    pub fn has_writer(&self) -> Result<bool> {
        let locked = self.lock_out_writers().map(drop);
        // The locks go back at once: that of the file with the file.
        self.folder.handle().unlock();
        match locked {
            Err(error) if error.kind() == ErrorKind::Locked => Ok(true),
            locked => locked.map(|()| false),
        }
    }

    /// Takes the locks of the log, shared; that of its folder as long as this reader exists. `None`
    /// where it has no lock file, which an open would make.
    ///
    /// # Errors
    /// `Locked`: a process writes the log. As [`has_writer`](FileReader::has_writer).
    pub fn lock_out_writers(&self) -> Result<Option<Box<dyn DiskFile>>> {
        if !self.folder.handle().try_lock(true) {
            return Err(self.written_meanwhile());
        }
        let Some(lock) = self.folder.open_if_there(LOCK, Access::Read)? else { return Ok(None) };
        let taken = lock.try_lock(true);
        match taken.map_err(|error| self.folder.error("lock the log", LOCK, error))? {
            true => Ok(Some(lock)),
            false => Err(self.written_meanwhile()),
        }
    }

    /// Refuses a log that was written to since its `state` was read. Without a lock file nothing
    /// has kept a writer out.
    ///
    /// # Errors
    /// As [`lock_out_writers`](FileReader::lock_out_writers).
    pub fn check_unchanged(&self, is_locked: bool, state: &State) -> Result<()> {
        if !is_locked {
            self.lock_out_writers()?;
        }
        if self.state()? == *state { Ok(()) } else { Err(self.written_meanwhile()) }
    }

    fn written_meanwhile(&self) -> Error {
        let text = "the log is open for writing elsewhere, or was since the copy began";
        Error::new(ErrorKind::Locked, text).at_path(self.folder.path())
    }

    /// Returns where the log buffer lies.
    ///
    /// # Errors
    /// `NotFound`, `Foreign`, `Corrupt`: the meta file, which alone names the log buffer, is
    /// missing, or has no copy that validates. `Unsupported`, `NoFiles`, `PermissionDenied`, `Io`:
    /// it cannot be read.
    pub fn buffer(&self) -> Result<BufferPlace> {
        let meta = self.meta()?;
        if meta.state.clean {
            return Ok(BufferPlace::None);
        }
        let folder = Folder::memory(self.folder.shared_disk())?;
        let (Some(buffer), Some(folder)) = (meta.origin.buffer, folder) else {
            return Ok(BufferPlace::Heap);
        };
        let home = self.folder.handle().identity();
        if !buffer_file::may_be_of(&folder, self.uuid, home, buffer.name)? {
            return Ok(BufferPlace::Gone);
        }
        let path = folder.path().join(buffer_file::file_name(self.uuid, buffer.name));
        Ok(if buffer.has_ring { BufferPlace::Memory(path) } else { BufferPlace::Marks(path) })
    }

    /// Returns the greatest LSN that the marks of the log's buffer note; 0 without a buffer or a
    /// meta file that names one.
    ///
    /// # Errors
    /// As [`buffer`](FileReader::buffer).
    pub fn noted_in_the_buffer(&self) -> Result<Lsn> {
        if self.is_rebuilt {
            return Ok(Lsn::ZERO);
        }
        let meta = self.meta()?;
        match (meta.origin.buffer, Folder::memory(self.folder.shared_disk())?) {
            (Some(buffer), Some(memory)) => buffer_file::noted(&memory, self.uuid, buffer.name),
            _ => Ok(Lsn::ZERO),
        }
    }

    /// Returns the log's folder.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns what the meta file says.
    ///
    /// # Errors
    /// As [`buffer`](FileReader::buffer).
    pub fn meta(&self) -> Result<Meta> {
        let found = meta::read(&self.folder)?;
        let gone = || {
            let text = "the log has lost its meta file";
            let error = Error::new(ErrorKind::NotFound, text).at_path(self.folder.path());
            error.with_advice(meta::LOST_META)
        };
        found.ok_or_else(gone)
    }
}

impl ReadStore for FileReader {
    fn state(&self) -> Result<State> {
        if !self.is_rebuilt {
            return self.meta().map(|meta| meta.state);
        }
        rebuilt::state_of(&self.folder)?.ok_or_else(|| {
            let text = "no segment of the log is left";
            Error::new(ErrorKind::NotFound, text).at_path(self.folder.path())
        })
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        let mut segments = Vec::new();
        for number in self.folder.segment_numbers(self.segment_bytes)? {
            // One that was freed between the listing and this look is none.
            let Some(block) = self.folder.header_block(number).transpose() else { continue };
            segments.push(listed(number, block, |block| {
                check_header(&self.folder, block, self.uuid, self.segment_bytes, number)
            })?);
        }
        Ok(segments)
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let (number, offset) = (at.segment(self.segment_bytes), at.as_u64() % self.segment_bytes);
        let name = segment_name(number);
        let Some(file) = self.folder.open_if_there(&name, Access::Read)? else {
            return Ok(0);
        };
        let file = SegmentFile::new(file, self.segment_bytes);
        let read = file.and_then(|file| file.read(offset, into));
        read.map_err(|error| {
            let error = self.folder.error("read the segment", &name, error);
            error.at_segment(number).at_lsn(at)
        })
    }

    fn noted_durable(&self) -> Option<(u64, Lsn)> {
        let Meta { state, origin, .. } = self.meta().ok()?;
        let name = origin.buffer.filter(|_| !state.clean)?.name;
        let memory = Folder::memory(self.folder.shared_disk()).ok()??;
        buffer_file::noted_durable(&memory, self.uuid, self.folder.handle().identity(), name)
    }

    fn place(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn segment_place(&self, number: u64) -> String {
        self.folder.path().join(segment_name(number)).display().to_string()
    }
}

//! Reading a log, also beside its writer.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Access, Disk, DiskFile, OsDisk, guarded};
use crate::folder::{Folder, LOCK, segment_name};
use crate::meta::{self, Meta, rebuilt};
use crate::segment::header::{check_header, listed};
use crate::segment::segment_file::SegmentFile;
use crate::{Error, ErrorKind, Lsn, Result, Segment, State, Uuid, buffer_file, open};

/// Where a log's buffer is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferPlace {
    /// Nowhere, because the log was closed.
    None,
    /// On the heap of the writer.
    Heap,
    /// On the heap, with durable marks in this file in a tmpfs.
    Marks(PathBuf),
    /// In this file in a tmpfs: a shared log buffer.
    Memory(PathBuf),
    /// Nowhere: the file is gone, or belongs to the folder of which this one is a copy.
    Gone,
}

/// A log in a folder, for reading only. Takes no lock that a writer notices, and reads only the
/// marks of the log buffer. `Inspector` documents its calls and their errors.
///
/// Each call looks at the folder anew. A segment that is freed during a read gives other bytes,
/// which the records' checksums do not match.
#[derive(Debug)]
pub struct FileReader {
    folder: Folder,
    uuid: Uuid,
    segment_bytes: u64,
    is_rebuilt: bool,
}

impl FileReader {
    /// Finds the log in the folder `path`.
    ///
    /// # Errors
    /// Those of `Inspector::open`.
    pub fn open(path: impl AsRef<Path>) -> Result<FileReader> {
        FileReader::open_on(Arc::new(OsDisk), path.as_ref())
    }

    /// As [`open`](FileReader::open), on another disk.
    ///
    /// # Errors
    /// As [`open`](FileReader::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: &Path) -> Result<FileReader> {
        let (folder, state, is_rebuilt) = open::find_log(guarded(disk), path)?;
        let State { uuid, segment_bytes, .. } = state;
        Ok(FileReader { folder, uuid, segment_bytes, is_rebuilt })
    }

    /// Returns whether the state was rebuilt from the segments' headers.
    #[must_use]
    pub fn has_rebuilt_state(&self) -> bool {
        self.is_rebuilt
    }

    /// Returns whether a copy of the state is invalid or unreadable.
    ///
    /// # Errors
    /// As `Inspector::has_damaged_copy`.
    pub fn has_damaged_copy(&self) -> Result<bool> {
        meta::has_damaged_copy(&self.folder)
    }

    /// Refuses a copy of a log that an open could not sync.
    ///
    /// # Errors
    /// `Foreign`.
    pub fn check_synced(&self) -> Result<()> {
        open::check_synced(&self.folder)
    }

    /// Returns whether a process has the log open for writing.
    ///
    /// # Errors
    /// `Foreign`.
    pub fn has_writer(&self) -> Result<bool> {
        let locked = self.lock_out_writers().map(drop);
        // The locks go back at once: that of the file with the file.
        self.folder.handle().unlock();
        match locked {
            Err(error) if error.kind() == ErrorKind::Locked => Ok(true),
            locked => locked.map(|()| false),
        }
    }

    /// Takes the log's locks, shared; that of the folder until the reader's drop. Returns `None`
    /// without a lock file.
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

    /// Refuses a log that was written to since its `state` was read: without a lock file nothing
    /// kept writers out.
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

    /// Returns where the log buffer is.
    ///
    /// # Errors
    /// `NotFound`, `Foreign`, `Corrupt`, `Unsupported`.
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

    /// Returns the greatest LSN in the buffer's marks, or 0.
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

    /// Reads the meta file.
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

/// The reading half of a store, for recovery's analysis and for tools beside a writer.
pub trait ReadStore: Send + Sync + fmt::Debug + 'static {
    /// Returns the last saved state.
    ///
    /// # Errors
    /// `Io`, `Unsupported`, `Corrupt`.
    fn state(&self) -> Result<State>;

    /// Returns all segments, ascending.
    ///
    /// # Errors
    /// `Io`. A bad header is no error: recovery decides about it.
    fn segments(&self) -> Result<Vec<Segment>>;

    /// Returns the numbers of all segments, ascending, and the segments from number `from` on: the
    /// open of a closed log reads no other headers.
    ///
    /// # Errors
    /// As [`segments`](ReadStore::segments).
    fn segments_from(&self, from: u64) -> Result<(Vec<u64>, Vec<Segment>)> {
        let mut segments = self.segments()?;
        let numbers = segments.iter().map(|segment| segment.number).collect();
        segments.retain(|segment| segment.number >= from);
        Ok((numbers, segments))
    }

    /// Reads log bytes from `at` on, up to the end of `into`, the segment or its file, and returns
    /// how many: 0 without a file.
    ///
    /// # Errors
    /// `Io`, which is never reported as an end.
    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize>;

    /// Returns the epoch and durable LSN in the mark of an earlier process run's log buffer, if it
    /// is readable.
    fn noted_durable(&self) -> Option<(u64, Lsn)> {
        None
    }

    /// Returns where the log is, for error texts.
    fn place(&self) -> String;

    /// Returns where segment `number` is, for error texts. Default: the log's place.
    fn segment_place(&self, number: u64) -> String {
        let _ = number;
        self.place()
    }

    /// Returns advice on damage, if it differs from that for a log.
    fn advice_on_damage(&self) -> Option<&'static str> {
        None
    }
}

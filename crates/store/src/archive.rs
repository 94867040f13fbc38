//! The archive: a folder of copies of the segments that a truncation of the head has released.
//!
//! A segment is copied under a temporary name, synced, renamed to the name that it has in the log,
//! and the archive's folder is synced, before the log's folder loses it. So the archive may lie on
//! another file system, and the log's file is recycled as without an archive. What an epoch's end
//! has cut off is not copied: an archive holds nothing that is not in the log. A copy that was
//! interrupted is made again by the next truncation.
//!
//! An archive belongs to one log. What another log has archived, and what cannot be read for whose
//! it is, is never replaced.

use std::path::Path;
use std::sync::Arc;

use palisade_core::store::{ReadStore, Segment, State};
use palisade_core::{Error, ErrorKind, Lsn, Result, Uuid};

use crate::block::BLOCK_BYTES;
use crate::folder::{Folder, LOCK, segment_name};
use crate::fs::{Access, DiskFile, Kind, read_full, write_bytes};
use crate::fs_os::OsDisk;
use crate::header;
use crate::segment_file::{LOG_AT, SegmentFile};

const COPY_BYTES: usize = 1 << 20;

/// Where an archive is, or is to be.
#[derive(Debug)]
pub(crate) struct ArchivePlace {
    folder: Folder,
    is_there: bool,
}

impl ArchivePlace {
    /// The archive's folder in `path`, for the log in the folder `log`. Changes nothing.
    pub(crate) fn find(path: &Path, log: &Folder) -> Result<ArchivePlace> {
        if path.as_os_str().is_empty() {
            let text = "the path of the archive's folder is empty";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let disk = log.shared_disk();
        let named = |error| Error::io("find the archive's folder", error).at_path(path);
        let path = &std::path::absolute(path).map_err(named)?;
        if path == log.path() {
            let text = "the archive's folder is the log's; expected another one";
            return Err(Error::new(ErrorKind::InvalidArgument, text).at_path(path));
        }
        let kind = disk.kind(path).map_err(named)?;
        match kind {
            Kind::Folder => {}
            // The log's own is made before.
            Kind::Missing if path.parent() == Some(log.path()) => {}
            Kind::Missing => crate::open::check_parent(disk.as_ref(), path)?,
            Kind::Other => {
                let text = "the archive's path names a file; expected a folder";
                return Err(Error::new(ErrorKind::Foreign, text).at_path(path));
            }
        }
        Ok(ArchivePlace { folder: Folder::new(disk, path), is_there: kind == Kind::Folder })
    }

    /// The archive of the log `uuid`, unless it holds another log's segments, or a log. Changes
    /// nothing.
    pub(crate) fn archive_of(&self, uuid: Uuid) -> Result<Archive> {
        let folder = self.folder.clone();
        // The log's own by another name, too: a copy would take the place of what it is made of.
        if matches!(folder.disk().kind(&folder.path().join(LOCK)), Ok(Kind::Other)) {
            let text = "the archive's folder is a log's; expected another one";
            return Err(Error::new(ErrorKind::InvalidArgument, text).at_path(folder.path()));
        }
        let archive = Archive { folder, uuid, temp: format!("segment-{uuid}.tmp") };
        let numbers = if self.is_there { self.folder.segment_numbers(1)? } else { Vec::new() };
        for number in numbers {
            match archive.check_owner(number) {
                Err(error) if error.kind() == ErrorKind::Mismatch => return Err(error),
                // Damage in an archive keeps nobody from the log.
                Err(_) => {}
                // They are all of one log.
                Ok(()) => break,
            }
        }
        Ok(archive)
    }
}

/// The folder to which released segments go.
#[derive(Debug)]
pub(crate) struct Archive {
    folder: Folder,
    /// The log whose segments are in it.
    uuid: Uuid,
    /// The name of a copy that is not complete: another log's by mistake is another one.
    temp: String,
}

impl Archive {
    /// Makes the folder, but not its parents, if it is missing, and its name durable, whichever
    /// life made it: segments will be let go of because their copies are in it.
    ///
    /// Only an open calls it: an archive that is gone while the log runs may be a disk that was
    /// taken away.
    pub(crate) fn make(&self) -> Result<()> {
        let (disk, path) = (self.folder.disk(), self.folder.path());
        let named = |error| Error::io("find the archive's folder", error).at_path(path);
        if disk.kind(path).map_err(named)? == Kind::Missing {
            crate::open::create_folder(disk, path)?;
        }
        crate::open::sync_parent(&self.folder)
    }

    /// Whether segment `number` may be put into the archive: it is not there yet, or is the log's.
    fn check_owner(&self, number: u64) -> Result<()> {
        let name = segment_name(number);
        let Some(file) = self.folder.open_if_there(&name, Access::Read)? else { return Ok(()) };
        let (owner, _) = log_of(&self.folder, number, file.as_ref())?;
        if owner == self.uuid {
            return Ok(());
        }
        let text = format!(
            "the archive holds a segment of log {owner}, this is log {}: each log needs an \
             archive of its own",
            self.uuid
        );
        Err(Error::new(ErrorKind::Mismatch, text)
            .at_path(self.folder.path().join(name))
            .at_segment(number))
    }

    /// Copies the first `log_bytes` of segment `number`, and its header, out of `log`: when this
    /// returns, the copy survives power loss.
    pub(crate) fn keep(&self, log: &Folder, number: u64, log_bytes: u64) -> Result<()> {
        self.check_owner(number)?;
        let name = segment_name(number);
        let from = log.open(&name, Access::Read)?;
        let to = self.folder.open(&self.temp, Access::Fresh)?;
        let copied = copy(from.as_ref(), to.as_ref(), LOG_AT + log_bytes);
        if let Err(error) = copied {
            drop(to);
            // What it took is wanted elsewhere; the error that matters is the first.
            let _ = self.folder.remove(&self.temp);
            return Err(self.folder.error("archive the segment", &name, error).at_segment(number));
        }
        self.folder.rename(&self.temp, &name)?;
        self.folder.sync()
    }
}

/// The log that archived segment `number` belongs to, and the bytes of its segments.
fn log_of(folder: &Folder, number: u64, file: &dyn DiskFile) -> Result<(Uuid, u64)> {
    let name = segment_name(number);
    let mut block = [0; BLOCK_BYTES];
    let len = read_full(file, 0, &mut block).map_err(|error| {
        folder.error("read the archived segment's header", &name, error).at_segment(number)
    })?;
    header::log_of(&block[..len]).map_err(|fault| {
        let is_unsupported = fault.is_unsupported();
        let kind = if is_unsupported { ErrorKind::Unsupported } else { ErrorKind::Corrupt };
        let text = format!("the archived segment's header {fault}");
        Error::new(kind, text).at_path(folder.path().join(&name)).at_segment(number)
    })
}

fn copy(from: &dyn DiskFile, to: &dyn DiskFile, len: u64) -> std::io::Result<()> {
    let mut piece = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < len {
        let wanted = (len - at).min(COPY_BYTES as u64) as usize;
        let read = read_full(from, at, &mut piece[..wanted])?;
        write_bytes(to, at, &piece[..read])?;
        at += read as u64;
        if read < wanted {
            break;
        }
    }
    to.sync_data()
}

/// The segments that a log has archived, for reading.
///
/// The state that it shows is made up from the segments: their log's identity and geometry, and
/// as the head the first byte of the lowest one.
#[derive(Debug)]
pub struct ArchiveReader {
    folder: Folder,
    state: State,
}

impl ArchiveReader {
    /// Finds archived segments in the folder `path`.
    ///
    /// # Errors
    /// `NotFound` if there are none, `Corrupt` if the lowest one's header does not validate,
    /// `Unsupported` if a later version of Palisade wrote it, `PermissionDenied` and `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<ArchiveReader> {
        let folder = Folder::new(Arc::new(OsDisk), path.as_ref());
        let none = || {
            let text = "the folder holds no archived segment";
            Error::new(ErrorKind::NotFound, text).at_path(folder.path())
        };
        let number = *folder.segment_numbers(1)?.first().ok_or_else(none)?;
        let file = folder.open(&segment_name(number), Access::Read)?;
        let (uuid, segment_bytes) = log_of(&folder, number, file.as_ref())?;
        let state = made_up(uuid, segment_bytes, number);
        Ok(ArchiveReader { folder, state })
    }
}

impl ArchiveReader {
    /// Where the last record of the archive ends.
    ///
    /// # Errors
    /// `NotFound` if the segments have been removed, `PermissionDenied` and `Io`.
    pub fn end(&self) -> Result<Lsn> {
        let segment_bytes = self.state.segment_bytes;
        let last = self.folder.segment_numbers(segment_bytes)?.pop();
        let gone = || {
            let text = "the archived segments have been removed";
            Error::new(ErrorKind::NotFound, text).at_path(self.folder.path())
        };
        let number = last.ok_or_else(gone)?;
        let name = segment_name(number);
        let len = self.folder.open(&name, Access::Read)?.len();
        let len = len.map_err(|error| self.folder.error("look at the segment", &name, error))?;
        let log_bytes = len.saturating_sub(LOG_AT).min(segment_bytes);
        Ok(Lsn::new(number.saturating_mul(segment_bytes)).plus(log_bytes))
    }
}

fn made_up(uuid: Uuid, segment_bytes: u64, lowest: u64) -> State {
    State {
        uuid,
        segment_bytes,
        buffer_bytes: 0,
        epoch: 0,
        epoch_base: Lsn::ZERO,
        epoch_salt: 0,
        head: Lsn::new(lowest.saturating_mul(segment_bytes)),
        checkpoint: Lsn::ZERO,
        clean_end: Lsn::ZERO,
        clean: false,
    }
}

impl ReadStore for ArchiveReader {
    fn state(&self) -> Result<State> {
        Ok(self.state.clone())
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        let segment_bytes = self.state.segment_bytes;
        let mut segments = Vec::new();
        for number in self.folder.segment_numbers(segment_bytes)? {
            let name = segment_name(number);
            let file = self.folder.open(&name, Access::Read)?;
            let mut block = [0; BLOCK_BYTES];
            let len = read_full(file.as_ref(), 0, &mut block)
                .map_err(|error| self.folder.error("read the segment's header", &name, error))?;
            let decoded = header::decode(&block[..len], self.state.uuid, segment_bytes, number);
            segments.push(Segment { number, header: decoded.map_err(|fault| fault.to_string()) });
        }
        Ok(segments)
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let segment_bytes = self.state.segment_bytes;
        let number = at.segment(segment_bytes);
        let name = segment_name(number);
        let Some(file) = self.folder.open_if_there(&name, Access::Read)? else { return Ok(0) };
        let named = |error| self.folder.error("read the segment", &name, error).at_lsn(at);
        let file = SegmentFile::new(file, segment_bytes).map_err(named)?;
        file.read(at.as_u64() % segment_bytes, into).map_err(named)
    }

    fn place(&self) -> String {
        self.folder.path().display().to_string()
    }
}

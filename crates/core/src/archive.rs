//! The archive: a folder of copies of released segments.
//!
//! 1. Check that the folder's path still leads to it, and that it is this log's archive.
//! 2. Copy the segment under a temporary name, and sync the copy.
//! 3. Rename the copy to the segment's name, and sync the folder.
//! 4. Return. The log loses the segment only then.
//!
//! # Whose archive a folder is
//! An empty file `archive-of-UUID` names the log, or else the headers of the segments do. A folder
//! with neither may be the mount point of a disk that is not mounted, so only the log's first
//! segment begins an archive there. A file of another log, and one whose header cannot be read, is
//! never replaced.

mod reader;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use palisade_store::SegmentHeader;
use palisade_store::disk::{Access, DEFAULT_FILE_MODE, Disk, OsDisk, guarded, write_bytes};
use palisade_store::folder::{Folder, LOCK, segment_name};
use palisade_store::open;
use palisade_store::segment::{OnRelease, ReleasedSegment};
use palisade_store::sync::OnceLock;

pub use self::reader::ArchiveReader;
pub(crate) use self::reader::Contents;
use self::reader::{FoundFile, fault_of, look, look_at_all, misplaced, owner_of};
use crate::{Error, ErrorKind, Lsn, Result, Uuid};

const COPY_BYTES: u64 = 1 << 20;
const OWNER_PREFIX: &str = "archive-of-";
const NOT_MOUNTED: &str = "mount the archive's disk, or name the archive's folder; make that file \
                           only if no earlier segment is to be in this archive";
const MOVE_AWAY: &str = "the log is whole and keeps its segment: move this file away from the \
                         archive, then truncate again";
const NAME_ANOTHER: &str = "name another folder as this log's archive; or, if that log's files do \
                            not belong there, move them away";
const OPEN_ANEW: &str = "put the folder or its mount back; for an archive in another folder, open \
                         the log anew with that `Archive`";

/// Copies released segments into a folder, which [`ArchiveReader`] reads, before the log loses
/// them. Each log needs its own. While an archive is open, its disk cannot be unmounted. Files get
/// the permissions 0600, and a new folder 0700.
///
/// To begin an archive after the log has lost its first segment, make an empty file
/// `archive-of-UUID` in the folder. A truncation of the log returns the errors of
/// [`released`](OnRelease::released).
///
/// ```
/// # let [kept, log] = [(); 2].map(|()| tempfile::tempdir().unwrap());
/// use palisade::{Archive, ArchiveReader, Options};
///
/// let options = Options::new().segment_bytes(64 << 10).on_release(Archive::open(&kept)?);
/// let wal = options.open(&log)?;
/// let first = wal.append(&[1; 30_000])?.lsn();
/// wal.append(&[2; 30_000])?;
/// let third = wal.append(&[3; 30_000])?.lsn(); // in the second segment
/// wal.truncate_before(third)?; // archives the first segment
/// let mut records = ArchiveReader::open(&kept)?.records(None)?;
/// assert_eq!(records.next()?.unwrap().lsn(), first);
/// # Ok::<(), palisade::Error>(())
/// ```
#[derive(Debug)]
pub struct Archive {
    folder: Folder,
    owner: OnceLock<Uuid>,
}

impl Archive {
    /// Opens the archive in the folder `path`, which it makes durably if it is missing, but not its
    /// parents: a disk that is not mounted must not yield an empty archive.
    ///
    /// # Errors
    /// `NotFound`: the parent is missing. `Foreign`: the path is a file. `InvalidArgument`: also if
    /// the folder is a log's. `PermissionDenied`, `NoSpace`, `NoFiles`, `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
        Archive::open_on(Arc::new(OsDisk), path)
    }

    /// As [`open`](Archive::open), on another disk.
    ///
    /// # Errors
    /// As [`open`](Archive::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Archive> {
        let disk = guarded(disk);
        let folder = open::find_or_make(&disk, path.as_ref(), DEFAULT_FILE_MODE)?;
        let archive = Archive { folder, owner: OnceLock::new() };
        archive.check_no_log().map(|()| archive)
    }

    fn error(&self, kind: ErrorKind, text: &str) -> Error {
        Error::new(kind, text).at_path(self.folder.path())
    }

    /// A copy in the log's folder would replace its source.
    fn check_no_log(&self) -> Result<()> {
        if self.folder.open_if_there(LOCK, Access::Read)?.is_none() {
            return Ok(());
        }
        let text = "the archive's folder is a log's; expected another one";
        Err(self.error(ErrorKind::InvalidArgument, text))
    }

    /// If the path cannot be looked at, the copy is made in the folder that was opened.
    fn check_in_place(&self) -> Result<()> {
        if !matches!(self.folder.handle().still_at(self.folder.path()), Ok(false)) {
            return Ok(());
        }
        let text = "this path does not lead to the archive's folder any more: it was moved, \
                    removed or replaced, or its disk unmounted, after the archive was opened";
        Err(self.error(ErrorKind::NotFound, text).with_advice(OPEN_ANEW))
    }

    fn check_owner(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        let uuid = segment.uuid;
        let owner = match self.owner.get() {
            Some(owner) => *owner,
            None => self.find_owner(segment)?,
        };
        if owner != uuid {
            return Err(self.of_another(&owner.to_string(), uuid));
        }
        self.check_replaced(segment)
    }

    fn check_replaced(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        let (uuid, number) = (segment.uuid, segment.header.number);
        let error = match look(&self.folder, number)? {
            None => return Ok(()),
            Some((_, FoundFile::Of(log, _) | FoundFile::Misplaced(log, ..)))
                if log.uuid != uuid =>
            {
                let text =
                    format!("this file is of log {}, in the archive of log {uuid}", log.uuid);
                let path = self.folder.path().join(segment_name(number));
                Error::new(ErrorKind::Mismatch, text).at_path(path).at_segment(number)
            }
            Some((_, FoundFile::Of(..))) => return Ok(()),
            Some((_, FoundFile::Misplaced(.., why))) => {
                misplaced(&self.folder, number, &why).with_kind(ErrorKind::Foreign)
            }
            Some((_, FoundFile::Damaged(fault))) if fault.is_unsupported() => {
                return Err(fault_of(&self.folder, number, &fault));
            }
            Some((_, FoundFile::Damaged(fault))) => {
                fault_of(&self.folder, number, &fault).with_kind(ErrorKind::Foreign)
            }
            Some((_, FoundFile::Unreadable(error))) => error,
        };
        Err(error.with_advice(MOVE_AWAY))
    }

    fn of_another(&self, other: &str, uuid: Uuid) -> Error {
        let text = format!(
            "the archive holds segments of log {other}, this is log {uuid}: each log needs an \
             archive of its own"
        );
        self.error(ErrorKind::Mismatch, &text).with_advice(NAME_ANOTHER)
    }

    fn find_owner(&self, segment: &ReleasedSegment<'_>) -> Result<Uuid> {
        let (uuid, own) = (segment.uuid, owner_name(segment.uuid));
        let names = self.folder.names()?;
        // Two logs that began here together each left a file.
        let mut owners = names.iter().filter_map(|name| owner_in(name));
        if let Some(other) = owners.find(|owner| *owner != uuid.to_string()) {
            return Err(self.of_another(other, uuid));
        }
        if !names.contains(&own) {
            let looks = look_at_all(&self.folder)?;
            match owner_of(&names, &looks, None) {
                Some(log) if log.uuid != uuid => {
                    return Err(self.of_another(&log.uuid.to_string(), uuid));
                }
                // A damaged file names no log. It blocks only its own number.
                None if looks.is_empty() && !is_first_of_log(&segment.header) => {
                    return Err(self.not_begun(segment, &own));
                }
                _ => {}
            }
            self.folder.open(&own, Access::WriteOrCreate)?;
        }
        Ok(*self.owner.get_or_init(|| uuid))
    }

    fn not_begun(&self, segment: &ReleasedSegment<'_>, own: &str) -> Error {
        let text = format!(
            "the folder holds no archive, and segment {} is not the first of log {}: earlier ones \
             are archived elsewhere. An empty file `{own}` in the folder lets an archive begin \
             with this segment",
            segment.header.number, segment.uuid
        );
        self.error(ErrorKind::NotFound, &text).with_advice(NOT_MOUNTED)
    }

    fn copy(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        let temp = format!("segment-{}.tmp", segment.uuid);
        let copied = self.write(segment, &temp).and_then(|()| {
            self.folder.rename(&temp, &segment.file_name())?;
            self.folder.handle().sync().map_err(|error| {
                Error::io("sync the archive's folder", error).at_path(self.folder.path())
            })
        });
        if copied.is_err() {
            // It may take space that is wanted elsewhere; the error that matters is the first.
            let _ = self.folder.remove_if_there(&temp);
        }
        copied
    }

    fn write(&self, segment: &ReleasedSegment<'_>, temp: &str) -> Result<()> {
        // A crash may have left an incomplete one.
        self.folder.remove_if_there(temp)?;
        let file = self.folder.open(temp, Access::New)?;
        let (mut reader, total) = (segment.reader(), segment.file_bytes());
        let mut piece = vec![0; COPY_BYTES.min(total) as usize];
        let mut at = 0;
        while at < total {
            let bytes = &mut piece[..COPY_BYTES.min(total - at) as usize];
            let read = reader.read_exact(bytes);
            read.map_err(|error| Error::io("read the segment that is archived", error))?;
            let written = write_bytes(file.as_ref(), at, bytes);
            written.map_err(|error| self.folder.error("archive the segment", temp, error))?;
            at += bytes.len() as u64;
        }
        file.sync_data().map_err(|error| self.folder.error("archive the segment", temp, error))
    }
}

impl OnRelease for Archive {
    /// Copies the segment. The copy survives power loss when this returns.
    ///
    /// # Errors
    /// `NotFound`: the path does not lead to the folder any more; or the folder is no archive yet,
    /// and the segment is not the log's first. `Mismatch`: the folder has another log's segments.
    /// `Foreign`: move away the file with the segment's name. `InvalidArgument`: the folder is a
    /// log's. `Unsupported`, `NoSpace`, `NoFiles`, `PermissionDenied`, `Io`.
    fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        self.check_in_place()?;
        self.check_no_log()?;
        self.check_owner(segment)?;
        self.copy(segment)
    }
}

fn owner_name(uuid: Uuid) -> String {
    format!("{OWNER_PREFIX}{uuid}")
}

fn owner_in(name: &str) -> Option<&str> {
    let uuid = name.strip_prefix(OWNER_PREFIX)?;
    let is_right = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    };
    Some(uuid).filter(|uuid| uuid.len() == 36 && uuid.bytes().enumerate().all(is_right))
}

/// Returns whether the log never had a record below, or a repair kept none.
fn is_first_of_log(header: &SegmentHeader) -> bool {
    header.predecessor.is_some_and(|before| before.epoch == 0 || before.end == Lsn::ZERO)
}

//! The archive: a folder of copies of released segments. It stands beside the store: it writes what
//! the callback for released segments gets.
//!
//! 1. The folder is the one that was opened, its path leads to it, and it is this log's archive.
//! 2. The segment is copied under a temporary name, and the copy synced.
//! 3. The copy is renamed to the segment's name, and the archive's folder synced.
//! 4. The callback returns; only then the log loses the segment.
//!
//! A crash before step 3 is complete leaves the segment in the log, and the next truncation copies
//! it again. So the archive may lie on another file system. An archive belongs to one log: a file
//! of another log, and one whose header cannot be read, is never replaced.
//!
//! # Whose archive a folder is
//! An empty file `archive-of-UUID` names the log. If the file was lost, the headers of the segments
//! do. A folder with neither may be the mount point of a disk that is not mounted. So it
//! becomes the archive only of a log of which no record can be in another one: the segment is the
//! log's first.

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
/// The rest of the name is the UUID of the log.
const OWNER_PREFIX: &str = "archive-of-";
const NOT_MOUNTED: &str = "mount the archive's disk, or name the archive's folder; make that file \
                           only if no earlier segment is to be in this archive";
const MOVE_AWAY: &str = "the log is whole and keeps its segment: move this file away from the \
                         archive, then truncate again";
const NAME_ANOTHER: &str = "name another folder as this log's archive; or, if that log's files do \
                            not belong there, move them away";
const OPEN_ANEW: &str = "put the folder or its mount back; to go on with an archive in another \
                         folder, open it with `Archive::open` and the log with it";

/// Copies released segments into a folder, before the log loses them.
///
/// Each log needs an archive of its own; the folder may lie on another file system than the log.
/// [`ArchiveReader`] reads it. The archive keeps its folder open, so a disk that it lies on cannot
/// be unmounted meanwhile. A segment is released only if the path still leads to that folder.
///
/// The files get the permissions 0600, and a folder that is made 0700.
///
/// # A folder that was not an archive of the log before
/// The log's first segment begins an archive in it. A log that has lost segments before does not:
/// the disk of its archive may not be mounted. To begin an archive with a later segment, make an
/// empty file `archive-of-UUID` in the folder, with the UUID of the log; the error names the file.
///
/// A truncation of the log returns the errors of the archive's
/// [`released`](OnRelease::released), and the log keeps the segment. If a `Foreign` or a `Mismatch`
/// has the path of a file, move the file away from the archive, and truncate again.
///
/// ```
/// # let temp = tempfile::tempdir().unwrap();
/// # let (kept, log) = (temp.path().join("archive"), temp.path().join("log"));
/// use std::sync::Arc;
///
/// use palisade::{Archive, ArchiveReader, Options};
///
/// let archive = Arc::new(Archive::open(&kept)?);
/// let wal = Options::new().segment_bytes(64 << 10).on_release(archive).open(&log)?;
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
    /// The log whose segments are in the folder, once that is known.
    owner: OnceLock<Uuid>,
}

impl Archive {
    /// Opens the archive in the folder `path`. Makes the folder, but not its parents, if it is
    /// missing: a disk that is not mounted must not yield an empty archive.
    ///
    /// # Durability
    /// The folder's name survives power loss when this returns.
    ///
    /// # Errors
    /// `InvalidArgument`: the path is empty, or the folder is a log's. `NotFound`: there is no
    /// folder to make the folder in. `Foreign`: the path is a file. `PermissionDenied`, `NoSpace`,
    /// `NoFiles`, `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
        Archive::open_on(Arc::new(OsDisk), path)
    }

    /// Opens the archive in the folder `path` of a disk, as [`open`](Archive::open) does.
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

    /// Refuses a log's folder: a copy would take the place of the file that it is made of.
    fn check_no_log(&self) -> Result<()> {
        if self.folder.open_if_there(LOCK, Access::Read)?.is_none() {
            return Ok(());
        }
        let text = "the archive's folder is a log's; expected another one";
        Err(self.error(ErrorKind::InvalidArgument, text))
    }

    /// Refuses to go on in a folder that its path does not lead to any more. If the path cannot be
    /// looked at, nothing is known, and the copy is made in the folder that was opened.
    fn check_in_place(&self) -> Result<()> {
        if !matches!(self.folder.handle().still_at(self.folder.path()), Ok(false)) {
            return Ok(());
        }
        let text = "this path does not lead to the archive's folder any more: it was moved, \
                    removed or replaced, or its disk unmounted, after the archive was opened";
        Err(self.error(ErrorKind::NotFound, text).with_advice(OPEN_ANEW))
    }

    /// Refuses a segment of another log than the archive's, and a folder that may not be the
    /// archive of this log.
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

    /// Refuses to replace a file that is not this segment: another log's may have come meanwhile,
    /// and a file that cannot be identified is kept. None of this is damage to the log.
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

    /// Finds out whose archive the folder is, and notes it there. The sync of the folder comes with
    /// the copy of the segment.
    fn find_owner(&self, segment: &ReleasedSegment<'_>) -> Result<Uuid> {
        let (uuid, own) = (segment.uuid, owner_name(segment.uuid));
        let names = self.folder.names()?;
        // Two logs that began at the same moment have noted both.
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
                // A damaged file is no evidence. It keeps its own number only.
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
            "the folder holds no archive, and segment {} is not the first of log {}: what was \
             archived before is elsewhere. An empty file `{own}` in the folder lets an archive \
             begin with this segment",
            segment.header.number, segment.uuid
        );
        self.error(ErrorKind::NotFound, &text).with_advice(NOT_MOUNTED)
    }

    /// Takes steps 2 and 3. If one fails, removes the temporary file.
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
    /// Copies the segment.
    ///
    /// # Durability
    /// The copy survives power loss when this returns.
    ///
    /// # Errors
    /// `NotFound`: the path does not lead to the archive's folder any more; or the folder is no
    /// archive yet, and the segment is not the log's first. `Mismatch`: the folder holds another
    /// log's segments. `Foreign`: a file in the folder has the segment's name and is another one of
    /// the log, or none. `Unsupported`: a later version of Palisade wrote it. `InvalidArgument`:
    /// the folder is a log's. `NoSpace`, `NoFiles`, `PermissionDenied`, `Io`.
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

/// Returns the UUID in a name of exactly the form that `owner_name` writes, or `None`.
fn owner_in(name: &str) -> Option<&str> {
    let uuid = name.strip_prefix(OWNER_PREFIX)?;
    let is_right = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    };
    Some(uuid).filter(|uuid| uuid.len() == 36 && uuid.bytes().enumerate().all(is_right))
}

/// Returns whether no record of the log ever lay below the segment: its epoch is the first, or the
/// epochs before it have no records. After a repair that kept nothing this may be true, too; the
/// archive has a break there in any case.
fn is_first_of_log(header: &SegmentHeader) -> bool {
    header.predecessor.is_some_and(|before| before.epoch == 0 || before.end == Lsn::ZERO)
}

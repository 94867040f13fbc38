//! The archive: a folder of copies of released segments. It stands beside the store: it writes what
//! the callback for released segments gets, with plain file calls.
//!
//! 1. The segment is copied under a temporary name, and the copy synced.
//! 2. The copy is renamed to the segment's name, and the archive's folder synced.
//! 3. The callback returns; only then the log loses the segment.
//!
//! A crash before step 2 is complete leaves the segment in the log, and the next truncation copies
//! it again. So the archive may lie on another file system. An archive belongs to one log: a file
//! of another log, and one whose header cannot be read, is never replaced.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_core::inspect::Inspector;
use palisade_core::store::{ReadStore, Segment, State};
use palisade_core::sync::OnceLock;
use palisade_core::{Error, ErrorKind, Lsn, Records, Result, Uuid};

use crate::block::BLOCK_BYTES;
use crate::disk::os::OsFile;
use crate::disk::{Disk, OsDisk, read_full};
use crate::folder::{LOCK, segment_name, segments_in};
use crate::segment::header::{self, LogOf};
use crate::segment::segment_file::LOG_AT;
use crate::segment::{OnRelease, ReleasedSegment};
use crate::{meta, open};

const COPY_BYTES: usize = 1 << 20;
/// Permissions of the files, less what the umask takes away.
const MODE: u32 = 0o666;

/// Copies released segments into a folder, before the log loses them.
///
/// Each log needs an archive of its own; the folder may lie on another file system than the log.
/// [`ArchiveReader`] reads it.
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
    folder: PathBuf,
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
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let folder = open::find_or_make(&disk, path.as_ref(), MODE)?;
        let archive = Archive { folder: folder.path().to_path_buf(), owner: OnceLock::new() };
        archive.check_no_log().map(|()| archive)
    }

    /// Refuses a log's folder: a copy would take the place of the file that it is made of.
    fn check_no_log(&self) -> Result<()> {
        if !self.folder.join(LOCK).exists() {
            return Ok(());
        }
        let text = "the archive's folder is a log's; expected another one";
        Err(Error::new(ErrorKind::InvalidArgument, text).at_path(&self.folder))
    }

    /// The log that the archive belongs to: that of the first segment that can be read, or else
    /// `newcomer`.
    fn owner_or(&self, newcomer: Uuid) -> Result<Uuid> {
        if let Some(owner) = self.owner.get() {
            return Ok(*owner);
        }
        // A damaged file tells nothing. It keeps its own number only.
        let known = |number: &u64| log_of(&self.folder, *number).ok().flatten();
        let found = segments_in(&names(&self.folder)?, 1).iter().find_map(known);
        Ok(*self.owner.get_or_init(|| found.map_or(newcomer, |of| of.uuid)))
    }

    /// Refuses a segment of another log than the archive's.
    fn check_owner(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        let uuid = segment.uuid;
        let owner = self.owner_or(uuid)?;
        // Two logs may have begun with the same empty folder.
        let replaced = log_of(&self.folder, segment.header.number)?.map_or(uuid, |of| of.uuid);
        if owner == uuid && replaced == uuid {
            return Ok(());
        }
        let other = if owner == uuid { replaced } else { owner };
        let text = format!(
            "the archive holds segments of log {other}, this is log {uuid}: each log needs an \
             archive of its own"
        );
        Err(Error::new(ErrorKind::Mismatch, text).at_path(&self.folder))
    }
}

impl OnRelease for Archive {
    /// Copies the segment.
    ///
    /// # Durability
    /// The copy survives power loss when this returns.
    ///
    /// # Errors
    /// `Mismatch`: the folder holds another log's segments. `Corrupt`, `Unsupported`: a file in the
    /// folder has the segment's name and cannot be read for which log it is of. `InvalidArgument`:
    /// the folder is a log's. `NoSpace`, `NoFiles`, `PermissionDenied`, `Io`.
    fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        self.check_no_log()?;
        self.check_owner(segment)?;
        let temp = self.folder.join(format!("segment-{}.tmp", segment.uuid));
        let path = self.folder.join(segment.file_name());
        let done = copy(segment, &temp)
            .and_then(|()| fs::rename(&temp, &path))
            .and_then(|()| OsDisk.open_folder(&self.folder, MODE)?.sync());
        done.map_err(|error| {
            // It may take space that is wanted elsewhere; the error that matters is the first.
            let _ = fs::remove_file(&temp);
            Error::io("archive the segment", error).at_path(path)
        })
    }
}

fn copy(segment: &ReleasedSegment<'_>, to: &Path) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(COPY_BYTES, File::create(to)?);
    io::copy(&mut segment.reader(), &mut file)?;
    file.into_inner()?.sync_all()
}

/// The names in the folder of an archive.
fn names(folder: &Path) -> Result<Vec<String>> {
    let names = OsDisk.open_folder(folder, MODE).and_then(|folder| folder.list());
    names.map_err(|error| Error::io("list the archive's folder", error).at_path(folder))
}

/// Reads at `offset` of archived segment `number` until `into` is full or the file ends; `None` if
/// there is no such file.
fn read(folder: &Path, number: u64, offset: u64, into: &mut [u8]) -> Result<Option<usize>> {
    let path = folder.join(segment_name(number));
    let read = File::open(&path).and_then(|file| read_full(&OsFile::new(file), offset, into));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|error| {
            Error::io("read the archived segment", error).at_path(path).at_segment(number)
        }),
    }
}

/// The log that archived segment `number` belongs to; `None` if there is no such segment.
fn log_of(folder: &Path, number: u64) -> Result<Option<LogOf>> {
    let mut block = [0; BLOCK_BYTES];
    let Some(len) = read(folder, number, 0, &mut block)? else { return Ok(None) };
    header::log_of(&block[..len]).map(Some).map_err(|fault| {
        let is_unsupported = fault.is_unsupported();
        let kind = if is_unsupported { ErrorKind::Unsupported } else { ErrorKind::Corrupt };
        let text = format!("the archived segment's header {fault}");
        Error::new(kind, text).at_path(folder.join(segment_name(number))).at_segment(number)
    })
}

/// The records of the segments in an [`Archive`].
///
/// [`Restore`](crate::Restore) makes a log of them. Their LSNs are those that they had. An archive
/// ends with a segment, at or below the head of the
/// log that writes it: the records between are archived when their segment is released.
///
/// An archive breaks where a segment is missing or damaged, and where a [`Repair`](crate::Repair)
/// kept nothing of the log: what the head's segment held below the head is in no archive then. The
/// error at such a place names it, and `records` reads on from an LSN above.
#[derive(Clone, Debug)]
pub struct ArchiveReader {
    folder: PathBuf,
    state: State,
}

impl ArchiveReader {
    /// Finds archived segments in the folder `path`.
    ///
    /// # Errors
    /// `NotFound`: there are none, or no folder. `Corrupt`: the lowest one's header does not
    /// validate.
    /// `Unsupported`: a later version of Palisade wrote it. `PermissionDenied`, `NoFiles`, `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<ArchiveReader> {
        let folder = path.as_ref();
        if fs::metadata(folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let text = "the archive's folder does not exist";
            return Err(Error::new(ErrorKind::NotFound, text).at_path(folder));
        }
        let lowest =
            segments_in(&names(folder)?, 1).first().copied().ok_or_else(|| none(folder))?;
        let found = log_of(folder, lowest)?.ok_or_else(|| none(folder))?;
        let head = Lsn::new(lowest.saturating_mul(found.segment_bytes));
        let state = meta::bare_state(&found, head);
        Ok(ArchiveReader { folder: folder.to_path_buf(), state })
    }

    /// The records from the one at `from`, or from the first archived one on.
    ///
    /// # Errors
    /// `Corrupt` if headers contradict each other; `PermissionDenied`, `NoFiles` and `Io` if a file
    /// cannot be read. The iterator gives `Corrupt` at a record that is damaged, or that was in a
    /// segment that is missing, and where nothing says that the next epoch follows on the one
    /// before.
    pub fn records(&self, from: Option<Lsn>) -> Result<Records> {
        Inspector::new(self.clone()).records_until(from, self.end()?)
    }

    /// Where the last record of the archive ends.
    ///
    /// # Errors
    /// `NotFound` if the segments have been removed, `PermissionDenied` and `Io`.
    pub(crate) fn end(&self) -> Result<Lsn> {
        let number = self.numbers()?.pop().ok_or_else(|| none(&self.folder))?;
        let path = self.folder.join(segment_name(number));
        let file = fs::metadata(&path)
            .map_err(|error| Error::io("look at the archived segment", error).at_path(path))?;
        let log_bytes = file.len().saturating_sub(LOG_AT).min(self.state.segment_bytes);
        Ok(Lsn::new(number * self.state.segment_bytes).plus(log_bytes))
    }

    /// The numbers of all segments whose LSNs exist, ascending.
    fn numbers(&self) -> Result<Vec<u64>> {
        Ok(segments_in(&names(&self.folder)?, self.state.segment_bytes))
    }
}

fn none(folder: &Path) -> Error {
    Error::new(ErrorKind::NotFound, "the folder holds no archived segment").at_path(folder)
}

/// The state is made up from the segments: their log's identity and geometry, and as the head the
/// first byte of the lowest one.
#[doc(hidden)]
impl ReadStore for ArchiveReader {
    fn state(&self) -> Result<State> {
        Ok(self.state.clone())
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        let State { uuid, segment_bytes, .. } = self.state;
        let mut segments = Vec::new();
        for number in self.numbers()? {
            let mut block = [0; BLOCK_BYTES];
            let Some(len) = read(&self.folder, number, 0, &mut block)? else { continue };
            let header = header::decode(&block[..len], uuid, segment_bytes, number);
            segments.push(Segment { number, header: header.map_err(|fault| fault.to_string()) });
        }
        Ok(segments)
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let segment_bytes = self.state.segment_bytes;
        let (number, offset) = (at.segment(segment_bytes), at.as_u64() % segment_bytes);
        let rest = segment_bytes - offset;
        let len = usize::try_from(rest).map_or(into.len(), |rest| rest.min(into.len()));
        let read = read(&self.folder, number, LOG_AT + offset, &mut into[..len]);
        Ok(read.map_err(|error| error.at_lsn(at))?.unwrap_or(0))
    }

    fn place(&self) -> String {
        self.folder.display().to_string()
    }
}

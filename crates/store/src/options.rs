//! What can be chosen about a log's files.

use std::sync::Arc;

use crate::OnRelease;
use crate::disk::DEFAULT_FILE_MODE;
use crate::segment::segment_file::LOG_AT;
use crate::{CodecId, Error, ErrorKind, Lsn, Result};

/// Smallest buffer that a log can be opened with: 4 KiB.
pub const MIN_BUFFER_BYTES: usize = 4 << 10;
/// Largest buffer that a log can be opened with: 1 GiB.
pub const MAX_BUFFER_BYTES: usize = 1 << 30;
/// Smallest segment that any store may have: 4 KiB (files start at 64 KiB).
pub const MIN_SEGMENT_BYTES: u64 = 4 << 10;
/// Largest segment that a log may have: 1 TiB.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 40;
/// Bytes of log in a segment of a log that is made without saying: 64 MiB.
pub const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;
/// Smallest segment that a log on files may have: 64 KiB.
pub const MIN_FILE_BYTES: u64 = 64 << 10;

/// Half of all LSNs are left for a log that begins there.
const MAX_FIRST_LSN: Lsn = Lsn::new(Lsn::LIMIT.as_u64() / 2);
/// So many segments' files a limit has room for: the one that is written, the one that is ready, a
/// spare, and one to go on while a truncation frees the oldest.
const MIN_FILES: u64 = 4;
/// What this process needs of its own files.
const OWNER_MODE: u32 = 0o600;

/// What the log buffer lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferKind {
    /// As [`Mapped`](BufferKind::Mapped) where that is possible, else as
    /// [`Heap`](BufferKind::Heap).
    #[default]
    Auto,
    /// The heap: what is only in the buffer dies with the process.
    Heap,
    /// A shared log buffer: a mapped file in a tmpfs, at `/dev/shm` on Linux. It outlives the
    /// process, but not the operating system. An open returns `Unsupported` if there is no such
    /// folder, and `NoSpace` if there is no room in it.
    ///
    /// The file takes the buffer's bytes of memory. A close removes it; a process that is killed
    /// leaves it until the log is opened again. Where systemd-logind has its default
    /// `RemoveIPC=yes`, the file goes when a regular user logs out: run as a system user.
    Mapped,
}

/// Whether an open creates the log, and whether the log may exist before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenMode {
    /// Opens the log, or creates it and its folder if there is none. Does not create the folder's
    /// parents: a disk that is not mounted must not yield an empty log.
    #[default]
    CreateIfMissing,
    /// Creates the log. A log that exists is an error, `AlreadyExists`.
    CreateNew,
    /// Opens a log that exists. A missing log is an error, `NotFound`.
    MustExist,
}

/// Settings of a [`FileStore`](crate::FileStore); checked when it is opened.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Bytes of log in a segment: a multiple of 4096 from 64 KiB to 1 TiB, fixed when the log is
    /// made. Default `None`: 64 MiB for a log that is made, whatever it has for one that is
    /// there. Space comes back segment by segment; below some MiB the making of segments shows.
    pub segment_bytes: Option<u64>,
    /// What the log buffer lies on. Default [`BufferKind::Auto`].
    pub buffer: BufferKind,
    /// Whether an open creates the log. Default [`OpenMode::CreateIfMissing`].
    pub open_mode: OpenMode,
    /// Released segments that are kept at least, to be used again: overwriting blocks syncs faster
    /// than growing a file. Default 4. Where the log takes more between two truncations, about as
    /// many are kept, up to four times the option. The folder never grows by all of this beyond
    /// what the log took itself, one spare, and a file `reserve`, which keeps space for an open on
    /// a full disk. On a file system that may not overwrite in place, none is kept.
    pub spare_segments: usize,
    /// Whether space is written with zeros once, ahead of the tail, by a thread of the store, so
    /// that commits touch no metadata of the file system. Default true. Turn it off where each
    /// byte that is written costs, or where syncs cost little. Has no effect on a file system that
    /// may not overwrite in place.
    pub zero_fill: bool,
    /// Permissions of the files that the log makes, on Unix; elsewhere it means nothing. The
    /// owner's read and write bits (`0o600`) have to be among them, and nothing but the nine bits
    /// for owner, group and others. The process's umask takes bits away as from any file. Default
    /// [`DEFAULT_FILE_MODE`].
    ///
    /// A folder that the log makes gets the same, and the right to go through it for each that may
    /// read: `0o700` by default. Files and folders that are there keep what they have. Whoever may
    /// read the file `lock` can hold the log's lock, and whoever may read the others reads all
    /// records: give rights to a group of readers, not to everybody.
    pub file_mode: u32,
    /// Gets each segment that `Wal::truncate_before` releases,
    /// before the log loses it. Default `None`.
    pub on_release: Option<Arc<dyn OnRelease>>,
    /// The bytes that the files of segments may take, spares among them. A log that needs more gets
    /// `NoSpace` as on a full disk, until a truncation frees segments. An open may take more. At
    /// least four segments' files. Default `None`: no limit.
    pub max_bytes: Option<u64>,
    /// The least LSN of a new log, rounded up to the start of a segment. Default 0.
    pub first_lsn: Lsn,
    /// The codec of the records. A log that exists must have the same. Default `None`.
    pub codec: Option<CodecId>,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            segment_bytes: None,
            buffer: BufferKind::Auto,
            open_mode: OpenMode::CreateIfMissing,
            spare_segments: 4,
            zero_fill: true,
            file_mode: DEFAULT_FILE_MODE,
            on_release: None,
            max_bytes: None,
            first_lsn: Lsn::ZERO,
            codec: None,
        }
    }
}

impl FileOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> FileOptions {
        FileOptions::default()
    }

    /// Checks every value; no segment may be smaller than `at_least`.
    pub(crate) fn validate(&self, at_least: u64) -> Result<()> {
        if self.file_mode & OWNER_MODE != OWNER_MODE || self.file_mode > 0o777 {
            let text = format!(
                "file_mode is {:#o}; expected at most 0o777, with {OWNER_MODE:#o} in it, so that \
                 this process can read and write its own files",
                self.file_mode
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        self.segment_bytes.map_or(Ok(()), |bytes| check_segment_bytes(bytes, at_least))?;
        if self.first_lsn > MAX_FIRST_LSN {
            let text = format!("first_lsn is {}; it is at most {MAX_FIRST_LSN}", self.first_lsn);
            return Err(Error::new(ErrorKind::InvalidArgument, text).at_lsn(self.first_lsn));
        }
        Ok(())
    }

    /// Checks the limit of a log with segments of `segment_bytes`.
    pub(crate) fn check_limit(&self, segment_bytes: u64) -> Result<()> {
        let least = (LOG_AT + segment_bytes).saturating_mul(MIN_FILES);
        match self.max_bytes {
            Some(limit) if limit < least => {
                let text = format!("max_bytes is {limit}; the files of four segments take {least}");
                Err(Error::new(ErrorKind::InvalidArgument, text))
            }
            _ => Ok(()),
        }
    }

    /// Returns the bytes of log in a segment of a log that is created.
    pub(crate) fn new_segment_bytes(&self) -> u64 {
        self.segment_bytes.unwrap_or(DEFAULT_SEGMENT_BYTES)
    }

    /// Returns the LSN where a log that is created begins, which is the start of a segment.
    pub(crate) fn begin(&self) -> Lsn {
        self.first_lsn.segment_start_at_or_above(self.new_segment_bytes())
    }
}

/// Checks a segment size, in bytes, against the bounds that every store shares.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] names the value and the rule that it breaks.
pub fn check_segment_bytes(segment_bytes: u64, at_least: u64) -> Result<()> {
    let fits = (at_least..=MAX_SEGMENT_BYTES).contains(&segment_bytes);
    if segment_bytes.is_multiple_of(4096) && fits {
        return Ok(());
    }
    let text = format!(
        "segment_bytes is {segment_bytes}; it must be a multiple of 4096 from {at_least} to \
         {MAX_SEGMENT_BYTES}"
    );
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_sizes_are_multiples_of_4096() {
        check_segment_bytes(1 << 16, 1 << 16).unwrap();
        assert!(check_segment_bytes(70_000, 1 << 16).is_err());
        assert!(check_segment_bytes(4096, 1 << 16).is_err());
    }
}

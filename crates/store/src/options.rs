//! Options of a log's files.

use std::sync::Arc;

use crate::OnRelease;
use crate::disk::DEFAULT_FILE_MODE;
use crate::segment::segment_file::LOG_AT;
use crate::{CodecId, Error, ErrorKind, Lsn, Result};

/// The smallest log buffer: 4 KiB.
pub const MIN_BUFFER_BYTES: usize = 4 << 10;
/// The largest log buffer: 1 GiB.
pub const MAX_BUFFER_BYTES: usize = 1 << 30;
/// The smallest segment of any store: 4 KiB.
pub const MIN_SEGMENT_BYTES: u64 = 4 << 10;
/// The largest segment: 1 TiB.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 40;
/// Bytes of log in a segment by default: 64 MiB.
pub const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;
/// The smallest segment on files: 64 KiB.
pub const MIN_FILE_BYTES: u64 = 64 << 10;

/// Leaves half of all LSNs to the log.
const MAX_FIRST_LSN: Lsn = Lsn::new(Lsn::LIMIT.as_u64() / 2);
/// A limit's files: the segment that is written, the one that is ready, a spare, and one to go on
/// while a truncation frees the oldest.
const MIN_FILES: u64 = 4;
const OWNER_MODE: u32 = 0o600;

/// The memory of the log buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferKind {
    /// [`Mapped`](BufferKind::Mapped) if possible, else [`Heap`](BufferKind::Heap).
    #[default]
    Auto,
    /// The heap: what only the buffer has dies with the process.
    Heap,
    /// A shared log buffer: a mapped file in a tmpfs, at `/dev/shm` on Linux. It outlives the
    /// process, but not the operating system. An open returns `Unsupported` without such a folder,
    /// and `NoSpace` if it is full. It takes memory until a close, or after a kill until the next
    /// open: see `docs/durability.md`, "The log buffer".
    Mapped,
}

/// Whether an open creates the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenMode {
    /// Opens the log, or creates it and its folder, but not the folder's parents: a disk that is
    /// not mounted must not yield an empty log.
    #[default]
    CreateIfMissing,
    /// Creates the log, or returns `AlreadyExists`.
    CreateNew,
    /// Opens the log, or returns `NotFound`.
    MustExist,
}

/// Settings of a [`FileStore`](crate::FileStore), checked at its open. `Options` documents them.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Bytes of log in a segment.
    pub segment_bytes: Option<u64>,
    /// The memory of the log buffer.
    pub buffer: BufferKind,
    /// Whether an open creates the log.
    pub open_mode: OpenMode,
    /// The least number of released segments kept for reuse.
    pub spare_segments: usize,
    /// Whether files are zeroed ahead of the tail.
    pub zero_fill: bool,
    /// Permissions of new files, on Unix: `0o600` and other bits up to `0o777`.
    pub file_mode: u32,
    /// Gets each released segment.
    pub on_release: Option<Arc<dyn OnRelease>>,
    /// The most bytes of the files of segments and spares.
    pub max_bytes: Option<u64>,
    /// The least LSN of a new log.
    pub first_lsn: Lsn,
    /// The codec of the records.
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

    pub(crate) fn new_segment_bytes(&self) -> u64 {
        self.segment_bytes.unwrap_or(DEFAULT_SEGMENT_BYTES)
    }

    pub(crate) fn begin(&self) -> Lsn {
        self.first_lsn.segment_start_at_or_above(self.new_segment_bytes())
    }
}

/// Checks a segment size in bytes.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`].
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

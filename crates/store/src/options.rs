//! What can be chosen about a log's files.

use std::fmt;
use std::path::PathBuf;

use palisade_core::{Result, check_segment_bytes};

/// Bytes of log in a segment of a log that is made without saying: 64 MiB.
pub const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;
/// Smallest segment that a log on files may have: 64 KiB.
pub const MIN_FILE_BYTES: u64 = 64 << 10;

/// What the log buffer lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferKind {
    /// Mapped where the file system is known to overwrite in place (ext2, ext3, ext4, XFS and
    /// tmpfs on Linux), the heap everywhere else.
    #[default]
    Auto,
    /// The heap: what is only in the buffer dies with the process.
    Heap,
    /// A shared mapping of the file `buffer`: the operating system keeps what is in the buffer
    /// when the process dies. Where the file system copies on write, a full disk can end the
    /// process (SIGBUS).
    Mapped,
}

/// Whether a log may or must be there before it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenMode {
    /// Makes the log if there is none, and its folder, but not the folder's parents: a disk that
    /// is not mounted must not yield an empty log.
    #[default]
    Create,
    /// Makes the log; one that is there already is an error.
    CreateNew,
    /// The log has to be there.
    MustExist,
}

/// How commits reach the medium. Every method keeps the same promise: what is acknowledged survives
/// power loss. They differ in speed, and in the space that a commit takes.
///
/// A log keeps its method; an open that names another one changes it from there on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncMethod {
    /// The method that the log has. A log that is made gets [`Direct`](SyncMethod::Direct) where a
    /// measurement of some milliseconds, on a file in its folder, shows that it wins, else
    /// [`DataSync`](SyncMethod::DataSync).
    #[default]
    Auto,
    /// A write, then `fdatasync`: one at a time, for all who wait. Commits lie close together.
    DataSync,
    /// Writes past the page cache (`O_DIRECT|O_DSYNC`), up to four in flight. Each begins and ends
    /// with a block, so a commit takes a multiple of 4096 bytes of log. It wins where the device
    /// works on several writes at a time and many threads commit; a single thread that commits
    /// small records is served as soon, and takes more space.
    ///
    /// Where the file system does not overwrite in place, or cannot write in this way, the log
    /// does as with [`DataSync`](SyncMethod::DataSync).
    Direct,
}

impl fmt::Display for SyncMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncMethod::Auto => "what the log has",
            SyncMethod::DataSync => "fdatasync",
            SyncMethod::Direct => "direct writes",
        })
    }
}

impl SyncMethod {
    /// The method of a log for which this was asked, and which has, or had best have, `known`.
    pub(crate) fn or(self, known: impl FnOnce() -> SyncMethod) -> SyncMethod {
        if self == SyncMethod::Auto { known() } else { self }
    }
}

/// Settings of a [`FileStore`](crate::FileStore); checked when it is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileOptions {
    /// Bytes of log in a segment: a multiple of 4096 from 64 KiB to 1 TiB, fixed when the log is
    /// made. Default `None`: 64 MiB for a log that is made, whatever it has for one that is
    /// there. Space comes back segment by segment; below some MiB the making of segments shows.
    pub segment_bytes: Option<u64>,
    /// What the log buffer lies on. Default [`BufferKind::Auto`].
    pub buffer: BufferKind,
    /// Whether the log may or must be there. Default [`OpenMode::Create`].
    pub mode: OpenMode,
    /// Released segments that are kept at least, to be used again: overwriting blocks syncs faster
    /// than growing a file. Default 4. Where the log takes more between two truncations, as many as it
    /// takes are kept, up to four times the option. One more is kept in any case: with it a log opens on a
    /// full disk. The folder never grows by all of this beyond what the log took itself and one spare.
    pub spare_segments: usize,
    /// Whether space is written with zeros once, ahead of the tail, by a thread of the store, so
    /// that commits touch no metadata of the file system. Default true. Turn it off where each
    /// byte that is written costs, or where syncs cost little.
    pub zero_fill: bool,
    /// How commits reach the medium. Default [`SyncMethod::Auto`].
    pub sync_method: SyncMethod,
    /// A folder to which the segments are copied that
    /// [`truncate_before`](palisade_core::Wal::truncate_before) releases, before the log loses
    /// them. Made at open, but not its parents; an open that is refused makes none. Read it with [`ArchiveReader`](crate::ArchiveReader).
    /// Each log needs one of its own. Default `None`: they are gone.
    pub archive: Option<PathBuf>,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            segment_bytes: None,
            buffer: BufferKind::Auto,
            mode: OpenMode::Create,
            spare_segments: 4,
            zero_fill: true,
            sync_method: SyncMethod::Auto,
            archive: None,
        }
    }
}

impl FileOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> FileOptions {
        FileOptions::default()
    }

    /// Checks every value; no segment may be smaller than `at_least`.
    pub(crate) fn validate(&self, at_least: u64) -> Result<()> {
        self.segment_bytes.map_or(Ok(()), |bytes| check_segment_bytes(bytes, at_least))
    }
}

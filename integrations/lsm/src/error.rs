use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade::Lsn;

/// The result of a call to the engine.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log failed. Its text names the cause and the action. After `Poisoned` and `Closed`, drop
    /// all handles and open the database again.
    ///
    /// If a write failed and the error has an `appended_lsn()`, the change is in the log and is
    /// visible, but not durable. If there is none, nothing was changed. After `NoSpace` and
    /// `NoFiles` the engine goes on: see [`Database::flush`](crate::Database::flush).
    #[error("the log failed: {0}")]
    Log(#[from] palisade::Error),

    /// The tables of a keyspace cannot be read or written. After a failed open or read, restore a
    /// backup if the cause is no lack of files or permissions. An open compares the list of tables
    /// with its checksum.
    #[error("tables in {} failed: {source}; look at the disk, or restore a backup", path.display())]
    Tables {
        /// The folder of the tables, or the file in it.
        path: PathBuf,
        /// What `lsm-tree` reports.
        source: lsm_tree::Error,
    },

    /// A file or folder of the database cannot be made, read or written.
    #[error("{} failed: {source}; look at its permissions and at the disk", path.display())]
    Io {
        /// The file or the folder.
        path: PathBuf,
        /// What the operating system reports.
        source: io::Error,
    },

    /// There is no keyspace of this name. Make it with `create_keyspace`.
    #[error("there is no keyspace `{0}`; make it with create_keyspace")]
    NotFound(String),

    /// A keyspace of this name exists. Open it with `keyspace`.
    #[error("the keyspace `{0}` exists; open it with keyspace")]
    AlreadyExists(String),

    /// An argument is wrong. Nothing was changed.
    #[error("{0}; nothing was changed")]
    InvalidArgument(&'static str),

    /// The log and the tables do not belong together, or one of them is missing or older. Put all
    /// of the database's folder back from one backup.
    #[error("{0}; put the whole folder back from one backup")]
    Mismatch(String),

    /// A record of the log is intact, but this version did not write it. Use the version that did.
    #[error("this version cannot read the record at LSN {lsn}; use the version that wrote it")]
    Unsupported {
        /// The record.
        lsn: Lsn,
    },

    /// A flush or a compaction panicked. The panic's message tells more.
    #[error("a flush or a compaction panicked")]
    Panicked,

    /// A flush or a compaction failed earlier, so the engine takes no more writes. Nothing that was
    /// acknowledged is lost: mend the cause, drop all handles and open the database again.
    #[error("the engine stopped, open it again: {0}")]
    Stopped(Arc<Error>),
}

impl Error {
    /// Whether the record of a failed write is in the log.
    pub(crate) fn is_appended(&self) -> bool {
        matches!(self, Error::Log(error) if error.appended_lsn().is_some())
    }

    pub(crate) fn tables(path: &Path) -> impl FnOnce(lsm_tree::Error) -> Error {
        move |source| Error::Tables { path: path.to_owned(), source }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { path: path.to_owned(), source }
    }
}

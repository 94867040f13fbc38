//! The error type.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Lsn;

/// EMFILE and ENFILE, the same on every Unix, and ERROR_TOO_MANY_OPEN_FILES.
#[cfg(not(windows))]
const NO_FILES: &[i32] = &[24, 23];
#[cfg(windows)]
const NO_FILES: &[i32] = &[4];

const READ_ONLY: &str = "the file system is read-only, as the system makes it after a device error \
                         (`dmesg`): repair it and mount it for writing, then open the log again";

const NO_MEMORY: &str = "the system lacks memory, or a limit of this process is reached \
                         (RLIMIT_AS, a cgroup): free memory or raise the limit, then try again; \
                         open a poisoned log again";

/// The result of every fallible call.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of a failure, whose [`advice`](ErrorKind::advice) says what a caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or option has an unusable value.
    InvalidArgument,
    /// A record or batch exceeds `Wal::max_record_bytes`. Nothing was reserved.
    TooLarge,
    /// The log buffer is full, or a truncation of the suffix is in progress. Only `try_append`
    /// returns this; nothing was reserved.
    NoRoom,
    /// As many futures and callbacks wait as `Options::max_waiters` allows: awaited tickets,
    /// `on_durable`, `ended`, and polled tails, cursors and consumers. Only the wait failed: an
    /// appended record is in the log.
    TooManyWaiters,
    /// The disk is full, or a limit is reached. The log keeps appended records and writes them when
    /// there is space: see [`Error::appended_lsn`].
    NoSpace,
    /// The process or system lacks a file descriptor. Nothing is lost, as with `NoSpace`.
    NoFiles,
    /// The log was closed, through this handle or another one.
    Closed,
    /// This process was forked from the one that opened the log. Nothing was changed.
    Forked,
    /// A write or a sync failed earlier, the folder was moved, or the engine called `abandon`. The
    /// log writes and syncs nothing more. What was acknowledged is safe.
    ///
    /// If [`Error::io_kind`] is `NotFound`, the folder was moved, removed or replaced. Only that
    /// folder has the acknowledged records; without `MustExist` an open of the path would make an
    /// empty log.
    Poisoned,
    /// `OpenMode::MustExist` found no log, the parent of its folder is missing, or the folder was
    /// moved, removed or replaced during the open or later.
    NotFound,
    /// `OpenMode::CreateNew` found a log.
    AlreadyExists,
    /// The folder holds something other than a log, or a link, a FIFO or a folder has the name of a
    /// log's file. Nothing was changed.
    Foreign,
    /// This version does not know the format. No record is lost.
    Unsupported,
    /// An option differs from what the log was created with. Nothing was changed.
    Mismatch,
    /// Another process, handle or forked child holds the log; or the cursor or consumer is already
    /// open.
    Locked,
    /// Acknowledged data is damaged or missing. No other record is lost.
    Corrupt,
    /// No record begins at the given LSN.
    NotARecord,
    /// The LSN is above the end of the log (or at it, for a wait), or no LSN is left below
    /// `Lsn::LIMIT`: then make a new log.
    OutOfRange,
    /// The record is below the head, or a crash or a truncation of the suffix removed it. A backup
    /// or an `Inspector` returns this if the log was truncated meanwhile: call again.
    Truncated,
    /// The log was truncated above a cursor that did not keep it or lagged too much.
    Lagged,
    /// This process may not use the folder or a file.
    PermissionDenied,
    /// The operating system reported another failure, which [`Error::io_kind`] names. If the call,
    /// or the wait for an [`Error::appended_lsn`], fails again, stop the engine.
    Io,
}

/// A failure of the log. Cloning is cheap; a poisoned log returns the same error to every caller.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    // `None` if the kind needs no detail. Such errors do not allocate.
    detail: Option<Arc<Detail>>,
}

#[derive(Clone, Default)]
struct Detail {
    message: String,
    path: Option<PathBuf>,
    segment: Option<u64>,
    lsn: Option<Lsn>,
    appended: Option<Lsn>,
    advice: Option<&'static str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Detail {
    fn write_finding(&self, f: &mut impl fmt::Write) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(path) = &self.path {
            write!(f, " [{}]", path.display())?;
        }
        if let Some(segment) = self.segment {
            write!(f, " (segment {segment})")?;
        }
        if let Some(lsn) = self.lsn {
            write!(f, " (LSN {lsn})")?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl Error {
    /// Creates an error with a text of what was found and expected.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let detail = Detail { message: message.into(), ..Detail::default() };
        Error { kind, detail: Some(Arc::new(detail)) }
    }

    /// Creates an error with only a kind, without an allocation.
    #[must_use]
    pub const fn bare(kind: ErrorKind) -> Error {
        Error { kind, detail: None }
    }

    /// Creates an error of the operating system while doing `what`, such as `"sync segment"`. A
    /// quota and a limit to files' length give [`ErrorKind::NoSpace`], and a read-only file system
    /// gives [`ErrorKind::PermissionDenied`].
    #[must_use]
    pub fn io(what: &str, source: io::Error) -> Error {
        let kind = match source.kind() {
            _ if source.raw_os_error().is_some_and(|code| NO_FILES.contains(&code)) => {
                ErrorKind::NoFiles
            }
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => ErrorKind::NoSpace,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::PermissionDenied
            }
            _ => ErrorKind::Io,
        };
        let advice = match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Some(READ_ONLY),
            io::ErrorKind::OutOfMemory => Some(NO_MEMORY),
            _ => None,
        };
        let error = Error::new(kind, format!("could not {what}")).with_source(source);
        if let Some(advice) = advice { error.with_advice(advice) } else { error }
    }

    /// Names the file or folder.
    #[must_use]
    pub fn at_path(self, path: impl AsRef<Path>) -> Error {
        self.amend(|detail| detail.path = Some(path.as_ref().to_path_buf()))
    }

    /// Puts `part`, such as one log of several, before the text.
    #[doc(hidden)]
    #[must_use]
    pub fn within(self, part: &str) -> Error {
        self.amend(|detail| {
            let text = std::mem::take(&mut detail.message);
            detail.message =
                if text.is_empty() { part.to_owned() } else { format!("{part}: {text}") };
        })
    }

    #[doc(hidden)]
    #[must_use]
    pub fn at_segment(self, segment: u64) -> Error {
        self.amend(|detail| detail.segment = Some(segment))
    }

    /// Names the LSN.
    #[must_use]
    pub fn at_lsn(self, lsn: Lsn) -> Error {
        self.amend(|detail| detail.lsn = Some(lsn))
    }

    /// Notes that the call had appended a record.
    #[must_use]
    pub fn after_append(self, lsn: Lsn) -> Error {
        self.amend(|detail| detail.appended = Some(lsn))
    }

    /// Replaces the kind's [advice](ErrorKind::advice).
    #[must_use]
    pub fn with_advice(self, advice: &'static str) -> Error {
        self.amend(|detail| detail.advice = Some(advice))
    }

    /// Attaches the cause.
    #[must_use]
    pub fn with_source(self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.amend(|detail| detail.source = Some(Arc::new(source)))
    }

    /// Returns the same failure under another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.kind = kind;
        self
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the same call can succeed later: after `NoRoom`, `TooManyWaiters`, `Locked`,
    /// `NoSpace` or `NoFiles`, unless there is an [`appended_lsn`](Error::appended_lsn), because
    /// the call would append again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Locked, NoRoom, TooManyWaiters};
        let is_passing = matches!(self.kind, NoRoom | TooManyWaiters | Locked);
        self.appended_lsn().is_none() && (is_passing || self.is_shortage())
    }

    /// Returns whether space or file descriptors are lacking, which does not poison the log.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(self.kind, ErrorKind::NoSpace | ErrorKind::NoFiles)
    }

    /// Returns whether the same call can never succeed on this handle (`Poisoned`, `Closed`,
    /// `Forked`, `Corrupt`). After a `Corrupt` from a read other data can be read.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        use ErrorKind::{Closed, Corrupt, Forked, Poisoned};
        matches!(self.kind, Poisoned | Closed | Corrupt | Forked)
    }

    /// Returns the LSN that the error is about.
    #[must_use]
    pub fn lsn(&self) -> Option<Lsn> {
        self.detail.as_ref().and_then(|detail| detail.lsn)
    }

    /// Returns the LSN of the record, or the first of several, that the failed call had appended.
    /// The record is in the log, unless the list below says otherwise: another append would make a
    /// second one. An error of any kind can have this LSN, also that of an awaited ticket.
    ///
    /// - `TooManyWaiters`, `Io`: wait with `Wal::wait_durable`; after `NoSpace` and `NoFiles` once
    ///   there is space, or a file descriptor.
    /// - `Truncated`: a truncation of the suffix removed the record, or the last of several. Append
    ///   them again only if they are still needed.
    /// - `Poisoned`, `Closed`: open the log again, and look whether the record has survived.
    ///
    /// If the stored length of one of several records is `len`, the next one begins
    /// `framed_bytes(len)` above it. To wait for all, wait for the last one, or call `Wal::sync`.
    #[must_use]
    pub fn appended_lsn(&self) -> Option<Lsn> {
        self.detail.as_ref().and_then(|detail| detail.appended)
    }

    /// Returns the segment's number.
    #[must_use]
    pub fn segment(&self) -> Option<u64> {
        self.detail.as_ref().and_then(|detail| detail.segment)
    }

    /// Returns the file or folder.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.detail.as_ref().and_then(|detail| detail.path.as_deref())
    }

    /// Returns what went wrong and where, without advice; may be empty.
    #[must_use]
    pub fn finding(&self) -> String {
        let mut text = String::new();
        if let Some(detail) = &self.detail {
            // Writing to a `String` cannot fail.
            let _ = detail.write_finding(&mut text);
        }
        text
    }

    /// Returns the advice that replaces the [kind's](ErrorKind::advice).
    #[must_use]
    pub fn advice_of_cause(&self) -> Option<&'static str> {
        self.detail.as_ref().and_then(|detail| detail.advice)
    }

    /// Returns what the operating system reported.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        let source = self.detail.as_ref()?.source.as_ref()?;
        source.downcast_ref::<io::Error>().map(io::Error::kind)
    }

    fn is_about_the_wait_only(&self) -> bool {
        self.is_shortage() || self.kind == ErrorKind::TooManyWaiters
    }

    fn amend(mut self, change: impl FnOnce(&mut Detail)) -> Error {
        let mut detail = self.detail.as_deref().cloned().unwrap_or_default();
        change(&mut detail);
        self.detail = Some(Arc::new(detail));
        self
    }
}

impl ErrorKind {
    /// Returns what a caller should do. An error's text may have more precise advice.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "correct the argument",
            ErrorKind::TooLarge => "split the record, or open with larger segments and buffer",
            ErrorKind::NoRoom => {
                "the log buffer is full, or a truncation of the suffix is in progress; try again, \
                 or call append, which waits"
            }
            ErrorKind::TooManyWaiters => {
                "let some futures and callbacks complete, or open the log with more max_waiters"
            }
            ErrorKind::NoSpace => {
                "the disk is full, or a limit is reached; nothing is lost: free space, or raise \
                 the limit, then call again"
            }
            ErrorKind::NoFiles => {
                "no file descriptor is left; nothing is lost: close files or raise the limit, then \
                 call again"
            }
            ErrorKind::Closed => "the log was closed; open it again",
            ErrorKind::Forked => {
                "this process was forked from the one that opened the log: after that one has \
                 closed the log, open it here"
            }
            ErrorKind::Poisoned => {
                "the log accepts nothing more; what was acknowledged is safe: drop all handles \
                 and open it again with OpenMode::MustExist, then compare uuid(), and call \
                 wait_durable with the last acknowledged LSN"
            }
            ErrorKind::NotFound => "check that the path is right and its disk is mounted",
            ErrorKind::AlreadyExists => {
                "open it without OpenMode::CreateNew, or name another folder"
            }
            ErrorKind::Foreign => "name an empty folder or one that holds a Palisade log",
            ErrorKind::Unsupported => "open it with a version of Palisade that knows the format",
            ErrorKind::Mismatch => "open with the values that the log was created with",
            ErrorKind::Locked => {
                "close the other process, or the other handle (an iterator, a tail and a detached \
                 ticket are handles, too), or end a child that was forked while the log was open; \
                 then open again"
            }
            ErrorKind::Corrupt => {
                "`palisade verify --deep` names what is damaged or missing: restore from a replica \
                 or backup, or copy with `palisade repair` what is below the damage"
            }
            ErrorKind::NotARecord => "use an LSN that the log returned for a record",
            ErrorKind::OutOfRange => "use an LSN below the end of the log",
            ErrorKind::Truncated => {
                "the record is gone for good: it lies below head_lsn(), or a truncation or a crash \
                 removed it"
            }
            ErrorKind::Lagged => "continue elsewhere with Cursor::seek, for example at the head",
            ErrorKind::PermissionDenied => {
                "grant this process access to the folder and the files in it: a tool needs to read \
                 them, an open also to write them"
            }
            ErrorKind::Io => {
                "call once more; if it fails again, stop and look at the device (`dmesg`)"
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(detail) = self.detail.as_deref() else {
            return f.write_str(self.kind.advice());
        };
        detail.write_finding(f)?;
        let advice = detail.advice.unwrap_or_else(|| self.kind.advice());
        if let Some(lsn) = detail.appended.filter(|_| self.is_about_the_wait_only()) {
            let first = advice.trim_end_matches(", then call again");
            return write!(
                f,
                "; the record is in the log at LSN {lsn}: {first}, then wait for it with \
                 wait_durable"
            );
        }
        if let Some(lsn) = detail.appended.filter(|_| self.kind == ErrorKind::Io) {
            return write!(
                f,
                "; the record is in the log at LSN {lsn}: wait for it with wait_durable; if that \
                 fails, stop and look at the device (`dmesg`)"
            );
        }
        write!(f, "; {advice}")?;
        match detail.appended {
            None => Ok(()),
            // It is gone, so the caller may append it again.
            Some(_) if self.kind == ErrorKind::Truncated => Ok(()),
            // A failed write may have reached the medium or not. The next open shows it.
            Some(lsn) if self.kind == ErrorKind::Poisoned => write!(
                f,
                "; the record was appended at LSN {lsn} and may have survived: look for it there \
                 before you append it again"
            ),
            Some(lsn) => {
                write!(f, "; the record was appended at LSN {lsn}: do not append it again")
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.detail.as_ref()?.source.as_ref()?;
        Some(source.as_ref())
    }
}

/// For engines with [`io::Result`]. The kind is the operating system's, or else the nearest one.
/// `error.get_ref()` and `downcast_ref::<palisade::Error>()` return the log's error.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = error.io_kind().unwrap_or(match error.kind {
            ErrorKind::InvalidArgument | ErrorKind::TooLarge => io::ErrorKind::InvalidInput,
            ErrorKind::NoRoom | ErrorKind::TooManyWaiters => io::ErrorKind::WouldBlock,
            ErrorKind::NoSpace => io::ErrorKind::StorageFull,
            ErrorKind::NotFound | ErrorKind::NotARecord => io::ErrorKind::NotFound,
            ErrorKind::OutOfRange | ErrorKind::Truncated | ErrorKind::Lagged => {
                io::ErrorKind::NotFound
            }
            ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::Corrupt | ErrorKind::Foreign => io::ErrorKind::InvalidData,
            ErrorKind::Locked => io::ErrorKind::ResourceBusy,
            ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        });
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests;

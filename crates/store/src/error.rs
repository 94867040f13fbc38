//! The error type: what went wrong, where, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Lsn;

/// The error codes of a process, or a system, without a file descriptor left: EMFILE and ENFILE,
/// which have these numbers on every Unix, and ERROR_TOO_MANY_OPEN_FILES.
#[cfg(not(windows))]
const NO_FILES: &[i32] = &[24, 23];
#[cfg(windows)]
const NO_FILES: &[i32] = &[4];

const READ_ONLY: &str = "the file system is read-only, as the system makes it after a device error \
                         (`dmesg`): repair it and mount it for writing, then open the log again";

const NO_MEMORY: &str = "the system lacks memory, or a limit of this process is reached \
                         (RLIMIT_AS, a cgroup): free memory or raise the limit, then try again; \
                         open a poisoned log again";

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of a failure, by which a caller can decide what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or option has a value that the log cannot work with. Correct the call.
    InvalidArgument,
    /// A record or batch is larger than `Wal::max_record_bytes` allows. Nothing was reserved. Split
    /// the record or open the log with larger segments and a larger buffer.
    TooLarge,
    /// The buffer has no room at present. Only `try_append` returns it; nothing was reserved. Try
    /// again, or use `append`, which waits.
    NoRoom,
    /// As many futures and callbacks wait as `Options::max_waiters` allows: awaited tickets,
    /// callbacks of `on_durable`, futures of `ended`, and tails, cursors and consumers that a task
    /// polls. Only the wait was refused: a record that was appended is in the log. Wait again
    /// later, or open the log with a higher limit.
    TooManyWaiters,
    /// The disk is full, or a limit to the size of files is reached. Appended records are still in
    /// the log and will be written when there is space. Free space (for example with
    /// `truncate_before`), then call again; see [`Error::appended_lsn`].
    NoSpace,
    /// The process or the system has no file descriptor left. Nothing is lost, as with `NoSpace`:
    /// close files or raise the limit, then call again; see [`Error::appended_lsn`].
    NoFiles,
    /// The log was closed through another handle. Open it again.
    Closed,
    /// This process was forked from the one that opened the log. Nothing was changed. After the
    /// other process has closed the log, open it in this one.
    Forked,
    /// A write or sync failed earlier, so the log writes and syncs nothing more. Everything that
    /// was acknowledged is safe: drop all handles and open the log again, with `MustExist`. Then
    /// compare `Wal::uuid`, and call `Wal::wait_durable` with the last acknowledged LSN.
    ///
    /// If [`Error::io_kind`] is `NotFound`, the folder was moved, removed or replaced while the log
    /// was open. The acknowledged records are in that folder only. Another open of the path would
    /// make an empty log, unless it has `MustExist`.
    Poisoned,
    /// `OpenMode::MustExist` was asked for and there is no log, or the parent of the log's folder
    /// is missing. A log whose folder was moved, removed or replaced during an open or afterwards
    /// returns it, too.
    NotFound,
    /// `OpenMode::CreateNew` was asked for and there is a log already.
    AlreadyExists,
    /// The folder holds something that is not a Palisade log, or one of the log's files is a link,
    /// a FIFO or a folder. Nothing was changed.
    Foreign,
    /// The log was written in a format that this version does not know. No record is lost: use a
    /// version that knows the format.
    Unsupported,
    /// An option differs from what the log was created with. Nothing was changed: correct it.
    Mismatch,
    /// Another process, another handle in this one, or a child that was forked while the log was
    /// open holds the log; or the cursor or consumer is open already. Close the other one or end
    /// the child, then call again.
    Locked,
    /// Data that had been acknowledged as durable is damaged or missing. No other record is lost.
    /// Restore from a replica or a backup, or repair the log (`Repair`).
    Corrupt,
    /// No record begins at the given LSN.
    NotARecord,
    /// The LSN is above the end of the log, or no LSN is left below `Lsn::LIMIT`: then make a new
    /// log. A call that waits for a record returns this kind for the end of the log, too.
    OutOfRange,
    /// The record at the LSN was truncated: it is below the head of the log, or a crash or a
    /// truncation of the suffix removed it. A backup or an `Inspector` returns it if the log was
    /// truncated meanwhile: call again.
    Truncated,
    /// The log was truncated above the position of a cursor, which did not keep it or lagged too
    /// much. Continue elsewhere with `Cursor::seek`.
    Lagged,
    /// This process may not use the folder, or a file in it. Correct the permissions.
    PermissionDenied,
    /// The operating system reported a failure that has no kind of its own. Call again, or wait for
    /// the record if there is an [`Error::appended_lsn`]. If that fails, stop the engine:
    /// [`Error::io_kind`] and the messages of the system (`dmesg`) name the cause.
    Io,
}

/// A failure of the log: its [kind](Error::kind), where it happened, what was found, and what to
/// do.
///
/// Cloning is cheap; a poisoned log hands the same error to every caller.
///
/// ```
/// use palisade::{Error, ErrorKind, Lsn};
/// let error = Error::new(ErrorKind::NotARecord, "no record begins here").at_lsn(Lsn::new(7));
/// assert_eq!(error.kind(), ErrorKind::NotARecord);
/// assert!(error.to_string().contains("LSN 7"));
/// ```
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
    /// Writes what went wrong and where, without the advice.
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
    /// Creates an error of `kind` whose text says what was found and what was expected.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let detail = Detail { message: message.into(), ..Detail::default() };
        Error { kind, detail: Some(Arc::new(detail)) }
    }

    /// Creates an error that has only a kind. Does not allocate.
    #[must_use]
    pub const fn bare(kind: ErrorKind) -> Error {
        Error { kind, detail: None }
    }

    /// Creates an error of the operating system while doing `what` (for example `"sync segment"`).
    ///
    /// A full disk or quota, or a file at the length limit of the system, becomes
    /// [`ErrorKind::NoSpace`]. A lack of file descriptors becomes [`ErrorKind::NoFiles`], a refusal
    /// or a read-only file system [`ErrorKind::PermissionDenied`], everything else
    /// [`ErrorKind::Io`].
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

    /// Names the file or folder that the error is about.
    #[must_use]
    pub fn at_path(self, path: impl AsRef<Path>) -> Error {
        self.amend(|detail| detail.path = Some(path.as_ref().to_path_buf()))
    }

    /// Puts before the text which part of a whole the error is about, such as a log of several.
    #[doc(hidden)]
    #[must_use]
    pub fn within(self, part: &str) -> Error {
        self.amend(|detail| {
            let text = std::mem::take(&mut detail.message);
            detail.message =
                if text.is_empty() { part.to_owned() } else { format!("{part}: {text}") };
        })
    }

    /// Names the segment that the error is about.
    #[doc(hidden)]
    #[must_use]
    pub fn at_segment(self, segment: u64) -> Error {
        self.amend(|detail| detail.segment = Some(segment))
    }

    /// Names the LSN that the error is about.
    #[must_use]
    pub fn at_lsn(self, lsn: Lsn) -> Error {
        self.amend(|detail| detail.lsn = Some(lsn))
    }

    /// Notes that the call had appended a record at `lsn` before it failed.
    #[must_use]
    pub fn after_append(self, lsn: Lsn) -> Error {
        self.amend(|detail| detail.appended = Some(lsn))
    }

    /// Replaces the [advice](ErrorKind::advice) of the kind if the cause calls for another one.
    #[must_use]
    pub fn with_advice(self, advice: &'static str) -> Error {
        self.amend(|detail| detail.advice = Some(advice))
    }

    /// Attaches the error that caused this one.
    #[must_use]
    pub fn with_source(self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.amend(|detail| detail.source = Some(Arc::new(source)))
    }

    /// Returns the same failure under another kind, for example an I/O error that poisons the log.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.kind = kind;
        self
    }

    /// Returns the kind of this failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the same call can succeed later on the same log: after a wait (`NoRoom`,
    /// `TooManyWaiters`, `Locked`), or with more space (`NoSpace`) or file descriptors (`NoFiles`).
    ///
    /// Returns false if the call has appended a record ([`appended_lsn`](Error::appended_lsn)): the
    /// same call would append it again. Wait with `Wal::wait_durable` instead.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Locked, NoRoom, TooManyWaiters};
        let is_passing = matches!(self.kind, NoRoom | TooManyWaiters | Locked);
        self.appended_lsn().is_none() && (is_passing || self.is_shortage())
    }

    /// Returns whether the system lacked space (`NoSpace`) or file descriptors (`NoFiles`). Nothing
    /// is lost, and the log is not poisoned.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(self.kind, ErrorKind::NoSpace | ErrorKind::NoFiles)
    }

    /// Returns whether a call with the same arguments can never succeed on this handle: the log is
    /// poisoned or closed, the process is a forked child, or the data is damaged. After a `Corrupt`
    /// from a read the handle still works for other data.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        use ErrorKind::{Closed, Corrupt, Forked, Poisoned};
        matches!(self.kind, Poisoned | Closed | Corrupt | Forked)
    }

    /// Returns the LSN that the error is about, if there is one.
    #[must_use]
    pub fn lsn(&self) -> Option<Lsn> {
        self.detail.as_ref().and_then(|detail| detail.lsn)
    }

    /// Returns the LSN of the record, or of the first record of the batch, that the failed call had
    /// appended. The record is in the log, so another append would make a second one. Returns
    /// `None` if the call appended nothing.
    ///
    /// An error of any kind can have this LSN, also the error of an awaited ticket. For example, if
    /// `max_waiters` is exceeded, the record is in the log and only the wait fails.
    ///
    /// - `NoSpace`, `NoFiles`: free space or files, then wait with `Wal::wait_durable`.
    /// - `TooManyWaiters`, `Io`: only the wait failed; wait with `Wal::wait_durable`.
    /// - `Truncated`: a truncation of the suffix has removed the record, or the last ones of
    ///   several. Append them again only if they are still needed.
    /// - `Poisoned`, `Closed`: open the log again. The record may have survived, so look before you
    ///   append it again.
    ///
    /// If the call has appended several records, each begins `framed_bytes(len)` above the one
    /// before it, where `len` is the stored length of the one before. To wait for all of them, wait
    /// for the last one, or call `Wal::sync`.
    #[must_use]
    pub fn appended_lsn(&self) -> Option<Lsn> {
        self.detail.as_ref().and_then(|detail| detail.appended)
    }

    /// Returns the number of the segment that the error is about, if there is one.
    #[must_use]
    pub fn segment(&self) -> Option<u64> {
        self.detail.as_ref().and_then(|detail| detail.segment)
    }

    /// Returns the file or folder that the error is about, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.detail.as_ref().and_then(|detail| detail.path.as_deref())
    }

    /// Returns what went wrong and where, without the advice. Empty if the kind needs no detail.
    /// For programs that give advice of their own.
    #[must_use]
    pub fn finding(&self) -> String {
        let mut text = String::new();
        if let Some(detail) = &self.detail {
            // Writing to a `String` cannot fail.
            let _ = detail.write_finding(&mut text);
        }
        text
    }

    /// Returns the advice of the cause, if it calls for another one than the
    /// [kind's](ErrorKind::advice).
    #[must_use]
    pub fn advice_of_cause(&self) -> Option<&'static str> {
        self.detail.as_ref().and_then(|detail| detail.advice)
    }

    /// Returns what the operating system reported, if this error comes from one of its calls.
    ///
    /// ```
    /// use palisade::{Error, ErrorKind};
    /// use std::io;
    ///
    /// let error = Error::io("sync the segment", io::Error::from(io::ErrorKind::StorageFull));
    /// assert_eq!(error.kind(), ErrorKind::NoSpace);
    /// assert_eq!(error.io_kind(), Some(io::ErrorKind::StorageFull));
    /// ```
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        let source = self.detail.as_ref()?.source.as_ref()?;
        source.downcast_ref::<io::Error>().map(io::Error::kind)
    }

    /// Returns whether an error of a call that has appended a record is only about the wait for it.
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
    /// Returns what a caller should do about an error of this kind, in one sentence. An error with
    /// more precise advice has that in its text instead.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "correct the argument",
            ErrorKind::TooLarge => "split the record, or open with larger segments and buffer",
            ErrorKind::NoRoom => "the buffer is full; try again, or call append, which waits",
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
                "grant this process access to the folder and the files in it: to read them for a \
                 tool that only looks, to write them, too, for an open"
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

/// An engine whose calls return [`io::Result`] uses `?` on the log's calls. The error's own kind is
/// that of the operating system if a call of it failed, else the nearest one. The log's error is
/// its inner error: `error.get_ref()` and `downcast_ref::<palisade::Error>()` return it.
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

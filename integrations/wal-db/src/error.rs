//! The error of all calls.

use std::{fmt, io};

use error_forge::ForgeError;
use palisade::ErrorKind;

use crate::log::Left;

pub(crate) const NO_RECORD: &str = "no record begins at this LSN";
pub(crate) const BAD_PARTS: &str =
    "the parts of a long record do not fit together: restore the log's folder from a backup";
const DAMAGED: &str = "acknowledged records are damaged or missing, and nothing was changed: \
     restore the log's folder from a backup, or copy what is left with `palisade repair`";

const PARTS_IN_LOG: &str = "the record is not in the log, but parts of it are, and could not be \
     removed: free space, drop the log and open it again";
const IN_LOG: &str = "the record is in the log, and not durable yet: free space, then call \
     `sync`; do not append the record again";

/// The result of a call. Its error is a [`WalError`] unless another is named.
pub type Result<T, E = WalError> = std::result::Result<T, E>;

/// Why a call failed.
#[non_exhaustive]
#[derive(Debug)]
pub enum WalError {
    /// A call to the operating system failed, or the log refuses the call.
    ///
    /// `source` has the kind of the operating system's error. Its kind is `StorageFull` only if the
    /// caller can free space and call again. If the log below returned the error, its inner error
    /// is a [`palisade::Error`], whose text says what happened, where, and what to do. After a
    /// failed sync or write each later call returns an error: drop the log and open it again.
    Io {
        /// What the log was doing.
        context: &'static str,
        /// The cause.
        source: io::Error,
    },

    /// The record is longer than [`max_record_size`](crate::WalConfig::max_record_size). Nothing
    /// was changed: divide the record, or raise the limit.
    RecordTooLarge {
        /// The length of the record.
        len: usize,
        /// The length of the largest record.
        max: u32,
    },

    /// A record is damaged, or the LSN that the caller passed is not that of a record.
    Corruption {
        /// The LSN.
        offset: u64,
        /// What is wrong there, and what to do.
        reason: &'static str,
    },

    /// A value could not be written as a record, or a record is no such value (feature `pack-io`).
    Encoding {
        /// The text of the codec's error.
        detail: String,
    },
}

impl WalError {
    pub(crate) fn io(context: &'static str, source: impl Into<io::Error>) -> WalError {
        WalError::Io { context, source: source.into() }
    }

    /// Returns the error of a call of the log below. The kind is `StorageFull`, after which callers
    /// call again, only if the log still accepts calls.
    pub(crate) fn of_call(context: &'static str, error: palisade::Error) -> WalError {
        if !error.is_shortage() && error.io_kind() == Some(io::ErrorKind::StorageFull) {
            return WalError::io(context, io::Error::other(error));
        }
        WalError::io(context, error)
    }

    pub(crate) fn refused(
        context: &'static str,
        kind: io::ErrorKind,
        text: impl Into<String>,
    ) -> WalError {
        WalError::io(context, io::Error::new(kind, text.into()))
    }

    pub(crate) fn no_record(offset: u64) -> WalError {
        WalError::Corruption { offset, reason: NO_RECORD }
    }

    /// Returns the error of an append. If the record or parts of it are in the log nevertheless,
    /// the kind is not `StorageFull`, after which callers append it again.
    pub(crate) fn of_append(context: &'static str, left: Left, error: palisade::Error) -> WalError {
        let advice = match left {
            Left::Parts => PARTS_IN_LOG,
            Left::Record(_) => IN_LOG,
            Left::Nothing => return WalError::of_call(context, error),
        };
        if !error.is_shortage() {
            return WalError::of_call(context, error);
        }
        let error = palisade::Error::new(error.kind(), error.finding()).with_advice(advice);
        WalError::io(context, io::Error::other(error))
    }

    /// Returns the error of a read, an open or a truncation of the log whose first LSN is `origin`.
    pub(crate) fn of_log(context: &'static str, origin: u64, error: palisade::Error) -> WalError {
        let reason = match error.kind() {
            ErrorKind::Corrupt => DAMAGED,
            ErrorKind::NotARecord | ErrorKind::OutOfRange | ErrorKind::Truncated => NO_RECORD,
            _ => return WalError::of_call(context, error),
        };
        let offset = error.lsn().map_or(0, |lsn| lsn.as_u64().saturating_sub(origin));
        WalError::Corruption { offset, reason }
    }
}

impl fmt::Display for WalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalError::Io { context, source } => write!(f, "{context} failed: {source}"),
            WalError::RecordTooLarge { len, max } => {
                write!(f, "record of {len} bytes exceeds the maximum of {max} bytes")
            }
            WalError::Corruption { offset, reason } => write!(f, "at LSN {offset}: {reason}"),
            WalError::Encoding { detail } => write!(f, "typed record: {detail}"),
        }
    }
}

impl std::error::Error for WalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WalError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<io::Error> for WalError {
    fn from(source: io::Error) -> WalError {
        WalError::io("an operation on the log", source)
    }
}

impl ForgeError for WalError {
    fn kind(&self) -> &'static str {
        match self {
            WalError::Io { .. } => "Io",
            WalError::RecordTooLarge { .. } => "RecordTooLarge",
            WalError::Corruption { .. } => "Corruption",
            WalError::Encoding { .. } => "Encoding",
        }
    }

    fn caption(&self) -> &'static str {
        "write-ahead log error"
    }

    /// Returns true for [`Corruption`](WalError::Corruption): no second call helps.
    fn is_fatal(&self) -> bool {
        matches!(self, WalError::Corruption { .. })
    }
}

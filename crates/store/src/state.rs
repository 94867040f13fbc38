//! What a store keeps of a log.

use std::fmt;

use crate::{CodecId, Error, ErrorKind, Lsn, Result};

/// The identity of a log: 128 random bits. Store the bytes: no call parses the text.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a store keeps of the log as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The log's identity.
    pub uuid: Uuid,
    /// Bytes of log in a segment.
    pub segment_bytes: u64,
    /// Bytes of the running epoch's log buffer.
    pub buffer_bytes: u64,
    /// The running epoch; 0 before the first.
    pub epoch: u64,
    /// Where it begins.
    pub epoch_base: Lsn,
    /// Its salt.
    #[doc(hidden)]
    pub epoch_salt: u64,
    /// Everything below was truncated.
    pub head: Lsn,
    /// The greatest LSN of a `checkpoint`; a truncation of the suffix lowers it.
    pub checkpoint: Lsn,
    /// If `clean`, the log's end. Otherwise all below was durable at the last close or drop.
    pub clean_end: Lsn,
    /// Whether the log was closed, and not opened for writing since.
    pub clean: bool,
    /// If `clean`, the epochs that reach the head or end above it, ascending. The last one is the
    /// running one, which ends at `clean_end`. If empty, an open reads all segments' headers.
    #[doc(hidden)]
    pub epochs: Vec<EpochExtent>,
    /// The records' codec.
    pub codec: Option<CodecId>,
    /// At most 64, ascending by name.
    pub cursors: Vec<SavedCursor>,
    /// The bases of epochs that may be empty, and the head if it is a base, at most 16.
    #[doc(hidden)]
    pub bases: Vec<EpochBase>,
}

/// An epoch's base and the end of the epoch before; no record lies between. An open forgets an
/// epoch without records, but a reader may begin at its base until a truncation lowers that end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochBase {
    /// Exclusive end of the epoch before.
    pub end_before: Lsn,
    /// The base.
    pub base: Lsn,
}

/// The greatest number of bases of a state. Those of the running epoch and the head are among them,
/// so a base is remembered over 14 later epochs without records.
pub const MAX_BASES: usize = 16;

impl State {
    /// Returns the floor that the state alone proves.
    #[doc(hidden)]
    pub fn floor(&self) -> Lsn {
        self.head.max(self.checkpoint).max(self.clean_end).max(self.epoch_base)
    }

    /// Returns the highest position of a cursor, or 0. It was durable, and may be truncated.
    #[doc(hidden)]
    pub fn highest_cursor(&self) -> Lsn {
        self.cursors.iter().map(|cursor| cursor.position).fold(Lsn::ZERO, Lsn::max)
    }

    /// Returns the end of the epoch before the head, if the head is a base.
    #[must_use]
    pub fn end_before_head(&self) -> Lsn {
        let at_head = self.bases.iter().find(|known| known.base == self.head);
        at_head.map_or(self.head, |known| known.end_before)
    }

    #[doc(hidden)]
    pub fn note_base(&mut self, end_before: Lsn, base: Lsn) {
        if base <= end_before {
            return;
        }
        let (head, end_before_head) = (self.head, self.end_before_head());
        // Also one below the head, if there is no record between the two.
        let counts = |known: &EpochBase| known.base >= head || known.end_before >= end_before_head;
        self.bases.retain(|known| counts(known) && known.base != base);
        if self.bases.len() == MAX_BASES {
            let oldest = self.bases.iter().position(|known| known.base != head);
            self.bases.remove(oldest.unwrap_or(0));
        }
        self.bases.push(EpochBase { end_before, base });
    }
}

/// The greatest number of cursors of a log.
pub const MAX_CURSORS: usize = 64;

/// The greatest length of a cursor's name in bytes.
pub const MAX_CURSOR_NAME_BYTES: usize = 32;

/// A saved cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCursor {
    /// 1 to 32 bytes without zeros.
    pub name: String,
    /// The records below were processed, and durable. Between two epochs above the head it is the
    /// end of the one, not the base of the other.
    pub position: Lsn,
    /// The greatest lag with which the cursor keeps the log from `position` on. With 0 it keeps
    /// nothing.
    pub max_lag: u64,
}

impl SavedCursor {
    /// Returns whether the name is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let bytes = self.name.as_bytes();
        (1..=MAX_CURSOR_NAME_BYTES).contains(&bytes.len()) && !bytes.contains(&0)
    }

    /// Returns whether the cursor keeps the log at this lag.
    #[must_use]
    pub fn keeps(&self, lag: u64) -> bool {
        self.max_lag > 0 && lag <= self.max_lag
    }
}

/// Where an epoch's records lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochExtent {
    /// Its number.
    pub number: u64,
    /// Its salt.
    pub salt: u64,
    /// Where it begins.
    pub base: Lsn,
    /// Exclusive end of its records.
    pub end: Lsn,
}

/// The files of a log's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesTaken {
    /// Segments, also those that were made ahead.
    pub segments: u64,
    /// Spares.
    pub spares: u64,
    /// Bytes of a file at full length.
    pub file_bytes: u64,
    /// Bytes that all may take.
    pub limit: Option<u64>,
}

impl FilesTaken {
    /// Refuses `more` files beyond the limit.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn check_limit(&self, more: u64) -> Result<()> {
        let files = self.segments + self.spares;
        match self.limit {
            Some(limit) if (files + more).saturating_mul(self.file_bytes) > limit => {
                let text = format!(
                    "the log has {files} files of {} bytes, and may take {limit} bytes (max_bytes)",
                    self.file_bytes
                );
                let advice = "truncate the log, or open it with a higher limit";
                Err(Error::new(ErrorKind::NoSpace, text).with_advice(advice))
            }
            _ => Ok(()),
        }
    }
}

/// The epoch before, named by an epoch's first segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predecessor {
    /// Its number, or 0.
    pub epoch: u64,
    /// Its exclusive end. From here to the new base there are no records.
    pub end: Lsn,
}

/// What a segment's header stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Its base divided by the segment size.
    pub number: u64,
    /// The LSN of its first byte.
    pub base: Lsn,
    /// Its epoch.
    pub epoch: u64,
    /// The epoch's salt.
    #[doc(hidden)]
    pub salt: u64,
    /// In an epoch's first segment only.
    pub predecessor: Option<Predecessor>,
}

/// A segment in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The number in its name.
    pub number: u64,
    /// Its header, or why it has none.
    pub header: std::result::Result<SegmentHeader, BadHeader>,
}

/// Why a segment has no header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// It does not validate, for this reason.
    Damaged(String),
    /// It cannot be read, for this reason. An open that needs it fails; tools take it for damaged.
    Unreadable(String),
}

impl BadHeader {
    /// Returns the kind of error if a call needs the header.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            BadHeader::Damaged(_) => ErrorKind::Corrupt,
            BadHeader::Unreadable(_) => ErrorKind::Io,
        }
    }
}

impl fmt::Display for BadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadHeader::Damaged(text) | BadHeader::Unreadable(text) => f.write_str(text),
        }
    }
}

/// A new epoch, which begins a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Greater than all before.
    pub number: u64,
    /// 64 random bits that make its checksums unlike all others.
    pub salt: u64,
    /// A segment start.
    pub base: Lsn,
    /// The epoch before.
    pub predecessor: Predecessor,
}

/// Appends log bytes from the first LSN on to the vector, and returns where they end: at most at
/// the second LSN, which is a segment end or the log's end. Bytes of a segment can be used after
/// the call for its last ones: an error can concern those of an earlier call.
pub type TailSource<'a> = dyn FnMut(Lsn, Lsn, &mut Vec<u8>) -> Result<Lsn> + 'a;

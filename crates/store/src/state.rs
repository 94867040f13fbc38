//! What a store keeps of a log: its state, the headers of its segments, and what they are made of.

use std::fmt;

use crate::{CodecId, Error, ErrorKind, Lsn, Result};

/// The identity of a log: 128 random bits, drawn once when it is created. To store it, keep the
/// bytes: its text cannot be parsed back.
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

/// What a store keeps about the log as a whole, replaced atomically and durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The identity of the log.
    pub uuid: Uuid,
    /// Bytes of log in a segment; fixed when the log is created.
    pub segment_bytes: u64,
    /// Bytes of the log buffer of the running epoch.
    pub buffer_bytes: u64,
    /// The running epoch, 0 before the first.
    pub epoch: u64,
    /// Where the running epoch begins: the start of its first segment.
    pub epoch_base: Lsn,
    /// The running epoch's random salt.
    #[doc(hidden)]
    pub epoch_salt: u64,
    /// Everything below was truncated.
    pub head: Lsn,
    /// The greatest LSN that was given to `checkpoint`.
    pub checkpoint: Lsn,
    /// If `clean`, where the log ended. Otherwise everything below was durable once: the last
    /// process run that closed the log or dropped its last handle saved it.
    pub clean_end: Lsn,
    /// Whether the log was closed cleanly and not opened for writing since.
    pub clean: bool,
    /// The epochs of a log that was closed, ascending: those with records at or above the head, and
    /// the running one last, which ends at `clean_end`. An open believes it only where `clean` is
    /// set. Empty where nobody knows them: an open reads the headers of all segments then.
    #[doc(hidden)]
    pub epochs: Vec<EpochExtent>,
    /// The codec of the records; fixed when the log is created.
    pub codec: Option<CodecId>,
    /// The cursors, ascending by name, at most 64.
    pub cursors: Vec<SavedCursor>,
    /// The bases of epochs that may have stayed empty, and the head if it is the base of an epoch:
    /// in the order in which they were noted, at most 16.
    #[doc(hidden)]
    pub bases: Vec<EpochBase>,
}

/// Where an epoch began, and where the one before ended: between the two there is no record.
///
/// An open forgets an epoch without records. Its base stays a position at which a reader may begin,
/// as long as the epoch before ends where it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochBase {
    /// The exclusive end of the epoch before.
    pub end_before: Lsn,
    /// The base.
    pub base: Lsn,
}

/// The bases that a state can have, those of the running epoch and of the head among them. So a
/// base is remembered over 14 later epochs without records; then the oldest is forgotten.
pub const MAX_BASES: usize = 16;

impl State {
    /// Returns the floor that the state alone proves: everything below was durable once.
    #[doc(hidden)]
    pub fn floor(&self) -> Lsn {
        self.head.max(self.checkpoint).max(self.clean_end).max(self.epoch_base)
    }

    /// Returns the highest position of a cursor, or 0. It may be truncated by now, but everything
    /// below it was durable once.
    #[doc(hidden)]
    pub fn highest_cursor(&self) -> Lsn {
        self.cursors.iter().map(|cursor| cursor.position).fold(Lsn::ZERO, Lsn::max)
    }

    /// Returns where the epoch before the head ended, if the head is the base of an epoch.
    #[must_use]
    pub fn end_before_head(&self) -> Lsn {
        let at_head = self.bases.iter().find(|known| known.base == self.head);
        at_head.map_or(self.head, |known| known.end_before)
    }

    /// Notes the base of an epoch, which may stay empty, or is the head.
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

/// The cursors that a log can have.
pub const MAX_CURSORS: usize = 64;

/// The bytes that the name of a cursor can have.
pub const MAX_CURSOR_NAME_BYTES: usize = 32;

/// How far a named reader has come, as the state keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCursor {
    /// 1 to 32 bytes, none of which is zero.
    pub name: String,
    /// The records below were processed. It was durable, and at most the end of an epoch: it is
    /// never the base of an epoch that follows another one.
    pub position: Lsn,
    /// A truncation of the prefix keeps the log from `position` on if the cursor lags at most this
    /// many bytes. With 0 the cursor keeps nothing.
    pub max_lag: u64,
}

impl SavedCursor {
    /// Returns whether the name is one that a cursor can have.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let bytes = self.name.as_bytes();
        (1..=MAX_CURSOR_NAME_BYTES).contains(&bytes.len()) && !bytes.contains(&0)
    }

    /// Returns whether the cursor keeps the log if it lags `lag` bytes.
    /// `Inspector::cursors` returns the lag.
    #[must_use]
    pub fn keeps(&self, lag: u64) -> bool {
        self.max_lag > 0 && lag <= self.max_lag
    }
}

/// Where the records of one epoch lie, and what its frames' checksums begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochExtent {
    /// The epoch's number.
    pub number: u64,
    /// The epoch's random salt.
    pub salt: u64,
    /// Where the epoch begins: the start of its first segment.
    pub base: Lsn,
    /// Exclusive end of its records.
    pub end: Lsn,
}

/// The files that a store has for a log's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesTaken {
    /// Files of segments, those that are prepared among them.
    pub segments: u64,
    /// Files that are ready to become segments.
    pub spares: u64,
    /// The bytes of one of these files at its full length.
    pub file_bytes: u64,
    /// The bytes that all may take.
    pub limit: Option<u64>,
}

impl FilesTaken {
    /// Refuses `more` files if they would pass the limit.
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

/// Where an epoch's first segment says that the epoch before it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predecessor {
    /// The number of the epoch before, 0 if there was none.
    pub epoch: u64,
    /// Exclusive end of that epoch: from here to the new epoch's base there are no records.
    pub end: Lsn,
}

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The segment's number: its base divided by the segment size.
    pub number: u64,
    /// The LSN of the segment's first byte.
    pub base: Lsn,
    /// The epoch that the segment belongs to.
    pub epoch: u64,
    /// The epoch's random salt.
    #[doc(hidden)]
    pub salt: u64,
    /// Present in an epoch's first segment only.
    pub predecessor: Option<Predecessor>,
}

/// A segment that is present in the store under its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The number that the segment is kept under.
    pub number: u64,
    /// Its header, or why there is none.
    pub header: std::result::Result<SegmentHeader, BadHeader>,
}

/// Why a segment has no header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// It does not validate; the text says what is wrong with it.
    Damaged(String),
    /// The medium cannot read it; the text has the cause. An open is refused if it needs the
    /// header. Tools treat the header as damaged.
    Unreadable(String),
}

impl BadHeader {
    /// Returns the kind of the error of a call that needs the header.
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

/// A new epoch, which begins in a new segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Greater than the number of every epoch before.
    pub number: u64,
    /// 64 random bits that make this epoch's checksums differ from every other's.
    pub salt: u64,
    /// Where the epoch begins: a segment start.
    pub base: Lsn,
    /// The epoch before, and its end.
    pub predecessor: Predecessor,
}

/// Appends log bytes to the vector: those from the first LSN on, at most up to the second, a
/// segment end or the end of the log. Returns where they end. The bytes of a segment count only
/// once all of them were returned: an error can be about bytes that an earlier call returned.
pub type TailSource<'a> = dyn FnMut(Lsn, Lsn, &mut Vec<u8>) -> Result<Lsn> + 'a;

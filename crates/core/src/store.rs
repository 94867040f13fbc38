//! The seam between the log and what keeps its bytes: traits that a store implements.
//!
//! A store is one linear address space in bytes, cut into segments of equal size, plus the log's
//! [`State`], plus the memory of the log buffer. The log decides, the store keeps. Nothing is
//! overwritten in order to truncate.
//!
//! | call | who calls it | blocks on the device |
//! |---|---|---|
//! | `read` | readers, recovery | reads |
//! | `segments`, `segments_from` | `open`, tools | reads |
//! | `write`, `prepare` | the thread that holds the write lock | may |
//! | `prepare_ahead` | the same, after each write | never |
//! | `sync`, `mark_durable` | the leader, one at a time | yes |
//! | `save_state`, `release` | truncation, `checkpoint`, `close`, `open`, one at a time | yes |
//! | `begin_epoch` | `open`, before any append; truncation of the suffix, appends wait | yes |
//! | `old_buffer`, `renew_buffer`, `move_tail` | `open`, before any append | yes |
//! | `exceed_limit_below` | truncation of the suffix | never |
//! | `pass_buffer_on`, `discard` | truncation of the suffix; no write beside the first | yes |
//!
//! `write` runs beside `sync`, `read`, `save_state` and `release`; the store must allow it.

mod old_buffer;

use std::fmt;
use std::io::IoSlice;

pub use self::old_buffer::OldBuffer;
use crate::memory::Memory;
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
    pub(crate) fn floor(&self) -> Lsn {
        self.head.max(self.checkpoint).max(self.clean_end).max(self.epoch_base)
    }

    /// Returns the highest position of a cursor, or 0. It may be truncated by now, but everything
    /// below it was durable once.
    pub(crate) fn highest_cursor(&self) -> Lsn {
        self.cursors.iter().map(|cursor| cursor.position).fold(Lsn::ZERO, Lsn::max)
    }

    /// Returns where the epoch before the head ended, if the head is the base of an epoch.
    #[must_use]
    pub fn end_before_head(&self) -> Lsn {
        let at_head = self.bases.iter().find(|known| known.base == self.head);
        at_head.map_or(self.head, |known| known.end_before)
    }

    /// Notes the base of an epoch, which may stay empty, or is the head.
    pub(crate) fn note_base(&mut self, end_before: Lsn, base: Lsn) {
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
    /// [`Inspector::cursors`](crate::inspect::Inspector::cursors) returns the lag.
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

/// The reading half of a store: enough for recovery's decision and for tools beside a writer.
pub trait ReadStore: Send + Sync + fmt::Debug + 'static {
    /// Returns the state as it was last saved.
    ///
    /// # Errors
    /// `Io` if it cannot be read, `Corrupt` if no copy of it validates, `Unsupported` if its
    /// format is unknown.
    fn state(&self) -> Result<State>;

    /// Returns all segments that are present, in ascending order of their numbers.
    ///
    /// # Errors
    /// `Io` if they cannot be listed. A header that does not validate or cannot be read is no error
    /// here: recovery decides what it means.
    fn segments(&self) -> Result<Vec<Segment>>;

    /// Returns the numbers of all segments that are present, ascending, and the segments numbered
    /// `from` or above with their headers. The open of a closed log calls this, so that it reads no
    /// other headers.
    ///
    /// The default reads all of them, which suits a store that has them at hand.
    ///
    /// # Errors
    /// As [`segments`](ReadStore::segments).
    fn segments_from(&self, from: u64) -> Result<(Vec<u64>, Vec<Segment>)> {
        let mut segments = self.segments()?;
        let numbers = segments.iter().map(|segment| segment.number).collect();
        segments.retain(|segment| segment.number >= from);
        Ok((numbers, segments))
    }

    /// Reads log bytes that begin at `at` and returns how many there were.
    ///
    /// Reads up to the end of `into` or of the segment that holds `at`, whichever comes first;
    /// fewer bytes where the segment's file is shorter, 0 where there is no such segment.
    ///
    /// # Errors
    /// `Io`. A read error is never reported as an end.
    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize>;

    /// Returns the epoch of the log buffer that an earlier process run left, and the durable LSN in
    /// its mark. Returns `None`, the default, if there is no such mark or it cannot be read.
    fn noted_durable(&self) -> Option<(u64, Lsn)> {
        None
    }

    /// Returns where the log lies, for error texts: a path, or a word such as `memory`.
    fn place(&self) -> String;

    /// Returns where segment `number` lies or must lie, for error texts. The default is the log's
    /// place.
    fn segment_place(&self, number: u64) -> String {
        let _ = number;
        self.place()
    }

    /// Returns what to do about a record or segment that is damaged or missing. `None`, the
    /// default, is the advice for a log.
    fn advice_on_damage(&self) -> Option<&'static str> {
        None
    }
}

/// What keeps a log's bytes.
///
/// `palisade-store` has implementations in memory and on files. All calls take `&self`: the
/// module's table says which run beside each other.
pub trait Store: ReadStore {
    /// Writes `pieces`, one after the other, at `at`. The range may cross segment ends; all of
    /// it lies below [`prepared`](Store::prepared).
    ///
    /// After `Ok` the bytes survive the death of the process, but not of the operating system.
    ///
    /// # Errors
    /// `NoSpace` if space is lacking, `NoFiles` if a file descriptor is: the log keeps the bytes
    /// and writes the same range again later. Any other kind poisons the log.
    fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()>;

    /// Makes `[from, to)` survive power loss: syncs every segment in the range, oldest
    /// first.
    ///
    /// # Errors
    /// `NoFiles`: no sync has failed, because one could not be tried; the call can be made again.
    /// Every other error poisons the log.
    fn sync(&self, from: Lsn, to: Lsn) -> Result<()>;

    /// Notes in memory that survives the process, not the operating system, that everything
    /// below `durable` has been synced. Called before the watermark is published.
    ///
    /// # Errors
    /// After a `NoSpace` a later call notes as much or more. Every other error poisons the log, and
    /// in a truncation `NoSpace`, too.
    fn mark_durable(&self, durable: Lsn) -> Result<()>;

    /// Returns the exclusive end of the addresses that can be written without
    /// [`prepare`](Store::prepare).
    fn prepared(&self) -> Lsn;

    /// Makes segments of the running epoch ready, in order, until `prepared() >= to`. A segment
    /// gets its number only when its header is durable.
    ///
    /// # Errors
    /// `NoSpace` if space is lacking, `NoFiles` if a file descriptor is; nothing is lost and the
    /// call can be made again. Any other kind poisons the log.
    fn prepare(&self, to: Lsn) -> Result<()>;

    /// Lets `prepare` make the segments that begin below `to` although they pass a limit to the
    /// space: a truncation of the suffix waits for the bytes below `to`, and frees space
    /// afterwards. The default has no limit.
    fn exceed_limit_below(&self, to: Lsn) {
        let _ = to;
    }

    /// Hints that the tail has come to `tail`: the store may prepare space in the background, at
    /// most eight segments ahead. Never fails: `prepare` returns what went wrong. Does not block,
    /// except on a simulated disk, which may do the work at once.
    fn prepare_ahead(&self, tail: Lsn);

    /// Saves the state: when this returns, the new one survives power loss; if it is
    /// interrupted, the old or the new one does.
    ///
    /// # Errors
    /// `NoSpace` or `Io`: a later open finds the old or the new state.
    fn save_state(&self, state: &State) -> Result<()>;

    /// Frees every segment that lies wholly in `[from, to)`: recycled or deleted. All of the range
    /// lies below the head, or between the end of one epoch and the base of the next.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, and what a callback for released segments gives. Segments that could not be
    /// freed stay and are freed by a later call.
    fn release(&self, from: Lsn, to: Lsn) -> Result<()>;

    /// Frees every segment that lies wholly in `[from, to)`, whose records were truncated: they are
    /// never read again. A thread of the store may have been at work in them.
    ///
    /// # Errors
    /// As [`release`](Store::release).
    fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.release(from, to)
    }

    /// Returns the files that segments and spares take. The default has none.
    ///
    /// # Errors
    /// `Io` if they cannot be listed.
    fn files_taken(&self) -> Result<FilesTaken> {
        Ok(FilesTaken::default())
    }

    /// Begins an epoch: makes its first segment durable, first the header and the bytes `first`,
    /// then the name. The log's bytes of the segment begin with `first`. The segments that
    /// `prepare` makes later belong to this epoch.
    ///
    /// # Errors
    /// `NoSpace`, `NoFiles`: the epoch has not begun, and will not have at the next open.
    /// `OutOfRange`: as `NoSpace`; the base lies below [`prepared`](Store::prepared). Any other
    /// kind: only the next open shows whether it has begun.
    fn begin_epoch(&self, epoch: &Epoch, first: &[u8]) -> Result<()>;

    /// Goes on in the epoch that `epoch` names, from `from` on: `prepared()` becomes the end of
    /// the run of segments that begins with `from`'s, or the start of that segment if it is
    /// missing, and `prepare` makes segments of this epoch.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; nothing was changed.
    fn resume_epoch(&self, epoch: &Epoch, from: Lsn) -> Result<()>;

    /// Returns what an earlier process run left in the log buffer.
    ///
    /// # Errors
    /// `NoFiles` if a file descriptor is lacking, `PermissionDenied` if it belongs to another user,
    /// `Io` if it is there and cannot be read.
    fn old_buffer(&self) -> Result<OldBuffer>;

    /// Makes a buffer of `buffer_bytes` for `epoch` in place of the old one, with `durable` as its
    /// last [`mark_durable`](Store::mark_durable). It is zeroed, or holds what an earlier
    /// process run of the same epoch, which ended at `durable`, has left in it.
    ///
    /// # Errors
    /// `NoSpace`, `NoFiles` or `Io`.
    fn renew_buffer(&self, epoch: u64, buffer_bytes: usize, durable: Lsn) -> Result<Memory>;

    /// Puts the log's bytes in `[from, to)` into files in which no write or sync has failed.
    ///
    /// Each segment of `epoch` with bytes in the range becomes a new file: the old one's bytes
    /// below `from`, then what `source` gives. The new file is synced before it takes the segment's
    /// name, oldest segment first, and everything survives power loss when this returns. Recovery
    /// calls it where a write or sync of these bytes may have failed since the operating system was
    /// started: they read right then, and neither they nor a later write to the same file need be
    /// on the medium.
    ///
    /// # Errors
    /// `NoSpace` or `Io`, and those of `source`. The bytes read as before.
    fn move_tail(
        &self,
        epoch: &Epoch,
        from: Lsn,
        to: Lsn,
        source: &mut TailSource<'_>,
    ) -> Result<()>;

    /// Lets the buffer, its memory as it is, belong to `epoch`, which has begun. Its last
    /// [`mark_durable`](Store::mark_durable) was with that epoch's base.
    ///
    /// # Errors
    /// Every error poisons the log.
    fn pass_buffer_on(&self, epoch: u64) -> Result<()>;

    /// Lets the store give the buffer's memory back, but keep what the buffer notes. The log calls
    /// this when all that the buffer holds was written and no thread appends any more. The default
    /// does nothing.
    fn empty_buffer(&self) {}

    /// Returns 64 random bits, for salts.
    ///
    /// # Errors
    /// `Io`: the source has none.
    fn random(&self) -> Result<u64>;

    /// Returns whether a background thread of the log may write complete pieces. If not, the append
    /// that completes a piece writes it, so that runs can be repeated.
    fn writes_behind(&self) -> bool {
        true
    }

    /// Ends background work and lets another open have the log. Afterwards only reads, `place`,
    /// `prepare_ahead` and this call are made.
    ///
    /// A forked child calls it in each call and drop of its own. There it closes the descriptors
    /// that would keep the log locked after the death of the parent, and does nothing else. It must
    /// not wait.
    fn close(&self);
}

//! The seam between the log and what keeps its bytes: traits that a store implements.
//!
//! A store is one linear address space in bytes, cut into segments of equal size, plus the log's
//! [`State`], plus the memory of the log buffer. The log decides, the store keeps. Nothing is
//! overwritten in order to truncate.
//!
//! | call | who calls it | blocks on the device |
//! |---|---|---|
//! | `read` | readers, recovery | reads |
//! | `segment` | the first reader of a segment, `open` | reads |
//! | `write`, `prepare` | the thread that holds the write lock | may |
//! | `prepare_ahead` | the same, after each write | never |
//! | `sync`, `mark_durable` | the leader, one at a time | yes |
//! | `write_durable` | leaders, up to `writes_in_flight` at a time, no `write` beside it | yes |
//! | `save_state`, `release` | `truncate_before`, `checkpoint`, `close`, one at a time | yes |
//! | `release_at_open` | `open`, before any append | yes |
//! | `begin_epoch` | `open`, before any append; `truncate_after`, while nothing is appended | yes |
//! | `old_buffer`, `renew_buffer`, `move_to_fresh_blocks` | `open`, before any append | yes |
//! | `pass_buffer_on`, `discard` | `truncate_after`; no write and no sync runs beside the first | yes |
//!
//! `write` runs beside `sync`, `read`, `save_state` and `release`; the store must allow it.

use std::fmt;
use std::io::IoSlice;

use crate::memory::Memory;
use crate::{Lsn, Result};

/// The identity of a log: 128 random bits, drawn once when it is created.
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
    pub epoch_salt: u64,
    /// Everything below was truncated.
    pub head: Lsn,
    /// The greatest LSN that was given to `checkpoint`.
    pub checkpoint: Lsn,
    /// Where the log ended at its last clean close; kept as evidence when `clean` is cleared.
    pub clean_end: Lsn,
    /// Whether the log was closed cleanly and not opened for writing since.
    pub clean: bool,
}

/// Where an epoch's first segment says that the life before it ended.
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
    pub salt: u64,
    /// Present in an epoch's first segment only.
    pub predecessor: Option<Predecessor>,
}

/// A segment that is present in the store under its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The number that the segment is kept under.
    pub number: u64,
    /// Its header; the text says what is wrong with it where it does not validate.
    pub header: std::result::Result<SegmentHeader, String>,
}

/// A new life of the tail, to be begun in a new segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Greater than the number of every epoch before.
    pub number: u64,
    /// 64 random bits that make this life's checksums differ from every other's.
    pub salt: u64,
    /// Where the epoch begins: a segment start.
    pub base: Lsn,
    /// The epoch before, and its end.
    pub predecessor: Predecessor,
}

/// What an earlier life of the process left in the log buffer's file.
#[derive(Debug)]
pub enum OldBuffer {
    /// There is none: a new log, or a store without one.
    Missing,
    /// There is one that does not validate; the text says why. It counts as empty.
    Invalid(String),
    /// A valid one.
    Found {
        /// The epoch that the buffer belonged to.
        epoch: u64,
        /// Whether the operating system has run without interruption since.
        same_boot: bool,
        /// Whether it has certainly been started anew since. Neither where nothing tells.
        other_boot: bool,
        /// The last durable watermark that was noted with `mark_durable` in this boot.
        durable: Option<Lsn>,
        /// The buffer's bytes: position `lsn % len`. Empty if the buffer was on the heap.
        memory: Memory,
    },
}

/// The reading half of a store: enough for recovery's decision and for tools beside a writer.
pub trait ReadStore: Send + Sync + fmt::Debug + 'static {
    /// The state as it was last saved.
    ///
    /// # Errors
    /// `Io` if it cannot be read, `Corrupt` if no copy of it validates, `Unsupported` if its
    /// format is unknown.
    fn state(&self) -> Result<State>;

    /// All segments that are present, in ascending order of their numbers.
    ///
    /// # Errors
    /// `Io` if they cannot be listed or a header cannot be read. A header that does not validate
    /// is no error here: recovery decides what it means.
    fn segments(&self) -> Result<Vec<Segment>>;

    /// The numbers of all segments that are present, ascending, if a look at one header costs less
    /// than [`segments`](ReadStore::segments). After a clean end the log asks here, and looks at
    /// most headers with [`segment`](ReadStore::segment) when their segments are first read.
    ///
    /// The default, `None`, stands for a store that has all headers at hand.
    ///
    /// # Errors
    /// `Io` if they cannot be listed.
    fn segment_numbers(&self) -> Result<Option<Vec<u64>>> {
        Ok(None)
    }

    /// The segment that is kept under `number`, as [`segments`](ReadStore::segments) gives it;
    /// `None` if there is no such segment.
    ///
    /// # Errors
    /// As [`segments`](ReadStore::segments).
    fn segment(&self, number: u64) -> Result<Option<Segment>> {
        Ok(self.segments()?.into_iter().find(|segment| segment.number == number))
    }

    /// Reads log bytes that begin at `at` and returns how many there were.
    ///
    /// Reads up to the end of `into` or of the segment that holds `at`, whichever comes first;
    /// fewer bytes where the segment's file is shorter, 0 where there is no such segment.
    ///
    /// # Errors
    /// `Io`. A read error is never reported as an end.
    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize>;

    /// Where the log lies, for error texts: a path, or a word such as `memory`.
    fn place(&self) -> String;
}

/// What keeps a log's bytes.
///
/// `palisade-store` has implementations in memory and on files. All calls take `&self`: the
/// module's table says which run beside each other.
pub trait Store: ReadStore {
    /// Writes `pieces`, one behind the other, at `at`. The range may cross segment ends; all of
    /// it lies below [`prepared`](Store::prepared).
    ///
    /// After `Ok` the bytes survive the death of the process, but not of the operating system.
    ///
    /// # Errors
    /// `NoSpace` if space is lacking: the log keeps the bytes and writes the same range again
    /// later. Any other kind poisons the log.
    fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()>;

    /// Makes `[from, to)` survive power loss: syncs every segment in the range, whoever wrote
    /// it, oldest first.
    ///
    /// # Errors
    /// Every error poisons the log.
    fn sync(&self, from: Lsn, to: Lsn) -> Result<()>;

    /// How many [`write_durable`](Store::write_durable) may run at the same time. With 1, the
    /// default, the log never calls it: it writes, then syncs. With more it ends each sync with a
    /// block, as if `pad_to_block` were set, so that no two of them touch the same block.
    fn writes_in_flight(&self) -> usize {
        1
    }

    /// Writes `pieces` at `at` and makes them survive power loss, without a sync of what else was
    /// written: `at` and the end are multiples of 4096, no byte of the range was handed to `write`
    /// or acknowledged, and all of it lies below [`prepared`](Store::prepared). Calls that run at
    /// the same time have ranges that do not touch the same block, and end in any order.
    ///
    /// # Errors
    /// `NoSpace`: nobody counts on any byte of the range; the call can be made again once none is
    /// in flight. Any other kind poisons the log.
    fn write_durable(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.write(at, pieces)?;
        self.sync(at, at.plus(bytes as u64))
    }

    /// Notes in memory that survives the process, not the operating system, that everything
    /// below `durable` has been synced. Called before the watermark is published.
    ///
    /// # Errors
    /// Every error poisons the log.
    fn mark_durable(&self, durable: Lsn) -> Result<()>;

    /// Exclusive end of the addresses that can be written without preparing.
    fn prepared(&self) -> Lsn;

    /// Makes segments of the running epoch ready, in order, until `prepared() >= to`. A segment
    /// gets its number only when its header is durable.
    ///
    /// # Errors
    /// `NoSpace` if space is lacking; nothing is lost and the call can be made again. Any other
    /// kind poisons the log.
    fn prepare(&self, to: Lsn) -> Result<()>;

    /// A hint that the tail has come to `tail`: the store may get space ready behind the
    /// caller's back. Never fails; what goes wrong shows in `prepare`. It does not block, but on a
    /// simulated disk, which may do the work at once.
    fn prepare_ahead(&self, tail: Lsn);

    /// Saves the state: when this returns, the new one survives power loss; if it is
    /// interrupted, the old or the new one does.
    ///
    /// # Errors
    /// `NoSpace` or `Io`: a later open finds the old or the new state.
    fn save_state(&self, state: &State) -> Result<()>;

    /// Frees every segment that lies wholly in `[from, to)`: recycled or deleted.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, and what an archive gives. Segments that could not be freed stay and are freed
    /// by a later call.
    fn release(&self, from: Lsn, to: Lsn) -> Result<()>;

    /// Whether [`release`](Store::release) keeps copies of what it frees: the log hands it no segment
    /// then whose header it has not looked at.
    fn archives(&self) -> bool {
        false
    }

    /// As [`release`](Store::release), while the log is opened: a segment that cannot be archived
    /// stays, and is no error. A later `release` tries it again and tells.
    ///
    /// # Errors
    /// As [`release`](Store::release), but for those of the archive.
    fn release_at_open(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.release(from, to)
    }

    /// Frees every segment that lies wholly in `[from, to)`, whose records were cut off: they are
    /// never read again, and never archived. A thread of the store may have been at work in them.
    ///
    /// # Errors
    /// As [`release`](Store::release).
    fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.release(from, to)
    }

    /// Begins an epoch: makes its first segment durable, header first, name second. The
    /// segments that `prepare` makes later belong to this epoch.
    ///
    /// # Errors
    /// `NoSpace`: the epoch has not begun, and will not have at the next open. `OutOfRange`: as
    /// `NoSpace`; the base lies below [`prepared`](Store::prepared). Any other kind: only the next
    /// open shows whether it has begun.
    fn begin_epoch(&self, epoch: &Epoch) -> Result<()>;

    /// Goes on in the epoch that `epoch` names, from `from` on: `prepared()` becomes the end of
    /// the last segment present, or the start of `from`'s segment if that is greater, and
    /// `prepare` makes segments of this epoch.
    ///
    /// # Errors
    /// `Io`; nothing was changed.
    fn resume_epoch(&self, epoch: &Epoch, from: Lsn) -> Result<()>;

    /// What an earlier life left in the log buffer.
    ///
    /// # Errors
    /// `Io` if it is there and cannot be read.
    fn old_buffer(&self) -> Result<OldBuffer>;

    /// Makes a buffer of `buffer_bytes` for `epoch` in place of the old one, with `durable` as its
    /// last [`mark_durable`](Store::mark_durable). It is zeroed, or holds what an earlier life of the
    /// same epoch, which ended at `durable`, has left in it.
    ///
    /// # Errors
    /// `NoSpace` or `Io`.
    fn renew_buffer(&self, epoch: u64, buffer_bytes: usize, durable: Lsn) -> Result<Memory>;

    /// Puts the bytes of `[from, to)`, which read right and are not written meanwhile, onto the
    /// medium in other blocks; durable when this returns. Recovery calls it where nobody knows
    /// whether a sync of them failed: then they may be in the operating system's memory only,
    /// later syncs would not say so, and writing them again in place could tear what is durable.
    ///
    /// The default syncs, which is enough for a store that forgets what a failed sync lost.
    ///
    /// # Errors
    /// `NoSpace` or `Io`; the bytes read as before.
    fn move_to_fresh_blocks(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.sync(from, to)
    }

    /// Lets the buffer, its memory as it is, belong to `epoch`, which has begun. Its last
    /// [`mark_durable`](Store::mark_durable) was with that epoch's base.
    ///
    /// # Errors
    /// Every error poisons the log.
    fn pass_buffer_on(&self, epoch: u64) -> Result<()>;

    /// 64 random bits, for salts.
    fn random(&self) -> u64;

    /// Whether a thread of the log may write complete pieces behind the appenders' backs. A
    /// store whose runs are to be repeated says no: then the append that completes a piece
    /// writes it. Threads that futures, callbacks and an interval need are started in any case.
    fn writes_behind(&self) -> bool {
        true
    }

    /// Ends background work and lets another process have the log. Only `state`, `segments`,
    /// `read` and `place` are called afterwards.
    fn close(&self);
}

//! The log buffer: a ring in which many threads place records without a lock.
//!
//! # Words
//! *Lap*: one pass through the ring. *Slot*: one word per 16 ring bytes, apart from the ring's
//! bytes, that says where the reservation that begins there ends. *Crosser*: the one owner of a
//! reservation that would cross a segment end. *Limit*: `written + ring`, above which the ring's
//! bytes still belong to the lap before. *Rest*: from the tail to the end of its block, which a
//! leader reserves as padding where each sync has to end with a block (`pad_to_block`).
//!
//! # States of a byte range `[lsn, end)`
//! | state | how it is known | who may touch the bytes |
//! |---|---|---|
//! | free | `lsn >= tail` | nobody |
//! | reserved, no room | `end > written + ring` | nobody: the last lap may be unread |
//! | reserved, with room | `end <= written + ring`, slot older | its owner alone: writes |
//! | published | slot of `lsn` holds `end` | the holder of the write lock: reads |
//! | written | `end <= written` | as free, one lap later |
//!
//! # Protocol
//! Appender: (1) look for room; (2) `fetch_add` on the tail: the range is its own, by the
//! atomicity of the addition; (3) if a flag comes back, nothing is reserved; (4) a crosser fills
//! its whole range with padding and begins again; (5) wait until the range has room; (6) copy;
//! (7) store the absolute end in the slot. A [`Reserved`] that is dropped unpublished becomes
//! padding.
//! Truncation of the suffix: (1) pause: the flag fixes the end, as the first of the others does;
//! (2) when nothing is reserved and unpublished, resume: store the new life's seed, then swap
//! the tail for the new base, without the flag. Additions that came between reserved nothing, and what they
//! added to the low bits goes with the swap. Flags are set and cleared under the lock of
//! `fixed_end` alone, so that no other flag is lost.
//! Holder of the write lock: from the last end on, follow the slots while each holds an end
//! above its start; hand the bytes to the store; publish *written*.
//!
//! An end in a slot is absolute, so an older lap's never looks filled: a reservation is at most
//! half a ring, so the end that a slot kept from a lap before lies below every start that maps
//! to the slot in this lap. Reservations begin at least 24 bytes apart, so no two of one lap
//! share a slot; a rest may be shorter, but the next begins with a block. Stale bytes of the ring cannot imitate the mark: it does not live in them.
//!
//! # Ordering pairs
//! - P1: slot store in `publish` (Release) with slot load in `published_end` (Acquire): the
//!   copied bytes are visible to the holder of the write lock.
//! - P2: *written* (see `watermark`): the reads of the lap before are done before `has_room`
//!   lets its bytes be overwritten.
//! - P9: the tail's swap in `resume` (Release) with the addition in `reserve` (Acquire), through
//!   the additions between, which are read-modify-writes: whoever reserves in a life knows its
//!   seed.
//!
//! # Progress
//! `reserve`, `publish` and every other call in here is wait-free. Waiting for room is the
//! caller's part: it leads a write itself, so it waits only for owners of lower reservations.
//!
//! # Why not
//! A fence or a read-modify-write in `publish` would announce a filled hole to its waiter; it
//! costs every append 5 or 20 ns. The waiting side polls instead (`docs/concurrency.md`).
//!
//! # Checked by
//! `reservations_never_overlap`, `bytes_below_filled_are_readable`,
//! `ring_wrap_never_overwrites_unwritten_bytes`, `exactly_one_crosser_pads`,
//! `a_flag_fixes_the_end`, `a_dropped_reservation_leaves_no_hole`,
//! `a_pause_loses_no_append_and_places_none_twice`.

use std::fmt;
use std::io::IoSlice;

use crate::frame::{self, EpochSeed};
use crate::memory::Memory;
use crate::prefetch;
use crate::sync::{AtomicU32, AtomicU64, CachePadded, Mutex, Ordering, ProcessMark, ZeroedWords};
use crate::watermark::Watermark;
use crate::{Error, Lsn, MemoryKind};

const SLOT_BYTES: u64 = 16;
/// What a medium may damage as a whole when power is lost during a write to a part of it.
/// (Models have small rings.)
pub(crate) const BLOCK_BYTES: u64 = if cfg!(loom) { 64 } else { 4096 };
/// How many reservations ahead the walk over the slots asks for its lines.
const WALK_AHEAD: u64 = 8;
/// How many reservations ahead an appender asks for its lines.
const APPEND_AHEAD: u64 = 2;
/// What is longer is fetched by the processor itself while it is copied.
const FETCH_AHEAD_BYTES: u64 = 512;

const FLAG_CLOSED: u64 = 1 << 63;
const FLAG_POISONED: u64 = 1 << 62;
const FLAG_PAUSED: u64 = 1 << 61;
const FLAGS: u64 = FLAG_CLOSED | FLAG_POISONED | FLAG_PAUSED;

/// Why a buffer takes no more reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Closed,
    Poisoned,
    /// The suffix is being truncated: reservations go on in a moment.
    Paused,
    /// This process is a child of the one that opened the log: no flag of the tail.
    Forked,
}

impl Stop {
    const fn flag(self) -> u64 {
        match self {
            Stop::Closed => FLAG_CLOSED,
            Stop::Poisoned => FLAG_POISONED,
            Stop::Paused => FLAG_PAUSED,
            Stop::Forked => 0,
        }
    }
}

/// Why a flag was not set at the end of a block. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFixed {
    /// A flag is there already.
    Stopped(Stop),
    /// The buffer has no room for what is left of the block: so many bytes.
    NoRoom(u64),
}

/// The ring, its slots, its tail and the *written* watermark.
pub(crate) struct Buffer {
    tail: CachePadded<AtomicU64>,
    /// End of what was handed to the operating system; published by the write lock's holder.
    pub(crate) written: Watermark,
    process: ProcessMark,
    slots: ZeroedWords,
    slot_mask: u64,
    memory: Memory,
    ring_bytes: u64,
    segment_bytes: u64,
    segment_shift: Option<u32>,
    // What a sync has to end with: blocks of so many bytes. 1 where any end will do.
    block_bytes: u64,
    // The running life's `EpochSeed`; it changes while the tail is paused.
    seed: AtomicU32,
    // The end that the first flag fixed. Off the append path: locked only once a flag is seen.
    fixed_end: Mutex<Option<Lsn>>,
}

impl Buffer {
    /// An empty buffer over `memory`, whose length is a power of two, that begins at `base`.
    pub(crate) fn new(
        memory: Memory,
        base: Lsn,
        segment_bytes: u64,
        seed: EpochSeed,
    ) -> crate::Result<Buffer> {
        let ring_bytes = memory.len() as u64;
        assert!(ring_bytes.is_power_of_two() && ring_bytes >= SLOT_BYTES);
        let slots = ZeroedWords::new((ring_bytes / SLOT_BYTES) as usize)
            .map_err(|source| Error::io("get memory for the slots of the log buffer", source))?;
        let process = ProcessMark::new()
            .map_err(|source| Error::io("get memory for the log's process mark", source))?;
        Ok(Buffer {
            process,
            tail: CachePadded::new(AtomicU64::new(base.as_u64())),
            written: Watermark::new(base),
            slot_mask: slots.len() as u64 - 1,
            slots,
            memory,
            ring_bytes,
            segment_bytes,
            segment_shift: segment_bytes.is_power_of_two().then(|| segment_bytes.trailing_zeros()),
            block_bytes: 1,
            seed: AtomicU32::new(seed.bits()),
            fixed_end: Mutex::new(None),
        })
    }

    /// The same buffer, whose ends are padded to multiples of [`BLOCK_BYTES`].
    pub(crate) fn padded(self, pads: bool) -> Buffer {
        Buffer { block_bytes: if pads { BLOCK_BYTES } else { 1 }, ..self }
    }

    /// Whether each sync has to end with a block.
    pub(crate) fn pads(&self) -> bool {
        self.block_bytes > 1
    }

    /// Whether this process opened the log; false in a forked child.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.process.is_own()
    }

    /// The largest reservation: half the ring or half a segment, whichever is less.
    pub(crate) fn max_reservation_bytes(&self) -> u64 {
        let half = (self.ring_bytes / 2).min(self.segment_bytes / 2);
        half - half % frame::ALIGN_BYTES
    }

    /// The seed of the life that the caller's reservation lies in.
    #[inline]
    pub(crate) fn seed(&self) -> EpochSeed {
        // Relaxed: the addition that made the reservation has acquired it [P9], and it changes
        // only when nothing is reserved and unpublished.
        EpochSeed::from_bits(self.seed.load(Ordering::Relaxed))
    }

    pub(crate) fn memory_kind(&self) -> MemoryKind {
        self.memory.kind()
    }

    /// Bytes of memory that the buffer holds: ring and slots.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.ring_bytes + self.slots.len() as u64 * size_of::<AtomicU64>() as u64
    }

    /// End of the last reservation, or why there are no more.
    #[inline]
    pub(crate) fn tail(&self) -> Result<Lsn, Stop> {
        // Relaxed: a look; what counts is what the `fetch_add` returns.
        let raw = self.tail.load(Ordering::Relaxed);
        if raw & FLAGS == 0 { Ok(Lsn::new(raw)) } else { Err(stop_of(raw)) }
    }

    /// End of the last reservation that counts: the fixed end once a flag is set.
    pub(crate) fn reserved(&self) -> Lsn {
        loop {
            if let Ok(tail) = self.tail() {
                return tail;
            }
            if !self.is_own() {
                return self.reserved_at_fork();
            }
            // `stop` holds the lock from before the flag until the end is stored. Where there is
            // none, a pause has ended between the two looks: the lock shows the tail without it.
            if let Some(end) = *self.fixed_end.lock() {
                return end;
            }
        }
    }

    /// The fixed end of a tail with a flag, in a forked child, where the lock may be held for ever.
    #[cold]
    fn reserved_at_fork(&self) -> Lsn {
        let fixed_end = self.fixed_end.try_lock().and_then(|end| *end);
        // Relaxed: no thread of this process changes it.
        fixed_end.unwrap_or_else(|| Lsn::new(self.tail.load(Ordering::Relaxed) & !FLAGS))
    }

    /// The end above which the ring's bytes still belong to the lap before.
    #[inline]
    pub(crate) fn limit(&self) -> Lsn {
        self.written.read().plus(self.ring_bytes).min(Lsn::LIMIT)
    }

    /// Reserves `bytes`, a multiple of 8 from 24 to `max_reservation_bytes`.
    #[inline]
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Claim, Stop> {
        debug_assert!(bytes.is_multiple_of(frame::ALIGN_BYTES) && bytes >= 24);
        if !self.is_own() {
            return Err(Stop::Forked);
        }
        // Acquire: shows the seed of the life that the range lies in; pairs with the Release in
        // `resume` [P9]. The addition alone makes the range this thread's own; its bytes reach
        // others through the slot [P1], and the lap before left them through `written` [P2].
        let raw = self.tail.fetch_add(bytes, Ordering::Acquire);
        if raw & FLAGS != 0 {
            return Err(stop_of(raw));
        }
        Ok(Claim { at: raw })
    }

    /// Sets a flag. The first one fixes the end of the log, which is returned by every call.
    pub(crate) fn stop(&self, stop: Stop) -> Lsn {
        let mut fixed_end = self.fixed_end.lock();
        // Relaxed: reservations are ordered with the flag by the tail's own modification order;
        // the end is handed over under the lock.
        let raw = self.tail.fetch_or(stop.flag(), Ordering::Relaxed);
        *fixed_end.get_or_insert(Lsn::new(raw & !FLAGS))
    }

    /// As `stop`, but the end that the flag fixes is that of a block, and what is left of it is
    /// reserved for the caller. There is room for it: behind the flag nobody may wait for a full
    /// disk, on which a truncation that waits would keep all appends waiting.
    pub(crate) fn stop_at_block(&self, stop: Stop) -> Result<(Lsn, Option<Rest>), NotFixed> {
        let mut fixed_end = self.fixed_end.lock();
        let mut tail = self.tail().map_err(NotFixed::Stopped)?;
        if !self.pads() {
            // Relaxed: as in `stop`. No other flag can come between the look and here.
            let raw = self.tail.fetch_or(stop.flag(), Ordering::Relaxed);
            return Ok((*fixed_end.insert(Lsn::new(raw & !FLAGS)), None));
        }
        loop {
            let bytes = self.rest_bytes(tail);
            let end = tail.plus(bytes);
            if bytes > 0 && end > self.limit() {
                return Err(NotFixed::NoRoom(bytes));
            }
            match self.move_tail(tail, end.as_u64() | stop.flag()) {
                Ok(()) => {
                    let claim = Claim { at: tail.as_u64() };
                    let rest = (bytes > 0).then_some(Rest { claim, bytes });
                    return Ok((*fixed_end.insert(end), rest));
                }
                // A reservation came between; no flag can.
                Err(raw) => tail = Lsn::new(raw),
            }
        }
    }

    /// Reserves what is left of the tail's block. `None` where nothing is, or there is no room for
    /// it, or no more reservations.
    pub(crate) fn reserve_rest(&self) -> Option<Rest> {
        loop {
            let tail = self.tail().ok()?;
            let bytes = self.rest_bytes(tail);
            if bytes == 0 || tail.plus(bytes) > self.limit() {
                return None;
            }
            if self.move_tail(tail, tail.as_u64() + bytes).is_ok() {
                return Some(Rest { claim: Claim { at: tail.as_u64() }, bytes });
            }
        }
    }

    /// Whether `lsn` is one that a sync may end with.
    pub(crate) fn is_block_end(&self, lsn: Lsn) -> bool {
        self.rest_bytes(lsn) == 0
    }

    fn rest_bytes(&self, tail: Lsn) -> u64 {
        tail.as_u64().next_multiple_of(self.block_bytes) - tail.as_u64()
    }

    fn move_tail(&self, from: Lsn, to: u64) -> Result<(), u64> {
        // Acquire: as in `reserve` [P9]. Relaxed: a failed look guards nothing.
        self.tail
            .compare_exchange(from.as_u64(), to, Ordering::Acquire, Ordering::Relaxed)
            .map(drop)
    }

    /// Ends the pause: the next reservation begins at `at`, in the life that `seed` belongs to.
    /// A log that was closed or poisoned meanwhile stays so, and ends at `at`.
    ///
    /// Everything below the fixed end has been published.
    pub(crate) fn resume(&self, at: Lsn, seed: EpochSeed) {
        let mut fixed_end = self.fixed_end.lock();
        // Relaxed: published by the tail below [P9].
        self.seed.store(seed.bits(), Ordering::Relaxed);
        // Relaxed: flags change under the lock alone.
        let others = self.tail.load(Ordering::Relaxed) & (FLAG_CLOSED | FLAG_POISONED);
        *fixed_end = (others != 0).then_some(at);
        // Release: publishes the seed; pairs with the Acquire in `reserve` [P9]. What additions
        // have left in the low bits goes.
        self.tail.swap(at.as_u64() | others, Ordering::Release);
    }

    /// Whether the range of `claim`, which is `bytes` long, crosses a segment end.
    #[inline]
    pub(crate) fn crosses(&self, claim: &Claim, bytes: u64) -> bool {
        let last = claim.at + bytes - 1;
        match self.segment_shift {
            Some(shift) => (claim.at ^ last) >> shift != 0,
            None => claim.at / self.segment_bytes != last / self.segment_bytes,
        }
    }

    /// Where the reservation that begins at `at` ends, once it is published.
    #[inline]
    pub(crate) fn published_end(&self, at: Lsn) -> Option<Lsn> {
        // Acquire: the bytes copied before the publish are visible; pairs with the Release in
        // `Reserved::publish` [P1].
        let end = self.slot(at.as_u64()).load(Ordering::Acquire);
        (end > at.as_u64()).then_some(Lsn::new(end))
    }

    /// As `published_end`, on a walk from reservation to reservation: asks for the slots that the
    /// walk will come to if what follows is as long as this one.
    #[inline]
    pub(crate) fn walk_from(&self, at: Lsn) -> Option<Lsn> {
        let end = self.published_end(at)?;
        let ahead = end.as_u64() + WALK_AHEAD * end.bytes_since(at);
        prefetch::will_touch(std::ptr::from_ref(self.slot(ahead)).cast());
        Some(end)
    }

    /// Asks for the ring's lines and the slot that a reservation of `bytes` a little later will
    /// write, so that they arrive while this one's checksum is computed.
    #[inline]
    pub(crate) fn fetch_ahead(&self, bytes: u64) {
        if cfg!(loom) {
            // The look at the tail would multiply the schedules and find nothing.
            return;
        }
        // Relaxed: a guess. A flag in it, or another thread that is faster, makes it a bad one.
        let at = self.tail.load(Ordering::Relaxed).wrapping_add(APPEND_AHEAD * bytes);
        prefetch::will_touch(std::ptr::from_ref(self.slot(at)).cast());
        self.memory.fetch_ahead(at, bytes.min(FETCH_AHEAD_BYTES) as usize);
    }

    /// Calls `read` with the bytes of `[from, to)`.
    ///
    /// # Safety
    /// - The caller holds the write lock, and `from` is *written*.
    /// - `[from, to)` is a run of reservations for which `published_end` gave an end.
    #[expect(unsafe_code, reason = "only the walk over the slots knows that the bytes rest")]
    pub(crate) unsafe fn read<R>(
        &self,
        from: Lsn,
        to: Lsn,
        read: impl FnOnce(&[IoSlice<'_>; 2]) -> R,
    ) -> R {
        let len = to.bytes_since(from) as usize;
        // SAFETY:
        // - length: published ranges lie below `written + ring`, and `from` is not below `written`.
        // - no writer: an owner stops writing when it publishes; the next lap's owner needs
        //   `written` to pass `from`, and only the write lock's holder moves it.
        // - earlier writes happened before: P1.
        unsafe { self.memory.read(from.as_u64(), len, read) }
    }

    fn slot(&self, at: u64) -> &AtomicU64 {
        &self.slots[((at / SLOT_BYTES) & self.slot_mask) as usize]
    }
}

// By hand: there are more slots than anybody wants to read.
impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("written", &self.written)
            .field("ring_bytes", &self.ring_bytes)
            .field("segment_bytes", &self.segment_bytes)
            .finish_non_exhaustive()
    }
}

fn stop_of(raw: u64) -> Stop {
    match raw {
        _ if raw & FLAG_POISONED != 0 => Stop::Poisoned,
        _ if raw & FLAG_CLOSED != 0 => Stop::Closed,
        _ => Stop::Paused,
    }
}

/// A range of the log that belongs to this thread, whose ring bytes may not be free yet.
///
/// It has to become a [`Reserved`], or the log has a hole: it is let go of on a poisoned log
/// only. It knows where it begins; how long it is, its owner asked for. So a `Result` of one fits
/// into two registers, which the append path notices.
#[derive(Debug)]
#[must_use = "a claim that is let go of leaves a hole"]
pub(crate) struct Claim {
    at: u64,
}

impl Claim {
    /// Exclusive end of the range, of which `bytes` were asked for.
    #[inline]
    pub(crate) fn end(&self, bytes: u64) -> Lsn {
        Lsn::new(self.at + bytes)
    }

    /// The same range with the right to write its `bytes`, if its end is within the buffer's
    /// `limit`.
    #[inline]
    pub(crate) fn granted(&self, bytes: u64, limit: Lsn) -> Option<Granted> {
        (self.end(bytes) <= limit).then_some(Granted { at: self.at, bytes: bytes as u32 })
    }
}

/// A claim to what is left of a block, to be padded.
#[derive(Debug)]
#[must_use = "a rest that is let go of leaves a hole"]
pub(crate) struct Rest {
    pub(crate) claim: Claim,
    pub(crate) bytes: u64,
}

/// A claim whose bytes are free: it becomes a [`Reserved`] at once.
#[derive(Debug)]
#[must_use = "a grant that is let go of leaves a hole"]
pub(crate) struct Granted {
    at: u64,
    // A reservation is at most half a ring, and a ring at most 1 GiB.
    bytes: u32,
}

impl Granted {
    #[inline]
    pub(crate) fn occupy(self, buffer: &Buffer, durable: Lsn) -> Reserved<'_> {
        let (at, bytes) = (self.at, u64::from(self.bytes));
        let durable_lag = at.saturating_sub(durable.as_u64());
        Reserved { buffer, at, end: at + bytes, durable_lag }
    }
}

/// A range of the log whose bytes this thread may write, until it publishes it.
///
/// Dropped unpublished, by a panic or an early return, it becomes padding.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    buffer: &'a Buffer,
    at: u64,
    end: u64,
    /// How far the durable watermark lay behind when the range was reserved.
    pub(crate) durable_lag: u64,
}

impl Reserved<'_> {
    pub(crate) fn lsn(&self) -> Lsn {
        Lsn::new(self.at)
    }

    pub(crate) fn end(&self) -> Lsn {
        Lsn::new(self.end)
    }

    /// Copies `bytes` to `offset` bytes behind the range's start.
    #[inline]
    #[expect(unsafe_code, reason = "the reservation is what makes the range exclusive")]
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.end - self.at);
        // SAFETY:
        // - length: a reservation is at most half the ring.
        // - exclusive: the range lies in `[at, end)`, which one `fetch_add` gave to this claim
        //   alone; it is below `limit`, so the lap before has been read (P2); it is not
        //   published, so the holder of the write lock does not read it.
        unsafe { self.buffer.memory.write(self.at + offset, bytes) };
    }

    /// Copies a frame of `head` and `body`, padded with zeros to `len`, to `offset`.
    #[inline]
    #[expect(unsafe_code, reason = "the reservation is what makes the range exclusive")]
    pub(crate) fn place(
        &mut self,
        offset: u64,
        head: [u64; frame::HEADER_BYTES / 8],
        body: &[u8],
        len: u64,
    ) {
        let is_inside = offset + len <= self.end - self.at;
        assert!(is_inside && frame::framed_bytes(body.len()) == len);
        // SAFETY:
        // - length: asserted; a reservation is at most half the ring; a frame is padded to the
        //   next multiple of 8.
        // - exclusive: as in `write`.
        unsafe { self.buffer.memory.place(self.at + offset, head, body, len as usize) };
    }

    /// Calls `fill` with `len` zeroed bytes at `offset`; `None` if they wrap around the ring.
    #[expect(unsafe_code, reason = "the reservation is what makes the range exclusive")]
    pub(crate) fn fill<R>(
        &mut self,
        offset: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        assert!(offset + len as u64 <= self.end - self.at);
        // SAFETY: as in `write`; `&mut self` keeps this thread from a second access.
        unsafe { self.buffer.memory.fill(self.at + offset, len, fill) }
    }

    /// Makes the range readable for the holder of the write lock.
    #[inline]
    pub(crate) fn publish(self) {
        self.set_slot();
        std::mem::forget(self);
    }

    /// Fills the whole range with padding, one per segment that it touches, and publishes it.
    pub(crate) fn pad(mut self) {
        self.write_padding();
        self.publish();
    }

    fn set_slot(&self) {
        // Release: publishes the bytes copied above; pairs with the Acquire in
        // `Buffer::published_end` [P1].
        self.buffer.slot(self.at).store(self.end, Ordering::Release);
    }

    fn write_padding(&mut self) {
        let segment_bytes = self.buffer.segment_bytes;
        let mut from = self.at;
        while from < self.end {
            let to = self.end.min((from / segment_bytes + 1) * segment_bytes);
            // Each piece counts from its own start: the same lag further on would claim more.
            let offset = from - self.at;
            let lag = self.durable_lag + offset;
            let (head, used) = frame::padding(self.buffer.seed(), Lsn::new(from), to - from, lag);
            self.write(offset, &head[..used]);
            from = to;
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.buffer.is_own() {
            // The range is the parent's: its owner publishes it there.
            return;
        }
        self.write_padding();
        self.set_slot();
    }
}

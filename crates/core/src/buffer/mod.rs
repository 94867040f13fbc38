//! The log buffer: a ring in which many threads write records without a lock.
//!
//! # Words
//! *Lap*: one pass through the ring. *Slot*: one word per 16 ring bytes, stored apart from them; it
//! holds the end of the reservation that begins there. *Crosser*: the owner of a reservation that
//! would cross a segment end. *Limit*: `written + ring`, above which the ring's bytes still belong
//! to the lap before. *Rest*: the bytes from the tail to the end of its block, which a leader
//! reserves as padding with `pad_to_block`, because each sync then ends with a block.
//!
//! # States of a byte range `[lsn, end)`
//! | state | how it is known | who may touch the bytes |
//! |---|---|---|
//! | free | `lsn >= tail` | no thread |
//! | reserved, no room | `end > written + ring` | no thread: the last lap may be unread |
//! | reserved, with room | `end <= written + ring`, slot older | its owner alone: writes |
//! | published | slot of `lsn` holds `end` | the holder of the write lock: reads |
//! | written | `end <= written` | as free, one lap later |
//!
//! # Protocol
//! Appender:
//! 1. Wait for room, in the queue if there is none (`queue`).
//! 2. `fetch_add` on the tail: makes the range the appender's own.
//! 3. If a flag comes back, nothing is reserved.
//! 4. A crosser fills its whole range with padding and begins again.
//! 5. Wait until the range has room.
//! 6. Copy.
//! 7. Store the absolute end in the slot. A [`Reserved`] that is dropped unpublished becomes
//!    padding.
//!
//! Truncation of the suffix:
//! 1. Pause: set a flag in the tail. The first flag of any kind fixes the end of the log.
//! 2. Wait until every reservation below that end is published.
//! 3. Resume: store the new epoch's seed, then swap the tail for the new base, without the flag.
//!    The swap also removes what additions that met the flag have added. It loses no other flag,
//!    because a thread sets or clears a flag only under the lock of `fixed_end`.
//!
//! Holder of the write lock: from the last end on, follow the slots while each holds an end above
//! its start; write the bytes to the store; publish *written*.
//!
//! A slot never shows an end of another lap or reservation (`docs/concurrency.md`), because a
//! reservation is at most half a ring, and reservations begin at least 24 bytes apart, except
//! behind a rest, where a block begins. Stale bytes of the ring cannot imitate a slot.
//!
//! # Ordering pairs
//! - P1: slot store in `publish` (Release) with slot load in `published_end` (Acquire): the copied
//!   bytes are visible to the holder of the write lock.
//! - P2: *written* (see `watermark`): the reads of the lap before are complete before the limit
//!   lets its bytes be overwritten.
//! - P9: the tail's swap in `resume` (Release) with the addition in `reserve` (Acquire), through
//!   the additions between, which are read-modify-writes: a thread that reserves in an epoch knows
//!   its seed.
//!
//! # Progress
//! An append that finds room is wait-free here. A compare-and-swap of the tail fails only if
//! another thread has reserved. No thread keeps the lock of `fixed_end` over a wait.
//!
//! # Why not
//! A fence or a read-modify-write in `publish`, to wake a waiter for a filled hole, would cost
//! every append 5 or 20 ns. The waiting side polls instead.
//!
//! # Checked by
//! `reservations_never_overlap`, `bytes_below_filled_are_readable`,
//! `ring_wrap_never_overwrites_unwritten_bytes`, `exactly_one_crosser_pads`,
//! `a_flag_fixes_the_end`, `a_dropped_reservation_leaves_no_hole`,
//! `a_pause_loses_no_append_and_places_none_twice`.

mod queue;
mod reservation;

use std::fmt;
use std::io::IoSlice;

use palisade_store::memory::Memory;
use palisade_store::memory::will_touch;
use palisade_store::sync::{
    AtomicU32, AtomicU64, CachePadded, Mutex, Ordering, ProcessMark, ZeroedWords,
};

#[cfg(all(test, loom))]
pub(crate) use self::queue::LAPS;
pub(crate) use self::queue::Place;
use self::queue::Queue;
pub(crate) use self::reservation::{Claim, Reserved, Rest};
use crate::frame::{self, BLOCK_BYTES, EpochSeed};
use crate::watermark::Watermark;
use crate::{Error, Lsn, MemoryKind};

const SLOT_BYTES: u64 = 16;
/// In reservations.
const WALK_AHEAD: u64 = 8;
/// In reservations.
const APPEND_AHEAD: u64 = 2;
/// The processor itself fetches what is longer.
const FETCH_AHEAD_BYTES: u64 = 512;

const FLAG_CLOSED: u64 = 1 << 63;
const FLAG_POISONED: u64 = 1 << 62;
const FLAG_PAUSED: u64 = 1 << 61;
const FLAGS: u64 = FLAG_CLOSED | FLAG_POISONED | FLAG_PAUSED;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Closed,
    Poisoned,
    /// A truncation of the suffix, or the log was opened above `max_bytes`.
    Paused,
    /// This process is a forked child. Not a flag of the tail.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFixed {
    Stopped(Stop),
    /// There is no room for the rest, of this many bytes.
    NoRoom(u64),
}

pub(crate) struct Buffer {
    tail: CachePadded<AtomicU64>,
    /// Bytes below were handed to the operating system.
    pub(crate) written: Watermark,
    // The admission limit: see `queue`.
    admitted: Watermark,
    queue: Mutex<Queue>,
    pub(crate) process: ProcessMark,
    slots: ZeroedWords,
    slot_mask: u64,
    memory: Memory,
    ring_bytes: u64,
    segment_bytes: u64,
    segment_shift: Option<u32>,
    // A sync has to end at a multiple of this; 1 if it may end anywhere.
    block_bytes: u64,
    // The running epoch's `EpochSeed`. It changes while the tail is paused.
    seed: AtomicU32,
    // The end that the first flag fixed. Not on the append path: locked only once a flag is seen.
    fixed_end: Mutex<Option<Lsn>>,
}

impl Buffer {
    /// Makes an empty buffer. The length of `memory` is a power of two.
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
            admitted: Watermark::new(base.plus(ring_bytes).min(Lsn::LIMIT)),
            queue: Mutex::default(),
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

    pub(crate) fn padded(self, pads: bool) -> Buffer {
        Buffer { block_bytes: if pads { BLOCK_BYTES } else { 1 }, ..self }
    }

    pub(crate) fn pads(&self) -> bool {
        self.block_bytes > 1
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Returns half the ring or half a segment, whichever is less.
    pub(crate) fn max_reservation_bytes(&self) -> u64 {
        let half = (self.ring_bytes / 2).min(self.segment_bytes / 2);
        half - half % frame::ALIGN_BYTES
    }

    /// Returns the seed for the caller's reservation.
    #[inline]
    pub(crate) fn seed(&self) -> EpochSeed {
        // Relaxed: the addition that made the reservation has acquired it [P9], and it changes only
        // when nothing is reserved and unpublished.
        EpochSeed::from_bits(self.seed.load(Ordering::Relaxed))
    }

    pub(crate) fn memory_kind(&self) -> MemoryKind {
        self.memory.kind()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.ring_bytes + self.slots.len() as u64 * size_of::<AtomicU64>() as u64
    }

    /// Returns the end of the last reservation, or why there are no more.
    #[inline]
    pub(crate) fn tail(&self) -> Result<Lsn, Stop> {
        // Relaxed: a hint; the value that the `fetch_add` returns decides.
        let raw = self.tail.load(Ordering::Relaxed);
        if raw & FLAGS == 0 { Ok(Lsn::new(raw)) } else { Err(stop_of(raw)) }
    }

    /// Returns the end of the last valid reservation: the fixed end once a flag is set.
    pub(crate) fn reserved(&self) -> Lsn {
        loop {
            if let Ok(tail) = self.tail() {
                return tail;
            }
            if !self.process.is_own() {
                return self.reserved_at_fork();
            }
            // `stop` holds the lock from before the flag until the end is stored. If there is no
            // end, a pause has ended between the two reads, and the tail has no flag any more.
            if let Some(end) = *self.fixed_end.lock() {
                return end;
            }
        }
    }

    /// Reads it without the lock, which may be held for ever in a forked child.
    #[cold]
    fn reserved_at_fork(&self) -> Lsn {
        let fixed_end = self.fixed_end.try_lock().and_then(|end| *end);
        // Relaxed: no thread of this process changes it.
        fixed_end.unwrap_or_else(|| Lsn::new(self.tail.load(Ordering::Relaxed) & !FLAGS))
    }

    #[inline]
    pub(crate) fn limit(&self) -> Lsn {
        self.written.read().plus(self.ring_bytes).min(Lsn::LIMIT)
    }

    /// Returns whether no flag is set and `bytes` above the tail end at or below `limit`.
    #[inline]
    pub(crate) fn has_room(&self, bytes: u64, limit: Lsn) -> bool {
        debug_assert!(limit <= Lsn::LIMIT);
        // Relaxed: as in `tail`. A flag makes the sum greater than every limit. What additions
        // leave below the flags is far from an overflow.
        self.tail.load(Ordering::Relaxed) + bytes <= limit.as_u64()
    }

    /// Reserves `bytes`, a multiple of 8 from 24 to `max_reservation_bytes`.
    #[inline]
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Claim, Stop> {
        debug_assert!(bytes.is_multiple_of(frame::ALIGN_BYTES) && bytes >= 24);
        if !self.process.is_own() {
            return Err(Stop::Forked);
        }
        // Acquire: shows the seed of the epoch that the range is in; pairs with the Release in
        // `resume` [P9]. The addition alone makes the range this thread's own. Its bytes reach
        // other threads through the slot [P1], and the lap before left them through `written` [P2].
        let raw = self.tail.fetch_add(bytes, Ordering::Acquire);
        if raw & FLAGS != 0 {
            return Err(stop_of(raw));
        }
        Ok(Claim { at: raw })
    }

    /// Sets a flag. Returns the end of the log, which the first flag has fixed.
    pub(crate) fn stop(&self, stop: Stop) -> Lsn {
        let mut fixed_end = self.fixed_end.lock();
        // Relaxed: the tail's own modification order orders reservations with the flag; the lock
        // hands the end over.
        let raw = self.tail.fetch_or(stop.flag(), Ordering::Relaxed);
        *fixed_end.get_or_insert(Lsn::new(raw & !FLAGS))
    }

    /// As `stop`. With `pad_to_block` it fixes the end of a block and reserves the rest, which the
    /// caller pads. If there is no room for the rest, sets no flag: a thread that then waits for
    /// space on a full disk would keep all appends waiting.
    pub(crate) fn stop_at_block(&self, stop: Stop) -> Result<(Lsn, Option<Rest>), NotFixed> {
        let mut fixed_end = self.fixed_end.lock();
        let mut tail = self.tail().map_err(NotFixed::Stopped)?;
        if !self.pads() {
            // Relaxed: as in `stop`. No other flag can come between the check and here.
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

    /// Reserves the rest of the tail's block, if there is one, and room for it.
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

    pub(crate) fn is_block_end(&self, lsn: Lsn) -> bool {
        self.rest_bytes(lsn) == 0
    }

    fn rest_bytes(&self, tail: Lsn) -> u64 {
        tail.as_u64().next_multiple_of(self.block_bytes) - tail.as_u64()
    }

    fn move_tail(&self, from: Lsn, to: u64) -> Result<(), u64> {
        // Acquire: as in `reserve` [P9]. Relaxed: a failed exchange guards nothing.
        self.tail
            .compare_exchange(from.as_u64(), to, Ordering::Acquire, Ordering::Relaxed)
            .map(drop)
    }

    /// Ends the pause: the next reservation begins at `at`, with `seed`. A log that was closed or
    /// poisoned meanwhile ends at `at`. Everything below the fixed end has been published.
    pub(crate) fn resume(&self, at: Lsn, seed: EpochSeed) {
        let mut fixed_end = self.fixed_end.lock();
        // Relaxed: published by the tail below [P9].
        self.seed.store(seed.bits(), Ordering::Relaxed);
        // Relaxed: flags change only under the lock.
        let others = self.tail.load(Ordering::Relaxed) & (FLAG_CLOSED | FLAG_POISONED);
        *fixed_end = (others != 0).then_some(at);
        // Release: publishes the seed; pairs with the Acquire in `reserve` [P9]. The swap removes
        // what additions have left in the low bits.
        self.tail.swap(at.as_u64() | others, Ordering::Release);
    }

    #[inline]
    pub(crate) fn crosses(&self, claim: &Claim, bytes: u64) -> bool {
        let last = claim.at + bytes - 1;
        match self.segment_shift {
            Some(shift) => (claim.at ^ last) >> shift != 0,
            None => claim.at / self.segment_bytes != last / self.segment_bytes,
        }
    }

    /// Returns where the reservation at `at` ends, once it is published. Prefetches a slot ahead
    /// for a walk.
    #[inline]
    pub(crate) fn published_end(&self, at: Lsn) -> Option<Lsn> {
        let at = at.as_u64();
        // Acquire: the bytes copied before the publish are visible; pairs with the Release in
        // `Reserved::publish` [P1].
        let end = self.slot(at).load(Ordering::Acquire);
        if end <= at {
            return None;
        }
        will_touch(std::ptr::from_ref(self.slot(end + WALK_AHEAD * (end - at))).cast());
        Some(Lsn::new(end))
    }

    /// Prefetches what a reservation of `bytes` a little later will write, while this one's
    /// checksum is computed.
    #[inline]
    pub(crate) fn fetch_ahead(&self, bytes: u64) {
        if cfg!(loom) {
            // The load of the tail would multiply the schedules and find nothing.
            return;
        }
        // Relaxed: a guess. A flag in it, or a faster thread, makes it a bad one.
        let at = self.tail.load(Ordering::Relaxed).wrapping_add(APPEND_AHEAD * bytes);
        will_touch(std::ptr::from_ref(self.slot(at)).cast());
        self.memory.fetch_ahead(at, bytes.min(FETCH_AHEAD_BYTES) as usize);
    }

    /// Calls `read` with the bytes of `[from, to)`.
    ///
    /// # Safety
    /// - The caller holds the write lock, and `from` is *written*.
    /// - `[from, to)` is a run of reservations for which `published_end` gave an end.
    #[expect(unsafe_code, reason = "only the walk over the slots knows that no thread writes")]
    pub(crate) unsafe fn read<R>(
        &self,
        from: Lsn,
        to: Lsn,
        read: impl FnOnce(&[IoSlice<'_>; 2]) -> R,
    ) -> R {
        let len = to.bytes_since(from) as usize;
        // SAFETY:
        // - length: published ranges are below `written + ring`, and `from` is not below `written`.
        // - no writer: an owner stops writing when it publishes; the next lap's owner needs
        //   `written` to pass `from`, and only the write lock's holder moves it.
        // - earlier writes happened before: P1.
        unsafe { self.memory.read(from.as_u64(), len, read) }
    }

    fn slot(&self, at: u64) -> &AtomicU64 {
        &self.slots[((at / SLOT_BYTES) & self.slot_mask) as usize]
    }
}

// By hand: a list of all slots helps no reader.
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

//! What all handles of an open log of streams share.

use std::ops::Range;

use palisade::{Error, ErrorKind, Lsn, Result, Wal, framed_bytes};
use palisade_core::sync::{AtomicU64, Mutex, Ordering};

use crate::consumer::Claims;
use crate::directory::Directory;
use crate::keeper::Keeper;
use crate::segments::Segments;
use crate::write::MAX_VALUE_BYTES;

/// Segments below the limit of the log's space that an append leaves for truncations and moves:
/// without them a full log could not be emptied.
pub(crate) const KEPT_SEGMENTS: u64 = 3;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) wal: Wal,
    pub(crate) directory: Directory,
    pub(crate) segments: Segments,
    pub(crate) keeper: Keeper,
    pub(crate) claims: Mutex<Claims>,
    /// The greatest segment that an append has begun.
    latest: AtomicU64,
    /// Bytes of the changes that were allowed and may not be in the log yet; twice.
    granted: AtomicU64,
    /// The numbers below the tail that had no file when the log was opened. Of numbers without a
    /// record it is only known how many have a file: as many of the highest are left out, so that
    /// `used` is never too low.
    passed: Vec<Range<u32>>,
    /// The lowest segment that was not released, plus how many numbers from there on have no
    /// segment. Releases never lower the sum.
    head: AtomicU64,
    /// The most segments that the log may have.
    limit: Option<u64>,
}

impl Shared {
    pub(crate) fn new(
        wal: Wal,
        directory: Directory,
        segments: Segments,
        keeper: Keeper,
    ) -> Result<Shared> {
        let space = wal.space()?;
        let limit = space.limit.map(|bytes| bytes / space.file_bytes.max(1));
        let end = wal.reserved_lsn();
        let (head, tail) = (segments.of(space.head), segments.of(end));
        let mut passed = segments.passed(head, tail);
        let with_records = u64::from(tail) - without(&passed, head);
        let files = space.segments.saturating_sub(u64::from(end > segments.start(tail)));
        drop_highest(&mut passed, files.saturating_sub(with_records));
        let head = AtomicU64::new(without(&passed, head));
        let latest = AtomicU64::new(tail.into());
        let claims = Mutex::default();
        let granted = AtomicU64::new(0);
        Ok(Shared {
            wal,
            directory,
            segments,
            keeper,
            claims,
            latest,
            granted,
            passed,
            head,
            limit,
        })
    }

    /// Counts `bytes` that the caller will append, until it drops what is returned: it does so when
    /// it has counted the records. `has_room` says whether there is room if others append so many
    /// bytes first. Returns `None`, and counts nothing, if there is none. All bytes count twice:
    /// the log pads a record that does not fit into the rest of a segment, and appends it again.
    fn take(&self, bytes: u64, has_room: impl Fn(u64) -> bool) -> Option<Taken<'_>> {
        let longest = framed_bytes(self.wal.max_record_bytes());
        let bytes = 2 * bytes.min(longest);
        // Acquire, with the Release in `drop`: if the bytes of another thread are not counted any
        // more, this thread sees the end of the log behind them.
        let mut others = self.granted.load(Ordering::Acquire);
        while has_room(others) {
            match self.granted.compare_exchange_weak(
                others,
                others + bytes,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(Taken { shared: self, bytes }),
                Err(now) => others = now,
            }
        }
        None
    }

    /// Returns where the log ends if `others` bytes are appended.
    fn end_behind(&self, others: u64) -> Lsn {
        Lsn::new(self.wal.reserved_lsn().as_u64().saturating_add(others))
    }

    /// Refuses a change of `bytes` that would take the segments which are kept for truncations and
    /// moves. Threads that append at the same time count for each other: else each of them would
    /// find the same room.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<Taken<'_>> {
        // Relaxed, both: a tail that is too low, or a head, counts a segment too few or too many.
        let latest = || self.latest.load(Ordering::Relaxed);
        if latest() + 1 >= u64::from(u32::MAX) {
            let text = "the log has no number left for another segment";
            let advice = "close the log and open it again";
            return Err(Error::new(ErrorKind::OutOfRange, text).with_advice(advice));
        }
        let Some(limit) = self.limit else { return Ok(Taken { shared: self, bytes: 0 }) };
        let has_room = |others| {
            let tail = match others {
                0 => latest(),
                _ => latest().max(self.segments.of(self.end_behind(others)).into()),
            };
            self.used(tail) + KEPT_SEGMENTS <= limit
        };
        if let Some(taken) = self.take(bytes, has_room) {
            return Ok(taken);
        }
        // A reader that kept released segments may have ended since.
        self.note_released()?;
        if let Some(taken) = self.take(bytes, has_room) {
            return Ok(taken);
        }
        let used = self.used(latest());
        // The device may read by now what keeps the log.
        self.segments.retry_damaged();
        let text = format!(
            "the streams take {used} segments; the log may take {limit}, of which {KEPT_SEGMENTS} \
             are kept for truncations (max_bytes)"
        );
        self.keeper.wake();
        let advice = "truncate or delete the streams that Streams::pinned names, end the tails and \
                      cursors that Wal::space names, or raise move_percent";
        Err(Error::new(ErrorKind::NoSpace, text).with_advice(advice))
    }

    /// Refuses a change of values, in records of `bytes`, as [`check_room`] refuses other changes,
    /// but not in the first half of the segment that they have begun last. An engine may have to
    /// save a value before it truncates.
    ///
    /// [`check_room`]: Shared::check_room
    pub(crate) fn check_room_for_value(&self, bytes: u64) -> Result<Taken<'_>> {
        self.check_room_in_last(2, bytes)
    }

    /// Does the same for positions of consumers, in the first three quarters: an engine may
    /// truncate only what was acknowledged. The rest of the segment is for truncations.
    pub(crate) fn check_room_for_position(&self, bytes: u64) -> Result<Taken<'_>> {
        self.check_room_in_last(3, bytes)
    }

    fn check_room_in_last(&self, quarters: u64, bytes: u64) -> Result<Taken<'_>> {
        let error = match self.check_room(bytes) {
            Err(error) => error,
            taken => return taken,
        };
        let has_room = |others| {
            let tail = self.end_behind(others);
            let used = self.used(self.segments.of(tail).into());
            let is_last = self.limit.is_some_and(|limit| used + KEPT_SEGMENTS <= limit + 1);
            let end = tail.as_u64() % self.segments.bytes() + bytes;
            is_last && end <= self.segments.bytes() / 4 * quarters
        };
        let is_full = error.kind() == ErrorKind::NoSpace;
        let taken = if is_full { self.take(bytes, has_room) } else { None };
        taken.ok_or(error)
    }

    /// Returns how many bytes may be moved: all, or those below the limit of the log's space, less
    /// a segment for truncations and footers.
    pub(crate) fn room(&self) -> u64 {
        let Some(limit) = self.limit else { return u64::MAX };
        // Not `latest`: footers do not count there.
        let tail = self.segments.of(self.wal.reserved_lsn());
        limit.saturating_sub(self.used(tail.into()) + 1) * self.segments.bytes()
    }

    /// Returns how many segments the log has if the last one is `tail`.
    fn used(&self, tail: u64) -> u64 {
        // Relaxed: as in `check_room`.
        (tail + 1).saturating_sub(self.head.load(Ordering::Relaxed))
    }

    /// Notes that an append has begun segment `segment`, and wakes the keeper.
    #[cold]
    pub(crate) fn notice_segment(&self, segment: u32) {
        // Relaxed: a hint for the keeper, which looks for itself.
        if self.latest.fetch_max(u64::from(segment), Ordering::Relaxed) < u64::from(segment) {
            self.keeper.wake();
        }
    }

    /// Notes that segments were released. Those that a reader keeps still count.
    pub(crate) fn note_released(&self) -> Result<()> {
        if self.limit.is_some() {
            let space = self.wal.space()?;
            let pinned = space.pins.iter().map(|pin| pin.lsn);
            let lowest = pinned.fold(space.head, palisade::Lsn::min);
            let head = without(&self.passed, self.segments.of(lowest));
            // Relaxed: as in `check_room`. An older sum counts a segment too many.
            self.head.store(head, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn max_value_bytes(&self) -> usize {
        MAX_VALUE_BYTES.min(self.wal.max_record_bytes() / 4)
    }
}

/// Bytes that were granted: see [`Shared::check_room`].
#[must_use]
#[derive(Debug)]
pub(crate) struct Taken<'s> {
    shared: &'s Shared,
    bytes: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // Release: with the AcqRel in `take`.
            self.shared.granted.fetch_sub(self.bytes, Ordering::Release);
        }
    }
}

/// Takes the `count` highest numbers away.
fn drop_highest(passed: &mut Vec<Range<u32>>, count: u64) {
    for _ in 0..count {
        let Some(last) = passed.last_mut() else { return };
        last.end -= 1;
        if last.start == last.end {
            passed.pop();
        }
    }
}

/// Returns `head` plus how many of the `passed` numbers are not below it.
fn without(passed: &[Range<u32>], head: u32) -> u64 {
    let above = |range: &Range<u32>| u64::from(range.end.saturating_sub(range.start.max(head)));
    u64::from(head) + passed.iter().map(above).sum::<u64>()
}

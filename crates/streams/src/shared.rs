//! What all handles of an open log of streams share.

use std::cmp::Ordering::{Equal, Greater, Less};

use palisade::{Error, ErrorKind, Lsn, Result, Wal, framed_bytes};
use palisade_store::sync::{AtomicU64, Mutex, Ordering};

use crate::consumer::Claims;
use crate::directory::Directory;
use crate::granted::{Granted, Taken};
use crate::keeper::Keeper;
use crate::segments::Segments;
use crate::write::MAX_VALUE_BYTES;

/// Segments below the limit of the log's space that an append leaves for truncations and moves:
/// without them a full log could not be emptied.
pub(crate) const KEPT_SEGMENTS: u64 = 3;

/// No log has so many files below the segment that counts as 0.
const BIAS: u64 = 1 << 40;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) wal: Wal,
    pub(crate) directory: Directory,
    pub(crate) segments: Segments,
    pub(crate) keeper: Keeper,
    pub(crate) claims: Mutex<Claims>,
    /// The greatest segment that an append has begun.
    latest: AtomicU64,
    granted: Granted,
    /// The number behind the last file of a segment, less how many files there are, plus `BIAS`:
    /// where the files would begin if their numbers had no gaps. A file counts as long as it is
    /// there, whatever keeps it.
    first_file: AtomicU64,
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
        let tail = segments.of(wal.reserved_lsn());
        let shared = Shared {
            wal,
            directory,
            segments,
            keeper,
            claims: Mutex::default(),
            latest: AtomicU64::new(tail.into()),
            granted: Granted::new(),
            first_file: AtomicU64::new(0),
            limit,
        };
        shared.count_files()?;
        Ok(shared)
    }

    /// Counts `bytes` that the caller will append, twice, if there is room: see [`Granted::take`].
    /// The log pads a record that does not fit into the rest of a segment, and appends it again.
    fn take(&self, bytes: u64, has_room: impl Fn(u64) -> bool) -> Option<Taken<'_>> {
        let longest = framed_bytes(self.wal.max_record_bytes());
        self.granted.take(2 * bytes.min(longest), has_room)
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
        let Some(limit) = self.limit else { return Ok(self.granted.none()) };
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
        self.count_files()?;
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
        self.keeper.release_left();
        let advice = "truncate or delete the streams that Streams::pinned names, end the tails and \
                      cursors that Wal::space names, or raise move_percent or max_bytes";
        Err(Error::new(ErrorKind::NoSpace, text).with_advice(advice))
    }

    /// Refuses a change of values, in records of `bytes`, as [`check_room`] refuses other changes,
    /// but not in the first halves of the first two of the kept segments: a kill can have passed
    /// over one. An engine may have to save a value before it truncates.
    ///
    /// [`check_room`]: Shared::check_room
    pub(crate) fn check_room_for_value(&self, bytes: u64) -> Result<Taken<'_>> {
        self.check_room_in_last(2, bytes)
    }

    /// Does the same for positions of consumers, in the first three quarters: an engine may
    /// truncate only what was acknowledged. The rest of the segments is for truncations.
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
            let is_in = self.limit.is_some_and(|limit| used + KEPT_SEGMENTS <= limit + 2);
            let end = tail.as_u64() % self.segments.bytes() + bytes;
            is_in && end <= self.segments.bytes() / 4 * quarters
        };
        let is_full = error.kind() == ErrorKind::NoSpace;
        let taken = if is_full { self.take(bytes, has_room) } else { None };
        taken.ok_or(error)
    }

    /// Refuses a truncation or a deletion, in records of `bytes`, that would begin the last
    /// segment. One that leaves no entry of its stream may take three quarters of it: after a kill
    /// there is room only above, and such a one can free what keeps the log. The rest is for moves.
    pub(crate) fn check_room_for_removal(
        &self,
        bytes: u64,
        leaves_none: bool,
    ) -> Result<Taken<'_>> {
        let segment = self.segments.bytes();
        self.check_room_below_limit(bytes, |end| leaves_none && end % segment <= segment / 4 * 3)
    }

    /// Refuses a copy that would fill the log.
    pub(crate) fn check_room_for_copy(&self, bytes: u64) -> Result<Taken<'_>> {
        self.check_room_below_limit(bytes, |_| true)
    }

    /// Refuses records of `bytes` that would begin a segment above the limit, or for which
    /// `fits_in_last` refuses where they would end in the last segment below the limit. All bytes
    /// count twice, as in `take`.
    fn check_room_below_limit(
        &self,
        bytes: u64,
        fits_in_last: impl Fn(u64) -> bool,
    ) -> Result<Taken<'_>> {
        let Some(limit) = self.limit else { return Ok(self.granted.none()) };
        let has_room = |others| {
            let (now, end) = (self.wal.reserved_lsn(), self.end_behind(others + 2 * bytes));
            match self.used(self.segments.of(end).into()).cmp(&limit) {
                Less => true,
                Equal => fits_in_last(end.as_u64()),
                // Kills, or a lower limit, have brought the log there. Only a segment that is
                // written to has its file.
                Greater => {
                    let of = self.segments.of(now);
                    let has_file = self.wal.written_lsn() > self.segments.start(of);
                    has_file && self.segments.of(end) == of && fits_in_last(end.as_u64())
                }
            }
        };
        if let Some(taken) = self.take(bytes, has_room) {
            return Ok(taken);
        }
        self.count_files()?;
        if let Some(taken) = self.take(bytes, has_room) {
            return Ok(taken);
        }
        self.keeper.release_left();
        let text = format!(
            "the log may take {limit} segments, and what was truncated is not released yet \
             (max_bytes)"
        );
        let advice = "wait for the keeper (Streams::maintain without its thread) and look at \
                      Streams::stats for its error; end the tails and cursors that Wal::space \
                      names; delete, or truncate as a whole, what Streams::pinned names; or raise \
                      max_bytes";
        Err(Error::new(ErrorKind::NoSpace, text).with_advice(advice))
    }

    /// Returns how many bytes may be moved: all, or those below the limit of the log's space, less
    /// a segment for truncations and footers. If truncations have taken that one, half a segment:
    /// a move releases more than it takes. (A thread that waits in a full log for room would hold
    /// its stripe, and the keeper, who frees room, would wait for that: so no change fills it.)
    pub(crate) fn room(&self) -> u64 {
        let Some(limit) = self.limit else { return u64::MAX };
        // Not `latest`: footers do not count there.
        let end = self.wal.reserved_lsn();
        let bytes = self.segments.bytes();
        match limit.saturating_sub(self.used(self.segments.of(end).into())) {
            0 => (bytes - end.as_u64() % bytes) / 2,
            1 => bytes / 2,
            free => (free - 1) * bytes,
        }
    }

    /// Returns whether a pin that `Wal::space` names keeps what the streams have released.
    pub(crate) fn is_kept_below(&self) -> Result<bool> {
        let lowest = self.segments.with(|all| all.keys().next().copied());
        // The lowest one comes first.
        let kept = self.wal.space()?.pins.first().map(|pin| self.segments.of(pin.lsn));
        Ok(kept.zip(lowest).is_some_and(|(kept, lowest)| kept < lowest))
    }

    /// Returns how many segments the log has if the last one is `tail`.
    fn used(&self, tail: u64) -> u64 {
        // Relaxed: as in `check_room`.
        (BIAS + tail + 1).saturating_sub(self.first_file.load(Ordering::Relaxed))
    }

    /// Notes that an append has begun segment `segment`, and wakes the keeper.
    #[cold]
    pub(crate) fn notice_segment(&self, segment: u32) {
        // Relaxed: a hint for the keeper, which looks for itself.
        if self.latest.fetch_max(u64::from(segment), Ordering::Relaxed) < u64::from(segment) {
            self.keeper.wake();
        }
    }

    /// Counts the files of segments, if the log has a limit.
    pub(crate) fn count_files(&self) -> Result<()> {
        if self.limit.is_none() {
            return Ok(());
        }
        loop {
            let end = self.end_of_files();
            let files = self.wal.space()?.segments;
            // Else it is not known whether the list has the file that was begun meanwhile.
            if self.end_of_files() == end {
                // Relaxed: as in `check_room`. An older count has files too many.
                self.first_file.store((BIAS + end).saturating_sub(files), Ordering::Relaxed);
                return Ok(());
            }
        }
    }

    /// Returns the number behind the last segment that holds something.
    fn end_of_files(&self) -> u64 {
        let written = self.wal.written_lsn();
        let last = self.segments.of(written);
        u64::from(last) + u64::from(written > self.segments.start(last))
    }

    pub(crate) fn max_value_bytes(&self) -> usize {
        MAX_VALUE_BYTES.min(self.wal.max_record_bytes() / 4)
    }
}

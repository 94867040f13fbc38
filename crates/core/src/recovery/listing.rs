//! What a store lists: its state and the headers of its segments.
//!
//! Numbers are checked before anything is computed or allocated with them. The list of segments is
//! as long as the store's, never as long as a field of a header claims.
//!
//! # A closed log
//! A close saves the list of epochs together with the flag `clean` and the clean end, in the same
//! block. The next open lists the names of the segments. It reads the headers of the segments at
//! and above the clean end, where appends continue. It takes the headers of the others from the
//! list and checks them as if it had read them, so it refuses a log with a missing segment.
//!
//! Those other headers need no check of their own. The checksum of a frame continues from the log's
//! UUID and the epoch's number and salt, and covers the frame's LSN. So bytes of another segment,
//! epoch or log do not validate there.

use palisade_store::{
    BadHeader, EpochBase, MAX_BUFFER_BYTES, MIN_SEGMENT_BYTES, Predecessor, ReadStore, Segment,
    SegmentHeader, State, check_segment_bytes,
};

use super::discarded::DiscardedRanges;
use crate::frame::EpochSeed;
use crate::{Error, ErrorKind, Lsn, Result};

/// The advice of an open or a tool that refuses a damaged log.
pub(super) const REFUSED: &str = "nothing was changed; `palisade verify --deep` names what is \
                                  damaged: restore from a replica or backup, or copy with \
                                  `palisade repair` what is below the damage";

/// The advice of an open that refuses a log of which it cannot read a part that it needs.
pub(super) const UNREADABLE: &str = "nothing was changed; look at the device; if it stays \
                                     unreadable, `palisade verify --deep` names each such place, \
                                     and `palisade repair` copies what is below";

/// No log begins so many epochs. A larger number is damage.
const MAX_EPOCH: u64 = 1 << 60;

/// No store prepares more segments ahead of the tail.
const MOST_AHEAD: u64 = 8;

/// The state and all segments of a store, with headers that are safe to compute with.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) state: State,
    pub(crate) segments: Vec<Segment>,
}

impl Listing {
    pub(crate) fn read(store: &dyn ReadStore) -> Result<Listing> {
        let state = store.state()?;
        check_state(&state, &store.place())?;
        let mut segments = store.segments()?;
        segments.iter_mut().for_each(distrust);
        Ok(Listing { state, segments })
    }

    /// Lists a closed log by the epochs in its state and the headers at and above the clean end.
    /// Returns `None` if the log was not closed, or if no list fits the state.
    pub(super) fn of_closed_log(store: &dyn ReadStore) -> Result<Option<Listing>> {
        let state = store.state()?;
        if check_state(&state, &store.place()).is_err() || !has_list(&state) {
            return Ok(None);
        }
        let end = state.clean_end.segment(state.segment_bytes);
        let (numbers, mut at_the_end) = store.segments_from(end)?;
        at_the_end.iter_mut().for_each(distrust);
        let below = numbers.into_iter().filter(|number| *number < end);
        let mut segments: Vec<Segment> =
            below.filter_map(|number| segment_by_list(&state, number)).collect();
        segments.append(&mut at_the_end);
        Ok(Some(Listing { state, segments }))
    }

    /// Refuses a log with a header that the medium cannot read, unless the segment is below the
    /// head or between two epochs. An open must not decide without it: an unreadable header is not
    /// one that a crash left, and the segment may have acknowledged records.
    pub(super) fn check_readable(&self, store: &dyn ReadStore) -> Result<()> {
        for Segment { number, header } in self.live() {
            if let Err(bad @ BadHeader::Unreadable(_)) = header {
                let error = Error::new(ErrorKind::Io, bad.to_string()).with_advice(UNREADABLE);
                return Err(error.at_path(store.segment_place(*number)).at_segment(*number));
            }
        }
        Ok(())
    }

    /// Returns the ranges between the end of one epoch and the base of the next.
    pub(crate) fn discarded_ranges(&self) -> DiscardedRanges {
        DiscardedRanges::of(valid(&self.segments))
    }

    /// Returns the segments at or above the head's and outside of discarded ranges.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Segment> {
        let State { segment_bytes, head, .. } = self.state;
        let discarded = self.discarded_ranges();
        self.segments.iter().filter(move |segment| {
            let base = Lsn::new(segment.number * segment_bytes);
            let end = base.plus(segment_bytes);
            head < end && !discarded.cover(base, end)
        })
    }

    /// Removes the stray files, and returns them.
    pub(crate) fn take_strays(&mut self) -> Vec<Segment> {
        self.segments.split_off(first_stray(&self.state, &self.segments))
    }

    /// Returns the seeds to try for each segment. For a damaged header these are the seeds of the
    /// nearest segments on either side and the running epoch's.
    pub(crate) fn seeds(&self) -> Vec<Vec<EpochSeed>> {
        let State { uuid, epoch, epoch_salt, .. } = self.state;
        let running = EpochSeed::new(uuid, epoch, epoch_salt);
        let own = |segment: &Segment| {
            let header = segment.header.as_ref().ok()?;
            Some(EpochSeed::new(uuid, header.epoch, header.salt))
        };
        let own: Vec<Option<EpochSeed>> = self.segments.iter().map(own).collect();
        let mut seeds: Vec<Vec<EpochSeed>> = vec![Vec::new(); own.len()];
        let mut before = None;
        for (index, own) in own.iter().enumerate() {
            before = own.or(before);
            match own {
                Some(own) => seeds[index].push(*own),
                None => seeds[index].extend([Some(running), before].into_iter().flatten()),
            }
        }
        let mut behind = None;
        for (index, own) in own.iter().enumerate().rev() {
            behind = own.or(behind);
            seeds[index].extend(behind.filter(|_| own.is_none()));
            // Equal seeds need not be neighbours; there are at most three.
            let found = std::mem::take(&mut seeds[index]);
            for seed in found {
                if !seeds[index].contains(&seed) {
                    seeds[index].push(seed);
                }
            }
        }
        seeds
    }
}

/// Returns the headers that validate.
pub(crate) fn valid(segments: &[Segment]) -> impl Iterator<Item = &SegmentHeader> {
    segments.iter().filter_map(|segment| segment.header.as_ref().ok())
}

/// Returns segment `number` with a header that follows from the list, or `None` if the segment is
/// in no listed epoch.
fn segment_by_list(state: &State, number: u64) -> Option<Segment> {
    let base = Lsn::new(number * state.segment_bytes);
    let index = state.epochs.iter().position(|epoch| epoch.base <= base && base < epoch.end)?;
    let epoch = state.epochs[index];
    // The records below the first listed epoch were truncated, so its predecessor's number does not
    // matter.
    let before = match index.checked_sub(1).map(|before| state.epochs[before]) {
        Some(before) => Predecessor { epoch: before.number, end: before.end },
        None => Predecessor { epoch: 0, end: state.head.min(base) },
    };
    let predecessor = (base == epoch.base).then_some(before);
    let header = SegmentHeader { number, base, epoch: epoch.number, salt: epoch.salt, predecessor };
    Some(Segment { number, header: Ok(header) })
}

/// Returns the index of the first stray file in `found`. A stray file has no valid header, and its
/// number is out of reach of everything that belongs to the log and of each file below it.
///
/// A segment gets its name when its header is durable. So a file without a valid header either is
/// not a segment, or its header was damaged later. The distance between a segment and the one below
/// it is at most a log buffer and the segments that are prepared ahead: the reach. So a file out of
/// reach was never a segment of the log, and it must not move the base of the next epoch.
pub(crate) fn first_stray(state: &State, found: &[Segment]) -> usize {
    let segment_bytes = state.segment_bytes;
    let end_of = |number: u64| Lsn::new((number + 1) * segment_bytes);
    let has_header = |segment: &&Segment| segment.header.is_ok();
    let highest = found.iter().rfind(has_header).map_or(Lsn::ZERO, |last| end_of(last.number));
    let known =
        [state.epoch_base.plus(segment_bytes), state.head, state.checkpoint, state.clean_end];
    let mut known = known.into_iter().fold(highest, Lsn::max);
    let stray = found.iter().position(|segment| {
        let reach = known.plus(MAX_BUFFER_BYTES as u64 + MOST_AHEAD * segment_bytes);
        // A segment within reach extends the reach to the next one.
        known = known.max(end_of(segment.number));
        reach < Lsn::new(segment.number * segment_bytes)
    });
    stray.unwrap_or(found.len())
}

/// Returns the end of the highest-numbered segment.
pub(crate) fn highest_end(segments: &[Segment], segment_bytes: u64) -> Lsn {
    let behind = segments.last().map_or(0, |last| last.number + 1);
    Lsn::new(behind.saturating_mul(segment_bytes))
}

/// Refuses a state whose numbers no log can have, even though its checksum holds.
pub(super) fn check_state(state: &State, place: &str) -> Result<()> {
    check_segment_bytes(state.segment_bytes, MIN_SEGMENT_BYTES)?;
    let cursor = state.highest_cursor();
    let lsns = [state.head, state.checkpoint, state.clean_end, state.epoch_base, cursor];
    let is_base = |known: &EpochBase| known.end_before < known.base && known.base < Lsn::LIMIT;
    let is_sane = lsns.iter().all(|lsn| *lsn < Lsn::LIMIT)
        && state.bases.iter().all(is_base)
        && state.epoch_base.as_u64().is_multiple_of(state.segment_bytes)
        && state.buffer_bytes <= MAX_BUFFER_BYTES as u64
        && state.epoch < MAX_EPOCH;
    if is_sane {
        return Ok(());
    }
    Err(corrupt("the log's state holds numbers that no log can have".into(), place))
}

/// Treats a header whose numbers no log can have as damaged, even though its checksum holds.
pub(super) fn distrust(segment: &mut Segment) {
    let Ok(header) = &segment.header else { return };
    let before = header.predecessor.unwrap_or_default();
    let is_sane = header.base < Lsn::LIMIT
        && header.epoch < MAX_EPOCH
        && before.end <= header.base
        && before.epoch < header.epoch;
    if !is_sane {
        segment.header = Err(BadHeader::Damaged("it holds numbers that no log can have".into()));
    }
}

pub(crate) fn corrupt(text: String, place: &str) -> Error {
    Error::new(ErrorKind::Corrupt, text).at_path(place).with_advice(REFUSED)
}

/// Returns whether the log was closed with a list of epochs that fits this state.
pub(super) fn has_list(state: &State) -> bool {
    let Some(running) = state.epochs.last() else { return false };
    let is_running = running.number == state.epoch
        && running.salt == state.epoch_salt
        && running.base == state.epoch_base
        && running.end == state.clean_end;
    let is_whole = state.epochs.iter().all(|epoch| {
        epoch.base.as_u64().is_multiple_of(state.segment_bytes) && epoch.base <= epoch.end
    });
    let ascends = state
        .epochs
        .windows(2)
        .all(|pair| pair[0].number < pair[1].number && pair[0].end <= pair[1].base);
    state.clean && is_running && is_whole && ascends
}

//! What a store holds, before anything is decided: state, epochs, segments, first evidence.
//!
//! Reads headers only. Changes nothing. Numbers in them are checked before anything is computed
//! or allocated with them; the list of segments is as long as the store's, never as long as a
//! field says.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dead::DeadRanges;
use super::strays::first_stray;
use crate::frame::EpochSeed;
use crate::reader::{EpochSpan, FrameReader};
use crate::store::{Predecessor, ReadStore, Segment, SegmentHeader, State};
use crate::{Error, ErrorKind, Lsn, MAX_BUFFER_BYTES, Result};

/// No log begins so many epochs: a larger number is damage.
const MAX_EPOCH: u64 = 1 << 60;

/// What the headers of a log say.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) state: State,
    /// Valid headers at or above the head's segment and outside of dead ranges, by number.
    pub(crate) segments: BTreeMap<u64, SegmentHeader>,
    /// Segments of the newest epoch whose headers do not validate, and why.
    pub(crate) damaged: BTreeMap<u64, String>,
    /// All epochs with records at or above the head, ascending. The last is the newest; its
    /// end is not known yet and stands at [`Lsn::LIMIT`].
    pub(crate) spans: Vec<EpochSpan>,
    /// What the newest epoch's first segment says of the one before.
    pub(crate) predecessor: Predecessor,
    /// The newest epoch's salt.
    pub(crate) salt: u64,
    /// The largest epoch number seen in any header.
    pub(crate) largest_epoch: u64,
    /// End of the highest-numbered segment present, dead or alive; strays do not count.
    pub(crate) highest_end: Lsn,
    /// Files with a segment's name, so far above all that is known of the log that it cannot have
    /// made them, and without a header of it; and why.
    pub(crate) strays: BTreeMap<u64, String>,
}

/// The state and all segments of a store, with headers that can be computed with.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) state: State,
    pub(crate) segments: Vec<Segment>,
}

impl Found {
    pub(crate) fn list(store: &dyn ReadStore) -> Result<Found> {
        let state = store.state()?;
        check_state(&state, &store.place())?;
        let mut segments = store.segments()?;
        segments.iter_mut().for_each(distrust);
        Ok(Found { state, segments })
    }

    /// The ranges between one epoch's end and the next one's base.
    pub(crate) fn dead_ranges(&self) -> DeadRanges {
        DeadRanges::of(self.segments.iter().filter_map(|segment| segment.header.as_ref().ok()))
    }

    /// The epochs, ascending, as far as headers tell of them: the newest has no end. Where nothing
    /// says that an epoch follows on the one before, that one reaches up to it, so that a reader
    /// does not pass over what is missing between them.
    ///
    /// # Errors
    /// `Corrupt` if an epoch lies behind a later one.
    pub(crate) fn lives(&self, place: &str) -> Result<Vec<EpochSpan>> {
        let State { uuid, segment_bytes, .. } = self.state;
        let dead = self.dead_ranges();
        let is_dead =
            |header: &SegmentHeader| dead.cover(header.base, header.base.plus(segment_bytes));
        let valid = self.segments.iter().filter_map(|segment| segment.header.as_ref().ok());
        let mut spans: Vec<EpochSpan> = Vec::new();
        for header in valid.filter(|header| !is_dead(header)) {
            if let Some(last) = spans.last_mut() {
                if header.epoch < last.epoch {
                    let text = format!("epoch {} follows a later one", header.epoch);
                    return Err(corrupt(text, place).at_segment(header.number));
                }
                if header.epoch == last.epoch {
                    continue;
                }
                let follows = header.predecessor.filter(|before| before.epoch == last.epoch);
                last.end = follows.map_or(header.base, |before| before.end);
            }
            spans.push(EpochSpan::open_ended(uuid, header.epoch, header.salt, header.base));
        }
        Ok(spans)
    }

    /// The seed of each segment; where its header is damaged, those of the nearest segments on
    /// either side, and the running epoch's.
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
            // Behind each other they need not be: three at most.
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

impl Survey {
    /// How many segments there are at or above the head.
    pub(crate) fn present(&self) -> u64 {
        (self.segments.len() + self.damaged.len()) as u64
    }

    /// Reads the state and all headers of `store`.
    ///
    /// # Errors
    /// `Corrupt` if something is missing or damaged that must be there.
    pub(crate) fn take(store: &dyn ReadStore) -> Result<Survey> {
        Survey::of(Found::list(store)?, store)
    }

    /// As `take`, of what was found in `store`.
    pub(super) fn of(found: Found, store: &dyn ReadStore) -> Result<Survey> {
        let dead = found.dead_ranges();
        let Found { state, segments: found } = found;
        let segment_bytes = state.segment_bytes;
        let first_stray = first_stray(&state, &found);
        let (found, strays) = found.split_at(first_stray);
        let highest_end =
            found.last().map_or(Lsn::ZERO, |last| Lsn::new((last.number + 1) * segment_bytes));
        let strays = strays.iter().filter_map(|stray| {
            let text = stray.header.as_ref().err()?;
            Some((stray.number, text.clone()))
        });
        let strays = strays.collect();
        let valid = found.iter().filter_map(|segment| segment.header.as_ref().ok());
        let largest_epoch = valid.map(|header| header.epoch).max().unwrap_or(0).max(state.epoch);
        let mut survey = Survey {
            segments: BTreeMap::new(),
            damaged: BTreeMap::new(),
            spans: Vec::new(),
            predecessor: Predecessor::default(),
            salt: state.epoch_salt,
            largest_epoch,
            highest_end,
            strays,
            state,
        };
        for segment in found {
            let base = Lsn::new(segment.number * segment_bytes);
            let end = base.plus(segment_bytes);
            if dead.cover(base, end) || end <= survey.state.head {
                continue;
            }
            match &segment.header {
                Ok(header) => drop(survey.segments.insert(segment.number, *header)),
                Err(text) => drop(survey.damaged.insert(segment.number, text.clone())),
            }
        }
        survey.list_epochs(store)?;
        survey.check_the_running_epoch(store)?;
        survey.check_what_lies_below(store)?;
        Ok(survey)
    }

    pub(crate) fn newest(&self) -> Option<EpochSpan> {
        self.spans.last().copied()
    }

    /// Whether the newest epoch, which ends at `end`, has stayed empty. One of which nothing is left,
    /// because the head lies at the base of a segment that is not the epoch's first, was not empty.
    pub(crate) fn is_empty_epoch(&self, end: Lsn) -> bool {
        let Some(newest) = self.newest() else { return false };
        let number = newest.base.segment(self.state.segment_bytes);
        let header = self.segments.get(&number);
        end <= newest.base && header.is_none_or(|header| header.predecessor.is_some())
    }

    /// The floor as the headers give it: what was certainly durable once.
    pub(crate) fn floor(&self) -> Lsn {
        let base = self.newest().map_or(Lsn::ZERO, |newest| newest.base);
        self.state.head.max(self.state.checkpoint).max(self.state.clean_end).max(base)
    }

    /// The segments of the newest epoch, ascending, with damaged headers among them.
    pub(crate) fn newest_segments(&self) -> Vec<u64> {
        let Some(newest) = self.newest() else { return Vec::new() };
        let of_newest = |(number, header): (&u64, &SegmentHeader)| {
            (header.epoch == newest.epoch).then_some(*number)
        };
        let mut numbers: Vec<u64> = self.segments.iter().filter_map(of_newest).collect();
        numbers.extend(self.damaged.keys());
        numbers.sort_unstable();
        numbers
    }

    /// Whether the newest epoch has a segment with a valid header that holds `at`.
    pub(crate) fn holds(&self, at: Lsn) -> bool {
        let number = at.segment(self.state.segment_bytes);
        let epoch = self.newest().map(|newest| newest.epoch);
        self.segments.get(&number).is_some_and(|header| Some(header.epoch) == epoch)
    }

    /// Refuses a log in which a segment of `[from, to)` is missing.
    pub(crate) fn check_present(&self, from: Lsn, to: Lsn, place: &str) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let segment_bytes = self.state.segment_bytes;
        for number in from.segment(segment_bytes)..=(to.as_u64() - 1) / segment_bytes {
            if !self.segments.contains_key(&number) {
                let text = match self.damaged.get(&number) {
                    Some(text) => format!("the header of a segment does not validate: {text}"),
                    None => format!("a segment is missing between LSN {from} and LSN {to}"),
                };
                return Err(corrupt(text, place).at_segment(number));
            }
        }
        Ok(())
    }

    fn list_epochs(&mut self, store: &dyn ReadStore) -> Result<()> {
        let mut newest: Option<SegmentHeader> = None;
        for header in self.segments.values() {
            let is_next = newest.is_none_or(|last| header.epoch > last.epoch);
            if newest.is_some_and(|last| header.epoch < last.epoch) {
                let text = format!("epoch {} follows a later one", header.epoch);
                return Err(corrupt(text, &store.place()).at_segment(header.number));
            }
            if !is_next {
                continue;
            }
            match (self.spans.last_mut(), header.predecessor) {
                (Some(span), Some(before)) if span.epoch == before.epoch => span.end = before.end,
                (Some(_), before) => {
                    let missing = before.map_or(header.epoch, |before| before.epoch);
                    let before = newest.map_or(0, |last| last.number);
                    let damaged = self.damaged.range(before..header.number).next();
                    let (number, text) = match damaged {
                        Some((number, text)) => (*number, format!("does not validate: {text}")),
                        None => (header.number, "is missing".into()),
                    };
                    let text = format!("the first segment of epoch {missing} {text}");
                    return Err(corrupt(text, &store.place()).at_segment(number));
                }
                (None, _) => {}
            }
            let uuid = self.state.uuid;
            let span = EpochSpan::open_ended(uuid, header.epoch, header.salt, header.base);
            self.spans.push(span);
            self.predecessor = header.predecessor.unwrap_or_default();
            self.salt = header.salt;
            newest = Some(*header);
        }
        if self.spans.is_empty() && self.state.epoch > 0 {
            self.spans.push(self.epoch_of_state());
        }
        Ok(())
    }

    /// The running epoch as the state names it: all of its segments lie below the head.
    fn epoch_of_state(&self) -> EpochSpan {
        let State { uuid, epoch, epoch_salt, epoch_base, .. } = self.state;
        EpochSpan::open_ended(uuid, epoch, epoch_salt, epoch_base)
    }

    /// The state's epoch must have its first segment, unless that was released.
    fn check_the_running_epoch(&self, store: &dyn ReadStore) -> Result<()> {
        let State { epoch, epoch_base, head, segment_bytes, .. } = self.state;
        if epoch == 0 || epoch_base.plus(segment_bytes) <= head {
            return Ok(());
        }
        let number = epoch_base.segment(segment_bytes);
        match self.segments.get(&number) {
            Some(header) if header.epoch == epoch => Ok(()),
            // A later open began an epoch, found this one empty, and freed its segment.
            _ if self.newest().is_some_and(|newest| newest.epoch > epoch) => Ok(()),
            _ => {
                let text = match self.damaged.get(&number) {
                    Some(text) => format!("the header of epoch {epoch} does not validate: {text}"),
                    None => format!("the first segment of the running epoch {epoch} is missing"),
                };
                Err(corrupt(text, &store.place()).at_segment(number))
            }
        }
    }

    /// All that lies below the newest epoch's base was durable: every segment must be there.
    fn check_what_lies_below(&self, store: &dyn ReadStore) -> Result<()> {
        let place = store.place();
        let head = self.state.head;
        let Some((newest, older)) = self.spans.split_last() else { return Ok(()) };
        // A head within a segment proves that the segment was there, and durable.
        self.check_present(head.segment_start(self.state.segment_bytes), head, &place)?;
        for span in older {
            self.check_present(span.base.max(head), span.end, &place)?;
        }
        let first = self.spans[0];
        // The lowest segment present must hold the head, or begin the first life above it.
        let starts = self.segments.values().next();
        let is_first = starts.is_none_or(|header| match header.predecessor {
            Some(before) => before.end <= head || first.base <= head,
            None => first.base <= head,
        });
        if !is_first {
            self.check_present(head, first.base, &place)?;
        }
        let base_number = newest.base.segment(self.state.segment_bytes);
        let damaged = self.damaged.range(..base_number).next();
        damaged.map_or(Ok(()), |(number, text)| {
            let text = format!("the header of a segment does not validate: {text}");
            Err(corrupt(text, &place).at_segment(*number))
        })
    }
}

/// Raises `floor` by what the first records of the newest epoch's segments prove.
pub(crate) fn floor_of_segments(
    survey: &Survey,
    reader: &mut FrameReader,
    floor: Lsn,
) -> Result<Lsn> {
    let Some(newest) = survey.newest() else { return Ok(floor) };
    for number in survey.newest_segments().into_iter().rev() {
        let base = Lsn::new(number * survey.state.segment_bytes);
        let header = reader.frame(base, newest.seed)?;
        if let Some(durable) = header.and_then(|header| header.durable(base)) {
            return Ok(floor.max(durable));
        }
    }
    Ok(floor)
}

/// A reader of `store` with the survey's geometry.
pub(crate) fn reader_of(
    store: &Arc<dyn ReadStore>,
    survey: &Survey,
    read_ahead_bytes: usize,
) -> FrameReader {
    FrameReader::new(Arc::clone(store), survey.state.segment_bytes, read_ahead_bytes)
}

/// Refuses a state whose numbers no log can have, though its checksum holds.
pub(super) fn check_state(state: &State, place: &str) -> Result<()> {
    crate::check_segment_bytes(state.segment_bytes, crate::MIN_SEGMENT_BYTES)?;
    let lsns = [state.head, state.checkpoint, state.clean_end, state.epoch_base];
    let is_sane = lsns.iter().all(|lsn| *lsn < Lsn::LIMIT)
        && state.epoch_base.as_u64().is_multiple_of(state.segment_bytes)
        && state.buffer_bytes <= MAX_BUFFER_BYTES as u64
        && state.epoch < MAX_EPOCH;
    if is_sane {
        return Ok(());
    }
    Err(corrupt("the log's state holds numbers that no log can have".into(), place))
}

/// Takes a header whose numbers no log can have, though its checksum holds, for a damaged one.
pub(super) fn distrust(segment: &mut Segment) {
    let Ok(header) = &segment.header else { return };
    let before = header.predecessor.unwrap_or_default();
    let is_sane = header.base < Lsn::LIMIT
        && header.epoch < MAX_EPOCH
        && before.end <= header.base
        && before.epoch < header.epoch;
    if !is_sane {
        segment.header = Err("it holds numbers that no log can have".into());
    }
}

pub(crate) fn corrupt(text: String, place: &str) -> Error {
    Error::new(ErrorKind::Corrupt, text).at_path(place)
}

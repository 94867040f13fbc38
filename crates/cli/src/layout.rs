//! Where a log's records lie: its segments, where it ends, and the ranges without records.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use palisade::Lsn;
use palisade::inspect::{Inspector, Segment, SegmentHeader, State};

use crate::exit::Failure;

/// A writer may change the log during a look at it.
const LOOKS: usize = 5;
/// A file this far above all that is known of the log cannot be a segment of it: the longest log
/// buffer, and the segments that the log prepares ahead. See `docs/format.md`, "Epochs".
const REACH_BYTES: u64 = 1 << 30;
const REACH_SEGMENTS: u64 = 8;

/// The segments of a log and the ranges without records.
pub(crate) struct Layout {
    pub(crate) state: State,
    /// The clean end if nothing follows it, or else the end of the last record that validates.
    pub(crate) end: Lsn,
    /// Ascending by number. Segments that are missing count, too.
    pub(crate) segments: Vec<Part>,
    /// Ascending; only those above the head.
    pub(crate) breaks: Vec<Break>,
}

/// A segment, or a run of missing ones.
pub(crate) struct Part {
    pub(crate) number: u64,
    /// More than 1 for a run of missing segments only.
    pub(crate) count: u64,
    pub(crate) standing: Standing,
    pub(crate) header: Option<SegmentHeader>,
    /// Why the header does not validate.
    pub(crate) error: Option<String>,
    /// `None` if there is no file, or if the writer has removed it meanwhile.
    pub(crate) file_bytes: Option<u64>,
}

/// What a segment is to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    BeforeHead,
    Live,
    BeyondEnd,
    BetweenEpochs,
    Stray,
    Missing,
    DamagedHeader,
}

/// A range without records: from the end of one epoch to the base of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Break {
    pub(crate) from: Lsn,
    pub(crate) to: Lsn,
    pub(crate) epoch_before: u64,
    pub(crate) epoch_after: u64,
}

impl Layout {
    /// Looks at the log in `dir`.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(crate) fn of(log: &Inspector, dir: &Path) -> Result<Layout, Failure> {
        let look = |state: State| Ok::<_, Failure>((state, log.segments()?, log.end()?));
        let (mut state, mut found, mut end) = look(log.state()?)?;
        for _ in 1..LOOKS {
            let after = log.state()?;
            if after == state {
                break;
            }
            (state, found, end) = look(after)?;
        }
        let breaks = breaks(&state, &found);
        let mut layout = Layout { end: state.head, state, segments: Vec::new(), breaks };
        let first_stray = first_stray(&layout.state, &found);
        for (index, segment) in found.into_iter().enumerate() {
            let part = layout.part(segment, index >= first_stray, dir);
            layout.segments.push(part);
        }
        layout.end = end.max(layout.state.head);
        layout.settle();
        layout.add_missing();
        Ok(layout)
    }

    /// Prints a note to standard error if the log goes on above its clean end.
    pub(crate) fn note_what_follows(&self) {
        let State { clean, clean_end, .. } = self.state;
        if clean && self.end > clean_end {
            // Where standard error is gone, `verify` still reports it.
            let _ = writeln!(
                io::stderr(),
                "note: records follow the clean end {clean_end}: `meta` was saved before them, and \
                 the next open recovers"
            );
        }
    }

    /// Returns the bytes of log from the head to the end, without the ranges that hold no records.
    pub(crate) fn live_bytes(&self) -> u64 {
        let State { head, .. } = self.state;
        let dead = self.breaks.iter().map(|range| {
            let (from, to) = (range.from.clamp(head, self.end), range.to.clamp(head, self.end));
            to.bytes_since(from)
        });
        self.end.bytes_since(head).saturating_sub(dead.sum())
    }

    /// Returns where each epoch of the live segments begins, and its number, ascending.
    pub(crate) fn epoch_bases(&self) -> Vec<(Lsn, u64)> {
        let live = self.segments.iter().filter(|part| part.standing == Standing::Live);
        let bases = live.filter_map(|part| part.header.map(|header| (header.base, header.epoch)));
        let mut bases: Vec<(Lsn, u64)> = bases.collect();
        bases.dedup_by_key(|(_, epoch)| *epoch);
        bases
    }

    /// Returns the first and the exclusive last LSN of a part.
    pub(crate) fn range_of(&self, part: &Part) -> (Lsn, Lsn) {
        let from = self.base_of(part.number);
        (from, from.plus(part.count.saturating_mul(self.state.segment_bytes)))
    }

    fn base_of(&self, number: u64) -> Lsn {
        Lsn::new(number.saturating_mul(self.state.segment_bytes))
    }

    /// Says what is known of a segment without the log's end.
    fn part(&self, Segment { number, header }: Segment, is_stray: bool, dir: &Path) -> Part {
        let (header, error) = match header {
            Ok(header) => (Some(header), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let base = self.base_of(number);
        let end = base.plus(self.state.segment_bytes);
        let is_within = |range: &Break| range.from <= base && end <= range.to;
        let standing = match () {
            () if is_stray => Standing::Stray,
            () if end <= self.state.head => Standing::BeforeHead,
            () if self.breaks.iter().any(is_within) => Standing::BetweenEpochs,
            () if header.is_none() => Standing::DamagedHeader,
            () => Standing::Live,
        };
        let path = dir.join(format!("segment-{number:020}"));
        let file_bytes = fs::metadata(path).ok().map(|file| file.len());
        Part { number, count: 1, standing, header, error, file_bytes }
    }

    /// Tells the segments above the end from those that hold records.
    fn settle(&mut self) {
        let last = self.end.segment(self.state.segment_bytes);
        for part in &mut self.segments {
            if part.standing == Standing::Live && part.number > last {
                part.standing = Standing::BeyondEnd;
            }
        }
    }

    /// Adds the segments that must be there and are not: those between the head and the known end
    /// that have no file and do not lie in a range without records.
    fn add_missing(&mut self) {
        let State { head, segment_bytes, .. } = self.state;
        let mut next = head.segment(segment_bytes);
        let stop = self.known_end().as_u64().div_ceil(segment_bytes);
        let whole = |range: &Break| {
            (range.from.as_u64().div_ceil(segment_bytes), range.to.segment(segment_bytes))
        };
        let present = self.segments.iter().map(|part| (part.number, part.number.saturating_add(1)));
        let not_missing = present.chain(self.breaks.iter().map(whole)).chain([(stop, u64::MAX)]);
        // Numbers can be so far apart that none is counted.
        let mut ranges: Vec<(u64, u64)> = not_missing.filter(|(from, to)| from < to).collect();
        ranges.sort_unstable();
        for (from, to) in ranges {
            let from = from.min(stop);
            if next < from {
                self.segments.push(Part::missing(next, from - next));
            }
            next = next.max(to);
        }
        self.segments.sort_by_key(|part| part.number);
    }
}

impl Layout {
    /// Returns the LSN below which each segment must be there. Above a clean end only appends need
    /// segments.
    fn known_end(&self) -> Lsn {
        let State { clean, checkpoint, clean_end, epoch_base, .. } = self.state;
        let end =
            [self.end, checkpoint, clean_end, epoch_base].into_iter().fold(Lsn::ZERO, Lsn::max);
        let own = self.segments.iter().filter(|part| part.standing != Standing::Stray);
        match own.map(|part| part.number).max().filter(|_| !clean) {
            Some(highest) => end.max(self.base_of(highest)),
            None => end,
        }
    }
}

impl Part {
    fn missing(number: u64, count: u64) -> Part {
        let standing = Standing::Missing;
        Part { number, count, standing, header: None, error: None, file_bytes: None }
    }
}

/// Returns the ranges above the head that the headers name as the end of an epoch.
fn breaks(state: &State, segments: &[Segment]) -> Vec<Break> {
    let headers = segments.iter().filter_map(|segment| segment.header.as_ref().ok());
    let range = |header: &SegmentHeader| {
        let before = header.predecessor?;
        let (from, to) = (before.end, header.base);
        let (epoch_before, epoch_after) = (before.epoch, header.epoch);
        Some(Break { from, to, epoch_before, epoch_after })
    };
    let is_above = |range: &Break| range.from < range.to && range.to > state.head;
    let mut breaks: Vec<Break> = headers.filter_map(range).filter(is_above).collect();
    breaks.sort_unstable();
    breaks
}

/// Returns the index of the first stray file. It and all above it have no valid header and lie too
/// far above everything else that is known of the log.
fn first_stray(state: &State, segments: &[Segment]) -> usize {
    let end_of = |number: u64| number.saturating_add(1).saturating_mul(state.segment_bytes);
    let with_header = segments.iter().rfind(|segment| segment.header.is_ok());
    let lsns = [state.head, state.checkpoint, state.clean_end].map(Lsn::as_u64);
    let mut known = lsns.into_iter().fold(0, u64::max);
    known = known.max(state.epoch_base.as_u64().saturating_add(state.segment_bytes));
    known = known.max(with_header.map_or(0, |segment| end_of(segment.number)));
    let reach = REACH_BYTES + REACH_SEGMENTS.saturating_mul(state.segment_bytes);
    let is_out_of_reach = |segment: &Segment| {
        let limit = known.saturating_add(reach);
        known = known.max(end_of(segment.number));
        limit < segment.number.saturating_mul(state.segment_bytes)
    };
    segments.iter().position(is_out_of_reach).unwrap_or(segments.len())
}

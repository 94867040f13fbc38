//! Where a log's records lie: its segments, where it ends, and the ranges without records.

use std::fs;
use std::path::Path;

use palisade::Lsn;
use palisade::inspect::{Inspector, LogParts, Segment, SegmentHeader, State};

use crate::exit::Failure;
use crate::output::complain;

/// The segments of a log and the ranges without records.
pub(crate) struct Layout {
    pub(crate) state: State,
    /// The clean end if nothing follows it, or else the end of the last record that validates.
    pub(crate) end: Lsn,
    /// Ascending by number. Segments that are missing count, too.
    pub(crate) segments: Vec<Part>,
    /// Ascending; only those above the head.
    pub(crate) breaks: Vec<Break>,
    /// Bytes of log from the head to the end, without the ranges that hold no records.
    pub(crate) live_bytes: u64,
}

/// A segment, or a run of missing ones.
pub(crate) struct Part {
    pub(crate) number: u64,
    /// More than 1 for a run of missing segments only.
    pub(crate) count: u64,
    /// What it is to the log: a state that the help of `map` explains.
    pub(crate) state: &'static str,
    pub(crate) header: Option<SegmentHeader>,
    /// Why the header does not validate.
    pub(crate) error: Option<String>,
    /// `None` if there is no file, or if the writer has removed it meanwhile.
    pub(crate) file_bytes: Option<u64>,
}

/// The state of a segment that holds records or takes the next one.
const LIVE: &str = "live";

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
        let LogParts { state, end, segments, strays, live_bytes } = log.parts()?;
        let breaks = breaks(&state, &segments);
        let mut layout = Layout { state, end, segments: Vec::new(), breaks, live_bytes };
        for segment in segments {
            let state = layout.state_of(&segment);
            layout.segments.push(layout.part(segment, state, dir));
        }
        layout.add_missing();
        for stray in strays {
            layout.segments.push(layout.part(stray, "stray", dir));
        }
        Ok(layout)
    }

    /// Prints a note to standard error if the log goes on above its clean end.
    pub(crate) fn note_what_follows(&self) {
        let State { clean, clean_end, .. } = self.state;
        if clean && self.end > clean_end {
            let why = "`meta` was saved before them, and the next open recovers";
            complain(format_args!("note: records follow the clean end {clean_end}: {why}"));
        }
    }

    /// Returns where each epoch of the live segments begins, and its number, ascending.
    pub(crate) fn epoch_bases(&self) -> Vec<(Lsn, u64)> {
        let live = self.segments.iter().filter(|part| part.state == LIVE);
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

    /// Returns what a segment of the log is to it.
    fn state_of(&self, segment: &Segment) -> &'static str {
        let base = self.base_of(segment.number);
        let end = base.plus(self.state.segment_bytes);
        let is_within = |range: &Break| range.from <= base && end <= range.to;
        match () {
            () if end <= self.state.head => "before the head",
            () if self.breaks.iter().any(is_within) => "between epochs",
            () if segment.header.is_err() => "damaged header",
            () if base > self.end => "beyond the end",
            () => LIVE,
        }
    }

    fn part(&self, Segment { number, header }: Segment, state: &'static str, dir: &Path) -> Part {
        let path = dir.join(format!("segment-{number:020}"));
        let file_bytes = fs::metadata(path).ok().map(|file| file.len());
        let error = header.as_ref().err().map(ToString::to_string);
        Part { number, count: 1, state, header: header.ok(), error, file_bytes }
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

    /// Returns the LSN below which each segment must be there. Above a clean end only appends need
    /// segments.
    fn known_end(&self) -> Lsn {
        let State { clean, checkpoint, clean_end, epoch_base, .. } = self.state;
        let end = self.end.max(checkpoint).max(clean_end).max(epoch_base);
        match self.segments.last() {
            Some(highest) if !clean => end.max(self.base_of(highest.number)),
            _ => end,
        }
    }
}

impl Part {
    fn missing(number: u64, count: u64) -> Part {
        Part { number, count, state: "missing", header: None, error: None, file_bytes: None }
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

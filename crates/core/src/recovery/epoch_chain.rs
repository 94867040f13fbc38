//! The epochs of a log that is not open, as its segments' headers and its state name them: where
//! each begins and ends.
//!
//! The header of an epoch's first segment names the epoch before and its end. That chain, from the
//! newest epoch back to the head, decides which records a copy keeps ([`EpochChain`]): truncated
//! ones do not come back, whatever header is lost. The list of a closed log takes the place of the
//! headers of the epochs in it. Headers of later epochs count also beside a list: a state that was
//! saved earlier may have been put back.
//!
//! [`spans_of`] reads the headers upwards: for an open, which refuses a log at the first break
//! ([`layout`](super::layout)), and for a reader of an archive, which reads on past the break
//! ([`spans_across_breaks`]).

use std::collections::BTreeMap;

use palisade_store::{EpochExtent, Predecessor, Segment, SegmentHeader, State};

use super::listing::{Listing, corrupt, has_list, highest_end, valid};
use crate::reader::EpochSpan;
use crate::{Error, ErrorKind, Lsn, Result, Uuid};

/// The epochs from the newest one back to the head.
#[derive(Debug)]
pub(crate) struct EpochChain {
    /// The epochs that have records at or above the head, ascending, each with its end. The range
    /// between the head and the first of them is discarded. The newest has no end: records can
    /// follow a clean end, if a state that was saved earlier was put back.
    ///
    /// If the chain breaks before it comes to the list of the last close, this is that list.
    /// Without a list it is what lies above the first segment that is missing, or nothing if an
    /// epoch has no header.
    pub(crate) spans: Vec<EpochSpan>,
    /// The first break of the chain: what is missing, and the LSN above it.
    broken: Option<(String, Lsn)>,
}

impl EpochChain {
    pub(crate) fn of(listing: &Listing) -> EpochChain {
        let State { uuid, head, segment_bytes, epoch, epoch_base, epoch_salt, .. } = listing.state;
        let listed = listed_epochs(&listing.state);
        let starts = starts_of_epochs(&listing.segments);
        let mut number = newest_epoch(listing);
        let mut above = highest_end(&listing.segments, segment_bytes);
        let mut end = Lsn::LIMIT;
        let mut spans = Vec::new();
        let mut broken = None;
        while number > 0 && head < end {
            if let Some(index) = listed.iter().position(|span| span.epoch == number) {
                spans.push(EpochSpan { end, ..listed[index] });
                spans.extend(listed[..index].iter().rev().filter(|span| head < span.end));
                break;
            }
            let of_state = EpochStart { lowest: epoch_base, salt: epoch_salt, first: None };
            let of_state = (number == epoch).then_some(of_state);
            // No header of the epoch is left, so what lies below it is not known either.
            let Some(start) = starts.get(&number).copied().or(of_state) else {
                let text = format!(
                    "all segments of epoch {number} are missing, which the one here follows"
                );
                return EpochChain { spans: listed, broken: Some((text, above)) };
            };
            let may_begin_at = start.lowest.min(head.segment_start(segment_bytes));
            let base = start.first.map_or(may_begin_at, |(base, _)| base);
            spans.push(EpochSpan { end, ..EpochSpan::open_ended(uuid, number, start.salt, base) });
            let Some((_, before)) = start.first else {
                if head < start.lowest {
                    let text = format!(
                        "the first segment of epoch {number} is missing, or its header is damaged"
                    );
                    broken = Some((text, start.lowest));
                }
                if listed.is_empty() {
                    break;
                }
                return EpochChain { spans: listed, broken };
            };
            if before.epoch == 0 && head < before.end {
                broken = Some((format!("epoch {number} names no epoch that it follows"), base));
            }
            // Numbers descend: headers that claim otherwise count as damaged.
            (number, end, above) = (before.epoch, before.end, base);
        }
        spans.reverse();
        EpochChain { spans, broken }
    }

    /// Refuses a log of which a header between the head and the newest epoch is missing, so that
    /// nothing tells where an epoch ended.
    ///
    /// # Errors
    /// `Corrupt`: the epoch before some LSN is not known.
    pub(crate) fn check(self, place: &str) -> Result<()> {
        self.broken.map_or(Ok(()), |(text, at)| {
            Err(Error::new(ErrorKind::Corrupt, text).at_path(place).at_lsn(at))
        })
    }
}

/// The beginning of an epoch, as its headers name it.
#[derive(Clone, Copy, Debug)]
struct EpochStart {
    /// The base of its lowest header.
    lowest: Lsn,
    salt: u64,
    /// The epoch's base and predecessor, if the header of its first segment validates.
    first: Option<(Lsn, Predecessor)>,
}

/// Returns the beginnings of all epochs in one pass over the headers: there may be as many epochs
/// as headers.
fn starts_of_epochs(segments: &[Segment]) -> BTreeMap<u64, EpochStart> {
    let mut starts = BTreeMap::new();
    for header in valid(segments) {
        let SegmentHeader { base, salt, .. } = *header;
        let start = EpochStart { lowest: base, salt, first: None };
        let start = starts.entry(header.epoch).or_insert(start);
        let first = header.predecessor.map(|before| (base, before));
        start.first = start.first.or(first);
    }
    starts
}

/// Returns the greatest number of an epoch in the state and all headers.
pub(crate) fn newest_epoch(listing: &Listing) -> u64 {
    valid(&listing.segments).map(|header| header.epoch).fold(listing.state.epoch, u64::max)
}

/// Returns the epochs in the list of a closed log, ascending.
fn listed_epochs(state: &State) -> Vec<EpochSpan> {
    let span = |epoch: &EpochExtent| EpochSpan {
        end: epoch.end,
        ..EpochSpan::open_ended(state.uuid, epoch.number, epoch.salt, epoch.base)
    };
    if has_list(state) { state.epochs.iter().map(span).collect() } else { Vec::new() }
}

/// Returns the epochs of `headers`, ascending. The newest has no end. `end_of` returns the end of
/// an epoch, from its first header and that of the next one.
///
/// # Errors
/// `Corrupt` if an epoch is above a later one. The error that `end_of` returns.
pub(super) fn spans_of<'a>(
    headers: impl Iterator<Item = &'a SegmentHeader>,
    uuid: Uuid,
    place: &str,
    end_of: impl Fn(&SegmentHeader, &SegmentHeader) -> Result<Lsn>,
) -> Result<Vec<EpochSpan>> {
    let mut spans: Vec<EpochSpan> = Vec::new();
    let mut first = None;
    for header in headers {
        if let (Some(last), Some(first)) = (spans.last_mut(), first) {
            if header.epoch < last.epoch {
                let text = format!("epoch {} follows a later one", header.epoch);
                return Err(corrupt(text, place).at_segment(header.number));
            }
            if header.epoch == last.epoch {
                continue;
            }
            last.end = end_of(first, header)?;
        }
        spans.push(EpochSpan::open_ended(uuid, header.epoch, header.salt, header.base));
        first = Some(header);
    }
    Ok(spans)
}

/// Returns the epochs that headers name, ascending. The newest has no end. An epoch ends where
/// the header of the next epoch names its end. If that header names another predecessor, the
/// epoch ends at the base of the next one, so that a reader does not skip what is missing
/// between them.
///
/// # Errors
/// `Corrupt` if an epoch is above a later one.
pub(crate) fn spans_across_breaks(listing: &Listing, place: &str) -> Result<Vec<EpochSpan>> {
    let headers = listing.live().filter_map(|segment| segment.header.as_ref().ok());
    spans_of(headers, listing.state.uuid, place, |last, header| {
        let follows = header.predecessor.filter(|before| before.epoch == last.epoch);
        Ok(follows.map_or(header.base, |before| before.end))
    })
}

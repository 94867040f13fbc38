//! Plans a copy of the first part of a log, for a store to write into an empty place: segments
//! first, the state last. A repair, a restore and a backup are such copies.
//!
//! The copy is a log that was closed. It keeps the log's identity, and its records with their LSNs.
//! Its last epoch is new and has no records; its first segment names the end of the epoch before.
//! That epoch begins above every LSN that the source names, so no LSN is used twice, and its salt
//! keeps the copy's new records and the source's apart.
//!
//! # Which records are whole
//! 1. The plan follows the epochs from the newest one back to the head
//!    (`recovery/epoch_chain.rs`). An open log has its own list.
//! 2. The plan checks each frame from the head on. The first place without a whole frame is the
//!    first bad place. If an epoch's first header is lost, no header names its base; only frames at
//!    the head itself can show that they belong to it. The copy of an open log checks only while
//!    it copies.
//!
//! Evidence of durability plays no part: the caller names the end.

mod check;
pub mod progress;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::check::check;
pub(crate) use self::check::{WholeFrames, whole_frames};
use self::progress::{CopyProgress, CopyStep, OnProgress};
pub use self::write::{check_apart, write_copy, write_copy_on};
use crate::frame::Header;
use crate::reader::{CopiedFrames, EpochSpan, FrameCopy, FrameReader, FrameSource, PIECE_BYTES};
use crate::recovery::base_above;
use crate::recovery::epoch_chain::{EpochChain, newest_epoch};
use crate::recovery::listing::{Listing, highest_end, valid};
use crate::recovery::verify::{FrameCheck, check_frame};
use crate::{Error, ErrorKind, Lsn, Result, Uuid};
use palisade_store::{EpochExtent, Predecessor, ReadStore, SegmentHeader, State};

/// What a copy of a log has, and what a repair gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReport {
    /// The identity, which is that of the log that was copied.
    pub uuid: Uuid,
    /// Where the copy begins. If the source's head lies between two epochs, this is the base of the
    /// next one; if nothing is copied, it is `base`.
    pub head: Lsn,
    /// Records of the copy.
    pub records: u64,
    /// Bytes of log in the copy, including headers and padding.
    pub bytes: u64,
    /// Exclusive end of the last record.
    pub end: Lsn,
    /// The LSN of the next append: above every LSN that the source names.
    pub base: Lsn,
    /// The copy's last epoch, in which appends continue.
    pub epoch: u64,
    /// A repair gives up what lies from [`end`](CopyReport::end) to here, as far as it is known. 0
    /// in a restored log or a backup.
    pub given_up_to: Lsn,
    /// Records above the repaired log's end that validate, but are given up.
    pub given_up_records: u64,
}

/// What was given out above all that a source's state and segments name.
#[derive(Clone, Copy, Debug, Default)]
pub struct GivenOut {
    /// No LSN above this one is known.
    pub lsn: Lsn,
    /// No greater number of an epoch is known.
    pub epoch: u64,
}

/// The plan of a copy: what a store has to write.
#[derive(Debug)]
pub struct CopyPlan {
    store: Arc<dyn ReadStore>,
    state: State,
    /// Headers of the source that validate, by segment number.
    headers: BTreeMap<u64, SegmentHeader>,
    /// The epochs that are copied, ascending. The last one ends where the copy ends.
    kept: Vec<EpochSpan>,
    /// The predecessor of the first epoch above the head, if it is known.
    below: Predecessor,
    salt: u64,
    /// Whether the plan has checked the frames.
    is_checked: bool,
    pub(crate) report: CopyReport,
}

impl CopyPlan {
    /// Reads the log in `store`, whose copy is to end at `to`. `salt` has 64 random bits.
    ///
    /// # Errors
    /// `OutOfRange`: the first bad place, or the end of the log, lies below `to`; the error names
    /// it. `NotARecord`: no record begins at `to`. `Truncated`: `to` lies below the head.
    /// `Corrupt`: the state is damaged, or headers contradict each other. `Unsupported`: a newer
    /// version wrote a record. `Io`: headers cannot be read.
    pub fn new(
        store: Arc<dyn ReadStore>,
        to: Lsn,
        given_out: GivenOut,
        salt: u64,
        on_progress: OnProgress<'_>,
    ) -> Result<CopyPlan> {
        let listing = Listing::read(store.as_ref())?;
        let head = listing.state.head;
        if to < head {
            let text = format!("the log begins at LSN {head}");
            return Err(Error::new(ErrorKind::Truncated, text).at_path(store.place()).at_lsn(to));
        }
        let EpochChain { spans, .. } = EpochChain::of(&listing);
        let (records, bytes) = check(&store, &listing.state, &spans, to, on_progress)?;
        let State { checkpoint, clean_end, epoch_base, .. } = listing.state;
        let named = [checkpoint, clean_end, epoch_base, to, listing.state.highest_cursor()];
        let given_out = GivenOut {
            lsn: named.into_iter().fold(given_out.lsn, Lsn::max),
            epoch: newest_epoch(&listing).max(given_out.epoch),
        };
        let mut plan = CopyPlan::of_spans(store, listing, spans, to, given_out, salt)?;
        (plan.report.records, plan.report.bytes, plan.is_checked) = (records, bytes, true);
        Ok(plan)
    }

    /// Plans a copy of an open log, which knows its epochs and where they end: `spans`, ascending.
    /// The frames are checked when they are copied.
    ///
    /// # Errors
    /// `OutOfRange`: the log has come to its last LSN. `Io`: headers cannot be read.
    pub(crate) fn of_open_log(
        store: Arc<dyn ReadStore>,
        state: State,
        spans: Vec<EpochSpan>,
        reserved: Lsn,
        salt: u64,
    ) -> Result<CopyPlan> {
        let from = state.head.segment(state.segment_bytes);
        let (_, segments) = store.segments_from(from)?;
        let to = spans.last().map_or(state.head, |last| last.end);
        let given_out = GivenOut { lsn: reserved, epoch: state.epoch };
        let listing = Listing { state, segments };
        let mut plan = CopyPlan::of_spans(store, listing, spans, to, given_out, salt)?;
        let bytes = |span: &EpochSpan| span.end.bytes_since(span.base.max(plan.report.head));
        plan.report.bytes = plan.kept.iter().map(bytes).sum();
        Ok(plan)
    }

    /// Plans a copy of the epochs `spans` up to `to`.
    fn of_spans(
        store: Arc<dyn ReadStore>,
        mut listing: Listing,
        spans: Vec<EpochSpan>,
        to: Lsn,
        given_out: GivenOut,
        salt: u64,
    ) -> Result<CopyPlan> {
        // No LSN was given out where a stray file lies.
        listing.take_strays();
        let Listing { state, segments } = listing;
        let State { uuid, head, segment_bytes, buffer_bytes, .. } = state;
        let headers: BTreeMap<u64, SegmentHeader> =
            valid(&segments).map(|header| (header.number, *header)).collect();
        let lowest = spans.first().and_then(|span| headers.get(&span.base.segment(segment_bytes)));
        let below = lowest.and_then(|header| header.predecessor);
        let below = below.filter(|below| below.end <= head);
        let below = below.unwrap_or(Predecessor { epoch: 0, end: head });
        let kept: Vec<EpochSpan> = spans
            .into_iter()
            .filter(|span| span.base < to && head < span.end)
            .map(|span| span.up_to(to))
            .collect();
        let given_out_to = given_out.lsn.max(highest_end(&segments, segment_bytes));
        let base = base_above(given_out_to.plus(buffer_bytes), segment_bytes)?;
        let report = CopyReport {
            uuid,
            // A head between two epochs moves up to the next: the copy has nothing below.
            head: kept.first().map_or(base, |first| first.base.max(head)),
            end: kept.last().map_or(head, |last| last.end),
            base,
            epoch: given_out.epoch + 1,
            ..CopyReport::default()
        };
        Ok(CopyPlan { store, state, headers, kept, below, salt, is_checked: false, report })
    }

    /// Returns what the copy has. `records` is 0 as long as no frame was checked.
    #[must_use]
    pub fn report(&self) -> &CopyReport {
        &self.report
    }

    /// Returns the state of the source.
    #[must_use]
    pub fn source(&self) -> &State {
        &self.state
    }

    /// Returns the state of the copy.
    #[must_use]
    pub fn state(&self) -> State {
        let CopyReport { head, base, epoch, end, .. } = self.report;
        let running = EpochExtent { number: epoch, salt: self.salt, base, end: base };
        let mut state = State {
            epoch,
            epoch_base: base,
            epoch_salt: self.salt,
            head,
            checkpoint: self.state.checkpoint.min(end),
            clean_end: base,
            clean: true,
            epochs: self.kept.iter().map(EpochSpan::extent).chain([running]).collect(),
            // One above the end names records that the copy does not have: it is below the new
            // epoch, so its reader gets `Truncated`.
            cursors: self.state.cursors.clone(),
            ..self.state.clone()
        };
        state.note_base(self.state.end_before_head(), head);
        state.note_base(end, base);
        state
    }

    /// Returns the headers of the copy's segments, ascending.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentHeader> {
        let segment_bytes = self.state.segment_bytes;
        let mut headers = Vec::new();
        let mut before = self.below;
        for span in &self.kept {
            let first = span.base.max(self.state.head).segment(segment_bytes);
            // An epoch without records has a segment, too.
            let behind = span.end.as_u64().div_ceil(segment_bytes).max(first + 1);
            headers.extend((first..behind).map(|number| self.header(number, span, before)));
            before = Predecessor { epoch: span.epoch, end: span.end };
        }
        let CopyReport { base, epoch, .. } = self.report;
        let number = base.segment(segment_bytes);
        let predecessor = Some(before);
        headers.push(SegmentHeader { number, base, epoch, salt: self.salt, predecessor });
        headers
    }

    /// Returns the header of a segment that is copied: the source's, if that validates.
    fn header(&self, number: u64, span: &EpochSpan, before: Predecessor) -> SegmentHeader {
        let own = self.headers.get(&number);
        if let Some(own) = own.filter(|own| (own.epoch, own.salt) == (span.epoch, span.salt)) {
            return *own;
        }
        let base = Lsn::new(number * self.state.segment_bytes);
        let is_first = base == span.base && base >= self.state.head;
        let predecessor = is_first.then_some(before);
        SegmentHeader { number, base, epoch: span.epoch, salt: span.salt, predecessor }
    }

    /// Passes the log bytes of one of [`segments`](CopyPlan::segments) to `write`, ascending,
    /// each piece with its LSN. Bytes that it skips are zeros. Checks every frame from the
    /// head on, also if the plan has checked it before. Copies what lies below the head in its
    /// segment without a check: no reader of the log reads it. Returns the number of records.
    ///
    /// # Errors
    /// `Io`: a record does not read as it did before. `Corrupt`: a frame of an open log does not
    /// validate. The error that `write` returns.
    pub fn copy_segment(
        &self,
        segment: &SegmentHeader,
        write: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
        on_progress: OnProgress<'_>,
    ) -> Result<u64> {
        let kept = self.kept.binary_search_by_key(&segment.epoch, |span| span.epoch);
        let Ok(span) = kept.map(|index| &self.kept[index]) else { return Ok(0) };
        let head = self.state.head;
        let from = segment.base.max(head);
        let to = segment.base.plus(self.state.segment_bytes).min(span.end);
        let total = self.report.end.bytes_since(head);
        let mut frames = Frames::new(self, span);
        frames.copy_unchecked(segment.base, from, write)?;
        let mut copy = FrameCopy::new(&mut frames, span.seed, &[], to).skipping_padding();
        let (mut at, mut piece) = (from, Vec::new());
        while at < to {
            piece.clear();
            let next = copy.copy(at, to, &mut piece)?;
            write(at, &piece)?;
            at = next;
            let done = at.bytes_since(head);
            on_progress(CopyProgress { step: CopyStep::Copy, done, total });
        }
        Ok(frames.records)
    }
}

/// The frames of an epoch that is copied.
struct Frames<'a> {
    plan: &'a CopyPlan,
    span: &'a EpochSpan,
    reader: FrameReader,
    records: u64,
    /// The last whole frame that was found.
    found: Lsn,
}

impl<'a> Frames<'a> {
    fn new(plan: &'a CopyPlan, span: &'a EpochSpan) -> Frames<'a> {
        let store = Arc::clone(&plan.store);
        let reader = FrameReader::new(store, plan.state.segment_bytes, PIECE_BYTES);
        Frames { plan, span, reader, records: 0, found: Lsn::LIMIT }
    }

    /// Copies `[from, to)` as far as it can be read.
    fn copy_unchecked(
        &mut self,
        from: Lsn,
        to: Lsn,
        write: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut at = from;
        while at < to {
            let len = to.bytes_since(at).min(PIECE_BYTES as u64) as usize;
            match self.reader.raw(at, len) {
                Ok(bytes) => write(at, bytes)?,
                Err(error) if error.kind() == ErrorKind::Io => {}
                Err(error) => return Err(error),
            }
            at = at.plus(len as u64);
        }
        Ok(())
    }
}

impl CopiedFrames for Frames<'_> {
    fn frame_at(&mut self, at: Lsn) -> Result<Option<(Header, FrameSource)>> {
        match check_frame(&mut self.reader, at, self.span.seed, self.span.end)? {
            FrameCheck::Whole(header, records) => {
                self.records += records;
                self.found = at;
                Ok(Some((header, FrameSource::Segment)))
            }
            FrameCheck::TooLong | FrameCheck::Bad(_) => Ok(None),
        }
    }

    fn reader_of(&mut self, _: FrameSource) -> &mut FrameReader {
        &mut self.reader
    }

    fn has_changed(&mut self, at: Lsn) -> Error {
        let error = if self.plan.is_checked || self.found == at {
            Error::new(ErrorKind::Io, "a record that was checked a moment ago does not validate")
        } else {
            Error::new(ErrorKind::Corrupt, "no valid record where one must begin")
        };
        error.at_path(self.plan.store.place()).at_lsn(at)
    }
}

//! Repair: plans a copy of a damaged log that holds what lies below the damage.
//!
//! A [`RepairPlan`] reads a log and changes nothing. A store writes the planned copy into an empty
//! place: segments first, the state last. The copy is a log that was closed. Its last epoch is new
//! and has no records; its first segment names the end of the epoch before.
//!
//! # Which records are whole
//! 1. The plan follows the epochs from the newest one back to the head: the header of an epoch's
//!    first segment names the epoch before and its end. So truncated records do not come back,
//!    whatever header is lost. The list of a closed log takes the place of these headers.
//! 2. The plan checks each frame from the head on. The first place without a whole frame is the
//!    first bad place. If an epoch's first header is lost, no header names its base; only frames at
//!    the head itself can show that they belong to it.
//!
//! Evidence of durability plays no part: the caller names what is given up.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::format::in_memory;
use crate::frame::{HEADER_BYTES, Header, Kind};
use crate::inspect::{SALVAGE_READ_BYTES, Salvage, Salvaged};
use crate::reader::{EpochSpan, FrameReader};
use crate::recovery::base_above;
use crate::recovery::listing::Listing;
use crate::recovery::listing::has_list;
use crate::store::{EpochExtent, Predecessor, ReadStore, SegmentHeader, State};
use crate::{Error, ErrorKind, Lsn, Result};

const READ_AHEAD_BYTES: usize = 1 << 20;
/// Bytes that one call hands to the store, if no frame is longer.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes between two reports of progress.
const PROGRESS_BYTES: u64 = 4 << 20;

/// What a repair keeps and gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Where the copy begins: at the head of the damaged log; at the next epoch's base if the head
    /// lies between two epochs; at `base` if nothing is kept.
    pub head: Lsn,
    /// Records that are kept.
    pub records: u64,
    /// Bytes of log that are kept, including headers and padding.
    pub bytes: u64,
    /// Exclusive end of the last record that is kept.
    pub end: Lsn,
    /// The start of the part that is given up, as the caller named it.
    pub from: Lsn,
    /// Exclusive end of the part that is given up, as far as it is known.
    pub given_up_to: Lsn,
    /// Records at or above `from` that validate: [`Inspector::salvage`](crate::inspect::Inspector)
    /// reads them from the damaged log.
    pub given_up_records: u64,
    /// The LSN of the next append: above every LSN that the damaged log can have returned.
    pub base: Lsn,
    /// The copy's last epoch, in which appends continue.
    pub epoch: u64,
}

/// The step that a repair is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairStep {
    /// Checks the part that is kept.
    Check,
    /// Counts the records of the rest that validate.
    Count,
    /// Copies the part that is kept.
    Copy,
}

/// The progress of a step, in bytes of log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairProgress {
    /// The step.
    pub step: RepairStep,
    /// Bytes that the step has processed.
    pub done: u64,
    /// All bytes of the step.
    pub total: u64,
}

/// The plan of a repair: what it found and what a store has to write.
#[derive(Debug)]
pub struct RepairPlan {
    store: Arc<dyn ReadStore>,
    state: State,
    /// Headers of the damaged log that validate, by segment number.
    headers: BTreeMap<u64, SegmentHeader>,
    /// The epochs that are kept, ascending. The last one ends where the copy ends.
    kept: Vec<EpochSpan>,
    /// The predecessor of the first epoch above the head, if it is known.
    below: Predecessor,
    salt: u64,
    report: RepairReport,
}

/// A callback that gets the progress of a step after each few MiB.
type OnProgress<'a> = &'a mut dyn FnMut(RepairProgress);

impl RepairPlan {
    /// Reads the log in `store`, which is to end at `from`. `noted` is an LSN that was durable
    /// once, as far as the store knows. `salt` has 64 random bits.
    ///
    /// # Errors
    /// `OutOfRange`: the first bad place, or the end of the log, lies below `from`; the error names
    /// it. `NotARecord`: no record begins at `from`. `Truncated`: `from` lies below the head.
    /// `Corrupt`: the state is damaged, or headers contradict each other. `Unsupported`: a newer
    /// version wrote a record. `Io`: headers cannot be read.
    pub fn new(
        store: Arc<dyn ReadStore>,
        from: Lsn,
        noted: Lsn,
        salt: u64,
        on_progress: OnProgress<'_>,
    ) -> Result<RepairPlan> {
        let listing = Listing::read(store.as_ref())?;
        let head = listing.state.head;
        if from < head {
            let text = format!("the log begins at LSN {head}");
            return Err(Error::new(ErrorKind::Truncated, text).at_path(store.place()).at_lsn(from));
        }
        let spans = epochs_back_to_the_head(&listing);
        let mut report = RepairReport { head, from, ..RepairReport::default() };
        check(&store, &listing.state, &spans, &mut report, on_progress)?;
        let headers: BTreeMap<u64, SegmentHeader> =
            valid(&listing).map(|header| (header.number, *header)).collect();
        let segment_bytes = listing.state.segment_bytes;
        let lowest = spans.first().and_then(|span| headers.get(&span.base.segment(segment_bytes)));
        let below = lowest.and_then(|header| header.predecessor);
        let below = below.filter(|below| below.end <= head);
        let below = below.unwrap_or(Predecessor { epoch: 0, end: head });
        let kept: Vec<EpochSpan> = spans
            .into_iter()
            .filter(|span| span.base < from && head < span.end)
            .map(|span| EpochSpan { end: span.end.min(from), ..span })
            .collect();
        report.end = kept.last().map_or(head, |last| last.end);
        let behind = listing.segments.last().map_or(0, |last| last.number + 1);
        let highest_end = Lsn::new(behind.saturating_mul(segment_bytes));
        count_given_up(&store, highest_end, &mut report, on_progress)?;
        let State { checkpoint, clean_end, epoch_base, buffer_bytes, .. } = listing.state;
        let given_out = [highest_end, checkpoint, clean_end, epoch_base, noted, from];
        report.given_up_to = report.given_up_to.max(checkpoint).max(clean_end).max(noted);
        let given_out = given_out.into_iter().fold(report.given_up_to, Lsn::max);
        report.base = base_above(given_out.plus(buffer_bytes), segment_bytes)?;
        report.epoch = largest_epoch(&listing) + 1;
        // A head between two epochs moves up to the next: the copy has nothing below.
        report.head = kept.first().map_or(report.base, |first| first.base.max(head));
        Ok(RepairPlan { store, state: listing.state, headers, kept, below, salt, report })
    }

    /// Returns what is kept and given up.
    #[must_use]
    pub fn report(&self) -> &RepairReport {
        &self.report
    }

    /// Returns the state of the copy.
    #[must_use]
    pub fn state(&self) -> State {
        let RepairReport { head, base, epoch, end, .. } = self.report;
        let extent = |span: &EpochSpan| EpochExtent {
            number: span.epoch,
            salt: span.salt,
            base: span.base,
            end: span.end,
        };
        let running = EpochExtent { number: epoch, salt: self.salt, base, end: base };
        State {
            epoch,
            epoch_base: base,
            epoch_salt: self.salt,
            head,
            checkpoint: self.state.checkpoint.min(end),
            clean_end: base,
            clean: true,
            epochs: self.kept.iter().map(extent).chain([running]).collect(),
            ..self.state.clone()
        }
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
        let RepairReport { base, epoch, .. } = self.report;
        let number = base.segment(segment_bytes);
        let predecessor = Some(before);
        headers.push(SegmentHeader { number, base, epoch, salt: self.salt, predecessor });
        headers
    }

    /// Returns the header of a segment that is kept: the damaged log's, if that validates.
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

    /// Passes the log bytes of one of [`segments`](RepairPlan::segments) to `write`, ascending,
    /// each piece with its LSN. Bytes between the pieces are zeros. Checks every frame from the
    /// head on again. Copies what lies below the head in its segment without a check: no reader of
    /// the log reads it.
    ///
    /// # Errors
    /// `Io`: a record does not read as it did when the plan was made. The error that `write`
    /// returns.
    pub fn copy(
        &self,
        segment: &SegmentHeader,
        write: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let kept = self.kept.binary_search_by_key(&segment.epoch, |span| span.epoch);
        let Ok(span) = kept.map(|index| &self.kept[index]) else { return Ok(()) };
        let head = self.state.head;
        let from = segment.base.max(head);
        let to = segment.base.plus(self.state.segment_bytes).min(span.end);
        let total = self.report.end.bytes_since(head);
        let mut walk = Walk::new(&self.store, self.state.segment_bytes);
        walk.copy_raw(segment.base, from, write)?;
        let mut piece = Vec::new();
        let (mut at, mut written) = (from, from);
        while at < to {
            let Some((header, _)) = walk.frame(at, span)? else {
                let text = "a record that was checked a moment ago does not validate";
                return Err(Error::new(ErrorKind::Io, text).at_path(self.store.place()).at_lsn(at));
            };
            piece.extend_from_slice(walk.bytes(at, &header)?);
            at = at.plus(header.frame_bytes);
            // The body of a padding stays zero.
            if header.kind == Kind::Padding || piece.len() >= PIECE_BYTES || at >= to {
                write(written, &piece)?;
                piece.clear();
                written = at;
                let done = at.bytes_since(head);
                on_progress(RepairProgress { step: RepairStep::Copy, done, total });
            }
            piece.resize(at.bytes_since(written) as usize, 0);
        }
        Ok(())
    }
}

/// Returns the epochs that have records at or above the head, ascending, each with its end. The
/// range between the head and the first of them is discarded. Returns none if nothing is known.
fn epochs_back_to_the_head(listing: &Listing) -> Vec<EpochSpan> {
    let State { uuid, head, segment_bytes, epoch, epoch_base, epoch_salt, .. } = listing.state;
    if has_list(&listing.state) {
        let span = |epoch: &EpochExtent| EpochSpan {
            end: epoch.end,
            ..EpochSpan::open_ended(uuid, epoch.number, epoch.salt, epoch.base)
        };
        return listing.state.epochs.iter().filter(|epoch| head < epoch.end).map(span).collect();
    }
    let firsts = firsts_of_epochs(listing);
    let mut number = largest_epoch(listing);
    let mut end = Lsn::LIMIT;
    let mut spans = Vec::new();
    while number > 0 && head < end {
        let of_state = EpochStart { lowest: epoch_base, salt: epoch_salt, first: None };
        let of_state = (number == epoch).then_some(of_state);
        // No header of the epoch is left, so what lies below it is not known either.
        let Some(start) = firsts.get(&number).copied().or(of_state) else { return Vec::new() };
        let may_begin_at = start.lowest.min(head.segment_start(segment_bytes));
        let base = start.first.map_or(may_begin_at, |(base, _)| base);
        spans.push(EpochSpan { end, ..EpochSpan::open_ended(uuid, number, start.salt, base) });
        let Some((_, before)) = start.first else { break };
        // Numbers descend: headers that claim otherwise count as damaged.
        (number, end) = (before.epoch, before.end);
    }
    spans.reverse();
    spans
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
fn firsts_of_epochs(listing: &Listing) -> BTreeMap<u64, EpochStart> {
    let mut firsts = BTreeMap::new();
    for header in valid(listing) {
        let SegmentHeader { base, salt, .. } = *header;
        let start = EpochStart { lowest: base, salt, first: None };
        let start = firsts.entry(header.epoch).or_insert(start);
        let first = header.predecessor.map(|before| (base, before));
        start.first = start.first.or(first);
    }
    firsts
}

/// Returns the headers that validate.
fn valid(listing: &Listing) -> impl Iterator<Item = &SegmentHeader> {
    listing.segments.iter().filter_map(|segment| segment.header.as_ref().ok())
}

fn largest_epoch(listing: &Listing) -> u64 {
    valid(listing).map(|header| header.epoch).fold(listing.state.epoch, u64::max)
}

/// Checks every frame from the head to the start of the part that is given up.
fn check(
    store: &Arc<dyn ReadStore>,
    state: &State,
    spans: &[EpochSpan],
    report: &mut RepairReport,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    let RepairReport { head, from, .. } = *report;
    let total = from.bytes_since(head);
    let mut walk = Walk::new(store, state.segment_bytes);
    let (mut at, mut reported_to) = (head, head);
    for span in spans.iter().take_while(|span| span.base < from) {
        at = at.max(span.base);
        while at < span.end.min(from) {
            let Some((header, records)) = walk.frame(at, span)? else {
                return Err(ends_below(store, at, from));
            };
            let next = at.plus(header.frame_bytes);
            if next > from {
                let text = format!("no record begins here; the one around it begins at LSN {at}");
                let error = Error::new(ErrorKind::NotARecord, text);
                return Err(error.at_path(store.place()).at_lsn(from));
            }
            report.records += records;
            report.bytes += header.frame_bytes;
            at = next;
            if at.bytes_since(reported_to) >= PROGRESS_BYTES {
                reported_to = at;
                let done = at.bytes_since(head);
                on_progress(RepairProgress { step: RepairStep::Check, done, total });
            }
        }
    }
    let next_base = spans.iter().map(|span| span.base).find(|base| *base >= from);
    match next_base {
        _ if at == from => Ok(()),
        Some(base) if base == from => Ok(()),
        Some(base) => {
            let text = format!("the log holds nothing from LSN {at} to LSN {base}");
            Err(Error::new(ErrorKind::NotARecord, text).at_path(store.place()).at_lsn(from))
        }
        None => Err(ends_below(store, at, from)),
    }
}

fn ends_below(store: &Arc<dyn ReadStore>, at: Lsn, from: Lsn) -> Error {
    let text = format!(
        "no valid record here: the log ends here, or its first bad place is here, below the LSN \
         {from} that was named"
    );
    let error = Error::new(ErrorKind::OutOfRange, text).at_path(store.place()).at_lsn(at);
    error.with_advice("name this LSN, or that of a record below it")
}

/// Counts the records at or above `from` that validate. Skips what cannot be read.
fn count_given_up(
    store: &Arc<dyn ReadStore>,
    highest_end: Lsn,
    report: &mut RepairReport,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    let from = report.from;
    let total = highest_end.bytes_since(from.min(highest_end));
    let mut salvage = Salvage::new(store, Some(from), SALVAGE_READ_BYTES)?;
    let (mut end, mut reported_to) = (from, from);
    loop {
        match salvage.next() {
            Ok(Some(Salvaged::Record(record))) => {
                report.given_up_records += 1;
                end = end.max(record.next_lsn());
            }
            Ok(Some(Salvaged::Gap(gap))) => end = end.max(gap.to),
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Io => {}
            Err(error) => return Err(error),
        }
        if end.bytes_since(reported_to) >= PROGRESS_BYTES {
            reported_to = end;
            let done = end.bytes_since(from).min(total);
            on_progress(RepairProgress { step: RepairStep::Count, done, total });
        }
    }
    report.given_up_to = end;
    Ok(())
}

/// Reads frames in sequence.
#[derive(Debug)]
struct Walk {
    reader: FrameReader,
    segment_bytes: u64,
    /// Read-ahead has met a bad block: up to here, a read covers only one frame.
    careful_to: Option<Lsn>,
}

impl Walk {
    fn new(store: &Arc<dyn ReadStore>, segment_bytes: u64) -> Walk {
        let reader = FrameReader::new(Arc::clone(store), segment_bytes, READ_AHEAD_BYTES);
        Walk { reader, segment_bytes, careful_to: None }
    }

    /// Returns the whole frame at `at`, within its epoch, and the number of its records. Returns
    /// `None` if there is none, or if it cannot be read.
    fn frame(&mut self, at: Lsn, span: &EpochSpan) -> Result<Option<(Header, u64)>> {
        if self.careful_to.take_if(|end| at >= *end).is_some() {
            self.reader.read_ahead(READ_AHEAD_BYTES);
        }
        let found = match self.reader.whole_frame(at, span.seed) {
            Err(error) if error.kind() == ErrorKind::Io => self.read_carefully(at, span)?,
            found => found?,
        };
        let Some(header) = found.filter(|header| at.plus(header.frame_bytes) <= span.end) else {
            return Ok(None);
        };
        if let Kind::Unknown { number, may_ignore: false } = header.kind {
            let text = format!("a record of kind {number}, which this version does not know");
            return Err(Error::new(ErrorKind::Unsupported, text).at_lsn(at));
        }
        let records = self.reader.records_in(at, &header, span.seed)?;
        Ok(Some((header, records)))
    }

    /// Reads a whole frame without read-ahead.
    fn read_carefully(&mut self, at: Lsn, span: &EpochSpan) -> Result<Option<Header>> {
        let segment_end = at.segment_start(self.segment_bytes).plus(self.segment_bytes);
        self.careful_to = Some(segment_end);
        self.reader.read_ahead(HEADER_BYTES);
        match self.reader.whole_frame(at, span.seed) {
            Err(error) if error.kind() == ErrorKind::Io => Ok(None),
            found => found,
        }
    }

    /// Returns the bytes of the frame that was just found; of a padding, its header.
    fn bytes(&mut self, at: Lsn, header: &Header) -> Result<&[u8]> {
        let len = match header.kind {
            Kind::Padding => in_memory(header.frame_bytes).min(HEADER_BYTES),
            _ => HEADER_BYTES + header.payload_bytes as usize,
        };
        self.reader.raw(at, len)
    }

    /// Copies `[from, to)` as far as it can be read.
    fn copy_raw(
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

//! Analysis, step 1 of an open: reads the store and decides. Changes nothing.

use std::sync::Arc;

use palisade_store::{OldBuffer, ReadStore, State};

use super::RecoveryReport;
use super::layout::{Layout, reader_of};
use super::listing::{Listing, UNREADABLE, corrupt};
use super::scan::EndCause;
use super::scan::OldLogBuffer;
use super::scan::{Scan, Scanner};
use super::verify::{self, Checked, Effort};
use crate::frame::BLOCK_BYTES;
use crate::reader::{EpochSpan, FrameReader};
use crate::{ErrorKind, Lsn, Options, Result, Store, Verify};

/// The result of analysis: what the store holds. It exists only if an open may continue.
#[derive(Debug)]
pub(crate) struct Analysis {
    pub(crate) layout: Arc<Layout>,
    /// Whether the log ends where its last clean close ended it. Then the open continues the epoch,
    /// if `may_resume` allows it.
    pub(crate) is_clean: bool,
    cause: EndCause,
    /// The scan of the newest epoch. `None` if there is no epoch or the end is clean.
    pub(crate) scanned: Option<(Scanner, Scan)>,
    /// The durable watermark that the old log buffer noted.
    pub(crate) noted_durable: Option<Lsn>,
    checked: Option<Checked>,
    buffer_note: Option<String>,
}

impl Analysis {
    fn new(layout: Arc<Layout>) -> Analysis {
        Analysis {
            layout,
            is_clean: false,
            cause: EndCause::default(),
            scanned: None,
            noted_durable: None,
            checked: None,
            buffer_note: None,
        }
    }

    /// Returns the analysis of a log that ends where its last close ended it.
    fn at_clean_end(self) -> Analysis {
        Analysis { is_clean: true, cause: EndCause::CleanClose, ..self }
    }

    /// Returns whether a record that the scan found did not validate when it was read again.
    pub(crate) fn has_changed(&self) -> bool {
        self.scanned.as_ref().is_some_and(|(scanner, _)| scanner.has_changed)
    }

    /// Returns the floor: everything below it was durable once.
    pub(crate) fn floor(&self) -> Lsn {
        let scanned = self.scanned.as_ref().map_or(Lsn::ZERO, |(_, scan)| scan.floor);
        self.layout.floor().max(scanned).max(self.noted_durable.unwrap_or(Lsn::ZERO))
    }

    /// Builds the report of what analysis found, without what the new epoch adds.
    pub(crate) fn report(&self) -> RecoveryReport {
        let layout = &self.layout;
        let checked = self.checked.as_ref();
        let mut report = RecoveryReport {
            clean: self.is_clean,
            verified: checked.is_some(),
            segments: layout.present(),
            records: checked.map_or(0, |checked| checked.records),
            bytes: checked.map_or(0, |checked| checked.bytes),
            end_cause: self.cause,
            buffer_note: self.buffer_note.clone(),
            strays: layout.files_of_others(),
            ..RecoveryReport::default()
        };
        if self.is_clean {
            (report.floor, report.end) = (layout.state.clean_end, layout.state.clean_end);
        }
        if let Some((_, scan)) = &self.scanned {
            report.records += scan.records;
            report.bytes += scan.bytes;
            report.end_cause = scan.cause;
            report.torn_bytes = scan.torn_bytes;
            report.torn_reason.clone_from(&scan.torn_reason);
            report.holes_padded = scan.holes.len() as u64;
            report.records_from_buffer = scan.records_from_buffer;
            (report.floor, report.end) = (scan.floor, scan.end);
            if layout.is_empty_epoch(scan.end) {
                // If a truncation of the suffix removed all records, `predecessor.end` can be below
                // the head.
                report.end = layout.predecessor.end.max(layout.state.head);
            }
        }
        report
    }
}

/// Analyzes the log in `store` and decides whether it may be opened.
///
/// # Errors
/// `Corrupt`: acknowledged data is damaged.
pub(crate) fn analyze(store: &Arc<Store>, options: &Options) -> Result<Analysis> {
    let as_reader: Arc<dyn ReadStore> = Arc::clone(store) as Arc<dyn ReadStore>;
    if let Some(analysis) = analyze_closed(&as_reader, options)? {
        return Ok(analysis);
    }
    let listing = Listing::read(store.as_ref())?;
    listing.check_readable(store.as_ref())?;
    let layout = Arc::new(Layout::of(listing, &store.place())?);
    let mut analysis = Analysis::new(Arc::clone(&layout));
    let mut checked_to = layout.state.clean_end;
    if ended_cleanly(&as_reader, &layout, options)? {
        analysis = analysis.at_clean_end();
    } else {
        let bytes = options.read_ahead_bytes;
        let leftover = leftover(store, &mut analysis, bytes)?;
        if let Some(mut scanner) = Scanner::new(&as_reader, &layout, leftover, bytes) {
            let scan = scanner.run()?;
            checked_to = scan.start;
            analysis.scanned = Some((scanner, scan));
        }
    }
    if options.verify == Verify::Full {
        analysis.checked = Some(check_up_to(&as_reader, &layout, options, checked_to)?);
    }
    Ok(analysis)
}

/// Analyzes a log by the list of epochs in its state. Returns `None` if there is no list, if it
/// does not fit the segments, if appends cannot continue at the clean end, or with `Verify::Full`.
/// Then the caller reads all headers and decides by them.
fn analyze_closed(store: &Arc<dyn ReadStore>, options: &Options) -> Result<Option<Analysis>> {
    if options.verify == Verify::Full {
        return Ok(None);
    }
    let Some(listing) = Listing::of_closed_log(store.as_ref())? else { return Ok(None) };
    if !may_resume(&listing.state, options) {
        return Ok(None);
    }
    let analysis = Layout::of(listing, &store.place()).and_then(|layout| {
        let is_clean = ended_cleanly(store, &layout, options)?;
        Ok(is_clean.then(|| Analysis::new(Arc::new(layout))))
    });
    match analysis {
        Ok(analysis) => Ok(analysis.map(Analysis::at_clean_end)),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether appends may continue the epoch at its clean end. With `pad_to_block` they may
/// not if the end is in the middle of a block: the block holds acknowledged records.
pub(super) fn may_resume(state: &State, options: &Options) -> bool {
    !options.pad_to_block || state.clean_end.is_multiple_of(BLOCK_BYTES)
}

/// Checks every frame of the older epochs, and those of the newest epoch below `to`.
fn check_up_to(
    store: &Arc<dyn ReadStore>,
    layout: &Layout,
    options: &Options,
    to: Lsn,
) -> Result<Checked> {
    let effort = Effort {
        read_ahead_bytes: options.read_ahead_bytes,
        threads: options.verify_threads,
        ends_at_first: false,
    };
    let checked = verify::check(store, &layout.state, &layout.spans, to, effort, &mut |_| {})?;
    let Some(bad) = checked.bad.first() else { return Ok(checked) };
    if let Some((_, error)) = checked.unreadable.first() {
        return Err(error.clone().with_advice(UNREADABLE));
    }
    let text = match checked.bad.len() {
        1 => "no valid record here, though one must begin".into(),
        count => format!("no valid record here, though one must begin; {count} segments are bad"),
    };
    Err(corrupt(text, &store.place()).at_segment(bad.segment).at_lsn(bad.lsn))
}

/// Returns whether the log ends where its last clean close ended it, and nothing follows.
fn ended_cleanly(store: &Arc<dyn ReadStore>, layout: &Layout, options: &Options) -> Result<bool> {
    let state = &layout.state;
    let Some(newest) = layout.newest() else { return Ok(false) };
    if !state.clean || newest.epoch != state.epoch || layout.largest_epoch != state.epoch {
        return Ok(false);
    }
    let end = state.clean_end;
    layout.check_present(newest.base.max(state.head), end, &store.place())?;
    // One read finds the last frame and shows what follows it.
    let block = BLOCK_BYTES as usize;
    let mut reader = reader_of(store, layout, options.read_ahead_bytes.min(2 * block));
    if !ends_with_a_frame(&mut reader, layout, end, &store.place())? {
        return Ok(false);
    }
    if layout.holds(end) && reader.header(end, newest.seed)?.is_some() {
        return Ok(false);
    }
    // Appends would continue into the segments that were prepared above the end, so all of them
    // must be sound.
    let numbers = layout.newest_segments();
    let is_gapless = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let last_end = numbers.last().map(|last| Lsn::new((last + 1) * state.segment_bytes));
    let is_last = last_end.is_none_or(|last_end| last_end == layout.highest_end);
    if !layout.damaged.is_empty() || !is_gapless || !is_last {
        return Ok(false);
    }
    let end_number = end.segment(state.segment_bytes);
    for number in layout.newest_segments().into_iter().rev().take_while(|n| *n > end_number) {
        let base = Lsn::new(number * state.segment_bytes);
        if reader.header(base, newest.seed)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a whole frame of the newest epoch ends at the clean end. If not, the file of the
/// last segment may have been cut since the close, and a scan decides.
///
/// # Errors
/// `Corrupt`: the newest epoch has no record, as in a copy of a log, and no frame ends where the
/// epoch before ended. A scan reads the newest epoch only.
fn ends_with_a_frame(
    reader: &mut FrameReader,
    layout: &Layout,
    end: Lsn,
    place: &str,
) -> Result<bool> {
    let head = layout.state.head;
    let Some((newest, older)) = layout.spans.split_last() else { return Ok(true) };
    if newest.base.max(head) < end {
        return frame_ends_at(reader, layout, newest, end);
    }
    let Some(before) = older.last().filter(|before| before.base.max(head) < before.end) else {
        return Ok(true);
    };
    if frame_ends_at(reader, layout, before, before.end)? {
        return Ok(true);
    }
    let text = format!("no valid record ends here, where epoch {} ended", before.epoch);
    let segment = before.end.before().segment(layout.state.segment_bytes);
    Err(corrupt(text, place).at_segment(segment).at_lsn(before.end))
}

/// Returns whether a whole frame of the epoch `span` ends at `end`.
///
/// `close` ends the log with a mark, and with `pad_to_block` then with the padding of a block. A
/// longer frame ends the log beside a full disk or another appender, or in an epoch that a crash
/// ended. Then the frames of the whole segment are read.
fn frame_ends_at(
    reader: &mut FrameReader,
    layout: &Layout,
    span: &EpochSpan,
    end: Lsn,
) -> Result<bool> {
    let State { segment_bytes, head, .. } = layout.state;
    let start = end.before().segment_start(segment_bytes).max(span.base).max(head);
    let mut at = start.max(Lsn::new(end.as_u64().saturating_sub(BLOCK_BYTES)));
    while at < end
        && let Some((found, header)) = reader.find(at, end, &[span.seed])?
    {
        at = found.plus(header.frame_bytes);
    }
    if at == end {
        return Ok(true);
    }
    // The head may lie within a batch, so members count as well.
    at = start;
    while at < end
        && let Some(header) = reader.frame(at, span.seed)?
    {
        at = at.plus(header.frame_bytes);
    }
    Ok(at == end)
}

/// Returns the old log buffer, if it belongs to the newest epoch.
fn leftover(
    store: &Arc<Store>,
    analysis: &mut Analysis,
    read_ahead_bytes: usize,
) -> Result<Option<OldLogBuffer>> {
    let Some(newest) = analysis.layout.newest() else { return Ok(None) };
    let segment_bytes = analysis.layout.state.segment_bytes;
    match store.old_buffer()? {
        OldBuffer::Missing => analysis.buffer_note = Some("there is no buffer file".into()),
        OldBuffer::Invalid(text) => analysis.buffer_note = Some(text),
        OldBuffer::Found { epoch, durable, written, ring } => {
            if epoch == newest.epoch && durable < Lsn::LIMIT {
                analysis.noted_durable = Some(durable);
                let ends = (durable, written);
                let buffer = OldLogBuffer::new(ring, ends, segment_bytes, read_ahead_bytes);
                return Ok(Some(buffer));
            }
            let text = format!("the buffer is of epoch {epoch}, the log of {}", newest.epoch);
            analysis.buffer_note = Some(text);
        }
    }
    Ok(None)
}

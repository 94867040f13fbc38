//! Checks frames for a repair, and for a verification that proposes one.

use std::sync::Arc;

use palisade_store::{ReadStore, State};

use super::progress::{CopyProgress, CopyStep, OnProgress, PROGRESS_BYTES};
use crate::reader::EpochSpan;
use crate::recovery::epoch_chain::EpochChain;
use crate::recovery::listing::Listing;
use crate::recovery::verify::{self, Checked, Effort};
use crate::{Error, ErrorKind, Lsn, Result};

/// One thread, up to the first bad place.
const IN_ORDER: Effort = Effort { read_ahead_bytes: 1 << 20, threads: 1, ends_at_first: true };

pub(crate) struct WholeFrames {
    /// The first LSN at or above the head at which no whole frame begins.
    pub(crate) to: Lsn,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// Returns how far the frames of a log are whole. A repair keeps every record below, and refuses a
/// higher LSN.
///
/// # Errors
/// As [`CopyPlan::new`](super::CopyPlan::new), of the state and the headers.
pub(crate) fn whole_frames(store: &Arc<dyn ReadStore>, listing: &Listing) -> Result<WholeFrames> {
    let spans = EpochChain::of(listing).spans;
    let whole_to = |to| -> Result<WholeFrames> {
        let checked = verify::check(store, &listing.state, &spans, to, IN_ORDER, &mut |_| {})?;
        let Checked { records, bytes, .. } = checked;
        Ok(WholeFrames { to: whole_end(&checked, &listing.state, &spans, to), records, bytes })
    };
    match whole_to(Lsn::LIMIT) {
        // A newer version wrote this frame, so a repair can keep what is below it.
        Err(error) if error.kind() == ErrorKind::Unsupported => whole_to(error.lsn().ok_or(error)?),
        whole => whole,
    }
}

/// Returns where the frames below `to` end, or the first bad place.
fn whole_end(checked: &Checked, state: &State, spans: &[EpochSpan], to: Lsn) -> Lsn {
    let bad = checked.bad.first().map(|bad| bad.lsn);
    let last = || spans.iter().rfind(|span| span.base < to).map(|span| span.end.min(to));
    bad.or_else(last).map_or(state.head, |end| end.max(state.head))
}

/// Checks every frame from the head up to `to`. Returns the numbers of records and bytes.
pub(super) fn check(
    store: &Arc<dyn ReadStore>,
    state: &State,
    spans: &[EpochSpan],
    to: Lsn,
    on_progress: OnProgress<'_>,
) -> Result<(u64, u64)> {
    let (head, mut reported_to) = (state.head, state.head);
    let note = &mut |end: Lsn| {
        if end.bytes_since(reported_to) >= PROGRESS_BYTES {
            reported_to = end;
            let (done, total) = (end.bytes_since(head), to.bytes_since(head));
            on_progress(CopyProgress { step: CopyStep::Check, done, total });
        }
    };
    let checked = verify::check(store, state, spans, to, IN_ORDER, note)?;
    let at = whole_end(&checked, state, spans, to);
    let next_base = spans.iter().map(|span| span.base).find(|base| *base >= to);
    let is_within = |span: &EpochSpan| span.base <= at && to < span.end;
    if checked.is_too_long && spans.iter().any(is_within) {
        let text = format!("no record begins here; the one around it begins at LSN {at}");
        return Err(not_a_record(store, text, to));
    }
    if !checked.bad.is_empty() {
        return Err(ends_below(store, at, to));
    }
    match next_base {
        base if at == to || base == Some(to) => Ok((checked.records, checked.bytes)),
        Some(base) => {
            let text = format!("the log holds nothing from LSN {at} to LSN {base}");
            Err(not_a_record(store, text, to))
        }
        None => Err(ends_below(store, at, to)),
    }
}

fn not_a_record(store: &Arc<dyn ReadStore>, text: String, at: Lsn) -> Error {
    Error::new(ErrorKind::NotARecord, text).at_path(store.place()).at_lsn(at)
}

fn ends_below(store: &Arc<dyn ReadStore>, at: Lsn, to: Lsn) -> Error {
    let text = format!(
        "no whole record here: the log ends here, or is damaged here, below the LSN {to} that was \
         named"
    );
    let error = Error::new(ErrorKind::OutOfRange, text).at_path(store.place()).at_lsn(at);
    error.with_advice("name this LSN, or that of a record below it")
}

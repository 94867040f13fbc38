//! Finds how far the frames of a log are whole.

use std::sync::Arc;

use palisade_store::{ReadStore, State};

use super::progress::{CopyProgress, CopyStep, OnProgress, PROGRESS_BYTES};
use super::walk::Walk;
use crate::reader::EpochSpan;
use crate::{Error, ErrorKind, Lsn, Result};

/// How far the frames below some LSN are whole.
pub(crate) struct Walked {
    /// The end of the last whole frame, or the base of its successor's epoch.
    pub(crate) at: Lsn,
    /// No whole frame begins at `at`, although the epoch continues.
    is_bad: bool,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// Walks over the frames from the head on, up to the first one that ends at or above `to`, or up to
/// the first place at which no whole frame begins. A repair, and a verification that proposes one,
/// decide by this walk alone.
pub(super) fn walk_to(
    store: &Arc<dyn ReadStore>,
    state: &State,
    spans: &[EpochSpan],
    to: Lsn,
    on_progress: OnProgress<'_>,
) -> Result<Walked> {
    let head = state.head;
    let mut walked = Walked { at: head, is_bad: false, records: 0, bytes: 0 };
    let total = to.bytes_since(head);
    let mut walk = Walk::new(store, state.segment_bytes);
    let mut reported_to = head;
    for span in spans.iter().take_while(|span| span.base < to) {
        walked.at = walked.at.max(span.base);
        while walked.at < span.end.min(to) {
            let Some((header, count)) = walk.frame(walked.at, span)? else {
                return Ok(Walked { is_bad: true, ..walked });
            };
            let next = walked.at.plus(header.frame_bytes);
            if next > to {
                let text =
                    format!("no record begins here; the one around it begins at LSN {}", walked.at);
                let error = Error::new(ErrorKind::NotARecord, text);
                return Err(error.at_path(store.place()).at_lsn(to));
            }
            walked.records += count;
            walked.bytes += header.frame_bytes;
            walked.at = next;
            if next.bytes_since(reported_to) >= PROGRESS_BYTES {
                reported_to = next;
                let done = next.bytes_since(head);
                on_progress(CopyProgress { step: CopyStep::Check, done, total });
            }
        }
    }
    Ok(walked)
}

/// Checks every frame from the head up to `to`. Returns the numbers of records and bytes.
pub(super) fn check(
    store: &Arc<dyn ReadStore>,
    state: &State,
    spans: &[EpochSpan],
    to: Lsn,
    on_progress: OnProgress<'_>,
) -> Result<(u64, u64)> {
    let Walked { at, is_bad, records, bytes } = walk_to(store, state, spans, to, on_progress)?;
    let next_base = spans.iter().map(|span| span.base).find(|base| *base >= to);
    match next_base {
        _ if is_bad => Err(ends_below(store, at, to)),
        _ if at == to => Ok((records, bytes)),
        Some(base) if base == to => Ok((records, bytes)),
        Some(base) => {
            let text = format!("the log holds nothing from LSN {at} to LSN {base}");
            Err(Error::new(ErrorKind::NotARecord, text).at_path(store.place()).at_lsn(to))
        }
        None => Err(ends_below(store, at, to)),
    }
}

fn ends_below(store: &Arc<dyn ReadStore>, at: Lsn, to: Lsn) -> Error {
    let text = format!(
        "no whole record here: the log ends here, or is damaged here, below the LSN {to} that was \
         named"
    );
    let error = Error::new(ErrorKind::OutOfRange, text).at_path(store.place()).at_lsn(at);
    error.with_advice("name this LSN, or that of a record below it")
}

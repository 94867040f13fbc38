//! Checks every frame of whole segments, many segments at a time.
//!
//! No frame crosses a segment end, so each segment is checked on its own. A worker has one read
//! buffer and nothing else that grows: it reads long payloads in pieces. The list of segments is as
//! long as the store's own.

use std::sync::Arc;

use palisade_store::{ReadStore, State};

use crate::frame::{EpochSeed, Header};
use crate::reader::{EpochSpan, FrameReader};
use crate::{Error, ErrorKind, Lsn, Result};

/// A place at which no valid frame begins, though one must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadPlace {
    /// Where the frame must begin.
    pub lsn: Lsn,
    /// The segment that holds it.
    pub segment: u64,
}

/// The result of a check of segments.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// The first bad place of each damaged segment, ascending.
    pub(crate) bad: Vec<BadPlace>,
    /// Of those, the places that cannot be read, ascending, each with its error.
    pub(crate) unreadable: Vec<(Lsn, Error)>,
    /// Whether a whole frame begins at the last bad place that was found, and ends too high.
    pub(crate) is_too_long: bool,
}

/// How segments are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) read_ahead_bytes: usize,
    /// 0 stands for one thread for each core.
    pub(crate) threads: usize,
    /// Whether a thread ends its work at the first bad place that it finds.
    pub(crate) ends_at_first: bool,
}

/// The frames of one segment that belong to one epoch.
#[derive(Clone, Copy, Debug)]
struct SegmentCheck {
    segment: u64,
    from: Lsn,
    to: Lsn,
    seed: EpochSeed,
}

/// Checks every frame of `spans` from the head on, up to `to`. A segment that is missing, or whose
/// file ends before, has its first bad place there.
///
/// One thread checks in the order of the log, and calls `on_progress` with the end of each frame.
pub(crate) fn check(
    store: &Arc<dyn ReadStore>,
    state: &State,
    spans: &[EpochSpan],
    to: Lsn,
    effort: Effort,
    on_progress: &mut dyn FnMut(Lsn),
) -> Result<Checked> {
    let jobs = jobs(state, spans, to);
    let wanted = if effort.threads == 0 { palisade_store::sync::cores() } else { effort.threads };
    let work = |jobs: &mut dyn Iterator<Item = SegmentCheck>, note: &mut dyn FnMut(Lsn)| {
        let (store, segment_bytes) = (Arc::clone(store), state.segment_bytes);
        let mut reader = FrameReader::new(store, segment_bytes, effort.read_ahead_bytes);
        let mut part = Checked::default();
        for job in jobs {
            check_one(&mut reader, &job, &mut part, note)?;
            if effort.ends_at_first && !part.bad.is_empty() {
                break;
            }
        }
        Ok::<Checked, Error>(part)
    };
    if wanted == 1 {
        return work(&mut jobs.clone(), on_progress);
    }
    let workers = jobs.clone().take(wanted).count().max(1);
    let parts = palisade_store::sync::in_parallel(workers, |worker| {
        work(&mut jobs.clone().skip(worker).step_by(workers), &mut |_| {})
    });
    let mut all = Checked::default();
    for part in parts {
        let part = part?;
        all.records += part.records;
        all.bytes += part.bytes;
        all.bad.extend(part.bad);
        all.unreadable.extend(part.unreadable);
    }
    all.bad.sort_unstable_by_key(|bad| bad.lsn);
    all.unreadable.sort_unstable_by_key(|(lsn, _)| *lsn);
    Ok(all)
}

/// Returns the checks of all segments, in the order of the log. Nothing is listed: the epoch that
/// has no end reaches to the last LSN.
fn jobs<'a>(
    state: &State,
    spans: &'a [EpochSpan],
    to: Lsn,
) -> impl Iterator<Item = SegmentCheck> + Clone + Sync + 'a {
    let State { segment_bytes, head, .. } = *state;
    spans.iter().flat_map(move |span| {
        let (from, to) = (span.base.max(head), span.end.min(to));
        let segments = from.segment(segment_bytes)..to.as_u64().div_ceil(segment_bytes);
        segments.map(move |segment| {
            let base = Lsn::new(segment * segment_bytes);
            let (from, to) = (from.max(base), to.min(base.plus(segment_bytes)));
            SegmentCheck { segment, from, to, seed: span.seed }
        })
    })
}

fn check_one(
    reader: &mut FrameReader,
    job: &SegmentCheck,
    checked: &mut Checked,
    note: &mut dyn FnMut(Lsn),
) -> Result<()> {
    let mut at = job.from;
    while at < job.to {
        let check = check_frame(reader, at, job.seed, job.to)?;
        checked.is_too_long = matches!(check, FrameCheck::TooLong);
        match check {
            FrameCheck::Whole(header, records) => {
                checked.records += records;
                at = at.plus(header.frame_bytes);
                note(at);
            }
            FrameCheck::TooLong | FrameCheck::Bad(_) => {
                checked.bad.push(BadPlace { lsn: at, segment: job.segment });
                if let FrameCheck::Bad(Some(error)) = check {
                    checked.unreadable.push((at, error));
                }
                // The other segments are checked all the same.
                break;
            }
        }
    }
    checked.bytes += at.bytes_since(job.from);
    Ok(())
}

/// What a walk finds at a place.
pub(crate) enum FrameCheck {
    /// A whole frame, and the number of its records.
    Whole(Header, u64),
    /// A whole frame that ends too high.
    TooLong,
    /// No whole frame; the error, if the medium cannot read the place.
    Bad(Option<Error>),
}

/// Returns what is at `at`, where a frame must begin that ends within `to`.
///
/// # Errors
/// `Unsupported`: a newer version wrote the frame.
pub(crate) fn check_frame(
    reader: &mut FrameReader,
    at: Lsn,
    seed: EpochSeed,
    to: Lsn,
) -> Result<FrameCheck> {
    let header = match reader.frame(at, seed) {
        Ok(Some(header)) => header,
        Ok(None) => return Ok(FrameCheck::Bad(None)),
        Err(error) if error.kind() == ErrorKind::Io => return Ok(FrameCheck::Bad(Some(error))),
        Err(error) => return Err(error),
    };
    header.check_known(at)?;
    if at.plus(header.frame_bytes) > to {
        return Ok(FrameCheck::TooLong);
    }
    Ok(FrameCheck::Whole(header, reader.records_in(at, &header, seed)?))
}

//! Checks every frame of whole segments, many segments at a time.
//!
//! No frame crosses a segment end, so each segment is checked on its own. A worker has one read
//! buffer and nothing else that grows: it reads long payloads in pieces. The list of segments is as
//! long as the store's own.

use std::sync::Arc;

use palisade_store::{ReadStore, SegmentHeader};

use super::layout::Layout;
use crate::frame::EpochSeed;
use crate::reader::FrameReader;
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

/// The frames of one segment.
#[derive(Clone, Copy, Debug)]
struct SegmentCheck {
    segment: u64,
    from: Lsn,
    to: Lsn,
    seed: EpochSeed,
}

/// Checks every frame from the head on: all of the older epochs, and the newest up to `to`. The
/// layout has checked that the segments exist.
pub(crate) fn check(
    store: &Arc<dyn ReadStore>,
    layout: &Layout,
    to: Lsn,
    effort: Effort,
) -> Result<Checked> {
    let jobs = jobs(layout, to);
    let segment_bytes = layout.state.segment_bytes;
    let wanted = if effort.threads == 0 { palisade_store::sync::cores() } else { effort.threads };
    let workers = wanted.min(jobs.len()).max(1);
    let parts = palisade_store::sync::in_parallel(workers, |worker| {
        let mut reader =
            FrameReader::new(Arc::clone(store), segment_bytes, effort.read_ahead_bytes);
        let mut part = Checked::default();
        for job in jobs.iter().skip(worker).step_by(workers) {
            check_one(&mut reader, job, &mut part)?;
            if effort.ends_at_first && !part.bad.is_empty() {
                break;
            }
        }
        Ok::<Checked, Error>(part)
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

fn jobs(layout: &Layout, to: Lsn) -> Vec<SegmentCheck> {
    let (segment_bytes, head) = (layout.state.segment_bytes, layout.state.head);
    let mut spans = layout.spans.clone();
    if let Some(newest) = spans.last_mut() {
        newest.end = to;
    }
    let job = |header: &SegmentHeader| {
        let index = spans.binary_search_by_key(&header.epoch, |span| span.epoch).ok()?;
        let span = spans[index];
        let from = header.base.max(span.base).max(head);
        let to = header.base.plus(segment_bytes).min(span.end);
        (from < to).then_some(SegmentCheck { segment: header.number, from, to, seed: span.seed })
    };
    layout.segments.values().filter_map(job).collect()
}

fn check_one(reader: &mut FrameReader, job: &SegmentCheck, checked: &mut Checked) -> Result<()> {
    let mut at = job.from;
    while at < job.to {
        let header = match reader.frame(at, job.seed) {
            // The medium cannot read the place. The other segments are checked all the same.
            Err(error) if error.kind() == ErrorKind::Io => {
                checked.unreadable.push((at, error));
                None
            }
            header => header?,
        };
        let Some(header) = header.filter(|header| at.plus(header.frame_bytes) <= job.to) else {
            checked.bad.push(BadPlace { lsn: at, segment: job.segment });
            break;
        };
        header.check_known(at)?;
        checked.records += reader.records_in(at, &header, job.seed)?;
        at = at.plus(header.frame_bytes);
    }
    checked.bytes += at.bytes_since(job.from);
    Ok(())
}

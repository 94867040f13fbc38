//! Salvage: reads what still validates, wherever it lies.
//!
//! Segments are read in order, each with its own header's epoch. If the header is damaged, the
//! epochs of the neighbours are tried. Where no frame validates, the search continues behind and
//! reports a gap. Truncated records are no part of the log: the headers of later epochs name their
//! ranges. If such a header is damaged, salvage may return truncated records.

use std::fmt;
use std::sync::Arc;

use crate::frame::{ALIGN_BYTES, EpochSeed, HEADER_BYTES, Header, Kind};
use crate::reader::{FrameReader, Record};
use crate::recovery::discarded::DiscardedRanges;
use crate::recovery::listing::Listing;
use crate::store::ReadStore;
use crate::{Error, ErrorKind, Lsn, Result};

/// How much a read error skips: the unit in which disks and page caches fail.
const UNREADABLE_BYTES: u64 = 4096;

/// A part of the log that cannot be read. If a header is damaged that names a discarded range, the
/// range shows as a gap, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The first LSN of the gap.
    pub from: Lsn,
    /// Exclusive end: the next record that validates, or what was certainly durable.
    pub to: Lsn,
}

/// An item that [`Salvage`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Salvaged<'a> {
    /// A record that validates.
    Record(Record<'a>),
    /// Damage that was skipped.
    Gap(Gap),
}

/// A read-only walk over everything in a log that still validates. It changes nothing and takes no
/// lock.
///
/// Records come in LSN order. A damaged batch is skipped as a whole.
///
/// ```no_run
/// # fn show(log: &palisade_core::inspect::Inspector) -> palisade_core::Result<()> {
/// # use palisade_core as palisade;
/// use palisade::inspect::Salvaged;
/// let mut salvage = log.salvage(None)?;
/// while let Some(next) = salvage.next()? {
///     match next {
///         Salvaged::Record(record) => println!("{} {:?}", record.lsn(), record.data()),
///         Salvaged::Gap(gap) => eprintln!("lost: LSN {} to {}", gap.from, gap.to),
///         _ => {}
///     }
/// }
/// # Ok(()) }
/// ```
pub struct Salvage {
    reader: FrameReader,
    stretches: Vec<Stretch>,
    stretch: usize,
    /// Discarded ranges, which are no part of the log.
    discarded: DiscardedRanges,
    at: Lsn,
    /// All below was returned as records or reported as gaps.
    reported_to: Lsn,
    /// Members below it lie in a batch whose checksum holds.
    verified_to: Lsn,
    held: Option<(Lsn, Header)>,
    floor: Lsn,
    read_ahead_bytes: usize,
    /// A read of this stretch has failed. Smaller reads return what lies around the bad block.
    is_careful: bool,
}

/// Bytes of one segment, and the epochs whose frames may lie in it.
struct Stretch {
    from: Lsn,
    to: Lsn,
    seeds: Vec<EpochSeed>,
}

enum Step {
    Record(Lsn, Header),
    Gap(Gap),
}

impl Salvage {
    /// Creates a walk from the next place at or above `from`, or above the head, where a frame can
    /// begin.
    pub(crate) fn new(
        store: &Arc<dyn ReadStore>,
        from: Option<Lsn>,
        read_ahead_bytes: usize,
    ) -> Result<Salvage> {
        let listing = Listing::read(store.as_ref())?;
        let state = &listing.state;
        // The search moves from one place where a frame can begin to the next.
        let from = from.unwrap_or(state.head).max(state.head);
        let from = from.as_u64().checked_next_multiple_of(ALIGN_BYTES).map_or(from, Lsn::new);
        let discarded = listing.discarded_ranges();
        Ok(Salvage {
            reader: FrameReader::new(Arc::clone(store), state.segment_bytes, read_ahead_bytes),
            stretches: stretches(&listing, &discarded, from),
            stretch: 0,
            discarded,
            at: from,
            reported_to: from,
            verified_to: Lsn::ZERO,
            held: None,
            floor: state.checkpoint.max(state.clean_end),
            read_ahead_bytes,
            is_careful: false,
        })
    }

    /// Returns the next record or gap, or `None` at the end.
    ///
    /// # Errors
    /// `Io`: a part of the log could not be read. The next call continues 4096 bytes behind it.
    #[expect(clippy::should_implement_trait, reason = "the record borrows the read buffer")]
    pub fn next(&mut self) -> Result<Option<Salvaged<'_>>> {
        Ok(match self.step()? {
            None => None,
            Some(Step::Gap(gap)) => Some(Salvaged::Gap(gap)),
            Some(Step::Record(lsn, header)) => {
                let payload = self.reader.payload(lsn, &header)?;
                let Some(payload) = payload.filter(|payload| header.matches(payload)) else {
                    let text = "the record changed while it was read";
                    return Err(Error::new(ErrorKind::Io, text).at_lsn(lsn));
                };
                let end = lsn.plus(header.frame_bytes);
                Some(Salvaged::Record(Record::new(lsn, end, header.tag, payload)))
            }
        })
    }

    /// Returns the number of records and the end of the last one. Passes gaps to `on_gap`.
    pub(crate) fn count(mut self, mut on_gap: impl FnMut(Gap)) -> Result<(u64, Lsn)> {
        let (mut records, mut end) = (0, Lsn::ZERO);
        while let Some(step) = self.step()? {
            match step {
                Step::Record(..) => (records, end) = (records + 1, self.at),
                Step::Gap(gap) => on_gap(gap),
            }
        }
        Ok((records, end))
    }

    fn step(&mut self) -> Result<Option<Step>> {
        loop {
            let found = match self.held.take() {
                Some(held) => Some(held),
                None => self.find()?,
            };
            let end = found.map_or(self.floor, |(at, _)| at);
            if let Some(gap) = self.gap_before(end) {
                self.held = found;
                self.reported_to = gap.to;
                return Ok(Some(Step::Gap(gap)));
            }
            let Some((at, header)) = found else { return Ok(None) };
            let end = at.plus(header.frame_bytes);
            self.at = end;
            if header.kind == Kind::Batch {
                self.verified_to = end;
                self.at = at.plus(HEADER_BYTES as u64);
            }
            self.reported_to = self.at;
            if header.kind == Kind::Data {
                return Ok(Some(Step::Record(at, header)));
            }
        }
    }

    /// Finds the next frame at or above the current place.
    fn find(&mut self) -> Result<Option<(Lsn, Header)>> {
        while self.stretch < self.stretches.len() {
            let Stretch { from, to, .. } = self.stretches[self.stretch];
            let at = self.at.max(from);
            if at < to {
                match self.find_in(at, to) {
                    Ok(None) => {}
                    Ok(found) => return Ok(found),
                    Err(_) if !self.is_careful => {
                        self.is_careful = true;
                        self.reader.read_ahead(UNREADABLE_BYTES as usize);
                        continue;
                    }
                    Err(error) => {
                        let block = at.max(error.lsn().unwrap_or(at)).as_u64() / UNREADABLE_BYTES;
                        self.at = Lsn::new((block + 1) * UNREADABLE_BYTES);
                        return Err(error);
                    }
                }
            }
            self.stretch += 1;
            if std::mem::take(&mut self.is_careful) {
                self.reader.read_ahead(self.read_ahead_bytes);
            }
        }
        Ok(None)
    }

    /// Finds the first frame in `[at, to)`. A batch member counts only where a frame must begin.
    fn find_in(&mut self, at: Lsn, to: Lsn) -> Result<Option<(Lsn, Header)>> {
        let seeds = std::mem::take(&mut self.stretches[self.stretch].seeds);
        let found = self.first_frame(&seeds, at, to);
        self.stretches[self.stretch].seeds = seeds;
        found
    }

    fn first_frame(
        &mut self,
        seeds: &[EpochSeed],
        at: Lsn,
        to: Lsn,
    ) -> Result<Option<(Lsn, Header)>> {
        let is_verified = at < self.verified_to;
        for seed in seeds {
            let frame = match is_verified {
                true => self.reader.header(at, *seed)?,
                false => self.reader.frame(at, *seed)?,
            };
            let fits = |header: &Header| at.plus(header.frame_bytes) <= to;
            if let Some(header) = frame.filter(fits).filter(|_| at == self.reported_to) {
                return Ok(Some((at, header)));
            }
        }
        self.reader.find(at, to, seeds)
    }

    /// Returns the first part of the log between what was reported and `to`.
    fn gap_before(&self, to: Lsn) -> Option<Gap> {
        let (from, next) = self.discarded.kept_from(self.reported_to);
        let to = next.map_or(to, |next| next.min(to));
        (from < to).then_some(Gap { from, to })
    }
}

impl fmt::Debug for Salvage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salvage").field("at", &self.at).finish_non_exhaustive()
    }
}

fn stretches(listing: &Listing, discarded: &DiscardedRanges, from: Lsn) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    for (segment, seeds) in listing.segments.iter().zip(listing.seeds()) {
        let base = Lsn::new(segment.number * listing.state.segment_bytes);
        let from = base.max(from);
        let to = discarded.end_below(base.plus(listing.state.segment_bytes));
        if from.plus(ALIGN_BYTES) <= to {
            stretches.push(Stretch { from, to, seeds });
        }
    }
    stretches
}

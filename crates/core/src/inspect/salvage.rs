//! The salvage of records, also above damage.
//!
//! Each segment is read with the epoch that its header names, or, if that is damaged, with the
//! running one, then those of the nearest segments below and above. Then salvage may return
//! truncated records, whose ranges the headers of later epochs name.

use std::fmt;
use std::sync::Arc;

use palisade_store::{ReadStore, Segment, State};

use crate::frame::{ALIGN_BYTES, EpochSeed, HEADER_BYTES, Header, Kind};
use crate::reader::{FrameReader, Record, UNREADABLE_BYTES, truncated_meanwhile};
use crate::recovery::discarded::DiscardedRanges;
use crate::recovery::listing::{Listing, first_stray};
use crate::{Error, ErrorKind, Lsn, Result};

/// A range of the log in which no frame validates: damage, or the rest of the record within which a
/// walk starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// Where it begins.
    pub from: Lsn,
    /// Exclusive end: the next frame that validates, or the start of a discarded range. At the end
    /// of the log: where it was certainly durable, or the end of the last segment that is missing
    /// or has a damaged header, whichever is greater.
    pub to: Lsn,
}

/// An item of a [`Salvage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Salvaged<'a> {
    /// A record that validates.
    Record(Record<'a>),
    /// A range that the walk skipped.
    Gap(Gap),
}

/// A read-only walk in LSN order over everything in a log that still validates. It takes no lock,
/// and skips a damaged batch as a whole.
pub struct Salvage {
    reader: FrameReader,
    parts: Vec<Part>,
    part: usize,
    discarded: DiscardedRanges,
    at: Lsn,
    /// Each byte below is in a valid frame, a reported gap or a discarded range.
    done_to: Lsn,
    /// Below it the checksums of batches cover their members.
    verified_to: Lsn,
    pending: Option<(Lsn, Header)>,
    floor: Lsn,
    /// See `lost_segments`.
    lost: Vec<(Lsn, Lsn)>,
    read_ahead_bytes: usize,
    /// A read of this part has failed. Smaller reads return the records around the bad block.
    reads_blocks: bool,
    began: Option<(Arc<dyn ReadStore>, u64)>,
}

struct Part {
    from: Lsn,
    to: Lsn,
    seeds: Vec<EpochSeed>,
}

enum SalvageStep {
    Record(Lsn, Header),
    Gap(Gap),
}

impl Salvage {
    pub(crate) fn new(
        store: &Arc<dyn ReadStore>,
        from: Option<Lsn>,
        read_ahead_bytes: usize,
    ) -> Result<Salvage> {
        let listing = Listing::read(store.as_ref())?;
        let state = &listing.state;
        let from = from.unwrap_or(state.head).max(state.head);
        let from = from.as_u64().checked_next_multiple_of(ALIGN_BYTES).map_or(from, Lsn::new);
        let discarded = listing.discarded_ranges();
        Ok(Salvage {
            reader: FrameReader::new(Arc::clone(store), state.segment_bytes, read_ahead_bytes),
            parts: parts(&listing, &discarded, from),
            part: 0,
            discarded,
            at: from,
            done_to: from,
            verified_to: Lsn::ZERO,
            pending: None,
            floor: state.floor(),
            lost: lost_segments(&listing),
            read_ahead_bytes,
            reads_blocks: false,
            began: Some((Arc::clone(store), state.epoch)),
        })
    }

    /// Returns the next record or gap, or `None` at the end.
    ///
    /// # Errors
    /// `Io`: a part could not be read. The next call continues at the next multiple of 4096, and a
    /// later gap covers the part; or it continues after a record that was found, without a gap.
    /// `Truncated`, once, at the end: the writer truncated the suffix meanwhile, so records may be
    /// missing; begin again.
    #[expect(clippy::should_implement_trait, reason = "the record borrows the read buffer")]
    pub fn next(&mut self) -> Result<Option<Salvaged<'_>>> {
        Ok(match self.step()? {
            None => None,
            Some(SalvageStep::Gap(gap)) => Some(Salvaged::Gap(gap)),
            Some(SalvageStep::Record(lsn, header)) => {
                let payload = self.reader.payload(lsn, &header)?;
                let Some(payload) = payload.filter(|payload| header.matches(payload)) else {
                    let text = "the record changed while it was read";
                    return Err(Error::new(ErrorKind::Io, text).at_lsn(lsn));
                };
                let (next, tag) = (lsn.plus(header.frame_bytes), header.tag);
                Some(Salvaged::Record(Record::new(lsn, next, tag, header.is_encoded(), payload)))
            }
        })
    }

    /// Returns the number of records. Passes to `on_bad` the start of each gap and of each segment
    /// in it.
    pub(crate) fn count(mut self, mut on_bad: impl FnMut(Lsn)) -> Result<u64> {
        let mut records = 0;
        loop {
            let step = match self.step() {
                // The walk goes on above the place, which a later gap covers.
                Err(error) if error.kind() == ErrorKind::Io => continue,
                step => step?,
            };
            let Some(step) = step else { break };
            match step {
                SalvageStep::Record(..) => records += 1,
                SalvageStep::Gap(gap) => {
                    on_bad(gap.from);
                    // Only segments that are present: a damaged state can make a gap so long that
                    // its segment numbers cannot be listed.
                    let first = self.parts.partition_point(|part| part.from <= gap.from);
                    let within = self.parts[first..].iter().take_while(|part| part.from < gap.to);
                    within.for_each(|part| on_bad(part.from));
                }
            }
        }
        Ok(records)
    }

    fn step(&mut self) -> Result<Option<SalvageStep>> {
        loop {
            let found = match self.pending.take() {
                Some(pending) => Some(pending),
                None => self.next_frame()?,
            };
            let end = found.map_or_else(|| self.known_end(), |(at, _)| at);
            if let Some(gap) = self.gap_before(end) {
                self.pending = found;
                self.done_to = gap.to;
                return Ok(Some(SalvageStep::Gap(gap)));
            }
            let Some((at, header)) = found else {
                return self.check_end().map(|()| None);
            };
            let end = at.plus(header.frame_bytes);
            self.at = end;
            if header.kind == Kind::Batch {
                self.verified_to = end;
                self.at = at.plus(HEADER_BYTES as u64);
            }
            self.done_to = self.at;
            if header.kind == Kind::Data {
                return Ok(Some(SalvageStep::Record(at, header)));
            }
        }
    }

    /// Fails once if a truncation of the suffix came meanwhile: it may have moved records from a
    /// freed segment to a later one.
    fn check_end(&mut self) -> Result<()> {
        match self.began.take() {
            Some((store, epoch)) if store.state()?.epoch != epoch => Err(truncated_meanwhile()),
            _ => Ok(()),
        }
    }

    fn next_frame(&mut self) -> Result<Option<(Lsn, Header)>> {
        while self.part < self.parts.len() {
            let Part { from, to, .. } = self.parts[self.part];
            let at = self.at.max(from);
            if at < to {
                match self.next_frame_of_part(at, to) {
                    Ok(None) => {}
                    Ok(found) => return Ok(found),
                    Err(_) if !self.reads_blocks => {
                        self.reads_blocks = true;
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
            self.part += 1;
            if std::mem::take(&mut self.reads_blocks) {
                self.reader.read_ahead(self.read_ahead_bytes);
            }
        }
        Ok(None)
    }

    fn next_frame_of_part(&mut self, at: Lsn, to: Lsn) -> Result<Option<(Lsn, Header)>> {
        let seeds = std::mem::take(&mut self.parts[self.part].seeds);
        let found = self.next_frame_of_epochs(&seeds, at, to);
        self.parts[self.part].seeds = seeds;
        found
    }

    /// Returns the first frame in `[at, to)` of one of the epochs. A batch member counts only at
    /// `at`, and only if the frame before it ended there.
    fn next_frame_of_epochs(
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
            if let Some(header) = frame.filter(fits).filter(|_| at == self.done_to) {
                return Ok(Some((at, header)));
            }
        }
        self.reader.find(at, to, seeds)
    }

    fn known_end(&self) -> Lsn {
        let is_above = |(from, _): &&(Lsn, Lsn)| self.done_to <= *from;
        let lost = self.lost.iter().rfind(is_above).map_or(Lsn::ZERO, |(_, to)| *to);
        self.floor.max(lost)
    }

    fn gap_before(&self, to: Lsn) -> Option<Gap> {
        let (from, next) = self.discarded.kept_from(self.done_to);
        let to = next.map_or(to, |next| next.min(to));
        (from < to).then_some(Gap { from, to })
    }
}

impl fmt::Debug for Salvage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salvage").field("at", &self.at).finish_non_exhaustive()
    }
}

fn parts(listing: &Listing, discarded: &DiscardedRanges, from: Lsn) -> Vec<Part> {
    let mut parts = Vec::new();
    for (segment, seeds) in listing.segments.iter().zip(listing.seeds()) {
        let base = Lsn::new(segment.number * listing.state.segment_bytes);
        let from = base.max(from);
        let to = discarded.end_below(base.plus(listing.state.segment_bytes));
        if from.plus(ALIGN_BYTES) <= to {
            parts.push(Part { from, to, seeds });
        }
    }
    parts
}

/// Returns segments that are missing or have no valid header. Unless the log was closed, they can
/// have had records, because headers and names of segments become durable in order.
fn lost_segments(listing: &Listing) -> Vec<(Lsn, Lsn)> {
    let State { clean, segment_bytes, .. } = listing.state;
    let mut lost = Vec::new();
    if clean {
        return lost;
    }
    let base_of = |number: u64| Lsn::new(number * segment_bytes);
    let mut behind = None;
    for Segment { number, header } in
        &listing.segments[..first_stray(&listing.state, &listing.segments)]
    {
        if let Some(behind) = behind.filter(|behind| behind < number) {
            lost.push((base_of(behind), base_of(*number)));
        }
        if header.is_err() {
            lost.push((base_of(*number), base_of(number + 1)));
        }
        behind = Some(number + 1);
    }
    lost
}

//! The layout of a log, read before recovery decides: epochs, segments and the first evidence.
//!
//! This module changes nothing. Its input is a [`Listing`], whose numbers were checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_store::{BadHeader, Predecessor, ReadStore, SegmentHeader, State};

use super::epoch_chain::{newest_epoch, spans_of};
use super::listing::{Listing, corrupt, highest_end};
use crate::reader::{EpochSpan, FrameReader};
use crate::{Error, Lsn, Result};

/// The epochs and segments of a log, as its state and headers name them.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) state: State,
    /// Valid headers at or above the head's segment and outside of discarded ranges, by number.
    pub(crate) segments: BTreeMap<u64, SegmentHeader>,
    /// Segments of the newest epoch whose headers do not validate or cannot be read, and why.
    pub(crate) damaged: BTreeMap<u64, BadHeader>,
    /// All epochs with records at or above the head, ascending. The last is the newest. Its end is
    /// not known yet, so it is [`Lsn::LIMIT`].
    pub(crate) spans: Vec<EpochSpan>,
    /// The epoch before the newest one, and its end. The newest epoch's first segment names them.
    /// Default if that segment was released.
    pub(crate) predecessor: Predecessor,
    /// The largest epoch number seen in any header.
    pub(crate) largest_epoch: u64,
    /// End of the highest-numbered segment present, in a discarded range or not. Stray files do not
    /// count.
    pub(crate) highest_end: Lsn,
    /// Stray files. A stray file has a segment's name and no valid header, and its number is too
    /// far above the log for a segment.
    pub(crate) strays: Vec<u64>,
}

impl Layout {
    /// Returns the number of segments at or above the head.
    pub(crate) fn present(&self) -> u64 {
        (self.segments.len() + self.damaged.len()) as u64
    }

    /// Reads the state and all headers of `store`.
    ///
    /// # Errors
    /// `Corrupt`: a segment or header that must be there is missing or damaged.
    pub(crate) fn read(store: &dyn ReadStore) -> Result<Layout> {
        Layout::of(Listing::read(store)?, &store.place())
    }

    /// Computes the layout of the segments that were found at `place`.
    pub(super) fn of(mut listing: Listing, place: &str) -> Result<Layout> {
        let strays = listing.take_strays().iter().map(|stray| stray.number).collect();
        let State { segment_bytes, head, .. } = listing.state;
        let mut layout = Layout {
            segments: BTreeMap::new(),
            damaged: BTreeMap::new(),
            spans: Vec::new(),
            predecessor: Predecessor::default(),
            largest_epoch: newest_epoch(&listing),
            highest_end: highest_end(&listing.segments, segment_bytes),
            strays,
            state: listing.state.clone(),
        };
        for segment in listing.live() {
            match &segment.header {
                Ok(header) => drop(layout.segments.insert(segment.number, *header)),
                Err(text) => drop(layout.damaged.insert(segment.number, text.clone())),
            }
        }
        layout.list_epochs(place)?;
        layout.check_the_running_epoch(place)?;
        layout.check_the_newest_epoch(place)?;
        // If a truncation of the suffix removed the first record, it removed the head's segment.
        let discarded = listing.discarded_ranges();
        let has_head = !discarded.cover(head.segment_start(segment_bytes), head);
        layout.check_what_lies_below(has_head, place)?;
        Ok(layout)
    }

    pub(crate) fn newest(&self) -> Option<EpochSpan> {
        self.spans.last().copied()
    }

    /// Returns whether the newest epoch, which ends at `end`, never had a record. If the head is at
    /// the base of a segment that is not the epoch's first, no record of the epoch is left, but it
    /// had records.
    pub(crate) fn is_empty_epoch(&self, end: Lsn) -> bool {
        let Some(newest) = self.newest() else { return false };
        let number = newest.base.segment(self.state.segment_bytes);
        let header = self.segments.get(&number);
        end <= newest.base && header.is_none_or(|header| header.predecessor.is_some())
    }

    /// Returns the floor that the state and headers prove: everything below it was durable once.
    pub(crate) fn floor(&self) -> Lsn {
        let base = self.newest().map_or(Lsn::ZERO, |newest| newest.base);
        // A truncation of the suffix can leave a cursor above the new end. The new base is above
        // that cursor, so the cursor does not raise the floor.
        self.state.floor().max(base).max(self.state.highest_cursor())
    }

    /// Returns the numbers of the newest epoch's segments, ascending, including those with damaged
    /// headers.
    pub(crate) fn newest_segments(&self) -> Vec<u64> {
        let Some(newest) = self.newest() else { return Vec::new() };
        let of_newest = |(number, header): (&u64, &SegmentHeader)| {
            (header.epoch == newest.epoch).then_some(*number)
        };
        let mut numbers: Vec<u64> = self.segments.iter().filter_map(of_newest).collect();
        numbers.extend(self.damaged.keys());
        numbers.sort_unstable();
        numbers
    }

    /// Returns the numbers of the stray files, and of the files without a valid header that do not
    /// keep an open from the log.
    pub(crate) fn files_of_others(&self) -> Vec<u64> {
        self.damaged.keys().chain(&self.strays).copied().collect()
    }

    /// Returns whether the newest epoch has a segment with a valid header that holds `at`.
    pub(crate) fn holds(&self, at: Lsn) -> bool {
        let number = at.segment(self.state.segment_bytes);
        let epoch = self.newest().map(|newest| newest.epoch);
        self.segments.get(&number).is_some_and(|header| Some(header.epoch) == epoch)
    }

    /// Refuses a log in which a segment of `[from, to)` is missing or has a damaged header.
    pub(crate) fn check_present(&self, from: Lsn, to: Lsn, place: &str) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let segment_bytes = self.state.segment_bytes;
        for number in from.segment(segment_bytes)..=(to.as_u64() - 1) / segment_bytes {
            if !self.segments.contains_key(&number) {
                if let Some(bad) = self.damaged.get(&number) {
                    return Err(damaged_header(number, bad, place));
                }
                let base = Lsn::new(number * segment_bytes);
                let end = base.plus(segment_bytes);
                let text = format!("a segment is missing: that of LSN {base} to LSN {end}");
                return Err(corrupt(text, place).at_segment(number));
            }
        }
        Ok(())
    }

    fn list_epochs(&mut self, place: &str) -> Result<()> {
        let headers = self.segments.values();
        let spans = spans_of(headers, self.state.uuid, place, |last, header| {
            let missing = match header.predecessor {
                Some(before) if before.epoch == last.epoch => return Ok(before.end),
                before => before.map_or(header.epoch, |before| before.epoch),
            };
            let damaged = self.damaged.range(last.number..header.number).next();
            let (number, text) = match damaged {
                Some((number, text)) => (*number, format!("does not validate: {text}")),
                None => (header.number, "is missing".into()),
            };
            let text = format!("the first segment of epoch {missing} {text}");
            Err(corrupt(text, place).at_segment(number))
        });
        self.spans = spans?;
        if let Some(newest) = self.newest() {
            let first = &self.segments[&newest.base.segment(self.state.segment_bytes)];
            self.predecessor = first.predecessor.unwrap_or_default();
        } else if self.state.epoch > 0 {
            self.spans.push(self.epoch_of_state());
        }
        Ok(())
    }

    /// Returns the running epoch as the state names it. All of its segments are below the head.
    fn epoch_of_state(&self) -> EpochSpan {
        let State { uuid, epoch, epoch_salt, epoch_base, .. } = self.state;
        EpochSpan::open_ended(uuid, epoch, epoch_salt, epoch_base)
    }

    /// Refuses a log without the first segment of the state's epoch, unless that segment was
    /// released or a newer epoch has replaced the epoch.
    fn check_the_running_epoch(&self, place: &str) -> Result<()> {
        let State { epoch, epoch_base, head, segment_bytes, .. } = self.state;
        if epoch == 0 || epoch_base.plus(segment_bytes) <= head {
            return Ok(());
        }
        let number = epoch_base.segment(segment_bytes);
        match self.segments.get(&number) {
            Some(header) if header.epoch == epoch => Ok(()),
            // A later open found this epoch empty, or a truncation removed all of it. Then a newer
            // epoch began, and this epoch's segments were freed.
            _ if self.newest().is_some_and(|newest| newest.epoch > epoch) => Ok(()),
            _ => {
                let text = match self.damaged.get(&number) {
                    Some(text) => format!("the header of epoch {epoch} does not validate: {text}"),
                    None => format!("the first segment of the running epoch {epoch} is missing"),
                };
                Err(corrupt(text, place).at_segment(number))
            }
        }
    }

    /// Refuses a log in which the newest epoch misses a segment below another one, or has a segment
    /// whose header does not validate. No crash leaves this: a header is durable before its segment
    /// has a name, and the name is durable before the next segment gets one. So records may have
    /// been in such a segment, or above it, and been acknowledged.
    ///
    /// A clean end proves that no record is above it, so there only appends need the segments.
    fn check_the_newest_epoch(&self, place: &str) -> Result<()> {
        let Some(newest) = self.newest() else { return Ok(()) };
        let from = newest.base.max(self.state.head);
        if self.state.clean && self.largest_epoch == self.state.epoch {
            return self.check_present(from, self.state.clean_end, place);
        }
        if let Some((number, bad)) = self.damaged.iter().next() {
            return Err(damaged_header(*number, bad, place));
        }
        let last = self.segments.last_key_value().filter(|(_, last)| last.epoch == newest.epoch);
        let end = last.map_or(from, |(_, last)| last.base.plus(self.state.segment_bytes));
        self.check_present(from, end, place)
    }

    /// Refuses a log in which a segment below the newest epoch's base is missing: everything below
    /// that base was durable. If the log `has_head`, the head's segment must be there, too.
    fn check_what_lies_below(&self, has_head: bool, place: &str) -> Result<()> {
        let head = self.state.head;
        let Some((newest, older)) = self.spans.split_last() else { return Ok(()) };
        // A head within a segment proves that the segment was there and durable.
        if has_head {
            self.check_present(head.segment_start(self.state.segment_bytes), head, place)?;
        }
        for span in older {
            self.check_present(span.base.max(head), span.end, place)?;
        }
        let first = self.spans[0];
        // The lowest segment present must hold the head, or begin the first epoch above it.
        let starts = self.segments.values().next();
        let is_first = starts.is_none_or(|header| match header.predecessor {
            Some(before) => before.end <= head || first.base <= head,
            None => first.base <= head,
        });
        if !is_first {
            self.check_present(head, first.base, place)?;
        }
        let base_number = newest.base.segment(self.state.segment_bytes);
        let damaged = self.damaged.range(..base_number).next();
        damaged.map_or(Ok(()), |(number, bad)| Err(damaged_header(*number, bad, place)))
    }
}

fn damaged_header(number: u64, bad: &BadHeader, place: &str) -> Error {
    let text = match bad {
        BadHeader::Damaged(text) => format!("the header of a segment does not validate: {text}"),
        BadHeader::Unreadable(text) => text.clone(),
    };
    corrupt(text, place).at_segment(number)
}

/// Raises `floor` to what the first frame of a segment of the newest epoch proves. Begins with the
/// highest segment, and takes the first frame that proves something.
pub(crate) fn floor_of_segments(
    layout: &Layout,
    reader: &mut FrameReader,
    floor: Lsn,
) -> Result<Lsn> {
    let Some(newest) = layout.newest() else { return Ok(floor) };
    for number in layout.newest_segments().into_iter().rev() {
        let base = Lsn::new(number * layout.state.segment_bytes);
        let header = reader.frame(base, newest.seed)?;
        if let Some(durable) = header.and_then(|header| header.durable(base)) {
            return Ok(floor.max(durable));
        }
    }
    Ok(floor)
}

/// Returns a reader of `store` with the segment size of `layout`.
pub(crate) fn reader_of(
    store: &Arc<dyn ReadStore>,
    layout: &Layout,
    read_ahead_bytes: usize,
) -> FrameReader {
    FrameReader::new(Arc::clone(store), layout.state.segment_bytes, read_ahead_bytes)
}

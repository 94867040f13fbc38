//! The saved cursors of a log, and its end.

use std::sync::Arc;

use palisade_store::{SavedCursor, Segment, State};

use super::{Inspector, Salvaged};
use crate::frame::EpochSeed;
use crate::reader::{FrameReader, UNREADABLE_BYTES};
use crate::recovery::listing::{Listing, valid};
use crate::{CursorStatus, ErrorKind, Lsn, Result};

/// What a log has at one moment.
#[doc(hidden)]
#[derive(Debug)]
pub struct LogParts {
    pub state: State,
    /// Not below the head.
    pub end: Lsn,
    /// The log's segments, ascending.
    pub segments: Vec<Segment>,
    /// Stray files.
    pub strays: Vec<Segment>,
    /// Bytes from the head to the end outside discarded ranges.
    pub live_bytes: u64,
}

impl Inspector {
    /// Returns where the log ends: at its clean end if nothing follows that, else at the end of the
    /// last record that validates, or at the base of the newest epoch if that has none.
    /// [`verify`](Inspector::verify) also checks the records below.
    ///
    /// # Errors
    /// As [`state`](Inspector::state) and [`segments`](Inspector::segments). `Truncated`: as
    /// [`verify`](Inspector::verify).
    pub fn end(&self) -> Result<Lsn> {
        self.undisturbed(|| self.end_of(&self.listing()?))
    }

    /// Returns the parts of one moment.
    ///
    /// # Errors
    /// As [`end`](Inspector::end).
    #[doc(hidden)]
    pub fn parts(&self) -> Result<LogParts> {
        self.undisturbed(|| {
            let mut listing = self.listing()?;
            let end = self.end_of(&listing)?.max(listing.state.head);
            let live_bytes = listing.discarded_ranges().kept_bytes(listing.state.head, end);
            let strays = listing.take_strays();
            let Listing { state, segments } = listing;
            Ok(LogParts { state, end, segments, strays, live_bytes })
        })
    }

    /// Returns all saved cursors, by name, as [`Wal::cursors`](crate::Wal::cursors) does, with
    /// [`is_open`](CursorStatus::is_open) false. The lag reaches to the [`end`](Inspector::end), so
    /// it can be less than in the writer. A [rebuilt](Inspector::has_rebuilt_state) state has no
    /// cursors.
    ///
    /// # Errors
    /// As [`end`](Inspector::end).
    pub fn cursors(&self) -> Result<Vec<CursorStatus>> {
        let (listing, end) = self.undisturbed(|| {
            let listing = self.listing()?;
            let has_cursors = !listing.state.cursors.is_empty();
            let end = if has_cursors { self.end_of(&listing)? } else { Lsn::ZERO };
            Ok((listing, end))
        })?;
        let discarded = listing.discarded_ranges();
        // As `Epochs::lag` in an open log: records that a truncation of the prefix removed count.
        let status = |cursor: SavedCursor| {
            let lag = discarded.kept_bytes(cursor.position, end);
            CursorStatus::of(cursor, lag, false)
        };
        Ok(listing.state.cursors.into_iter().map(status).collect())
    }

    fn listing(&self) -> Result<Listing> {
        Listing::read(self.store.as_ref())
    }

    fn end_of(&self, listing: &Listing) -> Result<Lsn> {
        let State { head, clean, clean_end, segment_bytes, .. } = listing.state;
        if clean && !self.goes_on(listing)? {
            return Ok(clean_end.max(head));
        }
        let later = valid(&listing.segments).filter(|header| header.predecessor.is_some());
        let known = if clean { clean_end.max(head) } else { head };
        let newest = later.map(|header| header.base).fold(known, Lsn::max);
        for segment in listing.segments.iter().rev() {
            let base = Lsn::new(segment.number * segment_bytes);
            if base.plus(segment_bytes) <= head {
                break;
            }
            let mut salvage = self.salvage(Some(base))?;
            let mut end = None;
            loop {
                match salvage.next() {
                    Ok(Some(Salvaged::Record(record))) => end = Some(record.next_lsn()),
                    Ok(Some(Salvaged::Gap(_))) => {}
                    Ok(None) => break,
                    // The walk goes on above the place.
                    Err(error) if error.kind() == ErrorKind::Io => {}
                    Err(error) => return Err(error),
                }
            }
            if let Some(end) = end {
                return Ok(end.max(newest));
            }
        }
        Ok(newest)
    }

    /// Returns whether records follow the clean end, because an older meta file was put back.
    fn goes_on(&self, listing: &Listing) -> Result<bool> {
        let State { uuid, epoch, epoch_salt, clean_end, segment_bytes, .. } = listing.state;
        if valid(&listing.segments).any(|header| header.epoch > epoch) {
            return Ok(true);
        }
        let seed = EpochSeed::new(uuid, epoch, epoch_salt);
        let store = Arc::clone(&self.store);
        let mut reader = FrameReader::new(store, segment_bytes, UNREADABLE_BYTES as usize);
        let of_epoch = valid(&listing.segments).filter(|header| header.epoch == epoch);
        let above = of_epoch.map(|header| header.base).filter(|base| *base > clean_end);
        for at in above.chain([clean_end]) {
            match reader.header(at, seed) {
                Ok(None) => {}
                Ok(Some(_)) => return Ok(true),
                // No record is known to be there.
                Err(error) if error.kind() == ErrorKind::Io => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

//! The cursors of a log that this process need not have open, and the end from which they lag.

use std::sync::Arc;

use palisade_store::{SavedCursor, State};

use super::{Inspector, Salvaged};
use crate::frame::EpochSeed;
use crate::reader::{FrameReader, UNREADABLE_BYTES};
use crate::recovery::listing::{Listing, valid};
use crate::{CursorStatus, ErrorKind, Lsn, Result};

impl Inspector {
    /// Returns where the log ends: at its clean end if nothing follows that, or else at the end of
    /// the last record that validates. Records follow a clean end if a meta file that was saved
    /// earlier was put back. If the newest epoch has no record, the log ends at the base of that
    /// epoch.
    ///
    /// Reads segments from the highest down to the last record, and waits for no writer. Does not
    /// see records that only the log buffer holds. Does not check the records below the end:
    /// [`verify`](Inspector::verify) does.
    ///
    /// # Errors
    /// As [`state`](Inspector::state) and [`segments`](Inspector::segments). `Truncated`: the
    /// writer truncates the log too often; call again.
    pub fn end(&self) -> Result<Lsn> {
        self.undisturbed(|| self.end_of(&self.listing()?))
    }

    /// Returns all saved cursors, by name, with their lags and whether they keep the log, as
    /// [`Wal::cursors`](crate::Wal::cursors) does in the process that writes.
    ///
    /// The lag reaches to the [`end`](Inspector::end), so it can be less than in the writer, whose
    /// log buffer may hold more. [`is_open`](CursorStatus::is_open) is always false. A
    /// [rebuilt](Inspector::has_rebuilt_state) state has no cursors. Reads what `end` reads.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let id = std::process::id();
    /// # let folder = std::env::temp_dir().join(format!("palisade-cursors-{id}"));
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// use palisade::{Wal, inspect::Inspector};
    ///
    /// let wal = Wal::open(&folder)?;
    /// drop(wal.create_cursor("index", None, 1 << 30)?);
    /// wal.commit(b"record")?;
    /// for cursor in Inspector::open(&folder)?.cursors()? {
    ///     println!("{} lags {} bytes", cursor.name, cursor.lag);
    ///     assert!(cursor.keeps_the_log && cursor.lag > 0);
    /// }
    /// # drop(wal);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok(()) }
    /// ```
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

    /// Returns whether a closed log goes on above its clean end, because a state that was saved
    /// earlier was put back. Looks where an open looks.
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

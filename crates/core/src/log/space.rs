//! The space that a log takes, and what keeps it.

use std::collections::BTreeMap;

use super::{PinKind, Wal};
use crate::{Lsn, Result};

/// What a log takes on disk, and what keeps it from shrinking: see `Wal::space`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Files of segments that hold log, also below the head as long as something keeps them.
    pub segments: u64,
    /// Files that are ready for what is appended next.
    pub ready: u64,
    /// The bytes of one of these files. It may take less on disk until the log has filled it.
    pub file_bytes: u64,
    /// What all of them may take (`max_bytes`).
    pub limit: Option<u64>,
    /// Bytes of frames from the head to the end.
    pub live_bytes: u64,
    /// Everything below is truncated.
    pub head: Lsn,
    /// Bytes from the head to the end, with the discarded ranges.
    pub head_lag: u64,
    /// What else keeps segments, ascending by LSN.
    pub pins: Vec<SpacePin>,
}

/// Readers that keep the log from one LSN on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpacePin {
    /// What they are.
    pub kind: PinKind,
    /// How many there are at this LSN.
    pub count: usize,
    /// The log is kept from here on. A reader moves on at the next segment.
    pub lsn: Lsn,
    /// Bytes of the log from there to the end, without skipped LSNs.
    pub lag: u64,
}

impl Wal {
    /// Returns what the log takes on disk, and what keeps it from shrinking. Lists the log's
    /// folder.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let options = palisade::Options::new().buffer_bytes(1 << 16);
    /// # let wal = palisade::Wal::with_store(store, options)?;
    /// let lsn = wal.commit(b"x")?;
    /// let hold = wal.hold(lsn)?;
    /// let space = wal.space()?;
    /// assert_eq!(space.pins[0].lsn, lsn);
    /// assert_eq!(space.pins[0].kind, palisade::PinKind::Hold);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `NoFiles`, `Io`: the folder cannot be listed. `Forked`.
    pub fn space(&self) -> Result<Space> {
        let (segments, taken) = self.handle.commit.own()?.segments_in_use()?;
        let pins = self.handle.pins.all();
        let kept = self.cursors()?.into_iter().filter(|cursor| cursor.keeps_the_log);
        let mut counts = BTreeMap::new();
        for cursor in kept {
            *counts.entry((cursor.position, PinKind::Cursor)).or_insert(0) += 1;
        }
        // A cursor that reads where it was saved counts once.
        for (lsn, kind, count) in pins {
            counts.entry((lsn, kind)).or_insert(count);
        }
        let epochs = &self.handle.epochs;
        let (mut head, mut end) = (Lsn::ZERO, Lsn::ZERO);
        let live_bytes = epochs.lag(|| {
            (head, end) = (self.head_lsn(), self.reserved_lsn());
            (head, end)
        });
        // After the pins: none is above the end.
        let pin = |((lsn, kind), count): ((Lsn, PinKind), usize)| SpacePin {
            kind,
            count,
            lsn,
            lag: epochs.lag(|| (lsn, self.reserved_lsn())),
        };
        Ok(Space {
            segments,
            ready: taken.segments + taken.spares - segments,
            file_bytes: taken.file_bytes,
            limit: taken.limit,
            live_bytes,
            head,
            head_lag: end.bytes_since(head),
            pins: counts.into_iter().map(pin).collect(),
        })
    }
}

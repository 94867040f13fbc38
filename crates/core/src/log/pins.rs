//! Pins: readers and holds keep the segments that they read, or that nobody is to free.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::truncate_before::below_head;
use super::{Handle, Wal};
use crate::reader::{Pinned, Records};
use crate::sync::Mutex;
use crate::{Error, ErrorKind, Lsn, Result};

/// What keeps the log from an LSN on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PinKind {
    /// An iterator, a call that reads, or a backup.
    Reader,
    /// A [`Tail`](crate::Tail).
    Tail,
    /// A [`Hold`].
    Hold,
}

/// The LSNs from which readers need the log, with the number of readers at each.
#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<BTreeMap<(Lsn, PinKind), usize>>);

impl Pins {
    pub(super) fn lowest(&self) -> Option<Lsn> {
        self.0.lock().keys().next().map(|(at, _)| *at)
    }

    /// Returns all pins, ascending, with the number of readers of each.
    pub(super) fn all(&self) -> Vec<(Lsn, PinKind, usize)> {
        self.0.lock().iter().map(|((at, kind), count)| (*at, *kind, *count)).collect()
    }

    fn add(&self, at: Lsn, kind: PinKind) {
        *self.0.lock().entry((at, kind)).or_insert(0) += 1;
    }

    fn remove(&self, at: Lsn, kind: PinKind) {
        let mut pins = self.0.lock();
        if let Some(count) = pins.get_mut(&(at, kind)) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&(at, kind));
            }
        }
    }
}

/// One reader's pin. It also keeps the log open.
#[derive(Debug)]
pub(super) struct Pin {
    wal: Wal,
    kind: PinKind,
    at: Lsn,
    // The end of the pinned segment: the pin moves on when the reader reaches it.
    segment_end: Lsn,
}

impl Pin {
    /// Pins the segments from `at` on, which another pin keeps meanwhile.
    fn set(wal: &Wal, at: Lsn) -> Pin {
        let kind = PinKind::Reader;
        wal.handle.pins.add(at, kind);
        Pin { wal: wal.clone(), kind, at, segment_end: wal.handle.segment_end(at) }
    }

    pub(super) fn at(&self) -> Lsn {
        self.at
    }
}

impl Pinned for Pin {
    fn check_process(&self) -> Result<()> {
        self.wal.handle.log.check_process()
    }

    fn advance(&mut self, lsn: Lsn) -> Lsn {
        if lsn >= self.segment_end {
            let pins = Arc::clone(&self.wal.handle.pins);
            pins.add(lsn, self.kind);
            pins.remove(self.at, self.kind);
            self.at = lsn;
            self.segment_end = self.wal.handle.segment_end(lsn);
        }
        self.segment_end
    }

    fn may_be_truncated(&self, lsn: Lsn) -> bool {
        self.wal.handle.epochs.may_be_truncated(lsn)
    }

    fn check_not_truncated(&self, lsn: Lsn) -> Result<()> {
        self.wal.check_not_truncated(lsn)
    }

    fn write_until(&self, lsn: Lsn) -> (Lsn, Option<Error>) {
        let error = self.wal.flush_until(lsn).err();
        (self.wal.written_lsn(), error)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let handle = &self.wal.handle;
        if handle.log.check_process().is_err() {
            return;
        }
        handle.pins.remove(self.at, self.kind);
        // A truncation that comes after this look finds the pin gone. If a release is in progress,
        // its callback may take long, and it may be the callback that drops this reader: do not
        // wait for it.
        if self.at < self.wal.head_lsn()
            && let Some(releasing) = handle.releasing.try_lock()
        {
            // A failure cannot be reported.
            let _ = handle.release_alone();
            drop(releasing);
            handle.discard_left();
        }
        // The next truncation releases what was not released here.
    }
}

/// Keeps the log from an LSN on until it is dropped: see [`Wal::hold`]. It also keeps the log open.
#[must_use = "the log is held only as long as this exists"]
pub struct Hold(Pin);

impl Hold {
    /// Returns the LSN from which on the log is held.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.0.at
    }

    /// Returns the records from the one at [`lsn`](Hold::lsn) on, up to the end of the log at the
    /// time of the call, also if the head is above by now. If a crash or
    /// a truncation of the suffix removed the record at `lsn`, begins at the next one.
    ///
    /// # Errors
    /// `NotARecord`: no record begins at `lsn`. Else as `Wal::records_from`.
    pub fn records(&self) -> Result<Records> {
        let wal = &self.0.wal;
        wal.handle.log.check_process()?;
        let (written, end) = (wal.written_lsn(), wal.reserved_lsn());
        let spans = wal.spans_until(end);
        let from = wal.handle.epochs.skip_discarded(self.lsn());
        // At or above the hold's pin, which keeps the segment until this one is set.
        let pin = Pin::set(wal, from);
        let mut reader = wal.frame_reader(wal.handle.read_ahead_bytes);
        if let Some(span) = spans.iter().find(|span| span.base <= from && from < span.end) {
            wal.flush_until(from.plus(1))?;
            let header = reader.header(from, span.seed);
            wal.check_not_truncated(from)?;
            if header?.is_none() {
                let text = "no record begins where the log is held";
                return Err(Error::new(ErrorKind::NotARecord, text).at_lsn(from));
            }
        }
        reader.forget();
        let records = Records::new(reader, spans, from).decoding(wal.decoder());
        Ok(records.keeping(Box::new(pin)).ending_at(end).writing_from(written))
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("lsn", &self.lsn()).finish_non_exhaustive()
    }
}

impl Wal {
    /// Keeps the log from `lsn` on.
    pub fn hold(&self, lsn: Lsn) -> Result<Hold> {
        self.check_readable(lsn)?;
        self.pin(PinKind::Hold, Some(lsn)).map(Hold)
    }

    /// Pins the segments from `at` on, or from the head on, for a reader.
    ///
    /// Reads the head and sets the pin under the lock under which a release decides how far it
    /// goes, so pinned segments exist.
    pub(super) fn pin(&self, kind: PinKind, at: Option<Lsn>) -> Result<Pin> {
        let state = self.handle.state.lock();
        let at = at.unwrap_or(state.head);
        if at < state.head {
            return Err(below_head(at, state.head));
        }
        self.handle.pins.add(at, kind);
        let segment_end = end_of_segment(at, state.segment_bytes);
        Ok(Pin { wal: self.clone(), kind, at, segment_end })
    }
}

impl Handle {
    fn segment_end(&self, lsn: Lsn) -> Lsn {
        end_of_segment(lsn, self.state.lock().segment_bytes)
    }
}

fn end_of_segment(lsn: Lsn, segment_bytes: u64) -> Lsn {
    Lsn::new((lsn.segment(segment_bytes) + 1) * segment_bytes)
}

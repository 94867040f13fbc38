//! Pins: readers and holds keep segments.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use palisade_store::State;
use palisade_store::sync::{Mutex, OnceLock};

use super::epochs::View;
use super::truncate_before::below_head;
use super::{Handle, Wal};
use crate::reader::{Pinned, Records};
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
    /// A [`Cursor`](crate::Cursor) that does not lag too much: where it was saved, and where an
    /// open one reads.
    Cursor,
}

#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<PinTable>);

#[derive(Debug, Default)]
struct PinTable {
    // Ascending by LSN. The number distinguishes pins at one LSN.
    pins: BTreeMap<(Lsn, u64), Entry>,
    added: u64,
}

#[derive(Debug)]
struct Entry {
    kind: PinKind,
    lease: Option<Arc<Lease>>,
}

/// Lets a pin be lost if its reader lags more than `max_lag` bytes. A release sets `is_lost` before
/// it frees any file, and the reader looks after it has read, so it accepts only what was kept.
#[derive(Debug, Default)]
pub(super) struct Lease {
    max_lag: u64,
    is_lost: OnceLock<()>,
}

impl Lease {
    pub(super) fn new(max_lag: u64) -> Lease {
        Lease { max_lag, is_lost: OnceLock::new() }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.get().is_some()
    }
}

impl Pins {
    /// A pin that keeps more than the head's segment is lost if its reader lags too much.
    pub(super) fn lowest_below(&self, state: &State, lag: impl Fn(Lsn) -> u64) -> Option<Lsn> {
        let State { head, segment_bytes, .. } = *state;
        let mut table = self.0.lock();
        while let Some(first) = table.pins.first_entry() {
            let at = first.key().0;
            if at >= head {
                return None;
            }
            let keeps_more = at.segment(segment_bytes) < head.segment(segment_bytes);
            let lease = first.get().lease.as_ref();
            let too_far = lease.filter(|lease| lag(at) > lease.max_lag);
            let Some(lease) = too_far.filter(|_| keeps_more) else { return Some(at) };
            let _ = lease.is_lost.set(());
            first.remove();
        }
        None
    }

    pub(super) fn all(&self) -> Vec<(Lsn, PinKind, usize)> {
        let mut counts = BTreeMap::new();
        for ((at, _), entry) in &self.0.lock().pins {
            *counts.entry((*at, entry.kind)).or_insert(0) += 1;
        }
        counts.into_iter().map(|((at, kind), count)| (at, kind, count)).collect()
    }

    fn add(&self, at: Lsn, kind: PinKind, lease: Option<Arc<Lease>>) -> (Lsn, u64) {
        let mut table = self.0.lock();
        table.added += 1;
        let key = (at, table.added);
        table.pins.insert(key, Entry { kind, lease });
        key
    }

    fn raise(&self, key: &mut (Lsn, u64), to: Lsn) {
        let mut table = self.0.lock();
        if let Some(entry) = table.pins.remove(key) {
            key.0 = to;
            table.pins.insert(*key, entry);
        }
    }

    fn remove(&self, key: &(Lsn, u64)) {
        self.0.lock().pins.remove(key);
    }
}

#[derive(Debug)]
pub(super) struct Pin {
    wal: Wal,
    key: (Lsn, u64),
    // The end of the pinned segment: the pin moves on when the reader reaches it.
    segment_end: Lsn,
}

impl Pin {
    /// Another pin keeps the segments meanwhile.
    fn set(wal: &Wal, at: Lsn) -> Pin {
        let key = wal.handle.pins.add(at, PinKind::Reader, None);
        Pin { wal: wal.clone(), key, segment_end: wal.handle.segment_end(at) }
    }

    pub(super) fn at(&self) -> Lsn {
        self.key.0
    }
}

impl Pinned for Pin {
    fn check_process(&self) -> Result<()> {
        self.wal.handle.commit.own().map(drop)
    }

    fn advance(&mut self, lsn: Lsn) -> Lsn {
        if lsn >= self.segment_end {
            self.wal.handle.pins.raise(&mut self.key, lsn);
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
        if handle.commit.own().is_err() {
            return;
        }
        handle.pins.remove(&self.key);
        // A truncation that comes after this look finds the pin gone. If a release is in progress,
        // its callback may take long, and it may be the callback that drops this reader: do not
        // wait for it.
        if self.at() < self.wal.head_lsn()
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

/// Keeps the log from an LSN on, and open: see `Wal::hold`.
#[must_use = "the log is held only as long as this exists"]
pub struct Hold(Pin);

impl Hold {
    /// Returns where the hold begins.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.0.at()
    }

    /// Returns the records from the one at [`lsn`](Hold::lsn) on, or from the next one if that was
    /// removed, up to the end at the time of the call. Call `sync` before another place keeps them,
    /// because they need not be durable.
    ///
    /// # Errors
    /// As `Wal::records_from`.
    pub fn records(&self) -> Result<Records> {
        let wal = &self.0.wal;
        wal.handle.commit.own()?;
        let written = wal.written_lsn();
        let View { spans, end, begin } = wal.view(Some(self.lsn()));
        let from = begin.map_or(self.lsn(), |begin| begin.next);
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
    /// Keeps the log from `lsn` on, and open, until the result is dropped, for example for a
    /// replica that is away. [`truncate_before`](Wal::truncate_before) moves the head, but frees no
    /// segment that has bytes at or above `lsn`, and passes none to a callback for released
    /// segments.
    ///
    /// `lsn` is any LSN from the head to the end. A hold does not keep
    /// [`truncate_after`](Wal::truncate_after) from removing records, and does not outlive the
    /// process.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// let kept = wal.append(b"the replica has not seen this yet")?.lsn();
    /// let hold = wal.hold(kept)?;
    /// wal.truncate_before(wal.reserved_lsn())?; // frees nothing
    /// assert_eq!(hold.records()?.next()?.unwrap().lsn(), kept);
    /// drop(hold); // frees what was truncated
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Truncated`, `OutOfRange`.
    pub fn hold(&self, lsn: Lsn) -> Result<Hold> {
        self.check_readable(lsn)?;
        self.pin(PinKind::Hold, Some(lsn)).map(Hold)
    }

    pub(super) fn pin(&self, kind: PinKind, at: Option<Lsn>) -> Result<Pin> {
        self.pin_in(&self.handle.state.lock(), kind, at, None)
    }

    /// The caller holds the lock of the `state`. A release decides under the same lock how far it
    /// goes, so it sees the pin, or the pin sees the head that it took: pinned segments exist. A
    /// pin with a lease can be lost.
    pub(super) fn pin_in(
        &self,
        state: &State,
        kind: PinKind,
        at: Option<Lsn>,
        lease: Option<Arc<Lease>>,
    ) -> Result<Pin> {
        let at = at.unwrap_or(state.head);
        if at < state.head {
            return Err(below_head(at, state.head));
        }
        let key = self.handle.pins.add(at, kind, lease);
        Ok(Pin { wal: self.clone(), key, segment_end: self.handle.segment_end(at) })
    }
}

impl Handle {
    fn segment_end(&self, lsn: Lsn) -> Lsn {
        Lsn::new((lsn.segment(self.segment_bytes) + 1) * self.segment_bytes)
    }
}

//! The epochs of an open log: where each begins and ends.
//!
//! # Words
//! *Discarded range*: from an epoch's end to the next base. *Truncation*: the new end that a
//! truncation of the suffix gave to an epoch in this process; its range is the discarded range that
//! begins there.
//!
//! # Protocol
//! The truncating thread, under the lock: (1) put the truncation and the new epoch into the list;
//! (2) store the lowest truncation; (3) let the tail and the watermarks jump to the end of the new
//! epoch's first records.
//!
//! A thread that compares an LSN or a ticket with a watermark: (1) read the watermark; (2) ask
//! [`Epochs::check_not_truncated`]. A watermark that has jumped shows the truncation (P2). Another
//! one stands for what was durable before it.
//!
//! A thread that needs the epochs and the tail or a watermark of one moment reads both under the
//! lock ([`Epochs::view`], [`Epochs::lag`]).
//!
//! Epochs below the head and all readers are forgotten. The ranges of truncations, 16 bytes each,
//! never are: the holder of a ticket may ask at any time, and a head above does not make a
//! truncated record durable. A later range replaces those that it covers or touches.
//!
//! # Checked by
//! `a_truncated_record_is_never_acknowledged_afterwards`,
//! `a_view_has_all_of_a_replacement_or_none`, `a_reader_learns_that_its_begin_was_truncated`,
//! `a_head_above_a_truncation_acknowledges_nothing`.

use std::iter;

use palisade_store::sync::{AtomicU64, Ordering, RwLock};
use palisade_store::{EpochBase, EpochExtent};

use crate::reader::EpochSpan;
use crate::recovery::discarded::{DiscardedRanges, LsnRange};
use crate::{Error, ErrorKind, Lsn, Result};

#[derive(Debug)]
pub(crate) struct Epochs {
    list: RwLock<EpochList>,
    // The lowest truncation of this process: nothing below it was truncated. Without one, the
    // greatest number.
    lowest_truncation: AtomicU64,
}

#[derive(Debug)]
struct EpochList {
    // The epochs that may be read, ascending. The running epoch is last and ends at `LIMIT`.
    spans: Vec<EpochSpan>,
    // Where the epoch ended that the list has forgotten last, or else the head at the open.
    end_before: Lsn,
    // From each truncation of this process to the base of the next epoch.
    truncations: DiscardedRanges,
    // The bases of epochs of which some may have stayed empty.
    bases: Vec<EpochBase>,
}

#[derive(Debug)]
pub(crate) struct View {
    /// The running epoch ends at `end`.
    pub(crate) spans: Vec<EpochSpan>,
    pub(crate) end: Lsn,
    pub(crate) begin: Option<Begin>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    pub(crate) named: Lsn,
    pub(crate) next: Lsn,
    pub(crate) left: Lsn,
    pub(crate) is_inside_discarded: bool,
}

impl EpochList {
    fn discarded_around(&self, lsn: Lsn) -> Option<LsnRange> {
        let ends = iter::once(self.end_before).chain(self.spans.iter().map(|span| span.end));
        let mut ranges = ends.zip(&self.spans).map(|(from, next)| LsnRange { from, to: next.base });
        let found = ranges.find(|discarded| discarded.from <= lsn && lsn < discarded.to);
        found.or_else(|| self.truncations.around(lsn))
    }

    fn is_start(&self, discarded: LsnRange, lsn: Lsn) -> bool {
        let is_it = |known: &EpochBase| known.base == lsn && known.end_before <= discarded.from;
        discarded.from == lsn || self.bases.iter().any(is_it)
    }

    fn is_inside_discarded(&self, lsn: Lsn) -> bool {
        self.discarded_around(lsn).is_some_and(|discarded| !self.is_start(discarded, lsn))
    }

    fn skip_discarded(&self, lsn: Lsn) -> Lsn {
        self.discarded_around(lsn).map_or(lsn, |discarded| discarded.to)
    }

    fn leave_discarded(&self, lsn: Lsn) -> Lsn {
        let above = self.spans.partition_point(|span| span.base < lsn);
        match above.checked_sub(1) {
            Some(index) => self.spans[index].end.min(lsn),
            None => Lsn::ZERO,
        }
    }

    /// The running epoch ends at `end`, or at its base if that is higher.
    fn spans_until(&self, end: Lsn) -> Vec<EpochSpan> {
        let mut spans = self.spans.clone();
        if let Some(running) = spans.last_mut() {
            running.end = end.max(running.base);
        }
        spans
    }
}

impl Epochs {
    pub(crate) fn new(end_before: Lsn, spans: Vec<EpochSpan>, bases: Vec<EpochBase>) -> Epochs {
        let list = EpochList { spans, end_before, truncations: DiscardedRanges::default(), bases };
        Epochs { list: RwLock::new(list), lowest_truncation: AtomicU64::new(u64::MAX) }
    }

    /// Returns the epochs that reach up to `head`, or end there, of a log that is closed at `end`.
    pub(crate) fn extents(&self, head: Lsn, end: Lsn) -> Vec<EpochExtent> {
        let list = self.list.read();
        let alive = list.spans.iter().filter(|span| head <= span.end);
        alive.map(|span| span.up_to(end).extent()).collect()
    }

    pub(crate) fn spans_until(&self, end: Lsn) -> Vec<EpochSpan> {
        self.list.read().spans_until(end)
    }

    /// Returns the epochs of the moment in which `end` reads a watermark. It takes no lock of the
    /// handle.
    pub(crate) fn view(&self, from: Option<Lsn>, end: impl FnOnce() -> Lsn) -> View {
        let list = self.list.read();
        let end = end();
        let begin = from.map(|named| Begin {
            named,
            next: list.skip_discarded(named),
            left: list.leave_discarded(named),
            is_inside_discarded: list.is_inside_discarded(named),
        });
        View { spans: list.spans_until(end), end, begin }
    }

    pub(crate) fn running_base(&self) -> Lsn {
        self.list.read().spans.last().map_or(Lsn::ZERO, |running| running.base)
    }

    pub(crate) fn end_before(&self, base: Lsn) -> Option<Lsn> {
        let list = self.list.read();
        let index = list.spans.iter().position(|span| span.base == base)?;
        Some(index.checked_sub(1).map_or(list.end_before, |before| list.spans[before].end))
    }

    pub(crate) fn find(&self, lsn: Lsn) -> Option<EpochSpan> {
        let list = self.list.read();
        list.spans.iter().find(|span| span.base <= lsn && lsn < span.end).copied()
    }

    pub(crate) fn before(&self, base: Lsn) -> Option<EpochSpan> {
        self.list.read().spans.iter().rfind(|span| span.base < base).copied()
    }

    pub(crate) fn is_discarded(&self, lsn: Lsn) -> bool {
        self.list.read().discarded_around(lsn).is_some()
    }

    /// Returns whether a record may have been between the start of the discarded range and `lsn`.
    pub(crate) fn is_inside_discarded(&self, lsn: Lsn) -> bool {
        self.list.read().is_inside_discarded(lsn)
    }

    /// Returns the first LSN at or above `lsn` that is in no discarded range.
    pub(crate) fn skip_discarded(&self, lsn: Lsn) -> Lsn {
        self.list.read().skip_discarded(lsn)
    }

    /// Returns the end of the epoch before if `lsn` is in no epoch or at a base, else `lsn`. Below
    /// the first epoch returns 0.
    pub(crate) fn leave_discarded(&self, lsn: Lsn) -> Lsn {
        self.list.read().leave_discarded(lsn)
    }

    /// Returns the first LSN at or above `lsn` that is in an epoch.
    pub(crate) fn skip_unused(&self, lsn: Lsn) -> Lsn {
        let list = self.list.read();
        let is_above = |span: &&EpochSpan| lsn < span.end;
        list.spans.iter().find(is_above).map_or(lsn, |span| span.base.max(lsn))
    }

    /// Returns the bytes between the two LSNs that `position_and_end` reads, with forgotten
    /// records, without discarded ranges. It takes no lock of the handle.
    pub(crate) fn lag(&self, position_and_end: impl FnOnce() -> (Lsn, Lsn)) -> u64 {
        let list = self.list.read();
        let (position, end) = position_and_end();
        let from = position.max(list.end_before);
        let above = |span: &EpochSpan| span.end.min(end).bytes_since(span.base.max(from));
        from.bytes_since(position) + list.spans.iter().map(above).sum::<u64>()
    }

    /// Returns the next base if an epoch ended at `lsn`, or one that stayed empty began there, else
    /// `lsn`.
    pub(crate) fn skip_end_of_epoch(&self, lsn: Lsn) -> Lsn {
        let list = self.list.read();
        let discarded = list.discarded_around(lsn);
        let started = discarded.filter(|discarded| list.is_start(*discarded, lsn));
        started.map_or(lsn, |discarded| discarded.to)
    }

    /// The caller has read the watermark that covers the record before.
    #[inline]
    pub(crate) fn check_not_truncated(&self, lsn: Lsn) -> Result<()> {
        if !self.may_be_truncated(lsn) {
            return Ok(());
        }
        let truncation = self.list.read().truncations.around(lsn);
        truncation.map_or(Ok(()), |_| Err(truncated_error(lsn)))
    }

    #[inline]
    pub(crate) fn may_be_truncated(&self, lsn: Lsn) -> bool {
        // Relaxed: published with the watermark that the caller has read, if that has jumped [P2].
        lsn.as_u64() >= self.lowest_truncation.load(Ordering::Relaxed)
    }

    /// `jump` moves the tail and the watermarks in the same moment.
    pub(crate) fn truncate(&self, new_end: Lsn, running: EpochSpan, jump: impl FnOnce()) {
        let mut list = self.list.write();
        list.spans.retain(|span| span.base < new_end);
        if let Some(kept) = list.spans.last_mut() {
            kept.end = kept.end.min(new_end);
        }
        list.truncations.add(new_end, running.base);
        list.bases.push(EpochBase { end_before: new_end, base: running.base });
        list.spans.push(running);
        // Relaxed: the watermarks that are published next carry it [P2]. The lock keeps other
        // threads from storing.
        let lowest = self.lowest_truncation.load(Ordering::Relaxed).min(new_end.as_u64());
        self.lowest_truncation.store(lowest, Ordering::Relaxed);
        jump();
    }

    pub(crate) fn forget_below(&self, to: Lsn) {
        let mut list = self.list.write();
        let running = list.spans.len() - 1;
        let gone = list.spans[..running].iter().take_while(|span| span.end <= to).count();
        let last_gone = list.spans.drain(..gone).next_back();
        list.end_before = last_gone.map_or(list.end_before, |last| last.end);
        let end_before = list.end_before;
        list.bases.retain(|known| known.base >= to || end_before <= known.end_before);
    }
}

pub(crate) fn truncated_error(lsn: Lsn) -> Error {
    let text = "there is no such record: a crash or a truncation removed it";
    Error::new(ErrorKind::Truncated, text).at_lsn(lsn)
}

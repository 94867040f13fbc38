//! The lives of the tail: where each begins and ends, and so where there are no records.
//!
//! # Words
//! *Dead range*: from an epoch's end to the next one's base. *Cut*: the end that a truncation of
//! the suffix gave to an epoch, in this process; its range is the dead range that begins there.
//!
//! # Protocol
//! Who truncates: (1) under the lock put the cut and the new epoch into the list; (2) store the
//! lowest cut; (3) let the watermarks jump to the new base. Who compares an LSN or a ticket with a
//! watermark: (1) read the watermark; (2) ask [`Epochs::check_not_cut`]. A watermark that has
//! jumped shows the cut (P2); one that has not, stands for what was durable before the cut.
//!
//! Epochs that lie below the head and below all readers are forgotten. The ranges of the cuts never
//! are: whoever holds the ticket of a cut record may ask at any time, and a head that has passed
//! the cut does not make the record durable. A range takes 16 bytes; one that begins where an
//! earlier one does, within it, or below it takes its place.
//!
//! # Checked by
//! `a_cut_record_is_never_acknowledged_afterwards`, `a_head_beyond_a_cut_acknowledges_nothing`.

use crate::reader::EpochSpan;
use crate::store::EpochExtent;
use crate::sync::{AtomicU64, Ordering, RwLock};
use crate::{Error, ErrorKind, Lsn, Result};

/// Where there are records, and where this process has cut them off.
#[derive(Debug)]
pub(crate) struct Epochs {
    lives: RwLock<Lives>,
    // The lowest cut of this process: nothing below it was cut. Without one, the greatest number.
    lowest_cut: AtomicU64,
}

#[derive(Debug)]
struct Lives {
    // The epochs that may be read, ascending. The running one is last and ends at `LIMIT`.
    spans: Vec<EpochSpan>,
    // From each cut of this process to the base behind it: ascending, none touches the next.
    cuts: Vec<CutRange>,
}

#[derive(Clone, Copy, Debug)]
struct CutRange {
    from: Lsn,
    to: Lsn,
}

impl Lives {
    /// The range of a cut that `lsn` lies in.
    fn cut_around(&self, lsn: Lsn) -> Option<CutRange> {
        let behind = self.cuts.partition_point(|cut| cut.from <= lsn);
        let cut = *self.cuts.get(behind.checked_sub(1)?)?;
        (lsn < cut.to).then_some(cut)
    }

    /// The dead range that `lsn` lies in, of a cut or of a crash.
    fn dead_around(&self, lsn: Lsn) -> Option<CutRange> {
        let range = |pair: &[EpochSpan]| CutRange { from: pair[0].end, to: pair[1].base };
        let mut ranges = self.spans.windows(2).map(range);
        let found = ranges.find(|dead| dead.from <= lsn && lsn < dead.to);
        found.or_else(|| self.cut_around(lsn))
    }

    /// Notes that nothing is left in `[from, to)`, behind which the running epoch begins.
    fn note_cut(&mut self, from: Lsn, to: Lsn) {
        let mut range = CutRange { from, to };
        while let Some(last) = self.cuts.pop_if(|last| last.to >= from) {
            range.from = range.from.min(last.from);
        }
        self.cuts.push(range);
    }
}

impl Epochs {
    pub(crate) fn new(spans: Vec<EpochSpan>) -> Epochs {
        let lives = Lives { spans, cuts: Vec::new() };
        Epochs { lives: RwLock::new(lives), lowest_cut: AtomicU64::new(u64::MAX) }
    }

    /// The epochs of a log that is closed at `end`, for its state: those that reach up to `head`,
    /// and the running one. One that ends at the head has no records left, but what lies behind it
    /// is a dead range.
    pub(crate) fn extents(&self, head: Lsn, end: Lsn) -> Vec<EpochExtent> {
        let lives = self.lives.read();
        let alive = lives.spans.iter().filter(|span| head <= span.end);
        let extent = |span: &EpochSpan| EpochExtent {
            number: span.epoch,
            salt: span.salt,
            base: span.base,
            end: span.end.min(end),
        };
        alive.map(extent).collect()
    }

    pub(crate) fn all(&self) -> Vec<EpochSpan> {
        self.lives.read().spans.clone()
    }

    /// Where the running epoch begins.
    pub(crate) fn running_base(&self) -> Lsn {
        self.lives.read().spans.last().map_or(Lsn::ZERO, |running| running.base)
    }

    /// The epoch whose records lie around `lsn`.
    pub(crate) fn find(&self, lsn: Lsn) -> Option<EpochSpan> {
        let lives = self.lives.read();
        lives.spans.iter().find(|span| span.base <= lsn && lsn < span.end).copied()
    }

    /// Whether `lsn` lies between the end of one epoch and the base of the next.
    pub(crate) fn is_dead(&self, lsn: Lsn) -> bool {
        self.lives.read().dead_around(lsn).is_some()
    }

    /// Whether `lsn` lies within a dead range, above its start.
    pub(crate) fn is_beyond_a_cut(&self, lsn: Lsn) -> bool {
        self.lives.read().dead_around(lsn).is_some_and(|dead| dead.from < lsn)
    }

    /// The first place at or above `lsn` that is in no dead range.
    pub(crate) fn alive_at_or_above(&self, lsn: Lsn) -> Lsn {
        self.lives.read().dead_around(lsn).map_or(lsn, |dead| dead.to)
    }

    /// `lsn`, or where an epoch ended there, the base of the next: there are no records between.
    pub(crate) fn past_an_end(&self, lsn: Lsn) -> Lsn {
        let dead = self.lives.read().dead_around(lsn);
        dead.filter(|dead| dead.from == lsn).map_or(lsn, |dead| dead.to)
    }

    /// Refuses the LSN of a record that this process has cut off. Called after the look at the
    /// watermark that covers the record.
    #[inline]
    pub(crate) fn check_not_cut(&self, lsn: Lsn) -> Result<()> {
        if !self.may_be_cut(lsn) {
            return Ok(());
        }
        self.lives.read().cut_around(lsn).map_or(Ok(()), |_| Err(cut_off(lsn)))
    }

    /// Whether this process has cut off anything at or below `lsn`. Called as `check_not_cut` is.
    #[inline]
    pub(crate) fn may_be_cut(&self, lsn: Lsn) -> bool {
        // Relaxed: published with the watermark that the caller has read, if that has jumped [P2].
        lsn.as_u64() >= self.lowest_cut.load(Ordering::Relaxed)
    }

    /// Ends the log at `cut`, behind which `running` begins: later epochs are gone.
    pub(crate) fn cut(&self, cut: Lsn, running: EpochSpan) {
        let mut lives = self.lives.write();
        lives.spans.retain(|span| span.base < cut);
        if let Some(kept) = lives.spans.last_mut() {
            kept.end = kept.end.min(cut);
        }
        lives.note_cut(cut, running.base);
        lives.spans.push(running);
        // Relaxed: the watermarks that are published next carry it [P2]. The lock keeps others
        // from storing.
        let lowest = self.lowest_cut.load(Ordering::Relaxed).min(cut.as_u64());
        self.lowest_cut.store(lowest, Ordering::Relaxed);
    }

    /// Drops the epochs whose records all lie below `to`, and what crashes cut off behind them; the
    /// running one stays, and so do the ranges of the cuts.
    pub(crate) fn forget_below(&self, to: Lsn) {
        let mut lives = self.lives.write();
        let running = lives.spans.len() - 1;
        let gone = lives.spans[..running].iter().take_while(|span| span.end <= to).count();
        lives.spans.drain(..gone);
    }
}

/// The error for an LSN that a crash or a truncation cut off.
pub(crate) fn cut_off(lsn: Lsn) -> Error {
    let text = "there is no such record: a crash or a truncation cut the log off below it";
    Error::new(ErrorKind::Truncated, text).at_lsn(lsn)
}

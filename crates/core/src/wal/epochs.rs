//! The lives of the tail: where each begins and ends, and so where there are no records.
//!
//! # Words
//! *Dead range*: from an epoch's end to the next one's base. *Cut*: the end that a truncation of
//! the suffix gave to an epoch, in this process.
//!
//! # Protocol
//! Who truncates: (1) under the lock put the cut and the new epoch into the list; (2) store the
//! lowest cut; (3) let the watermarks jump to the new base. Who compares an LSN or a ticket with a
//! watermark: (1) read the watermark; (2) ask [`Epochs::check_not_cut`]. A watermark that has
//! jumped shows the cut (P2); one that has not, stands for what was durable before the cut.
//!
//! Dead ranges below the head are forgotten: what lies below the head is gone in any case.
//!
//! # Checked by
//! `a_cut_record_is_never_acknowledged_afterwards`.

use crate::reader::EpochSpan;
use crate::sync::{AtomicU64, Ordering, RwLock};
use crate::{Error, ErrorKind, Lsn, Result};

/// The epochs at or above the head, ascending. The running one is last and ends at `LIMIT`.
#[derive(Debug)]
pub(crate) struct Epochs {
    spans: RwLock<Vec<EpochSpan>>,
    // The lowest cut of this process: nothing below it was cut. Without one, the greatest number.
    lowest_cut: AtomicU64,
}

impl Epochs {
    pub(crate) fn new(spans: Vec<EpochSpan>) -> Epochs {
        Epochs { spans: RwLock::new(spans), lowest_cut: AtomicU64::new(u64::MAX) }
    }

    pub(crate) fn all(&self) -> Vec<EpochSpan> {
        self.spans.read().clone()
    }

    /// Where the running epoch begins.
    pub(crate) fn running_base(&self) -> Lsn {
        self.spans.read().last().map_or(Lsn::ZERO, |running| running.base)
    }

    /// The epoch whose records lie around `lsn`.
    pub(crate) fn find(&self, lsn: Lsn) -> Option<EpochSpan> {
        self.spans.read().iter().find(|span| span.base <= lsn && lsn < span.end).copied()
    }

    /// Whether `lsn` lies between the end of one epoch and the base of the next.
    pub(crate) fn is_dead(&self, lsn: Lsn) -> bool {
        let spans = self.spans.read();
        spans.windows(2).any(|pair| pair[0].end <= lsn && lsn < pair[1].base)
    }

    /// Whether `lsn` lies within a dead range, above its start.
    pub(crate) fn is_beyond_a_cut(&self, lsn: Lsn) -> bool {
        let spans = self.spans.read();
        spans.windows(2).any(|pair| pair[0].end < lsn && lsn < pair[1].base)
    }

    /// The first place at or above `lsn` that is in no dead range.
    pub(crate) fn alive_at_or_above(&self, lsn: Lsn) -> Lsn {
        let spans = self.spans.read();
        let mut pairs = spans.windows(2);
        pairs.find(|pair| pair[0].end <= lsn && lsn < pair[1].base).map_or(lsn, |pair| pair[1].base)
    }

    /// Refuses the LSN of a record that this process has cut off. Called after the look at the
    /// watermark that covers the record.
    #[inline]
    pub(crate) fn check_not_cut(&self, lsn: Lsn) -> Result<()> {
        // Relaxed: published with the watermark that the caller has read, if that has jumped [P2].
        if lsn.as_u64() < self.lowest_cut.load(Ordering::Relaxed) || !self.is_dead(lsn) {
            return Ok(());
        }
        Err(cut_off(lsn))
    }

    /// Ends the log at `cut`, behind which `running` begins: later epochs are gone.
    pub(crate) fn cut(&self, cut: Lsn, running: EpochSpan) {
        let mut spans = self.spans.write();
        spans.retain(|span| span.base < cut);
        if let Some(kept) = spans.last_mut() {
            kept.end = kept.end.min(cut);
        }
        spans.push(running);
        // Relaxed: the watermarks that are published next carry it [P2]. The lock keeps others
        // from storing.
        let lowest = self.lowest_cut.load(Ordering::Relaxed).min(cut.as_u64());
        self.lowest_cut.store(lowest, Ordering::Relaxed);
    }

    /// Drops the epochs whose records all lie below `head`; the running one stays.
    pub(crate) fn forget_below(&self, head: Lsn) {
        let mut spans = self.spans.write();
        let running = spans.len() - 1;
        let dead = spans[..running].iter().take_while(|span| span.end <= head).count();
        spans.drain(..dead);
    }
}

/// The error for an LSN that a crash or a truncation cut off.
pub(crate) fn cut_off(lsn: Lsn) -> Error {
    let text = "there is no such record: a crash or a truncation cut the log off below it";
    Error::new(ErrorKind::Truncated, text).at_lsn(lsn)
}

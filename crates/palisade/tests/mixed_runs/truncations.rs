//! Truncations of both ends, and checkpoints.

use palisade::{ErrorKind, Lsn, Result, Wal};

use crate::run::Run;

impl Run {
    pub(crate) fn truncate_after(&mut self, wal: &Wal) -> Result<()> {
        let Some(rec) = self.some_rec() else { return Ok(()) };
        let last = self.model.recs.iter().rfind(|r| r.end == rec.end).unwrap().clone();
        self.what += &format!(" truncate_after {}", last.lsn);
        if rec.lsn != last.lsn && self.model.head_hi < rec.lsn {
            let e = wal.truncate_after(rec.at()).expect_err("inside a batch");
            if e.kind() != ErrorKind::InvalidArgument {
                return Err(e);
            }
        }
        self.truncate_above(wal, last.end, |wal| wal.truncate_after(last.at()))
    }

    pub(crate) fn truncate_from(&mut self, wal: &Wal) -> Result<()> {
        let Some(rec) = self.some_rec() else { return Ok(()) };
        let first = self.model.recs.iter().position(|r| r.end == rec.end).unwrap();
        let lsn = self.model.recs[first].at();
        self.what += &format!(" truncate_from {lsn}");
        if self.model.gone.last().is_some_and(|gone| gone.end == rec.end) {
            // The first record of its batch lies below the head.
            return Ok(());
        }
        let end = first.checked_sub(1).map_or(self.model.head_lo, |i| self.model.recs[i].end);
        self.truncate_above(wal, end, |wal| wal.truncate_from(lsn))
    }

    fn truncate_above(
        &mut self,
        wal: &Wal,
        end: u64,
        truncate: impl FnOnce(&Wal) -> Result<()>,
    ) -> Result<()> {
        let (was, lo) = (self.model.new_end_may_be, self.model.ckpt_lo);
        self.model.new_end_may_be = Some(end);
        self.model.ckpt_lo = lo.min(end);
        let result = truncate(wal);
        match &result {
            Ok(()) => {
                self.model.truncate_at(end);
                let tail = wal.reserved_lsn().as_u64();
                assert!(tail >= self.model.top);
            }
            Err(e) if self.disk.is_dead() || e.kind() == ErrorKind::Poisoned => {
                if self.capped && !self.fixed.in_place {
                    self.truncates_on_full = true;
                }
            }
            Err(_) => (self.model.new_end_may_be, self.model.ckpt_lo) = (was, lo),
        }
        result
    }

    pub(crate) fn truncate_before(&mut self, wal: &Wal) -> Result<()> {
        let lsn = match self.some_rec() {
            Some(r) if !self.dice.once_in(8) => r.lsn,
            _ => wal.reserved_lsn().as_u64(),
        };
        self.what += &format!(" truncate_before {lsn}");
        self.model.head_hi = self.model.head_hi.max(lsn);
        let result = wal.truncate_before(Lsn::new(lsn));
        if result.is_ok() {
            self.model.is_durable(lsn);
            self.model.head(lsn);
        }
        if !self.disk.is_dead() {
            let head = wal.head_lsn().as_u64();
            self.model.head(head);
            if result.is_ok() {
                assert!(head >= lsn);
                if self.tails.is_empty() {
                    let names = self.disk.files();
                    let s = self.fixed.segment_bytes;
                    for n in names.iter().filter_map(|n| n.strip_prefix("segment-")) {
                        let n: u64 = n.parse().unwrap();
                        assert!((n + 1) * s > head, "segment {n} not freed below {head}");
                    }
                }
            }
        }
        result
    }

    /// Several truncations with something between, then the head.
    pub(crate) fn truncate_at_both_ends(&mut self, wal: &Wal) -> Result<()> {
        for _ in 0..1 + self.dice.below(4) {
            if self.dice.once_in(3) {
                self.truncate_from(wal)?;
            } else {
                self.truncate_after(wal)?;
            }
            if self.dice.once_in(2) {
                self.append_any(wal)?;
            }
        }
        self.truncate_before(wal)
    }

    pub(crate) fn checkpoint(&mut self, wal: &Wal) -> Result<()> {
        let lsn = match self.some_rec() {
            Some(r) if !self.dice.once_in(6) => r.lsn,
            _ => wal.reserved_lsn().as_u64(),
        };
        self.what += &format!("checkpoint {lsn}");
        self.model.ckpt_hi = self.model.ckpt_hi.max(lsn);
        wal.checkpoint(Lsn::new(lsn))?;
        self.model.ckpt_lo = self.model.ckpt_lo.max(lsn);
        self.model.is_durable(lsn.min(self.model.top));
        Ok(())
    }
}

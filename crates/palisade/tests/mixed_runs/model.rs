//! What was appended, as a plain list, and how much of it each kind of crash has to leave.

use palisade::{Lsn, framed_bytes};

use crate::codecs::Chosen;
use crate::numbered::data;

/// A record, alone or in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rec {
    pub(crate) lsn: u64,
    /// Where its append ends: of a batch, the same for all members.
    pub(crate) end: u64,
    pub(crate) tag: u16,
    pub(crate) data: Vec<u8>,
    /// The payload of its frame.
    pub(crate) stored: Vec<u8>,
}

/// What was appended, and what was promised about it.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) codec: Chosen,
    /// All records from the head on.
    pub(crate) recs: Vec<Rec>,
    /// Those below the head.
    pub(crate) gone: Vec<Rec>,
    /// What ends at or below survives loss of power; a reboot in good order; a kill.
    pub(crate) durable: u64,
    pub(crate) os: u64,
    pub(crate) kill: u64,
    /// A truncation of the head that failed leaves either head.
    pub(crate) head_lo: u64,
    pub(crate) head_hi: u64,
    /// Where a truncation of the suffix, whose outcome is not known, would have ended the log.
    pub(crate) new_end_may_be: Option<u64>,
    /// LSNs below were given out; those below `top_durable` are not given again in any case.
    pub(crate) top: u64,
    pub(crate) top_durable: u64,
    /// A checkpoint that failed leaves either one.
    pub(crate) ckpt_lo: u64,
    pub(crate) ckpt_hi: u64,
    /// Truncations of the suffix so far.
    pub(crate) truncations: u64,
    /// Payloads so far: each one begins with its number.
    pub(crate) count: u64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    Kill,
    /// The process dies, and the operating system stops in good order.
    Reboot,
    Power,
}

impl Model {
    /// A payload like no other one, if it has room for its number.
    pub(crate) fn data(&mut self, len: usize) -> Vec<u8> {
        self.count += 1;
        data(self.count, len)
    }

    pub(crate) fn add(&mut self, lsn: u64, end: u64, tag: u16, datas: Vec<Vec<u8>>) {
        let mut at = lsn;
        for data in datas {
            let stored = self.codec.stored(tag, &data);
            at = self.add_rec(Rec { lsn: at, end, tag, data, stored });
        }
        assert!(end >= at);
        self.top = end;
    }

    /// A record that was written in place, and not encoded.
    pub(crate) fn add_in_place(&mut self, lsn: u64, data: Vec<u8>) {
        let end = lsn + framed_bytes(data.len());
        self.top = self.add_rec(Rec { lsn, end, tag: 0, stored: data.clone(), data });
    }

    /// Gives the end of the record itself.
    fn add_rec(&mut self, rec: Rec) -> u64 {
        assert!(rec.lsn >= self.top, "LSN {} given out twice, top {}", rec.lsn, self.top);
        let end = rec.lsn + framed_bytes(rec.stored.len());
        self.recs.push(rec);
        end
    }

    pub(crate) fn is_durable(&mut self, to: u64) {
        self.durable = self.durable.max(to);
        self.top_durable = self.top_durable.max(to);
        self.is_os(to);
    }

    pub(crate) fn is_os(&mut self, to: u64) {
        self.os = self.os.max(to);
        self.kill = self.kill.max(to);
    }

    pub(crate) fn head(&mut self, head: u64) {
        self.head_lo = self.head_lo.max(head);
        self.head_hi = self.head_hi.max(head);
        let k = self.recs.iter().take_while(|r| r.lsn < head).count();
        self.gone.extend(self.recs.drain(..k));
    }

    pub(crate) fn truncate_at(&mut self, end: u64) {
        self.recs.retain(|r| r.end <= end);
        self.durable = self.durable.min(end);
        self.os = self.os.min(end);
        self.kill = self.kill.min(end);
        self.ckpt_lo = self.ckpt_lo.min(end);
        self.is_durable(end);
        self.truncations += 1;
        self.new_end_may_be = None;
    }

    /// All that was appended and not truncated, in LSN order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Rec> {
        self.gone.iter().chain(&self.recs)
    }

    pub(crate) fn promised(&self, crash: Crash) -> u64 {
        match crash {
            Crash::Kill => self.kill,
            Crash::Reboot => self.os,
            Crash::Power => self.durable,
        }
    }

    /// Where the first `n` records end.
    fn end_of(&self, n: usize) -> u64 {
        n.checked_sub(1).map_or(self.head_lo, |i| self.recs[i].end)
    }

    /// An open found the first `n`.
    pub(crate) fn found(&mut self, n: usize, crash: Crash) {
        let promised = self.promised(crash);
        if let Some(missing) = self.recs.get(n) {
            if self.new_end_may_be != Some(self.end_of(n)) {
                assert!(missing.end > promised, "G1: {} missing, promised {promised}", missing.lsn);
            }
            let split = n > 0 && self.recs[n - 1].end == missing.end;
            assert!(!split, "G4: batch to {} in part", missing.end);
        }
        self.recs.truncate(n);
        let end = self.end_of(n);
        (self.durable, self.os, self.kill) = (end, end, end);
        self.new_end_may_be = None;
    }
}

impl Rec {
    pub(crate) fn at(&self) -> Lsn {
        Lsn::new(self.lsn)
    }
}

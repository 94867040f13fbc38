//! What must be in the log: for each thread of a round, which records at which LSNs.
//!
//! A thread appends its records in order, so what is acknowledged is a count and one LSN for each
//! number below it. The LSNs are kept up to a bound; beyond it a digest of all of them still
//! covers every one, in constant memory.

use palisade::Lsn;

use super::check::Found;
use super::content::mix;

/// LSNs that are kept for one round, all threads together: 32 MiB.
const KEPT_LSNS: usize = 4 << 20;

/// One life of the writing process.
#[derive(Debug)]
pub(crate) struct Round {
    /// Counted from 1.
    pub(crate) number: u32,
    /// What the content of this round's records begins from.
    pub(crate) seed: u64,
    /// What each thread must have left.
    pub(crate) threads: Vec<Expected>,
    /// Whether the log was opened since: then exactly this must be there, not at least this.
    pub(crate) is_settled: bool,
    /// Its first record, once it is settled and if it has one.
    pub(crate) first: Option<Lsn>,
}

/// What one thread of a round must have left: its first `count` records.
#[derive(Debug)]
pub(crate) struct Expected {
    lsns: Vec<Lsn>,
    trail: Trail,
    kept: usize,
}

/// A run of LSNs in order: how many, the last, and a digest of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trail {
    /// How many.
    pub(crate) count: u64,
    /// The last one.
    pub(crate) last: Lsn,
    digest: u64,
}

impl Trail {
    /// Goes on with `lsn`.
    pub(crate) fn push(&mut self, lsn: Lsn) {
        self.count += 1;
        self.last = lsn;
        self.digest = mix(self.digest ^ lsn.as_u64()).wrapping_add(self.count);
    }
}

impl Expected {
    /// Nothing yet, for one of `threads` threads.
    pub(crate) fn nothing(threads: u32) -> Expected {
        Expected { lsns: Vec::new(), trail: Trail::default(), kept: KEPT_LSNS / threads as usize }
    }

    /// What was found in the log: what a later opening must find again.
    fn found(trail: Trail) -> Expected {
        Expected { lsns: Vec::new(), trail, kept: 0 }
    }

    /// Takes note that the record number `seq` was acknowledged at `lsn`; false if that is not
    /// the number that comes next.
    #[must_use]
    pub(crate) fn acknowledge(&mut self, seq: u64, lsn: Lsn) -> bool {
        if seq != self.trail.count {
            return false;
        }
        self.trail.push(lsn);
        if self.lsns.len() < self.kept {
            self.lsns.push(lsn);
        }
        true
    }

    /// All that must be there.
    pub(crate) fn trail(&self) -> &Trail {
        &self.trail
    }

    /// Where the record number `seq` must be, if that is still known.
    pub(crate) fn lsn(&self, seq: u64) -> Option<Lsn> {
        let is_last = seq.checked_add(1) == Some(self.trail.count);
        let kept = usize::try_from(seq).ok().and_then(|seq| self.lsns.get(seq).copied());
        kept.or(is_last.then_some(self.trail.last))
    }
}

impl Round {
    /// A round of which nothing was acknowledged yet.
    pub(crate) fn new(number: u32, seed: u64, threads: u32) -> Round {
        let threads = (0..threads).map(|_| Expected::nothing(threads)).collect();
        Round { number, seed, threads, is_settled: false, first: None }
    }

    /// Takes what an opening of the log found as what every later one must find.
    pub(crate) fn settle(&mut self, found: &Found) {
        self.threads = found.threads.iter().copied().map(Expected::found).collect();
        self.first = found.first;
        self.is_settled = true;
    }

    /// How many records were acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.threads.iter().map(|thread| thread.trail.count).sum()
    }
}

//! The check: holds what came back against what was acknowledged, record by record.

use std::fmt;

use palisade::{Lsn, Record};

use super::content::Origin;
use super::ledger::{Expected, Round, Trail};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A record that no round of the demo wrote.
    Foreign { lsn: Lsn, bytes: usize },
    /// A record at or below the one before it, or of an earlier round than the one before it.
    OutOfOrder { record: Place, before: Lsn },
    /// Not the record of this thread that comes next: one is missing or there twice.
    NotNext { record: Place, next_seq: u64, acknowledged: Option<Lsn> },
    /// A record at another LSN than the one that was acknowledged.
    Moved { record: Place, acknowledged: Lsn },
    /// An acknowledged record that is not there; its LSN where it is still known.
    Missing { round: u32, thread: u32, seq: u64, lsn: Option<Lsn>, missing: u64 },
    /// Records of a thread that are not all at the LSNs that were acknowledged.
    MovedSomewhere { round: u32, thread: u32, below_seq: u64 },
    /// More records of an earlier round than its own recovery found.
    Grown { round: u32, thread: u32, found: u64, before: u64 },
}

/// A record of the demo and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) round: u32,
    pub(crate) thread: u32,
    pub(crate) seq: u64,
    pub(crate) lsn: Lsn,
}

/// A pass over all records of the log, in order.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    rounds: &'a [Round],
    record_bytes: usize,
    found: Vec<Found>,
    round: usize,
    last: Option<Lsn>,
}

/// What was found of one round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// Of each thread.
    pub(crate) threads: Vec<Trail>,
    /// The first record.
    pub(crate) first: Option<Lsn>,
}

impl Found {
    /// How many records.
    pub(crate) fn records(&self) -> u64 {
        self.threads.iter().map(|thread| thread.count).sum()
    }
}

impl<'a> Check<'a> {
    /// Begins a pass over a log that holds `rounds`, in this order.
    pub(crate) fn new(rounds: &'a [Round], record_bytes: usize) -> Check<'a> {
        let nothing = |round: &Round| Found {
            threads: vec![Trail::default(); round.threads.len()],
            first: None,
        };
        let found = rounds.iter().map(nothing).collect();
        Check { rounds, record_bytes, found, round: 0, last: None }
    }

    /// Checks the record that comes next in the log.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn record(&mut self, record: &Record<'_>) -> Result<(), Violation> {
        self.bytes(record.lsn(), record.data())
    }

    fn bytes(&mut self, lsn: Lsn, data: &[u8]) -> Result<(), Violation> {
        let foreign = Violation::Foreign { lsn, bytes: data.len() };
        let whole = data.len() == self.record_bytes;
        let origin = Origin::of(data).filter(|_| whole).ok_or(foreign.clone())?;
        let of_seed = |round: &Round| round.seed == origin.seed;
        let index = self.rounds.iter().position(of_seed).ok_or(foreign.clone())?;
        let expected = self.rounds[index].threads.get(origin.thread as usize).ok_or(foreign)?;
        let Origin { thread, seq, .. } = origin;
        let place = Place { round: self.rounds[index].number, thread, seq, lsn };
        if let Some(before) = self.last.filter(|last| *last >= lsn || index < self.round) {
            return Err(Violation::OutOfOrder { record: place, before });
        }
        (self.round, self.last) = (index, Some(lsn));
        let found = &mut self.found[index];
        found.first.get_or_insert(lsn);
        follow(&mut found.threads[thread as usize], expected, place)
    }

    /// Ends the pass: what was found of each round.
    ///
    /// # Errors
    /// One violation for each thread of which something is missing.
    pub(crate) fn finish(self) -> Result<Vec<Found>, Vec<Violation>> {
        let mut violations = Vec::new();
        for (round, found) in self.rounds.iter().zip(&self.found) {
            for (thread, (expected, trail)) in round.threads.iter().zip(&found.threads).enumerate()
            {
                violations.extend(shortfall(round, thread as u32, expected, trail));
            }
        }
        if violations.is_empty() { Ok(self.found) } else { Err(violations) }
    }
}

/// Adds the record at `place` to its thread's trail.
fn follow(trail: &mut Trail, expected: &Expected, place: Place) -> Result<(), Violation> {
    if place.seq != trail.count {
        return Err(Violation::NotNext {
            record: place,
            next_seq: trail.count,
            acknowledged: expected.lsn(trail.count),
        });
    }
    trail.push(place.lsn);
    if let Some(acknowledged) = expected.lsn(place.seq).filter(|lsn| *lsn != place.lsn) {
        return Err(Violation::Moved { record: place, acknowledged });
    }
    if trail.count == expected.trail().count && trail != expected.trail() {
        let Place { round, thread, .. } = place;
        return Err(Violation::MovedSomewhere { round, thread, below_seq: trail.count });
    }
    Ok(())
}

fn shortfall(round: &Round, thread: u32, expected: &Expected, trail: &Trail) -> Option<Violation> {
    let (found, wanted) = (trail.count, expected.trail().count);
    let number = round.number;
    if found < wanted {
        let lsn = expected.lsn(found);
        let missing = wanted - found;
        return Some(Violation::Missing { round: number, thread, seq: found, lsn, missing });
    }
    let is_grown = round.is_settled && found > wanted;
    is_grown.then_some(Violation::Grown { round: number, thread, found, before: wanted })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { round, thread, seq, lsn } = self;
        write!(f, "record {seq} of thread {thread} of round {round} at LSN {lsn}")
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Foreign { lsn, bytes } => {
                write!(f, "foreign: {bytes} bytes at LSN {lsn} were never appended")
            }
            Violation::OutOfOrder { record, before } => {
                write!(f, "out of order: {record} comes after LSN {before}")
            }
            Violation::NotNext { record, next_seq, .. } if record.seq < *next_seq => {
                write!(f, "there twice: {record}; record {next_seq} should follow")
            }
            Violation::NotNext { record, next_seq, acknowledged } => {
                write_missing(f, record.round, record.thread, *next_seq, *acknowledged)?;
                write!(f, "; its next is at LSN {}", record.lsn)
            }
            Violation::Moved { record, acknowledged } => {
                write!(f, "moved: {record} was acknowledged at LSN {acknowledged}")
            }
            Violation::Missing { round, thread, seq, lsn, missing } => {
                write_missing(f, *round, *thread, *seq, *lsn)?;
                write!(f, "; {missing} of this thread are missing at the end")
            }
            Violation::MovedSomewhere { round, thread, below_seq } => {
                write!(f, "moved: of the first {below_seq} records of thread {thread} of ")?;
                write!(f, "round {round}, one is at another LSN than before")
            }
            Violation::Grown { round, thread, found, before } => {
                write!(f, "foreign: thread {thread} of round {round} has {found} records; ")?;
                write!(f, "the recovery of that round found {before}")
            }
        }
    }
}

fn write_missing(
    f: &mut fmt::Formatter<'_>,
    round: u32,
    thread: u32,
    seq: u64,
    acknowledged: Option<Lsn>,
) -> fmt::Result {
    write!(f, "missing: record {seq} of thread {thread} of round {round}")?;
    match acknowledged {
        Some(lsn) => write!(f, ", acknowledged at LSN {lsn}"),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

//! The oracle: what was reported, and whether the log has all of it, and after an open exactly what
//! that open found.
//!
//! A thread appends its records in order, so what it has written is a count and one LSN for each
//! number below it. A digest covers all LSNs in constant memory.

use palisade::Lsn;

use super::child::Ack;
use super::content::{Origin, mix};

/// A run of LSNs in order: how many, the last, and a digest of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trail {
    count: u64,
    last: Lsn,
    digest: u64,
}

impl Trail {
    fn push(&mut self, lsn: Lsn) {
        self.count += 1;
        self.last = lsn;
        self.digest = mix(self.digest ^ lsn.as_u64()).wrapping_add(self.count);
    }
}

/// The records of one run of the writing process: at first those that it reported, then those that
/// an open found.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// Counted from 1.
    pub(crate) number: u32,
    /// What the content of this round's records begins from.
    pub(crate) seed: u64,
    /// The first record that an open found.
    pub(crate) first: Option<Lsn>,
    /// Whether an open found this: then the log must hold exactly this, not at least this.
    is_settled: bool,
    threads: Vec<Trail>,
}

impl Round {
    /// Makes a round of which nothing was acknowledged yet.
    pub(crate) fn new(number: u32, seed: u64, threads: usize) -> Round {
        let threads = vec![Trail::default(); threads];
        Round { number, seed, first: None, is_settled: false, threads }
    }

    /// Notes an acknowledgement; false if it is not the next one of its thread.
    #[must_use]
    pub(crate) fn acknowledge(&mut self, ack: Ack) -> bool {
        let trail = self.threads.get_mut(ack.thread as usize);
        let Some(trail) = trail.filter(|trail| trail.count == ack.seq) else { return false };
        trail.push(ack.lsn);
        true
    }

    /// Returns how many records all threads of the round have.
    pub(crate) fn records(&self) -> u64 {
        self.threads.iter().map(|thread| thread.count).sum()
    }
}

/// A pass over all records of the log, in order.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    rounds: &'a [Round],
    found: Vec<Round>,
    record_bytes: usize,
    /// The round and LSN of the last record.
    last: Option<(usize, Lsn)>,
}

impl<'a> Check<'a> {
    /// Begins a pass over a log that holds `rounds`, in this order.
    pub(crate) fn new(rounds: &'a [Round], record_bytes: usize) -> Check<'a> {
        let nothing = |round: &Round| Round {
            is_settled: true,
            ..Round::new(round.number, round.seed, round.threads.len())
        };
        let found = rounds.iter().map(nothing).collect();
        Check { rounds, found, record_bytes, last: None }
    }

    /// Checks the record that comes next in the log: each of its bytes, its order, and its LSN.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn record(&mut self, lsn: Lsn, data: &[u8]) -> Result<(), String> {
        let origin = Origin::of(data).filter(|_| data.len() == self.record_bytes);
        let index_of = |seed| self.rounds.iter().position(|round| round.seed == seed);
        let known = origin.and_then(|origin| {
            let index = index_of(origin.seed)?;
            let expected = self.rounds[index].threads.get(origin.thread as usize)?;
            Some((index, origin, expected))
        });
        let Some((index, Origin { thread, seq, .. }, expected)) = known else {
            return Err(format!("foreign: {} bytes at LSN {lsn} were never appended", data.len()));
        };
        let of = |seq| record_name(seq, thread, self.rounds[index].number);
        if let Some((_, before)) = self.last.filter(|(round, last)| *last >= lsn || index < *round)
        {
            return Err(format!("out of order: {} at LSN {lsn} follows LSN {before}", of(seq)));
        }
        self.last = Some((index, lsn));
        let found = &mut self.found[index];
        found.first.get_or_insert(lsn);
        let trail = &mut found.threads[thread as usize];
        if seq < trail.count {
            return Err(format!("there twice: {} at LSN {lsn}", of(seq)));
        }
        if seq > trail.count {
            return Err(format!("missing: {}; the next one is at LSN {lsn}", of(trail.count)));
        }
        trail.push(lsn);
        if trail.count == expected.count && trail != expected {
            return Err(format!("moved: {}, or one before it, is at another LSN", of(seq)));
        }
        Ok(())
    }

    /// Ends the pass: what was found of each round, which every later open must find again.
    ///
    /// # Errors
    /// One line for each thread with a missing or a foreign record.
    pub(crate) fn finish(self) -> Result<Vec<Round>, Vec<String>> {
        let mut violations = Vec::new();
        for (round, found) in self.rounds.iter().zip(&self.found) {
            let trails = round.threads.iter().zip(&found.threads);
            for (thread, (expected, Trail { count, .. })) in (0..).zip(trails) {
                let Trail { count: wanted, last, .. } = expected;
                let what = record_name(*count, thread, round.number);
                if count < wanted {
                    let missing = wanted - count;
                    let line = format!("missing: {what}; {missing} in all, the last at LSN {last}");
                    violations.push(line);
                } else if round.is_settled && count > wanted {
                    violations
                        .push(format!("foreign: {what}; an earlier open found {wanted} records"));
                }
            }
        }
        if violations.is_empty() { Ok(self.found) } else { Err(violations) }
    }
}

fn record_name(seq: u64, thread: u32, round: u32) -> String {
    format!("record {seq} of thread {thread} of round {round}")
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

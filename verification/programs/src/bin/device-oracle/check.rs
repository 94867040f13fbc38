//! Compares the records of a log with its ledger.

use std::collections::{BTreeMap, HashMap, HashSet};

use palisade::Lsn;

use crate::content::{Origin, mix};
use crate::ledger::{Entry, Ledger, RecordPlace, Session};
use crate::log::Log;

/// How many violations are named.
const NAMED: usize = 4;

/// The records of a log, by session.
pub(crate) type Found = BTreeMap<Session, BTreeMap<Lsn, RecordPlace>>;

/// Why a check does not hold.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The log could not be read; the ledger may be right.
    Unread(palisade::Error),
    /// The log and the ledger contradict each other.
    Violated(String),
}

/// Derives the seed of the records of `session` from the seed of all sessions.
pub(crate) fn seed_of(seed: u64, session: Session) -> u64 {
    mix(seed ^ mix(u64::from(session)))
}

/// Reads all of `log` and compares it with `ledger`.
///
/// # Errors
/// `Violated`, or the log cannot be read.
pub(crate) fn check(log: &Log, ledger: &Ledger, seed: u64) -> Result<Found, Broken> {
    let mut check = LedgerCheck::new(ledger, seed, log.head());
    log.each(|lsn, data| check.record(lsn, data)).map_err(Broken::Unread)?;
    check.finish()
}

/// A comparison in progress. Takes the records in the order in which the log returns them.
struct LedgerCheck<'a> {
    ledger: &'a Ledger,
    head: Lsn,
    sessions: HashMap<u64, Session>,
    last: Option<(Session, Lsn)>,
    seen: HashSet<(Session, RecordPlace)>,
    found: Found,
    violations: Vec<String>,
}

impl<'a> LedgerCheck<'a> {
    fn new(ledger: &'a Ledger, seed: u64, head: Lsn) -> LedgerCheck<'a> {
        let mut violations = Vec::new();
        if head > ledger.head_may_be {
            violations.push(format!(
                "the log begins at {head}, truncated was below {}",
                ledger.head_may_be
            ));
        }
        let numbers = ledger.sessions.keys();
        LedgerCheck {
            ledger,
            head,
            sessions: numbers.map(|&number| (seed_of(seed, number), number)).collect(),
            last: None,
            seen: HashSet::new(),
            found: Found::new(),
            violations,
        }
    }

    fn record(&mut self, lsn: Lsn, data: &[u8]) {
        let origin = Origin::of(data);
        let session = origin.and_then(|origin| self.sessions.get(&origin.seed).copied());
        let (Some(Origin { thread, seq, .. }), Some(session)) = (origin, session) else {
            let text = format!("foreign: {} bytes at {lsn} were never appended", data.len());
            return self.violations.push(text);
        };
        let name = format!("record {seq} of thread {thread} of session {session} at {lsn}");
        if self.last.is_some_and(|last| last >= (session, lsn)) {
            self.violations.push(format!("out of order: {name}"));
        }
        self.last = Some((session, lsn));
        if !self.seen.insert((session, (thread, seq))) {
            self.violations.push(format!("twice: {name}"));
        }
        if let Some(text) = self.contradiction(session, (thread, seq), lsn) {
            self.violations.push(format!("{text}: {name}"));
        }
        self.found.entry(session).or_default().insert(lsn, (thread, seq));
    }

    /// Returns how a record contradicts the ledger, if it does.
    fn contradiction(
        &self,
        session: Session,
        place: RecordPlace,
        lsn: Lsn,
    ) -> Option<&'static str> {
        let known = self.ledger.sessions.get(&session)?;
        match known.records.get(&lsn) {
            Some(entry) if entry.place == place => None,
            Some(_) => Some("another record is in its place"),
            None if known.is_settled => Some("an earlier open did not report it"),
            // The process died between the append and the line in the ledger.
            None if place.1 == known.next(place.0) => None,
            None => Some("it was appended elsewhere, or never"),
        }
    }

    /// Looks for missing records.
    fn finish(mut self) -> Result<Found, Broken> {
        let nothing = BTreeMap::new();
        for (number, known) in &self.ledger.sessions {
            let found = self.found.get(number).unwrap_or(&nothing);
            let due = known.records.range(self.head..);
            let missing: Vec<(&Lsn, &Entry)> =
                due.filter(|(lsn, _)| !found.contains_key(lsn)).collect();
            let owed: Vec<&Lsn> =
                missing.iter().filter(|(_, entry)| entry.is_owed).map(|(lsn, _)| *lsn).collect();
            if let (Some(first), Some(last)) = (owed.first(), owed.last()) {
                let count = owed.len();
                let text = "acknowledged or reported records are missing";
                self.violations
                    .push(format!("{count} {text}: session {number}, at {first} to {last}"));
            }
            let last = found.last_key_value().map(|(lsn, _)| lsn);
            if let Some((lsn, _)) = missing.first().filter(|(lsn, _)| Some(*lsn) < last) {
                let text = "a record is missing before others that are there";
                self.violations.push(format!("{text}: session {number}, at {lsn}"));
            }
        }
        if self.violations.is_empty() {
            return Ok(self.found);
        }
        let more = self.violations.len().saturating_sub(NAMED);
        self.violations.truncate(NAMED);
        let mut text = self.violations.join("; ");
        if more > 0 {
            text.push_str(&format!("; and {more} more"));
        }
        Err(Broken::Violated(text))
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

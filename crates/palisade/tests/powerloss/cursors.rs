//! Cursors beside their oracle: each record at least once, across every crash.
//!
//! The oracle knows where each cursor may be: where it was saved last, and where it was confirmed
//! since. After a crash the log has to return every record above one of these positions.

use std::collections::BTreeMap;
use std::time::Duration;

use palisade::{Cursor, CursorStatus, Error, ErrorKind, Lsn, Result, Wal, framed_bytes};

use crate::dice::Dice;
use crate::oracle::{Entry, Oracle};
use crate::session::Session;

/// A base is remembered over so many later epochs without records. The state keeps 16 bases: the
/// running epoch's and the head's may be two of them.
const MOST_EMPTY_EPOCHS: u64 = 14;

/// What is known of one cursor.
#[derive(Clone, Debug)]
struct Known {
    max_lag: u64,
    /// What the next save of the state takes over.
    confirmed: Lsn,
    /// Where a crash may leave it.
    may_be: Vec<Lsn>,
    /// Where it began, or a seek went: nothing was returned for it.
    begun: Vec<Lsn>,
    /// Whether it certainly exists: a call that makes or removes it may have failed.
    is_certain: bool,
}

/// What is known of all readers that save where they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursors {
    /// By name.
    named: BTreeMap<String, Known>,
    /// Saved by readers in places of their own.
    watermarks: Vec<Watermark>,
    /// Where the log began after its last repair, which may give up what a cursor keeps.
    pub(crate) repaired_from: Lsn,
}

/// A durable LSN that the log has returned to a reader that has all records below.
#[derive(Clone, Debug)]
struct Watermark {
    at: Lsn,
    last: Option<Lsn>,
    /// How often records had been truncated.
    truncations: u64,
    /// The log remembers the position at least until this epoch.
    last_epoch: u64,
}

impl Known {
    fn confirmed(&mut self, at: Lsn) {
        self.confirmed = at;
        self.may_be.push(at);
    }

    fn saved(&mut self, at: Lsn) {
        (self.confirmed, self.may_be) = (at, vec![at]);
    }
}

/// The position is one at which the cursor cannot continue.
fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Lagged | ErrorKind::Truncated)
}

/// The next record at or above `lsn`, also if the head has passed it.
fn next(oracle: &Oracle, lsn: Lsn) -> Lsn {
    oracle.next_from(lsn).map_or(Lsn::new(u64::MAX), |entry| entry.lsn)
}

impl Session {
    /// A truncation up to `to` moved the head as far as the cursors let it.
    pub(crate) fn check_kept(&self, wal: &Wal, to: Lsn) {
        let (head, end, there) =
            (wal.head_lsn(), wal.reserved_lsn(), wal.cursors().expect("no fork"));
        // What a cursor confirmed last is saved together with the head.
        let confirmed = |status: &CursorStatus| {
            let known = self.cursors.named.get(&status.name)?;
            let (before, after) = (known.confirmed, status.position);
            let is_past = next(&self.oracle, before) == next(&self.oracle, after);
            let at = if is_past { before.max(after) } else { before };
            (known.max_lag > 0).then_some((known.max_lag, at))
        };
        // A cursor lags at least by the records above it: the oracle does not know where an epoch
        // begins.
        let least = |at| self.oracle.bytes_from(at);
        // At most, it lags from its position on, without what the open of this run skipped.
        let report = wal.recovery_report();
        let most = |at: Lsn| {
            let has_lost = at < self.oracle.head.max(self.cursors.repaired_from);
            let skipped = report.base.bytes_since(report.end.max(at));
            end.bytes_since(at) - if has_lost { 0 } else { skipped }
        };
        let confirmed: Vec<(u64, Lsn)> = there.iter().filter_map(confirmed).collect();
        let lowest = |keeps: &dyn Fn(u64, Lsn) -> bool| {
            let kept = confirmed.iter().filter(|&&(max_lag, at)| keeps(max_lag, at));
            kept.map(|&(_, at)| next(&self.oracle, at)).min()
        };
        let at_head = next(&self.oracle, head);
        let may_keep = lowest(&|max_lag, at| least(at) <= max_lag);
        let has_moved = head >= to || may_keep.is_some_and(|lowest| lowest <= at_head);
        assert!(has_moved, "the head is {head}, and nothing keeps it below {to}: {there:?}");
        // A cursor that had lost what it kept may be below the head.
        let has_stayed = head == self.oracle.head;
        let lowest = lowest(&|max_lag, at| most(at) <= max_lag);
        let is_kept = has_stayed || lowest.is_none_or(|lowest| at_head <= lowest);
        assert!(is_kept, "the head {head} passed a cursor at {lowest:?}: {there:?}");
    }
}

impl Session {
    /// A reader that has all that is durable saves where that ends.
    pub(crate) fn note_watermark(&mut self, wal: &Wal) {
        if !self.disk.is_dead() {
            let (at, truncations) = (wal.durable_lsn(), self.oracle.truncations);
            let last = self.oracle.entries().iter().rfind(|entry| entry.lsn < at);
            let last = last.map(|entry| entry.lsn);
            let last_epoch = wal.recovery_report().epoch + MOST_EMPTY_EPOCHS;
            self.cursors.watermarks.push(Watermark { at, last, truncations, last_epoch });
        }
    }

    /// A reader continues at a watermark if nothing below it was truncated.
    fn check_watermarks(&mut self, wal: &Wal) {
        let (oracle, head) = (&self.oracle, wal.head_lsn());
        let epoch = wal.recovery_report().epoch;
        self.cursors.watermarks.retain(|Watermark { at, last, truncations, last_epoch }| {
            let is_there = last.is_none_or(|last| next(oracle, last) == last);
            let is_whole = *truncations == oracle.truncations && is_there;
            *at >= head && epoch <= *last_epoch && is_whole
        });
        for Watermark { at, .. } in &self.cursors.watermarks {
            let mut tail = wal.tail_from(*at).expect("the log has returned it");
            let found = tail.next(Duration::ZERO).expect("it can be read");
            let found = found.map(|record| record.lsn());
            assert_eq!(found.unwrap_or(Lsn::new(u64::MAX)), next(oracle, *at), "from {at} on");
            assert!(wal.resume_lsn(*at).is_ok_and(|to| next(oracle, to) == next(oracle, *at)));
        }
    }

    pub(crate) fn create_cursor(&mut self, wal: &Wal, name: &str, max_lag: u64) -> Result<Cursor> {
        self.working_on = "create_cursor";
        let head = wal.head_lsn();
        let known = Known {
            max_lag,
            confirmed: head,
            may_be: vec![head],
            begun: vec![head],
            is_certain: false,
        };
        self.cursors.named.insert(name.into(), known);
        let created = wal.create_cursor(name, None, max_lag);
        if created.is_ok() {
            self.known(name).is_certain = true;
        }
        created
    }

    pub(crate) fn remove_cursor(&mut self, wal: &Wal, name: &str) -> Result<()> {
        self.working_on = "remove_cursor";
        self.known(name).is_certain = false;
        let removed = wal.remove_cursor(name);
        if removed.is_ok() {
            self.cursors.named.remove(name);
        }
        removed
    }

    fn known(&mut self, name: &str) -> &mut Known {
        self.cursors.named.get_mut(name).expect("the cursor was made")
    }

    /// Takes up to `count` records and confirms them. Returns the error that ended it.
    pub(crate) fn process(&mut self, cursor: &mut Cursor, count: usize) -> Result<()> {
        self.working_on = "cursor";
        for _ in 0..count {
            let from = cursor.position();
            let Some(record) = cursor.next(Duration::ZERO)? else { break };
            let found = (record.lsn(), record.data().to_vec());
            if !self.disk.is_dead() {
                let expected = self.oracle.next_from(from);
                let expected = expected.map(|entry| (entry.lsn, entry.data.clone()));
                assert_eq!(Some(found), expected, "a cursor at {from} returns another record");
            }
        }
        cursor.confirm();
        let position = cursor.position();
        self.known(cursor.name()).confirmed(position);
        Ok(())
    }

    pub(crate) fn save_cursor(&mut self, cursor: &Cursor) -> Result<()> {
        self.working_on = "save a cursor";
        let saved = cursor.save();
        if !saved.as_ref().is_err_and(is_gone) {
            self.known(cursor.name()).confirmed(cursor.position());
        }
        saved?;
        self.known(cursor.name()).saved(cursor.position());
        Ok(())
    }

    pub(crate) fn seek_cursor(&mut self, cursor: &mut Cursor, lsn: Lsn) -> Result<()> {
        self.working_on = "seek";
        let sought = cursor.seek(lsn);
        let known = self.known(cursor.name());
        known.confirmed(cursor.position());
        known.begun.push(cursor.position());
        sought?;
        self.known(cursor.name()).saved(cursor.position());
        Ok(())
    }

    /// Makes, opens, moves, closes or removes some cursor.
    pub(crate) fn step_cursors(
        &mut self,
        wal: &Wal,
        open: &mut Vec<Cursor>,
        dice: &mut Dice,
    ) -> Result<()> {
        let name = dice.pick(&["one", "two", "three"]);
        if let Some(index) = open.iter().position(|cursor| cursor.name() == name) {
            if dice.once_in(8) {
                drop(open.swap_remove(index));
                return Ok(());
            }
            return self.move_cursor(wal, &mut open[index], dice);
        }
        if !wal.cursors().expect("no fork").iter().any(|status| status.name == name) {
            let max_lag = dice.pick(&[0, 6000, 20_000, u64::MAX]);
            open.push(self.create_cursor(wal, name, max_lag)?);
        } else if dice.once_in(4) {
            self.remove_cursor(wal, name)?;
        } else {
            self.working_on = "open a cursor";
            open.push(wal.cursor(name)?);
        }
        Ok(())
    }

    fn move_cursor(&mut self, wal: &Wal, cursor: &mut Cursor, dice: &mut Dice) -> Result<()> {
        let moved = match dice.below(8) {
            0..=1 => self.save_cursor(cursor),
            2 => {
                let lsns = self.oracle.entries().iter().map(|entry| entry.lsn);
                let lsns: Vec<Lsn> = lsns.chain([wal.head_lsn()]).collect();
                self.seek_cursor(cursor, dice.pick(&lsns))
            }
            _ => self.process(cursor, 1 + dice.below(6) as usize),
        };
        let Err(error) = moved else { return Ok(()) };
        let position = cursor.position();
        match error.kind() {
            ErrorKind::Lagged => {
                assert!(position < wal.head_lsn(), "{position}, {}: {error}", wal.head_lsn())
            }
            ErrorKind::Truncated => {
                assert!(!self.is_there(position), "{position}: {error}");
            }
            _ => return Err(error),
        }
        self.seek_cursor(cursor, wal.head_lsn())
    }

    /// Whether a record ends or begins at `position`.
    fn is_there(&self, position: Lsn) -> bool {
        let end = |entry: &Entry| entry.lsn.plus(framed_bytes(entry.stored.len()));
        let mut entries = self.oracle.entries().iter();
        entries.any(|entry| entry.lsn == position || end(entry) == position)
    }

    /// Whether a record below `position` is truncated, and none above it is left.
    fn has_returned_truncated(&self, head: Lsn, position: Lsn) -> bool {
        let below = self.oracle.entries().iter().rfind(|entry| entry.lsn < position);
        let from = below.map_or(head, |entry| entry.lsn).min(position);
        self.oracle.truncated_lsns.range(from..position).next().is_some()
    }

    /// What an open found is what the cursors may be, and each returns what lies above it.
    pub(crate) fn check_cursors(&mut self, wal: &Wal) {
        self.check_watermarks(wal);
        let found = wal.cursors().expect("no fork");
        let names: Vec<&str> = found.iter().map(|status| &status.name[..]).collect();
        for (name, known) in &self.cursors.named {
            let is_there = names.contains(&&name[..]);
            assert!(is_there || !known.is_certain, "the cursor {name} is missing");
        }
        self.cursors.named.retain(|name, _| names.contains(&&name[..]));
        for status in &found {
            self.check_cursor(wal, status);
        }
    }

    fn check_cursor(&mut self, wal: &Wal, status: &CursorStatus) {
        let CursorStatus { name, position, .. } = status;
        let (position, head) = (*position, wal.head_lsn());
        let known = self.known(name);
        let known = known.clone();
        // A cursor that has read up to the head, and found only marks, is saved there.
        let is_past =
            |&at: &Lsn| at < position && next(&self.oracle, at) == next(&self.oracle, position);
        let is_known = known.may_be.contains(&position) || known.may_be.iter().any(is_past);
        assert!(is_known, "{name} is at {position}, and {known:?}");
        let known = self.known(name);
        assert!(!known.is_certain || known.max_lag == status.max_lag, "{status:?}");
        (known.is_certain, known.max_lag) = (true, status.max_lag);
        known.saved(position);
        let begun = known.begun.clone();
        // All that was between may be truncated.
        let has_lost = position < head && next(&self.oracle, position) < head;
        assert!(status.max_lag < u64::MAX || !has_lost, "{status:?} below {head}");
        let may_lag = status.max_lag < u64::MAX || position < self.cursors.repaired_from;
        let mut cursor = wal.cursor(name).expect("nothing fails");
        let mut found = Vec::new();
        let ended = loop {
            match cursor.next(Duration::ZERO) {
                Ok(Some(record)) => found.push((record.lsn(), record.data().to_vec())),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let refusal = ended.as_ref().map(Error::kind);
        let fits = match refusal {
            Some(ErrorKind::Lagged) => position < head && may_lag,
            Some(ErrorKind::Truncated) => position != head && !self.is_there(position),
            Some(_) => false,
            // The head moved over no record.
            None if position < head => next(&self.oracle, position) >= head,
            None => {
                let is_there = begun.contains(&position) || self.is_there(position);
                position == head
                    || is_there
                    || position > head && !self.has_returned_truncated(head, position)
            }
        };
        let above = self.oracle.entries().iter().filter(|entry| entry.lsn >= position);
        let above = above.map(|entry| (entry.lsn, entry.data.clone()));
        let expected: Vec<_> = if refusal.is_some() { Vec::new() } else { above.collect() };
        let lsns = |found: &[(Lsn, Vec<u8>)]| found.iter().map(|one| one.0).collect::<Vec<_>>();
        assert!(
            found == expected && fits,
            "{name} at {position}, head {head}: {:?}, then {ended:?}; expected {:?}",
            lsns(&found),
            lsns(&expected),
        );
    }
}

//! The records that the log must and may hold, in a file on a healthy disk.
//!
//! A writer thread writes each line with one call before it goes on, so the ledger survives the
//! death of the process. The lines:
//!
//! ```text
//! s SESSION              an open returned Ok; the next lines are about this session
//! r THREAD SEQ LSN       a record was appended
//! a THREAD SEQ LSN       a record was appended and acknowledged as durable
//! d LSN                  all records of the session below LSN are durable
//! c LSN                  a truncation of all below LSN begins
//! u SESSION THREAD SEQ LSN   an open found a record that has no line yet
//! k SESSION LAST         an open reported the session's records up to LAST, or none: `-`
//! ```

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use palisade::Lsn;

/// The number of an open that returned Ok, counted from 1.
pub(crate) type Session = u32;

/// A record within its session: thread and number within the thread.
pub(crate) type RecordPlace = (u32, u64);

/// The records of one session.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// By LSN.
    pub(crate) records: BTreeMap<Lsn, Entry>,
    /// The number of each thread's next record.
    next: BTreeMap<u32, u64>,
    /// Whether a later open has reported them: then exactly these must be there.
    pub(crate) is_settled: bool,
}

/// A record that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) place: RecordPlace,
    /// Whether it was acknowledged or reported.
    pub(crate) is_owed: bool,
}

impl Known {
    /// Returns the number of the next record of `thread`.
    pub(crate) fn next(&self, thread: u32) -> u64 {
        self.next.get(&thread).copied().unwrap_or(0)
    }

    fn note(&mut self, place: RecordPlace, lsn: Lsn, is_owed: bool) {
        let next = self.next.entry(place.0).or_insert(0);
        *next = (*next).max(place.1 + 1);
        let entry = self.records.entry(lsn).or_insert(Entry { place, is_owed });
        entry.is_owed |= is_owed;
    }
}

/// All sessions, in memory and in the file.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    pub(crate) sessions: BTreeMap<Session, Known>,
    /// The highest LSN that a truncation was asked for.
    pub(crate) head_may_be: Lsn,
}

impl Ledger {
    /// Reads the ledger in `path`, or begins one.
    ///
    /// # Errors
    /// The file cannot be read, or holds a line that is none of a ledger's.
    pub(crate) fn open(path: &Path) -> io::Result<Ledger> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let text = std::fs::read_to_string(path)?;
        let mut ledger = Ledger { file, sessions: BTreeMap::new(), head_may_be: Lsn::ZERO };
        // The process died while it wrote a line without an end.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            ledger.take(&words).ok_or_else(|| io::Error::other(format!("garbled line: {line}")))?;
        }
        Ok(ledger)
    }

    /// Returns the running session's number; 0 before the first.
    pub(crate) fn session(&self) -> Session {
        self.sessions.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Returns the number of the next record of `thread` in the running session.
    pub(crate) fn next(&self, thread: u32) -> u64 {
        self.sessions.last_key_value().map_or(0, |(_, known)| known.next(thread))
    }

    /// Returns the LSN of the owed record that lies `percent` of the way from the first owed one at
    /// or above `head` to the last; `None` if none is owed.
    pub(crate) fn owed_at(&self, percent: u64, head: Lsn) -> Option<Lsn> {
        let all = self.sessions.values().flat_map(|known| known.records.range(head..));
        let owed: Vec<Lsn> = all.filter(|(_, entry)| entry.is_owed).map(|(lsn, _)| *lsn).collect();
        let last = owed.len().checked_sub(1)?;
        owed.get((last as u64 * percent.min(100) / 100) as usize).copied()
    }

    /// Begins a session.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn begin_session(&mut self) -> io::Result<()> {
        let number = self.session() + 1;
        self.write(&format!("s {number}\n"))
    }

    /// Notes a record of the running session.
    pub(crate) fn note(&mut self, place: RecordPlace, lsn: Lsn, is_owed: bool) -> io::Result<()> {
        let kind = if is_owed { 'a' } else { 'r' };
        self.write(&format!("{kind} {} {} {}\n", place.0, place.1, lsn.as_u64()))
    }

    /// Notes that all records of the running session below `lsn` are durable.
    pub(crate) fn durable(&mut self, lsn: Lsn) -> io::Result<()> {
        self.write(&format!("d {}\n", lsn.as_u64()))
    }

    /// Notes that a truncation is about to be asked for.
    pub(crate) fn may_truncate(&mut self, lsn: Lsn) -> io::Result<()> {
        self.write(&format!("c {}\n", lsn.as_u64()))
    }

    /// Notes the records that an open reported, by session. From now on exactly these are owed.
    pub(crate) fn settle(
        &mut self,
        found: &BTreeMap<Session, BTreeMap<Lsn, RecordPlace>>,
    ) -> io::Result<()> {
        let mut lines = String::new();
        for (number, known) in &self.sessions {
            let records = found.get(number);
            for (lsn, (thread, seq)) in records.into_iter().flatten() {
                if !known.records.contains_key(lsn) {
                    lines.push_str(&format!("u {number} {thread} {seq} {}\n", lsn.as_u64()));
                }
            }
            let last = records.and_then(|records| records.last_key_value());
            match last {
                Some((last, _)) => lines.push_str(&format!("k {number} {}\n", last.as_u64())),
                None => lines.push_str(&format!("k {number} -\n")),
            }
        }
        self.write(&lines)
    }

    /// Writes all of `lines` with one call.
    fn write(&mut self, lines: &str) -> io::Result<()> {
        self.file.write_all(lines.as_bytes())?;
        for line in lines.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            self.take(&words).ok_or_else(|| io::Error::other(format!("garbled line: {line}")))?;
        }
        Ok(())
    }

    /// Takes one line; `None` if it is none of a ledger's.
    fn take(&mut self, words: &[&str]) -> Option<()> {
        let lsn = |word: &str| word.parse().ok().map(Lsn::new);
        match *words {
            ["s", number] => {
                self.sessions.insert(number.parse().ok()?, Known::default());
            }
            [kind @ ("r" | "a"), thread, seq, at] => {
                let place = (thread.parse().ok()?, seq.parse().ok()?);
                let mut running = self.sessions.last_entry()?;
                running.get_mut().note(place, lsn(at)?, kind == "a");
            }
            ["d", below] => {
                let mut running = self.sessions.last_entry()?;
                let records = running.get_mut().records.range_mut(..lsn(below)?);
                records.for_each(|(_, entry)| entry.is_owed = true);
            }
            ["c", at] => self.head_may_be = self.head_may_be.max(lsn(at)?),
            ["u", number, thread, seq, at] => {
                let known = self.sessions.get_mut(&number.parse().ok()?)?;
                known.note((thread.parse().ok()?, seq.parse().ok()?), lsn(at)?, true);
            }
            ["k", number, last] => {
                let known = self.sessions.get_mut(&number.parse().ok()?)?;
                let last = if last == "-" { None } else { Some(lsn(last)?) };
                known.records.retain(|lsn, _| Some(*lsn) <= last);
                known.records.values_mut().for_each(|entry| entry.is_owed = true);
                known.is_settled = true;
            }
            _ => return None,
        }
        Some(())
    }
}

//! What a caller holds on to while the log is truncated, released and closed: tickets, iterators
//! and followers of the tail, each with what the oracle says that it has to give.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use palisade::{Cursor, Error, ErrorKind, Lsn, Records, Result, Tail, Ticket, Wal};

use crate::dice::Dice;
use crate::oracle::Oracle;
use crate::session::Session;

/// Records that a reader is asked for at one time, at most.
const MOST_READ: u64 = 12;

/// How a reader came by its records.
#[derive(Debug)]
enum Source {
    /// Ends at the end that the log had then.
    Iterator(Records, Lsn),
    Tail(Tail),
}

/// A reader, and where it is.
#[derive(Debug)]
struct Reader {
    source: Source,
    /// The last record that it gave.
    last: Option<Lsn>,
    /// Its next record lies at or above.
    from: Lsn,
    /// How often records had been truncated when it began.
    truncations: u64,
}

/// Everything that is held in one run.
#[derive(Debug, Default)]
pub(crate) struct Held {
    tickets: Vec<Ticket<'static>>,
    readers: Vec<Reader>,
    pub(crate) cursors: Vec<Cursor>,
}

impl Held {
    /// Lets go of everything: what keeps the log open, and segments in it.
    pub(crate) fn clear(&mut self) {
        self.tickets.clear();
        self.readers.clear();
        self.cursors.clear();
    }

    pub(crate) fn keep(&mut self, ticket: Ticket<'static>) {
        self.tickets.push(ticket);
    }

    /// Another reader from the head, or from some record, on.
    pub(crate) fn read(&mut self, session: &Session, wal: &Wal, dice: &mut Dice) -> Result<()> {
        let oracle = &session.oracle;
        let entries = oracle.entries();
        let index = dice.below(entries.len() as u64 * 2 + 1) as usize;
        let from = entries.get(index).map(|entry| entry.lsn);
        let source = match (dice.below(3), from) {
            (0, Some(from)) => Source::Iterator(wal.records_from(from)?, wal.reserved_lsn()),
            (0, None) => Source::Iterator(wal.records()?, wal.reserved_lsn()),
            (_, Some(from)) => Source::Tail(wal.tail_from(from)?),
            (_, None) => Source::Tail(wal.tail()?),
        };
        let from = from.unwrap_or(wal.head_lsn());
        self.readers.push(Reader { source, last: None, from, truncations: oracle.truncations });
        Ok(())
    }

    /// Asks some ticket and some reader; a reader that has come to its end goes.
    pub(crate) fn ask(&mut self, session: &mut Session, wal: &Wal, dice: &mut Dice) -> Result<()> {
        session.working_on = "held ticket";
        if !self.tickets.is_empty() {
            let index = dice.below(self.tickets.len() as u64) as usize;
            let ticket = &mut self.tickets[index];
            check_now(ticket, session, dice.once_in(2));
            if dice.once_in(2) {
                check_wait(ticket, session)?;
            }
        }
        session.working_on = "held reader";
        if !self.readers.is_empty() {
            let index = dice.below(self.readers.len() as u64) as usize;
            let count = 1 + dice.below(MOST_READ);
            if !self.readers[index].advance(session, wal, count) {
                self.readers.swap_remove(index);
            }
        }
        Ok(())
    }

    /// Asks everything, without a wait.
    pub(crate) fn ask_all(&mut self, session: &mut Session, wal: &Wal) {
        for ticket in &mut self.tickets {
            check_now(ticket, session, true);
        }
        self.readers.retain_mut(|reader| reader.advance(session, wal, MOST_READ));
    }
}

/// What a ticket says without a wait; a poll only where no thread of the log has to work for it.
fn check_now(ticket: &mut Ticket<'static>, session: &mut Session, polls: bool) {
    let (lsn, end) = (ticket.lsn(), ticket.end_lsn());
    let is_durable = ticket.is_durable();
    let is_truncated = session.oracle.is_truncated(lsn);
    assert!(!(is_truncated && is_durable), "the record at {lsn} is truncated, and durable");
    let waited = ticket.wait_timeout(Duration::ZERO);
    if is_truncated {
        assert_truncated(lsn, waited.map(drop));
    } else {
        assert!(!is_durable || waited.is_ok_and(|waited| waited), "{lsn} was durable before");
    }
    if polls && (is_truncated || is_durable) {
        match Pin::new(&mut *ticket).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(polled) if is_truncated => assert_truncated(lsn, polled.map(drop)),
            Poll::Ready(polled) => assert_eq!(polled.ok(), Some(lsn), "it was durable before"),
            Poll::Pending => panic!("the record at {lsn} is truncated or durable, and waited for"),
        }
    }
    if is_durable && !session.oracle.is_in_doubt() {
        session.oracle.promise(end);
    }
}

fn check_wait(ticket: &Ticket<'static>, session: &mut Session) -> Result<()> {
    let (lsn, end) = (ticket.lsn(), ticket.end_lsn());
    let waited = ticket.wait();
    if session.oracle.is_truncated(lsn) {
        assert_truncated(lsn, waited.map(drop));
        return Ok(());
    }
    assert_eq!(waited?, lsn);
    if !session.oracle.is_in_doubt() {
        session.oracle.promise(end);
    }
    Ok(())
}

/// The record at `lsn` is truncated: nothing but `Truncated` may be said of it.
pub(crate) fn assert_truncated(lsn: Lsn, said: Result<()>) {
    let kind = said.as_ref().err().map(palisade::Error::kind);
    assert_eq!(kind, Some(ErrorKind::Truncated), "the record at {lsn} is truncated");
}

impl Reader {
    /// Takes up to `count` records; false if there will be no more.
    fn advance(&mut self, session: &Session, wal: &Wal, count: u64) -> bool {
        let oracle = &session.oracle;
        for _ in 0..count {
            let found = match &mut self.source {
                Source::Iterator(records, _) => records.next(),
                Source::Tail(tail) => tail.next(Duration::ZERO),
            };
            let found =
                found.map(|found| found.map(|record| (record.lsn(), record.data().to_vec())));
            if session.disk.is_dead() || oracle.is_in_doubt() {
                // Whatever it says: the log is poisoned, and the next open tells.
                return false;
            }
            match found {
                Ok(Some((lsn, data))) => self.check_given(oracle, wal, lsn, &data),
                Ok(None) => {
                    self.check_has_all(oracle, wal);
                    return !matches!(self.source, Source::Iterator(..));
                }
                Err(error) => {
                    self.check_ended(session, &error);
                    return false;
                }
            }
        }
        true
    }

    fn name(&self) -> String {
        let kind = match self.source {
            Source::Iterator(..) => "an iterator",
            Source::Tail(_) => "a tail",
        };
        format!("{kind}, which has given {:?} and comes to {}", self.last, self.from)
    }

    /// Whether what it gave last is truncated, or what it was to begin with.
    fn has_given_truncated_records(&self, oracle: &Oracle) -> bool {
        oracle.is_truncated(self.last.unwrap_or(self.from))
    }

    /// Where the records end that it has to give: there are none at or above.
    fn end(&self, wal: &Wal) -> Lsn {
        match &self.source {
            Source::Iterator(_, end) => *end,
            Source::Tail(_) => wal.durable_lsn(),
        }
    }

    fn check_given(&mut self, oracle: &Oracle, wal: &Wal, lsn: Lsn, data: &[u8]) {
        assert!(
            !oracle.is_truncated(lsn),
            "a reader gives the record at {lsn}, which is truncated"
        );
        let goes_beyond = self.last.is_some() && self.has_given_truncated_records(oracle);
        assert!(!goes_beyond, "{} goes on beyond a truncation, at {lsn}", self.name());
        let expected = oracle.next_from(self.from).map(|entry| (entry.lsn, &entry.data[..]));
        assert_eq!(Some((lsn, data)), expected, "{} gives another record", self.name());
        let end = oracle.next_from(self.from).map(|entry| entry.end);
        assert!(end <= Some(self.end(wal)), "{} gives a record too early", self.name());
        (self.last, self.from) = (Some(lsn), lsn.plus(1));
    }

    fn check_has_all(&self, oracle: &Oracle, wal: &Wal) {
        let is_at_its_end = matches!(self.source, Source::Iterator(..)) || self.last.is_none();
        let is_truncated = self.has_given_truncated_records(oracle);
        assert!(is_at_its_end || !is_truncated, "{} says nothing of a truncation", self.name());
        let missing = oracle.next_from(self.from).filter(|entry| entry.end <= self.end(wal));
        assert!(missing.is_none(), "{} leaves out {missing:?}", self.name());
    }

    fn check_ended(&self, session: &Session, error: &Error) {
        let oracle = &session.oracle;
        let is_truncated = match self.source {
            Source::Iterator(..) => oracle.truncations > self.truncations,
            _ => self.has_given_truncated_records(oracle),
        };
        let fits = match error.kind() {
            ErrorKind::Truncated => is_truncated,
            ErrorKind::NoSpace => matches!(self.source, Source::Iterator(..)),
            ErrorKind::Closed | ErrorKind::Poisoned => true,
            ErrorKind::Io => session.disk.is_shut_down(),
            _ => session.is_unreadable(error),
        };
        assert!(fits, "{} ends with {error:?}", self.name());
    }
}

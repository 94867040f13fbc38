//! Readers of a running log: iterators, tails that stay open from step to step, tickets.

use std::time::Duration;

use palisade::{ErrorKind, Record, Result, Tail, Wal};

use crate::run::Run;

/// A tail that was opened in an earlier step.
#[derive(Debug)]
pub(crate) struct Follower {
    tail: Tail,
    /// No record below has to come any more.
    from: u64,
    /// The truncations of the log when it was opened.
    truncations: u64,
}

impl Run {
    pub(crate) fn read(&mut self, wal: &Wal) -> Result<()> {
        self.what += " read";
        let mut records = wal.records()?;
        let mut i = 0;
        while let Some(r) = records.next()? {
            let w = &self.model.recs.get(i);
            assert!(
                w.is_some_and(|w| w.lsn == r.lsn().as_u64() && w.data == r.data()),
                "read {} want {:?}",
                r.lsn(),
                w.map(|w| w.lsn)
            );
            i += 1;
        }
        assert_eq!(i, self.model.recs.len(), "iter ends early");
        Ok(())
    }

    pub(crate) fn step_tails(&mut self, wal: &Wal) -> Result<()> {
        self.what += " tail";
        if self.tails.len() < 2 && self.dice.once_in(2) {
            let (tail, from) = match self.some_rec() {
                Some(r) => (wal.tail_from(r.at())?, r.lsn),
                None => (wal.tail()?, wal.head_lsn().as_u64()),
            };
            self.tails.push(Follower { tail, from, truncations: self.model.truncations });
        }
        for mut follower in std::mem::take(&mut self.tails) {
            let steps = self.dice.below(6);
            if self.follow(wal, &mut follower, steps) {
                self.tails.push(follower);
            }
        }
        Ok(())
    }

    /// Says whether the tail goes on.
    fn follow(&self, wal: &Wal, follower: &mut Follower, steps: u64) -> bool {
        for _ in 0..steps {
            match follower.tail.next(Duration::ZERO) {
                Ok(Some(r)) => {
                    follower.from = self.check_followed(wal, follower.from, &r);
                }
                Ok(None) => {
                    self.check_nothing_left_out(wal, follower);
                    break;
                }
                Err(e) => {
                    let fits = match e.kind() {
                        ErrorKind::Truncated => self.model.truncations > follower.truncations,
                        ErrorKind::Poisoned | ErrorKind::Io => self.faults || self.disk.is_dead(),
                        _ => self.disk.is_dead() || self.is_unreadable(&e),
                    };
                    assert!(fits, "tail: {e:?}");
                    return false;
                }
            }
        }
        true
    }

    /// The record has to be the next one; gives the place behind it.
    fn check_followed(&self, wal: &Wal, from: u64, r: &Record<'_>) -> u64 {
        let next = self.model.all().find(|w| w.lsn >= from);
        let w = next.unwrap_or_else(|| panic!("tail gives {}, nothing there", r.lsn()));
        assert_eq!((w.lsn, &w.data[..]), (r.lsn().as_u64(), r.data()), "tail");
        assert!(w.end <= wal.durable_lsn().as_u64(), "tail gives undurable");
        w.lsn + 1
    }

    fn check_nothing_left_out(&self, wal: &Wal, follower: &Follower) {
        let to = wal.durable_lsn();
        if follower.truncations == self.model.truncations && !self.faults && !self.disk.is_dead() {
            let next = self.model.all().find(|w| w.lsn >= follower.from);
            assert!(next.is_none_or(|w| w.end > to.as_u64()), "tail leaves out {next:?}");
        }
    }

    pub(crate) fn ask_tickets(&mut self) -> Result<()> {
        self.what += " ticket";
        if self.tickets.is_empty() {
            return Ok(());
        }
        let i = self.dice.below(self.tickets.len() as u64) as usize;
        let t = self.tickets.swap_remove(i);
        let lsn = t.lsn().as_u64();
        let is_there = self.model.all().any(|r| r.lsn == lsn);
        let r = t.wait();
        match &r {
            Ok(l) => {
                assert!(is_there && l.as_u64() == lsn, "a truncated record acknowledged");
                self.model.is_durable(t.end_lsn().as_u64().min(self.model.top));
            }
            Err(e) if e.kind() == ErrorKind::Truncated => assert!(!is_there, "{e}"),
            Err(_) => return r.map(drop),
        }
        Ok(())
    }
}

//! The steps of a run: one is rolled, done, and held against the model.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use palisade::{Result, Wal};

use crate::model::Rec;
use crate::run::Run;

impl Run {
    /// Says whether the log goes on.
    pub(crate) fn step(&mut self, wal: &Wal) -> bool {
        self.what.clear();
        let done = match self.dice.below(if self.fixed.threads { 34 } else { 27 }) {
            0..=7 => self.append_any(wal),
            8 => self.commit(wal),
            9 => self.sync(wal),
            10 => self.flush(wal),
            11 => self.wait_durable(wal),
            12 if self.fixed.threads => self.ask_for_a_call(wal),
            // So that there are segments between those that an open looks at.
            13..=17 if self.fixed.closes && !self.dice.once_in(4) => self.append_any(wal),
            13..=14 => self.truncate_before(wal),
            15 => self.truncate_after(wal),
            16 => self.truncate_from(wal),
            17 => self.truncate_at_both_ends(wal),
            18 => self.checkpoint(wal),
            19 => self.read(wal),
            20..=21 => self.step_tails(wal),
            22 => self.ask_tickets(),
            23 => return self.full_disk(wal),
            24 if self.fixed.threads => self.threads(wal),
            26 => {
                self.look_meanwhile(wal);
                Ok(())
            }
            27..=30 => self.threads_against_a_truncation(wal),
            31..=33 => self.threads_against_a_full_disk(wal),
            _ => self.get(wal),
        };
        self.took(wal, done)
    }

    /// Some record, more often than not a late one.
    pub(crate) fn some_rec(&mut self) -> Option<Rec> {
        let n = self.model.recs.len() as u64;
        if n == 0 {
            return None;
        }
        let back =
            if self.dice.once_in(2) { self.dice.below(n.min(5)) } else { self.dice.below(n) };
        Some(self.model.recs[(n - 1 - back) as usize].clone())
    }

    /// The last record of some append: of a batch, its last member.
    pub(crate) fn some_last_rec(&mut self) -> Option<Rec> {
        let rec = self.some_rec()?;
        self.model.recs.iter().rfind(|r| r.end == rec.end).cloned()
    }

    fn commit(&mut self, wal: &Wal) -> Result<()> {
        self.what += "commit";
        let len = self.len(wal);
        let data = self.model.data(len);
        let got = wal.commit(&data);
        let bytes = self.fixed.codec.framed(0, &data);
        let both = got.map(|lsn| (lsn.as_u64(), lsn.as_u64() + bytes));
        self.noted(wal, both, 0, vec![data])?;
        self.model.is_durable(self.model.top);
        Ok(())
    }

    fn sync(&mut self, wal: &Wal) -> Result<()> {
        self.what += "sync";
        wal.sync()?;
        self.model.is_durable(self.model.top);
        Ok(())
    }

    fn flush(&mut self, wal: &Wal) -> Result<()> {
        let Some(rec) = self.some_rec() else { return Ok(()) };
        self.what += "flush";
        wal.flush_to_os(rec.at())?;
        if !self.disk.is_dead() {
            self.model.is_os(rec.end);
        }
        Ok(())
    }

    fn wait_durable(&mut self, wal: &Wal) -> Result<()> {
        let Some(rec) = self.some_rec() else { return Ok(()) };
        self.what += "wait_durable";
        wal.wait_durable(rec.at())?;
        self.model.is_durable(rec.end);
        Ok(())
    }

    fn ask_for_a_call(&mut self, wal: &Wal) -> Result<()> {
        let Some(rec) = self.some_rec() else { return Ok(()) };
        self.what += "on_durable";
        let (acked, lsn) = (Arc::clone(&self.acked), rec.lsn);
        let handle = wal.clone();
        wal.on_durable(rec.at(), move |result| {
            if result.is_ok() {
                acked.fetch_max(lsn + 1, Ordering::SeqCst);
            }
            drop(handle);
        })
    }

    fn look_meanwhile(&mut self, wal: &Wal) {
        self.what += "look";
        if !self.faults && !self.disk.is_dead() && !self.fixed.threads {
            self.look(wal.written_lsn().as_u64());
        }
    }

    fn get(&mut self, wal: &Wal) -> Result<()> {
        let Some(rec) = self.some_rec() else { return Ok(()) };
        self.what += "get";
        let found = wal.get(rec.at())?;
        assert_eq!((found.data(), found.tag()), (&rec.data[..], rec.tag));
        Ok(())
    }
}

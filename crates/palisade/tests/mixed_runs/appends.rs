//! Every form of append, noted in the model.

use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};

use palisade::{ErrorKind, Result, SyncPolicy, Ticket, Wal};

use crate::run::Run;

impl Run {
    /// Puts an append into the model, if it has its place, and checks what its return promises.
    pub(crate) fn noted(
        &mut self,
        wal: &Wal,
        got: Result<(u64, u64)>,
        tag: u16,
        datas: Vec<Vec<u8>>,
    ) -> Result<()> {
        let (lsn, end, result) = match got {
            Ok((lsn, end)) => (lsn, end, Ok(())),
            Err(e) => match e.appended_lsn() {
                Some(lsn) => {
                    let framed = |d: &Vec<u8>| self.fixed.codec.framed(tag, d);
                    let bytes: u64 = datas.iter().map(framed).sum();
                    (lsn.as_u64(), lsn.as_u64() + bytes, Err(e))
                }
                None => return Err(e),
            },
        };
        self.model.add(lsn, end, tag, datas);
        self.promised(wal, end, result)
    }

    /// What the return of an append whose records end at `end` promises.
    fn promised(&mut self, wal: &Wal, end: u64, result: Result<()>) -> Result<()> {
        if !self.disk.is_dead() {
            if wal.stats().appends_survive_kill {
                self.model.kill = self.model.kill.max(end);
            }
            if self.opening.policy == SyncPolicy::Always && result.is_ok() {
                assert!(wal.durable_lsn().as_u64() >= end, "Always: append returned");
            }
            if self.opening.policy == SyncPolicy::Os && result.is_ok() {
                assert!(wal.written_lsn().as_u64() >= end, "Os: append returned");
            }
        }
        result
    }

    /// A length, more often than not a short one.
    pub(crate) fn len(&mut self, wal: &Wal) -> usize {
        let max = (wal.max_record_bytes() - self.fixed.codec.overhead_bytes()) as u64;
        let d = &mut self.dice;
        (match d.below(16) {
            0 => 0,
            1 => max - d.below(9),
            2..=3 => d.below(max + 1),
            4 => 4096 - 24 - d.below(64),
            _ => d.below(180),
        })
        .min(max) as usize
    }

    pub(crate) fn append_any(&mut self, wal: &Wal) -> Result<()> {
        let len = self.len(wal);
        let data = self.model.data(len);
        let both = |t: Ticket<'_>| (t.lsn().as_u64(), t.end_lsn().as_u64());
        match self.dice.below(9) {
            0 => {
                self.what += " tagged";
                let tag = self.dice.next() as u16;
                let got = wal.append_tagged(tag, &data).map(both);
                self.noted(wal, got, tag, vec![data])
            }
            1 => {
                self.what += " vectored";
                let k = len / 3;
                let parts = [IoSlice::new(&data[..k]), IoSlice::new(&[]), IoSlice::new(&data[k..])];
                let tag = self.dice.below(3) as u16;
                let got = wal.append_vectored_tagged(tag, &parts).map(both);
                self.noted(wal, got, tag, vec![data])
            }
            2 => self.append_with(wal, data),
            3 | 4 => {
                self.what += " batch";
                let k = 1 + self.dice.below(5);
                let lens: Vec<usize> = (0..k).map(|_| self.dice.below(150) as usize).collect();
                let datas: Vec<Vec<u8>> = lens.into_iter().map(|l| self.model.data(l)).collect();
                let refs: Vec<&[u8]> = datas.iter().map(Vec::as_slice).collect();
                let got = wal.append_batch(&refs).map(|t| (t.lsn().as_u64(), t.end_lsn().as_u64()));
                self.noted(wal, got, 0, datas)
            }
            5 => {
                self.what += " try";
                let got = wal.try_append(&data).map(both);
                if got.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoRoom) {
                    return Ok(());
                }
                self.noted(wal, got, 0, vec![data])
            }
            _ => {
                self.what += " append";
                let ticket = wal.append(&data).map(Ticket::detach);
                let got = ticket.as_ref().map(|t| (t.lsn().as_u64(), t.end_lsn().as_u64()));
                let got = got.map_err(Clone::clone);
                self.noted(wal, got, 0, vec![data])?;
                self.tickets.push(ticket?);
                Ok(())
            }
        }
    }

    /// The closure may kill the process, or panic: the range becomes padding.
    fn append_with(&mut self, wal: &Wal, data: Vec<u8>) -> Result<()> {
        if self.fixed.codec.encodes_all() {
            let got = wal.append(&data).map(|t| (t.lsn().as_u64(), t.end_lsn().as_u64()));
            return self.noted(wal, got, 0, vec![data]);
        }
        self.what += " with";
        let how = self.dice.below(8);
        let (disk, len) = (self.disk.clone(), data.len());
        let got = catch_unwind(AssertUnwindSafe(|| {
            let appended = wal.append_with(len, |_, bytes| {
                bytes[..len / 2].copy_from_slice(&data[..len / 2]);
                match how {
                    0 => disk.kill(),
                    1 => std::panic::resume_unwind(Box::new(())),
                    _ => {}
                }
                bytes[len / 2..].copy_from_slice(&data[len / 2..]);
            });
            appended.map(|t| t.lsn().as_u64())
        }));
        let (lsn, result) = match got {
            Ok(Ok(lsn)) if how != 0 => (lsn, Ok(())),
            Ok(Err(e)) if how != 0 => (e.appended_lsn().ok_or_else(|| e.clone())?.as_u64(), Err(e)),
            _ => return Ok(()),
        };
        self.model.add_in_place(lsn, data);
        self.promised(wal, self.model.top, result)
    }
}

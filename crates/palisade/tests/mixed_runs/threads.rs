//! Threads that append at the same time, beside a truncation or a full disk, too.

use palisade::sim::SimDisk;
use palisade::{Error, ErrorKind, Lsn, Result, Wal};

use crate::codecs::Chosen;
use crate::run::Run;

/// What one thread appends: how, and which bytes.
type Plan = Vec<(u64, Vec<u8>)>;

/// An append that returned, in a thread.
struct Returned {
    got: Result<Lsn>,
    data: Vec<u8>,
    /// The process was there after it.
    alive: bool,
    acked: bool,
}

/// An append that has its place in the log.
struct Placed {
    lsn: u64,
    data: Vec<u8>,
    alive: bool,
    acked: bool,
}

impl Run {
    pub(crate) fn threads(&mut self, wal: &Wal) -> Result<()> {
        self.what += " threads";
        let promises = self.kills_take_no_append(wal);
        let plans = self.plans(wal, 5);
        let results = append_all(wal, &self.disk, plans, false, || {});
        let (all, bad) = placed(results, |_| false);
        for append in all {
            self.keep(append, promises);
        }
        bad.map_or(Ok(()), Err)
    }

    /// Threads append while this one truncates the log.
    pub(crate) fn threads_against_a_truncation(&mut self, wal: &Wal) -> Result<()> {
        self.what += " threads+truncation";
        let Some(kept) = self.some_last_rec() else { return Ok(()) };
        let promises = self.kills_take_no_append(wal);
        let plans = self.plans(wal, 12);
        // Only a full disk needs it: a seed means the same for both.
        self.dice.below(4);
        let spins = self.dice.below(3000);
        let checkpoint = self.model.ckpt_lo;
        self.model.new_end_may_be = Some(kept.end);
        self.model.ckpt_lo = checkpoint.min(kept.end);
        let mut truncated = Ok(());
        let results = append_all(wal, &self.disk, plans, true, || {
            spin(spins);
            truncated = wal.truncate_after(kept.at());
        });
        let (all, mut bad) = placed(results, is_mild);
        match &truncated {
            Ok(()) => {
                self.model.truncate_at(kept.end);
                let failed = self.keep_what_the_truncation_left(wal, all);
                bad = failed.or(bad);
            }
            Err(e) => {
                if !self.disk.is_dead() && e.kind() != ErrorKind::Poisoned {
                    self.model.new_end_may_be = None;
                    self.model.ckpt_lo = checkpoint;
                }
                for append in all {
                    self.keep(append, promises);
                }
            }
        }
        match truncated {
            // Whether the log is truncated is in doubt, and no other truncation may follow.
            Err(e) if e.kind() == ErrorKind::Poisoned => Err(e),
            truncated => bad.map_or(truncated, Err),
        }
    }

    /// Threads append while the disk is full, and then is not.
    pub(crate) fn threads_against_a_full_disk(&mut self, wal: &Wal) -> Result<()> {
        self.what += " threads+full";
        if self.some_last_rec().is_none() {
            return Ok(());
        }
        let promises = self.kills_take_no_append(wal);
        let plans = self.plans(wal, 12);
        let (used, free) = (self.used(), self.dice.below(4) * 4096);
        let spins = self.dice.below(3000);
        self.capped = true;
        self.disk.set_capacity(Some(used + free));
        let disk = &self.disk;
        let results = append_all(wal, disk, plans, true, || {
            spin(spins);
            disk.set_capacity(None);
        });
        let (all, bad) = placed(results, is_mild);
        for append in all {
            self.keep(append, promises);
        }
        if self.disk.is_dead() {
            return bad.map_or(Ok(()), Err);
        }
        if let Some(e) = &bad {
            let fits = e.kind() == ErrorKind::NoSpace || self.faults;
            assert!(fits, "threads on a full disk: {e:?}");
        }
        let synced = self.sync_with_space(wal);
        if !self.faults && !self.disk.is_dead() {
            synced.as_ref().expect("there is space again");
        }
        self.capped = false;
        synced
    }

    /// Whether an append that returned while the process lived survives its death.
    fn kills_take_no_append(&self, wal: &Wal) -> bool {
        wal.stats().appends_survive_kill && self.fixed.in_place
    }

    /// For two or three threads, up to `most` appends each.
    fn plans(&mut self, wal: &Wal, most: u64) -> Vec<Plan> {
        let mut plans = Vec::new();
        for _ in 0..2 + self.dice.below(2) {
            let mut plan = Vec::new();
            for _ in 0..1 + self.dice.below(most) {
                let len = self.len(wal);
                plan.push((self.dice.below(3), self.model.data(len)));
            }
            plans.push(plan);
        }
        plans
    }

    fn keep(&mut self, append: Placed, promises: bool) {
        let end = append.end(self.fixed.codec);
        self.model.add(append.lsn, end, 0, vec![append.data]);
        if append.acked {
            self.model.is_durable(end);
        }
        if append.alive && promises {
            self.model.kill = self.model.kill.max(end);
        }
    }

    /// What lay above the new end is gone: its LSNs are below those of all that came later. Gives
    /// the last failure to ask the log.
    fn keep_what_the_truncation_left(&mut self, wal: &Wal, all: Vec<Placed>) -> Option<Error> {
        let mut bad = None;
        let mut kept = 0;
        for append in all {
            let (lsn, end) = (append.lsn, append.end(self.fixed.codec));
            let asked = wal.wait_durable(Lsn::new(lsn));
            if asked.as_ref().is_err_and(|e| e.kind() == ErrorKind::Truncated) {
                assert_eq!(kept, 0, "{lsn} is truncated, behind one that is not");
                assert!(lsn >= self.model.top);
                self.model.top = end;
                continue;
            }
            kept += 1;
            self.model.add(lsn, end, 0, vec![append.data]);
            match asked {
                Ok(()) => self.model.is_durable(end),
                // Poisoned or full: only a durable one is certain.
                Err(e) => bad = Some(e),
            }
        }
        bad
    }
}

impl Placed {
    fn end(&self, codec: Chosen) -> u64 {
        self.lsn + codec.framed(0, &self.data)
    }
}

/// Runs each plan in a thread of its own, and `meanwhile` in this one.
fn append_all(
    wal: &Wal,
    disk: &SimDisk,
    plans: Vec<Plan>,
    tries: bool,
    meanwhile: impl FnOnce(),
) -> Vec<Returned> {
    let append = |how: u64, data: Vec<u8>| {
        let got = match how {
            0 => wal.commit(&data),
            1 if tries => wal.try_append(&data).map(|t| t.lsn()),
            _ => wal.append(&data).map(|t| t.lsn()),
        };
        let alive = !disk.is_dead();
        let acked = got.is_ok() && how == 0;
        Returned { got, data, alive, acked }
    };
    let run = |plan: Plan| -> Vec<Returned> {
        plan.into_iter().map(|(how, data)| append(how, data)).collect()
    };
    let run = &run;
    std::thread::scope(|s| {
        let joins: Vec<_> = plans.into_iter().map(|plan| s.spawn(move || run(plan))).collect();
        meanwhile();
        joins.into_iter().flat_map(|j| j.join().expect("thread")).collect()
    })
}

/// The appends that have a place, by LSN, and the worst failure but for those that `is_mild` names.
fn placed(
    results: Vec<Returned>,
    is_mild: impl Fn(&Error) -> bool,
) -> (Vec<Placed>, Option<Error>) {
    let mut all = Vec::new();
    let mut bad: Option<Error> = None;
    for Returned { got, data, alive, acked } in results {
        match got {
            Ok(lsn) => all.push(Placed { lsn: lsn.as_u64(), data, alive, acked }),
            Err(e) => {
                if let Some(lsn) = e.appended_lsn() {
                    all.push(Placed { lsn: lsn.as_u64(), data, alive: false, acked: false });
                }
                if !is_mild(&e) && bad.as_ref().is_none_or(|b| b.kind() != ErrorKind::Poisoned) {
                    bad = Some(e);
                }
            }
        }
    }
    all.sort_by_key(|append| append.lsn);
    (all, bad)
}

fn is_mild(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::NoRoom | ErrorKind::Truncated)
}

fn spin(times: u64) {
    for _ in 0..times {
        std::thread::yield_now();
    }
}

//! Random histories of a log with an archive on the same disk: appends, truncations of both ends
//! and replacements, until the process dies. Archive and folder together have each acknowledged
//! record from the first one on, also if a call that the crash cut short was to remove it.

use std::sync::Mutex;

use palisade::sim::SimDisk;
use palisade::{Archive, ErrorKind, Lsn, Options, Restore, RestoreFrom, Result, Wal};

use crate::dice::Dice;
use crate::numbered::data;
use crate::seeds::{Seeded, sweep};

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 200;
const RUNS: u64 = 4;
const MOST_STEPS: u64 = 40;
const MOST_CALLS: u64 = 200;
const MOST_BYTES: u64 = 600;

/// The LSN of a record that no call has returned.
const UNKNOWN: Lsn = Lsn::LIMIT;

type Records = Vec<(Lsn, Vec<u8>)>;

/// What happened over all seeds: a sweep in which a kind is missing shows nothing.
#[derive(Debug, Default)]
struct Counts {
    restores: u64,
    released: u64,
    truncated: u64,
    replaced: u64,
    in_doubt: u64,
}

struct Archived {
    disk: SimDisk,
    dice: Dice,
    appended: u64,
    /// The records that every copy has, from the first one on.
    durable: Records,
    /// Appended above them, and not acknowledged.
    pending: Records,
    /// What the log has instead if a call that failed was done after all.
    instead: Option<Records>,
    counts: Counts,
}

impl Seeded for Archived {
    fn new(seed: u64) -> Archived {
        let disk = SimDisk::new(seed);
        Archived {
            disk,
            dice: Dice::new(seed),
            appended: 0,
            durable: Records::new(),
            pending: Records::new(),
            instead: None,
            counts: Counts::default(),
        }
    }

    fn run(&mut self) {
        for _ in 0..RUNS {
            if self.dice.once_in(2) {
                self.disk.crash_at(self.disk.calls() + self.dice.below(MOST_CALLS));
            }
            // An error is that of a call that met the crash.
            let ended = self.run_once();
            assert!(ended.is_ok() || self.disk.is_dead(), "{ended:?}");
            match self.dice.below(2) {
                0 => self.disk.lose_power(),
                _ => self.disk.restart(),
            }
            let is_restored = self.check_restore();
            self.go_on(is_restored);
        }
    }

    fn describe(&self) -> String {
        self.disk.trace().join("\n")
    }
}

impl Archived {
    fn open(&self) -> Result<Wal> {
        let archive = Archive::open_on(self.disk.as_disk(), "/archive")?;
        let options = Options::new().segment_bytes(4096).buffer_bytes(4096).on_release(archive);
        Wal::with_store(&self.disk, options)
    }

    /// One run of the process, up to its end or its death.
    fn run_once(&mut self) -> Result<()> {
        let wal = self.open()?;
        for _ in 0..self.dice.below(MOST_STEPS) {
            match self.dice.below(10) {
                0..=4 => self.append(&wal)?,
                5 | 6 => self.sync(&wal)?,
                7 => self.truncate_before(&wal)?,
                8 => self.truncate_after(&wal)?,
                _ => self.replace(&wal)?,
            }
        }
        if self.dice.once_in(3) {
            wal.close()?;
            self.acknowledge();
        }
        Ok(())
    }

    fn record(&mut self) -> Vec<u8> {
        self.appended += 1;
        data(self.appended, 8 + self.dice.below(MOST_BYTES) as usize)
    }

    fn append(&mut self, wal: &Wal) -> Result<()> {
        for _ in 0..=self.dice.below(4) {
            let record = self.record();
            let appended = wal.append(&record).map(|ticket| ticket.lsn());
            // One that fails can be in the log all the same.
            self.pending.push((*appended.as_ref().unwrap_or(&UNKNOWN), record));
            appended?;
        }
        Ok(())
    }

    fn sync(&mut self, wal: &Wal) -> Result<()> {
        wal.sync()?;
        self.acknowledge();
        Ok(())
    }

    fn acknowledge(&mut self) {
        self.durable.append(&mut self.pending);
    }

    /// All records at or above the head.
    fn above_the_head(&self, wal: &Wal) -> Records {
        let all = self.durable.iter().chain(&self.pending);
        all.filter(|(lsn, _)| *lsn >= wal.head_lsn()).cloned().collect()
    }

    fn truncate_before(&mut self, wal: &Wal) -> Result<()> {
        let records = self.above_the_head(wal);
        if records.is_empty() {
            return Ok(());
        }
        let head = self.dice.pick(&(0..records.len()).collect::<Vec<_>>());
        wal.truncate_before(records[head].0)?;
        // What lies below the head was durable before it moved.
        let below = self.pending.partition_point(|(lsn, _)| *lsn < records[head].0);
        self.durable.extend(self.pending.drain(..below));
        self.counts.released += 1;
        Ok(())
    }

    /// Truncates above one of the last records, or replaces what is there by `others`.
    fn cut(&mut self, wal: &Wal, others: &[Vec<u8>]) -> Result<()> {
        let records = self.above_the_head(wal);
        let most = 12.min(records.len() as u64);
        if most == 0 {
            return Ok(());
        }
        let at = records[records.len() - 1 - self.dice.below(most) as usize].0;
        let all = self.durable.iter().chain(&self.pending).cloned();
        let is_kept = |lsn: Lsn| lsn < at || (others.is_empty() && lsn == at);
        let kept: Records = all.filter(|(lsn, _)| is_kept(*lsn)).collect();
        let done = match others {
            [] => wal.truncate_after(at).map(|()| Vec::new()),
            others => wal.replace_from(at, others),
        };
        match done {
            Ok(lsns) => {
                let others = lsns.into_iter().zip(others.iter().cloned());
                self.durable = kept.into_iter().chain(others).collect();
                self.pending.clear();
                Ok(())
            }
            Err(error) => {
                // The LSNs of the others were not returned.
                let others = others.iter().map(|other| (UNKNOWN, other.clone()));
                self.instead = Some(kept.into_iter().chain(others).collect());
                self.counts.in_doubt += 1;
                Err(error)
            }
        }
    }

    fn truncate_after(&mut self, wal: &Wal) -> Result<()> {
        self.counts.truncated += 1;
        self.cut(wal, &[])
    }

    fn replace(&mut self, wal: &Wal) -> Result<()> {
        self.counts.replaced += 1;
        let others: Vec<_> = (0..=self.dice.below(2)).map(|_| self.record()).collect();
        self.cut(wal, &others)
    }

    /// Archive and folder are restored as the crash has left them. False if there is no archive.
    fn check_restore(&mut self) -> bool {
        let from = RestoreFrom::archive("/archive").with_log("/log");
        let plan = match Restore::plan_on(self.disk.as_disk(), from, None, &mut |_| {}) {
            Ok(plan) => plan,
            Err(error) if error.kind() == ErrorKind::NotFound => return false,
            Err(error) => panic!("{error}"),
        };
        assert!(plan.strays().is_empty(), "{:?}", plan.strays());
        let into = SimDisk::new(0);
        plan.write_on(into.as_disk(), "/log", &mut |_| {}).unwrap();
        let options = Options::new().buffer_bytes(4096);
        let restored = records_of(&Wal::with_store(&into, options).unwrap());
        self.check(&restored, "restored");
        self.counts.restores += 1;
        true
    }

    /// Opens the log: what it has is durable from then on.
    fn go_on(&mut self, is_restored: bool) {
        let wal = self.open().unwrap();
        assert!(is_restored || self.counts.restores == 0, "the archive is gone");
        let (head, found) = (wal.head_lsn(), records_of(&wal));
        let before = self.durable.iter().chain(&self.pending);
        let below = before.take_while(|(lsn, _)| *lsn < head).cloned();
        let all: Records = below.chain(found).collect();
        self.check(&all, "found");
        (self.durable, self.instead) = (all, None);
        self.pending.clear();
    }

    /// `found` has each acknowledged record, and nothing else but what was not acknowledged.
    fn check(&self, found: &Records, what: &str) {
        let before: Vec<_> = self.durable.iter().chain(&self.pending).collect();
        let is_before = found.len() >= self.durable.len()
            && found.len() <= before.len()
            && found.iter().zip(before).all(|(found, before)| is_same(found, before));
        let is_instead = self.instead.as_ref().is_some_and(|done| {
            done.len() == found.len() && found.iter().zip(done).all(|(a, b)| is_same(a, b))
        });
        assert!(
            is_before || is_instead,
            "{what}: {} records, {} acknowledged, {} pending",
            found.len(),
            self.durable.len(),
            self.pending.len()
        );
    }
}

fn is_same(found: &(Lsn, Vec<u8>), expected: &(Lsn, Vec<u8>)) -> bool {
    found.1 == expected.1 && (found.0 == expected.0 || expected.0 == UNKNOWN)
}

fn records_of(wal: &Wal) -> Records {
    let mut records = wal.records().unwrap();
    let mut found = Records::new();
    while let Some(record) = records.next().unwrap() {
        found.push((record.lsn(), record.data().to_vec()));
    }
    found
}

#[test]
fn seeds_of_archives_and_folders_restore_acknowledged_records() {
    let total = Mutex::new(Counts::default());
    sweep("-p palisade --test powerloss seeds_of_archives", SEEDS, |history: Archived| {
        let mut total = total.lock().unwrap();
        total.restores += history.counts.restores;
        total.released += history.counts.released;
        total.truncated += history.counts.truncated;
        total.replaced += history.counts.replaced;
        total.in_doubt += history.counts.in_doubt;
    });
    let total = total.into_inner().unwrap();
    println!("{total:?}");
    let Counts { restores, released, truncated, replaced, in_doubt } = total;
    assert!([restores, released, truncated, replaced].into_iter().all(|count| count > 100));
    assert!(in_doubt > 10);
}

//! The steps of an engine, its crashes, and the checks.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use palisade::disk::{Access, DEFAULT_FILE_MODE, Disk, DiskFolder};
use palisade::sim::SimDisk;
use wal_db::{Lsn, Result, Wal, WalError, WalStore};

use crate::dice::Dice;
use crate::reached::Reached;
use crate::world::{World, read_state, sizes, write_state};
use crate::{FILE, FOLDER, KINDS};

const PROCESSES: u64 = 5;
const STEPS: u64 = 30;

/// One seed: a disk, and what its log may have.
pub(crate) struct Run<S> {
    seed: u64,
    pub(crate) disk: SimDisk,
    /// The disk as all opens of the present process see it.
    os: Arc<dyn Disk>,
    dice: Dice,
    world: World,
    /// What the log may have instead, if the step that died has done its work.
    other: Option<World>,
    next: u64,
    /// LSNs of records that were truncated or lost since the log was last emptied.
    gone: Vec<Lsn>,
    /// Above all LSNs since the log was last emptied.
    above: u64,
    open: fn(Arc<dyn Disk>) -> Result<Wal<S>>,
    is_segmented: bool,
    /// How often each kind of step was done.
    pub(crate) reached: Reached,
}

impl<S: WalStore> Run<S> {
    pub(crate) fn new(
        seed: u64,
        open: fn(Arc<dyn Disk>) -> Result<Wal<S>>,
        is_segmented: bool,
    ) -> Run<S> {
        let disk = match seed % 5 {
            4 => SimDisk::new(seed).without_memory(),
            _ => SimDisk::new(seed),
        };
        let os = disk.as_disk();
        os.create_folder(Path::new(FOLDER), DEFAULT_FILE_MODE).unwrap();
        os.open_folder(Path::new("/"), DEFAULT_FILE_MODE).unwrap().sync().unwrap();
        let (world, other) = (World::default(), None);
        let dice = Dice::new(seed);
        let (next, gone, above, reached) = (0, Vec::new(), 0, Reached::new(&KINDS));
        Run { seed, disk, os, dice, world, other, next, gone, above, open, is_segmented, reached }
    }

    fn count(&mut self, kind: &'static str) {
        self.reached.add(1, kind);
    }

    pub(crate) fn all(&mut self) {
        for _ in 0..PROCESSES {
            let lifetime = self.dice.below(150);
            self.disk.crash_at(self.disk.calls() + lifetime);
            self.process();
            if !self.disk.is_dead() {
                self.disk.kill();
            }
            self.end_process();
            self.check();
        }
    }

    /// Opens the log and works on it, until the process dies or has made its steps.
    fn process(&mut self) {
        let opened = self.open();
        assert!(opened.is_ok() || self.disk.is_dead(), "seed {}: {:?}", self.seed, opened.err());
        let Ok(mut wal) = opened else { return };
        for _ in 0..STEPS {
            let done = match self.dice.below(20) {
                0..9 => self.append(&wal, false),
                9..14 => self.append(&wal, true),
                14 => self.sync(&wal),
                15 if self.dice.once_in(2) => self.truncate_after_one_that_is_gone(&wal),
                15 => self.truncate_after(&wal),
                16 if self.is_segmented => self.truncate_before(&wal),
                17 if !self.is_segmented => match self.empty(wal) {
                    Some(opened) => {
                        wal = opened;
                        Ok(())
                    }
                    None => {
                        assert!(self.disk.is_dead(), "seed {}: not emptied", self.seed);
                        return;
                    }
                },
                18 => {
                    self.drop_last(wal);
                    match self.reopened() {
                        Ok(opened) => wal = opened,
                        Err(error) => {
                            assert!(self.disk.is_dead(), "seed {}: {error}", self.seed);
                            return;
                        }
                    }
                    Ok(())
                }
                _ => self.join(&wal),
            };
            if done.is_err() {
                assert!(self.disk.is_dead(), "seed {}: {done:?}", self.seed);
            }
            if self.disk.is_dead() {
                return;
            }
        }
        if self.dice.once_in(2) {
            wal.log().clone().abandon();
        } else {
            self.drop_last(wal);
        }
    }

    /// Drops the last handle, which syncs the log.
    fn drop_last(&mut self, wal: Wal<S>) {
        drop(wal);
        if !self.disk.is_dead() {
            self.world.durable = self.world.records.len();
            self.count("clean ends");
        }
    }

    fn append(&mut self, wal: &Wal<S>, is_durable: bool) -> Result<()> {
        self.next += 1;
        let mut data = self.next.to_le_bytes().to_vec();
        // Some records are so long that they have parts.
        let len = if self.dice.once_in(4) { 3 * wal.log().max_record_bytes() as u64 } else { 200 };
        data.resize(8 + self.dice.below(len) as usize, self.next as u8);
        let appended = if is_durable { wal.append_and_sync(&data) } else { wal.append(&data) };
        let is_long = is_long(wal, &data);
        // After an error the record may be there. An append to the memory of a dead process returns
        // `Ok`, and the record is not there.
        let known = appended.as_ref().ok().copied().filter(|_| !self.disk.is_dead());
        self.world.records.push_back((known, data));
        let lsn = appended?;
        self.count(if is_long { "appends of long records" } else { "appends" });
        assert!(lsn.get() >= self.above, "seed {}: LSN {lsn} again", self.seed);
        if known.is_some() {
            self.above = lsn.get() + 1;
        }
        if is_durable {
            self.world.durable = self.world.records.len();
        }
        Ok(())
    }

    fn sync(&mut self, wal: &Wal<S>) -> Result<()> {
        wal.sync()?;
        self.world.durable = self.world.records.len();
        self.count("syncs");
        Ok(())
    }

    fn truncate_after(&mut self, wal: &Wal<S>) -> Result<()> {
        let count = self.world.records.len();
        if count == 0 {
            return Ok(());
        }
        let last = self.dice.below(count as u64) as usize;
        let mut after = self.world.clone();
        after.records.truncate(last + 1);
        after.durable = after.records.len();
        let lsn = after.records[last].0.expect("the record was appended");
        self.other =
            Some(World { durable: after.durable.min(self.world.durable), ..after.clone() });
        wal.truncate_after(lsn)?;
        self.count("truncations of the suffix");
        if self.is_segmented && is_long(wal, &after.records[last].1) {
            self.count("truncations of the suffix after a long record on segments");
        }
        self.gone.extend(self.world.records.range(last + 1..).filter_map(|(lsn, _)| *lsn));
        (self.world, self.other) = (after, None);
        Ok(())
    }

    /// Passes the LSN of a record that is gone, as an engine does that saved it before.
    fn truncate_after_one_that_is_gone(&mut self, wal: &Wal<S>) -> Result<()> {
        let Some(last) = (self.gone.len() as u64).checked_sub(1) else { return Ok(()) };
        let lsn = self.gone[self.dice.below(last + 1) as usize];
        match wal.truncate_after(lsn) {
            Err(WalError::Corruption { offset, .. }) if offset == lsn.get() => {}
            Ok(()) => panic!("seed {}: truncated after LSN {lsn}, which is gone", self.seed),
            Err(error) => return Err(error),
        }
        self.count("truncations after a record that is gone");
        let found = read(wal)?.len();
        assert!(found == self.world.records.len() || self.disk.is_dead(), "seed {}", self.seed);
        Ok(())
    }

    fn truncate_before(&mut self, wal: &Wal<S>) -> Result<()> {
        let count = self.world.records.len();
        if count == 0 {
            return Ok(());
        }
        let first = self.dice.below(count as u64) as usize;
        let mut after = self.world.clone();
        after.records.drain(..first);
        after.durable = after.records.len();
        let lsn = after.records[0].0.expect("the record was appended");
        self.other = Some(after.clone());
        let head = wal.truncate_before(lsn)?;
        assert_eq!(head, lsn, "seed {}", self.seed);
        self.count("truncations of the prefix");
        if is_long(wal, &after.records[0].1) {
            self.count("truncations of the prefix before a long record");
        }
        (self.world, self.other) = (after, None);
        Ok(())
    }

    /// Opens the log after it was dropped: nothing is lost.
    fn reopened(&mut self) -> Result<Wal<S>> {
        if !self.is_segmented && self.dice.once_in(2) {
            self.rename_away_and_back()?;
        }
        let wal = self.open()?;
        self.other = None;
        assert_eq!(read(&wal)?.len(), self.world.records.len(), "seed {}", self.seed);
        self.world.durable = self.world.records.len();
        Ok(wal)
    }

    /// Empties the log as an engine does that removes its file.
    fn empty(&mut self, wal: Wal<S>) -> Option<Wal<S>> {
        // The log may still be open when its file goes.
        let wal = Some(wal).filter(|_| self.dice.once_in(2));
        let emptied = self.remove_file().ok()?;
        drop(wal);
        let wal = self.open().ok()?;
        assert_eq!((wal.len(), wal.is_empty()), (0, true), "seed {}", self.seed);
        (self.world, self.other, self.above) = (emptied, None, 0);
        self.gone.clear();
        self.count("emptied logs");
        Some(wal)
    }

    /// Writes the engine's state, and removes the log's file.
    fn remove_file(&mut self) -> io::Result<World> {
        let folder = self.folder()?;
        let emptied = World { state: self.next, ..World::default() };
        write_state(folder.as_ref(), self.next)?;
        self.other = Some(emptied.clone());
        folder.remove(FILE)?;
        Ok(emptied)
    }

    /// Takes the log's file away for a moment. Until the next open, a crash may take it for good,
    /// which empties the log: the simulated disk has no hard links.
    fn rename_away_and_back(&mut self) -> io::Result<()> {
        let folder = self.folder()?;
        let state = self.world.state;
        self.other = Some(World { state, needs_no_file: true, ..World::default() });
        folder.rename(FILE, "away")?;
        folder.rename("away", FILE)
    }

    /// Opens the log again while `wal` exists.
    fn join(&mut self, wal: &Wal<S>) -> Result<()> {
        let end = wal.len();
        let act = if self.is_segmented { 0 } else { self.dice.below(4) };
        let (emptied, kind) = match act {
            0 => (None, "second handles of a log that is as it was"),
            1 => {
                self.rename_away_and_back()?;
                (None, "second handles after the file was away")
            }
            2 => {
                let home = Path::new(FOLDER).join(FILE.to_owned() + ".palisade");
                self.os.open_folder(&home, DEFAULT_FILE_MODE)?.remove("wal-db-file")?;
                (None, "second handles after the file's second name was removed")
            }
            _ => (Some(self.remove_file()?), "second handles that emptied the log"),
        };
        let opened = self.open();
        self.count(if opened.is_ok() {
            kind
        } else {
            "crashes within the open of a second handle"
        });
        let second = opened?;
        if let Some(emptied) = emptied {
            self.gone.extend(self.world.records.iter().filter_map(|(lsn, _)| *lsn));
            self.world = emptied;
        }
        self.other = None;
        // LSNs go on.
        assert_eq!((wal.len(), second.len()), (end, end), "seed {}", self.seed);
        let found = read(&second)?;
        let is_whole = found.len() == self.world.records.len();
        let is_same = is_whole && self.world.allows(&found, self.world.state);
        assert!(is_same || self.disk.is_dead(), "seed {}: {} found", self.seed, found.len());
        let is_durable = self.dice.once_in(2);
        self.append(&second, is_durable)?;
        assert!(read(wal)? == read(&second)? || self.disk.is_dead(), "seed {}", self.seed);
        Ok(())
    }

    fn open(&mut self) -> Result<Wal<S>> {
        let opened = (self.open)(Arc::clone(&self.os));
        if opened.is_err() {
            self.count("crashes within an open");
        }
        opened
    }

    fn folder(&self) -> io::Result<Arc<dyn DiskFolder>> {
        self.os.open_folder(Path::new(FOLDER), DEFAULT_FILE_MODE)
    }

    fn end_process(&mut self) {
        match self.dice.below(4) {
            0 => {
                // All that was appended survives a kill, unless a record's append had not ended.
                let known = self.world.records.iter().take_while(|(lsn, _)| lsn.is_some());
                self.world.durable = known.count();
                self.disk.restart();
            }
            _ => self.disk.lose_power(),
        }
        self.os = self.disk.as_disk();
    }

    /// Opens the log and compares it. What it has is durable from now on.
    fn check(&mut self) {
        let folder = self.folder().unwrap();
        let is_missing = folder.open(FILE, Access::Read).is_err();
        self.other = self.other.take().filter(|other| is_missing || !other.needs_no_file);
        if is_missing && let Some(emptied) = &mut self.other {
            // The disk kept the removal of the file. Then it may have lost the state, which was
            // renamed before: on such a disk only a sync of the folder helps the engine.
            emptied.state = self.world.state;
        }
        let wal = self.open();
        let wal = wal.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        let found = read(&wal).unwrap();
        assert_eq!(wal.is_empty(), found.is_empty(), "seed {}", self.seed);
        let is_kept = !self.is_segmented && is_missing && !found.is_empty();
        assert!(!is_kept, "seed {}: the file is gone, and the records are there", self.seed);
        let state = read_state(folder.as_ref());
        let is_other = self.other.as_ref().is_some_and(|other| other.allows(&found, state));
        let shown: Vec<_> = found.iter().map(|(lsn, data)| (lsn.get(), data.len())).collect();
        assert!(
            is_other || self.world.allows(&found, state),
            "seed {}: found {shown:?}, state {state}; {:?} or {:?}",
            self.seed,
            sizes(&self.world),
            self.other.as_ref().map(sizes)
        );
        if !found.is_empty() {
            self.count("opens of a log with records");
        }
        let end = wal.len();
        let was_emptying = self.other.as_ref().is_some_and(|other| other.records.is_empty());
        if end == 0 || was_emptying && found.is_empty() {
            self.above = 0; // LSNs begin again
        }
        let known = self.world.records.iter().filter_map(|(lsn, _)| *lsn);
        self.gone.extend(known.filter(|lsn| !found.iter().any(|(stays, _)| stays == lsn)));
        self.gone.retain(|lsn| lsn.get() < end);
        let records: VecDeque<_> = found.into_iter().map(|(lsn, data)| (Some(lsn), data)).collect();
        self.world = World { durable: records.len(), records, state, needs_no_file: false };
        self.other = None;
        // Half the runs begin with a log that no handle has closed.
        if self.dice.once_in(2) {
            wal.log().clone().abandon();
        }
    }
}

pub(crate) fn read<S: WalStore>(wal: &Wal<S>) -> Result<Vec<(Lsn, Vec<u8>)>> {
    wal.iter()?.map(|record| record.map(|record| (record.lsn(), record.into_data()))).collect()
}

/// Returns whether a record is in parts.
fn is_long<S: WalStore>(wal: &Wal<S>, data: &[u8]) -> bool {
    data.len() > wal.log().max_record_bytes() / 8 * 7
}

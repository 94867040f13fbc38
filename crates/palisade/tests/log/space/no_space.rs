//! Lack of space, on the simulated disk: at any call, and while a log is opened.

use std::ops::Range;

use palisade::Result;

use crate::on_disk::{open, open_as, options, segment};
use crate::prelude::*;

/// Framed, it fills a sector.
const SECTOR_RECORD: usize = 512 - 24;

/// What was done to a log.
#[derive(Debug, Default)]
struct Done {
    /// The records that were appended and not truncated off, with their numbers.
    records: Vec<(Lsn, u64)>,
    /// Those of them that have to be there whatever happens next.
    certain: Range<usize>,
    appended: u64,
    is_cutting: bool,
}

impl Done {
    /// Does `step`; where it lacks space once more, once space is there.
    fn again<T>(&self, mut step: impl FnMut() -> Result<T>) -> Result<T> {
        match step() {
            Err(error) if error.kind() == ErrorKind::NoSpace => step(),
            other => other,
        }
    }

    fn append(&mut self, wal: &Wal, count: u64) -> Result<()> {
        for number in self.appended..self.appended + count {
            let data = record(number, SECTOR_RECORD);
            let lsn = self.again(|| Ok(wal.append(&data)?.lsn()))?;
            self.records.push((lsn, number));
            self.appended += 1;
        }
        self.again(|| wal.sync())?;
        self.certain.end = self.records.len();
        Ok(())
    }

    /// Rotates, recycles, moves the head and the checkpoint, truncates the suffix, and goes on.
    fn work(&mut self, wal: &Wal) -> Result<()> {
        for _ in 0..2 {
            self.append(wal, 12)?;
            let len = self.records.len();
            let lsn_of = |done: &Done, index: usize| done.records[index].0;
            let (applied, kept) = (lsn_of(self, len - 5), lsn_of(self, len - 3));
            self.again(|| wal.checkpoint(applied))?;
            self.certain.start = len - 5;
            self.again(|| wal.truncate_before(applied))?;
            self.certain.end = len - 2;
            self.is_cutting = true;
            self.again(|| wal.truncate_after(kept))?;
            self.is_cutting = false;
            self.records.truncate(len - 2);
            self.append(wal, 3)?;
        }
        Ok(())
    }

    /// Whether `found` is a run of the records, with all that is certain in it.
    fn allows(&self, found: &[u64]) -> bool {
        let all: Vec<u64> = self.records.iter().map(|(_, number)| *number).collect();
        let Some(from) = all.iter().position(|number| found.first() == Some(number)) else {
            return found.is_empty() && self.certain.is_empty();
        };
        let to = from + found.len();
        all.get(from..to) == Some(found) && from <= self.certain.start && to >= self.certain.end
    }
}

/// The call with the index `call`, if it lacked space.
fn refused_call(disk: &SimDisk, call: u64) -> Option<String> {
    let is_it = |line: &String| {
        line.trim_start().starts_with(&format!("{call} ")) && line.ends_with("ENOSPC")
    };
    disk.trace().into_iter().find(is_it)
}

/// One run, in which the call with the index `call` lacks space; what that call was, if there was
/// one, and whether the log went on.
fn run_without_space_at(call: u64, disk: &SimDisk) -> Option<(String, bool)> {
    disk.fail(Fault::at(call, FaultKind::NoSpace));
    let mut done = Done::default();
    let wal = done.again(|| open_as(disk, BufferKind::Auto, options())).unwrap();
    let worked = done.work(&wal);
    if call >= disk.calls() {
        return None;
    }
    let refused = refused_call(disk, call).unwrap_or_default();
    match &worked {
        Ok(()) => {
            let found = numbers(&wal);
            let is_all = found.len() == done.certain.len();
            assert!(is_all && done.allows(&found), "{refused}: {found:?} of {done:?}");
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{refused}: {error}");
            let is_of_records = refused.contains(" Sync segment-");
            assert!(is_of_records || done.is_cutting, "{refused}: {error}");
        }
    }
    end_process(disk, wal);
    disk.lose_power();
    let found = numbers(&open(disk));
    assert!(done.allows(&found), "{refused}: {found:?} of {done:?}");
    Some((refused, worked.is_ok()))
}

/// Protection: lack of space poisons nothing, and every call goes on once there is space. But for
/// what is no lack of space that a caller can wait for: in the sync of records, which has lost
/// them; in a truncation whose segment may have its name.
#[test]
fn lack_of_space_at_any_call_loses_nothing_and_the_log_goes_on() {
    for new in [SimDisk::new, |seed| SimDisk::new(seed).copy_on_write()] {
        let mut survived: BTreeSet<String> = BTreeSet::new();
        for call in 0.. {
            let Some((refused, is_alive)) = run_without_space_at(call, &new(7)) else { break };
            if is_alive {
                survived.extend(refused.split_whitespace().nth(1).map(str::to_owned));
            }
        }
        for kind in ["Create", "CreateFolder", "Rename", "Sync", "SyncFolder", "Write"] {
            assert!(survived.contains(kind), "{kind} of {survived:?}");
        }
    }
}

/// A killed log of three records behind whose end the medium has whole segments: their names, and
/// nothing of what was written into them.
fn with_dead_segments() -> SimDisk {
    let disk = SimDisk::new(5);
    let wal = open_as(&disk, BufferKind::Heap, options()).unwrap();
    append(&wal, 0..3, SECTOR_RECORD);
    wal.sync().unwrap();
    let places = append(&wal, 3..12, SECTOR_RECORD);
    wal.flush_to_os(places[8]).unwrap();
    end_process(&disk, wal);
    disk.lose_power_choosing(&mut |loss| if loss.is_sector() { Fate::Drop } else { Fate::Keep });
    assert!(disk.files().contains(&segment(1)), "{:?}", disk.files());
    disk
}

/// The indexes of the calls with which an open of `disk` frees segments: those behind the naming of
/// the state's file and the sync of that name.
fn freeing_calls(disk: &SimDisk) -> Vec<u64> {
    let next = disk.fork(0);
    next.restart();
    let wal = open(&next);
    let trace = next.trace();
    drop(wal);
    let saved = trace.iter().rposition(|call| call.ends_with("meta.tmp to meta")).unwrap();
    let index = |call: &String| call.split_whitespace().next()?.parse().ok();
    let frees = |call: &&String| call.contains(" SyncFolder ");
    trace[saved + 2..].iter().filter(frees).map(|call| index(call).expect("a call")).collect()
}

/// Protection: what an open cannot free of a discarded range on a full disk keeps no process from
/// opening the log. It is freed once the head is above it.
#[test]
fn what_a_full_disk_cannot_free_keeps_nobody_from_opening() {
    let disk = with_dead_segments();
    let calls = freeing_calls(&disk);
    assert!(!calls.is_empty(), "{calls:?}");
    for call in calls {
        let next = disk.fork(0);
        next.restart();
        next.fail(Fault::at(call, FaultKind::NoSpace));
        let wal = open(&next);
        assert_eq!(numbers(&wal), all(3), "call {call}");
        assert!(refused_call(&next, call).is_some(), "call {call}");
        let last = wal.commit(&record(3, SECTOR_RECORD)).unwrap();
        next.kill();
        drop(wal);
        next.restart();
        let wal = open(&next);
        assert_eq!(numbers(&wal), all(4), "call {call}");
        wal.truncate_before(last).unwrap();
        assert!(!next.files().contains(&segment(1)), "call {call}: {:?}", next.files());
    }
}

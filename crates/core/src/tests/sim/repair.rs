//! A repair on the disk: it dies at any call, and leaves the damaged log as it was, and a copy that
//! is whole or no log.

use palisade_store::folder::{LOCK, segment_name};
use palisade_store::{FileStore, OpenMode};

use super::*;
use crate::copy::CopyReport;
use crate::tests::support::{records, with_buffer};
use crate::{ErrorKind, Lsn, Repair, Verify, Wal};

/// Where a repair puts its copy.
const REPAIRED: &str = "/repaired";
const SEGMENT_BYTES: u64 = 8192;

fn open_in(disk: &SimDisk, folder: &str) -> crate::Result<Wal> {
    let files = FileOptions { open_mode: OpenMode::MustExist, ..files(SEGMENT_BYTES) };
    let store = FileStore::open_on_any(disk.as_disk(), &absolute(folder), &files)?;
    let mut options = with_buffer(4096);
    options.verify = Verify::Full;
    options.verify_threads = 1;
    Wal::with_store(store, options)
}

/// Makes a killed log of two epochs, whose records are all on the medium. Returns also the records.
fn killed_log(seed: u64) -> (SimDisk, Vec<(Lsn, Vec<u8>)>) {
    let disk = SimDisk::new(seed);
    drop(disk.open(&files(SEGMENT_BYTES)).unwrap());
    let mut all = Vec::new();
    for run in 0..2_u8 {
        let log = open_in(&disk, FOLDER).unwrap();
        for n in 0..40_u8 {
            let data = vec![run * 100 + n; usize::from(n) * 17];
            all.push((log.append(&data).unwrap().lsn(), data));
        }
        log.truncate_before(all[12].0).unwrap();
        log.checkpoint(all[all.len() - 1].0).unwrap();
        disk.kill();
        drop(log);
        disk.restart();
    }
    (disk, all)
}

/// Makes a log as `killed_log` does, with one damaged record. Returns also the record's index.
fn damaged_log(seed: u64) -> (SimDisk, Vec<(Lsn, Vec<u8>)>, usize) {
    let (disk, all) = killed_log(seed);
    let bad = 67;
    let lsn = all[bad].0;
    let name = segment_name(lsn.segment(SEGMENT_BYTES));
    let mut bytes = disk.file(&name).unwrap();
    bytes[4096 + (lsn.as_u64() % SEGMENT_BYTES) as usize + 30] ^= 1;
    disk.set_file(&name, bytes);
    // So that no later loss of power changes the log itself.
    disk.reboot();
    (disk, all, bad)
}

fn snapshot(disk: &SimDisk) -> Vec<(String, Option<Vec<u8>>)> {
    disk.files().into_iter().map(|name| (name.clone(), disk.file(&name))).collect()
}

fn plan(disk: &SimDisk, from: Lsn) -> crate::Result<Repair> {
    Repair::plan_on(disk.as_disk(), absolute(FOLDER), from, &mut |_| {})
}

fn write(disk: &SimDisk, planned: Repair) -> crate::Result<CopyReport> {
    planned.write_on(disk.as_disk(), absolute(REPAIRED), &mut |_| {})
}

fn repair(disk: &SimDisk, from: Lsn) -> crate::Result<CopyReport> {
    write(disk, plan(disk, from)?)
}

#[test]
fn a_repair_that_dies_at_any_call_leaves_a_whole_copy_or_none() {
    let (damaged, all, bad) = damaged_log(1);
    let kept = &all[12..bad];
    let before = snapshot(&damaged);
    let (mut none, mut whole, mut is_done) = (0, 0, false);
    let mut call = 0;
    while !is_done {
        // The call at which it dies is done, or in part, or not.
        for attempt in 0..4 {
            let disk = damaged.fork(100 * call + attempt);
            disk.restart();
            disk.crash_at(disk.calls() + call);
            is_done = repair(&disk, all[bad].0).is_ok() && !disk.is_dead();
            for fate in 0..6 {
                let disk = disk.fork(fate);
                if fate > 0 {
                    disk.lose_power();
                } else {
                    disk.restart();
                }
                assert!(snapshot(&disk) == before, "call {call}: the damaged log was changed");
                match open_in(&disk, REPAIRED) {
                    Ok(log) => {
                        assert!(log.recovery_report().clean, "call {call}");
                        assert_eq!(records(&log), kept, "call {call}");
                        whole += 1;
                    }
                    Err(error) => {
                        let kind = error.kind();
                        let is_none = matches!(kind, ErrorKind::NotFound | ErrorKind::Foreign);
                        assert!(is_none && !is_done, "call {call}: {error}");
                        none += 1;
                    }
                }
            }
        }
        call += 1;
    }
    assert!(none > 200 && whole > 24, "{none} and {whole}");
}

#[test]
fn a_repair_that_fails_removes_what_it_has_copied() {
    let (damaged, all, bad) = damaged_log(2);
    let used: u64 =
        damaged.files().iter().map(|name| damaged.file(name).unwrap().len() as u64).sum();
    let mut failures = 0;
    for free in 0_u64.. {
        let disk = damaged.fork(free);
        disk.restart();
        disk.set_capacity(Some(used.next_multiple_of(4096) + free * 4096));
        match repair(&disk, all[bad].0) {
            Ok(_) => break,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                assert_eq!(disk.files_in(REPAIRED), Vec::<String>::new(), "{error}");
                failures += 1;
            }
        }
    }
    assert!(failures > 3, "{failures}");
}

#[test]
fn an_open_log_is_not_repaired_nor_a_log_under_repair_opened() {
    let (disk, all, bad) = damaged_log(4);
    let plan = || plan(&disk, all[bad].0);
    let planned = plan().unwrap();
    assert_eq!(disk.open(&files(SEGMENT_BYTES)).unwrap_err().kind(), ErrorKind::Locked);
    write(&disk, planned).unwrap();
    let store = disk.open(&files(SEGMENT_BYTES)).unwrap();
    assert_eq!(plan().unwrap_err().kind(), ErrorKind::Locked);
    drop(store);
    plan().unwrap();
}

/// Checks a copy of a log, which may lack the lock file. The next open makes the file.
#[test]
fn without_a_lock_file_a_log_changed_meanwhile_is_not_repaired() {
    for is_open in [true, false] {
        let (disk, all) = killed_log(5);
        disk.remove_file(LOCK);
        let planned = plan(&disk, all[13].0).unwrap();
        let written = open_in(&disk, FOLDER).unwrap();
        written.commit(b"meanwhile").unwrap();
        let written = Some(written).filter(|_| is_open);
        assert_eq!(write(&disk, planned).unwrap_err().kind(), ErrorKind::Locked);
        assert_eq!(disk.files_in(REPAIRED), Vec::<String>::new());
        drop(written);
    }
}

/// Checks that a folder for the copy is refused in which another process makes a log, or has made
/// half of one.
#[test]
fn a_folder_with_another_log_gets_no_copy_and_stays_unchanged() {
    let (disk, all, bad) = damaged_log(6);
    repair(&disk, all[bad].0).unwrap();
    let others = disk.files_in(REPAIRED);
    let name = |name: &str| format!("{REPAIRED}/{name}");
    for kept in 1..=others.len() {
        let disk = disk.fork(kept as u64);
        disk.restart();
        others[kept..].iter().for_each(|file| disk.remove_file(&name(file)));
        let error = repair(&disk, all[bad].0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(disk.files_in(REPAIRED), others[..kept]);
    }
}

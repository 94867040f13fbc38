//! The store on files runs on the disk: its rotation, its spares, its locks, its recovery.

use palisade_store::ReadStore;
use palisade_store::disk::{Access, Disk, write_bytes};
use palisade_store::sim::FaultDisk;

use super::*;
use crate::tests::support::{records, with_buffer};
use crate::{ErrorKind, Lsn, Result, Wal, conformance};

const SEGMENT_BYTES: u64 = 8192;

fn try_open(disk: &SimDisk) -> Result<Wal> {
    Wal::with_store(disk.open(&files(SEGMENT_BYTES))?, with_buffer(4096))
}

fn open(disk: &SimDisk) -> Wal {
    let opened = try_open(disk);
    opened.unwrap_or_else(|error| panic!("{disk:?}: {error}\n{}", disk.trace().join("\n")))
}

/// Appends, commits, truncates and closes; returns what was appended.
fn work(disk: &SimDisk) -> Vec<(Lsn, Vec<u8>)> {
    let log = open(disk);
    let mut appended = Vec::new();
    for number in 0..60_usize {
        let data = vec![number as u8 | 1; number * 37 % 700];
        let ticket = log.append(&data).unwrap();
        appended.push((ticket.lsn(), data));
        if number % 3 == 0 {
            ticket.wait().unwrap();
        }
        if number % 20 == 19 {
            log.truncate_before(appended[number - 10].0).unwrap();
        }
    }
    log.close().unwrap();
    appended
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let disk = SimDisk::new(seed);
        work(&disk);
        let log = open(&disk);
        drop(log.append(b"unsynced").unwrap());
        disk.lose_power();
        drop(open(&disk));
        let files: Vec<_> = disk.files().into_iter().map(|name| disk.file(&name)).collect();
        (disk.trace(), files)
    };
    for seed in 0..20 {
        let (first, second) = (run(seed), run(seed));
        // The first difference says more than all of both.
        let differs = first.0.iter().zip(&second.0).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert!(first == second, "seed {seed}: the files differ, the calls do not");
    }
    assert!(run(7) != run(8));
}

#[test]
fn a_log_rotates_recycles_and_zeroes_on_the_disk() {
    let disk = SimDisk::new(2);
    work(&disk);
    let trace = disk.trace().join("\n");
    for call in ["Rename spare-", " to spare-", "Sync segment-", "SyncFolder /log", "Sync meta"] {
        assert!(trace.contains(call), "no {call} in\n{trace}");
    }
    // A page of zeros: a step of the preparer.
    assert!(trace.contains("[8192, 12288)"), "{trace}");
}

#[test]
fn what_a_dead_life_stores_in_its_buffer_reaches_nobody() {
    let disk = SimDisk::new(5);
    let log = open(&disk);
    let first = log.append(b"first").unwrap().lsn();
    let filled = log.append_with(100, |_, bytes| {
        bytes[..50].fill(7);
        disk.kill();
        bytes.fill(7);
    });
    // Nobody could know: it is published, in the dead run.
    drop(filled.unwrap());
    assert!(log.sync().is_err());
    drop(log);
    disk.restart();
    let log = open(&disk);
    assert_eq!(log.get(first).unwrap().data(), b"first");
    let mut records = log.records_from(first).unwrap();
    assert!(records.next().unwrap().is_some() && records.next().unwrap().is_none());
}

#[test]
fn a_dead_process_opens_nothing() {
    let disk = SimDisk::new(1);
    disk.kill();
    assert_eq!(disk.open(&files(SEGMENT_BYTES)).unwrap_err().kind(), ErrorKind::Io);
    disk.restart();
    disk.open(&files(SEGMENT_BYTES)).unwrap();
}

#[test]
fn segments_begin_at_four_kilobytes() {
    let disk = SimDisk::new(1);
    assert_eq!(disk.open(&files(2048)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(disk.open(&files(4096)).unwrap().state().unwrap().segment_bytes, 4096);
}

/// Checks a restore by `rm log/*; cp -a backup/. log/`, as where the folder is a mount point: the
/// folder is the same one, its files are others, and nothing of them was synced.
#[test]
fn records_reported_after_a_restore_in_place_survive_power_loss() {
    for seed in 0..10 {
        let disk = SimDisk::new(seed);
        let appended = work(&disk);
        open(&disk).close().unwrap();
        disk.restart();
        let log = folder(&disk);
        let backup = disk.files().into_iter().map(|name| (disk.file(&name).unwrap(), name));
        let backup: Vec<_> = backup.collect();
        for (_, name) in &backup {
            log.remove(name).unwrap();
        }
        log.sync().unwrap();
        for (bytes, name) in &backup {
            let file = log.open(name, Access::Fresh).unwrap();
            write_bytes(file.as_ref(), 0, bytes).unwrap();
        }
        disk.restart();
        let log = open(&disk);
        disk.lose_power();
        drop(log);
        let log = open(&disk);
        let kept = appended.into_iter().filter(|(lsn, _)| *lsn >= log.head_lsn());
        assert!(records(&log) == kept.collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn the_simulated_disk_is_a_disk_and_so_is_the_layer_over_it() {
    let disks =
        [SimDisk::new(1), SimDisk::new(2).copy_on_write(), SimDisk::new(3).without_memory()];
    for disk in disks {
        let disk = disk.as_disk();
        conformance::check(&disk, &absolute("/checked")).unwrap();
        let layer: Arc<dyn Disk> = Arc::new(FaultDisk::new(disk));
        conformance::check(&layer, &absolute("/beside")).unwrap();
    }
}

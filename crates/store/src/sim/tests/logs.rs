//! The store on files runs on the disk: its rotation, its spares, its locks, its recovery.

use std::thread;

use palisade_core::store::ReadStore;
use palisade_core::{ErrorKind, Lsn, Options, Result, Wal};

use super::super::chance::Chance;
use super::*;

const SEGMENT_BYTES: u64 = 8192;

fn files() -> FileOptions {
    FileOptions { segment_bytes: Some(SEGMENT_BYTES), ..FileOptions::default() }
}

fn try_open(disk: &SimDisk) -> Result<Wal> {
    let mut options = Options::new();
    options.buffer_bytes = 4096;
    Wal::with_store(disk.open(&files())?, &options)
}

fn open(disk: &SimDisk) -> Wal {
    try_open(disk).unwrap_or_else(|error| panic!("{error}\n{}", story(disk)))
}

/// What a failing test has to say.
fn story(disk: &SimDisk) -> String {
    format!("seed {}\n{}", disk.seed(), disk.trace().join("\n"))
}

/// What a log was given, and what of it was acknowledged.
#[derive(Debug, Default)]
struct Ledger {
    appended: Vec<(Lsn, Vec<u8>)>,
    acknowledged: usize,
    /// What is being appended: it may be there although the append failed.
    begun: Vec<u8>,
    /// The greatest LSN that a truncation asked for.
    cut: Lsn,
}

/// Appends, commits, truncates and closes; ends at the first error.
fn work(disk: &SimDisk, ledger: &mut Ledger) -> Result<()> {
    let log = try_open(disk)?;
    for number in 0..60_usize {
        let data = vec![number as u8 | 1; number * 37 % 700];
        ledger.begun.clone_from(&data);
        let ticket = log.append(&data)?;
        ledger.appended.push((ticket.lsn(), data));
        if number % 3 == 0 {
            ticket.wait()?;
            ledger.acknowledged = ledger.appended.len();
        }
        if number % 20 == 19 {
            ledger.cut = ledger.appended[number - 10].0;
            log.truncate_before(ledger.cut)?;
            ledger.acknowledged = ledger.acknowledged.max(number - 10);
        }
    }
    log.close()?;
    ledger.acknowledged = ledger.appended.len();
    Ok(())
}

/// Everything acknowledged is there, and a prefix of the rest.
fn check(disk: &SimDisk, ledger: &Ledger) {
    let log = open(disk);
    let mut found = log.records().unwrap();
    let head = log.head_lsn();
    assert!(head <= ledger.cut, "{head} above {}", ledger.cut);
    let expected = ledger.appended.iter().filter(|(lsn, _)| *lsn >= head);
    let skipped = ledger.appended.len() - expected.clone().count();
    let mut count = skipped;
    for (lsn, data) in expected {
        let next = found.next().unwrap_or_else(|error| panic!("{error}\n{}", story(disk)));
        let Some(record) = next else { break };
        assert_eq!((record.lsn(), record.data()), (*lsn, &data[..]));
        count += 1;
    }
    if let Some(record) = found.next().unwrap() {
        assert_eq!(record.data(), ledger.begun, "a record that was never appended");
        assert!(found.next().unwrap().is_none(), "more than was begun");
    }
    assert!(
        count >= ledger.acknowledged,
        "{count} of {} acknowledged\n{}",
        ledger.acknowledged,
        story(disk)
    );
}

#[test]
fn what_was_committed_survives_every_power_loss() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let log = open(&disk);
        let lsn = log.commit(b"acknowledged").unwrap();
        log.append(b"not yet").unwrap();
        disk.lose_power();
        drop(log);
        assert_eq!(open(&disk).get(lsn).unwrap().data(), b"acknowledged", "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let disk = SimDisk::new(seed);
        work(&disk, &mut Ledger::default()).unwrap();
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
    work(&disk, &mut Ledger::default()).unwrap();
    let trace = disk.trace().join("\n");
    for call in ["Rename spare-", " to spare-", "Sync segment-", "SyncFolder /log", "Sync meta"] {
        assert!(trace.contains(call), "no {call} in\n{trace}");
    }
    // A page of zeros: a step of the preparer.
    assert!(trace.contains("[8192, 12288)"), "{trace}");
}

#[test]
fn a_crash_at_any_call_loses_nothing_that_was_acknowledged() {
    let calls = {
        let disk = SimDisk::new(11);
        work(&disk, &mut Ledger::default()).unwrap();
        disk.calls()
    };
    assert!(calls > 100, "{calls}");
    for call in 0..calls {
        let disk = SimDisk::new(11);
        disk.crash_at(call);
        let mut ledger = Ledger::default();
        work(&disk, &mut ledger).unwrap_err();
        assert!(disk.is_dead());
        for seed in 0..4 {
            let fork = disk.fork(seed);
            if seed == 0 {
                fork.restart()
            } else {
                fork.lose_power()
            }
            check(&fork, &ledger);
        }
    }
}

/// The kinds of disks that a log without `pad_to_block` may be on.
const KINDS: [fn(SimDisk) -> SimDisk; 2] = [|disk| disk, SimDisk::copy_on_write];

/// Another life, by `chance`: in the same boot, after an orderly shutdown, or after power loss.
fn begin_another_life(disk: &SimDisk, chance: &mut Chance) {
    match chance.below(4) {
        0 => disk.restart(),
        1 => disk.reboot(),
        _ => disk.lose_power(),
    }
}

#[test]
fn crashes_inside_recovery_lose_nothing_either() {
    let mut died = 0;
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let disk = KINDS[(seed % 2) as usize](SimDisk::new(seed));
        disk.crash_at(chance.below(230));
        let mut ledger = Ledger::default();
        let _ = work(&disk, &mut ledger);
        for _ in 0..2 {
            begin_another_life(&disk, &mut chance);
            disk.crash_at(disk.calls() + chance.below(50));
            let opened = try_open(&disk);
            died += usize::from(opened.is_err());
            if let Err(error) = opened {
                assert!(disk.is_dead(), "seed {seed}: {error}");
            }
        }
        begin_another_life(&disk, &mut chance);
        check(&disk, &ledger);
    }
    assert!(died > 100, "{died} lives died while they opened the log");
}

#[test]
fn a_log_whose_maker_died_early_is_durable_once_it_is_opened() {
    let commit_after_a_death_at = |call, seed| {
        let disk = SimDisk::new(seed);
        disk.crash_at(call);
        if let Ok(log) = try_open(&disk) {
            drop(log);
        }
        disk.restart();
        let lsn = open(&disk).commit(b"acknowledged").unwrap();
        disk.lose_power_choosing(&mut |_| Fate::Drop);
        assert_eq!(open(&disk).get(lsn).unwrap().data(), b"acknowledged", "call {call}");
    };
    for call in 0..30 {
        (0..4).for_each(|seed| commit_after_a_death_at(call, seed));
    }
}

#[test]
fn a_log_whose_makers_died_early_can_be_opened() {
    for seed in 0..2000 {
        let mut chance = Chance::new(seed);
        let disk = SimDisk::new(seed);
        for _ in 0..3 {
            disk.crash_at(disk.calls() + chance.below(8));
            drop(try_open(&disk));
            begin_another_life(&disk, &mut chance);
        }
        drop(open(&disk));
    }
}

#[test]
fn what_a_life_found_after_a_failed_sync_survives_the_power_loss_after_it() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        disk.fail(Fault::nth(CallKind::Sync, 10 + seed % 20, FaultKind::Eio));
        let mut ledger = Ledger::default();
        let failed = work(&disk, &mut ledger).unwrap_err();
        assert!([ErrorKind::Poisoned, ErrorKind::Io].contains(&failed.kind()), "{failed}");
        let log = open(&disk);
        let reported = log.recovery_report().end;
        ledger.acknowledged = ledger.appended.iter().filter(|(lsn, _)| *lsn < reported).count();
        disk.lose_power();
        drop(log);
        check(&disk, &ledger);
    }
}

#[test]
fn failing_calls_lose_nothing_that_was_acknowledged() {
    let (mut failed, mut died) = (0, 0);
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let disk = KINDS[(seed % 2) as usize](SimDisk::new(seed));
        disk.fail(Fault::rate(100 + chance.below(300), FaultKind::Eio));
        disk.fail(Fault::rate(20, FaultKind::ShortWrite));
        disk.fail(Fault::rate(20, FaultKind::Interrupted));
        let mut ledger = Ledger::default();
        failed += usize::from(work(&disk, &mut ledger).is_err());
        let mut begin_another = || begin_another_life(&disk, &mut chance);
        for _ in 0..2 {
            begin_another();
            died += usize::from(try_open(&disk).is_err());
        }
        disk.heal();
        begin_another();
        check(&disk, &ledger);
    }
    assert!(failed > 100 && died > 20, "{failed} runs and {died} opens failed");
}

#[test]
fn a_disk_that_runs_full_loses_nothing_and_opens() {
    let mut full = 0;
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let disk = KINDS[(seed % 2) as usize](SimDisk::new(seed));
        disk.set_capacity(Some(4096 * (10 + chance.below(8))));
        let mut ledger = Ledger::default();
        if let Err(error) = work(&disk, &mut ledger) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "seed {seed}: {error}");
            full += 1;
        }
        begin_another_life(&disk, &mut chance);
        disk.set_capacity(None);
        check(&disk, &ledger);
    }
    assert!(full > 50, "{full} runs met a full disk");
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
    // Nobody could know: it is published, in the dead life.
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
fn the_second_writer_is_refused_at_once_and_a_reader_is_not() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    log.commit(b"record").unwrap();
    assert_eq!(try_open(&disk).unwrap_err().kind(), ErrorKind::Locked);
    let reader = disk.reader().unwrap();
    assert!(reader.has_writer().unwrap());
    assert_eq!(reader.state().unwrap().segment_bytes, SEGMENT_BYTES);
    drop(log);
    assert!(!reader.has_writer().unwrap());
    drop(open(&disk));
}

#[test]
fn a_dead_process_opens_nothing() {
    let disk = SimDisk::new(1);
    disk.kill();
    assert_eq!(disk.open(&files()).unwrap_err().kind(), ErrorKind::Io);
    disk.restart();
    disk.open(&files()).unwrap();
}

#[test]
fn segments_begin_at_four_kilobytes() {
    let disk = SimDisk::new(1);
    let sized = |bytes| FileOptions { segment_bytes: Some(bytes), ..FileOptions::default() };
    assert_eq!(disk.open(&sized(2048)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(disk.open(&sized(4096)).unwrap().state().unwrap().segment_bytes, 4096);
}

#[test]
fn threads_share_a_log_on_a_slow_disk() {
    for seed in 0..10 {
        let disk = SimDisk::new(seed);
        disk.fail(Fault::rate(3, FaultKind::SlowSync));
        disk.fail(Fault::rate(7, FaultKind::ShortWrite));
        let log = open(&disk);
        let write = |thread: u8| {
            let commits = (0..20).map(|number| {
                let data = [thread, number].repeat(50);
                (log.commit(&data).unwrap(), data)
            });
            commits.collect::<Vec<_>>()
        };
        let committed: Vec<(Lsn, Vec<u8>)> = thread::scope(|scope| {
            let write = &write;
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || write(n))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        disk.lose_power();
        drop(log);
        let log = open(&disk);
        for (lsn, data) in committed {
            assert_eq!(log.get(lsn).unwrap().data(), data, "seed {seed}");
        }
    }
}

/// As `rm log/*; cp -a backup/. log/` does where the folder is a mount point: the folder is the
/// same one, its files are others, and nothing of them was synced.
#[test]
fn what_an_open_reports_of_a_log_restored_into_its_own_folder_survives_power_loss() {
    for seed in 0..10 {
        let disk = SimDisk::new(seed);
        let mut ledger = Ledger::default();
        work(&disk, &mut ledger).unwrap();
        open(&disk).close().unwrap();
        disk.restart();
        let process = disk.process();
        let backup = disk.files().into_iter().map(|name| (disk.file(&name).unwrap(), name));
        let backup: Vec<_> = backup.collect();
        for (_, name) in &backup {
            process.remove(&path(name)).unwrap();
        }
        process.sync_folder(&path("")).unwrap();
        for (bytes, name) in &backup {
            let file = process.open(&path(name), Access::Fresh).unwrap();
            write_bytes(file.as_ref(), 0, bytes).unwrap();
        }
        disk.restart();
        let log = open(&disk);
        ledger.acknowledged = ledger.appended.len();
        disk.lose_power();
        drop(log);
        check(&disk, &ledger);
    }
}

#[test]
fn the_simulated_disk_is_a_disk() {
    for disk in [SimDisk::new(1), SimDisk::new(2).copy_on_write(), SimDisk::new(3).without_memory()]
    {
        crate::disk::conformance::check(&disk.as_disk(), &absolute("/checked")).unwrap();
    }
}

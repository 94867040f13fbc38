//! What one run leaves to the next, and no sync has covered: names, a state whose save failed,
//! bytes of which nobody knows whether they are on the medium. On the simulated disk.

use palisade::Result;

use crate::on_disk::{open, open_as, options, segment};
use crate::prelude::*;

/// Framed, it fills a sector.
const SECTOR_RECORD: usize = 512 - 24;

fn try_open(disk: &SimDisk) -> Result<Wal> {
    open_as(disk, BufferKind::Auto, options())
}

fn is_name(loss: &Loss) -> bool {
    matches!(loss, Loss::Create { .. } | Loss::Rename { .. } | Loss::Remove { .. })
}

/// Power is lost, once with each name alone lost, once with each alone kept, of all that no sync
/// covers, and once with all of it lost; each time the log has to open with a prefix, and with no
/// less than the first `promised` records.
fn lose_each_name(disk: &SimDisk, promised: u64, when: &str) {
    let names: Vec<usize> = disk
        .losses()
        .iter()
        .enumerate()
        .filter(|(_, loss)| is_name(loss))
        .map(|(at, _)| at)
        .collect();
    let choices = names.iter().flat_map(|&at| [(at, Fate::Drop), (at, Fate::Keep)]);
    for (at, fate) in choices.chain([(usize::MAX, Fate::Keep)]) {
        let next = disk.fork(at as u64);
        let others = if fate == Fate::Drop { Fate::Keep } else { Fate::Drop };
        let mut asked = 0;
        next.lose_power_choosing(&mut |_| {
            asked += 1;
            if asked == at.wrapping_add(1) { fate } else { others }
        });
        let found = try_open(&next).map(|wal| numbers(&wal));
        let found = found.unwrap_or_else(|error| {
            let losses = disk.losses();
            panic!("{when}, {fate:?} {:?}: {error}\n{}", losses.get(at), next.trace().join("\n"))
        });
        let is_enough = found.len() as u64 >= promised && found == all(found.len() as u64);
        assert!(is_enough, "{when}, {fate:?} {:?}: {found:?}", disk.losses().get(at));
    }
}

/// Protection: as long as there is no epoch, an open makes the names durable that a dead maker
/// left: its own syncs would keep later names and lose those.
#[test]
fn names_of_a_first_open_that_dies_at_any_call_are_never_lost() {
    for first in 0.. {
        let disk = SimDisk::new(first);
        disk.crash_at(first);
        if try_open(&disk).is_ok() {
            assert!(first > 10, "{first} calls");
            return;
        }
        disk.restart();
        for second in 0.. {
            let next = disk.fork(second);
            next.restart();
            next.crash_at(next.calls() + second);
            let committed = try_open(&next).and_then(|wal| wal.commit(&record(0, 100)));
            next.kill();
            let promised = u64::from(committed.is_ok());
            lose_each_name(&next, promised, &format!("calls {first} and {second}"));
            if promised == 1 {
                break;
            }
        }
    }
}

/// Protection: an open makes the names of segments durable that a dead run left, before it names
/// the segment that says where they end.
#[test]
fn names_of_segments_that_a_dead_run_left_are_never_lost() {
    const SYNCED: u64 = 2;
    let disk = SimDisk::new(3);
    let wal = open(&disk);
    append(&wal, 0..SYNCED, SECTOR_RECORD);
    wal.sync().unwrap();
    // From here on no name becomes durable. The ring has the records of the second segment.
    disk.fail(Fault::all(CallKind::SyncFolder, FaultKind::Eio));
    append(&wal, SYNCED..9, SECTOR_RECORD);
    assert_eq!(wal.sync().unwrap_err().kind(), ErrorKind::Poisoned);
    end_process(&disk, wal);
    disk.heal();
    let is_of_second = |loss: &Loss| is_name(loss) && loss.file() == segment(1);
    assert!(disk.losses().iter().any(is_of_second), "{:?}", disk.losses());
    for call in 0.. {
        let next = disk.fork(call);
        next.restart();
        next.crash_at(next.calls() + call);
        let reported = try_open(&next).map(|wal| wal.recovery_report().records);
        next.kill();
        let promised = reported.as_ref().map_or(SYNCED, |&records| records);
        lose_each_name(&next, promised, &format!("call {call}"));
        if reported.is_ok() {
            assert!(call > 10 && promised == 9, "{call} calls, {promised} records");
            return;
        }
    }
}

/// Protection: a save that failed may be on the medium. A truncation below the head that it names
/// would be refused by the next open, so that state is settled first.
#[test]
fn a_truncation_below_a_failed_saves_head_opens_after_any_crash() {
    for failing in 0..2 {
        for call in 0.. {
            let disk = SimDisk::new(call);
            let wal = open(&disk);
            let places = append(&wal, 0..9, 400);
            wal.sync().unwrap();
            disk.fail(Fault::nth(CallKind::Sync, failing, FaultKind::Eio));
            let failed = wal.truncate_before(places[6]).unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Io, "{failed}");
            disk.heal();
            assert_eq!(wal.head_lsn(), Lsn::ZERO);
            disk.crash_at(disk.calls() + call);
            let truncated = wal.truncate_after(places[3]);
            let is_truncated = truncated.is_ok() && !disk.is_dead();
            end_process(&disk, wal);
            let again = disk.fork(call);
            again.restart();
            disk.lose_power();
            for disk in [disk, again] {
                let found = numbers(&open(&disk));
                let is_before = found == all(9) || found == [6, 7, 8];
                assert!(found == all(4) || (!is_truncated && is_before), "call {call}: {found:?}");
            }
            if is_truncated {
                assert!(call > 5, "{call} calls");
                break;
            }
        }
    }
}

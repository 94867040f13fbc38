//! Power that is lost at the worst moment, on the simulated disk: what the medium keeps is chosen.

use crate::on_disk::{
    HEADER_BYTES, SECTOR, SEGMENT_BYTES, open, open_as, options, sector_of, segment,
};
use crate::prelude::*;

/// Power is lost; of what was not synced only the sector that holds `lsn` is not on the medium.
fn lose_the_sector_of(disk: &SimDisk, lsn: Lsn) {
    let (name, at) = sector_of(lsn);
    let mut lost = 0;
    disk.lose_power_choosing(&mut |loss| match &loss {
        Loss::Sector { file, offset, .. } if *file == name && *offset == at => {
            lost += 1;
            Fate::Drop
        }
        _ => Fate::Keep,
    });
    assert_eq!(lost, 1, "the sector was synced, or never written");
}

/// A log of three segments of which the first `synced` records are durable, and the rest is with
/// the operating system; and where the records begin.
fn three_segments(disk: &SimDisk, policy: SyncPolicy, synced: u64) -> (Wal, Vec<Lsn>) {
    let log = options().sync_policy(policy);
    let wal = open_as(disk, BufferKind::Heap, log).unwrap();
    let mut places = append(&wal, 0..synced, 480);
    wal.sync().unwrap();
    places.extend(append(&wal, synced..20, 480));
    wal.flush_to_os(*places.last().unwrap()).unwrap();
    assert_eq!(wal.reserved_lsn().segment(SEGMENT_BYTES), 2);
    (wal, places)
}

/// Each record above the synced ones is lost alone: what is there is a prefix, also after more
/// was appended, and after one more loss of power.
fn a_lost_sector_leaves_a_prefix(policy: SyncPolicy) {
    const SYNCED: u64 = 3;
    for missing in SYNCED + 1..20 {
        let disk = SimDisk::new(missing);
        let (wal, places) = three_segments(&disk, policy, SYNCED);
        end_process(&disk, wal);
        lose_the_sector_of(&disk, places[missing as usize]);
        let wal = open(&disk);
        let kept = numbers(&wal);
        assert!(kept.len() as u64 >= SYNCED && kept.len() as u64 <= missing, "{kept:?}");
        assert_eq!(kept, all(kept.len() as u64), "without {missing}");
        wal.commit(&record(100, 480)).unwrap();
        disk.lose_power();
        let expected: Vec<u64> = kept.iter().copied().chain([100]).collect();
        assert_eq!(numbers(&open(&disk)), expected, "without {missing}");
    }
}

/// Protection: only what a sync covered is evidence. Writes reach the medium in any order, across a
/// segment's border, too: the later segment is there, the end of the earlier one is not.
#[test]
fn out_of_order_writes_across_segments_leave_a_prefix() {
    a_lost_sector_leaves_a_prefix(SyncPolicy::OnCommit);
}

/// Protection: the same where no append is ever synced, and two whole segments lie behind.
#[test]
fn under_policy_os_a_lost_page_before_segments_leaves_a_prefix() {
    a_lost_sector_leaves_a_prefix(SyncPolicy::Os);
}

/// Protection: what only the ring or the page cache has is written again before it is reported.
fn what_is_reported_after_a_failed_sync_stays(make: fn(u64) -> SimDisk, buffer: BufferKind) {
    for seed in 0..30 {
        let disk = make(seed);
        let wal = open_as(&disk, buffer, options()).unwrap();
        append(&wal, 0..4, 400);
        wal.sync().unwrap();
        append(&wal, 4..8, 400);
        disk.fail(Fault::nth(CallKind::Sync, 0, FaultKind::Eio));
        assert_eq!(wal.sync().unwrap_err().kind(), ErrorKind::Poisoned);
        disk.heal();
        end_process(&disk, wal);
        disk.restart();
        let wal = open_as(&disk, buffer, options()).unwrap();
        let reported = numbers(&wal);
        assert!(reported.len() >= 4 && reported == all(reported.len() as u64));
        disk.lose_power();
        drop(wal);
        let found = numbers(&open_as(&disk, buffer, options()).unwrap());
        assert_eq!(found, reported, "seed {seed}");
    }
}

/// Protection: see [`what_is_reported_after_a_failed_sync_stays`]. A failed sync leaves bytes that
/// read right and are not on the medium; the next sync succeeds without them.
#[test]
fn records_reported_after_a_failed_sync_survive_power_loss() {
    what_is_reported_after_a_failed_sync_stays(SimDisk::new, BufferKind::Auto);
    what_is_reported_after_a_failed_sync_stays(SimDisk::new, BufferKind::Heap);
}

/// Protection: the same where blocks are copied on write.
#[test]
fn records_reported_after_a_failed_sync_of_copied_blocks_stay() {
    let copying = |seed| SimDisk::new(seed).copy_on_write();
    what_is_reported_after_a_failed_sync_stays(copying, BufferKind::Auto);
    what_is_reported_after_a_failed_sync_stays(copying, BufferKind::Heap);
}

/// Protection: a log buffer belongs to the boot that made it. The first boot loses
/// power and a part of its ring; the second is killed at each of its calls before its epoch stands;
/// the third finds what an undisturbed one finds: a prefix.
#[test]
fn a_kill_in_the_boot_after_power_loss_leaves_the_same_prefix() {
    let disk = SimDisk::new(9);
    let wal = open(&disk);
    append(&wal, 0..3, 400);
    wal.sync().unwrap();
    // Of these the medium keeps what the ring has.
    let places = append(&wal, 3..6, 504);
    end_process(&disk, wal);
    let at = (8192 + places[1].as_u64() % 4096) / SECTOR * SECTOR;
    disk.lose_power_choosing(&mut |loss| match loss {
        Loss::Sector { file, offset, .. } if file != "buffer" || offset == at => Fate::Drop,
        _ => Fate::Keep,
    });
    let undisturbed = |disk: &SimDisk| {
        let disk = disk.fork(1);
        disk.restart();
        numbers(&open(&disk))
    };
    let expected = undisturbed(&disk);
    assert_eq!(expected, all(expected.len() as u64));
    assert!((3..=4).contains(&expected.len()), "{expected:?}");
    for call in 0.. {
        let next = disk.fork(call);
        next.restart();
        next.crash_at(next.calls() + call);
        if open_as(&next, BufferKind::Auto, options()).is_ok() {
            assert!(call > 10, "{call}");
            return;
        }
        next.restart();
        assert_eq!(numbers(&open(&next)), expected, "call {call}");
    }
}

/// Protection: a header that was made ahead proves nothing of what lies before it.
#[test]
fn power_loss_below_a_header_prepared_ahead_is_a_torn_tail() {
    let disk = SimDisk::new(4);
    let wal = open_as(&disk, BufferKind::Heap, options()).unwrap();
    append(&wal, 0..2, 480);
    wal.sync().unwrap();
    // The second segment is named and its header durable, with nothing in it that is.
    let places = append(&wal, 2..9, 480);
    wal.flush_to_os(*places.last().unwrap()).unwrap();
    end_process(&disk, wal);
    disk.lose_power_choosing(&mut |loss| {
        if loss.is_sector() { Fate::Drop } else { Fate::Keep }
    });
    assert!(disk.files().contains(&segment(1)), "{:?}", disk.files());
    let wal = open(&disk);
    assert_eq!(numbers(&wal), all(2));
    assert_eq!(wal.recovery_report().end, places[0]);
}

/// Protection: a number of an epoch is taken from the state, too. Its header is lost, its records
/// are kept, and a repair gives all of it up: the next epoch has another number, and the records
/// stay gone.
#[test]
fn the_number_of_an_epoch_with_a_lost_header_is_not_used_again() {
    let disk = SimDisk::new(6);
    let wal = open(&disk);
    append(&wal, 0..4, 300);
    wal.sync().unwrap();
    end_process(&disk, wal);
    disk.lose_power();
    let mut bytes = disk.file(&segment(0)).unwrap();
    bytes[..HEADER_BYTES as usize].fill(0);
    disk.set_file(&segment(0), bytes);
    let refused = open_as(&disk, BufferKind::Auto, options()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    disk.restart();
    let report = repair_in_place(&disk, Lsn::ZERO).unwrap();
    assert_eq!((report.records, report.epoch), (0, 2));
    let wal = open(&disk);
    assert_eq!(numbers(&wal), all(0));
    assert_eq!(wal.recovery_report().epoch, 2);
    wal.commit(&record(50, 300)).unwrap();
    disk.lose_power();
    assert_eq!(numbers(&open(&disk)), [50]);
}

/// Protection: a truncation stands in the new epoch's header, and frames are sealed with their
/// epoch. The short records lie where a careless log would have left the long one's rest behind
/// them.
#[test]
fn a_truncated_long_record_under_shorter_ones_stays_gone() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let wal = open(&disk);
        let kept = append(&wal, 0..3, 100)[2];
        wal.commit(&record(3, 1900)).unwrap();
        append(&wal, 4..8, 100);
        wal.sync().unwrap();
        wal.truncate_after(kept).unwrap();
        append(&wal, 10..12, 20);
        if seed % 2 == 0 {
            wal.sync().unwrap();
        }
        end_process(&disk, wal);
        if seed % 3 == 0 {
            disk.restart()
        } else {
            disk.lose_power()
        }
        let wal = open(&disk);
        let found = numbers(&wal);
        let expected = [0, 1, 2, 10, 11];
        assert!(found.len() >= 3 && found == expected[..found.len()], "{found:?}");
        assert!(seed % 2 == 1 || found == expected, "seed {seed}: {found:?}");
    }
}

/// Protection: the state names the running epoch, whose first segment has to be there.
#[test]
fn truncated_records_stay_gone_if_the_new_epochs_header_rots() {
    let disk = SimDisk::new(8);
    let wal = open(&disk);
    let kept = append(&wal, 0..3, 100)[2];
    append(&wal, 3..9, 100);
    wal.truncate_after(kept).unwrap();
    let base = wal.reserved_lsn();
    end_process(&disk, wal);
    disk.lose_power();
    let name = segment(base.segment(SEGMENT_BYTES));
    let whole = disk.file(&name).unwrap();
    let mut rotten = whole.clone();
    rotten[100] ^= 1;
    for bytes in [Some(rotten), Some(Vec::new()), None] {
        match &bytes {
            Some(bytes) => disk.set_file(&name, bytes.clone()),
            None => disk.remove_file(&name),
        }
        let error = open_as(&disk, BufferKind::Auto, options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(error.segment(), Some(base.segment(SEGMENT_BYTES)), "{error}");
        assert_eq!(disk.file(&name), bytes);
        disk.restart();
    }
    disk.set_file(&name, whole);
    assert_eq!(numbers(&open(&disk)), all(3));
}

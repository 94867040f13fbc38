//! Engines that replay before the log accepts appends: each record once, in order; an engine that
//! stops loses nothing.

use palisade::Recovery;

use crate::prelude::*;

/// Reads what was recovered, from `from` on.
fn replayed(recovery: &Recovery, from: impl Into<ReplayFrom>) -> Entries {
    let mut found = Vec::new();
    let mut records = recovery.records(from).unwrap();
    while let Some(record) = records.next().unwrap() {
        assert!(record.next_lsn() <= recovery.end());
        found.push((record.lsn(), record.data().to_vec()));
    }
    found
}

fn log() -> (tempfile::TempDir, std::path::PathBuf, Entries) {
    let (dir, path, wal) = log_on_files(small());
    (0..900_u32).for_each(|n| drop(wal.append(&n.to_le_bytes().repeat(50)).unwrap()));
    wal.append_batch(&[b"one", b"two"]).unwrap().wait().unwrap();
    let records = contents(&wal);
    wal.sync().unwrap();
    (dir, path, records)
}

#[test]
fn every_record_is_replayed_once_in_order_after_a_kill_or_close() {
    let (_dir, path, records) = log();
    for closed in [false, true] {
        let (_copy, path) = copy_as_killed(&path);
        if closed {
            small().open(&path).unwrap().close().unwrap();
        }
        for from in [0, 1, 450, 900, 901] {
            let (_copy, path) = copy_as_killed(&path);
            let recovery = small().recover(&path).unwrap();
            assert_eq!(recovery.report().clean, closed);
            assert_eq!(replayed(&recovery, records[from].0), records[from..]);
            assert_eq!(replayed(&recovery, ReplayFrom::Head), records);
            assert_eq!(recovery.end(), recovery.report().end);
            let base = recovery.report().base;
            let wal = recovery.start();
            assert_eq!(wal.commit(b"and on").unwrap(), base);
        }
    }
}

#[test]
fn a_replay_from_the_checkpoint_begins_there_or_at_the_head() {
    let (_dir, path, records) = log();
    let checkpoint = records[300].0;
    let wal = small().open(&path).unwrap();
    wal.checkpoint(checkpoint).unwrap();
    drop(wal);
    let recovery = small().recover(&path).unwrap();
    assert_eq!(recovery.checkpoint(), checkpoint);
    assert_eq!(replayed(&recovery, ReplayFrom::Checkpoint), records[300..]);
    let wal = recovery.start();
    wal.truncate_before(records[500].0).unwrap();
    wal.close().unwrap();
    let recovery = small().recover(&path).unwrap();
    assert_eq!(recovery.head(), records[500].0);
    assert_eq!(replayed(&recovery, ReplayFrom::Checkpoint), records[500..]);
    let gone = recovery.records(records[3].0).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Truncated);
    // A checkpoint at the end leaves nothing to replay.
    let wal = recovery.start();
    wal.checkpoint(wal.reserved_lsn()).unwrap();
    drop(wal);
    let recovery = small().recover(&path).unwrap();
    assert_eq!(replayed(&recovery, ReplayFrom::Checkpoint), []);
}

/// Protection: an engine replays from the LSN of its snapshot as it is, and learns that it has an
/// old one.
#[test]
fn a_replay_from_a_snapshot_tells_an_old_one() {
    let (_dir, path, wal) = log_on_files(small());
    let append = |wal: &palisade::Wal| wal.append(b"record").unwrap().end_lsn();
    let old = append(&wal);
    let newest = append(&wal);
    wal.sync().unwrap();
    wal.truncate_before(newest).unwrap();
    wal.abandon();
    for crash in 0..20 {
        let recovery = small().recover(&path).unwrap();
        assert!(replayed(&recovery, newest).is_empty(), "crash {crash}");
        let refused = recovery.records(ReplayFrom::Lsn(old)).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Truncated, "crash {crash}");
        let ahead = Lsn::new(1 << 40);
        let refused = recovery.records(ReplayFrom::Lsn(ahead)).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfRange, "crash {crash}");
        let wal = recovery.start();
        wal.truncate_before(newest).unwrap();
        wal.checkpoint(newest).unwrap();
        assert!(wal.head_lsn() > newest && wal.checkpoint_lsn() == wal.head_lsn());
        wal.abandon();
    }
}

#[test]
fn a_replay_may_begin_at_the_end_and_finds_nothing_there() {
    let (_dir, path, _) = log();
    let recovery = small().recover(&path).unwrap();
    assert_eq!(replayed(&recovery, recovery.end()), []);
    let beyond = recovery.records(Lsn::new(1 << 40)).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::OutOfRange);
    recovery.start().close().unwrap();
}

#[test]
fn an_engine_that_stops_in_the_middle_of_a_replay_loses_nothing() {
    let (_dir, path, records) = log();
    for closed in [false, true, false, true] {
        let recovery = small().recover(&path).unwrap();
        let mut found = recovery.records(ReplayFrom::Head).unwrap();
        (0..500).for_each(|_| assert!(found.next().unwrap().is_some()));
        drop((found, recovery));
        let wal = small().open(&path).unwrap();
        assert_eq!(contents(&wal), records);
        if closed {
            wal.close().unwrap();
        }
    }
}

#[test]
fn a_record_that_does_not_validate_ends_the_replay_with_its_lsn() {
    let (_dir, path, records) = log();
    small().open(&path).unwrap().close().unwrap();
    let (file, at) = place_of(&path, records[100].0, SEGMENT_BYTES);
    flip(&file, at + 30);
    let recovery = small().recover(&path).unwrap();
    let (found, error) = read_until_error(recovery.records(ReplayFrom::Head).unwrap());
    assert_eq!(found, records[..100]);
    let error = error.unwrap();
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(records[100].0)));
}

/// What an engine was given must be there when the machine dies in the middle of its replay.
#[test]
fn what_was_replayed_survives_loss_of_power_during_the_replay() {
    let options = || Options::new().buffer_bytes(1 << 14).verify(Verify::Full);
    let store = FaultyLog::new(SEGMENT_BYTES);
    let wal = store.open(options());
    for n in 0..60_u8 {
        wal.append(&[n; 100]).unwrap();
    }
    let next = store.after_kill(wal);
    let wal = next.open(options());
    let given: Entries = contents(&wal)[..40].to_vec();
    next.kill();
    next.inner.lose_power();
    drop(wal);
    let wal = next.next_run().open(options());
    assert_eq!(contents(&wal)[..40], given);
}

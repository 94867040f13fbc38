//! A backup of a log that goes on, and holds.

use super::restore::{Left, open_there};
use crate::prelude::*;

fn open(path: &Path) -> Wal {
    small().open_mode(OpenMode::MustExist).open(path).unwrap()
}

#[test]
fn a_backup_has_all_records_from_head_to_end_and_goes_on_above() {
    let (dir, _path, wal) = log_on_files(small());
    let backup = dir.path().join("backup");
    let mut records = append_bytes(&wal, 0..40, 4000);
    wal.truncate_after(records[29].0).unwrap();
    records.truncate(30);
    records.extend(append_bytes(&wal, 40..70, 4000));
    wal.checkpoint(records[35].0).unwrap();
    wal.truncate_before(records[10].0).unwrap();
    // Only the log buffer has these.
    records.extend(append_bytes(&wal, 70..72, 4000));
    let report = wal.backup_to(&backup).unwrap();
    let after = append_bytes(&wal, 72..80, 4000);
    let copy = open(&backup);
    assert_eq!(contents(&copy), records[10..]);
    assert_eq!((report.records, report.head, report.uuid), (52, records[10].0, wal.uuid()));
    assert_eq!((copy.head_lsn(), copy.checkpoint_lsn()), (wal.head_lsn(), wal.checkpoint_lsn()));
    assert!(copy.recovery_report().clean && report.end <= after[0].0);
    let next = copy.commit(b"the copy goes on").unwrap();
    assert!(next == report.base && next > report.end);
    assert_eq!(contents(&wal).len(), 60);
}

#[test]
fn a_log_without_records_has_a_backup() {
    let (dir, _path, wal) = log_on_files(small());
    for name in ["new", "truncated"] {
        let backup = dir.path().join(name);
        let report = wal.backup_to(&backup).unwrap();
        assert_eq!((report.records, report.bytes), (0, 0));
        let copy = open(&backup);
        assert!(copy.is_empty().unwrap());
        assert!(copy.commit(b"above").unwrap() >= wal.reserved_lsn());
        append_bytes(&wal, 0..30, 4000);
        wal.truncate_before(wal.reserved_lsn()).unwrap();
    }
}

#[test]
fn a_backup_beside_writers_has_exactly_the_records_of_its_range() {
    let (dir, _path, wal) = log_on_files(small());
    let mut all = append_bytes(&wal, 0..50, 4000);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (1..=2_u8)
            .map(|writer| {
                let (wal, is_done) = (&wal, &is_done);
                scope.spawn(move || {
                    let mut mine = Entries::new();
                    while !is_done.load(Ordering::Relaxed) {
                        let data = vec![writer; 700 + mine.len() % 900];
                        let lsn = wal.append(&data).unwrap().lsn();
                        if mine.len().is_multiple_of(16) {
                            wal.wait_durable(lsn).unwrap();
                        }
                        if mine.len() % 64 == 63 && writer == 1 {
                            wal.truncate_before(mine[mine.len() - 60].0).unwrap();
                        }
                        mine.push((lsn, data));
                    }
                    mine
                })
            })
            .collect();
        let reports: Vec<_> = (0..8)
            .map(|n| wal.backup_to(dir.path().join(format!("backup {n}"))).unwrap())
            .collect();
        is_done.store(true, Ordering::Relaxed);
        all.extend(writers.into_iter().flat_map(|writer| writer.join().unwrap()));
        all.sort_unstable();
        for (n, report) in reports.iter().enumerate() {
            let in_range = |(lsn, _): &&(Lsn, Vec<u8>)| report.head <= *lsn && *lsn < report.end;
            let expected: Entries = all.iter().filter(in_range).cloned().collect();
            let copy = open(&dir.path().join(format!("backup {n}")));
            assert!(contents(&copy) == expected, "backup {n}: {report:?}");
            assert_eq!(report.records as usize, expected.len());
        }
        assert!(reports[7].end > reports[0].end);
    });
}

/// A log in memory, and a disk that calls a closure when the backup writes its first segment.
fn backup_while(during: impl Fn(&Wal) + Send + Sync + 'static) -> (Wal, FaultDisk, MemDisk) {
    watch();
    let wal = Wal::with_store(MemStore::new(SEGMENT_BYTES), small()).unwrap();
    let below = MemDisk::new();
    let disk = FaultDisk::new(Arc::new(below.clone()));
    let (log, was_called) = (wal.clone(), AtomicBool::new(false));
    disk.watch(move |call| {
        let is_first = call.kind == CallKind::Write && call.target == Target::Segment;
        if is_first && !was_called.swap(true, Ordering::Relaxed) {
            during(&log);
        }
        Ok(())
    });
    (wal, disk, below)
}

#[test]
fn a_backup_of_records_truncated_meanwhile_leaves_nothing() {
    for kept in [5, 30, 58] {
        let (wal, disk, below) = backup_while(move |wal| {
            let records = contents(wal);
            wal.truncate_after(records[kept].0).unwrap();
            append_bytes(wal, 100..110, 4000);
        });
        append_bytes(&wal, 0..60, 4000);
        let error = wal.backup_on(Arc::new(disk), "/backup").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "{kept}: {error}");
        let folder = below.open_folder(Path::new("/backup"), 0).unwrap();
        assert_eq!(folder.list().unwrap(), Vec::<String>::new());
        let report = wal.backup_on(Arc::new(below), "/backup").unwrap();
        assert_eq!(report.records as usize, kept + 11);
    }
}

#[test]
fn truncations_that_take_nothing_of_a_backup_do_not_end_it() {
    let (wal, disk, below) = backup_while(|wal| {
        let records = contents(wal);
        let more = append_bytes(wal, 100..160, 4000);
        wal.truncate_after(more[20].0).unwrap();
        wal.truncate_after(records[59].0).unwrap();
        append_bytes(wal, 160..220, 4000);
        wal.truncate_before(wal.reserved_lsn()).unwrap();
    });
    let records = append_bytes(&wal, 0..60, 4000);
    let report = wal.backup_on(Arc::new(disk), "/backup").unwrap();
    assert_eq!(report.records, 60);
    let copy = small().open_on(Arc::new(below), "/backup").unwrap();
    assert_eq!(contents(&copy), records);
    assert!(wal.is_empty().unwrap());
}

#[test]
fn a_damaged_frame_ends_a_backup_and_leaves_nothing() {
    watch();
    let store = MemStore::new(SEGMENT_BYTES);
    let wal = Wal::with_store(store.clone(), small()).unwrap();
    let records = append_bytes(&wal, 0..60, 4000);
    wal.sync().unwrap();
    store.damage(records[40].0.plus(100), b"rot").unwrap();
    let disk = MemDisk::new();
    let error = wal.backup_on(Arc::new(disk.clone()), "/backup").unwrap_err();
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(records[40].0)), "{error}");
    let folder = disk.open_folder(Path::new("/backup"), 0).unwrap();
    assert!(folder.list().unwrap().is_empty());
    wal.commit(b"the log goes on").unwrap();
}

#[test]
fn the_zeros_of_a_long_padding_take_no_space_in_a_backup() {
    let (dir, _path, wal) = log_on_files(small());
    let backup = dir.path().join("backup");
    // Eight records leave 6912 bytes of the first segment.
    let records = append_bytes(&wal, 0..9, 7300);
    assert_eq!((records[7].0.as_u64(), records[8].0.segment(SEGMENT_BYTES)), (7 * 7328, 1));
    wal.backup_to(&backup).unwrap();
    let bytes = fs::metadata(segment(&backup, 0)).unwrap().len();
    assert!(bytes < SEGMENT_BYTES, "{bytes}");
    assert_eq!(contents(&open(&backup)), records);
}

#[test]
fn a_folder_unfit_for_a_backup_is_refused_unchanged() {
    let (dir, path, wal) = log_on_files(small());
    append_bytes(&wal, 0..10, 4000);
    wal.sync().unwrap();
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), b"of another program").unwrap();
    for into in [&other, &path, &path.join("backup")] {
        let error = wal.backup_to(into).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert_eq!(snapshot(&other).len(), 1);
    assert!(!path.join("backup").exists());
    wal.close().unwrap();
    assert_eq!(wal.backup_to(dir.path().join("late")).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn power_loss_at_any_call_of_a_backup_leaves_no_or_a_whole_log() {
    watch();
    let (mut left, mut is_done, mut call) = (Left::default(), false, 0);
    while !is_done {
        let disk = SimDisk::new(call);
        let wal = small().open_on(disk.as_disk(), "/original").unwrap();
        let records = append_bytes(&wal, 0..60, 4000);
        wal.truncate_before(records[10].0).unwrap();
        wal.sync().unwrap();
        disk.crash_at(disk.calls() + call);
        is_done = wal.backup_on(disk.as_disk(), "/backup").is_ok() && !disk.is_dead();
        for fate in 0..6 {
            let disk = disk.fork(fate);
            disk.lose_power();
            let original = open_there(&disk, "/original").unwrap();
            assert_eq!(contents(&original), records[10..], "call {call}, fate {fate}");
            left.check(&disk, "/backup", &records[10..], is_done, &format!("{call}, {fate}"));
        }
        call += 1;
    }
    left.assert_both();
}

#[test]
fn a_hold_keeps_the_segments_from_its_lsn_on_until_its_drop() {
    let (_dir, path, wal) = log_on_files(small());
    let records = append_bytes(&wal, 0..60, 4000);
    let held = records[20].0;
    let hold = wal.hold(held).unwrap();
    assert_eq!(hold.lsn(), held);
    assert!(format!("{hold:?}").contains(&held.to_string()), "{hold:?}");
    wal.truncate_before(records[50].0).unwrap();
    let is_there = |number| segment(&path, number).exists();
    assert_eq!([0, 1, 2, 3].map(is_there), [false, true, true, true]);
    assert_eq!(wal.head_lsn(), records[50].0);
    drop(hold);
    assert_eq!([0, 1, 2, 3].map(is_there), [false, false, false, true]);
}

#[test]
fn a_hold_reads_what_it_keeps_also_below_the_head() {
    let (_dir, _path, wal) = log_on_files(small());
    let mut records = append_bytes(&wal, 0..60, 4000);
    let held = [0, 20, 55].map(|n| wal.hold(records[n].0).unwrap());
    let inside = wal.hold(records[20].0.plus(8)).unwrap();
    wal.truncate_before(records[50].0).unwrap();
    wal.truncate_after(records[53].0).unwrap();
    records.truncate(54);
    records.extend(append_bytes(&wal, 60..70, 4000));
    for (hold, from) in held.iter().zip([0, 20, 54]) {
        let read = hold.records().unwrap().into_iter().map(|record| record.unwrap());
        let read: Entries = read.map(|record| (record.lsn(), record.data().to_vec())).collect();
        assert!(read == records[from..], "{hold:?}");
    }
    assert_eq!(inside.records().unwrap_err().kind(), ErrorKind::NotARecord);
    // The iterator keeps what it reads when the hold is gone.
    let mut iterator = held[0].records().unwrap();
    drop((held, inside));
    for (lsn, _) in &records {
        assert_eq!(iterator.next().unwrap().unwrap().lsn(), *lsn);
    }
}

#[test]
fn a_hold_outside_of_the_log_is_refused() {
    let wal = log_in_memory(SEGMENT_BYTES, 1 << 16);
    let records = append_bytes(&wal, 0..10, 4000);
    wal.truncate_before(records[5].0).unwrap();
    let kind = |lsn| wal.hold(lsn).map(drop).map_err(|error| (error.kind(), error.lsn()));
    assert_eq!(kind(records[4].0), Err((ErrorKind::Truncated, Some(records[4].0))));
    let above = wal.reserved_lsn().plus(8);
    assert_eq!(kind(above), Err((ErrorKind::OutOfRange, Some(above))));
    assert_eq!(kind(wal.head_lsn()), Ok(()));
    assert_eq!(kind(wal.reserved_lsn()), Ok(()));
}

//! A restore: an archive and what is left of the log become a new log with the same LSNs.

use palisade::{CopyReport, Result};

use crate::prelude::*;

/// A log that was closed, its archive, and all records that were appended to it.
struct Archived {
    dir: TempDir,
    log: PathBuf,
    archive: PathBuf,
    records: Entries,
}

impl Archived {
    /// Sixty records; the first fifty are truncated, and most of them archived.
    fn new() -> Archived {
        let (dir, log) = folder();
        let archive = dir.path().join("archive");
        let wal = archiving(&log, &archive);
        let records = append_bytes(&wal, 0..60, 4000);
        wal.truncate_before(records[50].0).unwrap();
        wal.close().unwrap();
        Archived { dir, log, archive, records }
    }

    fn both(&self) -> RestoreFrom {
        RestoreFrom::archive(&self.archive).with_log(&self.log)
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("restored")
    }

    /// Restores into a folder and opens the log there.
    fn restored(&self, from: RestoreFrom, to: Option<Lsn>) -> Result<(Wal, CopyReport)> {
        // There may be a log that was restored before.
        let _ = fs::remove_dir_all(self.target());
        let report = plan(from, to)?.write(self.target(), &mut |_| {})?;
        Ok((archiving(&self.target(), &self.dir.path().join("archive of the copy")), report))
    }

    /// The error of a restore that writes nothing.
    fn refused(&self, from: RestoreFrom, to: Option<Lsn>) -> Error {
        let before = (snapshot(&self.log), snapshot(&self.archive));
        let error = plan(from, to).unwrap_err();
        assert_eq!((snapshot(&self.log), snapshot(&self.archive)), before);
        error
    }

    /// The number of records that the archive has.
    fn count(&self) -> usize {
        archived(&self.archive).len()
    }
}

fn archiving(log: &Path, archive: &Path) -> Wal {
    small().on_release(Archive::open(archive).unwrap()).open(log).unwrap()
}

fn plan(from: RestoreFrom, to: Option<Lsn>) -> Result<Restore> {
    Restore::plan(from, to, &mut |_| {})
}

#[test]
fn archive_and_log_keep_their_lsns_and_no_lsn_is_used_twice() {
    let log = Archived::new();
    let before = (snapshot(&log.log), snapshot(&log.archive));
    let uuid = palisade::inspect::Inspector::open(&log.log).unwrap().state().unwrap().uuid;
    let (wal, report) = log.restored(log.both(), None).unwrap();
    assert_eq!((snapshot(&log.log), snapshot(&log.archive)), before);
    assert_eq!(contents(&wal), log.records);
    assert_eq!((report.records, report.head, report.uuid), (60, Lsn::ZERO, uuid));
    assert!(wal.recovery_report().clean && wal.uuid() == uuid);
    let next = wal.commit(b"the engine goes on").unwrap();
    assert!(next == report.base && next >= Lsn::new(4 * SEGMENT_BYTES));
    drop(wal);
    let wal = small().open(log.target()).unwrap();
    assert_eq!(contents(&wal)[..60], log.records);
    assert_eq!(wal.get(next).unwrap().data(), b"the engine goes on");
}

#[test]
fn a_restore_ends_below_the_lsn_that_the_caller_names() {
    let log = Archived::new();
    for kept in [0, 1, 16, 17, 40, 50, 59] {
        let (wal, report) = log.restored(log.both(), Some(log.records[kept].0)).unwrap();
        assert_eq!(contents(&wal), log.records[..kept]);
        assert_eq!(report.records as usize, kept);
        assert!(wal.commit(b"above").unwrap() > log.records[59].0);
    }
    let inside = log.refused(log.both(), Some(log.records[20].0.plus(8)));
    assert_eq!(
        (inside.kind(), inside.lsn()),
        (ErrorKind::NotARecord, Some(log.records[20].0.plus(8)))
    );
    let end = plan(log.both(), None).unwrap().report().end;
    let above = log.refused(log.both(), Some(end.plus(4096)));
    assert_eq!((above.kind(), above.lsn()), (ErrorKind::OutOfRange, Some(end)), "{above}");
}

#[test]
fn appends_to_a_restored_archive_begin_above_the_engines_lsns() {
    let log = Archived::new();
    let from = RestoreFrom::archive(&log.archive);
    let (wal, _) = log.restored(from.clone(), None).unwrap();
    assert_eq!(contents(&wal), log.records[..log.count()]);
    assert!(wal.commit(b"above").unwrap() > log.records[59].0);
    drop(wal);
    let page = Lsn::new(7 << 40);
    let (wal, _) = log.restored(from.clone(), Some(log.records[20].0)).unwrap();
    assert!(wal.commit(b"above").unwrap() < page);
    drop(wal);
    let (wal, _) = log.restored(from.above(page), None).unwrap();
    assert!(wal.commit(b"above").unwrap() > page);
}

#[test]
fn a_log_of_many_runs_is_restored_without_truncated_records() {
    let (dir, log) = folder();
    let archive = dir.path().join("archive");
    let (mut records, mut gone) = (Entries::new(), Entries::new());
    for run in 0..4_u8 {
        let wal = archiving(&log, &archive);
        records.extend(append_bytes(&wal, run * 50..run * 50 + 40, 4000));
        if run % 2 == 0 {
            let kept = records.len() - 10;
            wal.truncate_after(records[kept].0).unwrap();
            // The first one began where the kept ones end, up to where a restore can go.
            gone.extend(records.drain(kept + 1..).skip(1));
            records.extend(append_bytes(&wal, 240..250, 4000));
        }
        wal.truncate_before(records[records.len() - 3].0).unwrap();
        if run == 1 {
            wal.close().unwrap();
        }
    }
    let log = Archived { dir, log, archive, records };
    for (lsn, _) in &gone {
        let error = log.refused(log.both(), Some(*lsn));
        assert_eq!(error.kind(), ErrorKind::NotARecord, "{error}");
    }
    for kept in [log.records.len(), 95, 60, 35] {
        let to = log.records.get(kept).map(|record| record.0);
        let (wal, _) = log.restored(log.both(), to).unwrap();
        assert_eq!(contents(&wal), log.records[..kept]);
    }
}

#[test]
fn a_damaged_archive_frame_is_named_and_all_below_is_restored() {
    let log = Archived::new();
    let bad = log.records[20].0;
    let (file, at) = place_of(&log.archive, bad.plus(100), SEGMENT_BYTES);
    flip(&file, at);
    let error = log.refused(log.both(), None);
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(bad)), "{error}");
    assert_eq!((error.segment(), error.path()), (Some(bad.segment(SEGMENT_BYTES)), Some(&*file)));
    let (wal, _) = log.restored(log.both(), Some(bad)).unwrap();
    assert_eq!(contents(&wal), log.records[..20]);
}

#[test]
fn a_missing_segment_is_named_and_all_below_is_restored() {
    let log = Archived::new();
    // Within the archive, and between the archive and the log.
    for number in [1, 2] {
        fs::remove_file(segment(&log.archive, number)).unwrap();
        let base = Lsn::new(number * SEGMENT_BYTES);
        let error = log.refused(log.both(), None);
        assert_eq!(
            (error.kind(), error.lsn()),
            (ErrorKind::Corrupt, Some(Lsn::new(SEGMENT_BYTES)))
        );
        assert_eq!(error.segment(), Some(1), "{error}");
        let kept = log.records.iter().filter(|(lsn, _)| *lsn < base).count().min(16);
        let (wal, _) = log.restored(log.both(), Some(Lsn::new(SEGMENT_BYTES))).unwrap();
        assert_eq!(contents(&wal), log.records[..kept]);
    }
    let above = log.records.iter().find(|(lsn, _)| *lsn >= Lsn::new(3 * SEGMENT_BYTES)).unwrap().0;
    let error = log.refused(log.both(), Some(above));
    assert_eq!((error.kind(), error.segment()), (ErrorKind::Corrupt, Some(1)), "{error}");
}

/// Checks that no truncated record comes back.
#[test]
fn an_epoch_without_its_first_segment_is_named_and_not_restored() {
    let (dir, log) = folder();
    let archive = dir.path().join("archive");
    let wal = archiving(&log, &archive);
    let kept = append_bytes(&wal, 0..40, 4000);
    wal.truncate_after(kept[29].0).unwrap();
    let more = append_bytes(&wal, 100..160, 4000);
    wal.truncate_before(more[50].0).unwrap();
    wal.close().unwrap();
    fs::remove_file(segment(&archive, more[0].0.segment(SEGMENT_BYTES))).unwrap();
    let log = Archived { dir, log, archive, records: kept };
    for to in [None, Some(log.records[35].0), Some(log.records[20].0)] {
        let error = log.refused(log.both(), to);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("first segment of epoch"), "{error}");
    }
}

#[test]
fn sources_that_do_not_belong_together_are_refused() {
    let (one, two) = (Archived::new(), Archived::new());
    let error = one.refused(RestoreFrom::archive(&two.archive).with_log(&one.log), None);
    assert_eq!((error.kind(), error.path()), (ErrorKind::Mismatch, Some(&*two.archive)), "{error}");
    let error = one.refused(RestoreFrom::archive(&one.log), None);
    assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(&*one.log)));
    let missing = one.dir.path().join("missing");
    for from in [RestoreFrom::archive(&missing), one.both().with_log(&missing)] {
        assert_eq!(one.refused(from, None).kind(), ErrorKind::NotFound);
    }
    let wal = small().open(&one.log).unwrap();
    let error = plan(one.both(), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("Wal::backup_to"), "{error}");
    drop(wal);
    let restore = plan(one.both(), None).unwrap();
    assert_eq!(small().open(&one.log).unwrap_err().kind(), ErrorKind::Locked);
    drop(restore);
}

#[test]
fn a_log_without_meta_is_restored_only_with_its_archive() {
    let log = Archived::new();
    fs::remove_file(log.log.join("meta")).unwrap();
    let error = log.refused(RestoreFrom::log(&log.log), None);
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let (wal, report) = log.restored(log.both(), None).unwrap();
    assert_eq!((contents(&wal), report.records), (log.records.clone(), 60));
    assert!(wal.commit(b"above").unwrap() > log.records[59].0);
}

#[test]
fn a_log_alone_is_restored_from_its_head_on() {
    let log = Archived::new();
    let from = RestoreFrom::log(&log.log);
    let (wal, report) = log.restored(from.clone(), None).unwrap();
    assert_eq!((contents(&wal), report.head), (log.records[50..].to_vec(), log.records[50].0));
    let below = log.refused(from, Some(log.records[49].0));
    assert_eq!(below.kind(), ErrorKind::Truncated, "{below}");
}

/// What the state of a log says beside its records is not in the archive: it is the folder's.
#[test]
fn a_restore_keeps_cursors_checkpoint_and_positions_of_the_log() {
    let log = Archived::new();
    let wal = archiving(&log.log, &log.archive);
    let mut cursor = wal.create_cursor("one", Some(log.records[52].0), 8 * SEGMENT_BYTES).unwrap();
    cursor.next(Duration::ZERO).unwrap().unwrap();
    cursor.save().unwrap();
    wal.checkpoint(log.records[51].0).unwrap();
    drop(cursor);
    wal.close().unwrap();
    // Two epochs without records: their bases stay positions.
    let positions: Vec<Lsn> =
        (0..2).map(|_| archiving(&log.log, &log.archive).durable_lsn()).collect();

    for from in [log.both(), RestoreFrom::log(&log.log)] {
        let (wal, _) = log.restored(from.clone(), None).unwrap();
        assert_eq!(wal.checkpoint_lsn(), log.records[51].0, "{from:?}");
        for &position in &positions {
            assert!(wal.tail_from(position).is_ok(), "{position} of {from:?}");
        }
        wal.truncate_before(log.records[58].0).unwrap();
        assert_eq!(wal.head_lsn(), log.records[53].0, "the cursor keeps the log: {from:?}");
        let mut cursor = wal.cursor("one").unwrap();
        assert_eq!(cursor.next(Duration::ZERO).unwrap().unwrap().lsn(), log.records[53].0);
    }
}

/// Two processes went on with copies of one log: neither is the sequence that the other is.
#[test]
fn a_log_and_the_archive_of_a_copy_that_went_on_are_refused() {
    let (dir, log) = folder();
    let (archive, backup) = (dir.path().join("archive"), dir.path().join("backup"));
    let wal = archiving(&log, &archive);
    append_bytes(&wal, 0..20, 4000);
    wal.backup_to(&backup).unwrap();
    let records = append_bytes(&wal, 20..120, 4000);
    wal.truncate_before(records[90].0).unwrap();
    wal.close().unwrap();
    let copy = small().open(&backup).unwrap();
    append_bytes(&copy, 200..220, 4000);
    copy.close().unwrap();
    let log = Archived { dir, log: backup, archive, records };
    let error = log.refused(log.both(), None);
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
}

#[test]
fn a_backup_and_an_archive_that_went_on_are_one_log() {
    let (dir, log) = folder();
    let (archive, backup) = (dir.path().join("archive"), dir.path().join("backup"));
    let wal = archiving(&log, &archive);
    let mut records = append_bytes(&wal, 0..60, 4000);
    wal.truncate_before(records[30].0).unwrap();
    wal.backup_to(&backup).unwrap();
    let log = Archived { dir, log: backup, archive, records: records.clone() };
    let (restored, _) = log.restored(log.both(), None).unwrap();
    assert_eq!(contents(&restored), records);
    drop(restored);
    records.extend(append_bytes(&wal, 60..120, 4000));
    wal.truncate_before(records[110].0).unwrap();
    let (restored, _) = log.restored(log.both(), None).unwrap();
    let count = log.count();
    assert!(count > 60);
    assert_eq!(contents(&restored), records[..count]);
}

/// The archive of the original goes on as the restored log's: truncated records are no part of it.
#[test]
fn a_restored_log_goes_on_with_the_archive_that_it_came_from() {
    let log = Archived::new();
    let kept = 20;
    plan(log.both(), Some(log.records[kept].0)).unwrap().write(log.target(), &mut |_| {}).unwrap();
    let wal = archiving(&log.target(), &log.archive);
    let mut records = log.records[..kept].to_vec();
    records.extend(append_bytes(&wal, 100..160, 4000));
    wal.truncate_before(records[60].0).unwrap();
    let archived = archived(&log.archive);
    assert!(archived.len() > 40);
    assert_eq!(archived, records[..archived.len()]);
}

#[test]
fn a_folder_unfit_for_a_restore_is_refused_unchanged() {
    let log = Archived::new();
    let other = log.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), b"of another program").unwrap();
    let inside = [log.log.join("restored"), log.archive.join("restored")];
    for into in inside.iter().chain([&other, &log.log]) {
        let before = (snapshot(&log.log), snapshot(&log.archive), snapshot(&other));
        let error = plan(log.both(), None).unwrap().write(into, &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!((snapshot(&log.log), snapshot(&log.archive), snapshot(&other)), before);
    }
    let nowhere = log.dir.path().join("missing").join("restored");
    let error = plan(log.both(), None).unwrap().write(nowhere, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn damage_after_the_plan_ends_the_restore_and_leaves_nothing() {
    let log = Archived::new();
    let restore = plan(log.both(), None).unwrap();
    let (file, at) = place_of(&log.archive, log.records[20].0.plus(100), SEGMENT_BYTES);
    flip(&file, at);
    let error = restore.write(log.target(), &mut |_| {}).unwrap_err();
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Io, Some(log.records[20].0)));
    assert!(!log.target().exists());
}

#[test]
fn power_loss_at_any_call_of_a_restore_leaves_no_or_a_whole_log() {
    let log = Archived::new();
    let (mut left, mut is_done, mut call) = (Left::default(), false, 0);
    while !is_done {
        let disk = SimDisk::new(call);
        disk.crash_at(disk.calls() + call);
        let written =
            plan(log.both(), None).unwrap().write_on(disk.as_disk(), "/restored", &mut |_| {});
        is_done = written.is_ok() && !disk.is_dead();
        for fate in 0..6 {
            let disk = disk.fork(fate);
            disk.lose_power();
            left.check(&disk, "/restored", &log.records, is_done, &format!("{call}, {fate}"));
        }
        call += 1;
    }
    left.assert_both();
}

pub(super) fn open_there(disk: &SimDisk, path: &str) -> Result<Wal> {
    let options = Options::new().buffer_bytes(16 << 10).open_mode(OpenMode::MustExist);
    options.open_on(Arc::clone(&disk.as_disk()), path)
}

/// What losses of power have left of copies of a log.
#[derive(Debug, Default)]
pub(super) struct Left {
    none: u32,
    whole: u32,
}

impl Left {
    /// There is no log at `path`, or one with all of `records`; and one if the copy `is_done`.
    pub(super) fn check(
        &mut self,
        disk: &SimDisk,
        path: &str,
        records: &[(Lsn, Vec<u8>)],
        is_done: bool,
        call_and_fate: &str,
    ) {
        match open_there(disk, path) {
            Ok(wal) => {
                assert_eq!(contents(&wal), records, "{call_and_fate}");
                self.whole += 1;
            }
            Err(error) => {
                let is_none = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Foreign);
                assert!(is_none && !is_done, "{call_and_fate}: {error}");
                self.none += 1;
            }
        }
    }

    pub(super) fn assert_both(&self) {
        assert!(self.none > 60 && self.whole >= 6, "{self:?}");
    }
}

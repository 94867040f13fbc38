//! What faults, truncations and copies leave of the positions of cursors.

use crate::prelude::*;

const SYNC_STATE: Calls = (CallKind::Sync, Target::Meta);
/// Of 1000 bytes each, with their headers.
const RECORDS_PER_SEGMENT: usize = (SEGMENT_BYTES / 1024) as usize;

fn fill(wal: &Wal, count: usize) -> Vec<Lsn> {
    let lsns = (0..count).map(|_| wal.append(&[7; 1000]).unwrap().lsn()).collect();
    wal.sync().unwrap();
    lsns
}

/// Takes what there is, and says how much, or why it ends.
fn drain(cursor: &mut Cursor) -> Result<usize, ErrorKind> {
    let mut count = 0;
    while cursor.next(Duration::ZERO).map_err(|error| error.kind())?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// A log with three records in its first epoch, and a cursor at their end.
fn log_with_a_cursor(path: &std::path::Path) -> Wal {
    let wal = small().open(path).unwrap();
    fill(&wal, 3);
    let mut cursor = wal.create_cursor("one", None, u64::MAX).unwrap();
    assert_eq!(drain(&mut cursor), Ok(3));
    cursor.save().unwrap();
    wal
}

/// An epoch with records, over many opens of the log and of its backup.
#[test]
fn a_head_at_an_epochs_base_lets_a_cursor_before_it_read_on() {
    let (_folder, path) = folder();
    let end = {
        let wal = log_with_a_cursor(&path);
        wal.cursors().unwrap()[0].position
    };
    let base = fill(&small().open(&path).unwrap(), 2)[0];
    let wal = small().open(&path).unwrap();
    fill(&wal, 2);
    wal.truncate_before(base).unwrap();
    let copy = path.with_extension("copy");
    wal.backup_to(&copy).unwrap();
    drop(wal);
    for path in [&path, &copy] {
        for _ in 0..20 {
            let wal = small().open(path).unwrap();
            assert_eq!(wal.head_lsn(), base);
            assert_eq!(drain(&mut wal.cursor("one").unwrap()), Ok(4));
            assert_eq!(wal.resume_lsn(end).unwrap(), end);
        }
    }
}

#[test]
fn a_truncated_position_stays_truncated_below_a_later_head() {
    let (_folder, path, wal) = log_on_files(small());
    let lsns = fill(&wal, 10);
    let mut cursor = wal.create_cursor("one", None, u64::MAX).unwrap();
    assert_eq!(drain(&mut cursor), Ok(10));
    cursor.save().unwrap();
    wal.truncate_after(lsns[5]).unwrap();
    let after = fill(&wal, 2);
    wal.truncate_before(after[0]).unwrap();
    assert_eq!(wal.head_lsn(), after[0]);
    assert_eq!(drain(&mut cursor), Err(ErrorKind::Truncated));
    drop(cursor);
    assert_eq!(drain(&mut wal.cursor("one").unwrap()), Err(ErrorKind::Truncated));
    drop(wal);
    let wal = small().open(&path).unwrap();
    assert_eq!(drain(&mut wal.cursor("one").unwrap()), Err(ErrorKind::Truncated));
}

#[test]
fn a_record_that_was_not_returned_is_not_confirmed() {
    let (_folder, _, wal) = log_on_files(small());
    let lsns = fill(&wal, 2 * RECORDS_PER_SEGMENT);
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    for _ in 1..RECORDS_PER_SEGMENT {
        cursor.next(Duration::ZERO).unwrap().unwrap();
    }
    // The last record of the segment ends where the head will be.
    assert!(cursor.peek(Duration::ZERO).unwrap().is_some());
    wal.truncate_before(lsns[RECORDS_PER_SEGMENT]).unwrap();
    for _ in 0..2 {
        assert_eq!(drain(&mut cursor), Err(ErrorKind::Lagged));
        assert_eq!(cursor.position(), lsns[RECORDS_PER_SEGMENT - 1]);
        assert_eq!(cursor.save().unwrap_err().kind(), ErrorKind::Lagged);
    }
}

#[test]
fn a_cursor_that_has_read_a_mark_does_not_lag_below_it() {
    let (_folder, _, wal) = log_on_files(small());
    let lsns = fill(&wal, 3);
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    wal.checkpoint(lsns[2]).unwrap();
    assert_eq!(drain(&mut cursor), Ok(3));
    wal.truncate_before(wal.reserved_lsn()).unwrap();
    cursor.save().unwrap();
    drop(cursor);
    fill(&wal, 1);
    assert_eq!(drain(&mut wal.cursor("one").unwrap()), Ok(1));
}

/// The write of the state was done, and its sync failed: the disk may have either state.
#[test]
fn a_save_that_failed_after_its_write_is_undone_by_the_next_one() {
    let (wal, log) = log_and_store();
    let lsns = fill(&wal, 5);
    let mut cursor = wal.create_cursor("one", None, u64::MAX).unwrap();
    drop(wal.create_cursor("two", None, u64::MAX).unwrap());
    assert_eq!(drain(&mut cursor), Ok(5));
    log.set(SYNC_STATE, Effect::Eio);
    assert_eq!(cursor.save().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(wal.remove_cursor("two").unwrap_err().kind(), ErrorKind::Io);
    log.set(SYNC_STATE, Effect::Pass);
    cursor.seek(lsns[0]).unwrap();
    log.kill();
    drop(cursor);
    let wal = log.after_kill(wal).open(Options::new().buffer_bytes(1 << 14));
    assert_eq!(drain(&mut wal.cursor("one").unwrap()), Ok(5));
    assert_eq!(drain(&mut wal.cursor("two").unwrap()), Ok(5));
}

#[test]
fn a_cursor_is_one_pin() {
    let (_folder, _, wal) = log_on_files(small());
    let _one = wal.create_cursor("one", None, u64::MAX).unwrap();
    let two = wal.create_cursor("two", None, u64::MAX).unwrap();
    let count = || wal.space().unwrap().pins.iter().map(|pin| pin.count).sum::<usize>();
    assert_eq!(count(), 2);
    drop(two);
    assert_eq!(count(), 2);
    assert_eq!(wal.space().unwrap().pins[0].kind, PinKind::Cursor);
}

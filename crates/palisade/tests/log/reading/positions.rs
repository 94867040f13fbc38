//! Positions that the log has returned and a consumer saves: which of them later opens accept.

use crate::prelude::*;

/// Opens the log, which was not closed, so that an epoch begins.
fn open(path: &Path) -> Wal {
    small().open(path).unwrap()
}

fn first_from(wal: &Wal, lsn: Lsn) -> Option<Lsn> {
    wal.records_from(lsn).unwrap().next().unwrap().map(|record| record.lsn())
}

#[test]
fn the_base_of_an_epoch_that_stayed_empty_stays_a_position() {
    let (_folder, path) = folder();
    let wal = open(&path);
    let mut positions = vec![wal.durable_lsn()];
    let kept = wal.commit(b"kept").unwrap();
    wal.commit(b"truncated").unwrap();
    wal.truncate_after(kept).unwrap();
    positions.push(wal.durable_lsn());
    drop(wal);
    for _ in 0..3 {
        let wal = open(&path);
        positions.push(wal.durable_lsn());
        for &position in &positions[1..] {
            assert_eq!(first_from(&wal, position), None, "{position} of {positions:?}");
            assert!(wal.tail_from(position).is_ok());
        }
        assert_eq!(first_from(&wal, positions[0]), Some(kept));
    }
    let wal = open(&path);
    let next = wal.commit(b"next").unwrap();
    for &position in &positions[1..] {
        assert_eq!(first_from(&wal, position), Some(next));
    }
    wal.checkpoint(positions[2]).unwrap();
    wal.truncate_before(positions[2]).unwrap();
    assert_eq!(wal.head_lsn(), next);
    drop(wal);
    // Below the head, and no record is between.
    let wal = open(&path);
    for &position in &positions[1..] {
        assert_eq!(wal.resume_lsn(position).unwrap(), position);
        assert_eq!(first_from(&wal, position), Some(next));
    }
}

/// Exactly as long as the documents say: the bases of the head and of the running epoch count.
#[test]
fn a_base_stays_a_position_over_fourteen_later_empty_epochs() {
    let (_folder, path) = folder();
    open(&path).commit(b"before the head").unwrap();
    let wal = open(&path);
    let head = wal.commit(b"at the head").unwrap();
    wal.truncate_before(head).unwrap();
    drop(wal);
    let saved = open(&path).durable_lsn();
    for _ in 0..14 {
        let wal = open(&path);
        assert_eq!(first_from(&wal, saved), None);
        assert!(wal.tail_from(saved).is_ok());
    }
    let wal = open(&path);
    assert_eq!(wal.tail_from(saved).unwrap_err().kind(), ErrorKind::Truncated);
    let next = wal.commit(b"next").unwrap();
    let resumed = wal.resume_lsn(saved).unwrap();
    assert_eq!(first_from(&wal, resumed), Some(next));
    assert_eq!(first_from(&wal, head), Some(head));
}

#[test]
fn the_base_of_an_epoch_above_a_truncation_is_no_position() {
    let (_folder, path) = folder();
    let wal = open(&path);
    let lsns: Vec<Lsn> = (0..4).map(|_| wal.commit(b"record").unwrap()).collect();
    drop(wal);
    let base = open(&path).durable_lsn();
    let wal = open(&path);
    wal.truncate_after(lsns[2]).unwrap();
    let check = |wal: &Wal| {
        let error = wal.tail_from(base).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "it stands for a record that is gone");
        assert_eq!(wal.resume_lsn(base).unwrap(), lsns[3]);
    };
    check(&wal);
    drop(wal);
    check(&open(&path));
}

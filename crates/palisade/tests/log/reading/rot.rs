//! Bits that rot under an open log: every read checks every checksum every time.

use crate::prelude::*;

const ROTTEN: usize = 20;

fn read_up_to(wal: &Wal, rotten: Lsn) {
    let (found, error) = read_until_error(wal.records().unwrap());
    assert!(found.len() == ROTTEN && found[ROTTEN - 1].0 < rotten);
    let error = error.unwrap();
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(rotten)));
    assert_names_the_file(&error);
}

/// The open and earlier calls may have changed the log.
fn assert_names_the_file(error: &Error) {
    let text = error.to_string();
    let file = "/segment-00000000000000000000] (segment 0) (LSN ";
    assert!(text.contains(file) && !text.contains("nothing was changed"), "{text}");
}

fn follow_up_to(wal: &Wal, rotten: Lsn) {
    let timeout = Duration::from_secs(10);
    let mut tail = wal.tail().unwrap();
    for _ in 0..ROTTEN {
        assert!(tail.next(timeout).unwrap().unwrap().lsn() < rotten);
    }
    let error = tail.next(timeout).unwrap_err();
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(rotten)));
}

#[test]
fn every_kind_of_read_finds_bit_rot_under_an_open_log() {
    let (_dir, path, wal) = log_on_files(small());
    let lsns: Vec<Lsn> = (0..40_u8).map(|n| wal.commit(&[n; 200]).unwrap()).collect();
    let rotten = lsns[ROTTEN];
    for round in 0..3 {
        assert_eq!(wal.get(rotten).unwrap().data(), [ROTTEN as u8; 200]);
        let (file, at) = place_of(&path, rotten.plus(24 + 70 * round), SEGMENT_BYTES);
        flip(&file, at);
        let error = wal.get(rotten).unwrap_err();
        assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(rotten)));
        assert_names_the_file(&error);
        read_up_to(&wal, rotten);
        follow_up_to(&wal, rotten);
        let mut behind = wal.records_from(lsns[ROTTEN + 1]).unwrap();
        assert_eq!(behind.next().unwrap().unwrap().lsn(), lsns[ROTTEN + 1]);
        flip(&file, at);
    }
    // A header that does not validate is no record.
    let (file, at) = place_of(&path, rotten.plus(4), SEGMENT_BYTES);
    flip(&file, at);
    assert_eq!(wal.get(rotten).unwrap_err().kind(), ErrorKind::NotARecord);
    read_up_to(&wal, rotten);
    follow_up_to(&wal, rotten);
}

#[test]
fn the_log_can_begin_at_a_segment_whose_first_header_is_damaged() {
    let (_dir, path, wal) = log_on_files(small());
    let lsns: Vec<Lsn> = (0..300).map(|_| wal.append(&[7; 1000]).unwrap().lsn()).collect();
    wal.sync().unwrap();
    let begin = Lsn::new(SEGMENT_BYTES);
    let (file, at) = place_of(&path, begin.plus(4), SEGMENT_BYTES);
    flip(&file, at);
    assert_eq!(wal.get(begin).unwrap_err().kind(), ErrorKind::NotARecord);
    let within = wal.truncate_before(begin.plus(8)).unwrap_err();
    assert_eq!(within.kind(), ErrorKind::NotARecord);
    wal.checkpoint(begin).unwrap();
    wal.truncate_before(begin).unwrap();
    assert_eq!((wal.head_lsn(), wal.checkpoint_lsn()), (begin, begin));
    let second = lsns.iter().filter(|&&lsn| lsn > begin).nth(1).unwrap();
    assert_eq!(wal.get(*second).unwrap().data(), [7; 1000]);
}

#[test]
fn a_read_of_a_segment_that_is_missing_names_its_file() {
    let (_dir, path, wal) = log_on_files(small());
    let lsns: Vec<Lsn> = (0..300).map(|_| wal.append(&[7; 1000]).unwrap().lsn()).collect();
    wal.sync().unwrap();
    let (file, _) = place_of(&path, lsns[0], SEGMENT_BYTES);
    fs::remove_file(&file).unwrap();
    let replayed = wal.records().unwrap().next().map(drop).unwrap_err();
    for error in [wal.get(lsns[0]).unwrap_err(), wal.get_batch(&lsns).unwrap_err(), replayed] {
        let found = (error.kind(), error.path(), error.segment(), error.lsn());
        assert_eq!(found, (ErrorKind::Corrupt, Some(&*file), Some(0), Some(lsns[0])), "{error}");
        assert!(error.to_string().starts_with("the file of the segment is missing ["), "{error}");
    }
    assert_eq!(wal.get(lsns[299]).unwrap().data(), [7; 1000]);
    // Without the file, no LSN of the segment can be told to be no record.
    assert_eq!(wal.get(lsns[0].plus(8)).unwrap_err().kind(), ErrorKind::Corrupt);
}

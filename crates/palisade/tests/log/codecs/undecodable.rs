//! Stored bytes with the right checksum that cannot be decoded: the reader names the record, and
//! everything else can be read.

use crate::prelude::*;
use crate::stored_bytes::{forge, new_store, read_stored_bytes};

fn options() -> Options {
    Options::new().buffer_bytes(1 << 14)
}

/// Three records of 100 bytes; the stored form of the second becomes `payload`.
fn log(options: Options, is_encoded: bool, payload: &[u8]) -> (Wal, [Lsn; 3]) {
    watch();
    let store: MemStore = new_store();
    let wal = Wal::with_store(store.clone(), options).unwrap();
    let lsns = [1, 2, 3].map(|byte| wal.commit(&[byte; 100]).unwrap());
    let len = lsns[1].bytes_since(lsns[0]) - 24;
    assert_eq!((payload.len() as u64).next_multiple_of(8), len, "the frame is as long");
    forge(&store, lsns[1], is_encoded, payload);
    (wal, lsns)
}

/// Every reader returns the error at the record, and the records around it.
fn assert_undecodable(wal: &Wal, lsns: [Lsn; 3], text: &str) {
    let mut errors = vec![wal.get(lsns[1]).unwrap_err(), wal.get_batch(&lsns).unwrap_err()];
    let mut records = wal.records().unwrap();
    assert_eq!(records.next().unwrap().unwrap().data(), [1; 100], "{text}");
    errors.push(records.next().unwrap_err());
    assert!(records.next().unwrap().is_none(), "{text}");
    assert_eq!(records.position(), lsns[2], "{text}: a reader can continue after the record");
    let mut tail = wal.tail().unwrap();
    let mut next = || tail.next(Duration::from_secs(60)).map(|record| record.map(|r| r.lsn()));
    assert_eq!(next().unwrap(), Some(lsns[0]), "{text}");
    errors.push(next().unwrap_err());
    assert_eq!(tail.position(), lsns[1], "{text}: a tail has not returned the record");
    for error in errors {
        assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(lsns[1])), "{error}");
        assert!(error.to_string().contains(text), "`{text}` is not in {error}");
    }
    assert_eq!(wal.records_from(lsns[2]).unwrap().next().unwrap().unwrap().data(), [3; 100]);
    assert_eq!(wal.last_record().unwrap().unwrap().data(), [3; 100]);
}

fn masked(tag: u16, data: &[u8], len: u32) -> Vec<u8> {
    let data: Vec<u8> = data.iter().map(|byte| byte ^ 0x5a).collect();
    [&tag.to_le_bytes(), &data[..], &len.to_le_bytes()].concat()
}

/// Protections: a record has the length that its stored bytes claim. A reader compares a length
/// with that of the longest record before it takes memory. A writer to the files cannot pass off a
/// record that was not encrypted. A reader never returns stored bytes for a record.
#[test]
fn an_undecodable_record_fails_alone_and_names_its_reason() {
    let with_codec = || options().codec(Masked(0x5a));
    let claims = |tag, len| masked(tag, &[2; 100], len);
    let plain = vec![2; 100 + OVERHEAD_BYTES];
    let cases = [
        (with_codec(), true, claims(9, 100), "the record had another tag"),
        (with_codec(), true, claims(0, 101), "decoded 100 bytes; 101"),
        (with_codec(), true, claims(0, 32_745), "claims 32745 bytes; at most 32744"),
        (with_codec(), false, plain, "the record is not encoded"),
        (options(), true, vec![2; 104], "the log has no codec"),
    ];
    for (options, is_encoded, payload, reason) in cases {
        let (wal, lsns) = log(options, is_encoded, &payload);
        assert_undecodable(&wal, lsns, reason);
    }
}

#[test]
fn stored_bytes_without_a_length_are_named() {
    let error = read_stored_bytes(b"\0abc").unwrap_err();
    assert!(error.to_string().contains("no length"), "{error}");
}

/// Where a record ends does not depend on its codec.
#[test]
fn a_log_can_be_truncated_at_a_record_that_cannot_be_decoded() {
    let payload = masked(9, &[2; 100], 100);
    let (wal, lsns) = log(options().codec(Masked(0x5a)), true, &payload);
    wal.truncate_after(lsns[1]).unwrap();
    assert_eq!(wal.get(lsns[2]).unwrap_err().kind(), ErrorKind::Truncated);
    wal.truncate_from(lsns[1]).unwrap();
    assert_eq!(wal.last_record().unwrap().unwrap().data(), [1; 100]);
}

//! Values as records.

use std::sync::atomic::AtomicUsize;

use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};

use crate::prelude::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Put<'a> {
    key: u64,
    value: &'a str,
    history: Vec<Option<i32>>,
}

#[test]
fn a_value_comes_back_from_every_reader() {
    let (_folder, path, wal) = log_on_files(small());
    let put = Put { key: u64::MAX, value: "seven", history: vec![None, Some(-1)] };
    let lsn = wal.append_typed(3, &put).unwrap().wait().unwrap();
    let other = wal.commit_typed(4, "text").unwrap();
    let record = wal.get(lsn).unwrap();
    assert_eq!((record.tag(), record.decode::<Put>().unwrap()), (3, put));
    wal.close().unwrap();
    let wal = small().open(path).unwrap();
    let mut records = wal.records().unwrap();
    assert_eq!(records.next().unwrap().unwrap().decode::<Put>().unwrap().value, "seven");
    let record = records.next().unwrap().unwrap();
    assert_eq!((record.lsn(), record.decode::<&str>().unwrap()), (other, "text"));
}

#[test]
fn bytes_that_are_no_value_are_refused_with_their_lsn() {
    let (_folder, _, wal) = log_on_files(small());
    // A length of 2^63 with nothing after it; a truncated value; a value and one byte more.
    let lies = [&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..], &[5, 1], &[1, 7, 0]];
    for lie in lies {
        let lsn = wal.commit(lie).unwrap();
        let error = wal.get(lsn).unwrap().decode::<Vec<u8>>().unwrap_err();
        assert_eq!((error.kind(), error.lsn()), (ErrorKind::InvalidArgument, Some(lsn)), "{error}");
        assert!(error.to_string().contains("Vec<u8>"), "{error}");
    }
}

#[test]
fn a_value_that_is_too_large_appends_nothing() {
    let (_folder, _, wal) = log_on_files(small());
    let end = wal.reserved_lsn();
    let error = wal.append_typed(0, &vec![7_u32; 1 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    // One byte of length for each 128.
    let most = wal.max_record_bytes();
    let fits = vec![0_u8; most - 2];
    let error = wal.append_typed(0, &[&fits[..], &[0; 3]].concat()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(wal.reserved_lsn(), end);
    let (fits, length) = (&fits[..most - 3], 3);
    let lsn = wal.commit_typed(0, fits).unwrap();
    assert!(wal.get(lsn).unwrap().data().len() <= fits.len() + length);
}

/// A sequence that counts how much of it was asked for.
struct Counted<'c>(&'c AtomicUsize);

impl Serialize for Counted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(1 << 20))?;
        for byte in std::iter::repeat_n(7_u8, 1 << 20) {
            self.0.fetch_add(1, Ordering::Relaxed);
            sequence.serialize_element(&byte)?;
        }
        sequence.end()
    }
}

#[test]
fn a_value_that_is_too_large_is_not_written_to_its_end() {
    let (_folder, _, wal) = log_on_files(small());
    let count = AtomicUsize::new(0);
    let error = wal.append_typed(0, &Counted(&count)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(count.into_inner() <= wal.max_record_bytes());
}

/// A sequence that does not know its length, which the format cannot hold.
struct Endless;

impl Serialize for Endless {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_seq(None)?.end()
    }
}

/// A value that appends another while it is written.
struct Nested<'w>(&'w Wal);

impl Serialize for Nested<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.append_typed(1, "inner").unwrap();
        serializer.serialize_str("outer")
    }
}

#[test]
fn a_failing_value_appends_nothing_and_a_nested_one_is_whole() {
    let (_folder, _, wal) = log_on_files(small());
    let error = wal.append_typed(0, &Endless).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(wal.is_empty().unwrap());
    let outer = wal.commit_typed(2, &Nested(&wal)).unwrap();
    assert_eq!(wal.get(outer).unwrap().decode::<&str>().unwrap(), "outer");
    let mut records = wal.records().unwrap();
    assert_eq!(records.next().unwrap().unwrap().decode::<&str>().unwrap(), "inner");
}

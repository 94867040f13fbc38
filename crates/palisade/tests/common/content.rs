//! Records that show by their bytes which ones they are: nothing else can pass for one.

use std::ops::Range;

use palisade::inspect::Inspector;
use palisade::{Lsn, Records, Wal};

use crate::dice::Dice;

/// Bytes of the number that a record begins with.
const NUMBER_BYTES: usize = 8;
const KEY: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills `bytes` with what follows from `seed`.
pub(crate) fn fill(seed: u64, bytes: &mut [u8]) {
    let mut dice = Dice::new(seed);
    for piece in bytes.chunks_mut(8) {
        let word = dice.next().to_le_bytes();
        piece.copy_from_slice(&word[..piece.len()]);
    }
}

/// Record `number`, `len` bytes long: its number, then bytes that follow from it.
pub(crate) fn record(number: u64, len: usize) -> Vec<u8> {
    assert!(len >= NUMBER_BYTES, "a record has room for its number");
    let mut data = vec![0; len];
    data[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    fill(number ^ KEY.rotate_left(17), &mut data[NUMBER_BYTES..]);
    data
}

/// The number of the record that `data` is; `None` if it is none.
pub(crate) fn number_of(data: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*data.first_chunk()?);
    (data == record(number, data.len())).then_some(number)
}

/// The numbers of the records of `wal`, none of which is a stranger.
pub(crate) fn numbers(wal: &Wal) -> Vec<u64> {
    numbers_in(wal.records().unwrap())
}

/// The numbers below `to`.
pub(crate) fn all(to: u64) -> Vec<u64> {
    (0..to).collect()
}

/// Appends records of `len` bytes; returns where they begin.
pub(crate) fn append(wal: &Wal, numbers: Range<u64>, len: usize) -> Vec<Lsn> {
    numbers.map(|number| wal.append(&record(number, len)).unwrap().lsn()).collect()
}

/// The numbers of all `records`, none of which is a stranger.
pub(crate) fn numbers_in(mut records: Records) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(record) = records.next().unwrap() {
        numbers.push(number_of(record.data()).expect("a record that nobody appended"));
    }
    numbers
}

/// Where the records in the folder begin, as far as they are in the segments.
pub(crate) fn places(path: &std::path::Path) -> Vec<Lsn> {
    let mut records = Inspector::open(path).unwrap().records(None).unwrap();
    let mut places = Vec::new();
    while let Some(record) = records.next().unwrap() {
        places.push(record.lsn());
    }
    places
}

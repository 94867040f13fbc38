//! Records that show by their bytes which ones they are: nothing else can pass for one.

use palisade::inspect::Inspector;
use palisade::{Lsn, Records};

/// Bytes of the number that a record begins with.
const NUMBER_BYTES: usize = 8;
const KEY: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator with a good mix and no state worth speaking of (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(KEY);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }
}

/// Record `number`, `len` bytes long: its number, then bytes that follow from it.
pub(crate) fn record(number: u64, len: usize) -> Vec<u8> {
    assert!(len >= NUMBER_BYTES, "a record has room for its number");
    let mut data = vec![0; len];
    data[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    Random::new(number ^ KEY.rotate_left(17)).fill(&mut data[NUMBER_BYTES..]);
    data
}

/// The number of the record that `data` is; `None` if it is none.
pub(crate) fn number_of(data: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*data.first_chunk()?);
    (data == record(number, data.len())).then_some(number)
}

/// The numbers of all `records`, none of which is a stranger.
pub(crate) fn numbers(mut records: Records) -> Vec<u64> {
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

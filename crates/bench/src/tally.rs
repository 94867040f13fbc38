//! Counts the records that a reader returns and, outside of the timing, compares each byte.

use std::hint::black_box;

use anyhow::{Result, ensure};

/// Counts the records that a reader returns. The default one counts records and bytes: for what is
/// timed.
#[derive(Debug, Default)]
pub struct Tally<'a> {
    /// How many records were taken.
    pub records: u64,
    /// How many of them are not what they should be.
    pub others: u64,
    bytes: u64,
    expected: &'a [Vec<u8>],
}

impl<'a> Tally<'a> {
    /// Compares records with these, in turn, as well.
    pub fn comparing(records: &'a [Vec<u8>]) -> Tally<'a> {
        Tally { expected: records, ..Tally::default() }
    }

    /// Takes a record.
    #[inline]
    pub fn take(&mut self, record: &[u8]) {
        black_box(record);
        if !self.expected.is_empty() {
            let expected = &self.expected[self.records as usize % self.expected.len()];
            self.others += u64::from(expected != record);
        }
        self.count(1, record.len() as u64);
    }

    /// Takes records together, without a look at their bytes: for floors, which have no records,
    /// and for records that an open has compared already.
    #[inline]
    pub fn count(&mut self, records: u64, bytes: u64) {
        self.records += records;
        self.bytes += bytes;
    }

    /// Succeeds if at least `due` records were taken, each of `record_bytes` bytes on average.
    ///
    /// # Errors
    /// If there were fewer records, or more or fewer bytes.
    pub fn must_have(&self, due: u64, record_bytes: usize) -> Result<()> {
        let Tally { records, bytes, .. } = *self;
        let expected = records * record_bytes as u64;
        ensure!(records >= due, "{records} of {due} records were found");
        ensure!(bytes == expected, "{records} records came with {bytes} bytes, not {expected}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_separates_records_from_others_and_counts_bytes() {
        let expected = [b"abc".to_vec(), b"abd".to_vec()];
        let mut tally = Tally::comparing(&expected);
        for record in [b"abc", b"abd", b"abd"] {
            tally.take(record);
        }
        assert_eq!((tally.records, tally.others), (3, 1));
        tally.must_have(3, 3).unwrap();
        assert!(tally.must_have(4, 3).is_err());
        tally.take(b"ab");
        let error = tally.must_have(4, 3).unwrap_err();
        assert_eq!(error.to_string(), "4 records came with 11 bytes, not 12");
    }
}

//! Counts the records that a reader returns and, outside of the timing, compares each byte.

use std::hint::black_box;

use anyhow::{Result, ensure};

/// Counts the records that a reader returns.
#[derive(Debug, Default)]
pub struct Tally<'a> {
    expected: &'a [Vec<u8>],
    records: u64,
    bytes: u64,
    others: u64,
}

impl<'a> Tally<'a> {
    /// Counts records and bytes: for what is timed.
    #[must_use]
    pub fn new() -> Tally<'a> {
        Tally::default()
    }

    /// Compares records with these, in turn, as well.
    #[must_use]
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

    /// Returns how many records were taken.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns how many of the records that were taken are what they should be.
    #[must_use]
    pub fn whole_records(&self) -> u64 {
        self.records - self.others
    }

    /// Succeeds if each record had this many bytes on average.
    ///
    /// # Errors
    /// If there were more or fewer bytes.
    pub fn must_have_bytes_of(&self, record_bytes: usize) -> Result<()> {
        let expected = self.records * record_bytes as u64;
        let Tally { records, bytes, .. } = self;
        ensure!(*bytes == expected, "{records} records came with {bytes} bytes, not {expected}");
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
        assert_eq!((tally.records(), tally.whole_records()), (3, 2));
        tally.must_have_bytes_of(3).unwrap();
        tally.take(b"ab");
        let error = tally.must_have_bytes_of(3).unwrap_err();
        assert_eq!(error.to_string(), "4 records came with 11 bytes, not 12");
    }
}

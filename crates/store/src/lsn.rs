//! Log sequence numbers.

use std::fmt;
use std::str::FromStr;

/// A log sequence number: a position in the log, in bytes. That of a record is where its frame
/// begins.
///
/// LSNs order records, between which there can be padding, marks and unused ranges. No two records
/// of a log get the same LSN, even after a crash. Segment headers do not count, so `lsn /
/// segment_bytes` is the segment's number. Every record begins at a multiple of 8 and ends at or
/// below [`Lsn::LIMIT`].
///
/// ```
/// use palisade::Lsn;
/// let lsn: Lsn = "4096".parse().unwrap();
/// assert_eq!(lsn, Lsn::new(4096));
/// assert_eq!(lsn.to_string(), "4096");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// Where a log begins unless `Options::first_lsn` is set.
    pub const ZERO: Lsn = Lsn(0);

    /// Exclusive upper bound of all LSNs, 2^60: more than 3.6 years at 10 GB/s.
    pub const LIMIT: Lsn = Lsn(1 << 60);

    /// Creates the LSN at byte `position`.
    #[must_use]
    pub const fn new(position: u64) -> Lsn {
        Lsn(position)
    }

    /// Returns the position.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns the LSN `bytes` further on, saturating at `u64::MAX`.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Lsn {
        Lsn(self.0.saturating_add(bytes))
    }

    /// Returns the LSN below; 0 if there is none.
    #[doc(hidden)]
    #[must_use]
    pub const fn before(self) -> Lsn {
        Lsn(self.0.saturating_sub(1))
    }

    /// Returns the bytes from `earlier`, or 0.
    #[must_use]
    pub const fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns whether it is a multiple of `bytes`.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_multiple_of(self, bytes: u64) -> bool {
        self.0.is_multiple_of(bytes)
    }

    /// Returns the number of its segment.
    #[must_use]
    pub const fn segment(self, segment_bytes: u64) -> u64 {
        self.0 / segment_bytes
    }

    /// Returns the start of its segment.
    #[doc(hidden)]
    #[must_use]
    pub const fn segment_start(self, segment_bytes: u64) -> Lsn {
        Lsn(self.0 / segment_bytes * segment_bytes)
    }

    /// Returns the first segment start at or above.
    #[doc(hidden)]
    #[must_use]
    pub const fn segment_start_at_or_above(self, segment_bytes: u64) -> Lsn {
        Lsn(self.0.div_ceil(segment_bytes) * segment_bytes)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Lsn> for u64 {
    fn from(lsn: Lsn) -> u64 {
        lsn.0
    }
}

impl FromStr for Lsn {
    type Err = std::num::ParseIntError;

    /// Parses a decimal number, or a hexadecimal one after `0x`.
    fn from_str(text: &str) -> Result<Lsn, Self::Err> {
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).map(Lsn),
            None => text.parse().map(Lsn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_arithmetic_holds_at_the_borders() {
        let segment_bytes = 4096;
        assert_eq!(Lsn::new(4095).segment(segment_bytes), 0);
        assert_eq!(Lsn::new(4096).segment(segment_bytes), 1);
        assert_eq!(Lsn::new(4096).segment_start_at_or_above(segment_bytes), Lsn::new(4096));
        assert_eq!(Lsn::new(4097).segment_start_at_or_above(segment_bytes), Lsn::new(8192));
    }

    #[test]
    fn parses_decimal_and_hexadecimal() {
        assert_eq!("0x1000".parse::<Lsn>().unwrap(), Lsn::new(4096));
        assert!("x".parse::<Lsn>().is_err());
    }
}

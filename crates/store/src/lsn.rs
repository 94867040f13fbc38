//! Log sequence numbers: byte positions in one endless stream.

use std::fmt;
use std::str::FromStr;

/// A log sequence number: a position in the log, in bytes. The LSN of a record is the position of
/// its frame.
///
/// LSNs order records. Between two records there can also be padding, marks and, where an epoch
/// begins, an unused range. No two records of a log get the same LSN, not even after a crash.
/// Segment headers do not count, so `lsn / segment_bytes` is the number of the segment.
///
/// Every record begins at a multiple of 8 and ends at or below 2^60 ([`Lsn::LIMIT`]).
///
/// ```
/// use palisade::Lsn;
/// let lsn: Lsn = "4096".parse().unwrap();
/// assert_eq!(lsn, Lsn::new(4096));
/// assert_eq!(lsn.to_string(), "4096");
/// assert_eq!(lsn.as_u64() / 64, 64);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// Position 0, where a log begins unless `Options::first_lsn` asks for more.
    pub const ZERO: Lsn = Lsn(0);

    /// Exclusive upper bound of all LSNs: 2^60. At 10 GB/s a log reaches it after
    /// more than 3.6 years.
    pub const LIMIT: Lsn = Lsn(1 << 60);

    /// Creates the LSN at `position` bytes from the start of the stream.
    #[must_use]
    pub const fn new(position: u64) -> Lsn {
        Lsn(position)
    }

    /// Returns the position in bytes from the start of the stream.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns the LSN `bytes` further on, saturating at `u64::MAX`, which no watermark ever
    /// reaches.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Lsn {
        Lsn(self.0.saturating_add(bytes))
    }

    /// Returns the LSN below this one; 0 if there is none.
    #[doc(hidden)]
    #[must_use]
    pub const fn before(self) -> Lsn {
        Lsn(self.0.saturating_sub(1))
    }

    /// Returns how many bytes this LSN lies beyond `earlier`; 0 if it does not.
    #[must_use]
    pub const fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns whether the position is a multiple of `bytes`.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_multiple_of(self, bytes: u64) -> bool {
        self.0.is_multiple_of(bytes)
    }

    /// Returns the number of the segment that holds this LSN.
    #[must_use]
    pub const fn segment(self, segment_bytes: u64) -> u64 {
        self.0 / segment_bytes
    }

    /// Returns the start of the segment that holds this LSN.
    #[doc(hidden)]
    #[must_use]
    pub const fn segment_start(self, segment_bytes: u64) -> Lsn {
        Lsn(self.0 / segment_bytes * segment_bytes)
    }

    /// Returns the first segment start at or above this LSN.
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

    /// Parses a decimal number, or a hexadecimal one that begins with `0x`.
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

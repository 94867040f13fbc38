//! Log sequence numbers.

use std::fmt;

/// The position of a record in its log.
///
/// The first record of a new log has LSN 0. LSNs only increase, and no two records get the same
/// one. The difference of two LSNs is at least the bytes between the records. It is larger where
/// the log begins a segment, after a crash, and after a
/// [truncation](crate::Wal::truncate_after).
///
/// ```
/// use wal_db::Lsn;
///
/// assert!(Lsn::new(0) < Lsn::new(64));
/// assert_eq!(u64::from(Lsn::new(64)), 64);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// Makes an LSN from its number.
    #[inline]
    pub const fn new(value: u64) -> Lsn {
        Lsn(value)
    }

    /// Returns the number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
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

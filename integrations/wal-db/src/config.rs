//! Settings of a log.

const DEFAULT_MAX_RECORD_SIZE: u32 = 64 << 20;

/// What [`Wal::iter`](crate::Wal::iter) does at a damaged record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryPolicy {
    /// Returns one [`Corruption`](crate::WalError::Corruption), then ends. The default.
    StopAtFirstError,
    /// Returns one [`Corruption`](crate::WalError::Corruption) for each damaged range, and
    /// continues with the next record that validates. Only a log in the file system of the
    /// operating system can be searched; on other disks the iterator ends.
    SkipBadRecords,
}

/// What an open does with damage.
///
/// An open removes a torn tail: what a crash left of records that were never acknowledged. Under
/// both policies it refuses a log in which it finds damage to acknowledged records, and changes
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenPolicy {
    /// Checks only what a crash can have torn: nothing after a clean end. The default. Damage
    /// elsewhere is found by the iterator that comes to it.
    TruncateTail,
    /// Reads the whole log, and refuses it if any record is damaged.
    Strict,
}

/// Settings of a [`Wal`](crate::Wal).
///
/// ```
/// use wal_db::{OpenPolicy, WalConfig};
///
/// let config = WalConfig::new().with_max_record_size(4096).with_open_policy(OpenPolicy::Strict);
/// assert_eq!(config.max_record_size(), 4096);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalConfig {
    max_record_size: u32,
    recovery_policy: RecoveryPolicy,
    open_policy: OpenPolicy,
}

impl WalConfig {
    /// Returns the defaults: records of at most 64 MiB, and the first variant of each policy.
    #[must_use]
    pub const fn new() -> WalConfig {
        WalConfig {
            max_record_size: DEFAULT_MAX_RECORD_SIZE,
            recovery_policy: RecoveryPolicy::StopAtFirstError,
            open_policy: OpenPolicy::TruncateTail,
        }
    }

    /// Sets the length of the largest record that [`append`](crate::Wal::append) accepts. Longer
    /// records that are in the log already can be read.
    #[must_use]
    pub const fn with_max_record_size(mut self, bytes: u32) -> WalConfig {
        self.max_record_size = bytes;
        self
    }

    /// Returns the length of the largest record.
    #[must_use]
    pub const fn max_record_size(self) -> u32 {
        self.max_record_size
    }

    /// Sets what an iterator does at a damaged record.
    #[must_use]
    pub const fn with_recovery_policy(mut self, policy: RecoveryPolicy) -> WalConfig {
        self.recovery_policy = policy;
        self
    }

    /// Returns what an iterator does at a damaged record.
    #[must_use]
    pub const fn recovery_policy(self) -> RecoveryPolicy {
        self.recovery_policy
    }

    /// Sets what an open does with damage.
    #[must_use]
    pub const fn with_open_policy(mut self, policy: OpenPolicy) -> WalConfig {
        self.open_policy = policy;
        self
    }

    /// Returns what an open does with damage.
    #[must_use]
    pub const fn open_policy(self) -> OpenPolicy {
        self.open_policy
    }
}

impl Default for WalConfig {
    fn default() -> WalConfig {
        WalConfig::new()
    }
}

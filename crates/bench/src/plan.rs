//! The parameters of one measurement.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::workload::Variant;

/// Record bytes that all threads together write at most between two trims of a log.
pub const BURST_BYTES: u64 = 256 << 20;

/// What one contender is measured with in one round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// An empty folder for the contender's files.
    pub dir: PathBuf,
    /// Threads that work at the same time.
    pub threads: usize,
    /// Bytes of each record.
    pub record_bytes: usize,
    /// Records between two syncs.
    pub batch: u32,
    /// Records in the log that is read or recovered.
    pub records: u64,
    /// The form of the workload.
    pub variant: Variant,
    /// How long the timed part lasts.
    pub time: Duration,
}

impl Plan {
    /// Threads and record size on a folder; the rest is left to the caller's own loop.
    #[must_use]
    pub fn at(dir: &Path, threads: usize, record_bytes: usize) -> Plan {
        let (dir, time) = (dir.into(), Duration::ZERO);
        Plan { dir, threads, record_bytes, batch: 1, records: 0, variant: Variant::Plain, time }
    }

    /// Records that are appended after the last sync, where the form asks for some.
    #[must_use]
    pub fn unsynced_records(&self) -> u64 {
        match self.variant {
            Variant::Unsynced(bytes) => (bytes / self.record_bytes as u64).min(self.records),
            _ => 0,
        }
    }

    /// A record to append. Its bytes do not matter to any contender, but are not all equal.
    #[must_use]
    pub fn record(&self) -> Vec<u8> {
        (0..self.record_bytes).map(|i| (i * 7) as u8).collect()
    }
}

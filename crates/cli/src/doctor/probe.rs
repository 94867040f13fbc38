//! What one durable write costs in a folder, by each way of making one.
//!
//! All ways use a file `probe`, which goes with the folder. Ways that this system lacks give
//! `Unsupported`: they are no failure of the probe.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::units::us;

/// What was written before the clock starts.
const FILE_BYTES: u64 = 16 << 20;
/// A record, as the log's figures are quoted for.
pub(super) const RECORD_BYTES: usize = 256;

/// What the file was before a write to it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    /// Zeros were written and synced there, as a log's segments have it.
    Written,
    /// Blocks were reserved, and not written.
    Reserved,
    /// The file ends there: each write makes it longer.
    End,
}

/// A way of making bytes durable: a write of so many bytes, then a sync.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) name: &'static str,
    bytes: usize,
    ground: Ground,
    sync: fn(&File) -> io::Result<()>,
}

/// All ways, in the order of the table.
pub(super) const WAYS: [Way; 5] = [
    LOG,
    Way { name: "64 KiB + fdatasync, file written before", bytes: 64 << 10, ..LOG },
    Way { name: "256 B + fdatasync, file reserved only", ground: Ground::Reserved, ..LOG },
    Way { name: "256 B + fdatasync, file that grows", ground: Ground::End, ..LOG },
    Way { name: "256 B + fsync, file written before", sync: File::sync_all, ..LOG },
];
/// What a log does for one record; the first of all ways.
pub(super) const LOG: Way = Way {
    name: "256 B + fdatasync, file written before",
    bytes: RECORD_BYTES,
    ground: Ground::Written,
    sync: File::sync_data,
};
/// The place in the table of what a log would do that lets its file grow.
pub(super) const GROWING: usize = 3;

impl Way {
    /// Writes in this way for `time` in `folder`.
    ///
    /// # Errors
    /// `Unsupported`: this system, or its file system here, has no such way. All else: it failed.
    pub(super) fn measure(self, folder: &Path, time: Duration) -> io::Result<Cost> {
        let mut file = File::create(folder.join("probe"))?;
        match self.ground {
            Ground::Written => file.write_all(&vec![0; FILE_BYTES as usize])?,
            Ground::Reserved => reserve(&file)?,
            Ground::End => {}
        }
        // A name that is not durable yet would have to become so with the first sync.
        file.sync_all()?;
        let data = vec![0x5a; self.bytes];
        let mut waits = Vec::new();
        let start = Instant::now();
        let mut at = 0;
        while waits.is_empty() || start.elapsed() < time {
            let before = Instant::now();
            file.seek(SeekFrom::Start(at))?;
            file.write_all(&data)?;
            (self.sync)(&file)?;
            waits.push(us(before.elapsed()));
            at += data.len() as u64;
            if self.ground != Ground::End && at + data.len() as u64 > FILE_BYTES {
                at = 0;
            }
        }
        Ok(Cost::of(waits, start.elapsed()))
    }
}

/// What the calls of a way or of a workload took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) calls: usize,
    pub(super) per_s: f64,
    /// The median.
    pub(super) p50_us: f64,
    /// The 99th percentile.
    pub(super) p99_us: f64,
}

impl Cost {
    /// Computes the cost of calls of which each took one of `waits`, in microseconds, and all
    /// together `elapsed`.
    pub(super) fn of(waits: Vec<f64>, elapsed: Duration) -> Cost {
        let calls = waits.len();
        let p50_us = quantile(waits.clone(), 0.5).unwrap_or_default();
        let p99_us = quantile(waits, 0.99).unwrap_or_default();
        Cost { calls, per_s: calls as f64 / elapsed.as_secs_f64(), p50_us, p99_us }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn reserve(file: &File) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;

    fallocate(file, FallocateFlags::empty(), 0, FILE_BYTES).map_err(|errno| match errno {
        // What file systems without the call say.
        Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => io::ErrorKind::Unsupported.into(),
        other => other.into(),
    })
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn reserve(_file: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the value that `share` of the others do not exceed; for a half, the upper one of two.
pub(super) fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get((values.len() as f64 * share) as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_measured_or_unsupported() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for way in WAYS {
            match way.measure(folder.path(), Duration::from_millis(1)) {
                Ok(cost) => {
                    assert!(cost.calls > 0 && cost.p50_us <= cost.p99_us, "{way:?} {cost:?}");
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{way:?}"),
            }
        }
    }

    #[test]
    fn the_ways_that_the_verdict_compares_differ_in_the_file_only() {
        assert_eq!((WAYS[0].name, WAYS[GROWING].ground), (LOG.name, Ground::End));
        assert_eq!(WAYS[GROWING].bytes, LOG.bytes);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let missing = folder.path().join("missing");
        let error = LOG.measure(&missing, Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_cost_has_the_median_and_the_rate() {
        let waits = (1..=100).rev().map(f64::from).collect();
        let cost = Cost::of(waits, Duration::from_millis(10));
        assert_eq!((cost.calls, cost.per_s), (100, 10_000.0));
        assert_eq!((cost.p50_us, cost.p99_us), (51.0, 100.0));
    }
}

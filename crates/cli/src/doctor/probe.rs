//! What one durable write costs in a folder, by each way of making one.
//!
//! Each way gets a file of its own, which loses its name as soon as it is open (where the system
//! allows it), so that a killed probe leaves nothing behind. Ways that this system lacks give
//! `Unsupported`: they are no failure of the probe.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What was written before the clock starts.
const FILE_BYTES: u64 = 16 << 20;
const ZERO_BYTES: usize = 1 << 20;
/// A record, as the log's figures are quoted for.
pub(super) const RECORD_BYTES: usize = 256;

/// What the file was before a write to it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// Zeros were written and synced there, as a log's segments have it.
    Written,
    /// Blocks were reserved, and not written.
    Reserved,
    /// The file ends there: each write makes it longer.
    End,
}

/// A way of making bytes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A write of so many bytes, then `fdatasync`.
    DataSync { bytes: usize, ground: Ground },
    /// A write of a record, then `fsync`.
    FullSync,
}

/// All ways, in the order of the table. The first is what a log does.
pub(super) const WAYS: [Way; 5] = [
    LOG,
    Way::DataSync { bytes: 64 << 10, ground: Ground::Written },
    Way::DataSync { bytes: RECORD_BYTES, ground: Ground::Reserved },
    GROWING,
    Way::FullSync,
];
/// What a log does for one record.
pub(super) const LOG: Way = Way::DataSync { bytes: RECORD_BYTES, ground: Ground::Written };
/// What a log would do that lets its file grow.
pub(super) const GROWING: Way = Way::DataSync { bytes: RECORD_BYTES, ground: Ground::End };

impl Way {
    /// Returns the name of the line in the table.
    pub(super) fn name(self) -> String {
        match self {
            Way::DataSync { bytes, ground } => {
                format!("{} + fdatasync, {}", size(bytes), ground.name())
            }
            Way::FullSync => format!("{} + fsync, {}", size(RECORD_BYTES), Ground::Written.name()),
        }
    }

    /// Writes in this way for `time` in `folder`.
    ///
    /// # Errors
    /// `Unsupported`: this system, or its file system here, has no such way. All else: it failed.
    pub(crate) fn measure(self, folder: &Path, time: Duration) -> io::Result<Cost> {
        match self {
            Way::DataSync { bytes, ground } => synced(folder, time, bytes, ground, File::sync_data),
            Way::FullSync => synced(folder, time, RECORD_BYTES, Ground::Written, File::sync_all),
        }
    }
}

impl Ground {
    const fn name(self) -> &'static str {
        match self {
            Ground::Written => "file written before",
            Ground::Reserved => "file reserved only",
            Ground::End => "file that grows",
        }
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        _ => format!("{} KiB", bytes >> 10),
    }
}

/// What the writes of one way took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Writes made.
    pub(crate) writes: usize,
    /// Durable writes in a second.
    pub(crate) per_s: f64,
    /// The median.
    pub(crate) p50: Duration,
    /// The 99th percentile.
    pub(crate) p99: Duration,
}

impl Cost {
    /// Computes the cost of calls that took `samples` each, and `elapsed` all together.
    pub(crate) fn of(mut samples: Vec<Duration>, elapsed: Duration) -> Cost {
        samples.sort_unstable();
        let at = |share: f64| {
            let rank = (samples.len() as f64 * share) as usize;
            samples.get(rank.min(samples.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        let per_s = samples.len() as f64 / elapsed.as_secs_f64();
        Cost { writes: samples.len(), per_s, p50: at(0.5), p99: at(0.99) }
    }
}

fn synced(
    folder: &Path,
    time: Duration,
    bytes: usize,
    ground: Ground,
    sync: impl Fn(&File) -> io::Result<()>,
) -> io::Result<Cost> {
    let mut probe = ProbeFile::new(folder)?;
    match ground {
        Ground::Written => probe.write_zeros()?,
        Ground::Reserved => system::reserve(&probe.file, FILE_BYTES)?,
        Ground::End => {}
    }
    // A name that is not durable yet would have to become so with the first sync.
    probe.file.sync_all()?;
    probe.drop_name();
    let file = &mut probe.file;
    let data = vec![0x5a; bytes];
    let mut samples = Vec::new();
    let start = Instant::now();
    let mut at = 0;
    while samples.is_empty() || start.elapsed() < time {
        let before = Instant::now();
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&data)?;
        sync(file)?;
        samples.push(before.elapsed());
        at += bytes as u64;
        if ground != Ground::End && at + bytes as u64 > FILE_BYTES {
            at = 0;
        }
    }
    Ok(Cost::of(samples, start.elapsed()))
}

/// A file that is gone when this is.
struct ProbeFile {
    file: File,
    path: PathBuf,
    has_name: bool,
}

impl ProbeFile {
    fn new(folder: &Path) -> io::Result<ProbeFile> {
        let path = folder.join(format!("palisade-doctor-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok(ProbeFile { file, path, has_name: true })
    }

    fn write_zeros(&mut self) -> io::Result<()> {
        let zeros = vec![0; ZERO_BYTES];
        for _ in 0..FILE_BYTES / ZERO_BYTES as u64 {
            self.file.write_all(&zeros)?;
        }
        self.file.sync_all()
    }

    /// Removes the file's name. Where a file that is open cannot lose its name, the file loses it
    /// when this is dropped.
    fn drop_name(&mut self) {
        self.has_name = self.has_name && fs::remove_file(&self.path).is_err();
    }
}

impl Drop for ProbeFile {
    fn drop(&mut self) {
        self.drop_name();
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::fs::File;
    use std::io;

    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;

    pub(super) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
        fallocate(file, FallocateFlags::empty(), 0, bytes).map_err(|errno| match errno {
            // What file systems without the call say.
            Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => io::ErrorKind::Unsupported.into(),
            other => other.into(),
        })
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::fs::File;
    use std::io;

    pub(super) fn reserve(_file: &File, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_measured_or_unsupported_and_leaves_no_file() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for way in WAYS {
            match way.measure(folder.path(), Duration::from_millis(1)) {
                Ok(cost) => assert!(cost.writes > 0 && cost.p50 <= cost.p99, "{way:?} {cost:?}"),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{way:?}"),
            }
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{way:?}");
        }
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
        let samples = (1..=100).rev().map(Duration::from_micros).collect();
        let cost = Cost::of(samples, Duration::from_millis(10));
        assert_eq!((cost.writes, cost.per_s), (100, 10_000.0));
        assert_eq!((cost.p50, cost.p99), (Duration::from_micros(51), Duration::from_micros(100)));
    }
}

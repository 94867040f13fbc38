//! Which way of making commits durable a new log takes, by a measurement on a file in its folder.
//!
//! Some milliseconds have to do, on a disk that others may use: few writes of each kind, medians,
//! and a margin. Where the choice is close either is fine; where anything fails, or takes long, it
//! is `fdatasync`, which works everywhere.

use std::io::{self, IoSlice};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use memmap2::MmapOptions;

use crate::fs::{Access, DIRECT_BYTES, Disk, DiskFile, write_bytes, write_zeros};
use crate::options::SyncMethod;

/// Writes of each kind, of each writer.
const WRITES: usize = 8;
/// The file's bytes: zeros, written and synced before the first write is timed.
const FILE_BYTES: u64 = (2 * WRITES * DIRECT_BYTES) as u64;
/// How often it is measured before direct writes are taken; once, where the first look is against them.
const LOOKS: usize = 4;
/// Where writes one at a time take longer than this in all the rest is not measured: a rotating
/// disk serves one after the other, and nobody is to wait so long for an open.
const LONGEST: Duration = Duration::from_millis(50);

/// Two in flight have to make so many times what `fdatasync` makes alone. Less is not enough: one
/// sync for all who wait, gathered, needs fewer writes. On a disk where two made 1.3 to 1.9 times as
/// many, commits with 2 to 32 threads were slower by up to a quarter, with 64 as fast
/// (docs/decisions/0017-direct-flushing.md). How many are enough was not seen: no disk made so many.
const BETTER: f64 = 2.5;
/// One alone may be worse by as much: a lone committer must not pay for company that it lacks.
const NOT_WORSE: f64 = 0.8;

impl SyncMethod {
    /// The method that a new log takes in a folder of `file_system` (see
    /// [`file_system`](crate::file_system)), where so many writes of a block become durable in a
    /// second: one at a time with `fdatasync`, directly one at a time, directly two at a time.
    ///
    /// [`Direct`](SyncMethod::Direct) where two at a time make 2.5 times as many as `fdatasync`, which
    /// is more than was seen to lose, and one at a time comes to four fifths of it; on ext4 and XFS only,
    /// which overwrite in place.
    ///
    /// ```
    /// use palisade_store::SyncMethod;
    /// let overlapping = SyncMethod::choice(Some("ext4"), 8_000.0, 12_000.0, 23_500.0);
    /// assert_eq!(overlapping, SyncMethod::Direct);
    /// let not_enough = SyncMethod::choice(Some("ext4"), 12_000.0, 11_300.0, 19_700.0);
    /// assert_eq!(not_enough, SyncMethod::DataSync);
    /// let slow_alone = SyncMethod::choice(Some("ext4"), 5_000.0, 1_600.0, 10_000.0);
    /// assert_eq!(slow_alone, SyncMethod::DataSync);
    /// ```
    #[must_use]
    pub fn choice(
        file_system: Option<&str>,
        data_sync_per_s: f64,
        direct_per_s: f64,
        two_direct_per_s: f64,
    ) -> SyncMethod {
        let wins = two_direct_per_s >= data_sync_per_s * BETTER
            && direct_per_s >= data_sync_per_s * NOT_WORSE;
        if is_candidate(file_system) && wins { SyncMethod::Direct } else { SyncMethod::DataSync }
    }
}

/// Whether direct writes overwrite in place there, and reach a device at all.
fn is_candidate(file_system: Option<&str>) -> bool {
    matches!(file_system, Some("ext4" | "xfs"))
}

/// The method for a log in a folder of `file_system`, measured on the file `path`, which is made or
/// emptied, and stays.
pub(crate) fn measured(disk: &dyn Disk, path: &Path, file_system: Option<&str>) -> SyncMethod {
    if !is_candidate(file_system) {
        return SyncMethod::DataSync;
    }
    looks_agree(|| match costs(disk, path) {
        Ok(Some(Costs { data_sync, direct, two_direct })) => {
            let per_s = |each: Duration| 1.0 / each.as_secs_f64().max(1e-9);
            let two = 2.0 * per_s(two_direct);
            SyncMethod::choice(file_system, per_s(data_sync), per_s(direct), two)
        }
        Ok(None) | Err(_) => SyncMethod::DataSync,
    })
}

/// What speaks for direct writes has to say so each time: on a busy machine few writes lie.
fn looks_agree(mut look: impl FnMut() -> SyncMethod) -> SyncMethod {
    let agree = (0..LOOKS).all(|_| look() == SyncMethod::Direct);
    if agree { SyncMethod::Direct } else { SyncMethod::DataSync }
}

/// What one durable write takes, each the median.
struct Costs {
    data_sync: Duration,
    direct: Duration,
    two_direct: Duration,
}

/// `None` where it is known before the end that direct writes do not win.
fn costs(disk: &dyn Disk, path: &Path) -> io::Result<Option<Costs>> {
    let file = disk.open(path, Access::Fresh)?;
    write_zeros(file.as_ref(), 0, FILE_BYTES)?;
    file.sync_data()?;
    let handles = [disk.open(path, Access::Direct)?, disk.open(path, Access::Direct)?];
    let mut block = MmapOptions::new().len(DIRECT_BYTES).map_anon()?;
    block.fill(0x5a);
    let (mut data_sync, mut direct) = (Vec::new(), Vec::new());
    let start = Instant::now();
    // In turn: what others do to the disk meanwhile meets both.
    for index in 0..WRITES {
        data_sync.push(timed(|| {
            write_bytes(file.as_ref(), place(index), &block)?;
            file.sync_data()
        })?);
        direct.push(timed(|| write_direct(handles[0].as_ref(), place(WRITES + index), &block))?);
        if start.elapsed() > LONGEST {
            return Ok(None);
        }
    }
    let (data_sync, direct) = (median(data_sync), median(direct));
    if direct.mul_f64(NOT_WORSE) > data_sync {
        return Ok(None);
    }
    Ok(Some(Costs { data_sync, direct, two_direct: median(at_a_time(&handles, &block)?) }))
}

/// What direct writes take while each of `handles` has one in flight.
fn at_a_time(handles: &[Box<dyn DiskFile>; 2], block: &[u8]) -> io::Result<Vec<Duration>> {
    let write_all = |handle: &dyn DiskFile, first: usize| {
        let places = (0..WRITES).map(|index| place(first + index));
        places.map(|at| timed(|| write_direct(handle, at, block))).collect::<io::Result<Vec<_>>>()
    };
    thread::scope(|scope| {
        let other = || write_all(handles[1].as_ref(), WRITES);
        let other = thread::Builder::new().spawn_scoped(scope, other)?;
        let own = write_all(handles[0].as_ref(), 0);
        let lost = |_| io::Error::other("the thread of the other writer panicked");
        Ok([own?, other.join().map_err(lost)??].concat())
    })
}

fn write_direct(file: &dyn DiskFile, at: u64, block: &[u8]) -> io::Result<()> {
    let written = file.write_at(at, &[IoSlice::new(block)])?;
    if written == block.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Where the file's block `index` begins.
fn place(index: usize) -> u64 {
    (index * DIRECT_BYTES) as u64
}

fn timed(write: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let before = Instant::now();
    write()?;
    Ok(before.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::fs_os::{OsDisk, file_system};
    use crate::test_disk::TestDisk;

    #[test]
    fn direct_writes_have_to_win_in_company_and_not_to_lose_alone() {
        let (data, direct) = (SyncMethod::DataSync, SyncMethod::Direct);
        let cases = [
            // fdatasync, one, two in flight: writes in a second.
            (1000.0, 800.0, 2500.0, direct),
            (1000.0, 5000.0, 9000.0, direct),
            (1000.0, 790.0, 5000.0, data),
            (1000.0, 1000.0, 2490.0, data),
            (1000.0, 0.0, 0.0, data),
        ];
        for (data_sync, one, two, method) in cases {
            for file_system in ["ext4", "xfs"] {
                let chosen = SyncMethod::choice(Some(file_system), data_sync, one, two);
                assert_eq!(chosen, method, "{data_sync} {one} {two} on {file_system}");
            }
            for file_system in [None, Some("btrfs"), Some("tmpfs"), Some("0x9fa0")] {
                let chosen = SyncMethod::choice(file_system, data_sync, one, two);
                assert_eq!(chosen, data, "{file_system:?}");
            }
        }
    }

    #[test]
    fn each_of_four_looks_has_to_be_for_direct_writes() {
        let looks_until = |against: usize| {
            let mut looks = 0;
            let method = looks_agree(|| {
                looks += 1;
                if looks == against { SyncMethod::DataSync } else { SyncMethod::Direct }
            });
            (method, looks)
        };
        assert_eq!(looks_until(1), (SyncMethod::DataSync, 1), "one is enough against them");
        assert_eq!(looks_until(4), (SyncMethod::DataSync, 4));
        assert_eq!(looks_until(5), (SyncMethod::Direct, 4));
    }

    #[test]
    fn a_measurement_that_fails_is_no_error_and_chooses_fdatasync() {
        let temp = tempfile::tempdir().unwrap();
        let disk = TestDisk::new(true, 1);
        disk.controls.direct().open = Some(ErrorKind::Unsupported);
        let file = temp.path().join("file");
        assert_eq!(measured(&disk, &file, Some("ext4")), SyncMethod::DataSync);
        let missing = temp.path().join("missing").join("file");
        assert_eq!(measured(&disk, &missing, Some("ext4")), SyncMethod::DataSync);
    }

    #[test]
    fn what_cannot_win_is_not_measured() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        assert_eq!(measured(&TestDisk::new(true, 1), &file, None), SyncMethod::DataSync);
        assert!(!file.exists());
    }

    #[test]
    fn this_machines_disk_is_measured_or_has_no_direct_writes() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let chosen = measured(&OsDisk, &temp.path().join("file"), Some("ext4"));
        assert_ne!(chosen, SyncMethod::Auto);
        if let Ok(Some(costs)) = costs(&OsDisk, &temp.path().join("file")) {
            assert!(costs.direct > Duration::ZERO && costs.two_direct > Duration::ZERO);
            assert!(file_system(temp.path()).is_some(), "direct writes are Linux's");
        }
    }
}

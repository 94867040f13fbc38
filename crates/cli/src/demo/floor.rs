//! The disk's floor: what one write and one sync cost without a log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::exit::Failure;

const MEASURED: Duration = Duration::from_millis(300);
const FILE_BYTES: usize = 4 << 20;

/// The median time of a write and sync of `record_bytes` over a zeroed file in `dir`.
///
/// # Errors
/// `Io` if the file cannot be made, written or synced. The file is gone in any case.
pub(crate) fn measure(dir: &Path, record_bytes: usize) -> Result<Duration, Failure> {
    let path = dir.join("palisade-demo-floor");
    let failure =
        |source| Failure::io(format!("could not measure with {}", path.display()), source);
    let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failure)?;
    let samples = sample(file, record_bytes);
    fs::remove_file(&path).map_err(failure)?;
    let mut samples = samples.map_err(failure)?;
    let middle = samples.len() / 2;
    Ok(*samples.select_nth_unstable(middle).1)
}

fn sample(mut file: File, record_bytes: usize) -> io::Result<Vec<Duration>> {
    let file_bytes = FILE_BYTES.next_multiple_of(record_bytes);
    file.write_all(&vec![0; file_bytes])?;
    file.sync_all()?;
    let record = vec![0x5a; record_bytes];
    let mut samples = Vec::new();
    let start = Instant::now();
    for at in (0..file_bytes as u64).step_by(record_bytes).cycle() {
        let before = Instant::now();
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&record)?;
        file.sync_data()?;
        samples.push(before.elapsed());
        if start.elapsed() >= MEASURED {
            break;
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_nothing_behind() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert!(measure(dir.path(), 100).unwrap() > Duration::ZERO);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

//! Images of a log's folder as a killed process leaves it.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::random::Random;

/// Garbage looks like no frame of any contender: random, but the same in each run.
const GARBAGE_SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const PIECE_BYTES: usize = 1 << 20;

/// Copies a log's folder, as a process that is killed at this moment leaves it, to one beside it,
/// and writes garbage behind the records of its last segment. No thread of the log may append, make
/// or rename files meanwhile.
///
/// # Errors
/// If it cannot be copied, or has no file with the name of a segment.
pub fn killed(
    folder: &Path,
    is_segment: impl Fn(&str) -> bool,
    torn_bytes: u64,
) -> Result<PathBuf> {
    let image = folder.with_extension("image");
    let mut files = Vec::new();
    copy(folder, &image, &mut files)?;
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let last = files.iter().filter(|path| is_segment(&name(path))).max();
    let last = last.context("the log has no segment")?;
    write_garbage(last, end_of_records(last)?, torn_bytes)?;
    Ok(image)
}

/// Copies a log's folder. No thread of the log may append, make or rename files meanwhile.
///
/// # Errors
/// If it cannot be copied.
pub fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    copy(from, to, &mut Vec::new())
}

fn copy(from: &Path, to: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target, files)?;
        } else {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("copying to {}", target.display()))?;
            files.push(target);
        }
    }
    Ok(())
}

/// Writes bytes to the file from `at` on that are no record of any log.
///
/// # Errors
/// If they cannot be written.
pub fn write_garbage(path: &Path, at: u64, bytes: u64) -> Result<()> {
    let mut file = File::options()
        .write(true)
        .open(path)
        .with_context(|| format!("opening {} to tear its tail", path.display()))?;
    file.seek(SeekFrom::Start(at))?;
    let mut random = Random::new(GARBAGE_SEED);
    let mut left = bytes as usize;
    while left > 0 {
        // No byte is 0: an end of zeros would be a clean one.
        let piece: Vec<u8> =
            (0..left.min(PIECE_BYTES)).map(|_| (random.next_u64() >> 32) as u8 | 1).collect();
        file.write_all(&piece)?;
        left -= piece.len();
    }
    Ok(())
}

/// Returns where the records of a file end. The file may be filled with zeros behind them; their
/// last byte is not 0.
fn end_of_records(path: &Path) -> Result<u64> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_all_files_and_garbage_after_the_last_record() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::create_dir_all(log.join("deep")).unwrap();
        fs::write(log.join("deep/2.seg"), "bytes\0\0\0").unwrap();
        fs::write(log.join("deep/1.seg"), "first").unwrap();
        fs::write(log.join("deep/3.index"), "").unwrap();
        let image = killed(&log, |name| name.ends_with(".seg"), 100).unwrap();
        let torn = fs::read(image.join("deep/2.seg")).unwrap();
        assert_eq!(torn.len(), 105);
        assert!(torn.starts_with(b"bytes") && !torn.contains(&0));
        assert_eq!(fs::read(image.join("deep/1.seg")).unwrap(), b"first");
        assert!(image.join("deep/3.index").is_file());
        assert_eq!(fs::read(log.join("deep/2.seg")).unwrap(), b"bytes\0\0\0");
    }
}

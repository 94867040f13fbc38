//! The folder that contenders put their files in, and images of it as a killed process leaves it.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use palisade::file_system;

use crate::Random;

/// The subfolder that the files of all contenders are in.
const RUN: &str = "palisade-bench";

/// The run's folder, held by one run at a time.
///
/// Only the subfolder `palisade-bench` is ever deleted.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held while the run lasts; the file stays, its content does not matter.
    _lock: File,
}

impl Folder {
    /// Creates the folder if it is missing and takes it for this run.
    ///
    /// # Errors
    /// If the folder cannot be written, or another run holds it: wait, or name another one.
    pub fn take(path: &Path) -> Result<Folder> {
        fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
        let lock_path = path.join("palisade-bench.lock");
        let lock = File::create(&lock_path)
            .with_context(|| format!("creating {}", lock_path.display()))?;
        if let Err(error) = lock.try_lock() {
            bail!("{error}: if another run uses {}, give another --dir", path.display());
        }
        let folder = Folder { path: path.into(), _lock: lock };
        folder.clear()?;
        Ok(folder)
    }

    /// Returns where a run whose folder is `dir` puts the files of the contender `name`.
    pub fn path_of(dir: &Path, name: &str) -> PathBuf {
        dir.join(RUN).join(name)
    }

    /// Deletes what rounds left behind, makes an empty subfolder called `name`, and waits until
    /// everything that was written before is on the device ([`settle`]).
    ///
    /// # Errors
    /// If that fails.
    pub fn fresh(&self, name: &str) -> Result<PathBuf> {
        self.clear()?;
        let path = Folder::path_of(&self.path, name);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        settle(&path);
        Ok(path)
    }

    /// Deletes what rounds left behind, a killed run's included.
    ///
    /// # Errors
    /// If it cannot be deleted.
    pub fn clear(&self) -> Result<()> {
        let path = self.path.join(RUN);
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("deleting {}", path.display()))?;
        }
        Ok(())
    }
}

/// Returns whether the files of a folder lie in memory, where a sync does nothing.
pub fn is_tmpfs(dir: &Path) -> bool {
    matches!(file_system(dir).as_deref(), Some("tmpfs" | "ramfs"))
}

/// Returns how many bytes the files of a folder take on the device.
///
/// # Errors
/// If the folder cannot be read.
pub fn disk_bytes(path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { disk_bytes(&entry.path())? } else { taken(&metadata) };
    }
    Ok(bytes)
}

#[cfg(unix)]
fn taken(file: &fs::Metadata) -> u64 {
    // Blocks of 512 bytes, whatever the file system has.
    std::os::unix::fs::MetadataExt::blocks(file) * 512
}

#[cfg(not(unix))]
fn taken(file: &fs::Metadata) -> u64 {
    file.len()
}

/// Waits until the device has what was written before, so that one contender does not pay for
/// another's writes. Best effort: where it cannot be done, figures get noisier, not wrong.
#[cfg(target_os = "linux")]
pub fn settle(path: &Path) {
    if let Ok(folder) = File::open(path) {
        let _ = rustix::fs::syncfs(&folder);
    }
}

/// Does nothing: there is no such call here.
#[cfg(not(target_os = "linux"))]
pub fn settle(_path: &Path) {}

/// Copies a log's folder, as a kill at this moment leaves it, to one beside it, and writes garbage
/// behind the records of the copy's last segment. The log must not append, make or rename files
/// meanwhile.
///
/// # Errors
/// If it cannot be copied, or has no file with the name of a segment.
pub fn killed(folder: &Path, is_segment: fn(&str) -> bool, torn_bytes: u64) -> Result<PathBuf> {
    let image = folder.with_extension("image");
    let files = copy_folder(folder, &image)?;
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let last = files.iter().filter(|path| is_segment(&name(path))).max();
    let last = last.context("the log has no segment")?;
    write_garbage(last, end_of_records(last)?, torn_bytes)?;
    Ok(image)
}

/// Copies a log's folder, which must not change meanwhile. Returns the copies of all files.
///
/// # Errors
/// If it cannot be copied.
pub fn copy_folder(from: &Path, to: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir(to).with_context(|| format!("creating {}", to.display()))?;
    let mut files = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files.extend(copy_folder(&entry.path(), &target)?);
        } else {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("copying to {}", target.display()))?;
            files.push(target);
        }
    }
    Ok(files)
}

/// Writes bytes that are no record of any log to the file, from `at` on.
///
/// # Errors
/// If they cannot be written.
pub fn write_garbage(path: &Path, at: u64, bytes: u64) -> Result<()> {
    let mut file = File::options()
        .write(true)
        .open(path)
        .with_context(|| format!("opening {} to tear its tail", path.display()))?;
    file.seek(SeekFrom::Start(at))?;
    // It looks like no frame of any contender, and is the same in each run. No byte is 0: an end of
    // zeros would be a clean one.
    let mut random = Random::new(Random::SEED);
    let garbage: Vec<u8> = (0..bytes).map(|_| (random.next_u64() >> 32) as u8 | 1).collect();
    Ok(file.write_all(&garbage)?)
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
    fn only_the_subfolder_of_a_run_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mine")).unwrap();
        fs::write(dir.path().join("notes"), "a file").unwrap();
        fs::create_dir_all(dir.path().join("palisade-bench/naive/deep")).unwrap();
        let folder = Folder::take(dir.path()).unwrap();
        let fresh = folder.fresh("raw").unwrap();
        assert!(fresh.is_dir());
        assert!(dir.path().join("mine").is_dir());
        assert!(dir.path().join("notes").is_file());
        assert!(!dir.path().join("palisade-bench/naive").exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_hole_takes_nothing_on_the_device() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("deep")).unwrap();
        fs::write(dir.path().join("deep/bytes"), [1; 100]).unwrap();
        File::create(dir.path().join("hole")).unwrap().set_len(1 << 20).unwrap();
        settle(dir.path());
        let bytes = disk_bytes(dir.path()).unwrap();
        assert!((100..1 << 20).contains(&bytes), "{bytes}");
    }

    #[test]
    fn two_runs_cannot_share_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Folder::take(dir.path()).unwrap();
        let error = Folder::take(dir.path()).unwrap_err();
        assert!(error.to_string().contains("another run"), "{error}");
    }

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

//! The folder that contenders put their files in.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const PREFIX: &str = "palisade-bench-";

/// The run's folder, held by one run at a time.
///
/// Only subfolders that a run made itself are ever deleted.
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
    #[must_use]
    pub fn path_of(dir: &Path, name: &str) -> PathBuf {
        dir.join(format!("{PREFIX}{name}"))
    }

    /// Deletes what rounds left behind, makes an empty subfolder called `name`, and waits until
    /// everything that was written before is on the device ([`settle`]).
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn fresh(&self, name: &str) -> Result<PathBuf> {
        self.clear()?;
        let path = Folder::path_of(&self.path, name);
        fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        settle(&path);
        Ok(path)
    }

    /// Deletes what rounds left behind, a killed run's included.
    ///
    /// # Errors
    /// If a subfolder cannot be deleted.
    pub fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
            if is_ours && entry.file_type()?.is_dir() {
                let path = entry.path();
                fs::remove_dir_all(&path)
                    .with_context(|| format!("deleting {}", path.display()))?;
            }
        }
        Ok(())
    }
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
        let of_entry =
            if metadata.is_dir() { disk_bytes(&entry.path())? } else { taken(&metadata) };
        bytes += of_entry;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_subfolders_of_a_run_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mine")).unwrap();
        fs::write(dir.path().join("palisade-bench-notes"), "a file").unwrap();
        fs::create_dir_all(dir.path().join("palisade-bench-naive/deep")).unwrap();
        let folder = Folder::take(dir.path()).unwrap();
        let fresh = folder.fresh("raw").unwrap();
        assert!(fresh.is_dir());
        assert!(dir.path().join("mine").is_dir());
        assert!(dir.path().join("palisade-bench-notes").is_file());
        assert!(!dir.path().join("palisade-bench-naive").exists());
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
}

//! What Linux has in its page cache.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{Advice, fadvise, statfs};

const TMPFS: u64 = 0x0102_1994;

/// # Panics
///
/// If the folder of the benches is in memory: then no figure is one of a disk.
pub(crate) fn refuse_memory() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let kind = statfs(folder).expect("a file system").f_type;
    assert_ne!(kind as u64, TMPFS, "{folder} is on tmpfs; set CARGO_TARGET_DIR to a disk");
}

/// The files of tables.
pub(crate) struct Files(Vec<File>);

impl Files {
    /// Opens all files below `folder`.
    pub(crate) fn below(folder: &Path) -> Files {
        let mut files = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(File::open(path).expect("a file"));
                }
            }
        }
        Files(files)
    }

    /// Drops the pages of the files from the page cache. Their content is on the disk already:
    /// `lsm-tree` syncs its files.
    pub(crate) fn drop_pages(&self) {
        for file in &self.0 {
            fadvise(file, 0, None, Advice::DontNeed).expect("a regular file");
        }
    }
}

/// Returns the bytes that this process has read from devices, if the system counts them.
pub(crate) fn device_bytes() -> Option<u64> {
    let counters = fs::read_to_string("/proc/self/io").ok()?;
    let line = counters.lines().find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.parse().ok()
}

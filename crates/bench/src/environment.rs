//! Where the figures were taken: processor, file system, commit.

use std::path::Path;
use std::process::Command;
use std::thread;

use palisade::file_system;

use crate::measurement::Measurement;

/// Returns the part of a result that is the same for all results of a run whose files lie in `dir`.
#[must_use]
pub fn of(dir: &Path) -> Measurement {
    Measurement {
        dir_fs: file_system(dir),
        cpu: processor(),
        cores: thread::available_parallelism().map_or(1, usize::from),
        commit: commit(),
        ..Measurement::default()
    }
}

/// Returns whether the files of a folder lie in memory, where a sync does nothing.
#[must_use]
pub fn is_tmpfs(dir: &Path) -> bool {
    matches!(file_system(dir).as_deref(), Some("tmpfs" | "ramfs"))
}

fn processor() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().into())
}

fn commit() -> Option<String> {
    let git = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()?;
    let name = String::from_utf8(git.stdout).ok()?;
    git.status.success().then(|| name.trim().into())
}

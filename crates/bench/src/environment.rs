//! Where the figures were taken: processor, file system, commit.

use std::path::Path;
use std::process::Command;
use std::thread;

use palisade::file_system;

/// What a result depends on beside the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// File system of the folder, as `ext4`, or its magic number; `None` if neither is known.
    pub dir_fs: Option<String>,
    /// The processor's own name.
    pub cpu: Option<String>,
    /// Processors that this process may use.
    pub cores: usize,
    /// The checkout's commit, if it is one.
    pub commit: Option<String>,
}

impl Environment {
    /// The environment of a run whose files lie in `dir`.
    #[must_use]
    pub fn of(dir: &Path) -> Environment {
        Environment {
            dir_fs: file_system(dir),
            cpu: processor(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            commit: commit(),
        }
    }

    /// Whether the files lie in memory, where a sync does nothing.
    #[must_use]
    pub fn is_tmpfs(&self) -> bool {
        matches!(self.dir_fs.as_deref(), Some("tmpfs" | "ramfs"))
    }
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

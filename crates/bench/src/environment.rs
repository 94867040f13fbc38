//! Where the figures were taken: processor, file system, commit.

use std::path::Path;
use std::process::Command;
use std::thread;

/// What a figure depends on beside the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// File system of the folder, as `ext4`, or its magic number; `None` where it cannot be told.
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
        self.dir_fs.as_deref() == Some("tmpfs")
    }
}

#[cfg(target_os = "linux")]
fn file_system(dir: &Path) -> Option<String> {
    let magic = rustix::fs::statfs(dir).ok()?.f_type as u64 & 0xffff_ffff;
    let name = match magic {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 | 0x8584_58f6 => "tmpfs",
        0x794c_7630 => "overlayfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        _ => return Some(format!("{magic:#x}")),
    };
    Some(name.into())
}

#[cfg(not(target_os = "linux"))]
fn file_system(_dir: &Path) -> Option<String> {
    None
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

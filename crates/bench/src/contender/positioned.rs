//! Positioned reads and writes, whatever the platform calls them.

use std::fs::File;
use std::io::Result;

/// Reads up to `bytes.len()` bytes at `at`; fewer only at the end of the file.
#[cfg(unix)]
pub(super) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, at)
}

/// Writes all of `bytes` at `at`.
#[cfg(unix)]
pub(super) fn write_all_at(file: &File, bytes: &[u8], at: u64) -> Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

/// Reads up to `bytes.len()` bytes at `at`; fewer only at the end of the file.
#[cfg(windows)]
pub(super) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, at)
}

/// Writes all of `bytes` at `at`.
#[cfg(windows)]
pub(super) fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

//! The log's folder: its names, and file calls whose errors name the path.

#![allow(
    clippy::missing_errors_doc,
    reason = "each error is the disk's, with the name of the file"
)]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::block::BLOCK_BYTES;
use crate::disk::{
    Access, DEFAULT_FILE_MODE, Disk, DiskFile, DiskFolder, found_instead, read_full,
};
use crate::{Error, ErrorKind, Lsn, Result};

/// The file that a writer locks.
pub const LOCK: &str = "lock";
/// The file of the state.
pub const META: &str = "meta";
/// Becomes [`META`].
pub const META_TEMP: &str = "meta.tmp";
/// The meta file of a copy in which a sync failed.
pub(crate) const META_UNSYNCED: &str = "meta.unsynced";
/// Space for an open on a full disk.
pub(crate) const RESERVE: &str = "reserve";
pub(crate) const READ_HEADER: &str = "read the segment's header";

const SEGMENT_PREFIX: &str = "segment-";
const SEGMENT_DIGITS: usize = 20;
const SPARE_PREFIX: &str = "spare-";
const SPARE_DIGITS: usize = 6;

/// Returns the name of a segment.
#[must_use]
pub fn segment_name(number: u64) -> String {
    format!("{SEGMENT_PREFIX}{number:0SEGMENT_DIGITS$}")
}

/// Returns whether `name` has the exact form.
pub(crate) fn is_segment_name(name: &str) -> bool {
    parse(name, SEGMENT_PREFIX, SEGMENT_DIGITS).is_some()
}

/// Returns whether `name` has the exact form.
#[cfg(feature = "sim")]
pub(crate) fn is_spare_name(name: &str) -> bool {
    parse(name, SPARE_PREFIX, SPARE_DIGITS).is_some()
}

pub(crate) fn spare_name(number: u64) -> String {
    format!("{SPARE_PREFIX}{number:0SPARE_DIGITS$}")
}

/// An open folder. Clones share the handle.
#[derive(Clone, Debug)]
pub struct Folder {
    disk: Arc<dyn Disk>,
    handle: Arc<dyn DiskFolder>,
    /// By which the folder was opened.
    path: PathBuf,
}

impl Folder {
    /// Opens the folder at `path`; new files in it get `file_mode`.
    pub fn at(disk: &Arc<dyn Disk>, path: &Path, file_mode: u32) -> Result<Folder> {
        let handle = disk.open_folder(path, file_mode);
        let handle = handle.map_err(|error| Error::io("open the folder", error).at_path(path))?;
        Ok(Folder { disk: Arc::clone(disk), handle, path: path.to_path_buf() })
    }

    /// Opens the folder again, with a lock of its own.
    pub(crate) fn open_again(&self) -> Result<Arc<dyn DiskFolder>> {
        let again = Folder::at(&self.disk, &self.path, DEFAULT_FILE_MODE)?.handle;
        if again.identity() == self.handle.identity() { Ok(again) } else { Err(self.moved()) }
    }

    /// Opens the folder for log buffers, if there is one.
    pub(crate) fn memory(disk: &Arc<dyn Disk>) -> Result<Option<Folder>> {
        let found = disk.memory_folder();
        let found = found.map_err(|error| Error::io("open the folder for log buffers", error))?;
        Ok(found.map(|(path, handle)| Folder { disk: Arc::clone(disk), handle, path }))
    }

    /// Returns the folder's disk.
    #[must_use]
    pub fn shared_disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        self.disk.as_ref()
    }

    /// Returns the open folder.
    #[must_use]
    pub fn handle(&self) -> &dyn DiskFolder {
        self.handle.as_ref()
    }

    /// Returns the path that was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names in the folder, unordered.
    pub fn names(&self) -> Result<Vec<String>> {
        let names = self.handle.list();
        names.map_err(|error| Error::io("list the folder", error).at_path(&self.path))
    }

    /// As `segments_in`, for this folder.
    pub fn segment_numbers(&self, segment_bytes: u64) -> Result<Vec<u64>> {
        Ok(segments_in(&self.names()?, segment_bytes))
    }

    /// Opens `name`.
    pub fn open(&self, name: &str, access: Access) -> Result<Box<dyn DiskFile>> {
        self.handle.open(name, access).map_err(|error| self.open_error(name, error))
    }

    /// Opens `name` if it is there.
    pub fn open_if_there(&self, name: &str, access: Access) -> Result<Option<Box<dyn DiskFile>>> {
        match self.handle.open(name, access) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.open_error(name, error)),
        }
    }

    /// Returns the first block of segment `number`, or less if the file is shorter.
    pub fn header_block(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let name = segment_name(number);
        let Some(file) = self.open_if_there(&name, Access::Read)? else { return Ok(None) };
        let mut block = vec![0; BLOCK_BYTES];
        let len = read_full(file.as_ref(), 0, &mut block)
            .map_err(|error| self.error(READ_HEADER, &name, error))?;
        block.truncate(len);
        Ok(Some(block))
    }

    /// Renames a file, atomically.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let what = format!("rename {} to this name", self.path.join(from).display());
        self.handle.rename(from, to).map_err(|error| self.error(&what, to, error))
    }

    /// Removes a file that may be gone.
    pub fn remove_if_there(&self, name: &str) -> Result<()> {
        match self.handle.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.error("remove the file", name, error))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        self.handle.remove(name).map_err(|error| self.error("remove the file", name, error))
    }

    /// Makes the names survive power loss.
    pub fn sync(&self) -> Result<()> {
        let synced = self.handle.sync();
        synced.map_err(|error| Error::io("sync the log's folder", error).at_path(&self.path))
    }

    /// Refuses a folder to which its path certainly no longer leads: the next open would not find
    /// it.
    pub fn check_in_place(&self) -> Result<()> {
        if !matches!(self.handle.still_at(&self.path), Ok(false)) {
            return Ok(());
        }
        Err(self.moved())
    }

    fn moved(&self) -> Error {
        // By its kind a program recognizes this failure of a poisoned log.
        let cause = io::Error::new(
            io::ErrorKind::NotFound,
            "the folder was moved, removed or replaced while the log was open; what was \
             acknowledged is in the folder that the log was opened in, and in no other",
        );
        let text = "this path does not lead to the log's folder any more";
        Error::new(ErrorKind::NotFound, text).at_path(&self.path).with_source(cause)
    }

    pub(crate) fn check_file_size(&self, len: u64) -> Result<()> {
        check_file_size(self.disk.as_ref(), &self.path, len)
    }

    /// Returns the error of `what`, with the file's path.
    pub fn error(&self, what: &str, name: &str, error: io::Error) -> Error {
        Error::io(what, error).at_path(self.path.join(name))
    }

    fn open_error(&self, name: &str, error: io::Error) -> Error {
        let Some(found) = found_instead(&error) else {
            return self.error("open the file", name, error);
        };
        let text = format!(
            "`{name}` is {found}, where the log needs a regular file, and no link: nothing in it \
             was read or changed; put the file back that belongs there, or remove the name if \
             none does"
        );
        Error::new(ErrorKind::Foreign, text).at_path(self.path.join(name))
    }
}

/// Refuses files of `len` bytes if the disk cannot have them.
pub fn check_file_size(disk: &dyn Disk, path: &Path, len: u64) -> Result<()> {
    let largest = disk.largest_file();
    if len <= largest {
        return Ok(());
    }
    let text = format!(
        "a file of the log takes {len} bytes, and the system lets this process make none longer \
         than {largest} bytes (RLIMIT_FSIZE, `ulimit -f`), and would end it by a signal: raise the \
         limit"
    );
    Err(Error::new(ErrorKind::NoSpace, text).at_path(path))
}

/// Returns the numbers of segments below the last LSN, ascending.
pub(crate) fn segments_in(names: &[String], segment_bytes: u64) -> Vec<u64> {
    let mut segments = numbers_in(names, SEGMENT_PREFIX, SEGMENT_DIGITS);
    segments.retain(|&number| number < Lsn::LIMIT.segment(segment_bytes));
    segments
}

pub(crate) fn spares_in(names: &[String]) -> Vec<u64> {
    numbers_in(names, SPARE_PREFIX, SPARE_DIGITS)
}

fn numbers_in(names: &[String], prefix: &str, digits: usize) -> Vec<u64> {
    let mut numbers: Vec<u64> =
        names.iter().filter_map(|name| parse(name, prefix, digits)).collect();
    numbers.sort_unstable();
    numbers
}

fn parse(name: &str, prefix: &str, digits: usize) -> Option<u64> {
    let written = name.strip_prefix(prefix)?;
    let is_padded =
        written.len() == digits || (written.len() > digits && !written.starts_with('0'));
    let is_plain = is_padded && written.bytes().all(|byte| byte.is_ascii_digit());
    written.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_exact_form_count() {
        let parsed = |name: &str| parse(name, SEGMENT_PREFIX, SEGMENT_DIGITS);
        assert_eq!(parsed(&segment_name(17)), Some(17));
        assert_eq!(parsed(&segment_name(u64::MAX)), Some(u64::MAX));
        for name in ["segment-17", "segment-+0000000000000000017", "segment-", "spare-000017"] {
            assert_eq!(parsed(name), None, "{name}");
        }
        for name in ["spare-00017", "spare-0000017", "spare-0000o1", "spare-٠٠٠٠٠١"] {
            assert_eq!(parse(name, SPARE_PREFIX, SPARE_DIGITS), None, "{name}");
        }
        assert_eq!(parse(&spare_name(1_234_567), SPARE_PREFIX, SPARE_DIGITS), Some(1_234_567));
    }
}

//! The log's folder: the names in it, and file calls whose errors name the path.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_core::{Error, Lsn, Result};

use crate::fs::{Access, Disk, DiskFile};

pub(crate) const LOCK: &str = "lock";
pub(crate) const META: &str = "meta";
pub(crate) const META_TEMP: &str = "meta.tmp";
pub(crate) const BUFFER: &str = "buffer";
pub(crate) const BUFFER_TEMP: &str = "buffer.tmp";

const SEGMENT_PREFIX: &str = "segment-";
const SEGMENT_DIGITS: usize = 20;
const SPARE_PREFIX: &str = "spare-";
const SPARE_DIGITS: usize = 6;

/// The name of segment `number`.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{SEGMENT_PREFIX}{number:0SEGMENT_DIGITS$}")
}

/// Whether a segment has this name, or could have it.
pub(crate) fn is_segment_name(name: &str) -> bool {
    parse(name, SEGMENT_PREFIX, SEGMENT_DIGITS).is_some()
}

/// The name of spare `number`.
pub(crate) fn spare_name(number: u64) -> String {
    format!("{SPARE_PREFIX}{number:0SPARE_DIGITS$}")
}

/// A folder on a disk. Clones share the disk.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new(disk: Arc<dyn Disk>, path: &Path) -> Folder {
        Folder { disk, path: path.to_path_buf() }
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        self.disk.as_ref()
    }

    pub(crate) fn shared_disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let names = self.disk.list(&self.path);
        names.map_err(|error| Error::io("list the log's folder", error).at_path(&self.path))
    }

    /// The numbers of all segments whose LSNs exist, in ascending order.
    pub(crate) fn segment_numbers(&self, segment_bytes: u64) -> Result<Vec<u64>> {
        let [segments, _] = self.segments_and_spares(segment_bytes)?;
        Ok(segments)
    }

    /// The numbers of all segments, as above, and of all spares, both ascending: one look.
    pub(crate) fn segments_and_spares(&self, segment_bytes: u64) -> Result<[Vec<u64>; 2]> {
        let names = self.names()?;
        let mut segments = numbers_in(&names, SEGMENT_PREFIX, SEGMENT_DIGITS);
        segments.retain(|&number| number < Lsn::LIMIT.segment(segment_bytes));
        Ok([segments, numbers_in(&names, SPARE_PREFIX, SPARE_DIGITS)])
    }

    /// Opens `name`.
    pub(crate) fn open(&self, name: &str, access: Access) -> Result<Box<dyn DiskFile>> {
        let path = self.path.join(name);
        self.disk
            .open(&path, access)
            .map_err(|error| Error::io("open the file", error).at_path(path))
    }

    /// Opens `name`; `None` if it is not there.
    pub(crate) fn open_if_there(
        &self,
        name: &str,
        access: Access,
    ) -> Result<Option<Box<dyn DiskFile>>> {
        let path = self.path.join(name);
        match self.disk.open(&path, access) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open the file", error).at_path(path)),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.path.join(from), self.path.join(to));
        let what = format!("rename {} to this name", from.display());
        self.disk.rename(&from, &to).map_err(|error| Error::io(&what, error).at_path(to))
    }

    /// Removes a file that somebody else may have removed already.
    pub(crate) fn remove_if_there(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match self.disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("remove the file", error).at_path(path))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        self.disk.remove(&path).map_err(|error| Error::io("remove the file", error).at_path(path))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        let synced = self.disk.sync_folder(&self.path);
        synced.map_err(|error| Error::io("sync the log's folder", error).at_path(&self.path))
    }

    /// Names the file `name` in an error of the operating system.
    pub(crate) fn error(&self, what: &str, name: &str, error: std::io::Error) -> Error {
        Error::io(what, error).at_path(self.path.join(name))
    }
}

fn numbers_in(names: &[String], prefix: &str, digits: usize) -> Vec<u64> {
    let mut numbers: Vec<u64> =
        names.iter().filter_map(|name| parse(name, prefix, digits)).collect();
    numbers.sort_unstable();
    numbers
}

/// The number in a name of exactly the form that this crate writes.
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

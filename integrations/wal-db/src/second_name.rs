//! The second name of a log's file, in the log's folder. It says why there is no file at the path:
//!
//! | second name | the file at the path |
//! |---|---|
//! | missing | was never there: the folder is a backup, or its first open has not returned |
//! | belongs to a file that has another name, too | was renamed or moved, or has a third name |
//! | belongs to the log's file, which has no other name | was removed |
//! | belongs to a copy of the file, or to the file of another log | cannot be known |
//!
//! The second name is a hard link of the file. Where the operating system refuses hard links, it is
//! a copy, with the identity of the copied file in the fourth line, so it says nothing about a
//! removal. On Windows, and on disks that are not the operating system's, it is a file of its own
//! with the same content, so there a rename counts as a removal.
//!
//! The second name is durable before an open returns, so a log whose folder has records and no
//! second name never had a file.

use std::path::Path;
use std::{fs, io};

use palisade::disk::{Access, DiskFolder, FileIdentity};

use crate::anchor::{self, Anchor, AtPath};

pub(crate) const SECOND_NAME: &str = "wal-db-file";
/// The name of a new link, until it replaces the old one.
const NEW_LINK: &str = "wal-db-file.new-link";

/// Why there is no file at the path of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Never,
    Moved,
    Removed,
    Unknown,
}

/// The file `name` in `parent`, and the folder `home` of its log.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    pub(crate) parent: &'a dyn DiskFolder,
    pub(crate) name: &'a str,
    pub(crate) home: &'a dyn DiskFolder,
    /// Whether both are in a file system that can have hard links.
    pub(crate) has_links: bool,
}

impl Names<'_> {
    /// Returns why the file of the log `uuid` is missing or empty. Without `uuid`, takes the second
    /// name for one of the log.
    pub(crate) fn why_missing(&self, uuid: Option<&str>) -> io::Result<Missing> {
        let second = match self.home.open(SECOND_NAME, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Missing::Never),
            opened => opened?,
        };
        if second.has_other_names()? {
            return match self.parent.open(self.name, Access::Read) {
                // It was emptied in its place. If it has bytes, it was away for a moment.
                Ok(file) if file.identity()? == second.identity()? && file.len()? == 0 => {
                    Ok(Missing::Removed)
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(Missing::Moved),
            };
        }
        let is_of_log = match anchor::read(self.home, SECOND_NAME)? {
            AtPath::Anchor(anchor) => uuid.is_none_or(|uuid| uuid == anchor.uuid),
            // It was emptied before it was removed.
            AtPath::Nothing => true,
            AtPath::Other => false,
        };
        let is_file = is_of_log && !anchor::is_copy(self.home, SECOND_NAME)?;
        Ok(if is_file { Missing::Removed } else { Missing::Unknown })
    }

    /// Gives the file, which says `anchor`, its second name, durably, unless it has that name.
    /// `file` and `folder` are the paths of the file and of the folder.
    pub(crate) fn link(&self, anchor: &Anchor, file: &Path, folder: &Path) -> io::Result<()> {
        if self.is_linked()? {
            return Ok(());
        }
        if self.has_links {
            // Some file systems link files and count no links.
            if link(file, folder)? && self.is_linked()? {
                return self.home.sync();
            }
        }
        let copied = self.has_links.then(|| self.identity()).transpose()?;
        if anchor::is_written(self.home, SECOND_NAME, anchor, copied)? {
            return Ok(());
        }
        anchor::write(self.home, SECOND_NAME, anchor, copied)
    }

    /// Returns the identity of the file.
    fn identity(&self) -> io::Result<FileIdentity> {
        self.parent.open(self.name, Access::Read)?.identity()
    }

    fn is_linked(&self) -> io::Result<bool> {
        let second = match self.home.open(SECOND_NAME, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        Ok(second.has_other_names()? && second.identity()? == self.identity()?)
    }
}

/// Links `file` into `folder`. A crash leaves the old second name or the new one. Returns false if
/// no second call would link it: the folder is on another device, or the file system has no hard
/// links, or not so many of them, or not of this file.
fn link(file: &Path, folder: &Path) -> io::Result<bool> {
    use io::ErrorKind::{
        CrossesDevices, InvalidInput, PermissionDenied, TooManyLinks, Unsupported,
    };
    let new = folder.join(NEW_LINK);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if let Err(error) = fs::hard_link(file, &new) {
        return match error.kind() {
            CrossesDevices | InvalidInput | PermissionDenied | TooManyLinks | Unsupported => {
                Ok(false)
            }
            _ => Err(error),
        };
    }
    fs::rename(new, folder.join(SECOND_NAME)).map(|()| true)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use palisade::disk::{DEFAULT_FILE_MODE, Disk, OsDisk};

    use super::*;

    #[test]
    fn a_file_that_came_back_was_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, home) = (folder.path().join("wal.log"), folder.path().join("home"));
        fs::create_dir(&home).unwrap();
        fs::write(&file, b"names the log").unwrap();
        fs::hard_link(&file, home.join(SECOND_NAME)).unwrap();
        let parent = OsDisk.open_folder(folder.path(), DEFAULT_FILE_MODE).unwrap();
        let home = OsDisk.open_folder(&home, DEFAULT_FILE_MODE).unwrap();
        let names = Names { parent: &*parent, name: "wal.log", home: &*home, has_links: true };
        assert_eq!(names.why_missing(None).unwrap(), Missing::Moved);
        fs::write(&file, b"").unwrap();
        assert_eq!(names.why_missing(None).unwrap(), Missing::Removed);
    }
}

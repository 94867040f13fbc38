//! The second name of a log's file, in the log's folder. It says why there is no file at the path:
//!
//! | second name | the file at the path |
//! |---|---|
//! | missing | was never there: the folder is a backup, or its first open has not returned |
//! | belongs to a file that has another name, too | was renamed or moved |
//! | belongs to a file without another name | was removed |
//! | belongs to a copy of the file | was removed, or not copied with the folder |
//!
//! The second name is a hard link of the file. On disks without hard links it is a copy of the
//! file, which has no other name, so there a rename counts as a removal. The second name is durable
//! before an open returns, so a log whose folder has records and no second name never had a file.

use std::path::Path;
use std::{fs, io};

use palisade::disk::{Access, DiskFolder};

use crate::anchor::{self, Anchor, AtPath};

pub(crate) const SECOND_NAME: &str = "wal-db-file";
/// The name of a new link, until it replaces the old one.
const NEW_LINK: &str = "wal-db-file.new-link";

/// Why there is no file at the path of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Never,
    Moved,
    NotCopied,
    Removed,
}

/// The file `name` in `parent`, and the folder `home` of its log.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    pub(crate) parent: &'a dyn DiskFolder,
    pub(crate) name: &'a str,
    pub(crate) home: &'a dyn DiskFolder,
}

impl Names<'_> {
    /// Returns why the file is missing or empty.
    pub(crate) fn why_missing(&self) -> io::Result<Missing> {
        let second = match self.home.open(SECOND_NAME, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Missing::Never),
            opened => opened?,
        };
        if !second.has_other_names()? {
            let is_copy = anchor::is_copy(self.home, SECOND_NAME)?;
            return Ok(if is_copy { Missing::NotCopied } else { Missing::Removed });
        }
        match self.parent.open(self.name, Access::Read) {
            // It was emptied in its place. If it has bytes, it was away for a moment.
            Ok(file) if file.identity()? == second.identity()? && file.len()? == 0 => {
                Ok(Missing::Removed)
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Missing::Moved),
        }
    }

    /// Gives the file, which says `anchor`, its second name, durably, unless it has that name.
    /// `paths` are those of the file and of the folder, if the operating system can link them.
    pub(crate) fn link(&self, anchor: &Anchor, paths: Option<(&Path, &Path)>) -> io::Result<()> {
        if self.is_linked()? {
            return Ok(());
        }
        if let Some((file, folder)) = paths
            && link(file, folder).is_ok()
        {
            return self.home.sync();
        }
        match anchor::read(self.home, SECOND_NAME)? {
            AtPath::Anchor(found)
                if found == *anchor && !anchor::is_copy(self.home, SECOND_NAME)? =>
            {
                Ok(())
            }
            _ => anchor::write(self.home, SECOND_NAME, anchor),
        }
    }

    fn is_linked(&self) -> io::Result<bool> {
        let second = match self.home.open(SECOND_NAME, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        let file = self.parent.open(self.name, Access::Read)?;
        Ok(second.has_other_names()? && second.identity()? == file.identity()?)
    }
}

/// Links `file` into `folder`. A crash leaves the old second name or the new one.
fn link(file: &Path, folder: &Path) -> io::Result<()> {
    let new = folder.join(NEW_LINK);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::hard_link(file, &new)?;
    fs::rename(new, folder.join(SECOND_NAME))
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
        let names = Names { parent: &*parent, name: "wal.log", home: &*home };
        assert_eq!(names.why_missing().unwrap(), Missing::Moved);
        fs::write(&file, b"").unwrap();
        assert_eq!(names.why_missing().unwrap(), Missing::Removed);
    }
}

//! An open folder of this machine: on Unix a descriptor, relative to which files are named,
//! elsewhere its path. Opens only regular files: follows no link, and does not wait for a FIFO.

use std::fs::Metadata;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

#[cfg(not(unix))]
pub(super) use self::by_path::OsFolder;
#[cfg(unix)]
pub(super) use self::unix::OsFolder;
use super::OsFile;
use crate::disk::{Access, DiskFile, DiskFolder, FileIdentity, FolderIdentity, not_a_file};

/// Returns nanoseconds since 1970, or 0 if unknown.
fn born(found: &Metadata) -> u64 {
    let since = found.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

pub(super) fn identity_of_file(found: &Metadata) -> FileIdentity {
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(found);
    #[cfg(not(unix))]
    let inode = 0;
    FileIdentity { inode, born: born(found) }
}

#[cfg(unix)]
mod unix {
    use std::fs::{File, TryLockError};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;

    use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
    use rustix::io::{Errno, retry_on_intr};

    use super::*;
    use crate::disk::os::platform;
    use crate::folder::META;

    #[derive(Debug)]
    pub(in crate::disk::os) struct OsFolder {
        folder: File,
        identity: FolderIdentity,
        file_mode: u32,
        /// Who gets the files that root makes here: another user who owns the folder or else the
        /// log's state, and could not open the log otherwise.
        heir: Option<Heir>,
    }

    #[derive(Clone, Copy, Debug)]
    struct Heir {
        user: Uid,
        group: Gid,
    }

    impl Heir {
        fn of(folder: &File, found: &Metadata) -> Option<Heir> {
            if !is_root() {
                return None;
            }
            let heir =
                |user, group| Heir { user: Uid::from_raw(user), group: Gid::from_raw(group) };
            if found.uid() != 0 {
                return Some(heir(found.uid(), found.gid()));
            }
            let state = regular(folder, META).ok()??;
            (state.st_uid != 0).then(|| heir(state.st_uid, state.st_gid))
        }

        fn take(self, file: impl AsFd) -> io::Result<()> {
            tolerate(rustix::fs::fchown(file, Some(self.user), Some(self.group)))
        }
    }

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Ignores a refusal if root lacks the capability, the file system has no owners, or this user
    /// namespace lacks the owner.
    fn tolerate(changed: rustix::io::Result<()>) -> io::Result<()> {
        match changed {
            Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            changed => Ok(changed?),
        }
    }

    fn regular(folder: &File, name: &str) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            found => Ok(Some(found?)
                .filter(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile)),
        }
    }

    impl OsFolder {
        pub(in crate::disk::os) fn open(path: &Path, file_mode: u32) -> io::Result<OsFolder> {
            OsFolder::open_at(CWD, path, file_mode)
        }

        fn open_at(from: BorrowedFd<'_>, path: &Path, file_mode: u32) -> io::Result<OsFolder> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = retry_on_intr(|| rustix::fs::openat(from, path, flags, Mode::empty()))?;
            let folder = File::from(folder);
            let found = folder.metadata()?;
            let (identity, heir) = (identity(&found), Heir::of(&folder, &found));
            Ok(OsFolder { folder, identity, file_mode, heir })
        }

        /// Opens a file. Makes an heir's file with `EXCL`, because an older file could be a link to
        /// any file, and must not be given away.
        fn open_file(&self, name: &str, flags: OFlags, made: OFlags) -> io::Result<File> {
            let mode = Mode::from_raw_mode(self.file_mode as _);
            let open =
                |flags| retry_on_intr(|| rustix::fs::openat(&self.folder, name, flags, mode));
            let refusal = |errno| self.refusal(name, errno);
            let Some(heir) = self.heir.filter(|_| made.contains(OFlags::CREATE)) else {
                return open(flags | made).map(File::from).map_err(refusal);
            };
            loop {
                if !made.contains(OFlags::EXCL) {
                    match open(flags) {
                        Err(Errno::NOENT) => {}
                        opened => return opened.map(File::from).map_err(refusal),
                    }
                }
                match open(flags | OFlags::CREATE | OFlags::EXCL) {
                    Err(Errno::EXIST) if !made.contains(OFlags::EXCL) => {}
                    made => {
                        let file = File::from(made.map_err(refusal)?);
                        heir.take(&file)?;
                        return Ok(file);
                    }
                }
            }
        }

        /// Gives the file `from` owner, group and permissions of another user's file `to` that it
        /// will replace, and which a group may read. Changes only files of the heir, who may have
        /// linked others.
        fn pass_on(&self, heir: Heir, from: &str, to: &str) -> io::Result<()> {
            let Some(replaced) = regular(&self.folder, to)? else { return Ok(()) };
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&self.folder, from, flags, Mode::empty())?;
            let made = rustix::fs::fstat(&file)?;
            if made.st_uid != heir.user.as_raw() {
                return Ok(());
            }
            let is_others = replaced.st_uid != 0;
            if is_others && (made.st_uid, made.st_gid) != (replaced.st_uid, replaced.st_gid) {
                let (user, group) = (replaced.st_uid, replaced.st_gid);
                Heir { user: Uid::from_raw(user), group: Gid::from_raw(group) }.take(&file)?;
            }
            let made = rustix::fs::fstat(&file)?;
            // What one group may do, another may not.
            let lost = if made.st_gid == replaced.st_gid { 0 } else { 0o070 };
            let mode = replaced.st_mode & 0o777 & !lost;
            if made.st_mode & 0o777 == mode {
                return Ok(());
            }
            tolerate(rustix::fs::fchmod(file, Mode::from_raw_mode(mode)))
        }

        /// Returns the error for `name`, after a look at what it is.
        fn refusal(&self, name: &str, errno: Errno) -> io::Error {
            let found = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
            let found = found.map(|found| FileType::from_raw_mode(found.st_mode));
            found.ok().and_then(special).map_or_else(|| errno.into(), not_a_file)
        }
    }

    impl DiskFolder for OsFolder {
        fn list(&self) -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in Dir::read_from(&self.folder)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    names.push(String::from_utf8_lossy(name).into_owned());
                }
            }
            Ok(names)
        }

        fn parent(&self) -> io::Result<Option<Arc<dyn DiskFolder>>> {
            let parent = OsFolder::open_at(self.folder.as_fd(), Path::new(".."), self.file_mode)?;
            Ok(Some(Arc::new(parent)))
        }

        fn check_writable(&self) -> io::Result<()> {
            use rustix::fs::Access;
            let wanted = Access::WRITE_OK | Access::EXEC_OK;
            match rustix::fs::accessat(&self.folder, ".", wanted, AtFlags::EACCESS) {
                // A filter of system calls may refuse this one, or the system may not know it. The
                // first file that is made tells, also in an immutable folder.
                Err(Errno::PERM | Errno::NOSYS) => Ok(()),
                checked => Ok(checked?),
            }
        }

        fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
            let kept = platform::access_flags(access);
            let made = match access {
                Access::WriteOrCreate | Access::Fresh => OFlags::CREATE,
                Access::New => OFlags::CREATE | OFlags::EXCL,
                _ => OFlags::empty(),
            };
            // Without NONBLOCK a FIFO would be waited for.
            let guard = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = self.open_file(name, kept | guard, made)?;
            let found = file.metadata()?;
            if !found.is_file() {
                let found = FileType::from_raw_mode(found.mode() as _);
                return Err(not_a_file(special(found).unwrap_or("something else")));
            }
            rustix::fs::fcntl_setfl(&file, kept)?;
            // A log that was opened with a wider `file_mode` has a lock file that other users may
            // read, and so lock. A file that this user may not change stays as it is, as does
            // another user's.
            let extra = found.mode() & 0o777 & !self.file_mode;
            if access == Access::WriteOrCreate && extra != 0 && self.heir.is_none() {
                let mode = Mode::from_raw_mode((found.mode() & 0o777 & self.file_mode) as _);
                let _ = rustix::fs::fchmod(&file, mode);
            }
            // Not with the open: what is no file of ours is not emptied.
            if access == Access::Fresh && found.len() > 0 {
                file.set_len(0)?;
            }
            Ok(Box::new(OsFile::new(file)))
        }

        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            if let Some(heir) = self.heir {
                self.pass_on(heir, from, to)?;
            }
            Ok(rustix::fs::renameat(&self.folder, from, &self.folder, to)?)
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
        }

        fn sync(&self) -> io::Result<()> {
            self.folder.sync_all()
        }

        fn try_lock(&self, shared: bool) -> bool {
            let folder = &self.folder;
            let taken = if shared { folder.try_lock_shared() } else { folder.try_lock() };
            // NFS locks no folder: the lock file alone counts there.
            !matches!(taken, Err(TryLockError::WouldBlock))
        }

        fn unlock(&self) {
            let _ = self.folder.unlock();
        }

        fn overwrites_in_place(&self) -> bool {
            // XFS shares blocks only between files that were cloned on purpose; the log's are not.
            let name = platform::file_system_of(&self.folder);
            matches!(name.as_deref(), Some("ext4" | "xfs" | "tmpfs"))
        }

        /// Returns the current identity. overlayfs copies a folder of an image at the first change
        /// of a file, with a new birth time.
        fn identity(&self) -> FolderIdentity {
            self.folder.metadata().map_or(self.identity, |found| identity(&found))
        }

        fn identity_of(&self, path: &Path) -> io::Result<Option<FolderIdentity>> {
            match std::fs::metadata(path) {
                // While the descriptor is open, no other file gets its inode.
                Ok(found) => Ok(Some(identity(&found))),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                    _ => Err(error),
                },
            }
        }
    }

    fn identity(found: &Metadata) -> FolderIdentity {
        FolderIdentity { device: found.dev(), inode: found.ino(), born: born(found) }
    }

    fn special(found: FileType) -> Option<&'static str> {
        Some(match found {
            FileType::RegularFile | FileType::Unknown => return None,
            FileType::Symlink => "a symbolic link",
            FileType::Directory => "a folder",
            FileType::Fifo => "a FIFO",
            FileType::Socket => "a socket",
            _ => "a device",
        })
    }
}

#[cfg(not(unix))]
mod by_path {
    use std::fs::{self, OpenOptions};
    use std::path::PathBuf;

    use super::*;

    #[derive(Debug)]
    pub(in crate::disk::os) struct OsFolder {
        path: PathBuf,
        identity: FolderIdentity,
    }

    impl OsFolder {
        pub(in crate::disk::os) fn open(path: &Path, _file_mode: u32) -> io::Result<OsFolder> {
            let found = fs::metadata(path)?;
            if !found.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            let identity = FolderIdentity { device: 0, inode: 0, born: born(&found) };
            Ok(OsFolder { path: path.to_path_buf(), identity })
        }
    }

    impl DiskFolder for OsFolder {
        fn list(&self) -> io::Result<Vec<String>> {
            let names = fs::read_dir(&self.path)?;
            names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        }

        fn check_writable(&self) -> io::Result<()> {
            // Access lists cannot be asked cheaply; the first file that is made tells.
            Ok(())
        }

        fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
            let path = self.path.join(name);
            if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
                return Err(not_a_file("a link, a folder or a device"));
            }
            let mut options = OpenOptions::new();
            options.read(true).write(access != Access::Read);
            options.create(matches!(access, Access::WriteOrCreate | Access::Fresh));
            options.truncate(access == Access::Fresh);
            options.create_new(access == Access::New);
            Ok(Box::new(OsFile::new(options.open(path)?)))
        }

        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            fs::rename(self.path.join(from), self.path.join(to))
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            fs::remove_file(self.path.join(name))
        }

        fn sync(&self) -> io::Result<()> {
            // NTFS journals names itself and has no call that syncs a folder.
            Ok(())
        }

        fn overwrites_in_place(&self) -> bool {
            false
        }

        fn identity(&self) -> FolderIdentity {
            self.identity
        }

        fn identity_of(&self, _path: &Path) -> io::Result<Option<FolderIdentity>> {
            // The system moves no folder in which a file is open, and the lock is.
            Ok(Some(self.identity))
        }
    }
}

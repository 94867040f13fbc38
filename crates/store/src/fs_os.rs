//! The operating system's file system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::path::Path;

use memmap2::{MmapOptions, MmapRaw};
use palisade_core::Memory;

use crate::boot::{self, BootId};
use crate::choose;
use crate::fs::{Access, Disk, DiskFile, Kind};
use crate::options::SyncMethod;

/// The name of the file system that `folder` lies on, as `ext4` (also for ext2 and ext3) or `nfs`;
/// its magic number in hexadecimal where the name is not known here.
///
/// `None` where the operating system is not Linux, or does not tell.
#[must_use]
pub fn file_system(folder: &Path) -> Option<String> {
    platform::file_system(folder)
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OsDisk;

impl Disk for OsDisk {
    fn kind(&self, path: &Path) -> io::Result<Kind> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Ok(Kind::Folder),
            Ok(_) => Ok(Kind::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kind::Missing),
            // A file stands where a folder of the path should.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Kind::Missing),
            Err(error) => Err(error),
        }
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            // Another process was faster; what it makes there is looked at next.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(folder)?;
        names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn check_writable(&self, folder: &Path) -> io::Result<()> {
        platform::check_writable(folder)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        if access == Access::Direct {
            return Ok(Box::new(OsFile::new(platform::open_direct(path)?)));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(access != Access::Read);
        options.create(matches!(access, Access::WriteOrCreate | Access::Fresh));
        options.truncate(access == Access::Fresh);
        Ok(Box::new(OsFile::new(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        platform::sync_folder(folder)
    }

    fn overwrites_in_place(&self, folder: &Path) -> bool {
        // XFS shares blocks only between files that were cloned on purpose; the log's are not.
        matches!(file_system(folder).as_deref(), Some("ext4" | "xfs" | "tmpfs"))
    }

    fn choose_sync_method(&self, path: &Path) -> SyncMethod {
        choose::measured(self, path, path.parent().and_then(file_system).as_deref())
    }

    fn boot_id(&self) -> Option<BootId> {
        boot::boot_id()
    }
}

/// A file of this machine.
#[derive(Debug)]
pub(crate) struct OsFile {
    file: File,
}

impl OsFile {
    pub(crate) fn new(file: File) -> OsFile {
        OsFile { file }
    }
}

impl DiskFile for OsFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        platform::read_at(&self.file, offset, into)
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        platform::write_at(&self.file, offset, pieces)
    }

    fn sync_data(&self) -> io::Result<()> {
        // std's call reaches the medium everywhere: fdatasync, F_FULLFSYNC on macOS,
        // FlushFileBuffers on Windows.
        self.file.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        platform::allocate(&self.file, len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        let end = offset + len;
        if self.len()? < end as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let map: MmapRaw = MmapOptions::new().len(end).map_raw(&self.file)?;
        Memory::mapped(map, offset, len).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        let taken = if shared { self.file.try_lock_shared() } else { self.file.try_lock() };
        match taken {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }
}

#[cfg(unix)]
mod platform {
    use std::fs::File;
    use std::io::{self, IoSlice};
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    pub(super) fn read_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(file, into, offset)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn write_at(file: &File, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::pwritev(file, pieces, offset)?)
    }

    // std has no vectored positioned write; the caller's loop comes back for the other pieces.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn write_at(file: &File, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(piece) = pieces.iter().find(|piece| !piece.is_empty()) else {
            return Ok(0);
        };
        FileExt::write_at(file, piece, offset)
    }

    pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    pub(super) fn check_writable(folder: &Path) -> io::Result<()> {
        use rustix::fs::{Access, AtFlags, CWD, accessat};
        Ok(accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn allocate(file: &File, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        loop {
            match fallocate(file, FallocateFlags::empty(), 0, len) {
                Err(Errno::INTR) => {}
                // The blocks come with the first write then.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                // XFS wants as much free space as is asked for, also where every block is there.
                Err(Errno::NOSPC) if has_no_hole_below(file, len) => return Ok(()),
                other => return Ok(other?),
            }
        }
    }

    /// Whether all blocks below `len` were written: space that was only allocated counts as a hole.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn has_no_hole_below(file: &File, len: u64) -> bool {
        // Moves the file's own position, which nobody uses.
        rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0)).is_ok_and(|hole| hole >= len)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn allocate(_file: &File, _len: u64) -> io::Result<()> {
        Ok(())
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn open_direct(path: &Path) -> io::Result<File> {
        use std::os::unix::fs::OpenOptionsExt;

        use rustix::fs::OFlags;
        use rustix::io::Errno;
        let flags = OFlags::DIRECT | OFlags::DSYNC;
        let mut options = File::options();
        options.write(true).custom_flags(flags.bits().cast_signed());
        options.open(path).map_err(|error| match Errno::from_io_error(&error) {
            // What file systems without such writes say.
            Some(Errno::INVAL | Errno::OPNOTSUPP) => io::ErrorKind::Unsupported.into(),
            _ => error,
        })
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn open_direct(_path: &Path) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn file_system(folder: &Path) -> Option<String> {
        let magic = rustix::fs::statfs(folder).ok()?.f_type as u32;
        let name = match magic {
            0xef53 => "ext4",
            0x5846_5342 => "xfs",
            0x9123_683e => "btrfs",
            0x0102_1994 => "tmpfs",
            0x8584_58f6 => "ramfs",
            0x794c_7630 => "overlayfs",
            0x2fc1_2fc1 => "zfs",
            0xf2f5_2010 => "f2fs",
            0x6969 => "nfs",
            _ => return Some(format!("{magic:#x}")),
        };
        Some(name.into())
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn file_system(_folder: &Path) -> Option<String> {
        None
    }
}

#[cfg(windows)]
mod platform {
    use std::fs::File;
    use std::io::{self, IoSlice};
    use std::os::windows::fs::FileExt;
    use std::path::Path;

    pub(super) fn read_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        file.seek_read(into, offset)
    }

    pub(super) fn write_at(file: &File, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(piece) = pieces.iter().find(|piece| !piece.is_empty()) else {
            return Ok(0);
        };
        file.seek_write(piece, offset)
    }

    // NTFS journals names itself and has no call that syncs a folder.
    pub(super) fn sync_folder(_folder: &Path) -> io::Result<()> {
        Ok(())
    }

    // Access lists cannot be asked cheaply; the first file that is made tells.
    pub(super) fn check_writable(_folder: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn allocate(_file: &File, _len: u64) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn open_direct(_path: &Path) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn file_system(_folder: &Path) -> Option<String> {
        None
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_a_name_here_has_its_number_and_does_not_overwrite_in_place() {
        let proc = Path::new("/proc");
        assert_eq!(file_system(proc).as_deref(), Some("0x9fa0"));
        assert!(!OsDisk.overwrites_in_place(proc));
    }

    #[test]
    fn a_direct_handle_writes_blocks_or_is_unsupported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let missing = OsDisk.open(&path, Access::Direct).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        fs::write(&path, [0; 8192]).unwrap();
        let file = match OsDisk.open(&path, Access::Direct) {
            Ok(file) => file,
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        };
        let mut block = MmapOptions::new().len(4096).map_anon().unwrap();
        block.fill(7);
        assert_eq!(file.write_at(4096, &[IoSlice::new(&block)]).unwrap(), 4096);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes, [[0; 4096], [7; 4096]].concat());
    }

    #[test]
    fn what_was_written_has_its_blocks_and_what_was_passed_over_has_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let written = File::options().write(true).open(&path).unwrap();
        assert!(platform::has_no_hole_below(&written, 1 << 20));
        assert!(!platform::has_no_hole_below(&written, (1 << 20) + 1), "its end is a hole");
        written.set_len(2 << 20).unwrap();
        let tells_holes = ["ext4", "xfs", "tmpfs"].map(str::to_owned).map(Some);
        if tells_holes.contains(&file_system(dir.path())) {
            assert!(!platform::has_no_hole_below(&written, 2 << 20));
        }
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_file_system() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(file_system(&dir.path().join("missing")), None);
    }
}

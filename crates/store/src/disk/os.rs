//! The operating system's file system.

mod folder;

use std::fs::{self, File, TryLockError};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use self::folder::OsFolder;
use crate::Memory;
use crate::disk::DEFAULT_FILE_MODE;
use crate::disk::{Disk, DiskFile, DiskFolder, FileIdentity, Kind};

/// Returns the name of the folder's file system, such as `ext4` (also for ext2 and ext3) or `nfs`,
/// or its magic number in hexadecimal. Returns `None` if the system is not Linux or does not report
/// it.
#[must_use]
pub fn file_system(folder: &Path) -> Option<String> {
    platform::file_system(folder)
}

const MEMORY_FOLDER: &str = "/dev/shm";

/// Makes a file of zeros in memory that can be mapped.
///
/// # Errors
/// `Unsupported`: this is not Linux. `StorageFull`.
pub(crate) fn memory_file(len: usize) -> io::Result<OsFile> {
    // Beyond the limit the system would end the process.
    if len as u64 > platform::largest_file() {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let file = platform::memory_file()?;
    if len > 0 {
        file.set_len(len as u64)?;
        platform::allocate(&file, len as u64)?;
    }
    Ok(OsFile::new(file))
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug)]
pub struct OsDisk;

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

    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()> {
        match platform::create_folder(path, file_mode) {
            // Another process was faster; what it makes there is looked at next.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        Ok(Arc::new(OsFolder::open(path, file_mode)?))
    }

    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        let path = Path::new(MEMORY_FOLDER);
        if file_system(path).as_deref() != Some("tmpfs") {
            return Ok(None);
        }
        use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
        match self.open_folder(path, DEFAULT_FILE_MODE) {
            Ok(folder) => Ok(Some((path.to_path_buf(), folder))),
            // A file on a tmpfs has the name of its file system, too.
            Err(error) if [NotADirectory, NotFound, PermissionDenied].contains(&error.kind()) => {
                Ok(None)
            }
            // A lack of descriptors passes; the buffer that lies there may have what segments lack.
            Err(error) => Err(error),
        }
    }

    fn largest_file(&self) -> u64 {
        platform::largest_file()
    }
}

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

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        platform::discard(&self.file, offset, len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(folder::identity_of_file(&self.file.metadata()?))
    }

    fn is_own(&self) -> io::Result<bool> {
        Ok(platform::is_own(&self.file.metadata()?))
    }

    fn has_other_names(&self) -> io::Result<bool> {
        Ok(platform::has_other_names(&self.file.metadata()?))
    }

    #[expect(unsafe_code, reason = "knows what the file lies on")]
    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        let end = offset + len;
        if self.len()? < end as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let map: MmapRaw = MmapOptions::new().len(end).map_raw(&self.file)?;
        // SAFETY:
        // - readable and writable: only files of log buffers are mapped, by the process that made
        //   them. They lie in a memory file system, all of their blocks are allocated, this one is
        //   long enough, and nobody shortens it.
        // - reached through this memory only: the process maps a file once, after it made it, and
        //   locks it if it has a name. An open does not map what it finds.
        let memory = unsafe { Memory::mapped(map, offset, len) };
        memory.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
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
    use std::fs::{DirBuilder, File, Metadata};
    use std::io::{self, IoSlice};
    use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
    use std::path::Path;

    use rustix::fs::OFlags;

    use crate::disk::Access;

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

    pub(super) fn is_own(found: &Metadata) -> bool {
        found.uid() == rustix::process::geteuid().as_raw()
    }

    pub(super) fn has_other_names(found: &Metadata) -> bool {
        found.nlink() > 1
    }

    pub(super) fn largest_file() -> u64 {
        use rustix::process::{Resource, getrlimit};
        getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
    }

    /// Makes a folder that each may enter who may read files of `file_mode`.
    pub(super) fn create_folder(path: &Path, file_mode: u32) -> io::Result<()> {
        let mode = file_mode | (file_mode & 0o444) >> 2;
        DirBuilder::new().mode(mode).create(path)
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

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn discard(file: &File, offset: u64, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if len == 0 { Ok(()) } else { Ok(fallocate(file, flags, offset, len)?) }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn discard(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether all blocks below `len` were written, not only allocated.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn has_no_hole_below(file: &File, len: u64) -> bool {
        // Moves the file's own position, which nobody uses.
        rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0)).is_ok_and(|hole| hole >= len)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn allocate(_file: &File, _len: u64) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn access_flags(access: Access) -> OFlags {
        match access {
            Access::Read => OFlags::RDONLY,
            Access::Write | Access::WriteOrCreate | Access::Fresh | Access::New => OFlags::RDWR,
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn file_system(folder: &Path) -> Option<String> {
        name_of(rustix::fs::statfs(folder).ok()?.f_type as u32)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn file_system_of(folder: &File) -> Option<String> {
        name_of(rustix::fs::fstatfs(folder).ok()?.f_type as u32)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn memory_file() -> io::Result<File> {
        use rustix::fs::{MemfdFlags, memfd_create};
        Ok(memfd_create("palisade", MemfdFlags::CLOEXEC)?.into())
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn name_of(magic: u32) -> Option<String> {
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

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn file_system_of(_folder: &File) -> Option<String> {
        None
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn memory_file() -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(windows)]
mod platform {
    use std::fs::{File, Metadata};
    use std::io::{self, IoSlice};
    use std::os::windows::fs::FileExt;
    use std::path::Path;

    pub(super) fn memory_file() -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn read_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        file.seek_read(into, offset)
    }

    pub(super) fn write_at(file: &File, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(piece) = pieces.iter().find(|piece| !piece.is_empty()) else {
            return Ok(0);
        };
        file.seek_write(piece, offset)
    }

    pub(super) fn is_own(_found: &Metadata) -> bool {
        true
    }

    // No file is recycled here.
    pub(super) fn has_other_names(_found: &Metadata) -> bool {
        false
    }

    pub(super) fn largest_file() -> u64 {
        u64::MAX
    }

    // The access list of its parent decides who may read and write it.
    pub(super) fn create_folder(path: &Path, _file_mode: u32) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    pub(super) fn allocate(_file: &File, _len: u64) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn discard(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn file_system(_folder: &Path) -> Option<String> {
        None
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_file_system_has_its_number_and_no_in_place_writes() {
        let proc = Path::new("/proc");
        assert_eq!(file_system(proc).as_deref(), Some("0x9fa0"));
        assert!(!OsDisk.open_folder(proc, 0o600).unwrap().overwrites_in_place());
    }

    #[test]
    fn written_bytes_have_blocks_and_skipped_bytes_have_none() {
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
    fn a_file_of_another_user_is_not_own() {
        let temp = tempfile::NamedTempFile::new().unwrap();
        let is_own = |path: &Path| OsFile::new(File::open(path).unwrap()).is_own().unwrap();
        assert!(is_own(temp.path()));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(temp.path(), Some(65534), None).unwrap();
            assert!(!is_own(temp.path()));
        } else {
            assert!(!is_own(Path::new("/proc/version")));
        }
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_file_system() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(file_system(&dir.path().join("missing")), None);
    }
}

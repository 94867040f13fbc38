//! The seam between the store and the file systems below it.
//!
//! The module `disk` of the crate `palisade` says what a log needs from its disk.

mod guarded;
mod memory;
pub(crate) mod os;

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, ErrorKind, Memory, sync};

pub use self::guarded::guarded;
pub use self::memory::MemDisk;
pub use self::os::{OsDisk, file_system};

/// Default permissions of a log's files: only its user reads and writes them.
pub const DEFAULT_FILE_MODE: u32 = 0o600;

/// Bytes that one call of [`write_zeros`] hands to the file at most.
const ZERO_WRITE_BYTES: u64 = 1 << 20;
const ZERO_PIECES: usize = 16;
static ZEROS: [u8; ZERO_WRITE_BYTES as usize / ZERO_PIECES] =
    [0; ZERO_WRITE_BYTES as usize / ZERO_PIECES];

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading. The file exists.
    Read,
    /// For reading and writing. The file exists.
    Write,
    /// For reading and writing. A missing file is made.
    WriteOrCreate,
    /// For reading and writing. A missing file is made, an existing one is emptied.
    Fresh,
    /// For reading and writing. The file is made; an existing one gives `AlreadyExists`.
    New,
}

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Missing,
    /// A folder.
    Folder,
    /// Anything else.
    Other,
}

/// When the store's background work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// On a thread of its own.
    Thread,
    /// On the asking thread, at once.
    Now,
    /// At a later request.
    Later,
}

/// How much is written with zeros at a time, in bytes, both multiples of 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroSteps {
    /// Before a file becomes a segment, and at least ahead of the tail.
    pub first_bytes: u64,
    /// With one claim of the preparer: the longest that a leader waits for it.
    pub step_bytes: u64,
}

impl Default for ZeroSteps {
    fn default() -> ZeroSteps {
        ZeroSteps { first_bytes: 1 << 20, step_bytes: 256 << 10 }
    }
}

/// Identifies a folder among all folders that the machine has at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderIdentity {
    /// The number of the device.
    pub device: u64,
    /// The number of the folder on its device.
    pub inode: u64,
    /// When the folder was made, in nanoseconds since 1970; 0 if that is not known.
    pub born: u64,
}

/// Identifies a file among all files that its folder has or had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileIdentity {
    /// The number of the file on its device.
    pub inode: u64,
    /// When the file was made, in nanoseconds since 1970; 0 if that is not known.
    pub born: u64,
}

/// A file system.
///
/// Two methods are required here, five of [`DiskFolder`], and five of [`DiskFile`]. The others
/// have defaults that suit a disk without the feature.
///
/// A call that panics counts as one that fails, and a getter that panics as its default.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Makes the last component of `path`, whose parent exists. A folder that exists already is no
    /// error. Its permissions follow from `file_mode`, those of the files in it.
    ///
    /// # Errors
    /// Those of the disk.
    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()>;

    /// Opens the folder at `path`, and follows links. Files that are made through it get the
    /// permissions `file_mode`, less what the process's umask takes away.
    ///
    /// # Errors
    /// `NotFound`: nothing lies at `path`. `NotADirectory`: no folder lies there.
    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>>;

    /// Returns what lies at `path`, and follows links. Default: tries to open it.
    ///
    /// # Errors
    /// Those of the disk.
    fn kind(&self, path: &Path) -> io::Result<Kind> {
        match self.open_folder(path, DEFAULT_FILE_MODE) {
            Ok(_) => Ok(Kind::Folder),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Kind::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kind::Missing),
            Err(error) => Err(error),
        }
    }

    /// Returns a folder in a memory file system, and its path. Its files live as long as the
    /// operating system runs, take all of their space when they are allocated, and can be
    /// [mapped](DiskFile::map). Default: `None`, so that the log buffer lies on the heap.
    ///
    /// # Errors
    /// Those of the disk. A folder that this process may not use is `None`.
    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        Ok(None)
    }

    /// Returns the greatest length in bytes that a file may have. Default: no limit.
    fn largest_file(&self) -> u64 {
        u64::MAX
    }

    /// Returns the host. Default: the operating system.
    fn host(&self) -> &dyn Host {
        &System
    }
}

/// What a store takes from the world around it besides files: random bits, the clock, and when its
/// background work runs. The defaults are those of the operating system.
pub trait Host: Send + Sync + fmt::Debug {
    /// Returns 64 random bits. Default: those of the operating system.
    ///
    /// # Errors
    /// Those of the source.
    fn random(&self) -> io::Result<u64> {
        getrandom::u64().map_err(|error| io::Error::other(error.to_string()))
    }

    /// Lets `time` pass. Default: sleeps.
    fn pause(&self, time: Duration) {
        sync::sleep(time);
    }

    /// Returns whether a thread of the log may write complete pieces. Default: true. Otherwise the
    /// append that completes a piece writes it, so each run makes the same calls.
    fn writes_behind(&self) -> bool {
        true
    }

    /// Returns when background work that is asked for now is to run. Default: on a thread.
    fn background(&self) -> Background {
        Background::Thread
    }

    /// Returns how much is zeroed at a time.
    fn zero_steps(&self) -> ZeroSteps {
        ZeroSteps::default()
    }
}

/// The host of a disk that has none of its own.
#[derive(Debug)]
struct System;

impl Host for System {}

/// An open folder. Its calls reach the files in it and no others, wherever the folder is moved to
/// and whatever takes its name.
pub trait DiskFolder: Send + Sync + fmt::Debug {
    /// Returns the names of everything in the folder, in any order. What is no UTF-8 is replaced.
    ///
    /// # Errors
    /// Those of the disk.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens the file `name`. Anything but a regular file is refused; a link is not followed.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`: see [`Access`]. Those of the disk.
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, atomically. Replaces a file of the name `to`.
    ///
    /// # Errors
    /// Those of the disk. The file has one of both names then.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound`. Those of the disk.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names in the folder survive power loss. Blocks for the device.
    ///
    /// # Errors
    /// Those of the disk. Names that were made, renamed or removed since the last sync may be
    /// lost then.
    fn sync(&self) -> io::Result<()>;

    /// Takes the folder's lock, shared or exclusive, and returns true, if no other open folder has
    /// it. Does not wait. Default: true.
    fn try_lock(&self, shared: bool) -> bool {
        let _ = shared;
        true
    }

    /// Frees the folder's lock, which the drop frees, too. Default: does nothing.
    fn unlock(&self) {}

    /// Opens the folder that holds this one. To make its name survive power loss the store syncs
    /// that folder and the parent of its path, which differ after a link or `..`. Default: `None`.
    ///
    /// # Errors
    /// Those of the disk.
    fn parent(&self) -> io::Result<Option<Arc<dyn DiskFolder>>> {
        Ok(None)
    }

    /// Fails if this process may not make files in the folder; changes nothing. Default: `Ok`.
    ///
    /// # Errors
    /// `PermissionDenied`.
    fn check_writable(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether a written block of a file stays in its place when it is overwritten. If it
    /// does, the store writes zeros ahead of the tail and recycles files. Default: false.
    fn overwrites_in_place(&self) -> bool {
        false
    }

    /// Returns the folder's identity. Default: one and the same, so that neither a copy of a log's
    /// folder nor a folder that was replaced is noticed.
    fn identity(&self) -> FolderIdentity {
        FolderIdentity::default()
    }

    /// Returns the identity of what lies at `path` now, links followed; `None` if nothing does.
    /// Default: that of this folder.
    ///
    /// # Errors
    /// Those of the disk.
    fn identity_of(&self, path: &Path) -> io::Result<Option<FolderIdentity>> {
        let _ = path;
        Ok(Some(self.identity()))
    }

    /// Returns whether `path`, by which the folder was opened, leads to it now.
    ///
    /// # Errors
    /// As [`identity_of`](DiskFolder::identity_of).
    fn still_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.identity_of(path)? == Some(self.identity()))
    }
}

/// An open file. Dropping it closes it and frees its lock.
///
/// All calls may run beside each other. The store never writes the same byte from two threads.
#[expect(clippy::len_without_is_empty, reason = "a length in bytes, as that of std's Metadata")]
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads some bytes at `offset` and returns how many; 0 at the end of the file.
    ///
    /// # Errors
    /// Those of the disk. `Interrupted`: the caller tries again.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes some of `pieces`, one behind the other, at `offset`, and returns how many bytes. A
    /// write behind the end of the file extends it with zeros.
    ///
    /// # Errors
    /// `StorageFull`: nothing is lost, the store writes again later. `Interrupted`: the caller
    /// tries again. After any other error the store does not trust the file again.
    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes the bytes that were written and the file's length survive power loss. Blocks for the
    /// device.
    ///
    /// # Errors
    /// Those of the disk. Bytes that were written since the last sync may be lost then, and the
    /// store does not trust the file again.
    fn sync_data(&self) -> io::Result<()>;

    /// Returns the file's length in bytes.
    ///
    /// # Errors
    /// Those of the disk.
    fn len(&self) -> io::Result<u64>;

    /// Takes the file's lock, shared or exclusive, and returns true, if no other open file holds
    /// it in the way. Does not wait. The lock must hold against other processes, too, if they can
    /// reach the file.
    ///
    /// # Errors
    /// Those of the disk.
    fn try_lock(&self, shared: bool) -> io::Result<bool>;

    /// Frees the lock. Default: does nothing, so that only the drop frees it.
    ///
    /// # Errors
    /// Those of the disk.
    fn unlock(&self) -> io::Result<()> {
        Ok(())
    }

    /// Extends the file to `len` bytes at least, with blocks of its own if the disk can promise
    /// them. Default: does nothing.
    ///
    /// # Errors
    /// `StorageFull`.
    fn allocate(&self, len: u64) -> io::Result<()> {
        let _ = len;
        Ok(())
    }

    /// Frees the blocks of `len` bytes from `offset` on if the disk can: they read as zeros then.
    /// Default: does nothing.
    ///
    /// # Errors
    /// Those of the disk.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Returns the file's identity. Default: one and the same, so that a copy of a log's meta file
    /// is not noticed.
    ///
    /// # Errors
    /// Those of the disk.
    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity::default())
    }

    /// Returns whether the file belongs to the effective user of this process. Another owner can
    /// forge its content. Default: true.
    ///
    /// # Errors
    /// Those of the disk.
    fn is_own(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Returns whether the file has names besides the one by which it was opened (hard links).
    /// Default: false.
    ///
    /// # Errors
    /// Those of the disk.
    fn has_other_names(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Maps `len` bytes from `offset` on, shared and writable. Only files in a
    /// [memory folder](Disk::memory_folder) are mapped. Default: `Unsupported`.
    ///
    /// # Errors
    /// `UnexpectedEof`: the file is shorter.
    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        let _ = (offset, len);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Reads at `offset` until `into` is full or the file ends; returns how many bytes there were.
///
/// # Errors
/// Those of the disk.
pub fn read_full(file: &dyn DiskFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(offset + done as u64, &mut into[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// Those of the disk.
pub fn write_bytes(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
    write_pieces(file, offset, &[IoSlice::new(bytes)], 0, bytes.len())
}

/// Writes zeros over `[from, to)`, at most 1 MiB with one system call.
pub(crate) fn write_zeros(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    let pieces = [IoSlice::new(&ZEROS); ZERO_PIECES];
    let mut at = from;
    while at < to {
        let len = ZERO_WRITE_BYTES.min(to - at);
        write_pieces(file, at, &pieces, 0, len as usize)?;
        at += len;
    }
    Ok(())
}

/// Writes `len` bytes of `pieces`, less the first `skip`, at `offset`, however many calls the
/// file needs for it. Allocates nothing.
///
/// # Errors
/// Those of the disk.
pub fn write_pieces(
    file: &dyn DiskFile,
    offset: u64,
    pieces: &[IoSlice<'_>],
    skip: usize,
    len: usize,
) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let mut window = [IoSlice::new(&[]); ZERO_PIECES];
        let count = cut(pieces, skip + done, len - done, &mut window);
        match file.write_at(offset + done as u64, &window[..count]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the error for a name that stands for something else than a regular file: `found`, such
/// as "a link".
#[must_use]
pub fn not_a_file(found: &'static str) -> io::Error {
    io::Error::other(NotAFile(found))
}

/// Returns what a name stands for instead of a regular file, if `error` is one of `not_a_file`.
pub fn found_instead(error: &io::Error) -> Option<&'static str> {
    let cause = error.get_ref()?.downcast_ref::<NotAFile>()?;
    Some(cause.0)
}

#[derive(Debug)]
struct NotAFile(&'static str);

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is {}, not a regular file", self.0)
    }
}

impl std::error::Error for NotAFile {}

/// Returns whether an error reports a lack of space.
pub fn lacks_space(error: &io::Error) -> bool {
    Error::io("write", error.kind().into()).kind() == ErrorKind::NoSpace
}

/// Puts up to `len` bytes of `pieces`, less the first `skip`, into `window`; returns how many
/// slices of it are used.
fn cut<'a>(
    pieces: &'a [IoSlice<'_>],
    mut skip: usize,
    mut len: usize,
    window: &mut [IoSlice<'a>],
) -> usize {
    let mut used = 0;
    for piece in pieces {
        if len == 0 || used == window.len() {
            break;
        }
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let taken = len.min(piece.len() - skip);
        window[used] = IoSlice::new(&piece[skip..skip + taken]);
        (skip, len, used) = (0, len - taken, used + 1);
    }
    used
}

#[cfg(test)]
mod tests;

//! The store's seam to file systems. The module `disk` of the crate `palisade` documents what a log
//! needs of them.

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

/// Default permissions of a log's files: access for their owner only.
pub const DEFAULT_FILE_MODE: u32 = 0o600;

/// The most bytes of one call of [`write_zeros`].
const ZERO_WRITE_BYTES: u64 = 1 << 20;
const ZERO_PIECES: usize = 16;
static ZEROS: [u8; ZERO_WRITE_BYTES as usize / ZERO_PIECES] =
    [0; ZERO_WRITE_BYTES as usize / ZERO_PIECES];

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads an existing file.
    Read,
    /// Reads and writes an existing file.
    Write,
    /// Reads and writes. Makes a missing file.
    WriteOrCreate,
    /// Reads and writes. Makes a missing file, empties an existing one.
    Fresh,
    /// Reads and writes. Makes the file; an existing one gives `AlreadyExists`.
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
    /// At once, on the asking thread.
    Now,
    /// At a later request.
    Later,
}

/// How many bytes are zeroed at a time; multiples of 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroSteps {
    /// Before a file becomes a segment, and at least ahead of the tail.
    pub first_bytes: u64,
    /// In one step of the preparer: the longest that a leader waits for it.
    pub step_bytes: u64,
}

impl Default for ZeroSteps {
    fn default() -> ZeroSteps {
        ZeroSteps { first_bytes: 1 << 20, step_bytes: 256 << 10 }
    }
}

/// Identifies a folder among all of the machine at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderIdentity {
    /// The device.
    pub device: u64,
    /// The folder's number on its device.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970; 0 if unknown.
    pub born: u64,
}

/// Identifies a file among all that its folder has or had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileIdentity {
    /// The file's number on its device.
    pub inode: u64,
    /// As in [`FolderIdentity`].
    pub born: u64,
}

/// A file system.
///
/// Methods with a default suit a disk without the feature: they do nothing, or return `Ok`, `None`
/// or false, unless their documentation differs. If a call panics, it fails; a getter returns its
/// default.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Makes the folder `path`, whose parent exists, with permissions that suit files of
    /// `file_mode`. An existing folder is no error.
    ///
    /// # Errors
    /// Any.
    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()>;

    /// Opens the folder at `path`, and follows links. Files made through it get the permissions
    /// `file_mode`, less the process's umask.
    ///
    /// # Errors
    /// `NotFound`: nothing is at `path`. `NotADirectory`: no folder is.
    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>>;

    /// Returns what is at `path`, and follows links. Default: tries to open it.
    ///
    /// # Errors
    /// Any.
    fn kind(&self, path: &Path) -> io::Result<Kind> {
        match self.open_folder(path, DEFAULT_FILE_MODE) {
            Ok(_) => Ok(Kind::Folder),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Kind::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kind::Missing),
            Err(error) => Err(error),
        }
    }

    /// Returns a folder in a memory file system, and its path, or `None` if this process may not
    /// use it: then the log buffer is on the heap. Its files last until the operating system stops,
    /// take all of their space when they are allocated, and can be [mapped](DiskFile::map).
    ///
    /// # Errors
    /// Any.
    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        Ok(None)
    }

    /// Returns the greatest length of a file in bytes. Default: `u64::MAX`.
    fn largest_file(&self) -> u64 {
        u64::MAX
    }

    /// Returns the host.
    fn host(&self) -> &dyn Host {
        &System
    }
}

/// A store's surroundings besides files. Default: the operating system's.
pub trait Host: Send + Sync + fmt::Debug {
    /// Returns 64 random bits.
    ///
    /// # Errors
    /// Any.
    fn random(&self) -> io::Result<u64> {
        getrandom::u64().map_err(|error| io::Error::other(error.to_string()))
    }

    /// Sleeps for `time`.
    fn pause(&self, time: Duration) {
        sync::sleep(time);
    }

    /// Returns whether a thread of the log may write complete pieces, which is the default. If not,
    /// the append that completes a piece writes it, so each run makes the same calls.
    fn writes_behind(&self) -> bool {
        true
    }

    /// Returns when background work runs. Default: on a thread.
    fn background(&self) -> Background {
        Background::Thread
    }

    /// Returns how much is zeroed at a time.
    fn zero_steps(&self) -> ZeroSteps {
        ZeroSteps::default()
    }
}

#[derive(Debug)]
struct System;

impl Host for System {}

/// An open folder. Its calls reach its own files only, even if it is moved or replaced.
pub trait DiskFolder: Send + Sync + fmt::Debug {
    /// Returns all names, in any order. Replaces what is not UTF-8.
    ///
    /// # Errors
    /// Any.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a regular file; refuses anything else, also a link.
    ///
    /// # Errors
    /// Any. `NotFound`, `AlreadyExists`: see [`Access`].
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file atomically, and replaces a file with the name `to`.
    ///
    /// # Errors
    /// Any. The file then has one of both names.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Any; `NotFound`.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the folder's names survive power loss. Blocks for the device.
    ///
    /// # Errors
    /// Any. Names that changed since the last sync may then be lost.
    fn sync(&self) -> io::Result<()>;

    /// Takes the folder's lock without waiting, unless another open folder has it, and returns
    /// whether it did. Default: true.
    fn try_lock(&self, shared: bool) -> bool {
        let _ = shared;
        true
    }

    /// Frees the folder's lock, as the drop does.
    fn unlock(&self) {}

    /// Opens the folder that holds this one. After a link or `..` it is not the parent of the path;
    /// the store syncs both to make the folder's name durable.
    ///
    /// # Errors
    /// Any.
    fn parent(&self) -> io::Result<Option<Arc<dyn DiskFolder>>> {
        Ok(None)
    }

    /// Fails if this process may not make files in the folder.
    ///
    /// # Errors
    /// `PermissionDenied`.
    fn check_writable(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether an overwritten block stays in its place. If so, the store zeroes ahead of
    /// the tail and recycles files.
    fn overwrites_in_place(&self) -> bool {
        false
    }

    /// Returns the folder's identity. Default: always the same, so copied and replaced folders go
    /// unnoticed.
    fn identity(&self) -> FolderIdentity {
        FolderIdentity::default()
    }

    /// Returns the identity of what is at `path`, and follows links. Default: this folder's.
    ///
    /// # Errors
    /// Any.
    fn identity_of(&self, path: &Path) -> io::Result<Option<FolderIdentity>> {
        let _ = path;
        Ok(Some(self.identity()))
    }

    /// Returns whether `path`, by which the folder was opened, still leads to it.
    ///
    /// # Errors
    /// Any.
    fn still_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.identity_of(path)? == Some(self.identity()))
    }
}

/// An open file. Its drop closes it and frees its lock. Calls may run at the same time, but the
/// store never writes a byte from two threads.
#[expect(clippy::len_without_is_empty, reason = "a length in bytes, as that of std's Metadata")]
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads bytes at `offset` and returns how many; 0 at the end of the file.
    ///
    /// # Errors
    /// Any. After `Interrupted` the caller tries again.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes bytes of `pieces`, in order, at `offset`, and returns how many. A write beyond the
    /// end fills the gap with zeros.
    ///
    /// # Errors
    /// After `StorageFull` the store writes again later, after `Interrupted` at once. After any
    /// other it never trusts the file again.
    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes the written bytes and the file's length survive power loss. Blocks for the device.
    ///
    /// # Errors
    /// Any. Bytes written since the last sync may be lost; the store never trusts the file again.
    fn sync_data(&self) -> io::Result<()>;

    /// Returns the file's length in bytes.
    ///
    /// # Errors
    /// Any.
    fn len(&self) -> io::Result<u64>;

    /// Takes the file's lock without waiting, unless another open file, also of another process,
    /// holds it in the way. Returns whether it did.
    ///
    /// # Errors
    /// Any.
    fn try_lock(&self, shared: bool) -> io::Result<bool>;

    /// Frees the lock. By default only the drop frees it.
    ///
    /// # Errors
    /// Any.
    fn unlock(&self) -> io::Result<()> {
        Ok(())
    }

    /// Extends the file to at least `len` bytes, with blocks of its own if possible.
    ///
    /// # Errors
    /// `StorageFull`.
    fn allocate(&self, len: u64) -> io::Result<()> {
        let _ = len;
        Ok(())
    }

    /// Frees the blocks of `len` bytes from `offset` on, if it can; they then read as zeros.
    ///
    /// # Errors
    /// Any.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Returns the file's identity. Default: always the same, so a copied meta file goes unnoticed.
    ///
    /// # Errors
    /// Any.
    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity::default())
    }

    /// Returns whether this process's effective user owns the file. Another owner can forge it.
    /// Default: true.
    ///
    /// # Errors
    /// Any.
    fn is_own(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Returns whether the file has other names (hard links).
    ///
    /// # Errors
    /// Any.
    fn has_other_names(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Maps `len` bytes from `offset` on, shared and writable, of a file in a [memory
    /// folder](Disk::memory_folder). Default: `Unsupported`.
    ///
    /// # Errors
    /// `UnexpectedEof`: the file is shorter.
    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        let _ = (offset, len);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Reads at `offset` until `into` is full or the file ends, and returns how many bytes.
///
/// # Errors
/// Any.
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
/// Any.
pub fn write_bytes(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
    write_pieces(file, offset, &[IoSlice::new(bytes)], 0, bytes.len())
}

/// Writes zeros over `[from, to)`.
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

/// Writes `len` bytes of `pieces` after the first `skip` at `offset`. Allocates nothing.
///
/// # Errors
/// Any.
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

/// Returns the error for a name of `found`, such as "a link".
#[must_use]
pub fn not_a_file(found: &'static str) -> io::Error {
    io::Error::other(NotAFile(found))
}

/// Returns what the name stands for, if `error` is of `not_a_file`.
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

/// Returns whether space is lacking.
pub fn lacks_space(error: &io::Error) -> bool {
    Error::io("write", error.kind().into()).kind() == ErrorKind::NoSpace
}

/// Puts up to `len` bytes of `pieces` after the first `skip` into `window`; returns its slices.
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

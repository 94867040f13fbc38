//! The one door to the file system: what the stores on files ask of it.
//!
//! Three small traits, so that the same store runs over the operating system ([`OsDisk`]) and over
//! disks that fail on purpose. A store opens its folder once, by its path, and reaches every file
//! through that [`DiskFolder`]: a folder that is moved or replaced meanwhile cannot send it into
//! another one. Errors are plain I/O errors here; the callers name the file.
//!
//! [`OsDisk`]: crate::fs_os::OsDisk

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use palisade_core::{Error, ErrorKind, Memory};

/// Bytes that one call of [`write_zeros`] hands to the file at most.
const ZERO_WRITE_BYTES: u64 = 1 << 20;
const ZERO_PIECES: usize = 16;
static ZEROS: [u8; ZERO_WRITE_BYTES as usize / ZERO_PIECES] =
    [0; ZERO_WRITE_BYTES as usize / ZERO_PIECES];

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// For reading, the file being there.
    Read,
    /// For reading and writing, the file being there.
    Write,
    /// For reading and writing, the file being made if it is missing.
    WriteOrCreate,
    /// For reading and writing, the file being emptied or made.
    Fresh,
    /// For reading and writing, the file being made; one that is there is an error.
    New,
}

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Missing,
    Folder,
    Other,
}

/// When the store's background work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Background {
    /// On a thread of its own.
    Thread,
    /// On the asking thread, at once.
    Now,
    /// At a later request.
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "for simulated disks"))]
    Later,
}

/// How much is written with zeros at a time, in bytes, both multiples of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZeroSteps {
    /// Before a file becomes a segment, and at least ahead of the tail.
    pub(crate) first_bytes: u64,
    /// With one claim of the preparer: the longest that a leader waits for it.
    pub(crate) step_bytes: u64,
}

impl Default for ZeroSteps {
    fn default() -> ZeroSteps {
        ZeroSteps { first_bytes: 1 << 20, step_bytes: 256 << 10 }
    }
}

/// What tells a folder from every other one that this machine has at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FolderIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// When it was made, in nanoseconds since 1970; 0 where that is not known.
    pub(crate) born: u64,
}

/// What tells a file from every other one of its folder, earlier ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) inode: u64,
    /// As that of a folder.
    pub(crate) born: u64,
}

/// A file system, and what else a store takes from the world around it. What has a default
/// differs only on disks that have to behave the same in every run.
pub(crate) trait Disk: Send + Sync + fmt::Debug {
    /// What lies at `path`, links followed.
    fn kind(&self, path: &Path) -> io::Result<Kind>;

    /// Makes the last component of `path`; its parent has to be there. Files in it are to have the
    /// permissions `file_mode`, and it gets those that fit.
    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()>;

    /// Opens the folder at `path`, links followed. Files that are made through it get the
    /// permissions `file_mode`, less what the process's umask takes away.
    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>>;

    /// A folder in a memory file system, and its path: its files live as long as the operating
    /// system runs, and take all of their space when they are allocated. `None` where there is
    /// none, or none that this process may use.
    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>>;

    /// The greatest length that this process may give to a file. A write or an allocation beyond it
    /// would end the process, by SIGXFSZ.
    fn largest_file(&self) -> u64 {
        u64::MAX
    }

    /// 64 random bits.
    fn random(&self) -> io::Result<u64> {
        getrandom::u64().map_err(|error| io::Error::other(error.to_string()))
    }

    /// Lets `time` go by.
    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }

    /// When background work that is asked for now is to run.
    fn background(&self) -> Background {
        Background::Thread
    }

    /// How much is zeroed at a time.
    fn zero_steps(&self) -> ZeroSteps {
        ZeroSteps::default()
    }
}

/// An open folder. Wherever it is moved to, and whatever takes its name, its calls reach the files
/// in it and no others.
pub(crate) trait DiskFolder: Send + Sync + fmt::Debug {
    /// The names of everything in the folder, in no order. What is no UTF-8 is replaced.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Whether this process may make files in the folder; changes nothing.
    fn check_writable(&self) -> io::Result<()>;

    /// Opens the file `name`. What is no regular file is refused with [`not_a_file`], and neither
    /// waited for nor changed; a link is not followed.
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, replacing what has the name `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names in the folder survive power loss.
    fn sync(&self) -> io::Result<()>;

    /// Whether overwriting a written block of a file in the folder keeps it in its place. False
    /// where that is not known.
    fn overwrites_in_place(&self) -> bool;

    /// What tells the folder from others.
    fn identity(&self) -> FolderIdentity;

    /// What tells from others what lies at `path` now, links followed; `None` if nothing does.
    fn identity_of(&self, path: &Path) -> io::Result<Option<FolderIdentity>>;

    /// Whether `path`, by which the folder was opened, leads to it now.
    fn still_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.identity_of(path)? == Some(self.identity()))
    }
}

/// An open file. Dropping it closes it and gives its lock back.
pub(crate) trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads some bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes some of `pieces`, one behind the other, at `offset`; says how many bytes.
    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes what was written, and the length, survive power loss.
    fn sync_data(&self) -> io::Result<()>;

    /// Gets blocks for the first `len` bytes, where the file system can.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Gives the blocks of `len` bytes from `offset` on back, where the file system can: they read
    /// as zeros then.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// What tells the file from others.
    fn identity(&self) -> io::Result<FileIdentity>;

    /// Maps `len` bytes from `offset` on, shared and writable.
    fn map(&self, offset: usize, len: usize) -> io::Result<Memory>;

    /// Takes the file's lock, shared or exclusive, if no other handle is in the way.
    fn try_lock(&self, shared: bool) -> io::Result<bool>;

    /// Gives the lock back.
    fn unlock(&self) -> io::Result<()>;
}

/// Reads at `offset` until `into` is full or the file ends; says how many bytes there were.
pub(crate) fn read_full(file: &dyn DiskFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
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
pub(crate) fn write_bytes(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
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
pub(crate) fn write_pieces(
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

/// The error for a name that stands for something else than a regular file.
pub(crate) fn not_a_file(found: &'static str) -> io::Error {
    io::Error::other(NotAFile(found))
}

/// What a name stands for that should be a regular file, if `error` says so.
pub(crate) fn found_instead(error: &io::Error) -> Option<&'static str> {
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

/// Whether an error says that there is no space.
pub(crate) fn lacks_space(error: &io::Error) -> bool {
    Error::io("write", error.kind().into()).kind() == ErrorKind::NoSpace
}

/// Puts up to `len` bytes of `pieces`, less the first `skip`, into `window`; says how many
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
mod tests {
    use super::*;

    #[test]
    fn cut_takes_the_asked_bytes_across_pieces() {
        let pieces = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defgh")];
        for skip in 0..8 {
            for len in 0..=8 - skip {
                let mut window = [IoSlice::new(&[]); 4];
                let used = cut(&pieces, skip, len, &mut window);
                let taken: Vec<u8> = window[..used].iter().flat_map(|cut| cut.to_vec()).collect();
                assert_eq!(taken, b"abcdefgh"[skip..skip + len], "skip {skip}, len {len}");
            }
        }
    }
}

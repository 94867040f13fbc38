//! The one door to the file system: what the stores on files ask of it.
//!
//! Two small traits, so that the same store runs over the operating system ([`OsDisk`]) and over
//! disks that fail on purpose. Errors are plain I/O errors here; the callers name the file.
//!
//! [`OsDisk`]: crate::fs_os::OsDisk

use std::fmt;
use std::io::{self, IoSlice};
use std::path::Path;
use std::thread;
use std::time::Duration;

use palisade_core::{Error, ErrorKind, Memory};

use crate::boot::BootId;
use crate::options::SyncMethod;

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
    /// For writing past the page cache, the file being there: what `write_at` has written survives
    /// power loss when it returns. Place, length and memory of each write are multiples of
    /// [`DIRECT_BYTES`]. `Unsupported` where the system or the file system has no such way.
    Direct,
}

/// What a write to a file opened with [`Access::Direct`] has to be a multiple of, in place, length
/// and memory, on every usual device.
pub(crate) const DIRECT_BYTES: usize = 4096;

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
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "for simulated disks"))]
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

/// A file system, and what else a store takes from the world around it. What has a default
/// differs only on disks that have to behave the same in every run.
pub(crate) trait Disk: Send + Sync + fmt::Debug {
    /// What lies at `path`, links followed.
    fn kind(&self, path: &Path) -> io::Result<Kind>;

    /// Makes the last component of `path`; its parent has to be there.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// The names of everything in `folder`, in no order. What is no UTF-8 is replaced.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Whether this process may make files in `folder`; changes nothing.
    fn check_writable(&self, folder: &Path) -> io::Result<()>;

    /// Opens a file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, replacing what has the name `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in `folder` survive power loss.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Whether overwriting a written block of a file in `folder` keeps it in its place. False
    /// where that is not known.
    fn overwrites_in_place(&self, folder: &Path) -> bool;

    /// How a new log's commits had best reach the medium. May make and overwrite the file `path`; an
    /// error of it is no answer, but `DataSync`.
    fn choose_sync_method(&self, _path: &Path) -> SyncMethod {
        SyncMethod::DataSync
    }

    /// What tells this run of the operating system from every other.
    fn boot_id(&self) -> Option<BootId>;

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

/// An open file. Dropping it closes it and gives its lock back.
pub(crate) trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads some bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes some of `pieces`, one behind the other, at `offset`; says how many bytes. On a file
    /// opened with [`Access::Direct`] those survive power loss.
    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes what was written, and the length, survive power loss.
    fn sync_data(&self) -> io::Result<()>;

    /// Gets blocks for the first `len` bytes, where the file system can.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;

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
        match write_some(file, offset + done as u64, pieces, skip + done, len - done) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Hands up to `len` bytes of `pieces`, less the first `skip`, to the file with one call; says how
/// many it took. Allocates nothing.
pub(crate) fn write_some(
    file: &dyn DiskFile,
    offset: u64,
    pieces: &[IoSlice<'_>],
    skip: usize,
    len: usize,
) -> io::Result<usize> {
    let mut window = [IoSlice::new(&[]); ZERO_PIECES];
    let count = cut(pieces, skip, len, &mut window);
    file.write_at(offset, &window[..count])
}

/// Whether all of `pieces` can go into a direct write: their memory and their lengths.
pub(crate) fn is_aligned(pieces: &[IoSlice<'_>]) -> bool {
    let is_multiple = |number: usize| number.is_multiple_of(DIRECT_BYTES);
    pieces.iter().all(|piece| {
        piece.is_empty() || is_multiple(piece.len()) && is_multiple(piece.as_ptr().addr())
    })
}

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

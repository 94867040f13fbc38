//! What every disk must do.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use crate::{Error, ErrorKind, Options, Result};
use palisade_store::disk::{
    Access, DEFAULT_FILE_MODE, Disk, DiskFile, DiskFolder, Kind, read_full, write_pieces,
};

const SEGMENT_BYTES: u64 = 64 << 10;
const RECORD_BYTES: usize = 1000;
/// Enough for several segments.
const RECORDS: u64 = 300;

/// Makes the main calls of a log on `disk`, in the new folder `path`, and compares what they
/// return. Then runs a log on it. The parent of `path` exists. What the check makes stays there. It
/// cannot see whether a sync reaches the device.
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
///
/// use palisade::disk::{MemDisk, conformance};
///
/// conformance::check(&(Arc::new(MemDisk::new()) as _), Path::new("/log"))?;
/// # Ok::<(), palisade::Error>(())
/// ```
///
/// # Errors
/// `Io`: a call failed, or the text says what was expected. Those of the log.
pub fn check(disk: &Arc<dyn Disk>, path: &Path) -> Result<()> {
    let path = std::path::absolute(path).map_err(|error| Error::io("find the folder", error))?;
    let folder = check_folders(disk.as_ref(), &path).map_err(failed)?;
    check_files(folder.as_ref()).map_err(failed)?;
    check_names(folder.as_ref()).map_err(failed)?;
    check_locks(folder.as_ref()).map_err(failed)?;
    for name in folder.list().map_err(failed)? {
        folder.remove(&name).map_err(failed)?;
    }
    check_log(disk, &path)
}

fn failed(error: io::Error) -> Error {
    Error::io("check the disk", error)
}

fn expect(holds: bool, expected: &str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(format!("expected that {expected}"))) }
}

fn expect_error<T>(result: io::Result<T>, kind: io::ErrorKind, call: &str) -> io::Result<()> {
    let is_expected = result.is_err_and(|error| error.kind() == kind);
    expect(is_expected, &format!("{call} gives {kind:?}"))
}

fn check_folders(disk: &dyn Disk, path: &Path) -> io::Result<Arc<dyn DiskFolder>> {
    expect(disk.kind(path)? == Kind::Missing, "nothing lies at the path before the check")?;
    let opened = disk.open_folder(path, DEFAULT_FILE_MODE);
    expect_error(opened, io::ErrorKind::NotFound, "open_folder of a missing folder")?;
    disk.create_folder(path, DEFAULT_FILE_MODE)?;
    disk.create_folder(path, DEFAULT_FILE_MODE)?;
    expect(disk.kind(path)? == Kind::Folder, "kind finds the new folder")?;
    let folder = disk.open_folder(path, DEFAULT_FILE_MODE)?;
    folder.check_writable()?;
    expect(folder.list()?.is_empty(), "list of a new folder is empty")?;
    expect(folder.still_at(path)?, "still_at finds the folder at its path")?;
    folder.sync()?;
    Ok(folder)
}

fn check_files(folder: &dyn DiskFolder) -> io::Result<()> {
    expect_error(
        folder.open("a", Access::Read),
        io::ErrorKind::NotFound,
        "an open of a missing file",
    )?;
    expect_error(
        folder.open("a", Access::Write),
        io::ErrorKind::NotFound,
        "an open of a missing file",
    )?;
    let file = folder.open("a", Access::New)?;
    expect_error(folder.open("a", Access::New), io::ErrorKind::AlreadyExists, "open as new")?;
    expect(file.len()? == 0, "a new file is empty")?;
    write(file.as_ref(), 10, &[b"positioned ", b"", b"write"])?;
    expect(content(folder, "a")? == b"\0\0\0\0\0\0\0\0\0\0positioned write", "zeros fill a gap")?;
    write(file.as_ref(), 0, &[b"over"])?;
    expect(
        &content(folder, "a")?[..14] == b"over\0\0\0\0\0\0posi",
        "a write changes its bytes only",
    )?;
    file.sync_data()?;
    file.allocate(100)?;
    file.allocate(10)?;
    expect(
        &content(folder, "a")?[..26] == b"over\0\0\0\0\0\0positioned write",
        "allocate keeps bytes",
    )?;
    drop(file);
    let file = folder.open("a", Access::WriteOrCreate)?;
    expect(file.len()? >= 26, "WriteOrCreate keeps an existing file")?;
    drop(file);
    expect(folder.open("a", Access::Fresh)?.len()? == 0, "Fresh empties the file")
}

fn check_names(folder: &dyn DiskFolder) -> io::Result<()> {
    write(folder.open("b", Access::WriteOrCreate)?.as_ref(), 0, &[b"b"])?;
    let open = folder.open("b", Access::Read)?;
    folder.rename("b", "a")?;
    folder.sync()?;
    expect(folder.list()? == ["a"], "rename replaces the file that has the name")?;
    expect(content(folder, "a")? == b"b", "rename keeps the content")?;
    folder.remove("a")?;
    expect_error(folder.remove("a"), io::ErrorKind::NotFound, "a second removal")?;
    let mut byte = [0];
    expect(open.read_at(0, &mut byte)? == 1, "an open file can be read after its removal")?;
    expect(folder.list()?.is_empty(), "remove takes the name away")
}

fn check_locks(folder: &dyn DiskFolder) -> io::Result<()> {
    let first = folder.open("lock", Access::WriteOrCreate)?;
    let second = folder.open("lock", Access::WriteOrCreate)?;
    expect(first.try_lock(false)?, "try_lock takes a free lock")?;
    expect(!second.try_lock(false)?, "one open file at a time holds an exclusive lock")?;
    expect(!second.try_lock(true)?, "an exclusive lock excludes a shared one")?;
    first.unlock()?;
    drop(first);
    expect(second.try_lock(true)?, "the drop of the holder frees the lock")?;
    let third = folder.open("lock", Access::Read)?;
    expect(third.try_lock(true)?, "two open files hold a shared lock")?;
    let fourth = folder.open("lock", Access::Write)?;
    expect(!fourth.try_lock(false)?, "a shared lock excludes an exclusive one")
}

fn write(file: &dyn DiskFile, offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
    let pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let len = pieces.iter().map(|piece| piece.len()).sum();
    write_pieces(file, offset, &pieces, 0, len)
}

fn content(folder: &dyn DiskFolder, name: &str) -> io::Result<Vec<u8>> {
    let file = folder.open(name, Access::Read)?;
    let mut bytes = vec![1; 200];
    let len = read_full(file.as_ref(), 0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn check_log(disk: &Arc<dyn Disk>, path: &Path) -> Result<()> {
    let options = Options::new().segment_bytes(SEGMENT_BYTES);
    let open = || options.open_on(Arc::clone(disk), path);
    let record = |index: u64| vec![index as u8; RECORD_BYTES];
    let expect = |holds, expected: &str| expect(holds, expected).map_err(failed);

    let wal = open()?;
    let second = open().err().map(|error| error.kind());
    expect(second == Some(ErrorKind::Locked), "a second open of a running log gives Locked")?;
    let lsns = (0..RECORDS).map(|index| wal.commit(&record(index))).collect::<Result<Vec<_>>>()?;
    drop(wal);

    let wal = open()?;
    for (index, lsn) in (0..).zip(&lsns) {
        let is_there = wal.get(*lsn)?.data() == record(index);
        expect(is_there, "a log that was dropped has all that was acknowledged")?;
    }
    let head = lsns[lsns.len() / 2];
    wal.truncate_before(head)?;
    wal.close()?;

    let wal = open()?;
    let last = lsns[lsns.len() - 1];
    expect(wal.head_lsn() == head, "a closed log keeps its head")?;
    expect(wal.get(last)?.data() == record(RECORDS - 1), "a closed log keeps its end")?;
    wal.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_store::disk::{MemDisk, OsDisk};

    #[test]
    fn every_disk_of_this_crate_passes() {
        check(&(Arc::new(MemDisk::new()) as _), Path::new("/log")).unwrap();
        let bare = MemDisk::new().without_buffers().without_threads();
        check(&(Arc::new(bare) as _), Path::new("/log")).unwrap();
        let temp = tempfile::tempdir().unwrap();
        check(&(Arc::new(OsDisk) as _), &temp.path().join("log")).unwrap();
    }

    #[test]
    fn a_folder_that_is_there_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let error = check(&(Arc::new(OsDisk) as _), temp.path()).unwrap_err();
        assert!(error.to_string().contains("nothing lies at the path"), "{error}");
    }
}

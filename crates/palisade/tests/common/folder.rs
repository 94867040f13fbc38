//! Folders of logs: made, copied as a killed process would leave them, compared byte by byte.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use palisade::{
    ArchiveReader, BufferKind, CopyReport, Error, ErrorKind, Lsn, Options, Records, Repair, Result,
    Wal,
};
use tempfile::TempDir;

use crate::watchdog::watch;

/// Every file of a folder with its bytes, by name.
pub(crate) type Snapshot = BTreeMap<String, Vec<u8>>;

/// Records, each with its place.
pub(crate) type Entries = Vec<(Lsn, Vec<u8>)>;

/// A folder that does not exist yet, in one that goes away with the first part.
pub(crate) fn folder() -> (TempDir, PathBuf) {
    watch();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("log");
    (dir, path)
}

/// Of a log of the smallest kind.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;

/// The smallest log that files can have.
pub(crate) fn small() -> Options {
    Options::new().segment_bytes(SEGMENT_BYTES).buffer_bytes(16 << 10)
}

/// The same with a log buffer that no kill leaves.
pub(crate) fn heap() -> Options {
    small().buffer(BufferKind::Heap)
}

/// A new log on files, with its folder.
pub(crate) fn log_on_files(options: Options) -> (TempDir, PathBuf, Wal) {
    let (dir, path) = folder();
    let wal = options.open(&path).unwrap();
    (dir, path, wal)
}

/// Copies the records below `from` of the log in `path` into a new log in `into`.
pub(crate) fn repair(path: &Path, into: &Path, from: Lsn) -> Result<CopyReport> {
    Repair::plan(path, from, &mut |_| {})?.write(into, &mut |_| {})
}

/// The file of segment `number`.
pub(crate) fn segment(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("segment-{number:020}"))
}

/// Reads all files of `folder`, in which nothing is at work.
pub(crate) fn snapshot(folder: &Path) -> Snapshot {
    read_files(folder).unwrap()
}

/// Reads all files of a running log's folder once its background thread has come to rest: two
/// readings that are equal are one moment.
pub(crate) fn snapshot_at_rest(folder: &Path) -> Snapshot {
    let mut last = None;
    loop {
        // A file that is renamed meanwhile is not found.
        match (last, read_files(folder).ok()) {
            (Some(before), Some(now)) if before == now => return now,
            (_, now) => last = now,
        }
    }
}

fn read_files(folder: &Path) -> io::Result<Snapshot> {
    let mut files = Snapshot::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files.insert(entry.file_name().into_string().unwrap(), fs::read(entry.path())?);
    }
    Ok(files)
}

/// Copies the files of `from`, which may be those of a running log, into a new folder: what a
/// kill at this moment would leave.
pub(crate) fn copy_as_killed(from: &Path) -> (TempDir, PathBuf) {
    let (dir, path) = folder();
    fs::create_dir(&path).unwrap();
    for (name, bytes) in snapshot_at_rest(from) {
        fs::write(path.join(name), bytes).unwrap();
    }
    (dir, path)
}

/// The error of opening `path`, of whose files no byte changes, and none comes or goes.
pub(crate) fn refused(options: &Options, path: &Path) -> Error {
    let before = path.is_dir().then(|| snapshot(path));
    let error = options.open(path).unwrap_err();
    let after = path.is_dir().then(|| snapshot(path));
    assert!(before == after, "what is refused is left as it is: {error}");
    assert!(!error.is_retryable() || error.kind() == ErrorKind::Locked, "{error}");
    error
}

/// Flips every bit of the byte at `offset` of the file.
pub(crate) fn flip(file: &Path, offset: u64) {
    let mut bytes = fs::read(file).unwrap();
    bytes[offset as usize] ^= 0xff;
    fs::write(file, bytes).unwrap();
}

/// The file of the segment that holds `lsn`, and the place of its byte there.
pub(crate) fn place_of(folder: &Path, lsn: Lsn, segment_bytes: u64) -> (PathBuf, u64) {
    const HEADER_BYTES: u64 = 4096;
    (segment(folder, lsn.segment(segment_bytes)), HEADER_BYTES + lsn.as_u64() % segment_bytes)
}

/// Appends records of `len` bytes, each of which has one of the numbers in all of its bytes.
pub(crate) fn append_bytes(wal: &Wal, numbers: Range<u8>, len: usize) -> Entries {
    let datas = numbers.map(|number| vec![number; len]);
    datas.map(|data| (wal.append(&data).unwrap().lsn(), data)).collect()
}

/// Where the records of `wal` begin.
pub(crate) fn lsns_of(wal: &Wal) -> Vec<Lsn> {
    contents(wal).into_iter().map(|(lsn, _)| lsn).collect()
}

/// The records of `wal` without their places.
pub(crate) fn datas_of(wal: &Wal) -> Vec<Vec<u8>> {
    contents(wal).into_iter().map(|(_, data)| data).collect()
}

/// All records of `wal`.
pub(crate) fn contents(wal: &Wal) -> Entries {
    let (records, error) = read_until_error(wal.records().unwrap());
    assert!(error.is_none(), "{error:?}");
    records
}

/// All `records`, and the error that ends them. An iterator is at its end after an error.
pub(crate) fn read_until_error(mut records: Records) -> (Entries, Option<Error>) {
    let mut found = Entries::new();
    loop {
        match records.next() {
            Ok(Some(record)) => found.push((record.lsn(), record.data().to_vec())),
            Ok(None) => return (found, None),
            Err(error) => {
                assert!(records.next().unwrap().is_none(), "fused after {error}");
                return (found, Some(error));
            }
        }
    }
}

/// All records of an archive.
pub(crate) fn archived(archive: &Path) -> Entries {
    let (records, error) = archived_from(archive, None);
    assert!(error.is_none(), "{error:?}");
    records
}

/// The records of an archive from `from` on, and the error that ends them.
pub(crate) fn archived_from(archive: &Path, from: Option<Lsn>) -> (Entries, Option<Error>) {
    let mut records = ArchiveReader::open(archive).unwrap().records(from).unwrap();
    let mut all = Entries::new();
    loop {
        match records.next() {
            Ok(Some(record)) => all.push((record.lsn(), record.data().to_vec())),
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(error)),
        }
    }
}

//! The control: a log that is too simple to lose records on an honest device.
//!
//! The log is one file. An open writes all valid records to a fresh file, syncs it, and renames it
//! over the old one. After any failure the log accepts nothing until it is opened again. So it
//! never rewrites pages for which a sync failed, and never relies on pages that may be in the page
//! cache only. If this log loses a record, the device or the script is at fault.
//!
//! Each record is a length (4 bytes), a CRC-32C (4) and an LSN (8), and the bytes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use palisade::{Error, ErrorKind, Lsn, Result};

use crate::forge::crc32c;

const NAME: &str = "log";
const FRESH: &str = "log.tmp";
const HEADER_BYTES: usize = 16;

/// An open control log. Clones are the same log.
#[derive(Clone, Debug)]
pub(crate) struct Plain(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    path: PathBuf,
    file: File,
    next: u64,
    is_failed: bool,
}

impl Plain {
    /// Opens the log in `folder`; makes it unless it `must_exist`.
    pub(crate) fn open(folder: &Path, must_exist: bool) -> Result<Plain> {
        let path = folder.join(NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::NotFound, "the log is gone"));
            }
            Err(error) => return Err(Error::io("read the log", error)),
        };
        let (mut whole, mut next) = (0, 0);
        each(&bytes, |lsn, _, end| (whole, next) = (end, lsn.as_u64() + 1));
        let renewed = renew(folder, &bytes[..whole]);
        let file = renewed.map_err(|error| Error::io("renew the log", error))?;
        Ok(Plain(Arc::new(Mutex::new(State { path, file, next, is_failed: false }))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands all records to `f`.
    pub(crate) fn each(&self, mut f: impl FnMut(Lsn, &[u8])) -> Result<()> {
        let bytes = fs::read(&self.state().path).map_err(|error| Error::io("read", error))?;
        each(&bytes, |lsn, data, _| f(lsn, data));
        Ok(())
    }

    pub(crate) fn append(&self, data: &[u8]) -> Result<Lsn> {
        let mut state = self.state();
        let lsn = Lsn::new(state.next);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + data.len());
        bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&checksum(lsn, data).to_le_bytes());
        bytes.extend_from_slice(&lsn.as_u64().to_le_bytes());
        bytes.extend_from_slice(data);
        state.attempt(|file| file.write_all(&bytes))?;
        state.next += 1;
        Ok(lsn)
    }

    /// Syncs everything. Returns the end of what is durable now.
    pub(crate) fn sync(&self) -> Result<Lsn> {
        let mut state = self.state();
        let end = Lsn::new(state.next);
        state.attempt(|file| file.sync_data())?;
        Ok(end)
    }
}

impl State {
    /// Calls `call` unless an earlier one failed.
    fn attempt(&mut self, call: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
        if !self.is_failed
            && let Err(error) = call(&mut self.file)
        {
            self.is_failed = true;
            return Err(Error::io("write", error).with_kind(ErrorKind::Poisoned));
        }
        if self.is_failed { Err(Error::bare(ErrorKind::Poisoned)) } else { Ok(()) }
    }
}

/// Makes a fresh file of `bytes` the log's, durably.
fn renew(folder: &Path, bytes: &[u8]) -> io::Result<File> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if let Some(parent) = folder.parent() {
        File::open(parent)?.sync_all()?;
    }
    match fs::remove_file(folder.join(FRESH)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(folder.join(FRESH))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(folder.join(FRESH), folder.join(NAME))?;
    File::open(folder)?.sync_all()?;
    Ok(file)
}

/// Hands each record of `bytes` to `f`, and where it ends, up to the first that does not validate.
fn each(bytes: &[u8], mut f: impl FnMut(Lsn, &[u8], usize)) {
    let mut at = 0;
    while let Some((header, rest)) = bytes[at..].split_first_chunk::<HEADER_BYTES>() {
        let field = |from: usize| {
            let bytes = header[from..from + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        let (len, sum) = (field(0) as usize, field(4));
        let lsn = Lsn::new(u64::from(field(8)) | u64::from(field(12)) << 32);
        let Some(data) = rest.get(..len).filter(|data| checksum(lsn, data) == sum) else { return };
        at += HEADER_BYTES + len;
        f(lsn, data, at);
    }
}

/// Computes the complement of the CRC of LSN and data, so that a header of zeros is not valid.
fn checksum(lsn: Lsn, data: &[u8]) -> u32 {
    let mut bytes = lsn.as_u64().to_le_bytes().to_vec();
    bytes.extend_from_slice(data);
    !crc32c(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_is_found_again_and_what_is_torn_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("plain");
        let log = Plain::open(&folder, false).unwrap();
        for data in [b"one".as_slice(), b"two", b"three"] {
            log.append(data).unwrap();
        }
        assert_eq!(log.sync().unwrap(), Lsn::new(3));
        drop(log);
        let path = folder.join(NAME);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let log = Plain::open(&folder, true).unwrap();
        let mut found = Vec::new();
        log.each(|lsn, data| found.push((lsn.as_u64(), data.to_vec()))).unwrap();
        assert_eq!(found, [(0, b"one".to_vec()), (1, b"two".to_vec())]);
        assert_eq!(log.append(b"more").unwrap(), Lsn::new(2));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(Plain::open(&folder, true).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

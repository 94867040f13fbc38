//! Logs that lie there to be read or opened: what `scan`, `get`, `recover` and `reopen` see.
//!
//! Whoever reads gives out each record's bytes, checksums verified, to a [`Tally`], which counts
//! them and, outside of the timing, looks at each byte.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Its bytes look like no frame of any contender: random, but the same in each run.
const GARBAGE_SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const PIECE_BYTES: usize = 1 << 20;
/// A log without appends comes to rest long before.
const MOST_COPIES: usize = 20;

/// A log of records that are all alike, written and not yet ended.
///
/// Calls of [`scan`](Filled::scan) and [`get`](Filled::get) may come from several threads.
pub trait Filled: Send + Sync {
    /// Gives all records to the tally, from the first one on, their checksums verified.
    ///
    /// # Errors
    /// If one cannot be read.
    fn scan(&self, tally: &mut Tally<'_>) -> Result<()>;

    /// Goes back to the first record, where a scan does not begin there by itself. Not timed.
    ///
    /// # Errors
    /// If it cannot.
    fn rewind(&self) -> Result<()> {
        Ok(())
    }

    /// Gives one record to the tally, the first one being number 0, its checksum verified.
    ///
    /// # Errors
    /// If it cannot be read.
    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()>;

    /// Bytes that the log takes, framing included.
    ///
    /// # Errors
    /// If it cannot be told.
    fn log_bytes(&self) -> Result<u64>;

    /// Segments that the log takes.
    ///
    /// # Errors
    /// If it cannot be told.
    fn segments(&self) -> Result<u64>;

    /// Ends the log, and returns the call that opens what is left.
    ///
    /// # Errors
    /// If it cannot be ended like this.
    fn end(self: Box<Self>, end: End) -> Result<Opening>;
}

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As well as the contender can.
    Closed,
    /// As a killed process leaves it, with so many bytes of garbage behind the last record.
    Killed {
        /// Bytes that are no record.
        torn_bytes: u64,
    },
}

/// Opens a log that has ended. This call, and no more, is what an open's figure times.
pub type Opening = Box<dyn FnOnce() -> Result<Box<dyn Filled>> + Send>;

/// Counts what a reader gives out.
#[derive(Debug, Default)]
pub struct Tally<'a> {
    expected: Option<&'a [u8]>,
    records: u64,
    bytes: u64,
    others: u64,
}

impl<'a> Tally<'a> {
    /// Counts records and bytes: for what is timed.
    #[must_use]
    pub fn new() -> Tally<'a> {
        Tally::default()
    }

    /// Compares each record with this one as well.
    #[must_use]
    pub fn comparing(record: &'a [u8]) -> Tally<'a> {
        Tally { expected: Some(record), ..Tally::default() }
    }

    /// Takes a record.
    #[inline]
    pub fn take(&mut self, record: &[u8]) {
        black_box(record);
        self.count(1, record.len() as u64);
        if let Some(expected) = self.expected {
            self.others += u64::from(expected != record);
        }
    }

    /// Takes so many records of so many bytes together, without a look at them: for floors, which
    /// have no records.
    #[inline]
    pub fn count(&mut self, records: u64, bytes: u64) {
        self.records += records;
        self.bytes += bytes;
    }

    /// How many records it was given.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How many records it was given that are what they should be.
    #[must_use]
    pub fn whole_records(&self) -> u64 {
        self.records - self.others
    }

    /// Nothing, if it was given so many bytes for each record.
    ///
    /// # Errors
    /// If it was given more or fewer.
    pub fn must_have_bytes_of(&self, record_bytes: usize) -> Result<()> {
        let expected = self.records * record_bytes as u64;
        if self.bytes != expected {
            bail!("{} records came with {} bytes, not {expected}", self.records, self.bytes);
        }
        Ok(())
    }
}

/// Copies a log's folder, as a process that is killed at this moment leaves it, to one beside it.
///
/// Nobody appends meanwhile, but a thread of the log may still make and rename files for later:
/// then the copy is made again, because a file that had one name at its beginning and another at
/// its end may be missing in it.
///
/// # Errors
/// If it cannot be copied.
pub fn image_of(folder: &Path) -> Result<PathBuf> {
    let image = folder.with_extension("image");
    for _ in 0..MOST_COPIES {
        let before = names_below(folder)?;
        let copied = copy_folder(folder, &image);
        if names_below(folder)? == before {
            return copied.map(|()| image);
        }
        fs::remove_dir_all(&image).with_context(|| format!("deleting {}", image.display()))?;
    }
    bail!("{} does not come to rest: it changed during {MOST_COPIES} copies", folder.display())
}

fn names_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(names_below(&entry.path())?);
        }
        names.push(entry.path());
    }
    names.sort();
    Ok(names)
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("copying to {}", target.display()))?;
        }
    }
    Ok(())
}

/// Writes so many bytes to the file from `at` on that are no record of any log.
///
/// # Errors
/// If they cannot be written.
pub fn write_garbage(path: &Path, at: u64, bytes: u64) -> Result<()> {
    use std::io::{Seek, SeekFrom};
    let mut file = File::options()
        .write(true)
        .open(path)
        .with_context(|| format!("opening {} to tear its tail", path.display()))?;
    file.seek(SeekFrom::Start(at))?;
    let mut state = GARBAGE_SEED;
    let mut left = bytes as usize;
    while left > 0 {
        let mut piece = vec![0; left.min(PIECE_BYTES)];
        for byte in &mut piece {
            // Marsaglia's xorshift64. No byte is 0: an end of zeros would be a clean one.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = (state >> 32) as u8 | 1;
        }
        file.write_all(&piece)?;
        left -= piece.len();
    }
    Ok(())
}

/// The files of a folder whose names the contender takes for segments, in order of their names.
///
/// # Errors
/// If the folder cannot be listed.
pub fn files_of(folder: &Path, is_segment: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() && is_segment(&entry.file_name().to_string_lossy()) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The bytes of these files together.
///
/// # Errors
/// If one cannot be looked at.
pub fn bytes_of(files: &[PathBuf]) -> Result<u64> {
    files.iter().map(|path| Ok(fs::metadata(path)?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_tells_records_from_others_and_counts_bytes() {
        let mut tally = Tally::comparing(b"abc");
        tally.take(b"abc");
        tally.take(b"abd");
        assert_eq!((tally.records(), tally.whole_records()), (2, 1));
        tally.must_have_bytes_of(3).unwrap();
        tally.take(b"ab");
        let error = tally.must_have_bytes_of(3).unwrap_err();
        assert_eq!(error.to_string(), "3 records came with 8 bytes, not 9");
    }

    #[test]
    fn an_image_has_all_files_and_garbage_goes_behind_them() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::create_dir_all(log.join("deep")).unwrap();
        fs::write(log.join("deep/2.seg"), "bytes").unwrap();
        fs::write(log.join("deep/1.seg"), "").unwrap();
        let image = image_of(&log).unwrap();
        let files = files_of(&image.join("deep"), |name| name.ends_with(".seg")).unwrap();
        write_garbage(&files[1], 5, 100).unwrap();
        assert_eq!(bytes_of(&files).unwrap(), 105);
        let torn = fs::read(&files[1]).unwrap();
        assert!(torn.starts_with(b"bytes") && !torn.contains(&0));
        assert_eq!(fs::read(log.join("deep/2.seg")).unwrap(), b"bytes");
    }
}

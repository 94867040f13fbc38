//! A log's folder as one string of bytes, with runs of zeros left out.
//!
//! ```text
//! PALIFUZZ | flags u8 | number of the first record u64 | records synced u64 | count u8 | files
//! file: length of the name u8 | name | length u32 | runs until the length is reached
//! run:  zeros u32 | bytes that follow u32 | the bytes
//! ```
//!
//! Flag 1: a block was sealed again after a change. Flag 2: the log was written in the running
//! boot, whichever that is. The file `buffer` is the log buffer's, which lies in memory; it is
//! there in the running boot only.

use std::path::Path;
use std::sync::Arc;

use palisade_store::block::{self, BLOCK_BYTES, BlockFault, Reader};
use palisade_store::buffer_file;
use palisade_store::disk::{
    Access, DEFAULT_FILE_MODE, Disk, DiskFolder, FolderIdentity, MemDisk, read_full, write_bytes,
};
use palisade_store::meta::{self, Meta};

use super::FOLDER;
use palisade_store::chance::Chance;

const MAGIC: &[u8] = b"PALIFUZZ";
const FLAG_RESEALED: u8 = 1;
const FLAG_SAME_BOOT: u8 = 2;
/// An image that is larger is none: a run has to end.
const MAX_BYTES: usize = 1 << 20;
const MAX_FILES: usize = 64;
/// Fewer zeros are not worth a run.
const ZEROS: usize = 16;

/// The files of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Whether a block was changed and sealed again: it says what no log has said.
    pub is_resealed: bool,
    /// Whether the log counts as written in the running boot.
    pub is_same_boot: bool,
    /// The number of the record at the head.
    pub first: u64,
    /// All records below this number had been synced when the next one was appended.
    pub synced: u64,
    /// Names and bytes, by name.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Image {
    /// Takes the files of the log on `disk`, and its buffer, if it has one.
    ///
    /// # Panics
    /// If they cannot be read.
    #[must_use]
    pub fn of(disk: &MemDisk) -> Image {
        let log = disk.open_folder(Path::new(FOLDER), DEFAULT_FILE_MODE).expect("a log is there");
        let mut files = files_in(log.as_ref());
        let buffers = files_in(memory(disk).as_ref()).into_iter();
        files.extend(buffers.map(|(_, bytes)| ("buffer".into(), bytes)));
        files.sort();
        Image { files, ..Image::default() }
    }

    /// Makes a disk with these files.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn disk(&self) -> MemDisk {
        let disk = MemDisk::new();
        disk.create_folder(Path::new(FOLDER), DEFAULT_FILE_MODE).expect("nothing is there");
        let log = disk.open_folder(Path::new(FOLDER), DEFAULT_FILE_MODE).expect("it was just made");
        let home = log.identity();
        let mut buffer = None;
        for (name, bytes) in self.files.iter().filter(|(name, _)| name != "buffer") {
            let mut bytes = bytes.clone();
            if name == "meta" {
                buffer = self.adopt_meta(&mut bytes, home);
            }
            write(log.as_ref(), name, &bytes);
        }
        let old = self.files.iter().find(|(name, _)| name == "buffer");
        if let (Some(name), Some((_, bytes)), true) = (buffer, old, self.is_same_boot) {
            let mut bytes = bytes.clone();
            buffer_file::adopt(&mut bytes, home);
            write(memory(&disk).as_ref(), &name, &bytes);
        }
        disk
    }

    /// Makes the copies of the state that validate name `home` as the log's folder. Returns the
    /// name of the buffer's file that the newest of them names.
    fn adopt_meta(&self, bytes: &mut [u8], home: FolderIdentity) -> Option<String> {
        let mut newest: Option<Meta> = None;
        for copy in bytes.chunks_mut(BLOCK_BYTES) {
            let Ok(mut meta) = meta::decode(copy) else { continue };
            meta.origin.home = home;
            copy.copy_from_slice(&meta::encode(&meta));
            if newest.as_ref().is_none_or(|known| meta.generation > known.generation) {
                newest = Some(meta);
            }
        }
        let newest = newest?;
        Some(buffer_file::file_name(newest.state.uuid, newest.origin.buffer?.name))
    }

    /// Decodes an image. Returns `None` if `bytes` are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Image> {
        let mut rest = Rest(bytes.strip_prefix(MAGIC)?);
        let flags = rest.take(1)?[0];
        let first = u64::from_le_bytes(rest.take(8)?.try_into().ok()?);
        let synced = u64::from_le_bytes(rest.take(8)?.try_into().ok()?);
        let count = usize::from(rest.take(1)?[0]);
        let mut files = Vec::new();
        let mut total = 0;
        for _ in 0..count.min(MAX_FILES) {
            let name_bytes = usize::from(rest.take(1)?[0]);
            let name = std::str::from_utf8(rest.take(name_bytes)?).ok()?;
            if !is_plain(name) || files.iter().any(|(other, _)| other == name) {
                return None;
            }
            let len = rest.size()?;
            total += len;
            if total > MAX_BYTES {
                return None;
            }
            files.push((name.to_owned(), rest.runs(len)?));
        }
        files.sort();
        let is_resealed = flags & FLAG_RESEALED != 0;
        let is_same_boot = flags & FLAG_SAME_BOOT != 0;
        Some(Image { is_resealed, is_same_boot, first, synced, files })
    }

    /// Returns the bytes of which [`decode`](Image::decode) makes this image.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let flags = if self.is_resealed { FLAG_RESEALED } else { 0 }
            | if self.is_same_boot { FLAG_SAME_BOOT } else { 0 };
        let mut out =
            [MAGIC, &[flags], &self.first.to_le_bytes(), &self.synced.to_le_bytes()].concat();
        out.push(self.files.len().min(MAX_FILES) as u8);
        for (name, bytes) in self.files.iter().take(MAX_FILES) {
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            encode_runs(bytes, &mut out);
        }
        out
    }
}

/// Returns whether `name` is plain, so that it cannot lead out of the folder.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.replace(".tmp", "").bytes().all(is_plain)
}

fn encode_runs(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        let behind = &rest[zeros..];
        let windows = behind.windows(ZEROS).position(|window| window.iter().all(|byte| *byte == 0));
        let (kept, next) = behind.split_at(windows.unwrap_or(behind.len()));
        out.extend_from_slice(&(zeros as u32).to_le_bytes());
        out.extend_from_slice(&(kept.len() as u32).to_le_bytes());
        out.extend_from_slice(kept);
        rest = next;
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn size(&mut self) -> Option<usize> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?) as usize)
    }

    fn runs(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let (zeros, kept) = (self.size()?, self.size()?);
            if zeros.checked_add(kept)? > len - bytes.len() || zeros + kept == 0 {
                return None;
            }
            bytes.resize(bytes.len() + zeros, 0);
            bytes.extend_from_slice(self.take(kept)?);
        }
        Some(bytes)
    }
}

fn memory(disk: &MemDisk) -> Arc<dyn DiskFolder> {
    let found = disk.memory_folder().expect("nothing fails on the disk");
    found.expect("it has a folder for log buffers").1
}

fn files_in(folder: &dyn DiskFolder) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let file = folder.open(&name, Access::Read).expect("nobody removes it");
        let mut bytes = vec![0; file.len().expect("nothing fails on the disk") as usize];
        read_full(file.as_ref(), 0, &mut bytes).expect("nothing fails on the disk");
        (name, bytes)
    };
    folder.list().expect("nothing fails on the disk").into_iter().map(read).collect()
}

fn write(folder: &dyn DiskFolder, name: &str, bytes: &[u8]) {
    let written =
        folder.open(name, Access::New).and_then(|file| write_bytes(file.as_ref(), 0, bytes));
    written.expect("nothing fails on the disk");
}

/// Changes the sealed block at the start of `bytes` and seals it again, if its checksum holds.
pub(super) fn seal_if_whole(bytes: &mut [u8], change: impl FnOnce(&mut [u8])) -> bool {
    let Some(block) = bytes.first_chunk_mut::<BLOCK_BYTES>() else { return false };
    let magic = std::array::from_fn(|at| block[at]);
    if Reader::open(&block[..], magic).err() == Some(BlockFault::Damaged) {
        return false;
    }
    change(block);
    block::seal(block);
    true
}

/// Returns record `number`: its number, then bytes that follow from it. It has `len` bytes, but 8
/// at least.
pub(super) fn record(number: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len.max(8)];
    data[..8].copy_from_slice(&number.to_le_bytes());
    Chance::new(number ^ 0x7061_6c69_7361_6465).fill(&mut data[8..]);
    data
}

/// Returns the number of the record `data`, or `None` if `record` makes no such bytes.
pub(super) fn number_of(data: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*data.first_chunk()?);
    (data == record(number, data.len())).then_some(number)
}

//! The log buffer's file: the ring, and marks of how far the log is written and durable.
//!
//! The file is in a memory file system (tmpfs), not in the log's folder. So it outlives the process
//! but not the running kernel. No device error, full disk, copy of the folder or shutdown of the
//! log's file system changes or removes its bytes (docs/durability.md, "The log buffer"). All of
//! its blocks are allocated when it is made, so that a write to it needs no space.
//!
//! ```text
//! offset  bytes  field
//!      0   4096  sealed block PALIRING: UUID (16), epoch (8), ring bytes (8),
//!                device, inode and birth time of the log's folder (8 each),
//!                length of its path (8), its path in UTF-8, or nothing
//!   4096   2048  mark, slot 0: sequence (8), durable LSN (8), written LSN (8),
//!                CRC-32C of these (4)
//!   6144   2048  mark, slot 1
//!   8192      n  the ring
//! ```
//!
//! The log writes the slots in turn, so that after a torn write the other slot is whole. The file's
//! name has the log's UUID and a random number, which the log's meta file stores. A process locks
//! the file for as long as it uses it.

use std::io;
use std::path::PathBuf;

use crate::OldBuffer;
use crate::block::{BLOCK_BYTES, Block, Magic, Reader, Writer};
use crate::disk::{Access, DiskFile, FolderIdentity, read_full, write_bytes};
use crate::folder::Folder;
use crate::{Error, ErrorKind, Lsn, MAX_BUFFER_BYTES, Memory, Result, Uuid, crc32c_append};

const MAGIC: Magic = *b"PALIRING";
const MARKS_AT: usize = BLOCK_BYTES;
const SLOT_STRIDE: usize = BLOCK_BYTES / 2;
const SLOT_BYTES: usize = 28;
const RING_AT: usize = 2 * BLOCK_BYTES;
const PREFIX: &str = "palisade-";
const MAX_PATH_BYTES: usize = 3072;
const OF_ANOTHER_USER: &str = "open the log as the user who owns the file, or remove the file; \
     records that only the log buffer held are lost with it";
/// How many files of other logs an open leaves without a look at them.
const MOST_OTHERS: usize = 1000;
/// How many files of other logs an open looks at.
const MOST_LOOKS: usize = 100;

/// The random number in the name of the buffer's file. The meta file stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferName(pub u128);

/// The fields of the file's first block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RingHeader {
    pub(crate) uuid: Uuid,
    pub(crate) epoch: u64,
    pub(crate) ring_bytes: usize,
    /// Identifies the log's folder, so that a copy of the folder does not use this buffer.
    pub(crate) home: FolderIdentity,
    /// The path of that folder when the file was made. Empty if the path is too long, is no UTF-8
    /// or is not known.
    pub(crate) path: PathBuf,
}

/// A buffer mark: how far the log is durable, and how far it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    durable: Lsn,
    written: Lsn,
}

/// The file of the running log.
#[derive(Debug)]
pub(crate) struct BufferFile {
    memory: Folder,
    file: Box<dyn DiskFile>,
    header: RingHeader,
    name: BufferName,
    sequence: u64,
    mark: Mark,
}

impl BufferFile {
    /// Makes the file with a zeroed ring, and `durable` as its mark.
    pub(crate) fn create(
        memory: &Folder,
        header: RingHeader,
        name: BufferName,
        durable: Lsn,
    ) -> Result<(BufferFile, Memory)> {
        // Before the file is made: to allocate beyond the limit would end the process.
        memory.check_file_size((RING_AT + header.ring_bytes) as u64)?;
        let text = file_name(header.uuid, name);
        let file = memory.open(&text, Access::New)?;
        let mark = Mark { durable, written: durable };
        let mut blocks = [0; RING_AT];
        blocks[..BLOCK_BYTES].copy_from_slice(&encode_header(&header));
        let at = slot_at(0) as usize;
        blocks[at..at + SLOT_BYTES].copy_from_slice(&encode_slot(0, mark));
        let made = file
            .allocate((RING_AT + header.ring_bytes) as u64)
            .and_then(|()| write_bytes(file.as_ref(), 0, &blocks))
            .and_then(|()| file.try_lock(false))
            .and_then(|_| match header.ring_bytes {
                0 => Memory::heap(0),
                len => file.map(RING_AT, len),
            });
        match made {
            Ok(ring) => {
                let memory = memory.clone();
                Ok((BufferFile { memory, file, header, name, sequence: 0, mark }, ring))
            }
            Err(error) => {
                drop(file);
                memory.remove_if_there(&text)?;
                Err(memory.error("make the log buffer's file", &text, error))
            }
        }
    }

    pub(crate) fn name(&self) -> BufferName {
        self.name
    }

    /// Notes that everything below `durable` has been synced.
    pub(crate) fn note_durable(&mut self, durable: Lsn) -> Result<()> {
        let written = self.mark.written.max(durable);
        self.note(Mark { durable, written })
    }

    /// Notes that the operating system has everything below `written`. The caller does so before
    /// appends use the ring's bytes below `written` again.
    pub(crate) fn note_written(&mut self, written: Lsn) -> Result<()> {
        self.note(Mark { written, ..self.mark })
    }

    /// Writes the header block with the number of `epoch`. The ring keeps its bytes.
    pub(crate) fn pass_on(&mut self, epoch: u64) -> Result<()> {
        self.header.epoch = epoch;
        let written = write_bytes(self.file.as_ref(), 0, &encode_header(&self.header));
        written.map_err(|error| self.error("pass the log buffer's file on", error))
    }

    /// Frees the ring's memory, after all of its records were written. The marks stay. First writes
    /// a header block without a ring, so that the next open does not read zeros as a ring.
    pub(crate) fn empty(&mut self) {
        let len = self.header.ring_bytes as u64;
        self.header.ring_bytes = 0;
        if write_bytes(self.file.as_ref(), 0, &encode_header(&self.header)).is_ok() {
            // If this fails, the ring takes memory until the file is removed, and nothing else.
            let _ = self.file.discard(RING_AT as u64, len);
        }
    }

    /// Removes the file, after the log was closed or its open failed.
    pub(crate) fn remove(&self) -> Result<()> {
        self.memory.remove_if_there(&file_name(self.header.uuid, self.name))
    }

    fn note(&mut self, mark: Mark) -> Result<()> {
        let sequence = self.sequence + 1;
        let slot = encode_slot(sequence, mark);
        // After a failure the next call writes the same slot: the other one is whole.
        let written = write_bytes(self.file.as_ref(), slot_at(sequence), &slot);
        written.map_err(|error| self.error("note how far the log has come", error))?;
        (self.sequence, self.mark) = (sequence, mark);
        Ok(())
    }

    fn error(&self, what: &str, error: io::Error) -> Error {
        self.memory.error(what, &file_name(self.header.uuid, self.name), error)
    }
}

/// Reads what an earlier process run of the log `uuid` in the folder `home` left in the buffer
/// `name`. A buffer whose ring is larger than `most_bytes` is invalid.
///
/// # Errors
/// `PermissionDenied`: the file belongs to another user. The open must not ignore the file, because
/// it may have records that the segments lack. It must not read the file, because the owner can
/// forge it.
pub(crate) fn read_old(
    memory: &Folder,
    uuid: Uuid,
    home: FolderIdentity,
    name: BufferName,
    most_bytes: u64,
) -> Result<OldBuffer> {
    let name = file_name(uuid, name);
    let Some(file) = open_own(memory, &name)? else {
        return Ok(OldBuffer::Missing);
    };
    let mut blocks = [0; RING_AT];
    let len = read_full(file.as_ref(), 0, &mut blocks)
        .map_err(|error| memory.error("read the log buffer's file", &name, error))?;
    if let Err(fault) = Reader::open(&blocks[..len.min(BLOCK_BYTES)], MAGIC)
        && fault.is_unsupported()
    {
        let text = format!("the log buffer's file {fault}");
        return Err(Error::new(ErrorKind::Unsupported, text).at_path(memory.path().join(name)));
    }
    let header = match decode_header(&blocks[..len.min(BLOCK_BYTES)]) {
        Ok(header) => header,
        Err(text) => return Ok(OldBuffer::Invalid(text)),
    };
    if header.uuid != uuid || header.home != home {
        return Ok(OldBuffer::Invalid("the log buffer belongs to a log in another folder".into()));
    }
    let Some(mark) = newest_mark(&blocks[MARKS_AT..len.max(MARKS_AT)]) else {
        return Ok(OldBuffer::Invalid("the log buffer's marks do not validate".into()));
    };
    // Before memory is allocated for it.
    if header.ring_bytes as u64 > most_bytes {
        return Ok(OldBuffer::Invalid("its ring is larger than the log's buffer".into()));
    }
    // Read, not mapped: after `abandon`, a thread of this process may still fill a record in its
    // mapping. The system copies the bytes, so there is no data race, and the checksums show
    // whether a record is whole.
    let mut ring = Vec::new();
    let read = match ring.try_reserve_exact(header.ring_bytes) {
        Ok(()) => {
            ring.resize(header.ring_bytes, 0);
            read_full(file.as_ref(), RING_AT as u64, &mut ring)
        }
        Err(_) => Err(io::ErrorKind::OutOfMemory.into()),
    };
    match read {
        Ok(len) if len < ring.len() => {
            let text = format!("it is too short for its ring of {} bytes", header.ring_bytes);
            Ok(OldBuffer::Invalid(text))
        }
        Ok(_) => {
            let Mark { durable, written } = mark;
            Ok(OldBuffer::Found { epoch: header.epoch, durable, written, ring })
        }
        // The ring may have records that the segments lack, so the open must not continue without
        // it.
        Err(error) => Err(memory.error("read the log buffer's file", &name, error)),
    }
}

/// Opens the file `name`, if it is there. Refuses the file of another user, also if this process
/// runs as root.
fn open_own(memory: &Folder, name: &str) -> Result<Option<Box<dyn DiskFile>>> {
    let opened = memory.open_if_there(name, Access::Write).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => error.with_advice(OF_ANOTHER_USER),
        _ => error,
    });
    let Some(file) = opened? else { return Ok(None) };
    match file.is_own() {
        Ok(true) => Ok(Some(file)),
        Ok(false) => {
            let text = "the log buffer's file belongs to another user";
            let error = Error::new(ErrorKind::PermissionDenied, text);
            Err(error.at_path(memory.path().join(name)).with_advice(OF_ANOTHER_USER))
        }
        Err(error) => Err(memory.error("look at the log buffer's file", name, error)),
    }
}

/// Removes buffers that no process uses:
/// - those of this log, except `kept`. Earlier process runs left them.
/// - if there are more than `MOST_OTHERS` of other logs, those of them that have no ring and whose
///   log is not at its path. Looks at `MOST_LOOKS` of them at most.
///
/// Such a path does not prove that the log is gone: the folder may have been moved, its file system
/// may not be mounted, or another mount namespace, which shares the memory file system, has it. So
/// only the bound, without which the files of deleted logs would fill the memory, removes marks.
///
/// Ignores the files of other users, and those that it cannot remove: they only take memory.
pub(crate) fn remove_others(memory: &Folder, kept: &BufferFile) -> Result<()> {
    let own = file_name(kept.header.uuid, kept.name);
    let prefix = format!("{PREFIX}{}-", kept.header.uuid);
    let names = memory.names()?.into_iter().filter(|name| *name != own);
    let (same_log, mut others): (Vec<_>, Vec<_>) =
        names.filter(|name| name.starts_with(PREFIX)).partition(|name| name.starts_with(&prefix));
    for name in same_log {
        remove_if(memory, &name, |header| header.home == kept.header.home);
    }
    if others.len() > MOST_OTHERS {
        let first = (kept.name.0 % others.len() as u128) as usize;
        others.rotate_left(first);
        for name in &others[..MOST_LOOKS] {
            remove_if(memory, name, |header| {
                header.ring_bytes == 0 && is_elsewhere(memory, header)
            });
        }
    }
    Ok(())
}

/// Removes all buffers of the log `uuid` in the folder `home` that no process uses, to make space
/// for a new one.
pub(crate) fn remove_all(memory: &Folder, uuid: Uuid, home: FolderIdentity) -> Result<()> {
    let prefix = format!("{PREFIX}{uuid}-");
    let names = memory.names()?.into_iter().filter(|name| name.starts_with(&prefix));
    names.for_each(|name| remove_if(memory, &name, |header| header.home == home));
    Ok(())
}

/// Removes the file `name` if its header is `unneeded`, and nobody uses it.
fn remove_if(memory: &Folder, name: &str, unneeded: impl FnOnce(&RingHeader) -> bool) {
    let Ok(Some(file)) = open_own(memory, name) else { return };
    let mut block = [0; BLOCK_BYTES];
    let is_unneeded = read_full(file.as_ref(), 0, &mut block)
        .is_ok_and(|len| decode_header(&block[..len]).is_ok_and(|header| unneeded(&header)));
    if is_unneeded && file.try_lock(false).is_ok_and(|taken| taken) {
        let _ = memory.remove_if_there(name);
    }
}

/// Returns whether this process does not find the log's folder at its path. Returns false for a
/// path that is relative, or at which it cannot look.
fn is_elsewhere(memory: &Folder, header: &RingHeader) -> bool {
    let found = || memory.handle().identity_of(&header.path);
    header.path.is_absolute() && found().is_ok_and(|found| found != Some(header.home))
}

/// Makes the header of a buffer name `home` as the folder of the log, if the header validates.
#[cfg(any(test, feature = "sim"))]
pub fn adopt(bytes: &mut [u8], home: FolderIdentity) {
    if let Some(block) = bytes.get_mut(..BLOCK_BYTES)
        && let Ok(header) = decode_header(block)
    {
        block.copy_from_slice(&encode_header(&RingHeader { home, ..header }));
    }
}

/// Returns the name of the file of a log buffer.
#[must_use]
pub fn file_name(uuid: Uuid, name: BufferName) -> String {
    format!("{PREFIX}{uuid}-{:032x}", name.0)
}

fn encode_header(header: &RingHeader) -> Block {
    let path = header.path.to_str().filter(|path| path.len() <= MAX_PATH_BYTES).unwrap_or("");
    Writer::new(MAGIC)
        .bytes(&header.uuid.0)
        .u64(header.epoch)
        .u64(header.ring_bytes as u64)
        .u64(header.home.device)
        .u64(header.home.inode)
        .u64(header.home.born)
        .u64(path.len() as u64)
        .bytes(path.as_bytes())
        .seal()
}

fn decode_header(block: &[u8]) -> std::result::Result<RingHeader, String> {
    let opened = Reader::open(block, MAGIC);
    let mut fields = opened.map_err(|fault| format!("the log buffer's file {fault}"))?;
    let uuid = Uuid(fields.array());
    let epoch = fields.u64();
    let ring_bytes = fields.u64();
    let home = FolderIdentity { device: fields.u64(), inode: fields.u64(), born: fields.u64() };
    let ring_bytes = usize::try_from(ring_bytes).ok().filter(|&bytes| bytes <= MAX_BUFFER_BYTES);
    let ring_bytes = ring_bytes.ok_or("its ring is larger than a buffer can be")?;
    let path_bytes = fields.u64().min(MAX_PATH_BYTES as u64) as usize;
    let path = str::from_utf8(&fields.array::<MAX_PATH_BYTES>()[..path_bytes]).unwrap_or("").into();
    Ok(RingHeader { uuid, epoch, ring_bytes, home, path })
}

/// Returns the offset in the file of the slot for the mark `sequence`.
fn slot_at(sequence: u64) -> u64 {
    MARKS_AT as u64 + sequence % 2 * SLOT_STRIDE as u64
}

fn encode_slot(sequence: u64, mark: Mark) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(&sequence.to_le_bytes());
    slot[8..16].copy_from_slice(&mark.durable.as_u64().to_le_bytes());
    slot[16..24].copy_from_slice(&mark.written.as_u64().to_le_bytes());
    let checksum = crc32c_append(0, &slot[..24]);
    slot[24..].copy_from_slice(&checksum.to_le_bytes());
    slot
}

/// Returns the written LSN of the newest mark in the buffer `name` of the log `uuid`, or 0 if no
/// mark can be read. Does not check whether the buffer belongs to this folder: a copy of the log
/// must not use these LSNs again, either. Changes nothing.
pub(crate) fn noted(memory: &Folder, uuid: Uuid, name: BufferName) -> Result<Lsn> {
    let file = match memory.open_if_there(&file_name(uuid, name), Access::Read) {
        Ok(Some(file)) => file,
        // `PermissionDenied`: the buffer belongs to another user's log, of which this is a copy.
        Err(error) if error.kind() != ErrorKind::PermissionDenied => return Err(error),
        _ => return Ok(Lsn::ZERO),
    };
    let mut blocks = [0; RING_AT];
    let is_whole = matches!(read_full(file.as_ref(), 0, &mut blocks), Ok(RING_AT));
    let header = decode_header(&blocks[..BLOCK_BYTES]);
    if !is_whole || !header.is_ok_and(|header| header.uuid == uuid) {
        return Ok(Lsn::ZERO);
    }
    let written = newest_mark(&blocks[MARKS_AT..]).map_or(Lsn::ZERO, |mark| mark.written);
    Ok(if written < Lsn::LIMIT { written } else { Lsn::ZERO })
}

/// Returns whether the buffer `name` may belong to the log `uuid` in the folder `home`. Returns
/// false if the file is missing or names another log or folder, and true if it belongs to another
/// user. Changes nothing.
pub(crate) fn may_be_of(
    memory: &Folder,
    uuid: Uuid,
    home: FolderIdentity,
    name: BufferName,
) -> Result<bool> {
    let name = file_name(uuid, name);
    let file = match memory.open_if_there(&name, Access::Read) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(false),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(true),
        Err(error) => return Err(error),
    };
    if matches!(file.is_own(), Ok(false)) {
        // An open refuses it, whatever it holds.
        return Ok(true);
    }
    let mut block = [0; BLOCK_BYTES];
    let len = read_full(file.as_ref(), 0, &mut block)
        .map_err(|error| memory.error("read the log buffer's file", &name, error))?;
    let header = decode_header(&block[..len]);
    // If the block does not validate, a process may be writing it, so the buffer may be the log's.
    Ok(header.map_or(true, |header| header.uuid == uuid && header.home == home))
}

/// Returns the epoch of the buffer `name`, and the durable LSN in its mark. Returns `None` if an
/// open would not use the buffer, or this process may not read it.
pub(crate) fn noted_durable(
    memory: &Folder,
    uuid: Uuid,
    home: FolderIdentity,
    name: BufferName,
) -> Option<(u64, Lsn)> {
    let file = memory.open_if_there(&file_name(uuid, name), Access::Read).ok()??;
    let mut blocks = [0; RING_AT];
    let len = read_full(file.as_ref(), 0, &mut blocks).ok()?;
    let header = decode_header(&blocks[..len.min(BLOCK_BYTES)]).ok()?;
    let is_own = matches!(file.is_own(), Ok(true)) && header.uuid == uuid && header.home == home;
    let mark = newest_mark(blocks.get(MARKS_AT..len)?)?;
    (is_own && mark.durable < Lsn::LIMIT).then_some((header.epoch, mark.durable))
}

/// Returns the mark that was written last, if one validates.
fn newest_mark(slots: &[u8]) -> Option<Mark> {
    let marks = slots.chunks_exact(SLOT_STRIDE).filter_map(decode_slot);
    marks.max_by_key(|(sequence, _)| *sequence).map(|(_, mark)| mark)
}

fn decode_slot(slot: &[u8]) -> Option<(u64, Mark)> {
    let (fields, checksum) = (&slot[..24], &slot[24..SLOT_BYTES]);
    let is_whole = crc32c_append(0, fields).to_le_bytes() == checksum;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| fields[at + byte]));
    let mark = Mark { durable: Lsn::new(number(8)), written: Lsn::new(number(16)) };
    (is_whole && mark.durable <= mark.written).then_some((number(0), mark))
}

#[cfg(test)]
#[path = "buffer_file_tests.rs"]
mod tests;

//! The log buffer's file: the ring, and marks of how far the log is written and durable.
//!
//! `docs/format.md` has its bytes, `docs/durability.md` what it survives. All blocks are allocated
//! when it is made, so that a write needs no space. After a torn write to one slot of the marks the
//! other is whole. A process locks the file while it uses it.

use std::path::PathBuf;
use std::{fmt, io};

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
const MOST_OTHERS: usize = 1000;
const MOST_LOOKS: usize = 100;

/// The random number in the file's name, which the meta file stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferName(pub u128);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RingHeader {
    pub(crate) uuid: Uuid,
    pub(crate) epoch: u64,
    pub(crate) ring_bytes: usize,
    /// The log's folder, so that a copy of it does not use this buffer.
    pub(crate) home: FolderIdentity,
    /// The path of `home` at the making; empty if too long, not UTF-8 or unknown.
    pub(crate) path: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    durable: Lsn,
    written: Lsn,
}

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
    /// Makes the file with a zeroed ring and a mark.
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

    pub(crate) fn note_durable(&mut self, durable: Lsn) -> Result<()> {
        let written = self.mark.written.max(durable);
        self.note(Mark { durable, written })
    }

    /// Notes that the operating system has all below `written`, before appends use the ring's bytes
    /// again.
    pub(crate) fn note_written(&mut self, written: Lsn) -> Result<()> {
        self.note(Mark { written, ..self.mark })
    }

    /// Writes the header block for `epoch`; the ring stays.
    pub(crate) fn pass_on(&mut self, epoch: u64) -> Result<()> {
        self.header.epoch = epoch;
        let written = write_bytes(self.file.as_ref(), 0, &encode_header(&self.header));
        written.map_err(|error| self.error("pass the log buffer's file on", error))
    }

    /// Frees the ring's memory after all records were written; the marks stay. First writes a
    /// header without a ring, so that no open reads zeros as a ring.
    pub(crate) fn empty(&mut self) {
        let len = self.header.ring_bytes as u64;
        self.header.ring_bytes = 0;
        if write_bytes(self.file.as_ref(), 0, &encode_header(&self.header)).is_ok() {
            // If this fails, the ring takes memory until the file is removed, and nothing else.
            let _ = self.file.discard(RING_AT as u64, len);
        }
    }

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

/// Reads the buffer that an earlier process run left. A ring above `most_bytes` is invalid.
///
/// # Errors
/// `PermissionDenied`: another user owns the file. The open must not ignore it, because it may have
/// records that the segments lack, nor read it, because the owner can forge it.
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

/// Opens an existing file. Refuses another user's, also for root.
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

/// Removes unused buffers: those of this log, except `kept`, and, if other logs have more than
/// `MOST_OTHERS`, up to `MOST_LOOKS` of theirs without a ring whose log is not at its path.
///
/// Such a log need not be gone: its folder may have been moved, be unmounted, or be in another
/// mount namespace. So only the bound, without which deleted logs would fill the memory, removes
/// marks.
///
/// Ignores other users' files, and those that it cannot remove.
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

pub(crate) fn remove_all(memory: &Folder, uuid: Uuid, home: FolderIdentity) -> Result<()> {
    let prefix = format!("{PREFIX}{uuid}-");
    let names = memory.names()?.into_iter().filter(|name| name.starts_with(&prefix));
    names.for_each(|name| remove_if(memory, &name, |header| header.home == home));
    Ok(())
}

/// Removes the file `name` if nobody uses it and its header is `unneeded`.
fn remove_if(memory: &Folder, name: &str, unneeded: impl FnOnce(&RingHeader) -> bool) {
    let Ok(Some(file)) = open_own(memory, name) else { return };
    let mut block = [0; BLOCK_BYTES];
    let is_unneeded = read_full(file.as_ref(), 0, &mut block)
        .is_ok_and(|len| decode_header(&block[..len]).is_ok_and(|header| unneeded(&header)));
    if is_unneeded && file.try_lock(false).is_ok_and(|taken| taken) {
        let _ = memory.remove_if_there(name);
    }
}

/// Returns whether the log's folder is certainly not at its path.
fn is_elsewhere(memory: &Folder, header: &RingHeader) -> bool {
    let found = || memory.handle().identity_of(&header.path);
    header.path.is_absolute() && found().is_ok_and(|found| found != Some(header.home))
}

/// Makes a valid header name `home` as the log's folder.
#[cfg(any(test, feature = "sim"))]
pub fn adopt(bytes: &mut [u8], home: FolderIdentity) {
    if let Some(block) = bytes.get_mut(..BLOCK_BYTES)
        && let Ok(header) = decode_header(block)
    {
        block.copy_from_slice(&encode_header(&RingHeader { home, ..header }));
    }
}

/// Returns the file's name.
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

/// Returns the written LSN of the newest mark, or 0. Ignores the folder, because a copy of the log
/// must not use these LSNs again, either.
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

/// Returns whether the buffer may belong to this log and folder, as a readable header says; true if
/// another user owns it.
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

/// Returns the buffer's epoch and durable LSN, if an open by this process would use it.
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

/// What an earlier process run left in the log buffer, in this boot.
pub enum OldBuffer {
    /// Nothing.
    Missing,
    /// It does not validate, for this reason, and counts as missing.
    Invalid(String),
    /// A valid buffer.
    Found {
        /// Its epoch.
        epoch: u64,
        /// The last durable watermark noted.
        durable: Lsn,
        /// The operating system has all below.
        written: Lsn,
        /// A copy of the ring, with LSN `x` at `x % len`. Empty if it was on the heap.
        ring: Vec<u8>,
    },
}

// By hand: the bytes of the ring help no reader.
impl fmt::Debug for OldBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OldBuffer::Missing => f.write_str("Missing"),
            OldBuffer::Invalid(text) => f.debug_tuple("Invalid").field(text).finish(),
            OldBuffer::Found { epoch, durable, written, ring } => f
                .debug_struct("Found")
                .field("epoch", epoch)
                .field("durable", durable)
                .field("written", written)
                .field("ring_bytes", &ring.len())
                .finish(),
        }
    }
}

//! The file `buffer`: the ring of the log buffer, and the sync line.
//!
//! ```text
//! offset  bytes  field
//!      0   4096  sealed block PALIRING: UUID (16), epoch (8), ring bytes (8),
//!                1 if a boot id follows (8), boot id (16)
//!   4096   2048  sync line, slot 0: sequence (8), boot id (16), LSN (8), CRC-32C of these (4)
//!   6144   2048  sync line, slot 1
//!   8192      n  the ring
//! ```
//!
//! The first two blocks are synced when the file is made. What the sync line says later never is:
//! positioned writes leave it in the page cache, where it outlives the process, and only the boot
//! that wrote it believes it. Its slots are written in turn, so that a write cut short leaves the
//! other.

use std::io;

use palisade_core::store::OldBuffer;
use palisade_core::{Error, ErrorKind, Lsn, MAX_BUFFER_BYTES, Memory, Result, Uuid, crc32c_append};

use crate::block::{BLOCK_BYTES, Block, Magic, Reader, Writer};
use crate::boot::BootId;
use crate::folder::{BUFFER, BUFFER_TEMP, Folder};
use crate::fs::{Access, DiskFile, read_full, write_bytes, write_zeros};

const MAGIC: Magic = *b"PALIRING";
const LINE_AT: usize = BLOCK_BYTES;
const SLOT_STRIDE: usize = BLOCK_BYTES / 2;
const SLOT_BYTES: usize = 36;
const RING_AT: usize = 2 * BLOCK_BYTES;
/// No log marks its line so often: a larger sequence number is damage, and none might follow on it.
const MOST_MARKS: u64 = 1 << 60;

/// What the file's first block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingHeader {
    pub(crate) uuid: Uuid,
    pub(crate) epoch: u64,
    pub(crate) ring_bytes: usize,
    pub(crate) boot: Option<BootId>,
}

/// The durable watermark, noted where it outlives the process.
#[derive(Debug)]
pub(crate) struct SyncLine {
    file: Box<dyn DiskFile>,
    boot: BootId,
    sequence: u64,
}

impl SyncLine {
    /// Notes that everything below `durable` has been synced.
    pub(crate) fn mark(&mut self, durable: Lsn) -> io::Result<()> {
        self.sequence += 1;
        let slot = encode_slot(self.sequence, self.boot, durable);
        write_bytes(self.file.as_ref(), slot_at(self.sequence), &slot)
    }
}

/// What an earlier life left in the buffer's file, asked in the boot `boot`.
pub(crate) fn read_old(folder: &Folder, uuid: Uuid, boot: Option<BootId>) -> Result<OldBuffer> {
    let Some(file) = folder.open_if_there(BUFFER, Access::Write)? else {
        return Ok(OldBuffer::Missing);
    };
    let mut blocks = [0; RING_AT];
    let len = read_full(file.as_ref(), 0, &mut blocks)
        .map_err(|error| folder.error("read the buffer's file", BUFFER, error))?;
    if let Err(fault) = Reader::open(&blocks[..len.min(BLOCK_BYTES)], MAGIC)
        && fault.is_unsupported()
    {
        let text = format!("the buffer's file {fault}");
        return Err(Error::new(ErrorKind::Unsupported, text).at_path(folder.path().join(BUFFER)));
    }
    let header = match decode_header(&blocks[..len.min(BLOCK_BYTES)], uuid) {
        Ok(header) => header,
        Err(text) => return Ok(OldBuffer::Invalid(text)),
    };
    if len < RING_AT {
        return Ok(OldBuffer::Invalid(format!("it has {len} bytes, expected {RING_AT} or more")));
    }
    let memory = match map_ring(file.as_ref(), header.ring_bytes) {
        Ok(memory) => memory,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let text = format!("it is too short for its ring of {} bytes", header.ring_bytes);
            return Ok(OldBuffer::Invalid(text));
        }
        // The ring may have what the segments lack: that it cannot be read now is no reason to
        // go on without it.
        Err(error) => return Err(folder.error("map the buffer's file", BUFFER, error)),
    };
    let same_boot = boot.is_some() && header.boot == boot;
    let durable = boot.filter(|_| same_boot).and_then(|boot| read_line(&blocks[LINE_AT..], boot));
    let other_boot = !same_boot && boot.is_some() && header.boot.is_some();
    Ok(OldBuffer::Found { epoch: header.epoch, same_boot, other_boot, durable, memory })
}

/// Puts a zeroed ring in place of the old file, with `durable` on its sync line; or goes on with the
/// old one, where an earlier life of the same epoch in the same boot has left it.
///
/// The fresh file gets its blocks on the disk before it takes the old one's name, so that lack
/// of space shows before anything is lost. Where there is not enough for two rings, the old file
/// is written over: this is only called when everything that it held is durable in segments.
pub(crate) fn renew(
    folder: &Folder,
    header: &RingHeader,
    durable: Lsn,
) -> Result<(Memory, Option<SyncLine>)> {
    if let Some((memory, line)) = keep(folder, header, durable)? {
        return Ok((memory, Some(line)));
    }
    let file = match make_fresh(folder, header, durable) {
        Ok(fresh) => {
            folder.rename(BUFFER_TEMP, BUFFER)?;
            folder.sync()?;
            fresh
        }
        Err(error) => overwrite_old(folder, header, durable, error)?,
    };
    let end = (RING_AT + header.ring_bytes) as u64;
    let memory = write_zeros(file.as_ref(), RING_AT as u64, end)
        .and_then(|()| map_ring(file.as_ref(), header.ring_bytes))
        .map_err(|error| folder.error("fill the buffer's file", BUFFER, error))?;
    Ok((memory, header.boot.map(|boot| SyncLine { file, boot, sequence: 1 })))
}

/// The file as it is, if it has just what `header` says: then an earlier life of the same epoch has
/// made it, in the same boot, and ended it with a clean close. It need not be made again, zeroed or
/// synced:
/// - Its first block was synced when it was made, and is what it would be made to be.
/// - What its ring holds are frames of the epoch below `durable`. A frame's checksum covers its LSN,
///   so none of them validates where a later one is looked for: it is a lap like any other.
/// - Its blocks are all there, and are asked for again: a copy of the file may have holes.
///
/// In another boot nobody knows what of the ring was written back, and the block names the old boot.
fn keep(folder: &Folder, header: &RingHeader, durable: Lsn) -> Result<Option<(Memory, SyncLine)>> {
    let Some(boot) = header.boot else { return Ok(None) };
    let Some(file) = folder.open_if_there(BUFFER, Access::Write)? else { return Ok(None) };
    let mut blocks = [0; RING_AT];
    // What cannot be read is made anew.
    let is_whole = matches!(read_full(file.as_ref(), 0, &mut blocks), Ok(RING_AT));
    let is_ours = is_whole && decode_header(&blocks[..BLOCK_BYTES], header.uuid) == Ok(*header);
    let Some((sequence, noted)) = newest_slot(&blocks[LINE_AT..], boot) else { return Ok(None) };
    if !is_ours || noted > durable || sequence > MOST_MARKS {
        return Ok(None);
    }
    let end = (RING_AT + header.ring_bytes) as u64;
    let mapped = file.allocate(end).and_then(|()| map_ring(file.as_ref(), header.ring_bytes));
    let Ok(memory) = mapped else { return Ok(None) };
    let mut line = SyncLine { file, boot, sequence };
    if noted < durable {
        line.mark(durable).map_err(|error| folder.error("note the durable LSN", BUFFER, error))?;
    }
    Ok(Some((memory, line)))
}

/// Writes `header` over the one of the file in use, whose ring goes on as it is.
///
/// Not synced: it would write back the whole ring. Within one boot the page cache has it; after
/// loss of power an older or a torn block makes recovery ignore the ring, in which nothing was
/// promised to be.
pub(crate) fn relabel(folder: &Folder, header: &RingHeader) -> Result<()> {
    let file = folder.open(BUFFER, Access::Write)?;
    write_bytes(file.as_ref(), 0, &encode_header(header))
        .map_err(|error| folder.error("pass the buffer's file on", BUFFER, error))
}

fn make_fresh(folder: &Folder, header: &RingHeader, durable: Lsn) -> Result<Box<dyn DiskFile>> {
    let fresh = folder.open(BUFFER_TEMP, Access::Fresh)?;
    match begin(fresh.as_ref(), header, durable) {
        Ok(()) => Ok(fresh),
        Err(error) => {
            drop(fresh);
            folder.remove_if_there(BUFFER_TEMP)?;
            Err(folder.error("make the buffer's file", BUFFER_TEMP, error))
        }
    }
}

fn overwrite_old(
    folder: &Folder,
    header: &RingHeader,
    durable: Lsn,
    refused: Error,
) -> Result<Box<dyn DiskFile>> {
    if refused.kind() != ErrorKind::NoSpace {
        return Err(refused);
    }
    let Some(old) = folder.open_if_there(BUFFER, Access::Write)? else {
        return Err(refused);
    };
    let named = |error| folder.error("write over the buffer's file", BUFFER, error);
    if old.len().map_err(named)? < (RING_AT + header.ring_bytes) as u64 {
        return Err(refused);
    }
    begin(old.as_ref(), header, durable).map_err(named)?;
    Ok(old)
}

fn begin(file: &dyn DiskFile, header: &RingHeader, durable: Lsn) -> io::Result<()> {
    let mut blocks = [0; RING_AT];
    blocks[..BLOCK_BYTES].copy_from_slice(&encode_header(header));
    if let Some(boot) = header.boot {
        let at = slot_at(1) as usize;
        blocks[at..at + SLOT_BYTES].copy_from_slice(&encode_slot(1, boot, durable));
    }
    file.allocate((RING_AT + header.ring_bytes) as u64)?;
    write_bytes(file, 0, &blocks)?;
    file.sync_data()
}

fn map_ring(file: &dyn DiskFile, ring_bytes: usize) -> io::Result<Memory> {
    if ring_bytes == 0 { Ok(Memory::heap(0)) } else { file.map(RING_AT, ring_bytes) }
}

fn encode_header(header: &RingHeader) -> Block {
    Writer::new(MAGIC)
        .bytes(&header.uuid.0)
        .u64(header.epoch)
        .u64(header.ring_bytes as u64)
        .flag(header.boot.is_some())
        .bytes(&header.boot.unwrap_or_default())
        .seal()
}

fn decode_header(block: &[u8], uuid: Uuid) -> std::result::Result<RingHeader, String> {
    let opened = Reader::open(block, MAGIC);
    let mut fields = opened.map_err(|fault| format!("the buffer's file {fault}"))?;
    let found = Uuid(fields.array());
    if found != uuid {
        return Err(format!("the buffer is of log {found}, expected {uuid}"));
    }
    let epoch = fields.u64();
    let ring_bytes = fields.u64();
    let has_boot = fields.flag();
    let boot = fields.array();
    let ring_bytes = usize::try_from(ring_bytes).ok().filter(|&bytes| bytes <= MAX_BUFFER_BYTES);
    let ring_bytes = ring_bytes.ok_or("its ring is larger than a buffer can be")?;
    Ok(RingHeader { uuid, epoch, ring_bytes, boot: has_boot.then_some(boot) })
}

/// Where the slot of `sequence` lies in the file.
fn slot_at(sequence: u64) -> u64 {
    LINE_AT as u64 + sequence % 2 * SLOT_STRIDE as u64
}

fn encode_slot(sequence: u64, boot: BootId, durable: Lsn) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(&sequence.to_le_bytes());
    slot[8..24].copy_from_slice(&boot);
    slot[24..32].copy_from_slice(&durable.as_u64().to_le_bytes());
    let checksum = crc32c_append(0, &slot[..32]);
    slot[32..].copy_from_slice(&checksum.to_le_bytes());
    slot
}

fn read_line(line: &[u8], boot: BootId) -> Option<Lsn> {
    newest_slot(line, boot).map(|(_, durable)| durable)
}

/// The slot that was written last, with its sequence number.
fn newest_slot(line: &[u8], boot: BootId) -> Option<(u64, Lsn)> {
    let slots = line.chunks_exact(SLOT_STRIDE).filter_map(|slot| decode_slot(slot, boot));
    slots.max_by_key(|(sequence, _)| *sequence)
}

fn decode_slot(slot: &[u8], boot: BootId) -> Option<(u64, Lsn)> {
    let (fields, checksum) = (&slot[..32], &slot[32..SLOT_BYTES]);
    let is_whole = crc32c_append(0, fields).to_le_bytes() == checksum;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| fields[at + byte]));
    (is_whole && fields[8..24] == boot).then(|| (number(0), Lsn::new(number(24))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_os::OsDisk;
    use palisade_core::MemoryKind;
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    const BOOT: BootId = [4; 16];
    const HEADER: RingHeader =
        RingHeader { uuid: Uuid([2; 16]), epoch: 5, ring_bytes: 8192, boot: Some(BOOT) };

    fn folder(path: &Path) -> Folder {
        Folder::new(Arc::new(OsDisk), path)
    }

    fn durable(folder: &Folder, boot: Option<BootId>) -> (bool, Option<Lsn>) {
        match read_old(folder, HEADER.uuid, boot).unwrap() {
            OldBuffer::Found { epoch: 5, same_boot, durable, .. } => (same_boot, durable),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_mapped_ring_is_found_again() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        assert!(matches!(read_old(&folder, HEADER.uuid, None).unwrap(), OldBuffer::Missing));
        let (memory, line) = renew(&folder, &HEADER, Lsn::new(64)).unwrap();
        assert_eq!((memory.len(), memory.kind()), (8192, MemoryKind::Mapped));
        line.unwrap().mark(Lsn::new(128)).unwrap();
        assert_eq!(durable(&folder, Some(BOOT)), (true, Some(Lsn::new(128))));
        assert_eq!(durable(&folder, Some([9; 16])), (false, None));
        assert_eq!(durable(&folder, None), (false, None));
        assert!(fs::read(temp.path().join(BUFFER)).unwrap()[RING_AT..].iter().all(|&b| b == 0));
    }

    #[test]
    fn the_file_of_the_same_epoch_and_boot_is_gone_on_with_and_no_other() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let path = temp.path().join(BUFFER);
        let (_memory, line) = renew(&folder, &HEADER, Lsn::new(64)).unwrap();
        line.unwrap().mark(Lsn::new(128)).unwrap();
        let mut used = fs::read(&path).unwrap();
        used[RING_AT] = 7;
        let is_kept = |header: RingHeader, at: u64| {
            fs::write(&path, &used).unwrap();
            let (memory, line) = renew(&folder, &header, Lsn::new(at)).unwrap();
            assert_eq!(memory.len(), header.ring_bytes);
            // The line goes on where it stood.
            line.unwrap().mark(Lsn::new(at + 8)).unwrap();
            let found = read_old(&folder, header.uuid, header.boot).unwrap();
            match found {
                OldBuffer::Found { epoch, durable, .. } => {
                    assert_eq!((epoch, durable), (header.epoch, Some(Lsn::new(at + 8))));
                }
                other => panic!("{other:?}"),
            }
            fs::read(&path).unwrap()[RING_AT] == 7
        };
        assert!(is_kept(HEADER, 128));
        assert!(is_kept(HEADER, 192));
        // The line says more than the caller knows.
        assert!(!is_kept(HEADER, 120));
        assert!(!is_kept(RingHeader { epoch: 6, ..HEADER }, 128));
        assert!(!is_kept(RingHeader { boot: Some([5; 16]), ..HEADER }, 128));
        assert!(!is_kept(RingHeader { ring_bytes: 4096, ..HEADER }, 128));
        let whole = used.clone();
        for damage in [30, LINE_AT + 20] {
            used.clone_from(&whole);
            used[damage] ^= 1;
            used[damage + SLOT_STRIDE] ^= 1;
            let (_memory, line) = {
                fs::write(&path, &used).unwrap();
                renew(&folder, &HEADER, Lsn::new(128)).unwrap()
            };
            assert!(line.is_some() && fs::read(&path).unwrap()[RING_AT] == 0, "made anew");
        }
        // A number behind which there is no room, though its checksum holds.
        let slot = encode_slot(u64::MAX, BOOT, Lsn::new(128));
        let at = slot_at(u64::MAX) as usize;
        used.clone_from(&whole);
        used[at..at + SLOT_BYTES].copy_from_slice(&slot);
        fs::write(&path, &used).unwrap();
        let (_memory, line) = renew(&folder, &HEADER, Lsn::new(128)).unwrap();
        line.unwrap().mark(Lsn::new(136)).unwrap();
        assert_eq!(durable(&folder, Some(BOOT)), (true, Some(Lsn::new(136))), "it goes on");
        fs::write(&path, &whole[..RING_AT + 100]).unwrap();
        let (memory, _line) = renew(&folder, &HEADER, Lsn::new(128)).unwrap();
        assert_eq!(memory.len(), HEADER.ring_bytes, "what was cut off is there again");
    }

    #[test]
    fn a_ring_that_is_passed_on_keeps_its_bytes_and_its_line() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let (_memory, line) = renew(&folder, &HEADER, Lsn::new(64)).unwrap();
        line.unwrap().mark(Lsn::new(128)).unwrap();
        let path = temp.path().join(BUFFER);
        let before = fs::read(&path).unwrap();
        relabel(&folder, &RingHeader { epoch: 6, ..HEADER }).unwrap();
        assert_eq!(fs::read(&path).unwrap()[BLOCK_BYTES..], before[BLOCK_BYTES..]);
        match read_old(&folder, HEADER.uuid, Some(BOOT)).unwrap() {
            OldBuffer::Found { epoch, same_boot, durable, .. } => {
                assert_eq!((epoch, same_boot, durable), (6, true, Some(Lsn::new(128))));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_torn_slot_falls_back_to_the_other() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let (_memory, line) = renew(&folder, &HEADER, Lsn::new(8)).unwrap();
        let mut line = line.unwrap();
        line.mark(Lsn::new(16)).unwrap();
        line.mark(Lsn::new(24)).unwrap();
        let path = temp.path().join(BUFFER);
        let mut bytes = fs::read(&path).unwrap();
        bytes[slot_at(3) as usize + 25] ^= 0x40;
        fs::write(&path, bytes).unwrap();
        assert_eq!(durable(&folder, Some(BOOT)), (true, Some(Lsn::new(16))));
    }

    #[test]
    fn a_heap_buffer_has_a_file_without_a_ring() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let header = RingHeader { ring_bytes: 0, ..HEADER };
        let (memory, _line) = renew(&folder, &header, Lsn::new(40)).unwrap();
        assert!(memory.is_empty());
        assert_eq!(durable(&folder, Some(BOOT)), (true, Some(Lsn::new(40))));
    }

    #[test]
    fn a_newer_format_is_refused_and_not_thrown_away() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        drop(renew(&folder, &HEADER, Lsn::ZERO).unwrap());
        let path = temp.path().join(BUFFER);
        let mut bytes = fs::read(&path).unwrap();
        let block: [u8; BLOCK_BYTES] = bytes[..BLOCK_BYTES].try_into().unwrap();
        bytes[..BLOCK_BYTES].copy_from_slice(&crate::block::with_version(block, 2));
        fs::write(&path, bytes).unwrap();
        let error = read_old(&folder, HEADER.uuid, Some(BOOT)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn short_damaged_and_foreign_files_are_invalid() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let path = temp.path().join(BUFFER);
        drop(renew(&folder, &HEADER, Lsn::ZERO).unwrap());
        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[30] ^= 1;
        for bytes in [&whole[..0], &whole[..100], &whole[..5000], &whole[..9000], &damaged[..]] {
            fs::write(&path, bytes).unwrap();
            let found = read_old(&folder, HEADER.uuid, Some(BOOT)).unwrap();
            assert!(matches!(found, OldBuffer::Invalid(_)), "{} bytes: {found:?}", bytes.len());
        }
        fs::write(&path, &whole).unwrap();
        let found = read_old(&folder, Uuid([1; 16]), Some(BOOT)).unwrap();
        assert!(matches!(found, OldBuffer::Invalid(text) if text.contains("log 0202")));
    }
}

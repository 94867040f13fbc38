//! The meta file: the log's state in two sealed copies, of which one is always whole.
//! `docs/format.md` has the bytes.
//!
//! Each open writes both copies to a new file under a temporary name, syncs and renames it, and
//! syncs the folder, so that no process writes to a meta file in which a write or sync of another
//! process may have failed ([`trust`](crate::segment)). A later save writes and syncs one copy
//! after the other. A save after a failed one makes a new file, too. A block of the medium of up to
//! 16 KiB never holds both copies.

pub mod rebuilt;

use crate::{EpochBase, EpochExtent, MAX_BASES, MAX_CURSORS, State};
use crate::{Error, ErrorKind, Lsn, MIN_SEGMENT_BYTES, Result, Uuid, check_segment_bytes};

use crate::block::{BLOCK_BYTES, Block, BlockFault, CURSOR_BYTES, Magic, Reader, Writer};
use crate::buffer_file::BufferName;
use crate::disk::{Access, DiskFile, FileIdentity, FolderIdentity, read_full, write_bytes};
use crate::folder::{Folder, META, META_TEMP, is_segment_name};
use crate::segment::header::LogOf;

const MAGIC: Magic = *b"PALIMETA";
const MARKS: u64 = 1;
const RING: u64 = 2;
/// The second copy's offset.
const COPY_STRIDE: u64 = 16 << 10;
/// The file's length.
pub(crate) const META_BYTES: u64 = COPY_STRIDE + BLOCK_BYTES as u64;
const LIST_AT: usize = 256;
const BASES_AT: usize = BLOCK_BYTES - 8 - MAX_BASES * 16;
/// Without the two counts.
const LISTS_BYTES: usize = BASES_AT - LIST_AT - 16;
const _: () = assert!(MAX_CURSORS * CURSOR_BYTES <= LISTS_BYTES);
const EPOCH_BYTES: usize = 32;
/// Without cursors.
const MAX_EPOCHS: usize = LISTS_BYTES / EPOCH_BYTES;
/// So often a reader reads both copies before it reports `Corrupt`: a writer may be writing one.
const LOOKS: usize = 3;

/// The advice if no copy of the state is valid.
pub(crate) const LOST_META: &str = "nothing was changed; put the file `meta` back as it was saved \
     after the last truncation, or read the records with `palisade dump` or `palisade salvage` and \
     append them to a new log, which gives them new LSNs";

/// Where the log was written last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The meta file's identity, which a copy does not have.
    pub file: Option<FileIdentity>,
    /// The folder.
    pub home: FolderIdentity,
    /// The log buffer's file.
    pub buffer: Option<BufferRef>,
}

/// The file of a log buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRef {
    /// Its name.
    pub name: BufferName,
    /// Whether it has a ring, besides marks.
    pub has_ring: bool,
}

/// A meta file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The state.
    pub state: State,
    /// Where it was saved.
    pub origin: Origin,
    /// How often it was saved before.
    pub generation: u64,
    /// Whether the file is a copy of the log's. Not stored.
    pub is_copy: bool,
}

/// The meta file of an open log.
#[derive(Debug)]
pub struct MetaFile {
    folder: Folder,
    /// `None` before this process has made it, and after a failure.
    file: Option<Box<dyn DiskFile>>,
    meta: Meta,
    origin: Origin,
}

pub(crate) fn read(folder: &Folder) -> Result<Option<Meta>> {
    let Some(file) = folder.open_if_there(META, Access::Read)? else {
        return Ok(None);
    };
    let mut looks = 1;
    loop {
        match read_file(folder, file.as_ref()) {
            Err(error) if error.kind() == ErrorKind::Corrupt && looks < LOOKS => looks += 1,
            Err(error) => return Err(error),
            Ok(meta) => {
                let identity = file.identity();
                let identity =
                    identity.map_err(|error| folder.error("look at the file", META, error))?;
                return Ok(Some(Meta { is_copy: meta.origin.file != Some(identity), ..meta }));
            }
        }
    }
}

/// Returns whether a copy is invalid or unreadable, as after a crash during a save.
pub(crate) fn has_damaged_copy(folder: &Folder) -> Result<bool> {
    let Some(file) = folder.open_if_there(META, Access::Read)? else { return Ok(false) };
    for _ in 0..LOOKS {
        if read_copies(folder, file.as_ref())?.iter().all(|copy| matches!(copy, Ok(Ok(_)))) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns a state with these values only.
pub fn bare_state(log: &LogOf, head: Lsn) -> State {
    let LogOf { uuid, segment_bytes, codec } = *log;
    State {
        uuid,
        segment_bytes,
        buffer_bytes: 0,
        epoch: 0,
        epoch_base: Lsn::ZERO,
        epoch_salt: 0,
        head,
        checkpoint: Lsn::ZERO,
        clean_end: Lsn::ZERO,
        clean: false,
        epochs: Vec::new(),
        codec,
        cursors: Vec::new(),
        bases: Vec::new(),
    }
}

impl MetaFile {
    /// Makes the meta file of a new log.
    ///
    /// # Errors
    /// As [`FileStore::save_state`](crate::FileStore::save_state).
    pub fn create(folder: &Folder, state: State, origin: Origin) -> Result<MetaFile> {
        let meta = Meta { state: state.clone(), origin, generation: 0, is_copy: false };
        let mut file = MetaFile { folder: folder.clone(), file: None, meta, origin };
        file.save(&state)?;
        Ok(file)
    }

    /// Takes over what [`read`] returned. The first save makes a new file.
    pub(crate) fn open(folder: &Folder, meta: Meta, origin: Origin) -> MetaFile {
        MetaFile { folder: folder.clone(), file: None, meta, origin }
    }

    pub(crate) fn state(&self) -> &State {
        &self.meta.state
    }

    /// Returns false after the first save, which makes a new file.
    pub(crate) fn is_copy(&self) -> bool {
        self.meta.is_copy
    }

    pub(crate) fn saved_origin(&self) -> &Origin {
        &self.meta.origin
    }

    pub(crate) fn set_buffer(&mut self, buffer: Option<BufferRef>) {
        self.origin.buffer = buffer;
    }

    /// Saves `state` durably.
    pub(crate) fn save(&mut self, state: &State) -> Result<()> {
        let known = self.file.take();
        let is_known = known.is_some();
        let file = known.map_or_else(|| self.begin_file(), Ok)?;
        let meta = Meta {
            state: state.clone(),
            origin: self.origin,
            generation: self.meta.generation + 1,
            is_copy: false,
        };
        let block = encode(&meta);
        if is_known {
            let written = [0, COPY_STRIDE].into_iter().try_for_each(|at| {
                write_bytes(file.as_ref(), at, &block)?;
                file.sync_data()
            });
            written.map_err(|error| self.folder.error("save the log's state", META, error))?;
        } else {
            self.finish_file(file.as_ref(), &block)?;
        }
        (self.file, self.meta) = (Some(file), meta);
        Ok(())
    }

    fn begin_file(&mut self) -> Result<Box<dyn DiskFile>> {
        self.folder.remove_if_there(META_TEMP)?;
        let file = self.folder.open(META_TEMP, Access::Fresh)?;
        let identity = file.identity();
        self.origin.file = Some(
            identity.map_err(|error| self.folder.error("look at the file", META_TEMP, error))?,
        );
        Ok(file)
    }

    fn finish_file(&self, file: &dyn DiskFile, block: &Block) -> Result<()> {
        let mut bytes = vec![0; META_BYTES as usize];
        bytes[..BLOCK_BYTES].copy_from_slice(block);
        // Write the bytes between, too: in a sparse file the copies could be in adjacent blocks.
        bytes[COPY_STRIDE as usize..].copy_from_slice(block);
        let written = write_bytes(file, 0, &bytes).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // Report the first error only. If this removal fails, the next save removes the file.
            let _ = self.folder.remove_if_there(META_TEMP);
            return Err(self.folder.error("write the meta file", META_TEMP, error));
        }
        self.folder.rename(META_TEMP, META)?;
        self.folder.sync()
    }
}

pub(crate) type StateCopy = std::result::Result<Meta, BlockFault>;

fn read_copies(folder: &Folder, file: &dyn DiskFile) -> Result<[Result<StateCopy>; 2]> {
    let unread = |error| folder.error("read the meta file", META, error);
    let copy = |at: u64| -> Result<StateCopy> {
        let mut bytes = [0; BLOCK_BYTES];
        let len = read_full(file, at, &mut bytes).map_err(unread)?;
        Ok(decode(&bytes[..len]))
    };
    Ok([copy(0), copy(COPY_STRIDE)])
}

fn read_file(folder: &Folder, file: &dyn DiskFile) -> Result<Meta> {
    match read_copies(folder, file)? {
        [Ok(first), Ok(second)] => choose(folder, [first, second]),
        // A copy that cannot be read is as one that is damaged: the other one serves.
        [Ok(Ok(meta)), Err(_)] | [Err(_), Ok(Ok(meta))] => Ok(meta),
        [Ok(Err(fault)), Err(_)] | [Err(_), Ok(Err(fault))] if fault.is_unsupported() => {
            Err(unsupported(folder, fault))
        }
        [Err(error), _] | [_, Err(error)] => Err(error),
    }
}

fn unsupported(folder: &Folder, fault: BlockFault) -> Error {
    refuse(folder, ErrorKind::Unsupported, &format!("the meta file {fault}"))
}

fn choose(folder: &Folder, copies: [StateCopy; 2]) -> Result<Meta> {
    let faults = || copies.iter().filter_map(|copy| copy.as_ref().err());
    if let Some(fault) = faults().find(|fault| fault.is_unsupported()) {
        return Err(unsupported(folder, *fault));
    }
    if let Some(meta) = copies.iter().flatten().max_by_key(|meta| meta.generation) {
        return Ok(meta.clone());
    }
    if faults().all(|fault| *fault == BlockFault::Foreign) {
        let text = "the file `meta` is not a Palisade meta file: it does not begin with PALIMETA";
        let error = refuse(folder, ErrorKind::Foreign, text);
        let is_log = folder.names()?.iter().any(|name| is_segment_name(name));
        return Err(if is_log { error.with_advice(LOST_META) } else { error });
    }
    let text = "neither copy of the log's state in the meta file validates; one should";
    Err(refuse(folder, ErrorKind::Corrupt, text).with_advice(LOST_META))
}

fn refuse(folder: &Folder, kind: ErrorKind, text: &str) -> Error {
    Error::new(kind, text).at_path(folder.path().join(META))
}

/// Returns the block of a copy.
#[must_use]
pub fn encode(meta: &Meta) -> Block {
    let Meta { state, origin, generation, .. } = meta;
    let file = origin.file.unwrap_or_default();
    let buffer = origin.buffer.map_or(0, |buffer| if buffer.has_ring { RING } else { MARKS });
    let name = origin.buffer.map_or(0, |buffer| buffer.name.0);
    let list_bytes = state.epochs.len() * EPOCH_BYTES + state.cursors.len() * CURSOR_BYTES;
    let fits = state.clean && list_bytes <= LISTS_BYTES;
    let epochs = if fits { &state.epochs[..] } else { &[] };
    let block = Writer::new(MAGIC)
        .u64(*generation)
        .bytes(&state.uuid.0)
        .u64(state.segment_bytes)
        .u64(state.buffer_bytes)
        .u64(state.epoch)
        .u64(state.epoch_base.as_u64())
        .u64(state.epoch_salt)
        .u64(state.head.as_u64())
        .u64(state.checkpoint.as_u64())
        .u64(state.clean_end.as_u64())
        .flag(state.clean)
        .u64(0)
        .flag(origin.file.is_some())
        .u64(file.inode)
        .u64(file.born)
        .u64(origin.home.device)
        .u64(origin.home.inode)
        .u64(origin.home.born)
        .u64(buffer)
        .bytes(&name.to_le_bytes())
        .codec(state.codec.as_ref())
        .skip_to(LIST_AT)
        .u64(epochs.len() as u64);
    let with_epoch = |block: Writer, epoch: &EpochExtent| {
        block.u64(epoch.number).u64(epoch.salt).u64(epoch.base.as_u64()).u64(epoch.end.as_u64())
    };
    let block = epochs.iter().fold(block, with_epoch).cursors(&state.cursors);
    let block = block.skip_to(BASES_AT).u64(state.bases.len() as u64);
    let with_base = |block: Writer, base: &EpochBase| {
        block.u64(base.end_before.as_u64()).u64(base.base.as_u64())
    };
    state.bases.iter().fold(block, with_base).seal()
}

/// Decodes a copy.
///
/// # Errors
/// Why it is invalid.
pub fn decode(block: &[u8]) -> StateCopy {
    let mut fields = Reader::open(block, MAGIC)?;
    let generation = fields.u64();
    let mut state = State {
        uuid: Uuid(fields.array()),
        segment_bytes: fields.u64(),
        buffer_bytes: fields.u64(),
        epoch: fields.u64(),
        epoch_base: Lsn::new(fields.u64()),
        epoch_salt: fields.u64(),
        head: Lsn::new(fields.u64()),
        checkpoint: Lsn::new(fields.u64()),
        clean_end: Lsn::new(fields.u64()),
        clean: fields.flag(),
        epochs: Vec::new(),
        codec: None,
        cursors: Vec::new(),
        bases: Vec::new(),
    };
    // Refuse a size that no log can have, for example 0: many calculations divide by it.
    check_segment_bytes(state.segment_bytes, MIN_SEGMENT_BYTES).map_err(|_| BlockFault::Damaged)?;
    let reserved = fields.u64();
    if reserved != 0 {
        return Err(BlockFault::Reserved(reserved));
    }
    let has_file = fields.flag();
    let file = FileIdentity { inode: fields.u64(), born: fields.u64() };
    let home = FolderIdentity { device: fields.u64(), inode: fields.u64(), born: fields.u64() };
    let kind = fields.u64();
    let name = BufferName(u128::from_le_bytes(fields.array()));
    let buffer = match kind {
        MARKS | RING => Some(BufferRef { name, has_ring: kind == RING }),
        _ => None,
    };
    state.codec = fields.codec()?;
    let origin = Origin { file: has_file.then_some(file), home, buffer };
    fields.skip_to(LIST_AT);
    let count = fields.u64();
    if count > MAX_EPOCHS as u64 {
        return Err(BlockFault::Damaged);
    }
    if state.clean {
        let mut extent = || EpochExtent {
            number: fields.u64(),
            salt: fields.u64(),
            base: Lsn::new(fields.u64()),
            end: Lsn::new(fields.u64()),
        };
        state.epochs = (0..count).map(|_| extent()).collect();
    }
    let epochs_end = LIST_AT + 8 + count as usize * EPOCH_BYTES;
    fields.skip_to(epochs_end);
    state.cursors = fields.cursors()?;
    let cursors_end = epochs_end + 8 + state.cursors.len() * CURSOR_BYTES;
    if cursors_end > BASES_AT {
        return Err(BlockFault::Damaged);
    }
    fields.skip_to(BASES_AT);
    let count = fields.u64();
    if count > MAX_BASES as u64 {
        return Err(BlockFault::Damaged);
    }
    let mut base =
        || EpochBase { end_before: Lsn::new(fields.u64()), base: Lsn::new(fields.u64()) };
    state.bases = (0..count).map(|_| base()).collect();
    Ok(Meta { state, origin, generation, is_copy: false })
}

#[cfg(test)]
mod tests;

//! The meta file: the log's state in two sealed copies, of which one is always whole.
//!
//! ```text
//! offset  bytes  field
//!      0     24  magic PALIMETA, checksum, version, feature bits
//!     24      8  generation: the greater valid one counts
//!     32     16  UUID of the log
//!     48      8  bytes of log in a segment
//!     56      8  bytes of the log buffer
//!     64      8  running epoch        72  8  its base        80  8  its salt
//!     88      8  head                 96  8  checkpoint
//!    104      8  clean end           112  8  1 if the log is closed cleanly, else 0
//!    120      8  sync method: 0 fdatasync, 1 direct writes
//! ```
//!
//! The sync method is only a way of writing, and yet an unknown one is refused: nobody knows what
//! a log that is written in that way needs from its writer.
//!
//! The second copy lies behind the first. A save writes the first, syncs, writes the second, syncs.
//! A write may leave its copy torn until its sync has succeeded, so the other has to be whole and
//! on the medium meanwhile. Two rules keep that so, whatever was interrupted and however often:
//! a new generation begins with the first copy, and the second is written only after the first
//! was synced with the same generation. Hence, as the file is found:
//! | first | second | what is on the medium for certain | what comes first |
//! |---|---|---|---|
//! | n | n | the first; the second's sync may have failed | the second again, as it is |
//! | n | damaged | the first: else the second would not have been touched | the second, as the first |
//! | anything else | n | the second | a new generation in the first |

use palisade_core::store::State;
use palisade_core::{Error, ErrorKind, Lsn, MIN_SEGMENT_BYTES, Result, Uuid, check_segment_bytes};

use crate::block::{BLOCK_BYTES, Block, Fault, Magic, Reader, Writer};
use crate::folder::{Folder, META, META_TEMP};
use crate::fs::{Access, DiskFile, read_full, write_bytes};
use crate::options::SyncMethod;

const MAGIC: Magic = *b"PALIMETA";
const DATA_SYNC: u64 = 0;
const DIRECT: u64 = 1;
/// How often a reader beside a writer looks again when it finds no whole copy: it may have met
/// each of them in the middle of a write.
const LOOKS: usize = 3;

/// The state as the meta file had it.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) state: State,
    /// Never `Auto`.
    pub(crate) method: SyncMethod,
    generation: u64,
    is_even: bool,
}

/// The open meta file of a log that this process writes.
#[derive(Debug)]
pub(crate) struct MetaFile {
    folder: Folder,
    file: Box<dyn DiskFile>,
    meta: Meta,
    /// What the next save notes; never `Auto`.
    method: SyncMethod,
}

/// Reads the meta file of `folder`; `None` if there is none.
pub(crate) fn read(folder: &Folder) -> Result<Option<Meta>> {
    let Some(file) = folder.open_if_there(META, Access::Read)? else {
        return Ok(None);
    };
    let mut looks = 1;
    loop {
        match read_file(folder, file.as_ref()) {
            Err(error) if error.kind() == ErrorKind::Corrupt && looks < LOOKS => looks += 1,
            other => return other.map(Some),
        }
    }
}

impl MetaFile {
    /// Makes the meta file of a log that begins with `state`. `Auto` stands for what the disk finds
    /// best, on the file that becomes the meta file: a kill in the middle leaves nothing else.
    pub(crate) fn create(folder: &Folder, state: State, asked: SyncMethod) -> Result<MetaFile> {
        let method = asked.or(|| folder.disk().choose_sync_method(&folder.path().join(META_TEMP)));
        let file = folder.open(META_TEMP, Access::Fresh)?;
        let block = encode(&state, method, 1);
        write_bytes(file.as_ref(), 0, &[block, block].concat())
            .and_then(|()| file.sync_data())
            .map_err(|error| folder.error("write the meta file", META_TEMP, error))?;
        folder.rename(META_TEMP, META)?;
        folder.sync()?;
        let meta = Meta { state, method, generation: 1, is_even: true };
        Ok(MetaFile { folder: folder.clone(), file, meta, method })
    }

    /// Opens the meta file that [`read`] found. The next save notes `asked`, unless that is `Auto`.
    pub(crate) fn open(folder: &Folder, meta: Meta, asked: SyncMethod) -> Result<MetaFile> {
        let method = asked.or(|| meta.method);
        let file = folder.open(META, Access::Write)?;
        // Nobody knows whether an earlier life came to the sync of the second copy.
        let meta = Meta { is_even: false, ..meta };
        Ok(MetaFile { folder: folder.clone(), file, meta, method })
    }

    /// The state that was saved last.
    pub(crate) fn state(&self) -> &State {
        &self.meta.state
    }

    /// How this life writes.
    pub(crate) fn method(&self) -> SyncMethod {
        self.method
    }

    /// Saves `state`: when this returns it survives power loss.
    pub(crate) fn save(&mut self, state: &State) -> Result<()> {
        if !self.meta.is_even {
            self.mend()?;
        }
        let generation = self.meta.generation + 1;
        let block = encode(state, self.method, generation);
        self.meta.is_even = false;
        self.write_copy(0, &block)?;
        self.write_copy(1, &block)?;
        self.meta = Meta { state: state.clone(), method: self.method, generation, is_even: true };
        Ok(())
    }

    /// Makes both copies the same, in the order that the module's table says.
    fn mend(&mut self) -> Result<()> {
        let (copies, _) = read_copies(&self.folder, self.file.as_ref())?;
        let meta = choose(&self.folder, &copies)?;
        let is_first_durable = match (&copies[0], &copies[1]) {
            (Ok(first), Ok(second)) => first == second,
            (Ok(_), Err(_)) => true,
            (Err(_), _) => false,
        };
        let generation = if is_first_durable { meta.generation } else { meta.generation + 1 };
        let block = encode(&meta.state, meta.method, generation);
        if !is_first_durable {
            self.write_copy(0, &block)?;
        }
        self.write_copy(1, &block)?;
        self.meta = Meta { generation, is_even: true, ..meta };
        Ok(())
    }

    fn write_copy(&self, copy: usize, block: &Block) -> Result<()> {
        write_bytes(self.file.as_ref(), (copy * BLOCK_BYTES) as u64, block)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| self.folder.error("save the log's state", META, error))
    }
}

/// One copy.
pub(crate) type Copy = std::result::Result<Content, Fault>;

/// What one copy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) generation: u64,
    pub(crate) state: State,
    pub(crate) method: SyncMethod,
}

fn read_file(folder: &Folder, file: &dyn DiskFile) -> Result<Meta> {
    let (copies, are_same) = read_copies(folder, file)?;
    let meta = choose(folder, &copies)?;
    Ok(Meta { is_even: are_same, ..meta })
}

/// Both copies, and whether their bytes are the same.
fn read_copies(folder: &Folder, file: &dyn DiskFile) -> Result<([Copy; 2], bool)> {
    let mut bytes = [0; 2 * BLOCK_BYTES];
    let len = read_full(file, 0, &mut bytes)
        .map_err(|error| folder.error("read the meta file", META, error))?;
    let (first, second) = bytes[..len].split_at(len.min(BLOCK_BYTES));
    Ok(([decode(first), decode(second)], first == second))
}

fn choose(folder: &Folder, copies: &[Copy; 2]) -> Result<Meta> {
    let greatest = copies.iter().flatten().max_by_key(|content| content.generation);
    let faults = || copies.iter().filter_map(|copy| copy.as_ref().err());
    if let Some(fault) = faults().find(|fault| fault.is_unsupported()) {
        return Err(refuse(folder, ErrorKind::Unsupported, &format!("the meta file {fault}")));
    }
    if let Some(Content { generation, state, method }) = greatest.cloned() {
        return Ok(Meta { state, method, generation, is_even: false });
    }
    if faults().all(|fault| *fault == Fault::Foreign) {
        let text = "the file `meta` is none of Palisade's: it does not begin with its mark";
        return Err(refuse(folder, ErrorKind::Foreign, text));
    }
    let text = "neither copy of the log's state in the meta file validates; one should";
    Err(refuse(folder, ErrorKind::Corrupt, text))
}

fn refuse(folder: &Folder, kind: ErrorKind, text: &str) -> Error {
    Error::new(kind, text).at_path(folder.path().join(META))
}

pub(crate) fn encode(state: &State, method: SyncMethod, generation: u64) -> Block {
    let method = if method == SyncMethod::Direct { DIRECT } else { DATA_SYNC };
    Writer::new(MAGIC)
        .u64(generation)
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
        .u64(method)
        .seal()
}

pub(crate) fn decode(block: &[u8]) -> Copy {
    let mut fields = Reader::open(block, MAGIC)?;
    let generation = fields.u64();
    let state = State {
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
    };
    // Everything divides by it: a size that no log can have must not get further than here.
    check_segment_bytes(state.segment_bytes, MIN_SEGMENT_BYTES).map_err(|_| Fault::Damaged)?;
    let method = match fields.u64() {
        DATA_SYNC => SyncMethod::DataSync,
        DIRECT => SyncMethod::Direct,
        unknown => return Err(Fault::Method(unknown)),
    };
    Ok(Content { generation, state, method })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::with_version;
    use crate::fs_os::OsDisk;
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    const METHOD_AT: usize = 120;

    fn sample(head: u64) -> State {
        State {
            uuid: Uuid([3; 16]),
            segment_bytes: 65_536,
            buffer_bytes: 4096,
            epoch: 2,
            epoch_base: Lsn::new(65_536),
            epoch_salt: 77,
            head: Lsn::new(head),
            checkpoint: Lsn::new(9),
            clean_end: Lsn::new(8),
            clean: true,
        }
    }

    fn block(head: u64, generation: u64) -> Block {
        encode(&sample(head), SyncMethod::DataSync, generation)
    }

    fn folder(path: &Path) -> Folder {
        Folder::new(Arc::new(OsDisk), path)
    }

    fn damage(path: &Path, at: usize) {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_saved_state_survives_damage_of_either_copy() {
        for copy in 0..2 {
            let temp = tempfile::tempdir().unwrap();
            let folder = folder(temp.path());
            let mut file = MetaFile::create(&folder, sample(0), SyncMethod::Auto).unwrap();
            file.save(&sample(64)).unwrap();
            damage(&temp.path().join(META), copy * BLOCK_BYTES + 100);
            let meta = read(&folder).unwrap().unwrap();
            assert_eq!(meta.state, sample(64));
            assert!(!meta.is_even);

            MetaFile::open(&folder, meta, SyncMethod::Auto).unwrap().save(&sample(128)).unwrap();
            damage(&temp.path().join(META), (1 - copy) * BLOCK_BYTES + 100);
            assert_eq!(read(&folder).unwrap().unwrap().state, sample(128));
        }
    }

    #[test]
    fn the_greater_generation_counts_and_the_lesser_is_mended_before_a_save() {
        let temp = tempfile::tempdir().unwrap();
        let (folder, path) = (folder(temp.path()), temp.path().join(META));
        drop(MetaFile::create(&folder, sample(0), SyncMethod::Auto).unwrap());
        let interrupted = [block(64, 2), block(0, 1)].concat();
        fs::write(&path, &interrupted).unwrap();
        let meta = read(&folder).unwrap().unwrap();
        assert_eq!(meta.state, sample(64));

        let mut file = MetaFile::open(&folder, meta, SyncMethod::Auto).unwrap();
        assert_eq!(fs::read(&path).unwrap(), interrupted, "opening changes nothing");
        file.mend().unwrap();
        let mended = [block(64, 3), block(64, 3)].concat();
        assert!(fs::read(&path).unwrap() == mended);
    }

    /// What a save or a mend that was interrupted leaves, and which copy is on the medium.
    #[test]
    fn a_mend_never_writes_over_the_only_copy_on_the_medium() {
        let (whole, torn) = (block(64, 2), [0; BLOCK_BYTES]);
        let older = block(0, 1);
        // The copies as they are found; which is written first.
        let cases =
            [([whole, whole], 1), ([whole, torn], 1), ([torn, whole], 0), ([whole, older], 0)];
        for (copies, first) in cases {
            let temp = tempfile::tempdir().unwrap();
            let (folder, path) = (folder(temp.path()), temp.path().join(META));
            fs::write(&path, copies.concat()).unwrap();
            let meta = read(&folder).unwrap().unwrap();
            let mut file = MetaFile::open(&folder, meta, SyncMethod::Auto).unwrap();
            let written = Written::default();
            file.file = Box::new(Recorder { file: file.file, written: Arc::clone(&written) });
            file.mend().unwrap();
            assert_eq!(written.lock()[0], (first * BLOCK_BYTES) as u64);
            let meta = read(&folder).unwrap().unwrap();
            assert!(meta.is_even && meta.state == sample(64));
        }
    }

    /// A whole block that names another sync method.
    fn with_method(block: Block, method: u64) -> Block {
        Writer::new(MAGIC).bytes(&block[24..METHOD_AT]).u64(method).seal()
    }

    #[test]
    fn a_method_is_kept_and_an_asked_one_is_noted_with_the_next_save() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let found = || read(&folder).unwrap().unwrap();
        drop(MetaFile::create(&folder, sample(0), SyncMethod::Direct).unwrap());
        let mut file = MetaFile::open(&folder, found(), SyncMethod::Auto).unwrap();
        file.save(&sample(64)).unwrap();
        assert_eq!((file.method(), found().method), (SyncMethod::Direct, SyncMethod::Direct));

        let mut file = MetaFile::open(&folder, found(), SyncMethod::DataSync).unwrap();
        file.mend().unwrap();
        assert_eq!((file.method(), found().method), (SyncMethod::DataSync, SyncMethod::Direct));
        file.save(&sample(128)).unwrap();
        assert_eq!(found().method, SyncMethod::DataSync);
    }

    #[test]
    fn logs_from_before_there_were_methods_sync_as_they_did() {
        let block = block(0, 1);
        assert_eq!(block[METHOD_AT..METHOD_AT + 8], [0; 8]);
        assert_eq!(decode(&block).unwrap().method, SyncMethod::DataSync);
        let direct = with_method(block, DIRECT);
        assert_eq!(direct, encode(&sample(0), SyncMethod::Direct, 1));
    }

    type Written = Arc<parking_lot::Mutex<Vec<u64>>>;

    /// Notes where it is written.
    #[derive(Debug)]
    struct Recorder {
        file: Box<dyn DiskFile>,
        written: Written,
    }

    impl DiskFile for Recorder {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
            self.file.read_at(offset, into)
        }

        fn write_at(&self, offset: u64, pieces: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
            self.written.lock().push(offset);
            self.file.write_at(offset, pieces)
        }

        fn sync_data(&self) -> std::io::Result<()> {
            self.file.sync_data()
        }

        fn allocate(&self, len: u64) -> std::io::Result<()> {
            self.file.allocate(len)
        }

        fn len(&self) -> std::io::Result<u64> {
            self.file.len()
        }

        fn map(&self, offset: usize, len: usize) -> std::io::Result<palisade_core::Memory> {
            self.file.map(offset, len)
        }

        fn try_lock(&self, shared: bool) -> std::io::Result<bool> {
            self.file.try_lock(shared)
        }

        fn unlock(&self) -> std::io::Result<()> {
            self.file.unlock()
        }
    }

    #[test]
    fn what_is_wrong_with_the_file_decides_the_kind() {
        let whole = block(0, 1);
        let mut damaged = whole;
        damaged[50] ^= 1;
        let newer = with_version(whole, 9);
        let other_way = with_method(whole, 2);
        let foreign = [b'x'; BLOCK_BYTES];
        let cases = [
            (vec![damaged, damaged], ErrorKind::Corrupt),
            (vec![damaged, foreign], ErrorKind::Corrupt),
            (vec![foreign, foreign], ErrorKind::Foreign),
            (vec![], ErrorKind::Foreign),
            (vec![newer, newer], ErrorKind::Unsupported),
            (vec![newer, whole], ErrorKind::Unsupported),
            (vec![other_way, other_way], ErrorKind::Unsupported),
            (vec![whole, other_way], ErrorKind::Unsupported),
            (vec![damaged], ErrorKind::Corrupt),
        ];
        for (copies, kind) in cases {
            let temp = tempfile::tempdir().unwrap();
            fs::write(temp.path().join(META), copies.concat()).unwrap();
            assert_eq!(read(&folder(temp.path())).unwrap_err().kind(), kind);
        }
    }
}

//! Records whose stored bytes somebody else made, with the right checksum: the body of the fuzz
//! target `stored_bytes`.

use palisade::{ErrorKind, Lsn, Lz4, MemStore, Options, Result, Wal, Zstd, crc32c_append};
use palisade_core::frame::{EpochSeed, Header, Kind};
use palisade_store::{ReadStore, State};

const SEGMENT_BYTES: u64 = 64 << 10;
/// The longest record that any log with these segments can have.
const LONGEST: usize = SEGMENT_BYTES as usize / 2 - 24;

/// A log with the codec that `which` stands for.
pub(crate) fn open(store: &MemStore, which: u8) -> Wal {
    let options = Options::new().buffer_bytes(64 << 10);
    let options = if which.is_multiple_of(2) {
        options.codec(Lz4::new())
    } else {
        options.codec(Zstd::new())
    };
    Wal::with_store(store.clone(), options).unwrap()
}

pub(crate) fn new_store() -> MemStore {
    MemStore::new(SEGMENT_BYTES).without_threads()
}

/// Gives the record at `lsn`, whose frame has as many bytes, another payload.
pub(crate) fn forge(store: &MemStore, lsn: Lsn, is_encoded: bool, payload: &[u8]) {
    let State { uuid, epoch, epoch_salt, .. } = store.reader().unwrap().state().unwrap();
    let seed = EpochSeed::new(uuid, epoch, epoch_salt);
    let checksum = crc32c_append(0, payload);
    let header = Header::new(Kind::Data, 0, payload.len() as u32, checksum);
    let header = header.encoded_if(is_encoded);
    store.damage(lsn, &header.encode(seed, lsn)).unwrap();
    store.damage(lsn.plus(24), payload).unwrap();
}

/// Reads a record whose stored bytes are `input` without its first byte, which says what the codec
/// is, and returns the length of what came of it.
///
/// # Panics
/// If a reader returns anything but a record of the length that the stored bytes claim, or a typed
/// error with the record's LSN.
pub(crate) fn read_stored_bytes(input: &[u8]) -> Result<usize> {
    let Some((&which, stored)) = input.split_first() else { return Ok(0) };
    let stored = &stored[..stored.len().min(LONGEST)];
    let store = new_store();
    let wal = open(&store, which);
    let lsn =
        wal.append_with(stored.len(), |_, bytes| bytes.copy_from_slice(stored)).unwrap().lsn();
    let next = wal.commit(b"behind it").unwrap();
    assert_eq!(wal.get(lsn).unwrap().data(), stored, "it is not encoded");
    forge(&store, lsn, true, stored);
    let claimed = stored.last_chunk().map(|len| u32::from_le_bytes(*len) as usize);
    let read = wal.get(lsn);
    let mut records = wal.records().unwrap();
    let first = records.next().map(|record| record.map(|record| record.data().to_vec()));
    match &read {
        Ok(record) => {
            assert!(!record.is_encoded() && claimed == Some(record.data().len()));
            assert!(record.data().len() <= LONGEST, "longer than any record");
            assert_eq!(first.unwrap().unwrap(), record.data());
        }
        Err(error) => {
            for error in [error, &first.unwrap_err()] {
                assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(lsn)), "{error}");
            }
            assert!(records.next().unwrap().is_none(), "an iterator ends with its error");
        }
    }
    assert_eq!(wal.records_from(next).unwrap().next().unwrap().unwrap().data(), b"behind it");
    read.map(|record| record.data().len())
}

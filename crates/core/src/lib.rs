//! The algorithms of the Palisade write-ahead log, on top of the files of `palisade-store`.
//!
//! Users depend on the crate `palisade`, which re-exports the API of both. `docs/architecture.md`
//! shows the way of a record, an open and a read through the modules.

// The models open no log.
#![cfg_attr(all(test, loom), allow(dead_code))]

mod archive;
mod buffer;
mod codec;
mod commit;
#[cfg(not(all(test, loom)))]
pub mod conformance;
pub mod copy;
mod events;
pub mod frame;
pub mod inspect;
mod log;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(all(test, loom)))]
mod open;
mod options;
mod reader;
mod recovery;
mod repair;
mod restore;
mod stats;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(feature = "serde")]
mod typed;
mod watermark;

pub use palisade_store::{
    BufferKind, Codec, CodecId, DEFAULT_FILE_MODE, Error, ErrorKind, IntoStore, Lsn, MemStore,
    Memory, MemoryKind, OnRelease, OpenMode, ReleasedSegment, Result, Uuid, crc32c_append, disk,
    file_system,
};

pub use archive::{Archive, ArchiveReader};
pub use frame::framed_bytes;
pub use log::{
    BatchTicket, Cursor, CursorStatus, Ended, Hold, PinKind, Release, Space, SpacePin, Tail,
    TailCanceller, Ticket, Wal,
};
#[cfg(not(all(test, loom)))]
pub use open::{Recovery, ReplayFrom};
pub use options::{MAX_INTERVAL, MAX_VERIFY_THREADS, Options, SyncPolicy, Verify};
pub use reader::{OwnedRecords, Record, RecordBuf, Records};
pub use recovery::{EndCause, RecoveryReport};
pub use repair::Repair;
pub use restore::{Restore, RestoreFrom};
pub use stats::{Histogram, Stats};

/// What keeps the log's bytes. A model checker sees no file, so the models have a store of their
/// own.
#[cfg(all(test, loom))]
pub(crate) use self::models::ModelStore as Store;
#[cfg(not(all(test, loom)))]
pub(crate) use palisade_store::FileStore as Store;

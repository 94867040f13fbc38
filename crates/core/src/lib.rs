//! The algorithms of the Palisade write-ahead log, without a file system.
//!
//! Users depend on the crate `palisade`, which joins this one with stores and re-exports its API.
//! `docs/architecture.md` shows the way of a record, an open and a read through the modules.

mod buffer;
mod codec;
mod commit;
pub mod copy;
mod error;
mod events;
mod format;
pub mod inspect;
mod log;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod options;
mod prefetch;
mod reader;
mod recovery;
pub mod repair;
mod stats;
pub mod store;
#[doc(hidden)]
pub mod sync;
#[cfg(feature = "serde")]
mod typed;
mod watermark;

pub use codec::{Codec, CodecId, KEY_ID_BYTES, MAX_CODEC_NAME_BYTES, check_codec};
pub use commit::SoftLimit;
pub use error::{Error, ErrorKind, Result};
pub use events::Events;
pub use format::Lsn;
pub use format::checksum::crc32c_append;
pub use format::frame::{self, framed_bytes};
pub use log::{
    Backup, BatchTicket, Cursor, CursorStatus, Ended, Hold, PinKind, Release, Space, SpacePin,
    Tail, TailCanceller, Ticket, Wal,
};
pub use memory::{Memory, MemoryKind};
pub use options::{
    MAX_BUFFER_BYTES, MAX_INTERVAL, MAX_SEGMENT_BYTES, MAX_VERIFY_THREADS, MIN_BUFFER_BYTES,
    MIN_SEGMENT_BYTES, Options, SyncPolicy, Verify, check_segment_bytes,
};
pub use reader::{OwnedRecords, Record, RecordBuf, Records};
pub use recovery::{EndCause, RecoveryReport};
pub use stats::{Histogram, Stats};
pub use store::Uuid;

//! The algorithms of the Palisade write-ahead log; no file system in here.
//!
//! Users depend on the crate `palisade`, which joins this one with stores and re-exports what
//! they need. The modules stand in the order in which a record travels: [`lsn`](Lsn) ->
//! [`frame`] -> `buffer` (reserve, copy, publish) -> `watermark` (filled) -> `commit` (written,
//! durable; leader, followers, tickets) -> [`store`] (the trait) -> `recovery` -> `reader` ->
//! `wal` (ties them together).

mod buffer;
mod checksum;
mod commit;
mod error;
pub mod frame;
pub mod inspect;
mod lsn;
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
mod ticket;
mod wal;
mod watermark;

pub use checksum::crc32c_append;
pub use error::{Error, ErrorKind, Result};
pub use frame::framed_bytes;
pub use lsn::Lsn;
pub use memory::{Memory, MemoryKind};
pub use options::{
    MAX_BUFFER_BYTES, MAX_INTERVAL, MAX_SEGMENT_BYTES, MAX_VERIFY_THREADS, MIN_BUFFER_BYTES,
    MIN_SEGMENT_BYTES, Options, RecoveryPolicy, SyncPolicy, Verify, check_segment_bytes,
};
pub use reader::{Record, RecordBuf, Records};
pub use recovery::{EndCause, RecoveryReport};
pub use stats::Stats;
pub use store::Uuid;
pub use ticket::Ticket;
pub use wal::{Replay, SegmentStart, Tail, Wal};

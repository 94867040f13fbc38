//! Palisade is an embeddable write-ahead log for storage engines. Many threads append to one log
//! without a lock, and many commits share one device sync. Recovery returns every acknowledged
//! record, and only records that were appended.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! use palisade::Wal;
//!
//! let wal = Wal::open(&folder)?;
//! let lsn = wal.commit(b"survives power loss from here on")?;
//! let ticket = wal.append(b"survives a kill from here on, by default on Linux")?;
//! assert!(ticket.lsn() > lsn);
//! ticket.wait()?; // ... and power loss from here on
//! # drop(ticket);
//!
//! let mut records = wal.records()?;
//! while let Some(record) = records.next()? {
//!     println!("{} {:?}", record.lsn(), record.data());
//! }
//! wal.close()?;
//! # Ok::<(), palisade::Error>(())
//! ```
//!
//! [`Wal`] has all calls of an open log, [`Options`] the settings. `docs/architecture.md` shows how
//! the parts work together.
//!
//! Features: `sim` adds `sim`, a simulated disk that loses power, for tests of engines. `metrics`
//! publishes [`Stats`], and `tracing` emits spans and events (`docs/observability.md`). `lz4` and
//! `zstd` add codecs that compress records; a [`Codec`] of your own can encrypt them.

mod codec;
pub mod disk;
pub mod inspect;
#[cfg(feature = "metrics")]
mod metrics;

#[cfg(feature = "lz4")]
pub use codec::Lz4;
#[cfg(feature = "zstd")]
pub use codec::Zstd;
#[cfg(feature = "metrics")]
pub use metrics::MetricsPublisher;
pub use palisade_core::copy::CopyReport;
#[doc(hidden)]
pub use palisade_core::copy::check_apart;
pub use palisade_core::copy::progress::{CopyProgress, CopyStep};
pub use palisade_core::{
    Archive, ArchiveReader, BatchTicket, BufferKind, Codec, CodecId, Cursor, CursorStatus,
    DEFAULT_FILE_MODE, EndCause, Ended, Error, ErrorKind, Histogram, Hold, IntoStore, Lsn,
    MemStore, Memory, OnRelease, OpenMode, Options, OwnedRecords, PinKind, Record, RecordBuf,
    Records, Recovery, RecoveryReport, Release, ReleasedSegment, Repair, ReplayFrom, Restore,
    RestoreFrom, Result, Space, SpacePin, Stats, SyncPolicy, Tail, TailCanceller, Ticket, Uuid,
    Verify, Wal, crc32c_append, file_system, framed_bytes,
};
#[cfg(feature = "sim")]
pub use palisade_store::sim;
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../API.md")]
struct Api;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;

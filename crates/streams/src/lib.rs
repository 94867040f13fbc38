//! Many logical logs in one write-ahead log: *streams*, for Raft groups, topics, tenants or tables.
//!
//! All streams share one [`palisade::Wal`]: one tail, one device sync for all threads that wait,
//! one recovery. A stream has a name of any bytes. Its entries have dense indexes from 0 on.
//! Truncation at both ends is one small record. A batch over several streams is atomic.
//!
//! ```
//! # fn main() -> palisade::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("palisade-streams-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&folder);
//! use palisade_streams::Streams;
//!
//! let streams = Streams::open(&folder)?;
//! let orders = streams.stream_or_create("orders")?;
//! let first = orders.append("two apples")?;
//! let second = orders.append("one pear")?;
//! second.wait()?; // one sync, also for the first
//! assert!(first.is_durable());
//! assert_eq!(orders.get(second.index())?.data(), b"one pear");
//!
//! let shipped = second.index();
//! orders.truncate_before(shipped)?.wait()?;
//! assert_eq!(orders.first_index()?, shipped);
//! # drop((first, second));
//! # streams.close()?;
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok(()) }
//! ```
//!
//! # Where to read on
//! `docs/architecture.md` has the log below.
//! `record` has the format. `directory` has the streams, and which lock orders what. `write` and
//! `read` are the calls. `footer` and `open` make an open fast. `keeper` releases, and `moves`
//! copies. `tail` and `consumer` follow streams; `hub` wakes them. `sharded` has sets of several
//! logs. For tools that do not open the log, `reader` reads it by the rules of `replay`, and
//! `verify` checks it.

mod batch;
mod consumer;
mod directory;
mod entries;
mod follow;
mod footer;
mod granted;
mod hub;
mod keeper;
#[cfg(all(test, loom))]
mod models;
mod moves;
mod open;
mod options;
mod pending;
mod positions;
mod read;
mod reader;
mod record;
mod replay;
mod segments;
mod sharded;
mod shared;
mod slot;
mod stats;
mod streams;
mod tail;
mod ticket;
mod verify;
mod write;

pub use batch::Batch;
pub use consumer::Consumer;
pub use follow::{Follow, Followed};
pub use open::OpenReport;
pub use options::Options;
pub use positions::ConsumerStatus;
pub use read::{Entry, Range};
pub use reader::{Reader, ReaderEntries, ReaderStats, StreamStatus};
pub use sharded::{Checkpoint, CheckpointInfo, MAX_SHARDS, Sharded};
pub use stats::{Pinned, Stats, StreamStats};
pub use streams::{Stream, Streams};
pub use tail::{Tail, TailAll};
pub use ticket::{BatchTicket, Ticket};
pub use verify::{BadFooter, MissingEntries, StreamsVerdict, verify, verify_on};
pub use write::{MAX_NAME_BYTES, MAX_VALUE_BYTES};

/// The examples of the page on streams, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/streams.md")]
struct Guide;

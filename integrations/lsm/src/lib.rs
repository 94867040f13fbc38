//! A key-value engine: the trees of crate [`lsm_tree`] with [`palisade`] as their log.
//!
//! `lsm-tree` has memtables, tables and compaction, and no log. This crate adds the log, and is an
//! example of how to embed it. Read it in this order:
//!
//! | file | what it has |
//! |---|---|
//! | `change.rs` | the record: one atomic batch of changes |
//! | `engine.rs` | the write path: append, apply, wait; and what snapshots keep |
//! | `maintain.rs` | flush, truncation, compaction |
//! | `space.rs` | when the log needs a flush |
//! | `flushed.rs` | the check that the tables have what was truncated from the log |
//! | `list.rs` | the check of the lists of tables |
//! | `open.rs` | recovery: open the tables, replay the log |
//! | the others | the calls for users |
//!
//! These rules make it safe:
//!
//! 1. The LSN of a record is the seqno of its changes. The engine appends and applies under one
//!    lock, so the memtables get ascending seqnos.
//! 2. A flush seals the memtables of all keyspaces at one end of the log, and writes them only when
//!    the log is durable up to there. So tables never have what the log can lose, and the log can
//!    be truncated at that end.
//! 3. A snapshot reads below the durable LSN, so it never shows what a crash can take back.
//! 4. Writers wait while the memtables or the log are full, so memory, log and replay are bounded.

mod batch;
mod change;
mod database;
mod engine;
mod error;
mod flushed;
mod keyspace;
mod list;
mod maintain;
mod open;
mod options;
#[cfg(feature = "metrics")]
mod reads;
mod snapshot;
mod space;

pub use batch::Batch;
pub use database::{Database, Stats};
pub use error::{Error, Result};
pub use keyspace::Keyspace;
pub use lsm_tree::Slice;
pub use options::{Compression, Options};
pub use palisade::{Lsn, Ticket};
#[cfg(feature = "metrics")]
pub use reads::Reads;
pub use snapshot::{Range, Snapshot};

/// The examples in the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

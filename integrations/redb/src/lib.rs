//! A storage backend for [redb](https://docs.rs/redb) that keeps its commits in a Palisade log.
//!
//! redb writes the pages of a commit to many places of one file, and syncs the file. This backend
//! collects these writes in memory. At a sync it appends all of them to the log as one change, and
//! waits for the log. From time to time it writes the pages to the file, and truncates the log: a
//! checkpoint.
//!
//! ```
//! use palisade_redb::PalisadeBackend;
//! use redb::{Database, ReadableDatabase, TableDefinition};
//!
//! const TABLE: TableDefinition<&str, u64> = TableDefinition::new("accounts");
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let parent = tempfile::tempdir()?;
//! # let path = parent.path().join("db");
//! let db = Database::builder().create_with_backend(PalisadeBackend::open(&path)?)?;
//! let transaction = db.begin_write()?;
//! transaction.open_table(TABLE)?.insert("alice", 100)?;
//! transaction.commit()?; // returned: survives power loss
//!
//! let table = db.begin_read()?.open_table(TABLE)?;
//! assert_eq!(table.get("alice")?.unwrap().value(), 100);
//! # Ok(()) }
//! ```
//!
//! # Files
//! | path | content |
//! |---|---|
//! | `db/base.redb` | the pages as of the last checkpoint, all of them after a close |
//! | `db/log/` | the log: every change since the last checkpoint |
//!
//! # After a crash
//! The storage is what it was after one of the syncs: the last one that was
//! [durable](PalisadeBackend#durability), as each commit and each close is, or a later one. It
//! never has a part of a sync. There is one exception: if a transaction changes more than
//! [`memory_bytes`](Options::memory_bytes), the backend writes pages of it to the base file before
//! the sync, as redb's own file backend does. Until the sync, redb has no reference to these pages.

mod backend;
mod base;
mod header;
mod locks;
mod options;
mod record;
mod room;
mod state;

pub use backend::PalisadeBackend;
pub use options::Options;

/// Tests the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

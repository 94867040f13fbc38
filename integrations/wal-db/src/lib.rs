//! The API of crate `wal-db` 1.1 over Palisade, so that an engine on that crate moves by one line
//! of its `Cargo.toml`:
//!
//! ```toml
//! [patch.crates-io]
//! wal-db = { path = "../palisade/integrations/wal-db" }
//! ```
//!
//! The README of this crate lists what differs, and what the author of an engine still has to do.
//!
//! ```
//! # fn main() -> wal_db::Result<()> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("wal.log");
//! use wal_db::Wal;
//!
//! let wal = Wal::open(&path)?;
//! let kept = wal.append(b"put 7")?;
//! wal.append(b"put 8")?;
//! wal.sync()?;
//! wal.truncate_after(kept)?;
//! drop(wal);
//!
//! let wal = Wal::open(&path)?;
//! let records: Vec<_> = wal.iter()?.collect::<wal_db::Result<_>>()?;
//! assert_eq!((records.len(), records[0].data()), (1, b"put 7".as_slice()));
//! # Ok(()) }
//! ```

mod anchor;
mod config;
mod error;
mod iter;
mod log;
mod lsn;
mod place;
mod record;
mod second_name;
mod shared;
mod store;
mod wal;

pub use crate::config::{OpenPolicy, RecoveryPolicy, WalConfig};
pub use crate::error::{Result, WalError};
pub use crate::iter::WalIter;
pub use crate::lsn::Lsn;
pub use crate::record::Record;
pub use crate::store::{FileStore, MemStore, SegmentedStore, WalStore};
pub use crate::wal::Wal;

/// The codec of [`Wal::append_typed`] and [`Record::decode`].
#[cfg(feature = "pack-io")]
pub use pack_io;

/// What most programs import.
pub mod prelude {
    pub use crate::{
        Lsn, OpenPolicy, Record, RecoveryPolicy, Result, Wal, WalConfig, WalError, WalStore,
    };
}

/// The example in the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

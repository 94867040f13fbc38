//! The log on files.

use std::ops::Deref;
use std::path::Path;

use palisade_store::IntoStore;

use crate::{Error, Lsn, Options, Replay, Result};

/// A write-ahead log: a handle that is cheap to clone and shared by threads.
///
/// Derefs to [`palisade_core::Wal`], which has all calls and a table of which records survive which
/// failure. A log lies in a folder of its own, and one process at a time holds it.
///
/// Dropping the last handle hands everything to the operating system. Only [`close`](Wal::close)
/// makes a clean end, after which the next open needs no scan.
#[derive(Clone, Debug)]
pub struct Wal(palisade_core::Wal);

impl Wal {
    /// Opens the log in the folder `path` with the default [`Options`]. If there is no log, creates
    /// it and the folder, but not the folder's parents.
    ///
    /// # Durability
    /// Everything that [`recovery_report`](palisade_core::Wal::recovery_report) counts as
    /// recovered survives power loss when this returns.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Wal> {
        Options::new().open(path)
    }

    /// Opens the log in `store`, for example a [`MemStore`](crate::MemStore). Ignores the settings
    /// of `options` that concern files.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// use palisade::{MemStore, Options, Wal};
    ///
    /// let store = MemStore::new(1 << 20);
    /// let wal = Wal::with_store(store.clone(), Options::new().buffer_bytes(1 << 16))?;
    /// let lsn = wal.commit(b"record")?;
    /// drop(wal);
    /// let wal = Wal::with_store(store, Options::new().buffer_bytes(1 << 16))?;
    /// assert_eq!(wal.get(lsn)?.data(), b"record");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`palisade_core::Wal::with_store`].
    pub fn with_store(store: impl IntoStore, options: Options) -> Result<Wal> {
        palisade_core::Wal::with_store(store.into_store()?, options.log()).map(Wal)
    }

    /// Opens the log as [`with_store`](Wal::with_store) does, and passes the records to `f` before
    /// any thread can append: see [`Options::open_replaying`].
    ///
    /// # Errors
    /// As [`palisade_core::Wal::with_store_replaying`].
    pub fn with_store_replaying<E: From<Error>>(
        store: impl IntoStore,
        options: Options,
        from: Option<Lsn>,
        f: impl FnMut(Replay<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Wal, E> {
        let store = store.into_store()?;
        palisade_core::Wal::with_store_replaying(store, options.log(), from, f).map(Wal)
    }

    /// Syncs everything and makes a clean end: the next open needs no scan.
    ///
    /// # Durability
    /// All appended records survive power loss when this returns.
    ///
    /// # Errors
    /// As [`palisade_core::Wal::close`].
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }
}

impl Deref for Wal {
    type Target = palisade_core::Wal;

    fn deref(&self) -> &palisade_core::Wal {
        &self.0
    }
}

use std::path::Path;
use std::sync::Arc;

use palisade::SyncPolicy;
use palisade::disk::{Disk, OsDisk};

use crate::{Database, Error, Result};

/// Settings of a database. Each has a default, and each open can set others.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// let log = palisade::Options::new().segment_bytes(16 << 20);
/// let options = palisade_lsm::Options::new().memtable_bytes(16 << 20).log(log);
/// let database = options.open(folder.path())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) memtable_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) is_background: bool,
    pub(crate) log: palisade::Options,
    /// The policy that was set in the options of the log, if the engine does what it asks for.
    pub(crate) sync_policy: SyncPolicy,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memtable_bytes: 64 << 20,
            cache_bytes: 32 << 20,
            is_background: true,
            log: palisade::Options::new(),
            sync_policy: SyncPolicy::default(),
        }
    }
}

impl Options {
    /// Returns the default settings.
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the bytes of new changes, over all keyspaces, at which the engine writes them to
    /// tables: 64 MiB by default, at least 1.
    ///
    /// The number bounds three things. A writer waits while there are twice as many bytes. The
    /// memtables hold at most four times as many, unless a [`Snapshot`](crate::Snapshot) is kept. A
    /// replay reads at most the log of four times as many.
    #[must_use]
    pub fn memtable_bytes(self, bytes: u64) -> Options {
        Options { memtable_bytes: bytes, ..self }
    }

    /// Sets the size of the cache for blocks of tables, which all keyspaces share: 32 MiB by
    /// default.
    #[must_use]
    pub fn cache_bytes(self, bytes: u64) -> Options {
        Options { cache_bytes: bytes, ..self }
    }

    /// Sets whether a thread of the engine flushes and compacts: true by default. If it is false, a
    /// writer that finds too many bytes in the memtables flushes them itself, and nothing compacts
    /// except [`Database::compact`].
    #[must_use]
    pub fn background(self, is_background: bool) -> Options {
        Options { is_background, ..self }
    }

    /// Sets the options of the log. The engine sets `first_lsn` and `open_mode` itself. A change,
    /// and a batch, must fit into one record: 8 MiB by default.
    ///
    /// The policies `Always` and `Os` are kept by the engine: each write waits for the device or
    /// for the operating system without the writers' lock, so all writers that wait share a sync.
    #[must_use]
    pub fn log(self, log: palisade::Options) -> Options {
        let mut sync_policy = SyncPolicy::default();
        let log = log.with_core(|core| {
            // The log itself would keep them within `append`, which runs under the lock.
            if matches!(core.sync_policy, SyncPolicy::Always | SyncPolicy::Os) {
                sync_policy = std::mem::take(&mut core.sync_policy);
            }
        });
        Options { log, sync_policy, ..self }
    }

    /// Opens the database in the folder `path`, or makes it, and replays the log.
    ///
    /// After `Ok` all that the database shows survives power loss. The call waits for the device.
    ///
    /// # Errors
    ///
    /// - [`Error::Log`] as `palisade::Options::open`: for example `Locked` if another process has
    ///   the database, and `Corrupt` if acknowledged records are damaged. The tables were not
    ///   changed.
    /// - [`Error::Mismatch`] if the log or tables are missing, or are not those of this database.
    /// - [`Error::Tables`], [`Error::Io`], [`Error::Unsupported`], [`Error::InvalidArgument`].
    ///
    /// A failed open loses nothing.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Database> {
        let path = path.as_ref();
        self.open_on(Arc::new(OsDisk), path.join("log"), path)
    }

    /// Opens a database whose log is in the folder `log` on `disk`, and whose tables are in the
    /// folder `path` of the operating system.
    ///
    /// A log on a device of its own, or on a simulated one, has its path here. The call blocks and
    /// promises as [`open`](Options::open).
    ///
    /// # Errors
    ///
    /// As [`open`](Options::open).
    pub fn open_on(
        &self,
        disk: Arc<dyn Disk>,
        log: impl AsRef<Path>,
        path: impl AsRef<Path>,
    ) -> Result<Database> {
        if self.memtable_bytes == 0 {
            return Err(Error::InvalidArgument("memtable_bytes must be at least 1"));
        }
        Database::open_with(self, disk, log.as_ref(), path.as_ref())
    }
}

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use lsm_tree::CompressionType;
use lsm_tree::config::BloomConstructionPolicy::{BitsPerKey, FalsePositiveRate};
use lsm_tree::config::FilterPolicyEntry::Bloom;
use lsm_tree::config::{CompressionPolicy, FilterPolicy};
use palisade::SyncPolicy;
use palisade::disk::{Disk, OsDisk};

use crate::{Database, Error, Result};

/// The range of [`Options::table_bytes`]. `lsm-tree` counts the bytes of a filter in 32 bits, which
/// a larger table of small entries exceeds.
const TABLE_BYTES: RangeInclusive<u64> = 4 << 10..=4 << 30;
/// The most of [`Options::filter_bits`]. More bits save no reads that a device would notice.
const MAX_FILTER_BITS: u8 = 32;

/// Which tables are compressed. A table keeps the form in which it was written, so each open can
/// set another one. `lsm-tree` has no other method than LZ4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// None.
    None,
    /// Those of level 2 and below, which have most of the data, with LZ4: the default. Levels count
    /// from the first one below level 0 that has tables. So a small database is raw, and tables
    /// that a compaction only moves stay raw, until `Database::compact`.
    #[default]
    Lz4Below,
    /// All, with LZ4.
    Lz4,
}

impl Compression {
    /// The method of each level; the last one is that of all further levels.
    pub(crate) fn policy(self) -> CompressionPolicy {
        match self {
            Compression::None => CompressionPolicy::disabled(),
            Compression::Lz4Below => CompressionPolicy::new([
                CompressionType::None,
                CompressionType::None,
                CompressionType::Lz4,
            ]),
            Compression::Lz4 => CompressionPolicy::all(CompressionType::Lz4),
        }
    }
}

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
    pub(crate) table_bytes: u64,
    pub(crate) compression: Compression,
    pub(crate) filter_bits: u8,
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
            table_bytes: 64 << 20,
            compression: Compression::default(),
            filter_bits: 10,
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
    /// memtables hold at most four times as many, unless a [`Snapshot`](crate::Snapshot) or a
    /// [`Range`](crate::Range) is kept. So a replay applies at most four times as many. One change
    /// or batch can come on top of each.
    ///
    /// It bounds the log, too, which after some crashes has many segments with few records. A flush
    /// is also due when the log has more segments than twice as many bytes fill, plus two, or more
    /// than half of its `max_bytes`; and at an open, if it has more than its records fill, plus
    /// two. A writer waits while the log has twice as many segments as the first two rules allow,
    /// or all but one of its `max_bytes`. What a tail, a hold or a cursor of the log
    /// keeps comes on top.
    #[must_use]
    pub fn memtable_bytes(self, bytes: u64) -> Options {
        Options { memtable_bytes: bytes, ..self }
    }

    /// Sets the size of the cache for blocks of tables, which all keyspaces share: 32 MiB by
    /// default. With 0 there is no cache, and each read of a block asks the operating system.
    #[must_use]
    pub fn cache_bytes(self, bytes: u64) -> Options {
        Options { cache_bytes: bytes, ..self }
    }

    /// Sets the size at which a compaction begins a new table: 64 MiB by default, from 4 KiB to
    /// 4 GiB. The levels grow with it: level 1 has at most four times as many bytes.
    ///
    /// A flush begins a new table at 64 MiB, whatever this option says.
    #[must_use]
    pub fn table_bytes(self, bytes: u64) -> Options {
        Options { table_bytes: bytes, ..self }
    }

    /// Sets which tables are compressed: [`Compression::Lz4Below`] by default.
    #[must_use]
    pub fn compression(self, compression: Compression) -> Options {
        Options { compression, ..self }
    }

    /// Sets how many bits for each key the filters of tables have: 10 by default, at most 32. With
    /// 0 tables have no filters. A filter answers most reads of a key that the table does not have.
    ///
    /// Tables of level 0 have filters with about 19 bits, unless there are none. A table keeps the
    /// filter with which it was written.
    #[must_use]
    pub fn filter_bits(self, bits: u8) -> Options {
        Options { filter_bits: bits, ..self }
    }

    /// Sets whether a thread of the engine flushes and compacts: true by default. If it is false, a
    /// writer that finds too many bytes in the memtables, or too many segments in the log, flushes
    /// them itself, and nothing compacts except [`Database::compact`].
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
        match log.buffer_and_policy().1 {
            // The log itself would keep them within `append`, which runs under the lock.
            sync_policy @ (SyncPolicy::Always | SyncPolicy::Os) => {
                Options { log: log.sync_policy(SyncPolicy::default()), sync_policy, ..self }
            }
            _ => Options { log, sync_policy: SyncPolicy::default(), ..self },
        }
    }

    /// Opens the database in the folder `path`, or makes it, and replays the log. The folder that
    /// holds `path` must exist.
    ///
    /// After `Ok` all that the database shows survives power loss. The call waits for the device.
    ///
    /// # Errors
    ///
    /// - [`Error::Log`] as `palisade::Options::open`: for example `Locked` if the database is open,
    ///   or was closed and has other handles, and `Corrupt` if acknowledged records are damaged.
    ///   The tables were not changed.
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
        self.validate()?;
        Database::open_with(self, disk, log.as_ref(), path.as_ref())
    }

    /// The filter of each level; the last one is that of all further levels.
    pub(crate) fn filters(&self) -> FilterPolicy {
        if self.filter_bits == 0 {
            return FilterPolicy::disabled();
        }
        // As in fjall, which spends memory on the filters of new tables: a read asks each of them.
        let below = BitsPerKey(f32::from(self.filter_bits));
        FilterPolicy::new([Bloom(FalsePositiveRate(0.0001)), Bloom(below)])
    }

    fn validate(&self) -> Result<()> {
        if self.memtable_bytes == 0 {
            return Err(Error::InvalidArgument("memtable_bytes must be at least 1"));
        }
        if !TABLE_BYTES.contains(&self.table_bytes) {
            return Err(Error::InvalidArgument("table_bytes must be from 4 KiB to 4 GiB"));
        }
        if self.filter_bits > MAX_FILTER_BITS {
            return Err(Error::InvalidArgument("filter_bits must be at most 32"));
        }
        Ok(())
    }
}

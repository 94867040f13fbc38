use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use lsm_tree::Slice;
use palisade::{Lsn, Ticket};

use crate::change::Change;
use crate::engine::Tables;
use crate::{Database, Range, Result};

/// A keyspace: an ordered map from keys of 1 to 65 535 bytes to values.
///
/// The reads of a keyspace return the newest state: also changes that are not durable yet, and that
/// a crash can take back. A [`Snapshot`](crate::Snapshot) from [`Database::snapshot`] has only
/// durable ones.
///
/// There are two kinds of writes:
///
/// - [`put`](Keyspace::put) and [`delete`](Keyspace::delete) are durable: after `Ok` the change
///   survives power loss.
/// - [`append_put`](Keyspace::append_put) and [`append_delete`](Keyspace::append_delete) return a
///   ticket. After `Ok` the change survives a kill of the process, if the log has a shared buffer
///   (the default on Linux). After `wait` or `.await` of the ticket it survives power loss.
///
/// A clone is another handle.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) number: u32,
    // Dropped before the database, which keeps other opens from the tables: the drop may remove
    // tables that a compaction has replaced.
    pub(crate) tables: Arc<Tables>,
    database: Database,
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keyspace").field(&self.tables).finish()
    }
}

impl Keyspace {
    pub(crate) fn new(database: Database, number: u32, tables: Arc<Tables>) -> Keyspace {
        Keyspace { database, number, tables }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.tables.name
    }

    /// Returns the database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Gives `key` the value, and returns the LSN of the change. After `Ok` the change survives
    /// power loss. The call waits for the device; all writers that wait share a sync. It also waits
    /// while the memtables are full.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a key that is empty or too
    ///   long.
    /// - [`Error::Log`](crate::Error::Log): `TooLarge`, `NoSpace` and others as `Wal::commit`. If
    ///   the log's error has an `appended_lsn()`, the change is visible, and may or may not be
    ///   there after a crash. After `NoSpace` the next [`Database::flush`] or [`Database::sync`]
    ///   that succeeds makes it durable. At `max_bytes` the call flushes before it returns this.
    /// - [`Error::Stopped`](crate::Error::Stopped) after a flush or a compaction has failed.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Lsn> {
        self.database.engine().wait(&self.append_put(key, value)?)
    }

    /// Removes `key`, whether it is there or not. Promises, waits and fails as
    /// [`put`](Keyspace::put).
    ///
    /// # Errors
    ///
    /// As [`put`](Keyspace::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Lsn> {
        self.database.engine().wait(&self.append_delete(key)?)
    }

    /// Gives `key` the value, and returns a ticket to wait for. After `Ok` the change is visible,
    /// and survives [a kill](Keyspace). The call waits while the memtables are full,
    /// and else as `Wal::append`.
    ///
    /// If a wait for the ticket returns `NoSpace`, call [`Database::flush`], and wait again.
    ///
    /// # Errors
    ///
    /// As [`put`](Keyspace::put).
    pub fn append_put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Ticket<'_>> {
        self.append(key.as_ref(), Some(value.as_ref()))
    }

    /// Removes `key`, whether it is there or not, and returns a ticket to wait for. Promises, waits
    /// and fails as [`append_put`](Keyspace::append_put).
    ///
    /// # Errors
    ///
    /// As [`put`](Keyspace::put).
    pub fn append_delete(&self, key: impl AsRef<[u8]>) -> Result<Ticket<'_>> {
        self.append(key.as_ref(), None)
    }

    fn append(&self, key: &[u8], value: Option<&[u8]>) -> Result<Ticket<'_>> {
        let mut record = Vec::new();
        Change { keyspace: self.number, key, value }.encode(&mut record)?;
        self.database.engine().append(&record)
    }

    /// Returns the newest value of `key`, durable or not. The call reads tables if the memtables do
    /// not have the key. While another thread applies a batch, the newest values can be a part of
    /// it; a snapshot has whole batches.
    ///
    /// # Errors
    ///
    /// [`Error::Tables`](crate::Error::Tables) if a table cannot be read.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.tables.get(key.as_ref(), u64::MAX)
    }

    /// Returns the newest keys in `range` and their values, as they are at this moment, in order.
    /// The iterator reads tables.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let database = palisade_lsm::Database::open(folder.path())?;
    /// let names = database.create_keyspace("names")?;
    /// for name in ["ada", "bob", "eve"] {
    ///     names.append_put(name, "")?;
    /// }
    /// let found = names.range("b"..).map(|pair| pair.map(|(name, _)| name));
    /// assert_eq!(found.collect::<Result<Vec<_>, _>>()?, [b"bob", b"eve"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        self.database.newest_snapshot().range_of(&self.tables, range)
    }

    /// Returns the newest keys that begin with `prefix` and their values, as they are at this
    /// moment, in order. The iterator reads tables.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.database.newest_snapshot().prefix_of(&self.tables, prefix)
    }
}

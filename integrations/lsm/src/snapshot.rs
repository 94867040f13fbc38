use std::fmt;
use std::ops::{Bound, RangeBounds};

use lsm_tree::{AbstractTree, Guard, IterGuardImpl, Slice};
use palisade::Lsn;

use crate::change::MAX_KEY_BYTES;
use crate::engine::{Engine, Tables};
use crate::{Database, Error, Keyspace, Result};

/// The database at one moment. Later changes do not show in it, and of each batch it has all or
/// nothing.
///
/// [`Database::snapshot`] returns one at the durable LSN, so it never shows what a crash can take
/// back.
///
/// A snapshot keeps the old versions of keys, and in memory all memtables that were flushed since
/// it was made. So do not keep one for long: a large scan needs only the iterator, which stays
/// valid after the drop of the snapshot.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let database = palisade_lsm::Database::open(folder.path())?;
/// # let accounts = database.create_keyspace("accounts")?;
/// accounts.put("alice", "90")?;
/// let before = database.snapshot();
/// accounts.put("alice", "80")?;
/// assert_eq!(before.get(&accounts, "alice")?.as_deref(), Some(b"90".as_slice()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Snapshot {
    database: Database,
    at: u64,
}

impl Snapshot {
    pub(crate) fn new(database: Database, at: impl FnOnce(&Engine) -> u64) -> Snapshot {
        let at = database.engine().pin(at);
        Snapshot { database, at }
    }

    /// Returns the LSN of the snapshot: it has all changes below.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        Lsn::new(self.at)
    }

    /// Returns whether all changes of the snapshot are durable. If it is false, [`Database::sync`]
    /// makes them durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.at <= self.database.engine().horizon()
    }

    /// Returns the value that `key` had. The call reads tables if the memtables do not have the
    /// key.
    ///
    /// # Errors
    ///
    /// [`Error::Tables`] if a table cannot be read.
    ///
    /// # Panics
    ///
    /// If the keyspace is one of another database. So do the other calls.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.tables(keyspace).get(key.as_ref(), self.at)
    }

    /// Returns the keys in `range` and their values, in order. The iterator reads tables.
    ///
    /// # Panics
    ///
    /// As [`get`](Snapshot::get).
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Range {
        self.range_of(self.tables(keyspace), range)
    }

    /// Returns the keys that begin with `prefix` and their values, in order. The iterator reads
    /// tables.
    ///
    /// # Panics
    ///
    /// As [`get`](Snapshot::get).
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Range {
        self.prefix_of(self.tables(keyspace), prefix)
    }

    fn tables<'k>(&self, keyspace: &'k Keyspace) -> &'k Tables {
        assert!(keyspace.database().is_same(&self.database), "a keyspace of another database");
        &keyspace.tables
    }

    pub(crate) fn range_of<K: AsRef<[u8]>>(
        &self,
        tables: &Tables,
        range: impl RangeBounds<K>,
    ) -> Range {
        let bounds = (start_of(range.start_bound()), end_of(range.end_bound()));
        self.items_of(tables, tables.tree.range::<&[u8], _>(bounds, self.at, None))
    }

    fn items_of(&self, tables: &Tables, items: Items) -> Range {
        Range { items, path: tables.path.clone(), _database: self.database.clone() }
    }

    pub(crate) fn prefix_of(&self, tables: &Tables, prefix: impl AsRef<[u8]>) -> Range {
        if prefix.as_ref().len() > MAX_KEY_BYTES {
            return self.items_of(tables, Box::new(std::iter::empty()));
        }
        self.items_of(tables, tables.tree.prefix(prefix, self.at, None))
    }
}

/// Cuts a bound to the length of the longest key: `lsm-tree` takes none that is longer. No key lies
/// between such a bound and the cut one.
fn start_of<K: AsRef<[u8]>>(bound: Bound<&K>) -> Bound<&[u8]> {
    match bound.map(AsRef::as_ref) {
        Bound::Included(key) | Bound::Excluded(key) if key.len() > MAX_KEY_BYTES => {
            Bound::Excluded(&key[..MAX_KEY_BYTES])
        }
        bound => bound,
    }
}

/// As `start_of`, for the end of a range.
fn end_of<K: AsRef<[u8]>>(bound: Bound<&K>) -> Bound<&[u8]> {
    match bound.map(AsRef::as_ref) {
        Bound::Included(key) | Bound::Excluded(key) if key.len() > MAX_KEY_BYTES => {
            Bound::Included(&key[..MAX_KEY_BYTES])
        }
        bound => bound,
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.database.engine().release(self.at);
    }
}

/// An iterator over keys and values, in order, from both ends. It shows one moment, and keeps what
/// it needs of the tables and memtables. It is a handle of the database.
///
/// An item is [`Error::Tables`] if a table cannot be read.
pub struct Range {
    // Dropped first: it may remove tables that a compaction has replaced.
    items: Items,
    path: std::path::PathBuf,
    /// Keeps other opens from the tables.
    _database: Database,
}

type Items = Box<dyn DoubleEndedIterator<Item = IterGuardImpl> + Send>;

impl Range {
    fn item(&self, item: IterGuardImpl) -> Result<(Slice, Slice)> {
        item.into_inner().map_err(Error::tables(&self.path))
    }
}

impl Iterator for Range {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.items.next()?;
        Some(self.item(item))
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        let item = self.items.next_back()?;
        Some(self.item(item))
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").field("path", &self.path).finish_non_exhaustive()
    }
}

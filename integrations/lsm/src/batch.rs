use palisade::{Lsn, Ticket};

use crate::change::Change;
use crate::{Database, Error, Keyspace, Result};

/// Changes of several keys and keyspaces, which happen all or not at all. The batch is one record
/// of the log. If it changes a key twice, the second change counts.
#[derive(Clone, Debug)]
pub struct Batch {
    database: Database,
    record: Vec<u8>,
}

impl Batch {
    pub(crate) fn new(database: Database) -> Batch {
        Batch { database, record: Vec::new() }
    }

    /// Adds a change to the batch: `key` gets the value.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a key that is empty or too long, or a keyspace of another
    /// database. The batch stays as it was.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add(keyspace, key.as_ref(), Some(value.as_ref()))
    }

    /// Adds a change to the batch: `key` is removed.
    ///
    /// # Errors
    ///
    /// As [`put`](Batch::put).
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(keyspace, key.as_ref(), None)
    }

    fn add(&mut self, keyspace: &Keyspace, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if !keyspace.database().is_same(&self.database) {
            return Err(Error::InvalidArgument("the keyspace is one of another database"));
        }
        Change { keyspace: keyspace.number, key, value }.encode(&mut self.record)
    }

    /// Makes the changes, and returns their LSN. After `Ok` all of them survive power loss; after a
    /// crash during the call all or none are there. The call waits as [`Keyspace::put`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::put`]; [`Error::InvalidArgument`] for an empty batch.
    pub fn commit(&self) -> Result<Lsn> {
        self.database.engine().wait(&self.append()?)
    }

    /// Makes the changes, and returns a ticket to wait for. Promises, waits and fails as
    /// [`Keyspace::append_put`], for all changes or none.
    ///
    /// # Errors
    ///
    /// As [`commit`](Batch::commit).
    pub fn append(&self) -> Result<Ticket<'_>> {
        if self.record.is_empty() {
            return Err(Error::InvalidArgument("the batch is empty"));
        }
        self.database.engine().append(&self.record)
    }
}

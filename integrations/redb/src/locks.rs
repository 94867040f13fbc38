//! redb's locks of a storage. The lock of the log's folder keeps other storages away. These locks
//! keep the databases on handles of one storage from each other.

use std::collections::BTreeMap;

/// The lock of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// That of a database that only reads.
    Shared,
    Exclusive,
}

/// The locks of all handles of a storage.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    next_handle: u64,
    held: BTreeMap<u64, Lock>,
    /// Whether the last database was closed, and the log with it: no handle gets a lock any more.
    pub(crate) is_closed: bool,
}

impl Locks {
    /// Returns the number of a new handle.
    pub(crate) fn add_handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    /// Gives the handle the lock, and returns true, if no other lock is in the way.
    pub(crate) fn try_take(&mut self, handle: u64, lock: Lock) -> bool {
        let is_shared = lock == Lock::Shared && self.held.values().all(|&held| held == lock);
        let is_free = self.held.is_empty() || (is_shared && !self.held.contains_key(&handle));
        if is_free {
            self.held.insert(handle, lock);
        }
        is_free
    }

    pub(crate) fn release(&mut self, handle: u64) {
        self.held.remove(&handle);
    }

    /// Whether any handle has a lock.
    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }
}

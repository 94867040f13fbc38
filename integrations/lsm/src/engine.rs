//! The engine below all handles: the write path.
//!
//! A write takes three steps. Steps 1 and 2 run under one lock, so the memtables get the changes in
//! the order of the log. Step 3 runs without it, so all writers that wait share a sync.
//!
//! 1. Append the changes as one record. Its LSN is their seqno: a batch has one seqno.
//! 2. Put the changes into the memtables. Then they are visible to reads of the newest state.
//! 3. Wait until the record is durable, if the caller or the sync policy asks for it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use lsm_tree::{AbstractTree, AnyTree, Slice, TableId};
use palisade::{ErrorKind, Lsn, SyncPolicy, Ticket, Wal};

use crate::change::{self, Change, MAX_KEY_BYTES};
use crate::open::{Setup, TablesLock};
use crate::space::Segments;
use crate::{Error, Options, Result};

/// The memtables and tables of one keyspace.
pub(crate) struct Tables {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) tree: AnyTree,
}

impl Tables {
    /// Puts a change into the memtable. Returns the bytes that it takes there.
    pub(crate) fn apply(&self, lsn: Lsn, change: &Change<'_>) -> u64 {
        let (bytes, _) = match change.value {
            Some(value) => self.tree.insert(change.key, value, lsn.as_u64()),
            None => self.tree.remove(change.key, lsn.as_u64()),
        };
        bytes
    }

    /// Returns the value that `key` had at `at`.
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Result<Option<Slice>> {
        if key.len() > MAX_KEY_BYTES {
            return Ok(None); // `lsm-tree` would panic
        }
        self.tree.get(key, at).map_err(Error::tables(&self.path))
    }

    /// Returns the bytes of the data blocks of the tables that have this number or a later one.
    /// `lsm-tree` counts its tables upwards, so those are the ones that were written since.
    pub(crate) fn bytes_from(&self, table: TableId) -> u64 {
        let version = self.tree.current_version();
        let written = version.iter_tables().filter(|written| written.id() >= table);
        written.map(|written| written.metadata.file_size).sum()
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("name", &self.name).field("path", &self.path).finish()
    }
}

/// What the writers' lock guards.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The LSN of the last record that the memtables have.
    pub(crate) last: Lsn,
    /// The end of that record.
    pub(crate) end: Lsn,
    /// The bytes in the memtables that no flush has taken yet.
    pub(crate) active_bytes: u64,
    /// The bytes in the memtables that a flush has taken and not written yet.
    pub(crate) sealed_bytes: u64,
    pub(crate) segments: Segments,
    /// Whether the last flush lacked space or file descriptors for the log. Then a writer that
    /// needs room tries again, and gets the error if it fails, too.
    pub(crate) is_short: bool,
    /// How often a writer has waited for a flush.
    pub(crate) stalls: u64,
    /// The bytes of data blocks that flushes have written since the open.
    pub(crate) flushed_bytes: u64,
    /// The bytes of data blocks that compactions have written since the open.
    pub(crate) compacted_bytes: u64,
    pub(crate) is_compaction_due: bool,
    pub(crate) is_closed: bool,
    /// Why a flush or a compaction failed. There is no write after it.
    pub(crate) failure: Option<Arc<Error>>,
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) wal: Wal,
    pub(crate) options: Options,
    pub(crate) setup: Setup,
    /// The keyspaces by their numbers. Number 0 is the catalogue.
    pub(crate) keyspaces: RwLock<Vec<Arc<Tables>>>,
    /// One thread creates a keyspace at a time.
    pub(crate) creation: Mutex<()>,
    pub(crate) writer: Mutex<Writer>,
    /// Wakes writers that wait for a flush.
    pub(crate) room: Condvar,
    /// Wakes the thread that flushes and compacts.
    pub(crate) work: Condvar,
    /// One thread flushes or compacts at a time.
    pub(crate) maintenance: Mutex<()>,
    /// The end of the last record that the memtables have, for readers without the writers' lock.
    pub(crate) applied: AtomicU64,
    /// How many snapshots there are at each LSN.
    pub(crate) snapshots: Mutex<BTreeMap<u64, usize>>,
    /// A close frees the log, and handles use the tables after it. So this is dropped last.
    pub(crate) _tables_lock: TablesLock,
}

/// # Panics
///
/// If a thread panicked while it held the lock: then the memtables may lack a record of the log.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds the lock")
}

/// Locks also after a panic, as a drop has to: what the lock guards can always be used to end and
/// to release.
pub(crate) fn lock_in_drop<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Appends `record`, applies its changes, and does what the sync policy asks for.
    pub(crate) fn append(&self, record: &[u8]) -> Result<Ticket<'_>> {
        let ticket = match self.append_and_apply(record) {
            Err(Error::Log(error)) if error.appended_lsn().is_none() && self.has_freed(&error) => {
                self.append_and_apply(record)?
            }
            appended => appended?,
        };
        match self.options.sync_policy {
            SyncPolicy::Always => drop(self.wait(&ticket)?),
            SyncPolicy::Os => {
                let flushed = self.with_space(|| self.wal.flush_to_os(ticket.lsn()));
                flushed.map_err(|error| error.after_append(ticket.lsn()))?;
            }
            _ => {}
        }
        Ok(ticket)
    }

    /// Waits until the record survives power loss, and returns its LSN.
    pub(crate) fn wait(&self, ticket: &Ticket<'_>) -> Result<Lsn> {
        Ok(self.with_space(|| ticket.wait())?)
    }

    /// Calls `call`, and calls once more if it lacked space that a flush has freed.
    pub(crate) fn with_space<T>(
        &self,
        call: impl Fn() -> palisade::Result<T>,
    ) -> palisade::Result<T> {
        match call() {
            Err(error) if self.has_freed(&error) => call(),
            called => called,
        }
    }

    /// Flushes if `max_bytes` keeps the log from a call: a flush truncates the log. A disk that is
    /// full may have no space for its tables. Returns whether the call can succeed now.
    fn has_freed(&self, error: &palisade::Error) -> bool {
        let is_limit = error.kind() == ErrorKind::NoSpace && error.io_kind().is_none();
        is_limit && self.flush().is_ok()
    }

    fn append_and_apply(&self, record: &[u8]) -> Result<Ticket<'_>> {
        let mut writer = self.writer_with_room()?;
        let appended = self.wal.append_tagged(change::TAG, record);
        let lsn = match &appended {
            Ok(ticket) => ticket.lsn(),
            // With an appended LSN the record is in the log, so the memtables must have it, too.
            Err(error) => error.appended_lsn().ok_or_else(|| error.clone())?,
        };
        let keyspaces = self.keyspaces();
        for change in change::decode(record).flatten() {
            writer.active_bytes += keyspaces[change.keyspace as usize].apply(lsn, &change);
        }
        // No other thread appends, so the end of the log is the end of the record.
        (writer.last, writer.end) = (lsn, self.wal.reserved_lsn());
        // Release: a reader that sees this end sees the changes in the memtables.
        self.applied.store(writer.end.as_u64(), Ordering::Release);
        if self.is_flush_due(&writer) {
            self.work.notify_one();
        }
        Ok(appended?)
    }

    pub(crate) fn is_flush_due(&self, writer: &Writer) -> bool {
        writer.active_bytes >= self.options.memtable_bytes
            || writer.segments.is_flush_due(writer.end)
    }

    /// Whether a writer need not wait for the background thread. After a close no thread makes
    /// room, and the log refuses the record.
    fn has_room(&self, writer: &Writer) -> bool {
        let most = self.options.memtable_bytes.saturating_mul(2);
        writer.is_closed
            || (writer.active_bytes < most
                && writer.active_bytes + writer.sealed_bytes < most.saturating_mul(2)
                && !writer.segments.is_full(writer.end))
    }

    /// Returns the writers' lock when the memtables and the log have room. Without a background
    /// thread the caller makes the room.
    fn writer_with_room(&self) -> Result<MutexGuard<'_, Writer>> {
        let is_background = self.options.is_background;
        let mut writer = lock(&self.writer);
        loop {
            if let Some(failure) = &writer.failure {
                return Err(Error::Stopped(Arc::clone(failure)));
            }
            let has_room =
                if is_background { self.has_room(&writer) } else { !self.is_flush_due(&writer) };
            if has_room {
                return Ok(writer);
            }
            if is_background && !writer.is_short {
                writer.stalls += 1;
                writer = self.room.wait(writer).expect("no thread panics with the lock");
            } else {
                drop(writer);
                self.flush()?;
                writer = lock(&self.writer);
            }
        }
    }

    pub(crate) fn keyspaces(&self) -> RwLockReadGuard<'_, Vec<Arc<Tables>>> {
        self.keyspaces.read().expect("no thread panics while it holds the lock")
    }

    pub(crate) fn add(&self, tables: Arc<Tables>) {
        let keyspaces = self.keyspaces.write();
        keyspaces.expect("no thread panics while it holds the lock").push(tables);
    }

    /// The LSN below which all records are applied.
    pub(crate) fn applied(&self) -> u64 {
        // Acquire, with the Release in `append`.
        self.applied.load(Ordering::Acquire)
    }

    /// The LSN below which all records are durable and applied: a crash takes none of them back.
    pub(crate) fn horizon(&self) -> u64 {
        self.applied().min(self.wal.durable_lsn().as_u64())
    }

    /// Keeps the versions that a reader at the returned LSN needs, until `release`.
    pub(crate) fn pin(&self, at: impl FnOnce(&Engine) -> u64) -> u64 {
        // The lock orders this with `watermark`: no LSN that is taken later is below a watermark.
        let mut snapshots = lock(&self.snapshots);
        let at = at(self);
        *snapshots.entry(at).or_default() += 1;
        at
    }

    pub(crate) fn release(&self, at: u64) {
        let mut snapshots = lock_in_drop(&self.snapshots);
        if let Some(count) = snapshots.get_mut(&at) {
            *count -= 1;
        }
        snapshots.retain(|_, count| *count > 0);
    }

    /// The LSN below which no reader needs an older version of a key. Flushes and compactions drop
    /// those.
    pub(crate) fn watermark(&self) -> u64 {
        let snapshots = lock(&self.snapshots);
        snapshots.keys().next().map_or(u64::MAX, |at| *at).min(self.horizon())
    }
}

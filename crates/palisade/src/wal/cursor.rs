//! Cursors: tails whose positions have names and survive restarts.

use super::Wal;
use crate::{Cursor, CursorStatus, Lsn, Result};

impl Wal {
    /// Makes a cursor that begins at `from`, or at the head, and opens it. Waits until all records
    /// below `from` are durable. A log has at most 64 cursors; a name has 1 to 32 bytes.
    ///
    /// The log keeps all records from the cursor's saved position on, even if the cursor is not
    /// open, as long as at most `max_lag` bytes of log are above the position:
    /// [`truncate_before`](Wal::truncate_before) moves the head at most to the position. LSNs that
    /// a crash or a truncation of the suffix skipped do not count. With 0 the cursor keeps nothing;
    /// with `u64::MAX` a reader that never returns fills the disk. A cursor whose records were
    /// truncated gets `Lagged`.
    ///
    /// A cursor keeps its `max_lag`. For another one, drop it, call
    /// [`remove_cursor`](Wal::remove_cursor), and make it again at its position. Call no
    /// `truncate_before` meanwhile, because nothing keeps the records.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// use std::time::Duration;
    ///
    /// let mut cursor = wal.create_cursor("index", None, 1 << 30)?;
    /// wal.commit(b"put 7")?;
    /// while let Some(record) = cursor.next(Duration::ZERO)? {
    ///     println!("{}", record.data().escape_ascii()); // process it, then:
    ///     cursor.confirm();
    /// }
    /// cursor.save()?; // from here on a crash repeats none of these records
    /// # Ok(()) }
    /// ```
    ///
    /// # Durability
    /// The cursor survives power loss when this returns.
    ///
    /// # Errors
    /// `AlreadyExists`: use [`cursor`](Wal::cursor). `InvalidArgument`: the name cannot be used, or
    /// the log has 64 cursors. `NotARecord`, `OutOfRange`, `Truncated`: `from` is no position, as
    /// for [`tail_from`](Wal::tail_from). `NoSpace`, `NoFiles`, `Io`, `PermissionDenied`,
    /// `NotFound`: the state could not be saved, but the next open may find the cursor. `Locked`:
    /// another thread opened the cursor as soon as it was there. `Closed`, `Poisoned`, `Forked`.
    pub fn create_cursor(&self, name: &str, from: Option<Lsn>, max_lag: u64) -> Result<Cursor> {
        self.0.create_cursor(name, from, max_lag)
    }

    /// Opens the cursor with this name. It begins where [`confirm`](Cursor::confirm),
    /// [`save`](Cursor::save) or [`seek`](Cursor::seek) left it since the log was opened, else at
    /// its saved position. It returns each record at least once: after a crash those again that
    /// were not confirmed, or confirmed and not saved.
    ///
    /// If the log no longer has the position, the call returns the cursor, and its
    /// [`next`](Cursor::next) returns the error, so that [`seek`](Cursor::seek) can repair it.
    ///
    /// # Errors
    /// `NotFound`: there is no such cursor. `Locked`: it is open already. `NoSpace`, `NoFiles`,
    /// `Io`, `Corrupt`: as [`tail_from`](Wal::tail_from). `Closed`, `Poisoned`, `Forked`.
    pub fn cursor(&self, name: &str) -> Result<Cursor> {
        self.0.cursor(name)
    }

    /// Removes a cursor that is not open. The log no longer keeps anything for it.
    ///
    /// # Errors
    /// `NotFound`, `Locked`: as [`cursor`](Wal::cursor). `NoSpace`, `NoFiles`, `Io`,
    /// `PermissionDenied`, or `NotFound` of the log's folder: the state could not be saved, and the
    /// cursor stays, but the next open may find it removed. `Closed`, `Poisoned`, `Forked`.
    pub fn remove_cursor(&self, name: &str) -> Result<()> {
        self.0.remove_cursor(name)
    }

    /// Returns all cursors, by name. Waits for no device.
    ///
    /// # Errors
    /// `Forked`.
    pub fn cursors(&self) -> Result<Vec<CursorStatus>> {
        self.0.cursors()
    }
}

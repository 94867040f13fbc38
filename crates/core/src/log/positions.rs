//! The positions of cursors.
//!
//! An open cursor notes in memory how far its reader has confirmed; each save of the state takes
//! that over. A crash can only take a position back, so each record is returned at least once. A
//! truncation of the prefix moves the head at most to the lowest position of the cursors that do
//! not lag too much, in the state that it saves.
//!
//! A position is the begin or end of a record, or the head. At the end of an epoch it is not the
//! next base, because an open forgets an epoch without records. All below was durable when it was
//! saved.

use std::collections::BTreeMap;

use palisade_store::sync::Mutex;
use palisade_store::{MAX_CURSOR_NAME_BYTES, MAX_CURSORS, SavedCursor, State};

use super::{Cursor, Handle, Wal};
use crate::{Error, ErrorKind, Lsn, Result};

#[derive(Debug, Default)]
pub(super) struct Confirmations(Mutex<BTreeMap<String, Confirmation>>);

#[derive(Clone, Copy, Debug)]
struct Confirmation {
    position: Lsn,
    /// If not, the position waits for a save.
    is_open: bool,
}

impl Confirmations {
    pub(super) fn note_in(&self, state: &mut State) {
        let known = self.0.lock();
        for cursor in &mut state.cursors {
            if let Some(confirmation) = known.get(&cursor.name) {
                cursor.position = confirmation.position;
            }
        }
    }

    /// Forgets the cursors that the saved `state` lacks, and the closed ones whose positions it
    /// has.
    pub(super) fn forget_saved(&self, state: &State) {
        let saved = |name: &str| state.cursors.iter().find(|cursor| cursor.name == name);
        self.0.lock().retain(|name, confirmation| {
            let saved = saved(name);
            saved.is_some_and(|saved| {
                confirmation.is_open || confirmation.position != saved.position
            })
        });
    }

    pub(super) fn confirm(&self, name: &str, position: Lsn) {
        if let Some(confirmation) = self.0.lock().get_mut(name) {
            confirmation.position = position;
        }
    }

    pub(super) fn leave(&self, name: &str) {
        if let Some(confirmation) = self.0.lock().get_mut(name) {
            confirmation.is_open = false;
        }
    }
}

/// How far a cursor has come: see `Wal::cursors`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CursorStatus {
    /// Its name.
    pub name: String,
    /// The saved position: a crash makes the cursor continue here.
    pub position: Lsn,
    /// Bytes of the log from the position to the end, without skipped LSNs.
    pub lag: u64,
    /// The greatest lag with which the cursor keeps the log.
    pub max_lag: u64,
    /// Whether the log is kept from the position, or the first record above it, on.
    pub keeps_the_log: bool,
    /// Whether this process has it open. From an `Inspector`: false.
    pub is_open: bool,
}

impl CursorStatus {
    pub(crate) fn of(cursor: SavedCursor, lag: u64, is_open: bool) -> CursorStatus {
        CursorStatus {
            is_open,
            lag,
            max_lag: cursor.max_lag,
            keeps_the_log: cursor.keeps(lag),
            position: cursor.position,
            name: cursor.name,
        }
    }
}

impl Wal {
    /// Makes a cursor that begins at `from`, or at the head, and opens it. Waits until all records
    /// below `from` are durable. A log has at most 64 cursors; a name has 1 to 32 bytes.
    ///
    /// The log keeps all records from the cursor's saved position on, also while it is not open, as
    /// long as its [lag](CursorStatus::lag) is at most `max_lag` bytes. With 0 it keeps nothing;
    /// with `u64::MAX` a reader that never returns fills the disk. To change `max_lag`,
    /// [remove](Wal::remove_cursor) the cursor and make it again at its position, without a
    /// [`truncate_before`](Wal::truncate_before) meanwhile.
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
    /// The cursor survives power loss.
    ///
    /// # Errors
    /// `AlreadyExists`: use [`cursor`](Wal::cursor). `InvalidArgument`: also if the log has 64
    /// cursors. `NotARecord`, `OutOfRange`, `Truncated`: as [`tail_from`](Wal::tail_from).
    /// `Locked`: another thread opened it first. `NoSpace`, `NoFiles`, `Io`, `PermissionDenied`,
    /// `NotFound`: the next open may find it.
    pub fn create_cursor(&self, name: &str, from: Option<Lsn>, max_lag: u64) -> Result<Cursor> {
        self.check_open()?;
        let mut cursor = SavedCursor { name: name.into(), position: Lsn::ZERO, max_lag };
        if !cursor.is_valid() {
            let text = format!(
                "the cursor's name is {name:?}; it must have 1 to {MAX_CURSOR_NAME_BYTES} bytes, \
                 none of which is zero"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if let Some(from) = from {
            self.check_begin(from)?;
            self.handle.commit.own()?.wait(from, None)?;
        }
        let mut refusal = None;
        self.handle.change_state(from, |state| {
            let at = match state.cursors.binary_search_by(|known| known.name.as_str().cmp(name)) {
                Ok(_) => return refusal = Some(exists(name)),
                Err(_) if state.cursors.len() >= MAX_CURSORS => return refusal = Some(too_many()),
                Err(at) => at,
            };
            let begin = self.handle.epochs.leave_discarded(from.unwrap_or(state.head));
            cursor.position = begin.max(state.head);
            state.cursors.insert(at, cursor);
        })?;
        refusal.map_or(Ok(()), Err)?;
        self.cursor(name)
    }

    /// Removes a cursor that is not open.
    ///
    /// # Errors
    /// `NotFound`, `Locked`: as [`cursor`](Wal::cursor). `NoSpace`, `NoFiles`, `Io`,
    /// `PermissionDenied`, `NotFound` of the log's folder: the cursor stays, but the next open may
    /// find it removed.
    pub fn remove_cursor(&self, name: &str) -> Result<()> {
        self.check_open()?;
        // No other thread opens it meanwhile.
        self.handle.enter_cursor(name)?;
        let removed = self.handle.change_state(None, |state| {
            state.cursors.retain(|cursor| cursor.name != name);
        });
        // The save has forgotten the cursor.
        removed.inspect_err(|_| self.handle.confirmations.leave(name))
    }

    /// Returns all cursors, by name.
    ///
    /// # Errors
    /// `Forked`.
    pub fn cursors(&self) -> Result<Vec<CursorStatus>> {
        self.handle.commit.own()?;
        let cursors = self.handle.state.lock().cursors.clone();
        let known = self.handle.confirmations.0.lock();
        let status = |cursor: SavedCursor| {
            let is_open = known.get(&cursor.name).is_some_and(|confirmation| confirmation.is_open);
            // After the positions: none is above the end.
            let lag = self.handle.epochs.lag(|| (cursor.position, self.reserved_lsn()));
            CursorStatus::of(cursor, lag, is_open)
        };
        Ok(cursors.into_iter().map(status).collect())
    }
}

impl Handle {
    pub(super) fn enter_cursor(&self, name: &str) -> Result<(Lsn, u64)> {
        let mut known = self.confirmations.0.lock();
        // Under the lock: a confirmation is forgotten after the state with it is visible.
        let state = self.state.lock();
        let saved = state.cursors.iter().find(|cursor| cursor.name == name);
        let Some(SavedCursor { position, max_lag, .. }) = saved.cloned() else {
            return Err(unknown(name));
        };
        let new = Confirmation { position, is_open: false };
        let confirmation = known.entry(name.into()).or_insert(new);
        if confirmation.is_open {
            let text = format!("the cursor {name:?} is open already");
            return Err(Error::new(ErrorKind::Locked, text)
                .with_advice("drop the other handle of the cursor, or use another cursor"));
        }
        confirmation.is_open = true;
        Ok((confirmation.position, max_lag))
    }

    pub(super) fn head_towards(&self, to: Lsn, state: &State) -> Lsn {
        let epochs = &self.epochs;
        let lag = |at| epochs.lag(|| (at, self.commit.lock_free().buffer.reserved()));
        let keeps = |cursor: &&SavedCursor| cursor.keeps(lag(cursor.position));
        let kept = state.cursors.iter().filter(keeps);
        let lowest = kept.map(|cursor| epochs.skip_unused(cursor.position)).min();
        lowest.map_or(to, |lowest| to.min(lowest)).max(state.head)
    }
}

fn unknown(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("the log has no cursor {name:?}"))
        .with_advice("Wal::create_cursor makes one; Wal::cursors lists those that the log has")
}

fn exists(name: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("the log has a cursor {name:?} already"))
        .with_advice("Wal::cursor opens it")
}

fn too_many() -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("the log has {MAX_CURSORS} cursors already"))
        .with_advice("Wal::remove_cursor removes one that has no reader any more")
}

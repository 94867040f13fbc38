//! Flush, truncation and compaction.
//!
//! A flush takes six steps. A crash between two of them leaves tables, and a log that has at least
//! all records which the tables lack.
//!
//! 1. Under the writers' lock: seal the memtables of all keyspaces, and note the end of the log.
//!    So the sealed memtables have all records below this end, and none above.
//! 2. Sync the log: a table must not have a change that a crash can still take back.
//! 3. Write the sealed memtables of each keyspace to tables. `lsm-tree` syncs the files, the
//!    folders, and last the file that names the tables.
//! 4. Write the noted end to the file `tables/flushed`, and sync it. An open refuses tables of an
//!    older backup by it.
//! 5. Truncate the log below the noted end.
//! 6. Let the background thread compact.
//!
//! Each step of `lsm-tree` that changes the list of tables takes a seqno from a counter, and a
//! snapshot below that seqno reads the list as it was before. So the seqno must be at or above all
//! LSNs in the tables, and below all LSNs that the log gives later: before each step, the engine
//! sets the counter to the LSN of the last applied record. This needs one step at a time.

use std::sync::Arc;

use lsm_tree::AbstractTree;
use lsm_tree::compaction::Leveled;
use palisade::{ErrorKind, Lsn};

use crate::engine::{Engine, Tables, lock, lock_in_drop};
use crate::{Error, Result, flushed};

/// While a keyspace has this many runs of tables in level 0, a flush first merges them. `lsm-tree`
/// can count 255, and forgets all of them at the next one.
const MAX_RUNS: usize = 20;

/// Notes a panic, so that writers do not wait for a thread that has ended.
struct Step<'e> {
    engine: &'e Engine,
    is_done: bool,
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.engine.stop_after(Error::Panicked);
        }
    }
}

impl Engine {
    /// Flushes all memtables and truncates the log. After an error the engine takes no more writes.
    pub(crate) fn flush(&self) -> Result<()> {
        while self.most_runs() >= MAX_RUNS && self.compact_once()? {}
        if self.most_runs() >= MAX_RUNS {
            self.compact()?;
        }
        self.one_at_a_time(|| {
            // First without a seal: each sync that finds no space would leave one more memtable.
            self.sync_sealed()?;
            let (keyspaces, last, end) = self.seal();
            self.sync_sealed()?;
            for tables in &keyspaces {
                self.setup.seqno.set(last.as_u64());
                let next_table = tables.tree.get_next_table_id();
                let flush_lock = tables.tree.get_flush_lock();
                let flushed = tables.tree.flush(&flush_lock, self.watermark());
                flushed.map_err(Error::tables(&tables.path))?;
                lock(&self.writer).flushed_bytes += tables.bytes_from(next_table);
                // `lsm-tree` does so at a flush that writes tables. A keyspace without changes
                // would else keep the memtables that a snapshot needed until it has some.
                let mut history = tables.tree.get_version_history_lock();
                let released = history.maintenance(&tables.path, self.watermark());
                released.map_err(Error::tables(&tables.path))?;
            }
            if self.wal.head_lsn() < end {
                flushed::write(&self.setup.folder, end, &keyspaces)?;
                self.wal.truncate_before(end)?;
            }
            let mut writer = lock(&self.writer);
            (writer.sealed_bytes, writer.is_short) = (0, false);
            writer.segments.truncated(end);
            writer.is_compaction_due = true;
            self.room.notify_all();
            self.work.notify_one();
            Ok(())
        })
    }

    /// Syncs the log. If it fails, the memtables stay sealed for the next flush.
    fn sync_sealed(&self) -> Result<()> {
        let mut synced = self.wal.sync();
        if synced.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace) {
            // Frees what a cursor or a reader of the log has kept until now.
            let flushed = lock(&self.writer).segments.flushed;
            let freed = self.wal.truncate_before(flushed);
            synced = freed.and_then(|()| self.wal.sync());
        }
        if synced.is_err() {
            let mut writer = lock(&self.writer);
            writer.active_bytes += std::mem::take(&mut writer.sealed_bytes);
        }
        Ok(synced?)
    }

    /// Seals the memtables. Returns the keyspaces, and the LSN and the end of the last record that
    /// the sealed memtables have.
    fn seal(&self) -> (Vec<Arc<Tables>>, Lsn, Lsn) {
        let mut writer = lock(&self.writer);
        let keyspaces = self.keyspaces().clone();
        for tables in &keyspaces {
            tables.tree.rotate_memtable();
        }
        writer.sealed_bytes += std::mem::take(&mut writer.active_bytes);
        self.room.notify_all();
        (keyspaces, writer.last, writer.end)
    }

    /// Merges all tables of each keyspace.
    pub(crate) fn compact(&self) -> Result<()> {
        let bytes = self.options.table_bytes;
        // A `for` would keep the lock of a temporary until its end.
        let keyspaces = self.keyspaces().clone();
        for tables in keyspaces {
            self.step(&tables, |watermark| tables.tree.major_compact(bytes, watermark))?;
        }
        Ok(())
    }

    /// Does one step of compaction, if a keyspace needs one.
    fn compact_once(&self) -> Result<bool> {
        let keyspaces = self.keyspaces().clone();
        for tables in keyspaces {
            let strategy = Leveled::default().with_table_target_size(self.options.table_bytes);
            let strategy = Arc::new(strategy);
            if self.step(&tables, |watermark| tables.tree.compact(strategy, watermark))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether `compact` has changed the list of tables.
    fn step(
        &self,
        tables: &Tables,
        compact: impl FnOnce(u64) -> lsm_tree::Result<()>,
    ) -> Result<bool> {
        self.one_at_a_time(|| {
            let before = tables.tree.current_version().id();
            let next_table = tables.tree.get_next_table_id();
            self.setup.seqno.set(lock(&self.writer).last.as_u64());
            compact(self.watermark()).map_err(Error::tables(&tables.path))?;
            lock(&self.writer).compacted_bytes += tables.bytes_from(next_table);
            Ok(tables.tree.current_version().id() != before)
        })
    }

    /// Does one flush or one step of compaction. There is none after a close: another process may
    /// have the database then.
    ///
    /// After an error it is not known which bytes a device has. The log has all of them, so the
    /// engine refuses writes, and the next open flushes again from the log. The same after a panic.
    /// If the log lacks space or file descriptors, it has lost nothing, and a later flush can work.
    pub(crate) fn one_at_a_time<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        // After a panic with the lock there is a failure.
        let _one_at_a_time = lock_in_drop(&self.maintenance);
        let (failure, is_closed) = {
            let writer = lock(&self.writer);
            (writer.failure.clone(), writer.is_closed)
        };
        if let Some(failure) = failure {
            return Err(Error::Stopped(failure));
        }
        if is_closed {
            let text = "the database is closed";
            let closed = palisade::Error::new(palisade::ErrorKind::Closed, text);
            return Err(closed.with_advice("drop all of its handles and open it again").into());
        }
        let mut step = Step { engine: self, is_done: false };
        let done = work();
        step.is_done = true;
        done.map_err(|error| match error {
            Error::Log(error) if error.is_shortage() => {
                lock(&self.writer).is_short = true;
                self.room.notify_all();
                error.into()
            }
            error => Error::Stopped(self.stop_after(error)),
        })
    }

    /// Refuses all later writes, flushes and compactions.
    fn stop_after(&self, error: Error) -> Arc<Error> {
        let failure = Arc::new(error);
        lock_in_drop(&self.writer).failure = Some(Arc::clone(&failure));
        self.room.notify_all();
        self.work.notify_one();
        failure
    }

    /// The background thread: flushes when it is due, and compacts in between. It ends after a
    /// close, or after an error, which the next write reports.
    pub(crate) fn run(&self) {
        while let Some(is_flush_due) = self.wait_for_work() {
            let done = if is_flush_due { self.flush().map(|()| true) } else { self.compact_once() };
            // An error is in `Writer::failure`, and ends the loop, or in `Writer::is_short`.
            if let Ok(true) = done {
                lock(&self.writer).is_compaction_due = true;
            }
        }
    }

    /// Returns whether a flush is due, else a compaction is.
    fn wait_for_work(&self) -> Option<bool> {
        let mut writer = lock(&self.writer);
        loop {
            if writer.is_closed || writer.failure.is_some() {
                return None;
            }
            if self.is_flush_due(&writer) && !writer.is_short {
                return Some(true);
            }
            if std::mem::take(&mut writer.is_compaction_due) {
                return Some(false);
            }
            writer = self.work.wait(writer).expect("no thread panics while it holds the lock");
        }
    }

    /// The greatest number of runs in level 0 that a keyspace has.
    pub(crate) fn most_runs(&self) -> usize {
        self.keyspaces().iter().map(|tables| tables.tree.l0_run_count()).max().unwrap_or(0)
    }
}

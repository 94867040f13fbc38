//! Writes filled reservations from the log buffer to the store, in large pieces.
//!
//! Only the holder of the write lock (the lock of the [`WriteCursor`]) writes:
//! - the leader, before a sync;
//! - the flusher, after a piece of `write_bytes` is complete;
//! - an appender that has no room, or whose complete piece the flusher does not take;
//! - an appender under the policy `Os`, `flush_to_os`, and a reader of unwritten records;
//! - the drop of the last handle.
//!
//! A writer never waits for a hole. The store may sync within a write if it makes a segment, or
//! closes the oldest of too many open files.

use std::io::IoSlice;

use palisade_store::sync::Ordering;

use super::Commit;
use crate::buffer::Buffer;
use crate::frame::EpochSeed;
use crate::{Lsn, Result};

#[derive(Debug)]
pub(crate) struct WriteCursor {
    written: Lsn,
}

struct FilledRun {
    end: Lsn,
    /// Where the last of them begins.
    last: Lsn,
    reservations: u64,
}

impl WriteCursor {
    pub(crate) fn new(written: Lsn) -> WriteCursor {
        WriteCursor { written }
    }

    /// Returns the complete reservations up to `until` or about `bytes` bytes.
    fn collect(&self, buffer: &Buffer, bytes: u64, until: Lsn) -> FilledRun {
        let mut run = FilledRun { end: self.written, last: self.written, reservations: 0 };
        while run.end < until && run.end.bytes_since(self.written) < bytes {
            let Some(end) = buffer.published_end(run.end) else { break };
            run = FilledRun { end, last: run.end, reservations: run.reservations + 1 };
        }
        run
    }
}

impl Commit {
    /// Moves the tail and every watermark to `tail`, the end of the first records of a new epoch.
    /// The caller leads, and everything below the end that the pause fixed is durable.
    pub(crate) fn jump(&self, cursor: &mut WriteCursor, tail: Lsn, seed: EpochSeed) {
        self.buffer.resume(tail, seed);
        let changes =
            (self.counters.writes.version.change(), self.counters.rounds.version.change());
        self.filled.publish(tail);
        cursor.written = tail;
        self.buffer.publish_written(tail);
        self.durable.publish(tail);
        drop(changes);
    }

    /// Writes what is filled and returns the new *written*. Leaves later reservations to the next
    /// call, so that no thread writes for the others for ever.
    pub(crate) fn write_filled(&self) -> Result<Lsn> {
        let until = self.buffer.reserved();
        let write = || self.write_with(&mut self.cursor.lock(), until);
        self.poison_unless_no_space(self.poison_on_panic(write))
    }

    /// As `write_filled`, unless another thread holds the write lock.
    pub(crate) fn try_write_filled(&self) -> Result<()> {
        let until = self.buffer.reserved();
        let write = || match self.cursor.try_lock() {
            Some(mut cursor) => self.write_with(&mut cursor, until).map(drop),
            None => Ok(()),
        };
        self.poison_unless_no_space(self.poison_on_panic(write))
    }

    /// Writes up to `until`, and notes a failure under the write lock: no other thread writes
    /// after it.
    fn write_with(&self, cursor: &mut WriteCursor, until: Lsn) -> Result<Lsn> {
        let written = self.note_panic(|| self.write_until(cursor, until));
        written.map_err(|error| match error.is_shortage() {
            true => error,
            false => self.note_failure(error),
        })
    }

    /// Returns the LSN of the last reservation that was written since the open, or 0.
    pub(crate) fn last_written(&self) -> Lsn {
        // Relaxed: a hint. A reader begins there, or below.
        Lsn::new(self.last_written.load(Ordering::Relaxed))
    }

    pub(super) fn poison_unless_no_space<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| if error.is_shortage() { error } else { self.poison(error) })
    }

    #[expect(unsafe_code, reason = "the write lock's holder reads what others published")]
    fn write_until(&self, cursor: &mut WriteCursor, until: Lsn) -> Result<Lsn> {
        while cursor.written < until {
            let run = cursor.collect(&self.buffer, self.write_bytes, until);
            if run.reservations == 0 {
                break;
            }
            self.check()?;
            self.filled.publish(run.end.max(self.filled.peek()));
            if self.store.prepared() < run.end {
                self.store.prepare(run.end)?;
            }
            let from = cursor.written;
            let write = |pieces: &[IoSlice<'_>; 2]| {
                let used = if pieces[1].is_empty() { 1 } else { 2 };
                self.store.write(from, &pieces[..used])
            };
            // SAFETY:
            // - write lock: `from` comes out of the cursor, whose lock the caller holds, and equals
            //   *written*, which is published together with it.
            // - published: `run` comes out of `collect`, which followed `published_end`.
            unsafe { self.buffer.read(from, run.end, write) }?;
            // Relaxed: a hint, for `last_written`.
            self.last_written.store(run.last.as_u64(), Ordering::Relaxed);
            let writes = &self.counters.writes;
            let change = writes.version.change();
            writes.note(&change, run.reservations, run.end.bytes_since(from));
            cursor.written = run.end;
            self.buffer.publish_written(run.end);
            drop(change);
        }
        self.store.prepare_ahead(until);
        self.observer.written(cursor.written);
        self.watch_space(cursor.written);
        Ok(cursor.written)
    }
}

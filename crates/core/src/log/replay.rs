//! Opens a log and hands its records to the engine before any thread can append.

use std::sync::Arc;

use super::Wal;
use crate::reader::Record;
use crate::recovery::dry_run;
use crate::store::Store;
use crate::{Error, Lsn, MIN_SEGMENT_BYTES, Options, RecoveryReport, Result, check_segment_bytes};

/// What an open hands to the engine, in LSN order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replay<'a> {
    /// The records of another segment follow.
    Segment(SegmentStart),
    /// A record. It is durable, and no later open removes it.
    Record(Record<'a>),
}

/// The progress of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentStart {
    /// The segment's number.
    pub segment: u64,
    /// The LSN of the first record that is replayed from it.
    pub at: Lsn,
    /// The exclusive end of the replay.
    pub end: Lsn,
    /// The number of records that were replayed before.
    pub records: u64,
}

impl Wal {
    /// Opens the log as [`with_store`](Wal::with_store) does. Then passes every record from the one
    /// at `from` on, or from the head on, to `f` before any thread can append.
    ///
    /// # Errors
    /// As [`with_store`](Wal::with_store) and [`records_from`](Wal::records_from). `Corrupt`: a
    /// record that is replayed does not validate. The error that `f` returned.
    pub fn with_store_replaying<E: From<Error>>(
        store: impl Store,
        options: &Options,
        from: Option<Lsn>,
        f: impl FnMut(Replay<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Wal, E> {
        let wal = Wal::with_store(store, options)?;
        wal.replay(from, f)?;
        Ok(wal)
    }

    /// Returns what an open of the log in `store` would find and decide. Changes nothing.
    ///
    /// In the report `base`, `epoch` and `appends_survive_kill` are not set.
    ///
    /// # Errors
    /// As [`with_store`](Wal::with_store), except those of writing.
    pub fn dry_run(store: impl Store, options: &Options) -> Result<RecoveryReport> {
        options.validate()?;
        check_segment_bytes(store.state()?.segment_bytes, MIN_SEGMENT_BYTES)?;
        let store: Arc<dyn Store> = Arc::new(store);
        let predicted = dry_run(&store, options);
        store.close();
        predicted
    }

    fn replay<E: From<Error>>(
        &self,
        from: Option<Lsn>,
        mut f: impl FnMut(Replay<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let end = self.reserved_lsn();
        let segment_bytes = self.handle.state.lock().segment_bytes;
        let mut records = match from {
            Some(from) => self.records_from(from)?,
            None => self.records()?,
        };
        let (mut count, mut current) = (0, None);
        while let Some(record) = records.next()? {
            let segment = record.lsn().segment(segment_bytes);
            if current.replace(segment) != Some(segment) {
                let start = SegmentStart { segment, at: record.lsn(), end, records: count };
                f(Replay::Segment(start))?;
            }
            f(Replay::Record(record))?;
            count += 1;
        }
        Ok(())
    }
}

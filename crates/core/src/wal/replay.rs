//! Opening a log and handing its records to the engine before anybody appends.

use std::sync::Arc;

use super::Wal;
use crate::reader::Record;
use crate::recovery::foresee;
use crate::store::Store;
use crate::{Error, Lsn, MIN_SEGMENT_BYTES, Options, RecoveryReport, Result, check_segment_bytes};

/// What a log that is being opened hands to its engine, in LSN order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replay<'a> {
    /// The records of another segment follow.
    Segment(SegmentStart),
    /// A record. It is durable, and no later open takes it back.
    Record(Record<'a>),
}

/// How far a replay has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentStart {
    /// The segment's number.
    pub segment: u64,
    /// The LSN of the first record that is handed out of it.
    pub at: Lsn,
    /// The exclusive end of what is replayed.
    pub end: Lsn,
    /// Records handed out before.
    pub records: u64,
}

impl Wal {
    /// As [`with_store`](Wal::with_store), handing every record from the one at `from` on, or
    /// from the head on, to `f` before anybody can append.
    ///
    /// The records are borrowed and come in LSN order, whether the log was closed cleanly or
    /// not. Recovery is complete before the first of them: what `f` was given stays in the log,
    /// whatever happens afterwards. An error from `f` ends the open; nothing is lost by it, and
    /// the next open replays the same records.
    ///
    /// ```
    /// # fn show(store: impl palisade_core::store::Store) -> palisade_core::Result<()> {
    /// use palisade_core::{Error, Options, Replay, Wal};
    /// let mut bytes = 0;
    /// let options = Options::default();
    /// let wal = Wal::with_store_replaying(store, &options, None, |event| {
    ///     if let Replay::Record(record) = event {
    ///         bytes += record.data().len();
    ///     }
    ///     Ok::<(), Error>(())
    /// })?;
    /// # drop(wal); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`with_store`](Wal::with_store) and [`iter_from`](Wal::iter_from); `Corrupt`: a record
    /// that is replayed does not validate. What `f` returned.
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

    /// What opening the log in `store` would find and decide. Changes nothing.
    ///
    /// In the report `base`, `epoch` and `appends_survive_kill` are not set.
    ///
    /// # Errors
    /// As [`with_store`](Wal::with_store), as far as reading can tell.
    pub fn foresee(store: impl Store, options: &Options) -> Result<RecoveryReport> {
        options.validate()?;
        check_segment_bytes(store.state()?.segment_bytes, MIN_SEGMENT_BYTES)?;
        let store: Arc<dyn Store> = Arc::new(store);
        let foreseen = foresee(&store, options);
        store.close();
        foreseen
    }

    fn replay<E: From<Error>>(
        &self,
        from: Option<Lsn>,
        mut f: impl FnMut(Replay<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let end = self.reserved_lsn();
        let segment_bytes = self.handle.state.lock().segment_bytes;
        let mut records = match from {
            Some(from) => self.iter_from(from)?,
            None => self.iter()?,
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

//! The soft limit: the callback thread calls back once when the segments that hold log pass it, and
//! again only after a truncation has brought them below.

use std::sync::Arc;

use palisade_store::FilesTaken;
use palisade_store::sync::{Mutex, Ordering, StatCell};

use super::Commit;
use crate::options::SoftLimit;
use crate::{Lsn, Result};

#[derive(Debug)]
pub(super) struct SpaceWatch {
    limit: Option<SoftLimit>,
    segment_bytes: u64,
    // The number of the segment at which the thread that writes has looked.
    segment: StatCell,
    // True from the call until the files are below the limit again. Held during a look.
    is_above: Mutex<bool>,
}

impl SpaceWatch {
    pub(super) fn new(limit: Option<SoftLimit>, segment_bytes: u64) -> SpaceWatch {
        let segment = StatCell::new(u64::MAX);
        SpaceWatch { limit, segment_bytes, segment, is_above: Mutex::new(false) }
    }
}

impl Commit {
    /// Looks at the limit if the log has come to another segment. The caller holds the write lock.
    pub(super) fn watch_space(&self, written: Lsn) {
        if self.space_watch.limit.is_none() {
            return;
        }
        let segment = written.segment(self.space_watch.segment_bytes);
        // Relaxed: the write lock orders the looks.
        if self.space_watch.segment.swap(segment, Ordering::Relaxed) != segment {
            self.look_at_space();
        }
    }

    /// Returns how many segments hold log, and all files.
    pub(crate) fn segments_in_use(&self) -> Result<(u64, FilesTaken)> {
        let segment_bytes = self.space_watch.segment_bytes;
        // Before the list: what is prepared meanwhile counts as in use.
        let prepared = self.store.prepared();
        let used = self.buffer.written.read().segment_start_at_or_above(segment_bytes);
        let ahead = prepared.as_u64().saturating_sub(used.as_u64()) / segment_bytes;
        let taken = self.store.files_taken()?;
        Ok((taken.segments.saturating_sub(ahead), taken))
    }

    /// Compares the segments that hold log with the limit. One thread at a time: a list that is
    /// older than that of another look would report the log above the limit a second time.
    pub(crate) fn look_at_space(&self) {
        let Some(limit) = &self.space_watch.limit else { return };
        let mut is_above = self.space_watch.is_above.lock();
        // What fails here fails in the next call that needs the folder.
        let Ok((segments, taken)) = self.segments_in_use() else { return };
        let bytes = segments.saturating_mul(taken.file_bytes);
        let was_above = std::mem::replace(&mut *is_above, bytes > limit.bytes);
        if *is_above && !was_above {
            let callback = Arc::clone(&limit.callback);
            self.callbacks.run_soon(Box::new(move |_| callback(bytes)), Ok(()));
            self.observer.above_soft_limit(bytes, limit.bytes);
        }
    }
}

//! Events of a log, and the spans of its calls, for the feature `tracing`.

use std::fmt;
use std::sync::Arc;

use palisade_store::sync::{Ordering, StatCell, survive};

use crate::{Error, Lsn, Options, Uuid, Wal};

/// Enters a span until the end of the block.
macro_rules! span {
    ($name:literal, $($fields:tt)*) => {
        #[cfg(feature = "tracing")]
        let _span = tracing::info_span!(target: "palisade", $name, $($fields)*).entered();
    };
}

pub(crate) use span;

/// Gets the events of a log, each on the thread on which it happens. That thread may hold locks of
/// the log, so an observer must not call the log.
pub(crate) trait Events: Send + Sync + fmt::Debug + 'static {
    /// Comes once.
    fn poisoned(&self, log: Uuid, cause: &Error);

    /// Reports the segment at `base`, to which the log writes now. One write can pass several.
    fn rotated(&self, log: Uuid, base: Lsn);

    fn released(&self, log: Uuid, to: Lsn);

    /// Comes again only after the log took less.
    fn above_soft_limit(&self, log: Uuid, bytes: u64, limit: u64);
}

#[derive(Debug)]
pub(crate) struct Observer {
    events: Option<Arc<dyn Events>>,
    log: Uuid,
    segment_bytes: u64,
    // The base of the segment that was reported last.
    segment: StatCell,
}

impl Observer {
    pub(crate) fn new(
        events: Option<Arc<dyn Events>>,
        log: Uuid,
        segment_bytes: u64,
        at: Lsn,
    ) -> Observer {
        let segment = StatCell::new(at.as_u64() / segment_bytes * segment_bytes);
        Observer { events, log, segment_bytes, segment }
    }

    pub(crate) fn poisoned(&self, cause: &Error) {
        self.call(|events| events.poisoned(self.log, cause));
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    pub(crate) fn above_soft_limit(&self, bytes: u64, limit: u64) {
        self.call(|events| events.above_soft_limit(self.log, bytes, limit));
    }

    pub(crate) fn released(&self, to: Lsn) {
        self.call(|events| events.released(self.log, to));
    }

    pub(crate) fn written(&self, written: Lsn) {
        if self.events.is_none() {
            return;
        }
        let last = written.as_u64().saturating_sub(1);
        let base = last / self.segment_bytes * self.segment_bytes;
        // Relaxed: no base is reported twice, and nothing rests on it.
        if self.segment.fetch_max(base, Ordering::Relaxed) < base {
            self.call(|events| events.rotated(self.log, Lsn::new(base)));
        }
    }

    /// Calls the observer. Its panic must not end a thread that others wait for.
    fn call(&self, event: impl FnOnce(&dyn Events)) {
        if let Some(events) = &self.events {
            let _ = survive(|| event(events.as_ref()));
        }
    }
}

pub(crate) fn observed(options: Options) -> Options {
    #[cfg_attr(not(feature = "tracing"), expect(unused_mut, reason = "there is no observer"))]
    let mut options = options;
    #[cfg(feature = "tracing")]
    {
        options.events = Some(Arc::new(tracing_events::Tracing));
    }
    options
}

#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "nothing is reported"))]
pub(crate) fn recovered(wal: &Wal) {
    #[cfg(feature = "tracing")]
    tracing_events::recovered(wal);
}

#[cfg(feature = "tracing")]
mod tracing_events {
    use super::Events;
    use crate::{Error, Lsn, Uuid, Wal};

    #[derive(Debug)]
    pub(super) struct Tracing;

    impl Events for Tracing {
        fn poisoned(&self, log: Uuid, cause: &Error) {
            tracing::error!(
                name: "poisoned", target: "palisade", %log, %cause,
                "the log has failed; drop all handles and open it again"
            );
        }

        fn rotated(&self, log: Uuid, base: Lsn) {
            tracing::debug!(
                name: "rotated", target: "palisade", %log, base = base.as_u64(),
                "the log writes to the next segment"
            );
        }

        fn above_soft_limit(&self, log: Uuid, bytes: u64, limit: u64) {
            tracing::warn!(
                name: "above_soft_limit", target: "palisade", %log, bytes, limit,
                "the log's files take more than the soft limit; truncate the log"
            );
        }

        fn released(&self, log: Uuid, to: Lsn) {
            tracing::debug!(
                name: "released", target: "palisade", %log, to = to.as_u64(),
                "the segments below this LSN were freed"
            );
        }
    }

    pub(super) fn recovered(wal: &Wal) {
        let report = wal.recovery_report();
        tracing::info!(
            name: "recovered", target: "palisade", log = %wal.uuid(),
            clean = report.clean,
            records = report.records,
            torn_bytes = report.torn_bytes,
            holes_padded = report.holes_padded,
            end = report.end.as_u64(),
            base = report.base.as_u64(),
            elapsed_us = report.elapsed.as_micros() as u64,
            "the log is open"
        );
    }
}

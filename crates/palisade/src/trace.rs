//! The spans and events of the feature `tracing`. Without it, each of these is empty.

/// Enters a span until the end of the block.
macro_rules! span {
    ($name:literal, $($fields:tt)*) => {
        #[cfg(feature = "tracing")]
        let _span = tracing::info_span!(target: "palisade", $name, $($fields)*).entered();
    };
}

pub(crate) use span;

use crate::Wal;

/// Returns the options of the log with an observer.
pub(crate) fn observed(options: &palisade_core::Options) -> palisade_core::Options {
    #[cfg_attr(not(feature = "tracing"), expect(unused_mut, reason = "there is no observer"))]
    let mut options = options.clone();
    #[cfg(feature = "tracing")]
    {
        options.events = Some(std::sync::Arc::new(events::Tracing));
    }
    options
}

/// Reports what the open of `wal` found.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "nothing is reported"))]
pub(crate) fn recovered(wal: &Wal) {
    #[cfg(feature = "tracing")]
    events::recovered(wal);
}

#[cfg(feature = "tracing")]
mod events {
    use palisade_core::{Events, Uuid};

    use crate::{Error, Lsn, Wal};

    /// Turns events of the core into those of `tracing`.
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

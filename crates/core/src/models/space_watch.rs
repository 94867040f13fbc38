//! A model of the soft limit.

use std::sync::Arc;

use palisade_store::sync::{Ordering, StatCell};

use super::store::ModelStore;
use super::{Bound, Log, Shape, check, spawn};
use crate::events::Events;
use crate::options::SoftLimit;
use crate::{Error, Lsn, Options, Uuid};

#[derive(Debug, Default)]
struct TimesAbove(StatCell);

impl Events for TimesAbove {
    fn poisoned(&self, _: Uuid, _: &Error) {}

    fn rotated(&self, _: Uuid, _: Lsn) {}

    fn released(&self, _: Uuid, _: Lsn) {}

    fn above_soft_limit(&self, _: Uuid, _: u64, _: u64) {
        // Relaxed: a count.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_soft_limit_is_reported_once_until_the_log_has_shrunk() {
    check("a_soft_limit_is_reported_once_until_the_log_has_shrunk", Bound::At(3), || {
        let times = Arc::new(TimesAbove::default());
        let options = Options {
            soft_limit: Some(SoftLimit { bytes: 1, callback: Arc::new(|_| ()) }),
            events: Some(Arc::clone(&times) as Arc<dyn Events>),
            ..Options::default()
        };
        let log = Log::with_options(Shape::TINY, ModelStore::new(Lsn::ZERO), options);
        let look = |files: Option<u64>| {
            files.into_iter().for_each(|files| log.store.set_files(files));
            log.wal.commit_state().look_at_space();
            // Relaxed: a count.
            times.0.load(Ordering::Relaxed)
        };
        // One of the files is prepared for what comes.
        assert_eq!(look(Some(4)), 1);
        let writer = spawn(&log, move |log| log.wal.commit_state().look_at_space());
        look(Some(1));
        writer.join().unwrap();
        assert_eq!(look(None), 1, "it was above once");
        assert_eq!(look(Some(4)), 2, "and now again");
    });
}

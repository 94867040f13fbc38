//! Loom models of what appends, truncations, the keeper and tails share: stripes, live counts, the
//! wake-ups.
//!
//! They run the stripes and the segments themselves, over a log that is only its end: an append is
//! one addition, as in the log.

mod granted;
mod moves;
mod tails;

use std::sync::Arc;

use loom::thread;
use palisade::Lsn;
use palisade_store::sync::{AtomicU64, Mutex, Ordering, model_check};

use crate::directory::Directory;
use crate::keeper::Keeper;
use crate::record::StreamId;
use crate::segments::{Live, Prefix, Segments};

/// Two records fill a segment.
const SEGMENT: u64 = 64;
const RECORD: u64 = 32;

/// Two streams, each in a stripe of its own.
const STREAMS: [StreamId; 2] = [StreamId(0), StreamId(1)];

struct Model {
    directory: Directory,
    segments: Segments,
    end: AtomicU64,
    /// Where the log begins after the keeper's step. The anchors of the streams are not counted, so
    /// all that is live are entries.
    head: Mutex<Lsn>,
}

impl Model {
    fn new() -> Arc<Model> {
        let directory = Directory::new();
        for id in STREAMS {
            directory.lock_of(id).insert(id, b"name", 0);
        }
        Arc::new(Model {
            directory,
            segments: Segments::new(Lsn::ZERO, SEGMENT),
            end: AtomicU64::new(0),
            head: Mutex::new(Lsn::ZERO),
        })
    }

    fn reserve(&self) -> Lsn {
        // Acquire: as the log's own addition.
        Lsn::new(self.end.fetch_add(RECORD, Ordering::Acquire))
    }

    /// Appends an entry, as `Shared::append` does.
    fn append(&self, id: StreamId) -> Lsn {
        self.append_if(id, || true).expect("the log takes it")
    }

    /// Appends an entry if the log takes it.
    fn append_if(&self, id: StreamId, takes_it: impl FnOnce() -> bool) -> Option<Lsn> {
        let mut stripe = self.directory.lock_to_append(id);
        if !takes_it() {
            return None;
        }
        let lsn = self.reserve();
        stripe.count(&self.segments, lsn, RECORD);
        let hub = stripe.push(id, lsn);
        drop(stripe);
        hub.into_iter().for_each(|hub| hub.wake());
        Some(lsn)
    }

    /// Removes entry `next` and those above it, as `Shared::truncate_from` does.
    fn truncate_from(&self, id: StreamId, next: u64) {
        let mut stripe = self.directory.lock_of(id);
        let lsn = self.reserve();
        stripe.count(&self.segments, lsn, RECORD);
        let slot = stripe.live(id).expect("it is there");
        let mut removed = Vec::new();
        slot.change(|entries| {
            entries.truncate_from(next, |(of, count)| removed.push((of, Live::entries(count))));
        });
        let hub = slot.hub().cloned();
        stripe.remove_live(&self.segments, lsn, &removed);
        hub.iter().for_each(|hub| hub.note_cut(next));
        drop(stripe);
        hub.into_iter().for_each(|hub| hub.wake());
    }

    /// Removes all entries, as `Shared::truncate_before` does. Returns where its record is.
    fn truncate(&self, id: StreamId) -> Lsn {
        let mut stripe = self.directory.lock_of(id);
        let lsn = self.reserve();
        stripe.count(&self.segments, lsn, RECORD);
        let slot = stripe.live(id).expect("it is there");
        let next = slot.next();
        let mut removed = Vec::new();
        slot.change(|entries| {
            entries.truncate_before(next, |(of, count)| {
                removed.push((of, Live::entries(count)));
            })
        });
        stripe.remove_live(&self.segments, lsn, &removed);
        lsn
    }

    /// Does one step of the keeper. Returns what it would release.
    fn keep(&self) -> Option<Prefix> {
        // Relaxed: as `Wal::reserved_lsn`.
        let end = || Lsn::new(self.end.load(Ordering::Relaxed));
        let reserved = self.directory.flush_all(&self.segments, end);
        let dead = self.segments.dead_prefix(reserved)?;
        *self.head.lock() = dead.lsn;
        Some(dead)
    }

    /// Fails if an entry that is not truncated was released.
    fn check(&self) {
        let head = *self.head.lock();
        for id in STREAMS {
            let stripe = self.directory.lock_of(id);
            let Some(entries) = stripe.slot(id).and_then(|slot| slot.entries()) else { continue };
            entries.for_each(|index, place| {
                let lsn = self.segments.lsn(place);
                assert!(lsn >= head, "entry {index} of {id:?} was released");
            });
        }
    }
}

/// Checks that the keeper releases nothing live beside an append and a truncation.
#[test]
fn nothing_live_is_released() {
    model_check("nothing_live_is_released", 3, || {
        let model = Model::new();
        model.append(STREAMS[1]);
        // The keeper flushes its stripe first.
        let appender = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.append(STREAMS[0]))
        };
        let truncater = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.truncate(STREAMS[1]);
                model.append(STREAMS[1]);
            })
        };
        model.keep();
        appender.join().unwrap();
        truncater.join().unwrap();
        model.check();
    });
}

/// Checks that a segment above the end that the keeper has read is not taken for a truncated one.
#[test]
fn a_segment_above_the_end_that_was_read_is_no_cut() {
    model_check("a_segment_above_the_end_that_was_read_is_no_cut", 2, || {
        let model = Model::new();
        // They fill the first segment, and nothing in it is live.
        model.append(STREAMS[1]);
        model.truncate(STREAMS[1]);
        let appender = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                // One stripe has the second segment, and has not handed in what it counts there.
                model.append(STREAMS[0]);
                model.append(STREAMS[0]);
                // The other one goes on to the fourth, and hands in the third.
                (0..3).for_each(|_| _ = model.append(STREAMS[1]));
            })
        };
        model.keep();
        appender.join().expect("no thread panics");
        model.check();
    });
}

/// Checks that the keeper knows the truncation that it makes durable before a release.
#[test]
fn what_removed_the_last_live_entry_is_known() {
    model_check("what_removed_the_last_live_entry_is_known", 3, || {
        let model = Model::new();
        model.append(STREAMS[0]);
        model.reserve();
        // The next segment has a record already, so the keeper can release the first one.
        model.append(STREAMS[1]);
        let keeper = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.keep().map(|_| model.segments.last_removal()))
        };
        let removal = model.truncate(STREAMS[0]);
        if let Some(known) = keeper.join().unwrap() {
            // The keeper makes this record durable before it releases the entry.
            assert_eq!(known, Some(removal));
        }
    });
}

/// Checks that the keeper misses none of two wake-ups beside its wait.
#[test]
fn a_keeper_misses_no_work() {
    model_check("a_keeper_misses_no_work", 3, || {
        let keeper = Arc::new(Keeper::new(10, None));
        let work = Arc::new(Mutex::new(0));
        let waker = {
            let (keeper, work) = (Arc::clone(&keeper), Arc::clone(&work));
            thread::spawn(move || {
                for _ in 0..2 {
                    *work.lock() += 1;
                    keeper.wake();
                }
            })
        };
        // It looks once when it starts. Then a wake-up has to bring each unit of work.
        let mut seen = 0;
        while seen < 2 {
            assert!(keeper.wait(std::time::Duration::ZERO));
            seen = *work.lock();
        }
        waker.join().unwrap();
    });
}

//! Models of moves: the keeper copies an entry beside truncations, appends and reads of its stream.
//!
//! They run the stripes and the loop of a read. Of the log they have where it begins, and of which
//! entry each copy is.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use loom::thread;
use palisade::{Error, ErrorKind, Lsn, Result};
use palisade_store::sync::model_check;

use super::{Model, RECORD, STREAMS};
use crate::entries::Place;
use crate::read::read_moved;
use crate::record::StreamId;
use crate::segments::Live;

const ID: StreamId = STREAMS[0];

/// The streams, and what the copies are copies of.
struct Copied {
    model: Arc<Model>,
    // Not the models' lock: it is no part of what they check.
    copies: std::sync::Mutex<BTreeMap<Lsn, Lsn>>,
}

impl Copied {
    /// Makes a stream whose entry 0 is the first record of the log, and fills the segment.
    fn new() -> Arc<Copied> {
        let model = Model::new();
        model.append(ID);
        model.reserve();
        Arc::new(Copied { model, copies: std::sync::Mutex::default() })
    }

    /// Moves the entries in the first segment, as `Shared::move_entries` does.
    fn copy(&self) {
        let found = {
            let stripe = self.model.directory.lock_of(ID);
            let entries = stripe.slot(ID).and_then(|slot| slot.entries());
            entries.map_or_else(Vec::new, |entries| entries.in_segments(0, 8, |of| of < 1))
        };
        // Meanwhile the keeper reads them.
        let mut stripe = self.model.directory.lock_of(ID);
        for (index, old) in found {
            if !stripe.is_at(ID, index, old) {
                continue;
            }
            let (from, lsn) = (self.model.segments.lsn(old), self.model.reserve());
            self.copies.lock().unwrap_or_else(PoisonError::into_inner).insert(lsn, from);
            stripe.count(&self.model.segments, lsn, RECORD);
            stripe.note_stream(ID);
            let moved = stripe.put_copy(&self.model.segments, ID, index, (old, lsn));
            moved.expect("it is there");
        }
    }

    fn places(&self) -> Vec<Place> {
        let stripe = self.model.directory.lock_of(ID);
        let mut places = Vec::new();
        let entries = stripe.slot(ID).and_then(|slot| slot.entries()).expect("it has entries");
        entries.for_each(|_, place| places.push(place));
        places
    }

    /// Returns what the entries are: where each was appended.
    fn entries(&self) -> Vec<Lsn> {
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.places().into_iter().map(|place| self.model.segments.lsn(place));
        all.map(|lsn| copies.get(&lsn).copied().unwrap_or(lsn)).collect()
    }

    /// Fails if a segment counts more or less than its entries as live.
    fn check_counts(&self) {
        self.model.directory.flush(&self.model.segments);
        let mut live: BTreeMap<u32, u64> = BTreeMap::new();
        for place in self.places() {
            *live.entry(place.segment).or_default() += 1;
        }
        self.model.segments.with(|all| {
            for (number, of) in all {
                let expected = Live::entries(live.get(number).copied().unwrap_or(0));
                assert_eq!(of.live, expected, "in segment {number}");
            }
        });
    }

    /// Reads entry 0. Returns where it was found.
    fn read(&self) -> Result<Lsn> {
        let look_up = || {
            let first = *self.places().first().expect("nobody truncates it");
            Ok(vec![self.model.segments.lsn(first)])
        };
        read_moved(look_up, |lsns| {
            let head = *self.model.head.lock();
            let is_there = lsns[0] >= head;
            is_there.then_some(lsns[0]).ok_or_else(|| Error::new(ErrorKind::Truncated, "released"))
        })
    }
}

/// Checks that a copy by the keeper does not bring back an entry that a truncation and an append
/// replace meanwhile.
#[test]
fn a_copy_brings_nothing_back() {
    model_check("a_copy_brings_nothing_back", 3, || {
        let copied = Copied::new();
        let writer = {
            let copied = Arc::clone(&copied);
            thread::spawn(move || {
                copied.model.truncate_from(ID, 0);
                copied.model.append(ID)
            })
        };
        copied.copy();
        copied.model.keep();
        let appended = writer.join().unwrap();
        assert_eq!(copied.entries(), [appended]);
        copied.check_counts();
        copied.model.check();
    });
}

/// Checks that two appends beside the copy of an entry of their stream are both there, and counted
/// once.
#[test]
fn an_append_beside_a_copy_keeps_its_place() {
    model_check("an_append_beside_a_copy_keeps_its_place", 3, || {
        let copied = Copied::new();
        let writer = {
            let copied = Arc::clone(&copied);
            thread::spawn(move || [copied.model.append(ID), copied.model.append(ID)])
        };
        copied.copy();
        copied.model.keep();
        let [one, two] = writer.join().unwrap();
        assert_eq!(copied.entries(), [Lsn::ZERO, one, two]);
        copied.check_counts();
        copied.model.check();
    });
}

/// Checks that a read finds an entry beside the keeper, which copies it and releases its segment.
#[test]
fn a_read_finds_an_entry_that_was_moved() {
    model_check("a_read_finds_an_entry_that_was_moved", 3, || {
        let copied = Copied::new();
        let reader = {
            let copied = Arc::clone(&copied);
            thread::spawn(move || copied.read().map_err(|error| error.kind()))
        };
        copied.copy();
        // The copy fills no segment, so another record follows.
        copied.model.append(STREAMS[1]);
        copied.model.append(STREAMS[1]);
        let released = copied.model.keep();
        assert!(released.is_some(), "the first segment has nothing live");
        assert!(reader.join().unwrap().is_ok());
    });
}

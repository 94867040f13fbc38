//! What the tests share.

use std::collections::BTreeMap;
use std::sync::Mutex;

use palisade_redb::Options;

use crate::seeds::{Seeded, number, sweep};

/// Returns options with which checkpoints, long changes and spills are frequent.
pub(crate) fn small() -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    Options::new().log(log).memory_bytes(24 * 4096).log_bytes(192 << 10)
}

/// How often histories have reached each kind of event that they have to check.
#[derive(Debug, Default)]
pub(crate) struct Reached(BTreeMap<&'static str, u64>);

impl Reached {
    pub(crate) fn new(kinds: &[&'static str]) -> Reached {
        Reached(kinds.iter().map(|&kind| (kind, 0)).collect())
    }

    pub(crate) fn count(&mut self, kind: &'static str) {
        *self.0.get_mut(kind).expect("the list has each kind") += 1;
    }

    pub(crate) fn count_if(&mut self, is_reached: bool, kind: &'static str) {
        if is_reached {
            self.count(kind);
        }
    }
}

/// Runs seeds as `sweep` does, and fails if no seed has reached some kind of event.
pub(crate) fn sweep_reaching<S: Seeded>(test: &str, usual: u64, reached: fn(&S) -> &Reached) {
    let sums = Mutex::new(Reached::default());
    sweep(test, usual, |history: S| {
        let mut sums = sums.lock().unwrap();
        reached(&history).0.iter().for_each(|(kind, n)| *sums.0.entry(kind).or_default() += n);
    });
    let sums = sums.into_inner().unwrap().0;
    println!("{sums:?}");
    // A few seeds that are run again may not reach all of it.
    let is_usual = number("PALISADE_SEEDS").is_none_or(|seeds| seeds >= usual)
        && number("PALISADE_SECONDS").is_none();
    let missing: Vec<_> = sums.iter().filter(|(_, n)| **n == 0).collect();
    assert!(!is_usual || missing.is_empty(), "the histories never reach {missing:?}");
}

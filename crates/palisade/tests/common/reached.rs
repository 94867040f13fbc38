//! Sweeps that fail if their histories never come to some kind of step: nothing would check it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::seeds::{Seeded, number, sweep};

/// How often a history has come to each kind of step.
#[derive(Debug, Default)]
pub(crate) struct Reached(BTreeMap<&'static str, u64>);

impl Reached {
    pub(crate) fn new(kinds: &[&'static str]) -> Reached {
        Reached(kinds.iter().map(|&kind| (kind, 0)).collect())
    }

    pub(crate) fn add(&mut self, count: u64, kind: &'static str) {
        *self.0.get_mut(kind).expect("the list has each kind") += count;
    }
}

/// Runs seeds as `sweep` does, prints the sums, and fails if one is 0.
pub(crate) fn sweep_reaching<S: Seeded>(test: &str, usual: u64, reached: fn(&S) -> &Reached) {
    let sums = Mutex::new(Reached::default());
    sweep(test, usual, |history: S| {
        let mut sums = sums.lock().unwrap();
        reached(&history).0.iter().for_each(|(kind, n)| *sums.0.entry(kind).or_default() += n);
    });
    let sums = sums.into_inner().unwrap().0;
    sums.iter().for_each(|(kind, sum)| println!("{sum:>9} {kind}"));
    // A few seeds that are run again may not reach all of it.
    let is_usual = number("PALISADE_SEEDS").is_none_or(|seeds| seeds >= usual)
        && number("PALISADE_SECONDS").is_none();
    let missing: Vec<_> = sums.iter().filter(|(_, sum)| **sum == 0).collect();
    assert!(!is_usual || missing.is_empty(), "the histories never reach {missing:?}");
}

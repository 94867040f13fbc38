//! What the seeds of a sweep have reached: histories that never come to a kind of step check
//! nothing of it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::seeds::number;

/// How often one history came to each kind of step.
#[derive(Default)]
pub(crate) struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    pub(crate) fn add(&mut self, kind: &'static str, count: u64) {
        *self.0.entry(kind).or_insert(0) += count;
    }
}

/// The sums over all histories of a sweep.
#[derive(Default)]
pub(crate) struct Reached(Mutex<Counts>);

impl Reached {
    /// Adds the counts of a history that passed.
    pub(crate) fn add(&self, counts: Counts) {
        let mut sums = self.0.lock().unwrap();
        counts.0.into_iter().for_each(|(kind, count)| sums.add(kind, count));
    }

    /// Prints the sums. Panics if one of `kinds` was not reached by `usual` seeds or more: fewer,
    /// such as one that is run again, may leave some out.
    pub(crate) fn check(self, usual: u64, kinds: &[&str]) {
        let sums = self.0.into_inner().unwrap().0;
        sums.iter().for_each(|(kind, sum)| println!("{sum:>9} {kind}"));
        if number("PALISADE_SEEDS").is_none_or(|seeds| seeds >= usual) {
            let is_missing = |kind: &&&str| sums.get(**kind).is_none_or(|sum| *sum == 0);
            let missing: Vec<_> = kinds.iter().filter(is_missing).collect();
            assert!(missing.is_empty(), "no history reached: {missing:?}");
        }
    }
}

//! What the seeds of a sweep have reached: a history that never comes to something checks nothing
//! of it.

use std::sync::Mutex;

use crate::seeds::number;

/// Counts of the things that `names` names, over all seeds.
pub(crate) struct Reached<const N: usize> {
    names: [&'static str; N],
    sums: Mutex<[u64; N]>,
}

impl<const N: usize> Reached<N> {
    pub(crate) fn new(names: [&'static str; N]) -> Reached<N> {
        Reached { names, sums: Mutex::new([0; N]) }
    }

    /// Adds the counts of a seed that passed.
    pub(crate) fn add(&self, counts: [u64; N]) {
        self.sums.lock().unwrap().iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }

    /// Prints the counts. Panics if one is 0 after `usual` seeds or more: fewer, such as one that is
    /// run again, may lack something.
    pub(crate) fn check(self, usual: u64) {
        let sums = self.sums.into_inner().unwrap();
        let lines: Vec<_> =
            sums.iter().zip(self.names).map(|(sum, name)| format!("{sum} {name}")).collect();
        println!("{}", lines.join(", "));
        let is_usual = number("PALISADE_SEEDS").is_none_or(|seeds| seeds >= usual);
        assert!(!is_usual || !sums.contains(&0), "no seed reached: {}", lines.join(", "));
    }
}

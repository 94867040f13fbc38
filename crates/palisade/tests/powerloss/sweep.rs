//! Many seeds of random histories, and the same seed twice.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::history::History;
use crate::seeds::{Seeded, number, sweep};

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 600;
/// Seeds that are run twice.
const SAME_SEEDS: u64 = 60;

#[test]
fn seeds_of_random_crashes_lose_nothing() {
    let points = Mutex::new(BTreeSet::new());
    sweep("-p palisade --test powerloss seeds_of_random_crashes", SEEDS, |mut history: History| {
        points.lock().unwrap().append(&mut history.session.crash_points);
    });
    let points = points.into_inner().unwrap();
    println!("{} distinct crash points", points.len());
    if number("PALISADE_POINTS").is_some() {
        points.iter().for_each(|point| println!("  {point}"));
    }
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    let run = |seed| {
        let mut history = History::new(seed);
        history.run();
        history.describe()
    };
    for seed in 0..SAME_SEEDS {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

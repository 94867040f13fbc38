//! Many seeds of random histories, and the same seed twice.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::history::History;
use crate::seeds::{Seeded, number, sweep};

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 600;
/// Seeds that are run twice.
const SAME_SEEDS: u64 = 60;

#[test]
fn seeds_of_random_crashes_lose_nothing() {
    let points = Mutex::new(BTreeSet::new());
    // Relaxed: it only counts.
    let dropped = AtomicU64::new(0);
    sweep("-p palisade --test powerloss seeds_of_random_crashes", SEEDS, |mut history: History| {
        points.lock().unwrap().append(&mut history.session.crash_points);
        dropped.fetch_add(history.session.disk.pages_dropped_at_reads(), Ordering::Relaxed);
    });
    let dropped = dropped.into_inner();
    println!("{dropped} times pages vanished before a read");
    let points = points.into_inner().unwrap();
    println!("{} distinct crash points", points.len());
    let is_usual = number("PALISADE_SEEDS").is_none();
    assert!(!is_usual || dropped > 0, "no page vanished between two reads");
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

//! Many seeds of random histories.

use std::sync::Mutex;

use crate::history::History;
use crate::seeds::sweep;
use crate::session::Figures;

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 300;

/// What some history must have met.
const MET: [&str; 10] = [
    "footers read",
    "checks of footers",
    "bytes released",
    "bytes moved",
    "reads by consumers",
    "seeks",
    "calls refused for space",
    "steps without the archive",
    "entries of tails",
    "entries of followers",
];

#[test]
fn histories_with_crashes_are_what_the_model_says() {
    let sums = Mutex::new(Figures::new());
    sweep("-p palisade-streams --test histories sweep", SEEDS, |history: History| {
        let mut sums = sums.lock().unwrap();
        for (what, figure) in history.session.figures {
            *sums.entry(what).or_default() += figure;
        }
    });
    let sums = sums.into_inner().unwrap();
    println!("{sums:?}");
    for what in MET {
        assert!(sums.get(what).is_some_and(|&sum| sum > 0), "no history has met {what}");
    }
}

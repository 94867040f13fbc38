//! Many seeds of random histories.

use std::sync::Mutex;

use crate::line::{Line, Line09, Line010};
use crate::seeds::{number, sweep};
use crate::session::{Figures, History};

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 300;

fn run<L: Line>(test: &str) {
    let sums = Mutex::new([0; 11]);
    let package = "--manifest-path integrations/openraft/Cargo.toml";
    let command = format!("{package} --all-features --test crashes {test}");
    sweep(&command, SEEDS, |history: History<L>| {
        let Figures {
            opens,
            acknowledged,
            found_more,
            lost_unacknowledged,
            truncated,
            skips,
            released,
            reopened,
            begun_above,
            begun_again,
            starts_alone,
        } = history.figures;
        let figures = [
            opens,
            acknowledged,
            found_more,
            lost_unacknowledged,
            truncated,
            skips,
            released,
            reopened,
            begun_above,
            begun_again,
            starts_alone,
        ];
        sums.lock().unwrap().iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
    });
    let sums = sums.into_inner().unwrap();
    let [opens, acknowledged, more, lost, truncated, skips, released, reopened, begun @ ..] = sums;
    let [above, again, alone] = begun;
    println!(
        "{opens} opens, {acknowledged} acknowledgements, {more} calls found and {lost} lost that \
         were not acknowledged, {truncated} entries truncated, {skips} purges beyond the end, \
         {released} bytes released, {reopened} groups opened again, {above} groups begun above 0, \
         {again} begun at another index after they lost all entries, {alone} starts found without \
         an entry after a crash"
    );
    // A single seed that is run again may lack some of it.
    let is_usual = number("PALISADE_SEEDS").is_none_or(|seeds| seeds >= SEEDS);
    assert!(!is_usual || !sums.contains(&0), "the histories leave out what they check");
}

#[test]
fn histories_of_openraft_09_are_what_the_model_says() {
    run::<Line09>("histories_of_openraft_09");
}

#[test]
fn histories_of_openraft_010_are_what_the_model_says() {
    run::<Line010>("histories_of_openraft_010");
}

//! Many seeds of random histories.

use crate::line::{Line, Line09, Line010};
use crate::reached::sweep_reaching;
use crate::session::History;

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 300;

fn run<L: Line>(test: &str) {
    let package = "--manifest-path integrations/openraft/Cargo.toml";
    let command = format!("{package} --all-features --test crashes {test}");
    sweep_reaching(&command, SEEDS, |history: &History<L>| &history.reached);
}

#[test]
fn histories_of_openraft_09_are_what_the_model_says() {
    run::<Line09>("histories_of_openraft_09");
}

#[test]
fn histories_of_openraft_010_are_what_the_model_says() {
    run::<Line010>("histories_of_openraft_010");
}

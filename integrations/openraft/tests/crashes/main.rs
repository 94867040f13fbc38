//! Crashes on the simulated disk, against a model, for both lines of openraft.
//!
//! `PALISADE_FIRST_SEED` and `PALISADE_SEEDS` say which seeds are run; `cargo test` runs a few
//! hundred of each line.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "progress and figures of long runs")]

mod calls;
#[path = "../../../../crates/palisade/tests/common/dice.rs"]
mod dice;
mod line;
#[path = "../../../../crates/palisade/tests/common/reached.rs"]
mod reached;
#[path = "../../../../crates/palisade/tests/common/seeds.rs"]
mod seeds;
mod session;
mod sweep;
